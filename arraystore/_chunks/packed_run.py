"""Sorted runs of many chunk references in a few bytes each: a line and what differs from it, segment by segment.

Chunks of a large array are mostly neighbours, in one pack or source, of similar lengths and one behind the other.
A segment keeps each of its columns as a base, a step and the narrowest differences, none where there are none, so a
hundred million references take 0 to 10 bytes each in place of 32, and any of them is still looked up by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arraystore._format.columns import narrow
from arraystore._format.types import Bools, Int64s

SEGMENT = 1 << 14
"""Maximum cells of a segment: small enough that one crosses few borders of sources, at half a kilobyte of objects."""

_WINDOW = 1 << 18
"""Cells that are unpacked at a time where runs are merged."""

Rows = tuple[Int64s, Int64s]
"""Numbers of cells, ascending, shape (n,), and their source, offset and length, shape (n, 3)."""

Merge = Callable[[Int64s, Int64s], Rows]
"""Sorts rows by number, of equal numbers keeping the last one."""


class PackedColumn(NamedTuple):
    """Values `base + step * i + rest[i]`; no rest is all zeros."""

    size: int
    base: int
    step: int
    rest: npt.NDArray[Any] | None

    @classmethod
    def of(cls, values: Int64s, *, level: bool = False) -> PackedColumn:
        """Pack at least one value; with `level`, either all lie on the line or the step is 0."""
        first, last, count = int(values[0]), int(values[-1]), len(values)
        step = (last - first) // (count - 1) if count > 1 else 0
        rest = values - (first + step * np.arange(count, dtype=np.int64))
        least, most = int(rest.min()), int(rest.max())
        if least == most:
            return cls(count, first, step, None)
        low = int(values.min())
        if level or int(values.max()) - low <= most - least:
            return cls(count, low, 0, narrow(values - low))
        return cls(count, first + least, step, narrow(rest - least))

    def values(self) -> Int64s:
        """Return all values."""
        return self.take(np.arange(self.size, dtype=np.int64))

    def at(self, place: int) -> int:
        """Return one value."""
        value = self.base + self.step * place
        return value if self.rest is None else value + int(self.rest[place])

    def take(self, places: Int64s) -> Int64s:
        """Return some values."""
        values = self.base + self.step * places
        if self.rest is not None:
            values += self.rest[places].astype(np.int64)
        return values


class Segment(NamedTuple):
    """Some cells of a run."""

    last: int
    """Number of the last cell."""
    numbers: PackedColumn
    columns: tuple[PackedColumn, PackedColumn, PackedColumn]
    """Source, offset and length."""

    @classmethod
    def of(cls, numbers: Int64s, columns: Sequence[Int64s]) -> Segment:
        """Pack at least one cell."""
        source, offset, length = map(PackedColumn.of, columns)
        return cls(int(numbers[-1]), PackedColumn.of(numbers, level=True), (source, offset, length))

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.numbers.size

    @property
    def first(self) -> int:
        """Number of the first cell."""
        return self.numbers.base

    def rows(self) -> Rows:
        """Unpack all cells."""
        places = np.arange(self.cells, dtype=np.int64)
        return self.numbers.take(places), self.values(places)

    def values(self, places: Int64s) -> Int64s:
        """Return source, offset and length of some cells, shape (n, 3)."""
        return np.stack([column.take(places) for column in self.columns], axis=1)

    def find_many(self, numbers: Int64s) -> tuple[Int64s, Bools]:
        """Return places of cells, and which of them are cells of this segment; each is between first and last."""
        _, base, step, rest = self.numbers
        if rest is None:
            places = (numbers - base) // max(step, 1)
            return places, base + step * places == numbers
        wanted = (numbers - base).astype(rest.dtype)
        places = np.minimum(rest.searchsorted(wanted), self.cells - 1)
        return places, rest[places] == wanted


class PackedRun:
    """Immutable run of segments, ascending."""

    __slots__ = ("_firsts", "count", "segments")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.segments = tuple(segments)
        self._firsts = [segment.first for segment in self.segments]
        self.count = sum(segment.cells for segment in self.segments)

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        """Bytes of the differences that it keeps."""
        columns = (column for s in self.segments for column in (s.numbers, *s.columns))
        return sum(column.rest.nbytes for column in columns if column.rest is not None)

    def find(self, number: int) -> tuple[int, int, int] | None:
        """Return source, offset and length of a cell; None if it is not there."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0 or number > self.segments[at].last:
            return None
        segment = self.segments[at]
        _, base, step, rest = segment.numbers
        if rest is None:
            place, off = divmod(number - base, step or 1)
            if off:
                return None
        else:
            wanted = rest.dtype.type(number - base)
            place = int(rest.searchsorted(wanted))
            if rest[place] != wanted:
                return None
        source, offset, length = segment.columns
        return source.at(place), offset.at(place), length.at(place)

    def find_many(self, numbers: Int64s) -> tuple[Bools, Int64s]:
        """Return which cells are there, and their references, shape (n, 3), zero for the others."""
        known = np.zeros(len(numbers), dtype=bool)
        values = np.zeros((len(numbers), 3), dtype=np.int64)
        of = np.searchsorted(np.array(self._firsts, dtype=np.int64), numbers, side="right") - 1
        order = np.argsort(of, kind="stable")
        cuts = np.flatnonzero(np.diff(of[order])) + 1
        for some in np.split(order, cuts):
            segment = self.segments[int(of[some[0]])] if len(some) and of[some[0]] >= 0 else None
            if segment is not None:
                within = some[numbers[some] <= segment.last]
                places, there = segment.find_many(numbers[within])
                hits = within[there]
                known[hits] = True
                values[hits] = segment.values(places[there])
        return known, values

    def rows(self) -> Rows:
        """Unpack all cells."""
        numbers = np.empty(self.count, dtype=np.int64)
        values = np.empty((self.count, 3), dtype=np.int64)
        start = 0
        for segment in self.segments:
            stop = start + segment.cells
            numbers[start:stop], values[start:stop] = segment.rows()
            start = stop
        return numbers, values

    def map(self, change: Callable[[Int64s, Int64s], Rows]) -> PackedRun:
        """Return the run with the rows of each segment changed, in the same order."""
        return PackedRun(packed for segment in self.segments for packed in pack(*change(*segment.rows())))

    def without(self, gone: Int64s) -> PackedRun:
        """Return the run without some cells, ascending."""
        kept: list[Segment] = []
        for segment in self.segments:
            start, stop = np.searchsorted(gone, (segment.first, segment.last + 1))
            if start == stop:
                kept.append(segment)
                continue
            numbers, values = segment.rows()
            keep = ~np.isin(numbers, gone[start:stop])
            kept += pack(numbers[keep], values[keep])
        return PackedRun(kept)


