"""Positions, touched chunks, runs and boxes, against naive numpy models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore.errors import InvalidInputError
from arraystore.spark.reading.selection import (
    AxisSelection,
    ChunkRuns,
    boxes_of,
    check_dimension_names,
    index_positions,
)


def positions(size: int, index: Any) -> list[int]:
    found = index_positions("dimension 'x'", size, index)
    assert isinstance(found, range) == (not len(found) or found[-1] - found[0] + 1 == len(found))
    return [int(position) for position in found]


bounds = st.one_of(st.none(), st.integers(-12, 12))


@given(st.integers(0, 10), bounds, bounds, st.one_of(st.none(), st.integers(-4, 4).filter(bool)))
def test_slices_select_what_numpy_selects(size: int, start: int | None, stop: int | None, step: int | None) -> None:
    index = slice(start, stop, step)
    assert positions(size, index) == sorted(np.arange(size)[index].tolist())


@given(st.integers(1, 10).flatmap(lambda size: st.tuples(st.just(size), st.lists(st.integers(-size, size - 1)))))
def test_lists_select_a_set_of_positions(case: tuple[int, list[int]]) -> None:
    size, index = case
    assert positions(size, index) == sorted({int(np.arange(size)[one]) for one in index})


@given(st.lists(st.booleans()))
def test_masks_select_what_is_true(mask: list[bool]) -> None:
    assert positions(len(mask), np.array(mask, bool)) == np.flatnonzero(mask).tolist()


def test_a_whole_number_selects_one_position() -> None:
    assert positions(5, 3) == positions(5, -2) == positions(5, np.int32(3)) == [3]


@pytest.mark.parametrize("index", [5, -6, [0, 7], "a", 1.5, [[1]], slice("a", None), slice(0, 1, 0), [True]])
def test_what_is_no_position_is_refused_with_the_name_of_the_dimension(index: Any) -> None:
    with pytest.raises(InvalidInputError, match="dimension 'x'"):
        index_positions("dimension 'x'", 5, index)


def test_an_unknown_dimension_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'time'"):
        check_dimension_names("sel", {"tme": 1}, ["time", "lat"])


@st.composite
def axes(draw: st.DrawFn) -> AxisSelection:
    size = draw(st.integers(1, 30))
    side = draw(st.integers(1, 12))
    index = draw(
        st.one_of(
            st.lists(st.booleans(), min_size=size, max_size=size).map(np.array),
            st.tuples(st.integers(0, size), st.integers(0, size)).map(lambda ends: slice(min(ends), max(ends))),
        )
    )
    return AxisSelection("x", size, side, index_positions("x", size, index))


@given(axes(), st.data())
def test_touched_chunks_hold_the_selected_positions_and_each_at_least_one(
    axis: AxisSelection, data: st.DataObject
) -> None:
    wanted = np.array([int(one) for one in axis.positions], dtype=np.int64)
    assert [int(one) for one in axis.touched] == np.unique(wanted // axis.side).tolist()
    if axis.chunks:
        first = data.draw(st.integers(0, axis.chunks - 1))
        stop = data.draw(st.integers(first + 1, axis.chunks))
        low, high = axis.within(first, stop)
        inside = np.isin(wanted // axis.side, [int(one) for one in axis.touched[first:stop]])
        assert np.flatnonzero(inside).tolist() == list(range(low, high))


@given(axes(), st.integers(1, 12))
def test_stretches_overlap_the_touched_chunks_that_they_should(axis: AxisSelection, side: int) -> None:
    coordinates = np.arange(-(-axis.size // side))
    starts, stops = coordinates * side, np.minimum((coordinates + 1) * side, axis.size)
    low, high = axis.spans_of(starts, stops)
    touched = np.array([int(one) for one in axis.touched], dtype=np.int64)
    for start, stop, first, beyond in zip(starts, stops, low, high, strict=True):
        overlapped = (touched * axis.side < stop) & ((touched + 1) * axis.side > start)
        assert np.flatnonzero(overlapped).tolist() == list(range(first, beyond))


@given(st.sets(st.integers(0, 60)), st.data())
def test_runs_tell_the_numbers_that_they_were_made_of(numbers: set[int], data: st.DataObject) -> None:
    rising = np.array(sorted(numbers), dtype=np.int64)
    runs = ChunkRuns.of(rising)
    assert len(runs) == len(rising)
    stop = data.draw(st.integers(0, len(rising)))
    start = data.draw(st.integers(0, stop))
    assert runs.between(start, stop).tolist() == rising[start:stop].tolist()


def test_a_dense_run_of_many_chunks_is_two_numbers() -> None:
    runs = ChunkRuns.up_to(10**12)
    assert (len(runs), len(runs.starts)) == (10**12, 1)
    assert runs.between(10**11, 10**11 + 3).tolist() == [10**11, 10**11 + 1, 10**11 + 2]
    assert len(ChunkRuns.up_to(0)) == 0


@given(
    st.lists(st.integers(1, 5), max_size=3).flatmap(
        lambda shape: st.tuples(
            st.just(tuple(shape)), st.sets(st.integers(0, int(np.prod(shape, dtype=np.int64)) - 1), min_size=1)
        )
    ),
    st.integers(1, 20),
)
def test_boxes_hold_each_chunk_once_and_no_other(case: tuple[tuple[int, ...], set[int]], most: int) -> None:
    shape, numbers = case
    boxes = boxes_of(np.array(sorted(numbers), dtype=np.int64), shape, most)
    held = np.zeros(shape, dtype=np.int64)
    for box in boxes.tolist():
        inside = held[tuple(slice(first, stop) for first, stop in box)]
        assert 1 <= inside.size <= max(most, 1)
        held[tuple(slice(first, stop) for first, stop in box)] += 1
    expected = np.zeros(shape, dtype=np.int64)
    expected.reshape(-1)[sorted(numbers)] = 1
    np.testing.assert_array_equal(held, expected)


def test_a_dense_grid_becomes_as_few_boxes_as_the_bound_allows() -> None:
    assert len(boxes_of(np.arange(1000), (10, 10, 10), 1000)) == 1
    assert len(boxes_of(np.arange(1000), (10, 10, 10), 100)) == 10
    assert len(boxes_of(np.arange(1000), (10, 10, 10), 5)) == 200
