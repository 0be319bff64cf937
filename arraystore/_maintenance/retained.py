"""Bytes of packs that the retained snapshots of all branches and tags reference.

A snapshot references the chunks of its layers that newer layers do not hide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from arraystore._chunks.layer_lookup import find_visible
from arraystore._chunks.reader import ChunkReader
from arraystore._format.ids import CheckpointId, LayerId, find_ids, ids_of
from arraystore._format.layer import Layer
from arraystore._format.lifecycle import Reset
from arraystore._format.manifest import Manifest
from arraystore._format.pack import padded_size
from arraystore._format.record import Birth, Commit, Rewrite
from arraystore._format.types import IdColumn, Int64s
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import load_checkpoint
from arraystore._log.retained_snapshots import RetainedRecords
from arraystore._log.state import SnapshotState
from arraystore._maintenance.pack_usage import manifests_of
from arraystore._maintenance.scope import MaintenanceScope
from arraystore.errors import ObjectNotFoundError

_RECORDS_AT_ONCE = 4096
_ROWS_AT_ONCE = 1 << 20
_TRIES = 3


async def retained_bytes(scope: MaintenanceScope, reader: ChunkReader, wanted: IdColumn) -> Int64s:
    """Load the bytes of some packs, by ascending ids, that retained snapshots of all branches and tags reference."""
    for _ in range(_TRIES - 1):
        try:
            return await _retained_bytes(scope, reader, wanted)
        except ObjectNotFoundError:  # deleted and collected since its name was read: read the names again
            continue
    return await _retained_bytes(scope, reader, wanted)


async def _retained_bytes(scope: MaintenanceScope, reader: ChunkReader, wanted: IdColumn) -> Int64s:
    table = await scope.repository_log.table()
    histories = await scope.load_retained(await scope.tips(table), [tag.origin for tag in table.tags.values()])
    retained = _Retained(reader, wanted)
    checkpoints = [tag.origin.checkpoint for tag in table.tags.values()]
    for branch, part in histories.items():
        log = scope.log(branch)
        for first, last in _windows(part.stretches):
            checkpoints += await _add_records(retained, log, first, last)
        checkpoints += [stretch.bottom for stretch in part.stretches if stretch.bottom is not None]
        checkpoints += [checkpoint for _, checkpoint in part.survivors.values()]
    for checkpoint in dict.fromkeys(checkpoints):
        await retained.add_state(await load_checkpoint(scope.storage, checkpoint))
    return retained.bytes()


def _windows(stretches: Sequence[RetainedRecords]) -> Iterator[tuple[int, int]]:
    """Yield the records of stretches, each once, some thousands at a time."""
    at = 0
    for stretch in sorted(stretches, key=lambda each: (each.first, each.last)):
        at = max(at, stretch.first)
        while at <= stretch.last:
            last = min(at + _RECORDS_AT_ONCE - 1, stretch.last)
            yield at, last
            at = last + 1


async def _add_records(retained: _Retained, log: BranchLog, first: int, last: int) -> list[CheckpointId]:
    """Add the layers of records that name one of the packs, or do not say which they name.

    Returns the checkpoints of the origins of the branch.
    """
    span = await log.span(first, last)
    layers: list[Layer] = []
    checkpoints: list[CheckpointId] = []
    for number, body in span.bodies.items():
        entry = log.decode(number, body)
        if isinstance(entry, Rewrite) and retained.names(entry.packs):
            layers += [layer for item in entry.replacements for layer in item.added]
        elif isinstance(entry, Commit) and any(retained.names(item.packs) for item in entry.transactions):
            resolved = await log.resolve(number, entry, span.records)
            layers += [chunk.layer for _, changes, _ in resolved for chunk in changes.chunks]
        elif isinstance(entry, Birth | Reset) and entry.origin is not None:
            checkpoints.append(entry.origin.checkpoint)
    await retained.add_layers(layers)
    return checkpoints


@dataclass(eq=False)
class _Retained:
    """Distinct retained chunks of some packs."""

    reader: ChunkReader
    wanted: IdColumn
    _whole: set[LayerId] = field(default_factory=set[LayerId])
    _parts: set[tuple[LayerId, ...]] = field(default_factory=set[tuple[LayerId, ...]])
    _rows: list[Int64s] = field(default_factory=list[Int64s])
    _waiting: int = 0

    def names(self, packs: bytes | None) -> bool:
        """Tell whether a record may have added references to one of the packs."""
        return packs is None or (bool(packs) and bool((find_ids(self.wanted, ids_of(packs)) >= 0).any()))

    async def add_layers(self, layers: Sequence[Layer]) -> None:
        """Add all chunks of layers."""
        fresh = {layer.id: layer for layer in layers if layer.id not in self._whole}
        self._whole.update(fresh)
        async for manifest in manifests_of(self.reader, list(fresh.values())):
            at, pack = self._met(manifest)
            self._add(manifest, at, pack)

    async def add_state(self, state: SnapshotState) -> None:
        """Add the visible chunks of a snapshot."""
        for node in state.nodes.values():
            for number, layer in enumerate(node.layers):
                above = node.layers[number + 1 :]
                part = (layer.id, *(other.id for other in above))
                if layer.id not in self._whole and part not in self._parts:
                    self._parts.add(part)
                    await self._add_visible(layer, above)

    async def _add_visible(self, layer: Layer, above: Sequence[Layer]) -> None:
        manifest = await self.reader.manifests.load(layer)
        at, pack = self._met(manifest)
        if not len(at):
            return
        shown = (await find_visible(self.reader.manifests, layer, manifest, above))[at]
        self._add(manifest, at[shown], pack[shown])

    def _met(self, manifest: Manifest) -> tuple[Int64s, Int64s]:
        """Return the positions of references to the packs, and the position of each one's pack."""
        where = find_ids(self.wanted, ids_of(manifest.packs))
        if not bool((where >= 0).any()):
            nothing = np.empty(0, dtype=np.int64)
            return nothing, nothing
        native = np.flatnonzero(manifest.source < manifest.pack_count)
        pack = where[manifest.source[native]]
        return native[pack >= 0], pack[pack >= 0]

    def _add(self, manifest: Manifest, at: Int64s, pack: Int64s) -> None:
        columns = (pack, manifest.offset[at].astype(np.int64), padded_size(manifest.length[at].astype(np.int64)))
        self._rows.append(np.stack(columns, axis=1))
        self._waiting += len(at)
        if self._waiting > _ROWS_AT_ONCE:
            self._settle()

    def _settle(self) -> None:
        """Drop duplicate chunks."""
        rows = np.concatenate(self._rows)
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        fresh = np.ones(len(rows), dtype=np.bool_)
        fresh[1:] = (rows[1:, :2] != rows[:-1, :2]).any(axis=1)
        self._rows, self._waiting = [rows[fresh]], 0

    def bytes(self) -> Int64s:
        """Return the retained bytes of each pack."""
        if not self._rows:
            return np.zeros(len(self.wanted), dtype=np.int64)
        self._settle()
        (rows,) = self._rows
        return np.bincount(rows[:, 0], rows[:, 2], minlength=len(self.wanted)).astype(np.int64)