def pack(numbers: Int64s, values: Int64s) -> Iterator[Segment]:
    """Pack cells, ascending, with their source, offset and length, shape (n, 3)."""
    for start in range(0, len(numbers), SEGMENT):
        some = slice(start, start + SEGMENT)
        yield Segment.of(numbers[some], tuple(np.ascontiguousarray(values[some].T)))


def merge_runs(older: PackedRun, newer: PackedRun, merge: Merge) -> PackedRun:
    """Merge two runs; segments that share no stretch of cells with one of the other run stay as they are."""
    return PackedRun(_merged(older.segments, newer.segments, merge))


def _merged(older: Sequence[Segment], newer: Sequence[Segment], merge: Merge) -> Iterator[Segment]:
    i = j = 0
    while i < len(older) and j < len(newer):
        if older[i].last < newer[j].first:
            yield older[i]
            i += 1
        elif newer[j].last < older[i].first:
            yield newer[j]
            j += 1
        else:  # a group of segments that overlap each other
            i_end, j_end = i + 1, j + 1
            while True:
                last = max(older[i_end - 1].last, newer[j_end - 1].last)
                if i_end < len(older) and older[i_end].first <= last:
                    i_end += 1
                elif j_end < len(newer) and newer[j_end].first <= last:
                    j_end += 1
                else:
                    break
            yield from _merged_group(older[i:i_end], newer[j:j_end], merge)
            i, j = i_end, j_end
    yield from older[i:]
    yield from newer[j:]


def _merged_group(older: Sequence[Segment], newer: Sequence[Segment], merge: Merge) -> Iterator[Segment]:
    """Merge segments window by window, so that a bounded number of cells is unpacked at a time."""
    step = max(1, _WINDOW // SEGMENT)
    lasts = sorted(segment.last for segment in (*older, *newer))
    cuts = [last + 1 for last in (*lasts[step - 1 : -1 : step], lasts[-1])]
    for start, stop in zip([min(older[0].first, newer[0].first), *cuts], cuts, strict=False):
        parts = [*_between(older, start, stop), *_between(newer, start, stop)]
        if parts:
            numbers = np.concatenate([numbers for numbers, _ in parts])
            yield from pack(*merge(numbers, np.concatenate([values for _, values in parts])))


def _between(segments: Sequence[Segment], start: int, stop: int) -> Iterator[Rows]:
    """Yield the rows of cells from `start` to `stop` (exclusive)."""
    for segment in segments:
        if segment.first < stop and segment.last >= start:
            numbers, values = segment.rows()
            low, high = np.searchsorted(numbers, (start, stop))
            if low < high:
                yield numbers[low:high], values[low:high]
