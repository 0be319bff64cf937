"""Packed runs of references: what they return, and what they take."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore._chunks.packed_run import SEGMENT, PackedColumn, PackedRun, Segment, pack

LARGEST = (1 << 62) - 1
VALUES = st.one_of(st.integers(-2, 300), st.integers(1 << 40, (1 << 40) + 5), st.integers(-2, LARGEST))


@given(st.lists(VALUES, min_size=1, max_size=30), st.integers(-(1 << 40), 1 << 40), st.booleans())
def test_a_column_keeps_any_values(values: list[int], step: int, level: bool) -> None:
    column = np.array(values, dtype=np.int64)
    line = np.arange(len(values), dtype=np.int64) * step
    for expected in (column, np.abs(line), np.sort(column)):
        packed = PackedColumn.of(expected, level=level)
        assert packed.values().tolist() == expected.tolist()
        assert [packed.at(i) for i in range(len(values))] == expected.tolist()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30, unique=True), st.booleans())
def test_a_run_finds_what_is_there_and_nothing_else(cells: list[int], regular: bool) -> None:
    numbers = np.array(sorted(cells), dtype=np.int64) if not regular else np.arange(len(cells), dtype=np.int64) * 3
    values = np.stack([numbers % 3, numbers * 7, numbers + 1], axis=1)
    run = PackedRun(segment for at in range(0, len(numbers), 4) for segment in pack(numbers[at:][:4], values[at:][:4]))
    expected = dict(zip(numbers.tolist(), map(tuple, values.tolist()), strict=True))
    asked = np.arange(-1, 160, dtype=np.int64)
    assert [run.find(number) for number in asked.tolist()] == [expected.get(number) for number in asked.tolist()]
    known, found = run.find_many(asked[::-1])
    assert known.tolist() == [number in expected for number in asked[::-1].tolist()]
    assert list(map(tuple, found[known].tolist())) == [expected[n] for n in asked[::-1][known].tolist()]


@pytest.mark.parametrize(
    ("lengths", "bytes_each"),
    [(np.full(1_000_000, 800_000), 1.0), (np.random.default_rng(1).integers(700_000, 1_000_000, 1_000_000), 9.0)],
    ids=["of one length", "of any length"],
)
def test_chunks_one_behind_the_other_take_few_bytes(lengths: np.ndarray, bytes_each: float) -> None:
    """A hundred files of ten thousand chunks each; in columns of integers they would take 32 bytes each."""
    starts = np.cumsum(lengths.reshape(100, -1), axis=1) - lengths.reshape(100, -1) + 4096
    sources = np.repeat(np.arange(100), 10_000) + (1 << 40)
    values = np.stack([sources, starts.reshape(-1), lengths], axis=1)
    segments = []
    for at in range(0, len(values), 10_000):  # a segment for each file, as one call for each makes them
        segments += pack(np.arange(at, at + 10_000), values[at : at + 10_000])
    assert PackedRun(segments).nbytes <= bytes_each * len(values)
    assert PackedRun(pack(np.arange(len(values)), values)).nbytes <= (8 + bytes_each) * len(values)


def test_a_segment_is_small_enough_to_be_unpacked_for_one_look_up() -> None:
    numbers = np.arange(SEGMENT, dtype=np.int64)
    segment = Segment.of(numbers, (numbers, numbers, numbers))
    assert segment.cells == SEGMENT
    assert all(column.rest is None for column in (segment.numbers, *segment.columns))
