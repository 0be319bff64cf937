"""Which packs are worth being written anew: those mostly dead, and those that are small."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from arraystore._chunks.pack_writer import PackSettings
from arraystore._chunks.reader import ChunkReader
from arraystore._format.types import Int64s
from arraystore._log.state import State
from arraystore._maintenance.pack_usage import PackIds, id_at, pack_sizes, pack_use
from arraystore._maintenance.retained import retained_bytes
from arraystore._maintenance.scope import MaintenanceScope

__all__ = ["Selection", "select"]

_SMALL = 4
"""A pack below this part of the size aimed at is small."""

_FEWEST = 4
"""Fewer small packs than this are not worth a rewrite."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Packs out of which everything that the tip uses is to be copied.

    Parameters
    ----------
    ids
        Of the packs, ascending.
    used, sizes
        Bytes per pack: what the tip uses, and all of it.
    small
        Which of them are to be merged since they are small.
    packs
        How many packs the tip names in all.
    """

    ids: PackIds
    used: Int64s
    sizes: Int64s
    small: npt.NDArray[np.bool_]
    packs: int

    def within(self, most: int) -> Selection:
        """Return the oldest packs that hold at most so many bytes to be copied."""
        kept = np.cumsum(self.used) <= most
        if int((kept & self.small).sum()) < _FEWEST:
            kept &= ~self.small
        return Selection(self.ids[kept], self.used[kept], self.sizes[kept], self.small[kept], self.packs)

    def without(self, packs: Collection[bytes]) -> Selection:
        """Return the same but for some packs."""
        kept = np.array([id_at(self.ids, at) not in packs for at in range(len(self.ids))], dtype=np.bool_)
        return Selection(self.ids[kept], self.used[kept], self.sizes[kept], self.small[kept], self.packs)

    def __len__(self) -> int:
        return len(self.ids)


async def select(
    scope: MaintenanceScope,
    state: State,
    reader: ChunkReader,
    settings: PackSettings,
    min_live: float,
    refused: Collection[bytes] = (),
) -> Selection:
    """Choose packs to be written anew.

    Parameters
    ----------
    scope
        The repository.
    state
        The newest snapshot of the branch.
    reader
        Where manifests come from.
    settings
        Sizes of packs.
    min_live
        A pack is kept where at least this part of it is used by retained snapshots.
    refused
        Packs that are known to be damaged.
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

    So the pack that a chunk is in at least doubles with each merge, and a chunk is copied a few times in its life.
    """
    order = np.argsort(used, kind="stable")
    below = np.cumsum(used[order]) - used[order]
    at = len(order)
    while at and used[order[at - 1]] > below[at - 1]:
        at -= 1
    return order[:at] if at >= _FEWEST else order[:0]
