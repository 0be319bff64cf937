"""Rewrites: records that replace layers by others with the same content.

A process that prepares an exchange first writes manifests, and possibly packs, that no record names yet. The record
that names them applies while the replaced layers are still there; commits in between add their layers above them. A
collection in between may delete unreferenced objects, so an exchange with ids below its watermark is discarded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from arraystore._chunks.statistics_objects import statistics_objects
from arraystore._environment import Environment
from arraystore._format.chunk_statistics import ChunkStatistics, statistics_key
from arraystore._format.envelope import bind_object, pack_body
from arraystore._format.ids import LayerId, NodeId, PackId
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest, encode_manifest
from arraystore._format.record import (
    MAX_BODY,
    MAX_MANIFEST_IN_BODY,
    MOST_PACKS_IN_BODY,
    Replacement,
    Rewrite,
)
from arraystore._log.branch_entries import append_entry
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip, refresh
from arraystore._log.state import SnapshotState
from arraystore._log.status import check_open
from arraystore.storage.protocol import Storage

_logger = logging.getLogger("arraystore")

_MOST_BYTES = MAX_BODY // 4
"""Bytes of replacements in one record, whose body its successors repeat some eight times."""

LARGEST_EXCHANGE = MAX_BODY - 512
"""Bytes that one exchange may take in a record of its own; some three hundred manifests."""

_TRIES = 200
"""Attempts of one rewrite: of ten writers each wins one race in ten, and one that stops leaves its manifests unused."""


@dataclass(frozen=True)
class Exchange:
    """Replacement of neighbouring layers of an array by others with the same content."""

    node: NodeId
    """Id of the array."""
    replaced: tuple[Layer, ...]
    """Layers to replace, oldest first; at least one."""
    added: tuple[Layer, ...]
    """Layers to add, which may include some of the replaced ones."""
    packs: tuple[PackId, ...] = ()
    """Ids of the packs written for it."""

    @property
    def replacement(self) -> Replacement:
        """Entry of the exchange in a rewrite."""
        return Replacement(self.node, self.replaced[0].id, self.replaced[-1].id, len(self.replaced), self.added)

    @cached_property
    def new_layers(self) -> tuple[Layer, ...]:
        """Layers created for the exchange."""
        old = {layer.id for layer in self.replaced}
        return tuple([layer for layer in self.added if layer.id not in old])

    @cached_property
    def oldest(self) -> bytes | None:
        """Smallest id created for the exchange; None if there is none."""
        return min([*(layer.id for layer in self.new_layers), *self.packs], default=None)

    @cached_property
    def manifest_keys(self) -> tuple[str, ...]:
        """Keys of the manifests written for the exchange."""
        return tuple([layer.key for layer in self.new_layers if layer.inline is None])

    @cached_property
    def statistics_keys(self) -> tuple[str, ...]:
        """Keys of the statistics of the new layers, as far as there are any."""
        return tuple([statistics_key(layer.id) for layer in self.new_layers])

    @cached_property
    def weight(self) -> int:
        """Bytes that the exchange takes in a record."""
        item = self.replacement
        wire = (item.node, item.first, item.last, item.count, tuple([layer.to_wire() for layer in item.added]))
        return len(pack_body(wire)) + len(self.packs) * 14

    def fits(self, state: SnapshotState) -> bool:
        """Tell whether a snapshot has the layers to be replaced unchanged, and no fence above the new ids."""
        node = state.by_id(self.node)
        if node is None or (self.oldest is not None and self.oldest < state.life.fence):
            return False
        at = next((i for i, layer in enumerate(node.layers) if layer.id == self.replaced[0].id), None)
        return at is not None and node.layers[at : at + len(self.replaced)] == self.replaced


@dataclass
class Exchanged:
    """Result of committing exchanges."""

    tip: Tip
    """Newest loaded record."""
    done: list[Exchange] = field(default_factory=list[Exchange])
    """Exchanges committed to the log."""
    discarded: list[Exchange] = field(default_factory=list[Exchange])
    """Exchanges whose layers are gone, that have ids below a new watermark, or that have lost every race."""
    records: int = 0
    """Number of records written."""


def place(
    environment: Environment,
    manifests: Iterable[Manifest],
    objects: list[tuple[str, bytes]],
    known: ChunkStatistics | None = None,
) -> list[Layer]:
    """Return the layers for manifests under new ids; those too large to be inlined are added to the objects to write
    before, and so is what is known of the chunks.
    """
    layers: list[Layer] = []
    for manifest in manifests:
        encoded = encode_manifest(manifest)
        layer = Layer(LayerId(environment.new_id()), manifest.box, manifest.count, manifest.has_deletions)
        if len(encoded) <= MAX_MANIFEST_IN_BODY:
            layer = replace(layer, inline=encoded)
        else:
            objects.append((layer.key, bind_object(layer.key, encoded)))
        objects += statistics_objects(known, manifest, layer.id)
        layers.append(layer)
    return layers


def in_batches(items: Iterable[Exchange]) -> Iterator[list[Exchange]]:
    """Batch exchanges for one record each."""
    batch: list[Exchange] = []
    size = 0
    for item in items:
        if batch and size + item.weight > _MOST_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item.weight
    if batch:
        yield batch


async def exchange(log: BranchLog, tip: Tip, items: Sequence[Exchange]) -> Exchanged:
    """Append the records that commit exchanges, whose objects are durable.

    Manifests of exchanges that fail are deleted: no record names them, and none ever will, since no other process knows
    them, and a refused record counts as another writer's only after it was read. Packs are left to the caller, since
    several exchanges may share one. Nothing is deleted where an AppendUncertainError leaves unknown whether a record
    was written.
    """
    result = Exchanged(tip)
    for batch in in_batches(items):
        await _exchange(log, batch, result)
    return result


async def _exchange(log: BranchLog, batch: Sequence[Exchange], result: Exchanged) -> None:
    left = list(batch)
    for _ in range(_TRIES):
        left = await _sift(log.storage, left, result)
        if not left:
            return
        tip = result.tip
        entry = Rewrite(tuple([item.replacement for item in left]), _packs(left))
        body = await append_entry(log, tip, entry)
        if body is not None:
            sequence = tip.sequence + 1
            result.tip = tip.followed_by(tip.state.rewritten(sequence, entry.replacements), body)
            result.done += left
            result.records += 1
            return
        result.tip = await refresh(log, tip)
    await _discard(log.storage, left, result)


async def _sift(storage: Storage, items: list[Exchange], result: Exchanged) -> list[Exchange]:
    """Return the exchanges that a tip admits, and discard the others."""
    is_open = check_open(result.tip.state) is None
    admitted = [item for item in items if is_open and item.fits(result.tip.state)]
    await _discard(storage, [item for item in items if item not in admitted], result)
    return admitted


def _packs(items: Sequence[Exchange]) -> bytes | None:
    """Return the ids of the packs of a record, as far as it names them."""
    packs = sorted({pack for item in items for pack in item.packs})
    return None if len(packs) > MOST_PACKS_IN_BODY else b"".join(packs)


async def _discard(storage: Storage, items: Sequence[Exchange], result: Exchanged) -> None:
    result.discarded += items
    await delete_leftovers(storage, [key for item in items for key in item.manifest_keys])


async def delete_leftovers(storage: Storage, keys: Sequence[str]) -> None:
    """Delete objects that this process has written and that no record will ever name."""
    if keys:
        for failure in await storage.delete(keys):
            _logger.info("%s is left behind: %s", failure.key, failure.reason)
