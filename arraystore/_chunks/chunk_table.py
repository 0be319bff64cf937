"""References of chunks that a session wrote to one array: a small dictionary over sorted columns.

New references go into a dictionary. When it has grown, it becomes a sorted run of numpy columns, and runs of similar
size are merged, as in an LSM tree; so a chunk costs 32 bytes, in large runs, which are packed, 0 to 10, and a binary
search looks up any of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from operator import mul
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from arraystore._chunks.packed_run import PackedRun, Segment, merge_runs, pack
from arraystore._format.box import MAX_VOLUME, Box
from arraystore._format.references import DELETED
from arraystore._format.types import Bools, Int64s
from arraystore.errors import InvalidInputError

_SPILL = 1 << 14
_FEW = 16
"""Cells that are looked up one by one: sorting what was put since the last look-up costs more."""
_HEADROOM_LIMIT = 1 << 60
_PACKED = 1 << 18
"""Cells from which a run is packed: 8 MiB of columns; below, packing takes longer than it is worth."""

Values = npt.NDArray[np.signedinteger[Any]]
"""Source, offset and length as int64; what derives from the table may keep something else."""


Run: TypeAlias = "tuple[Int64s, Values] | PackedRun"
"""Numbers of cells, ascending, and their values; or the same, packed."""


class ChunkReference(NamedTuple):
    """Place of a chunk; see `arraystore._format.references`."""

    source: int
    offset: int
    length: int


DELETED_CHUNK = ChunkReference(DELETED, 0, 0)


class ChunkTable:
    """References by chunk-grid coordinates, of which the newest of a cell counts."""

    __slots__ = ("_box", "_forgotten", "_recent", "_runs", "_strides")

    packs: ClassVar[bool] = True
    """Whether values are source, offset and length, so that runs may be packed."""

    def __init__(self, grid: tuple[int, ...]) -> None:
        self._box = Box((), ())
        self._recent: dict[int, ChunkReference] = {}
        self._runs: list[Run] = []
        self._forgotten: set[int] = set()
        self._renumber(grid)

    def copy(self) -> ChunkTable:
        """Return a table with the same references, which shares the columns: they are replaced, never changed."""
        self._compact()
        table = ChunkTable(())
        table._box, table._strides, table._runs = self._box, self._strides, list(self._runs)
        return table

    def __len__(self) -> int:
        """Upper bound of the number of cells: a cell may be in several runs."""
        return len(self._recent) + sum(map(_count, self._runs))

    def __bool__(self) -> bool:
        self._sweep()
        return bool(self._recent or self._runs)

    @property
    def strides(self) -> tuple[int, ...]:
        """Row-major strides of the numbering; `number` is their dot product with the coordinates."""
        return self._strides

    def _renumber(self, grid: tuple[int, ...]) -> None:
        sides = [max(1, side) for side in grid]
        roomy = [sides[0], *(2 * side for side in sides[1:])] if sides else []
        if math.prod(roomy) <= _HEADROOM_LIMIT:  # room to grow without numbering anew
            sides = roomy
        if math.prod(sides) > MAX_VOLUME:
            raise InvalidInputError(
                f"a grid of {grid} chunks is too large: it must have at most 2**63; use larger chunks"
            )
        box = Box((0,) * len(sides), tuple(sides))
        if self:
            old = self._box
            self._spill()
            self._runs = [
                _mapped(run, lambda numbers, values: (box.numbers(old.coords(numbers)), values)) for run in self._runs
            ]
        self._box = box
        self._strides = box.strides

    def fit(self, grid: tuple[int, ...]) -> None:
        """Make room for a grid that has grown."""
        crowded = any(side > room for side, room in zip(grid[1:], self._box.high[1:], strict=True))
        if crowded or (grid and grid[0] * self._strides[0] > MAX_VOLUME):
            self._renumber(tuple(max(side, room) for side, room in zip(grid, self._box.high, strict=True)))

    def number(self, coords: tuple[int, ...]) -> int:
        """Return the number of a cell."""
        return sum(map(mul, coords, self._strides))

    def put(self, number: int, entry: ChunkReference) -> None:
        """Set the reference of a cell."""
        recent = self._recent
        recent[number] = entry
        if len(recent) >= _SPILL:
            self._spill()

    def get(self, number: int) -> ChunkReference | None:
        """Return the reference of a cell; None if this table has none."""
        entry = self._recent.get(number)
        if entry is not None or not self._runs or number in self._forgotten:
            return entry
        for run in reversed(self._runs):
            if isinstance(run, PackedRun):
                found = run.find(number)
                if found is not None:
                    return ChunkReference(*found)
                continue
            numbers, values = run
            at = int(numbers.searchsorted(number))
            if at < len(numbers) and numbers[at] == number:
                return ChunkReference(*values[at].tolist())
        return None

    def get_many(self, numbers: Int64s) -> tuple[npt.NDArray[np.bool_], Values]:
        """Return which cells, by number, have a reference, and the references, shape (n, 3), zero for the others."""
        known = np.zeros(len(numbers), dtype=bool)
        values = np.zeros((len(numbers), 3), dtype=np.int64)
        if len(numbers) <= _FEW:
            for place, number in enumerate(numbers.tolist()):
                entry = self.get(number)
                if entry is not None:
                    known[place], values[place] = True, entry
            return known, values
        self._spill()
        self._sweep()
        for run in reversed(self._runs):
            if isinstance(run, PackedRun):
                hits, references = run.find_many(numbers)
                fresh = hits & ~known
                values[fresh] = references[fresh]
            else:
                cells, references = run
                at = np.minimum(cells.searchsorted(numbers), len(cells) - 1)
                fresh = (cells[at] == numbers) & ~known
                values[fresh] = references[at[fresh]]
            known |= fresh
        return known, values

    def put_many(self, coords: Int64s, source: Int64s, offset: Int64s, length: Int64s) -> None:
        """Set many references, shape (n, d) and (n,); where a cell is repeated, the last one counts."""
        self.put_numbered(self._box.numbers(coords), np.stack([source, offset, length], axis=1))

    def put_numbered(self, numbers: Int64s, values: Values) -> None:
        """Set many references by number, shape (n,) and (n, 3); the table keeps the arrays."""
        self._spill()
        self._sweep()
        self._append_run(numbers, values)

    def put_segments(self, segments: Iterable[Segment]) -> None:
        """Set many references that are packed already, ascending."""
        run = PackedRun(segments)
        self._spill()
        self._sweep()
        self._merge_in(run if len(run) >= _PACKED else run.rows())

    def box_numbers(self, box: Box) -> Int64s:
        """Return the numbers of all cells of a box, in row-major order."""
        total = np.zeros((), dtype=np.int64)
        for low, high, stride in zip(box.low, box.high, self._strides, strict=True):
            total = total[..., np.newaxis] + np.arange(low, high, dtype=np.int64) * stride
        return total.reshape(-1)

    def stretch_numbers(self, box: Box, start: int, stop: int) -> Int64s:
        """Return the numbers of the cells of a box from one place in row-major order up to another."""
        return self._box.numbers(box.coords(np.arange(start, stop, dtype=np.int64)))

    def numbers(self, coords: Int64s) -> Int64s:
        """Return the numbers of many cells, shape (n, d) to (n,)."""
        return self._box.numbers(coords)

    def _spill(self) -> None:
        if not self._recent:
            return
        count = len(self._recent)
        numbers = np.fromiter(self._recent.keys(), np.int64, count)
        values = np.array(list(self._recent.values()), dtype=np.int64)
        self._append_run(numbers, values)
        self._forgotten -= self._recent.keys()
        self._recent = {}  # after the runs have them: `get` takes no lock, and looks here first

    def _append_run(self, numbers: Int64s, values: Values) -> None:
        self._merge_in(self._packed(_sorted(numbers, values)))

    def _merge_in(self, run: Run) -> None:
        runs = [*self._runs, run] if _count(run) else list(self._runs)
        while len(runs) > 1 and _count(runs[-2]) < 2 * _count(runs[-1]):
            runs[-2:] = [self._merged(*runs[-2:])]
        self._runs = runs

    def _packed(self, run: tuple[Int64s, Values]) -> Run:
        """Return a run, packed if it is large."""
        return PackedRun(pack(*run)) if self.packs and len(run[0]) >= _PACKED else run

    def _merged(self, older: Run, newer: Run) -> Run:
        """Return one run of two."""
        if isinstance(older, PackedRun) or isinstance(newer, PackedRun):
            return merge_runs(_as_packed(older), _as_packed(newer), _sorted)
        merged = _sorted(np.concatenate([older[0], newer[0]]), np.concatenate([older[1], newer[1]]))
        return self._packed(merged)

    def _compact(self) -> None:
        """Merge all runs."""
        self._spill()
        self._sweep()
        runs = list(self._runs)
        while len(runs) > 1:
            runs[-2:] = [self._merged(*runs[-2:])]
        self._runs = runs

    def columns(self) -> tuple[Int64s, Int64s]:
        """Return coordinates (n, d), in row-major order, and values (n, 3) of every cell."""
        self._compact()
        if not self._runs:
            return np.empty((0, len(self._strides)), dtype=np.int64), np.empty((0, 3), dtype=np.int64)
        numbers, values = _rows(self._runs[0])
        return self._box.coords(numbers), values

    def stretches(self) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield what `columns` returns, a bounded number of cells at a time."""
        self._compact()
        box = self._box
        for run in self._runs:
            for numbers, values in _pieces(run):
                yield box.coords(numbers), values

    def drop(self, keep: Bools) -> None:
        """Remove cells; `keep` is in the order of `columns`, which must have been called last."""
        if self._runs:
            numbers, values = _rows(self._runs[0])
            self._runs = [self._packed((numbers[keep], values[keep]))] if keep.any() else []

    def forget(self, number: int) -> None:
        """Remove one cell."""
        if self._runs:
            self._forgotten.add(number)
        self._recent.pop(number, None)

    def _sweep(self) -> None:
        """Remove the cells that were forgotten from the runs."""
        if not self._forgotten:
            return
        forgotten = np.sort(np.fromiter(self._forgotten, np.int64, len(self._forgotten)))
        kept = [_without(run, forgotten) for run in self._runs]
        self._runs = [run for run in kept if _count(run)]
        self._forgotten = set()


