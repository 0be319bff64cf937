"""Selection of packs to rewrite: those with little live data, and small ones."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from arraystore._chunks.pack_writer import PackSettings
from arraystore._chunks.reader import ChunkReader
from arraystore._format.ids import PackId, id_at
from arraystore._format.types import Bools, IdColumn, Int64s
from arraystore._log.state import SnapshotState
from arraystore._maintenance.pack_usage import pack_sizes, pack_use
from arraystore._maintenance.retained import retained_bytes
from arraystore._maintenance.scope import MaintenanceScope

_SMALL = 4
"""Divisor of the target size below which a pack is small."""

_FEWEST = 4
"""Small packs below which merging them is not worth a rewrite."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Packs from which all chunks that the tip references are to be copied."""

    ids: IdColumn
    """Ids of the packs, ascending."""
    used: Int64s
    """Bytes of each pack that the tip references."""
    sizes: Int64s
    """Bytes of each pack."""
    small: Bools
    """True for packs that are selected because they are small."""
    packs: int
    """Number of all packs that the tip references."""

    def within(self, most: int) -> Selection:
        """Return the oldest packs with at most that many bytes to copy."""
        kept = np.cumsum(self.used) <= most
        if int((kept & self.small).sum()) < _FEWEST:
            kept &= ~self.small
        return Selection(self.ids[kept], self.used[kept], self.sizes[kept], self.small[kept], self.packs)

    def without(self, packs: Collection[PackId]) -> Selection:
        """Return the selection without some packs."""
        kept = np.array([id_at(self.ids, at) not in packs for at in range(len(self.ids))], dtype=np.bool_)
        return Selection(self.ids[kept], self.used[kept], self.sizes[kept], self.small[kept], self.packs)

    def __len__(self) -> int:
        return len(self.ids)


async def select(
    scope: MaintenanceScope,
    state: SnapshotState,
    reader: ChunkReader,
    settings: PackSettings,
    min_live: float,
    refused: Collection[PackId] = (),
) -> Selection:
    """Select packs to rewrite, without those known to be damaged.

    A pack is retained where retained snapshots reference at least the fraction `min_live` of it.
    """
    use = await pack_use(reader, state, settings.own_object)
    count = len(use.ids) + use.single
    doubtful = use.used < max(min_live, 1 / _SMALL) * settings.target
    doubtful &= np.array([id_at(use.ids, at) not in refused for at in range(len(use.ids))]) if refused else True
    ids, used = use.ids[doubtful], use.used[doubtful]
    sizes = await pack_sizes(reader.storage, ids)
    sparse = np.zeros(len(ids), dtype=np.bool_)
    thin = np.flatnonzero((used < min_live * sizes) & (sizes > 0))
    if len(thin):
        live = await retained_bytes(scope, reader, ids[thin])
        sparse[thin] = live < min_live * sizes[thin]
    small = np.flatnonzero(~sparse & (sizes > 0) & (sizes * _SMALL < settings.target))
    merged = np.zeros(len(ids), dtype=np.bool_)
    merged[small[_worth_merging(used[small])]] = True
    chosen = sparse | merged
    return Selection(ids[chosen], used[chosen], sizes[chosen], merged[chosen], count)


def _worth_merging(used: Int64s) -> Int64s:
    """Return the positions of the small packs to merge: none that is larger than all smaller ones together.

    So the pack of a chunk at least doubles with each merge, and a chunk is copied only a few times.
    """
    order = np.argsort(used, kind="stable")
    below = np.cumsum(used[order]) - used[order]
    at = len(order)
    while at and used[order[at - 1]] > below[at - 1]:
        at -= 1
    return order[:at] if at >= _FEWEST else order[:0]
