"""Vectorised comparison of references."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from arraystore._format.locations import Locations
from arraystore._format.references import DELETED, INLINE, VIRTUAL, References
from arraystore._format.types import Bools, Int64s

_BATCH = 1 << 21
"""Number of bytes compared at a time; each takes some 20 bytes of memory."""


def equal_references(ours: References, theirs: References) -> Bools:
    """Return, for each row of two sets of equal length, whether both references are equal.

    Packs are compared by id, virtual chunks by URL and checksum, inlined ones by their bytes; coordinates are not
    compared.
    """
    equal: Bools = (_kinds(ours.source) == _kinds(theirs.source)) & (ours.length == theirs.length)
    native = equal & (ours.source >= 0) & (ours.source < VIRTUAL)
    inlined = equal & (ours.source == INLINE)
    virtual = equal & (ours.source >= VIRTUAL)
    same_place = ours.offset == theirs.offset
    equal[native] = same_place[native] & _equal_packs(ours, theirs, native)
    equal[virtual] = same_place[virtual] & _equal_locations(ours, theirs, virtual)
    equal[inlined] = _equal_bytes(
        ours.inline, ours.offset[inlined], theirs.inline, theirs.offset[inlined], ours.length[inlined]
    )
    return equal


def _kinds(source: Int64s) -> npt.NDArray[np.int8]:
    kinds = (source >= VIRTUAL).astype(np.int8)
    kinds[source == INLINE] = 2
    kinds[source == DELETED] = 3
    return kinds


def _equal_packs(ours: References, theirs: References, rows: Bools) -> Bools:
    numbers: dict[bytes, int] = {}
    first = np.array([numbers.setdefault(pack, len(numbers)) for pack in ours.packs], dtype=np.int64)
    second = np.array([numbers.setdefault(pack, len(numbers)) for pack in theirs.packs], dtype=np.int64)
    equal: Bools = first[ours.source[rows]] == second[theirs.source[rows]]
    return equal


def _equal_locations(ours: References, theirs: References, rows: Bools) -> Bools:
    """Compare virtual references, each pair of locations once."""
    first, second = ours.source[rows] - VIRTUAL, theirs.source[rows] - VIRTUAL
    width = max(1, len(theirs.locations))
    pairs, at = np.unique(first * width + second, return_inverse=True)
    equal = _equal_rows(ours.locations, pairs // width, theirs.locations, pairs % width)
    spread: Bools = equal[at.reshape(-1)]
    return spread


def _equal_rows(ours: Locations, first: Int64s, theirs: Locations, second: Int64s) -> Bools:
    equal: Bools = ours.modified[first] == theirs.modified[second]
    equal &= _equal_strings(ours.etags, ours.etag_ends, first, theirs.etags, theirs.etag_ends, second)
    numbers: dict[str, int] = {}
    prefix = np.array([numbers.setdefault(text, len(numbers)) for text in ours.prefixes], dtype=np.int64)
    other = np.array([numbers.setdefault(text, len(numbers)) for text in theirs.prefixes], dtype=np.int64)
    alike: Bools = prefix[ours.prefix[first]] == other[theirs.prefix[second]]
    rows = equal & alike
    equal[rows] = _equal_strings(
        ours.suffixes, ours.suffix_ends, first[rows], theirs.suffixes, theirs.suffix_ends, second[rows]
    )
    for i in np.flatnonzero(equal & ~alike).tolist():  # one URL can be split into prefix and suffix in two ways
        equal[i] = ours.url(int(first[i])) == theirs.url(int(second[i]))
    return equal


def _equal_strings(blob: bytes, ends: Int64s, at: Int64s, other: bytes, other_ends: Int64s, other_at: Int64s) -> Bools:
    start, length = _string_spans(ends, at)
    other_start, other_length = _string_spans(other_ends, other_at)
    equal: Bools = length == other_length
    equal[equal] = _equal_bytes(blob, start[equal], other, other_start[equal], length[equal])
    return equal


def _string_spans(ends: Int64s, at: Int64s) -> tuple[Int64s, Int64s]:
    starts = np.where(at > 0, ends[at - 1], 0)
    return starts, ends[at] - starts


def _equal_bytes(blob: bytes, start: Int64s, other: bytes, other_start: Int64s, length: Int64s) -> Bools:
    """Compare pairs of byte ranges of equal lengths, a bounded number of bytes at a time."""
    equal = np.ones(len(length), dtype=bool)
    ends: Int64s = np.cumsum(length)
    first = 0
    while first < len(length):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _BATCH, side="right")))
        rows = slice(first, last)
        equal[rows] = _equal_batch(blob, start[rows], other, other_start[rows], length[rows])
        first = last
    return equal


def _equal_batch(blob: bytes, start: Int64s, other: bytes, other_start: Int64s, length: Int64s) -> Bools:
    if len(length) == 1:
        a, b, size = int(start[0]), int(other_start[0]), int(length[0])
        return np.array([blob[a : a + size] == other[b : b + size]])
    ends: Int64s = np.cumsum(length)
    within = np.arange(int(ends[-1])) - np.repeat(ends - length, length)
    mine = np.frombuffer(blob, dtype=np.uint8)[np.repeat(start, length) + within]
    yours = np.frombuffer(other, dtype=np.uint8)[np.repeat(other_start, length) + within]
    wrong = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(mine != yours)])
    different: Bools = wrong[ends] != wrong[ends - length]
    return ~different
