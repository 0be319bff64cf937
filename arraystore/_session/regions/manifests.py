"""Manifests of many arrays, loaded together before chunks are looked up in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from arraystore._chunks.manifest_cache import ManifestCache
from arraystore._format.box import Box
from arraystore._format.ids import LayerId
from arraystore._format.layer import Layer
from arraystore._format.types import Int64s
from arraystore._runtime import run
from arraystore._runtime.concurrency import bounded
from arraystore._session.hierarchy import ArrayHandle, Hierarchy

Wanted = tuple[ArrayHandle, Sequence[Int64s]]
"""An array, and the coordinates of chunks along each axis."""


def load_manifests(hierarchy: Hierarchy, wanted: Iterable[Wanted]) -> None:
    """Load the manifests that a look-up of chunks needs, at the same time, where each takes a request."""
    reader = hierarchy.reader
    if reader.storage.cheap_probes:
        return
    missing: dict[LayerId, Layer] = {}
    for handle, axes in wanted:
        box = Box(tuple([int(axis[0]) for axis in axes]), tuple([int(axis[-1]) + 1 for axis in axes]))
        missing |= {layer.id: layer for layer in _needed(handle.layers, box) if reader.manifests.get(layer) is None}
    if len(missing) > 1:
        run(_load(reader.manifests, list(missing.values())))


def _needed(layers: Sequence[Layer], box: Box) -> Iterator[Layer]:
    """Yield the layers that may have chunks in a box, up to one that hides those below."""
    for layer in reversed(layers):
        if layer.box.intersects(box):
            yield layer
            if layer.dense and layer.box.encloses(box):
                return


async def _load(manifests: ManifestCache, missing: list[Layer]) -> None:
    """Load manifests, those attached to one record by one request."""
    records: dict[tuple[str, int], list[Layer]] = {}
    for layer in missing:
        if layer.attachment is not None:
            records.setdefault((layer.attachment.branch, layer.attachment.sequence), []).append(layer)
    await bounded(manifests.load_attached, records.values())
    await bounded(manifests.load, missing)
