"""Assembling chunks from rows: values are put in place in chunks that are held in memory until they are written.

Batches are processed as a whole. Open chunks are side by side in one slab for each array, so that one assignment puts
all values of a batch in place. If more chunks are touched than fit, the least recently used ones are written, and read
back if more rows for them follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from arraystore._format.types import Array, Bools, Int64s
from arraystore.spark.writing.chunk_grid import ChunkGrid

_MOST_ROWS = 65_535
"""Rows that are processed at once: each has a mark of 16 bits."""

_MOST_TABLE = 1 << 24
"""Count of chunks up to which a table, not a dictionary, maps chunks to slots."""


class Chunks(Protocol):
    """Chunks that can be read and written."""

    def read(self, array: int, number: int) -> Array:
        """Return a chunk, cut off at the end of the array."""
        ...

    def write(self, array: int, number: int, block: Array) -> None:
        """Write a chunk, cut off at the end of the array."""
        ...


@dataclass(frozen=True)
class Policy:
    """Choices for cells without rows, and with several."""

    fill: bool = False
    """Whether cells of a chunk that no row names become the fill value; else they keep what they have."""
    same: bool = False
    """Whether cells may be named again with the same values."""
    ordered: bool = False
    """Whether all rows of a chunk are adjacent."""
    budget: int = 64 << 20
    """Bytes that open chunks may take."""


class ChunkAssembler:
    """Assembles chunks of arrays of the same geometry."""

    def __init__(
        self,
        grid: ChunkGrid,
        dtypes: Sequence[np.dtype[Any]],
        fills: Sequence[Any],
        chunks: Chunks,
        policy: Policy,
        refuse: Callable[[Int64s], None],
    ) -> None:
        self.grid = grid
        self.written = 0
        self.nbytes = 0
        self.dry = False
        self._fills = fills
        self._chunks = chunks
        self._policy = policy
        self._refuse = refuse
        room = policy.budget // max(1, grid.cells * (sum(dtype.itemsize for dtype in dtypes) + 2))
        self.slots = max(1, min(room, grid.chunks))
        # Not touched, and therefore no memory, until it is used.
        self._slabs = [np.empty(self.slots * grid.cells, dtype) for dtype in dtypes]
        self._marks = np.zeros(self.slots * grid.cells, np.uint16)
        self._skipped: list[Bools | None] = [None] * len(dtypes)
        self._open = np.full(self.slots, -1, np.int64)  # number of the chunk in each slot
        self._loaded = np.zeros(self.slots, np.bool_)
        self._used = np.zeros(self.slots, np.int64)
        self._tick = 0
        self._directory = _Directory(grid.chunks)
        self._closed: dict[int, Array | None] = {}
        self._passed: dict[tuple[int, int], Array] = {}  # cells that were skipped, by array and closed chunk

    def add(self, positions: Int64s, values: Sequence[Array], absent: Sequence[Bools | None]) -> None:
        """Put the values of rows where they belong."""
        for start in range(0, len(positions), _MOST_ROWS):
            part = slice(start, start + _MOST_ROWS)
            self._add(positions[part], [v[part] for v in values], [None if a is None else a[part] for a in absent])

    def _add(self, positions: Int64s, values: Sequence[Array], absent: Sequence[Bools | None]) -> None:
        numbers, places = np.divmod(positions, self.grid.cells)
        slots = self._directory.find(numbers)
        if slots.min(initial=0) < 0:
            needed = np.unique(numbers)
            if len(needed) > self.slots:
                for start in range(0, len(needed), self.slots):
                    rows = np.isin(numbers, needed[start : start + self.slots])
                    kept = [None if a is None else a[rows] for a in absent]
                    self._add(positions[rows], [v[rows] for v in values], kept)
                return
            self._open_all(needed)
            slots = self._directory.find(numbers)
        self._tick += 1
        self._used[slots] = self._tick
        flat = slots * self.grid.cells + places
        seen, extra = self._mark(flat)
        if extra is not None:
            seen = np.zeros(len(flat), np.bool_) if seen is None else seen
        if seen is None:
            self._put(flat, values, absent, None)
            return
        differs = self._differing(flat, values, absent, seen)
        self._put(flat, values, absent, seen)
        if extra is not None:
            differs |= extra if not self._policy.same else self._differing(flat, values, absent, extra)
        if not self._policy.same:
            differs |= seen
        if differs.any():
            self.dry = True
            self._refuse(positions[differs])

    def _mark(self, flat: Int64s) -> tuple[Bools | None, Bools | None]:
        """Mark cells as taken, and return masks of rows whose cell is taken before, or by a later row."""
        seen = self._marks[flat] != 0
        ordinals = np.arange(1, len(flat) + 1, dtype=np.uint16)
        self._marks[flat] = ordinals
        extra = self._marks[flat] != ordinals
        return seen if seen.any() else None, extra if extra.any() else None

    def _put(self, flat: Int64s, values: Sequence[Array], absent: Sequence[Bools | None], seen: Bools | None) -> None:
        for array, (slab, new, missing) in enumerate(zip(self._slabs, values, absent, strict=True)):
            skipped = self._skipped[array]
            if missing is not None:
                if skipped is None:
                    skipped = self._skipped[array] = np.zeros(len(slab), np.bool_)
                skipped[flat[missing if seen is None else missing & ~seen]] = True
                slab[flat[~missing]] = new[~missing]
                skipped[flat[~missing]] = False
                continue
            slab[flat] = new
            if skipped is not None:
                skipped[flat] = False

    def _differing(self, flat: Int64s, values: Sequence[Array], absent: Sequence[Bools | None], rows: Bools) -> Bools:
        """Return the mask of those rows whose value differs from that of their cell."""
        differing = np.zeros(len(flat), np.bool_)
        if not self._policy.same:
            return differing
        where = flat[rows]
        differs = np.zeros(len(where), np.bool_)
        for slab, new_values, missing, skipped in zip(self._slabs, values, absent, self._skipped, strict=True):
            old, new = slab[where], new_values[rows]
            unlike = (old != new) & ((old == old) | (new == new))  # noqa: PLR0124 - NaN is not equal to itself
            if missing is not None:
                unlike &= ~missing[rows]
            if skipped is not None:
                unlike &= ~skipped[where]
            differs |= unlike
        differing[rows] = differs
        return differing

    # -- opening and closing chunks -------------------------------------------------------------------------------

    def _open_all(self, needed: Int64s) -> None:
        slots = self._directory.find(needed)
        fresh = needed[slots < 0]
        self._tick += 1
        self._used[slots[slots >= 0]] = self._tick
        free = np.flatnonzero(self._open < 0)
        if len(free) < len(fresh):
            oldest = np.argsort(np.where(self._open < 0, self._tick, self._used), kind="stable")
            self._close(oldest[: len(fresh) - len(free)])
            free = np.flatnonzero(self._open < 0)
        for number, slot in zip(fresh.tolist(), free.tolist(), strict=False):
            self._open_one(number, slot)

    def _open_one(self, number: int, slot: int) -> None:
        self._directory.put(number, slot)
        self._open[slot] = number
        place = self._place(slot)
        for skipped in self._skipped:
            if skipped is not None:
                skipped[place] = False
        self._loaded[slot] = number in self._closed
        if not self._loaded[slot]:
            self._marks[place] = 0
            return
        bits = self._closed[number]
        self._marks[place] = 1 if bits is None else np.unpackbits(bits, count=self.grid.cells)
        for array, skipped in enumerate(self._skipped):
            if skipped is not None and (passed := self._passed.get((array, number))) is not None:
                skipped[place] = np.unpackbits(passed, count=self.grid.cells)
        for array in range(len(self._slabs)):
            if not self.dry:
                self._block(array, slot)[...] = self._chunks.read(array, number)

    def _place(self, slot: int) -> slice:
        return slice(slot * self.grid.cells, (slot + 1) * self.grid.cells)

    def _block(self, array: int, slot: int) -> Array:
        """Return the cells of an open chunk that are in the array."""
        return self._of(self._slabs[array], slot)

    def _of(self, slab: Array, slot: int) -> Array:
        return slab[self._place(slot)].reshape(self.grid.chunk)[self.grid.inside(int(self._open[slot]))]

    def _close(self, slots: Int64s) -> None:
        for slot in slots[np.argsort(self._open[slots])].tolist():
            self._close_one(slot)

    def _close_one(self, slot: int) -> None:
        number = int(self._open[slot])
        taken = self._of(self._marks, slot) != 0
        whole = bool(taken.all())
        for array in range(len(self._slabs)):
            if not self.dry:
                self._write(array, slot, None if whole else taken)
        if not self._policy.ordered:
            marks = self._marks[self._place(slot)]
            self._closed[number] = None if whole and taken.size == self.grid.cells else np.packbits(marks != 0)
            self._note_skipped(number, slot)
        self._directory.remove(number)
        self._open[slot] = -1

    def _note_skipped(self, number: int, slot: int) -> None:
        """Remember the cells of a chunk without a value, which later rows may set."""
        for array, skipped in enumerate(self._skipped):
            self._passed.pop((array, number), None)
            if skipped is not None and skipped[self._place(slot)].any():
                self._passed[array, number] = np.packbits(skipped[self._place(slot)])

    def _write(self, array: int, slot: int, taken: Bools | None) -> None:
        number, block = int(self._open[slot]), self._block(array, slot)
        skipped = self._skipped[array]
        have = taken
        if skipped is not None and (missing := self._of(skipped, slot)).any():
            have = ~missing if have is None else have & ~missing
        if have is not None and not self._loaded[slot]:
            if not self._policy.fill and not have.any():
                return
            rest = self._fills[array] if self._policy.fill else self._chunks.read(array, number)
            np.copyto(block, rest, where=~have)
        self._chunks.write(array, number, block)
        self.written += not self._loaded[slot]
        self.nbytes += 0 if self._loaded[slot] else block.size * block.dtype.itemsize

    def finish(self) -> None:
        """Write all open chunks."""
        self._close(np.flatnonzero(self._open >= 0))


class _Directory:
    """Slots of open chunks."""

    def __init__(self, chunks: int) -> None:
        self._table = np.zeros(chunks, np.int32) if chunks <= _MOST_TABLE else None
        self._slots: dict[int, int] = {}

    def find(self, numbers: Int64s) -> Int64s:
        """Return the slot of each chunk, -1 where it is not open."""
        if self._table is not None:
            return self._table[numbers].astype(np.int64) - 1
        unique, inverse = np.unique(numbers, return_inverse=True)
        slots = np.fromiter((self._slots.get(number, -1) for number in unique.tolist()), np.int64, len(unique))
        return slots[inverse]

    def put(self, number: int, slot: int) -> None:
        """Set the slot of a chunk."""
        if self._table is not None:
            self._table[number] = slot + 1
        else:
            self._slots[number] = slot

    def remove(self, number: int) -> None:
        """Remove a closed chunk."""
        if self._table is not None:
            self._table[number] = 0
        else:
            del self._slots[number]