def _count(run: Run) -> int:
    return len(run) if isinstance(run, PackedRun) else len(run[0])


def _rows(run: Run) -> tuple[Int64s, Values]:
    return run.rows() if isinstance(run, PackedRun) else run


def _pieces(run: Run) -> Iterable[tuple[Int64s, Values]]:
    return (segment.rows() for segment in run.segments) if isinstance(run, PackedRun) else (run,)


def _as_packed(run: Run) -> PackedRun:
    return run if isinstance(run, PackedRun) else PackedRun(pack(*run))


def _mapped(run: Run, change: Any) -> Run:
    mapped: Run = run.map(change) if isinstance(run, PackedRun) else change(*run)
    return mapped


def _without(run: Run, gone: Int64s) -> Run:
    if isinstance(run, PackedRun):
        return run.without(gone)
    numbers, values = run
    keep = ~np.isin(numbers, gone)
    return numbers[keep], values[keep]


def _sorted(numbers: Int64s, values: Values) -> tuple[Int64s, Values]:
    """Return a run sorted by number; of equal numbers the last one stays."""
    if len(numbers) > 1:
        steps = np.diff(numbers)
        if int(steps.min()) > 0:
            return numbers, values
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        last = np.ones(len(numbers), dtype=bool)
        last[:-1] = numbers[1:] != numbers[:-1]
        return numbers[last], values[order[last]]
    return numbers, values
