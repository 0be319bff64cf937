"""Statistics as objects beside layers: reading them, and taking them over to layers that replace others."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from arraystore._format.chunk_statistics import (
    ChunkStatistics,
    combine_statistics,
    decode_statistics,
    digest_of_encoding,
    encode_statistics,
    statistics_key,
)
from arraystore._format.ids import LayerId
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest
from arraystore._format.node import Node
from arraystore._format.references import References
from arraystore._runtime.concurrency import bounded
from arraystore.errors import FormatError, ObjectNotFoundError
from arraystore.storage.protocol import Storage

_logger = logging.getLogger("arraystore")


async def load_statistics(storage: Storage, layers: Iterable[Layer]) -> list[ChunkStatistics]:
    """Load the statistics of layers, of those that have any: damaged ones are as good as none."""
    return [found for found in await bounded(lambda layer: _load(storage, layer.id), layers) if found is not None]


async def _load(storage: Storage, layer: LayerId) -> ChunkStatistics | None:
    key = statistics_key(layer)
    try:
        return decode_statistics(key, await storage.get(key))
    except ObjectNotFoundError:
        return None
    except FormatError as error:
        _logger.warning("statistics of chunks are not used: %s", error)
        return None


def known_of(tables: Sequence[ChunkStatistics], node: Node) -> ChunkStatistics | None:
    """Return what tables know of the chunks of an array under its present metadata; None for nothing."""
    return combine_statistics(tables, digest_of_encoding(node.documents))


def statistics_objects(known: ChunkStatistics | None, manifest: Manifest, layer: LayerId) -> list[tuple[str, bytes]]:
    """Return the object with what is known of the chunks of a new layer; none where nothing is."""
    bound = None if known is None else known.bound_to(References.from_manifest(manifest))
    if bound is None:
        return []
    key = statistics_key(layer)
    return [(key, encode_statistics(key, bound))]


async def load_known(storage: Storage, node: Node, layers: Iterable[Layer]) -> ChunkStatistics | None:
    """Load what layers of an array know of their chunks under its present metadata; None for nothing."""
    return known_of(await load_statistics(storage, layers), node)
