"""Which regions share chunks, and who writes which: against models that look at every cell."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore.errors import InvalidInputError
from arraystore.spark.regions.boxes import (
    as_bounds,
    as_slices,
    assign_to_tasks,
    cut_regions,
    join_groups,
    ownership,
    region_text,
)

ChunkGrid = tuple[tuple[int, ...], tuple[int, ...]]


@st.composite
def grids(draw: st.DrawFn, most_dims: int = 3) -> ChunkGrid:
    """Draw the shape of an array and that of its chunks."""
    ndim = draw(st.integers(0, most_dims))
    shape = tuple(draw(st.integers(1, 9)) for _ in range(ndim))
    return shape, tuple(draw(st.integers(1, size + 2)) for size in shape)


@st.composite
def boxes(draw: st.DrawFn, shape: Sequence[int], most: int = 8) -> np.ndarray:
    """Draw regions of an array, shape (n, d, 2), which may overlap."""
    found = []
    for _ in range(draw(st.integers(0, most))):
        sides = []
        for size in shape:
            low = draw(st.integers(0, size - 1))
            sides.append((low, draw(st.integers(low + 1, size))))
        found.append(sides)
    return np.array(found, dtype=np.int64).reshape(len(found), len(shape), 2)


def cells(bounds: np.ndarray) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(a, b) for a, b in bounds.tolist())))


def chunks(bounds: np.ndarray, unit: Sequence[int]) -> set[tuple[int, ...]]:
    return {tuple(at // side for at, side in zip(cell, unit, strict=True)) for cell in cells(bounds)}


def model_groups(touched: list[set[tuple[int, ...]]]) -> list[int]:
    """Return the first of those that each is connected with, one merge at a time."""
    group = list(range(len(touched)))
    for i, j in itertools.combinations(range(len(touched)), 2):
        if touched[i] & touched[j]:
            old, new = max(group[i], group[j]), min(group[i], group[j])
            group = [new if each == old else each for each in group]
    return group


@given(st.data())
def test_regions_overlap_or_are_grouped_as_their_cells_and_chunks_say(data: st.DataObject):
    shape, unit = data.draw(grids())
    bounds = data.draw(boxes(shape))
    sets = [cells(box) for box in bounds]
    overlapping = {(i, j) for i, j in itertools.combinations(range(len(bounds)), 2) if not sets[i].isdisjoint(sets[j])}
    if overlapping:
        with pytest.raises(InvalidInputError, match="overlap") as caught:
            ownership(bounds, shape, unit)
        named = {f"regions {region_text(bounds[i])} (number {i}) and {region_text(bounds[j])} (number {j}) overlap"
                 for i, j in overlapping}  # fmt: skip
        assert any(caught.value.message.startswith(text) for text in named)
    else:
        touched = [chunks(box, unit) for box in bounds]
        found = ownership(bounds, shape, unit)
        assert found.group.tolist() == model_groups(touched)
        assert found.chunks == len(set().union(*touched))


@given(st.data())
def test_disjoint_pieces_of_an_array_are_grouped_as_their_chunks_say(data: st.DataObject):
    """Cut at random: boxes that are drawn one by one nearly always overlap."""
    shape, unit = data.draw(grids())
    pieces = [np.array([(0, size) for size in shape], dtype=np.int64).reshape(len(shape), 2)]
    for _ in range(data.draw(st.integers(0, 12)) if shape else 0):
        at = data.draw(st.integers(0, len(pieces) - 1))
        axis = data.draw(st.integers(0, len(shape) - 1))
        low, high = pieces[at][axis]
        if high - low > 1:
            cut = data.draw(st.integers(int(low) + 1, int(high) - 1))
            other = pieces[at].copy()
            pieces[at] = pieces[at].copy()
            pieces[at][axis, 1], other[axis, 0] = cut, cut
            pieces.append(other)
    bounds = np.array(data.draw(st.permutations(pieces)), dtype=np.int64).reshape(len(pieces), len(shape), 2)

    touched = [chunks(box, unit) for box in bounds]
    found = ownership(bounds, shape, unit)
    assert found.group.tolist() == model_groups(touched)
    assert found.chunks == len(set().union(*touched))


@given(st.data())
def test_whole_chunks_are_told_from_parts_of_them(data: st.DataObject):
    shape, unit = data.draw(grids())
    bounds = data.draw(boxes(shape, most=1))
    whole = all(
        a % side == 0 and (b % side == 0 or b == size)
        for (a, b), side, size in zip(bounds.reshape(-1, 2).tolist(), unit * len(bounds), shape * len(bounds),
                                      strict=True)
    )  # fmt: skip
    if whole:
        assert ownership(bounds, shape, unit, "error").group.tolist() == list(range(len(bounds)))
    else:
        with pytest.raises(InvalidInputError, match=r"1 of 1 regions do not cover whole chunks.*align='own'"):
            ownership(bounds, shape, unit, "error")


def test_ragged_regions_are_counted_and_the_first_is_named():
    bounds = np.array([[[0, 2]], [[2, 3]], [[3, 5]], [[6, 7]]])
    with pytest.raises(InvalidInputError, match=r"2 of 4 regions .* of \(2,\), the first is x\[2:3\] \(number 1\)"):
        ownership(bounds, (7,), (2,), "error", ["x"])


def test_align_is_own_or_error():
    with pytest.raises(InvalidInputError, match="align='rmw': it is 'own' or 'error'"):
        ownership(np.empty((0, 1, 2), dtype=np.int64), (7,), (2,), "rmw")  # type: ignore[arg-type]


def test_many_regions_in_a_row_are_one_group_whatever_their_order():
    """A chain is the worst for algorithms that walk along it: a hundred thousand steps over all of it."""
    low = np.random.default_rng(5).permutation(100_000) * 3 + 1
    bounds = np.stack([low, low + 3], axis=1)[:, None]
    found = ownership(bounds, (300_001,), (3,))
    assert not found.group.any()
    assert found.chunks == 100_001


@pytest.mark.parametrize("axis", [0, 1])
def test_many_slabs_in_one_chunk_need_no_comparison_of_all_with_all(axis: int):
    """Twenty thousand regions make two hundred million pairs, and only neighbours along one dimension may overlap."""
    low = np.arange(20_000)
    bounds = np.zeros((20_000, 2, 2), dtype=np.int64)
    bounds[:, 1 - axis] = (0, 4)
    bounds[:, axis] = np.stack([low, low + 1], axis=1)
    shape = (20_000, 4) if axis == 0 else (4, 20_000)
    assert not ownership(bounds, shape, shape).group.any()
    bounds[7, axis, 1] += 1
    with pytest.raises(InvalidInputError, match=r"\(number 7\) and .* \(number 8\) overlap"):
        ownership(bounds, shape, shape)


def test_more_regions_in_a_chunk_than_are_sensible_are_refused():
    low = np.arange(20_001)
    with pytest.raises(InvalidInputError, match="20001 regions share one chunk"):
        ownership(np.stack([low, low + 1], axis=1)[:, None], (20_001,), (20_001,))


def test_more_chunks_than_can_be_looked_at_are_refused_before_memory_is_taken():
    with pytest.raises(InvalidInputError, match=r"touch 1000000000000 chunks"):
        ownership(np.array([[[0, 10**6], [0, 10**6]]]), (10**6, 10**6), (1, 1))


def test_grids_with_more_chunks_than_fit_into_a_number_do_not_confuse_regions():
    side = 1 << 40
    low = np.array([0, 5, side - 1])
    bounds = np.stack([np.stack([low, low + 1], axis=1)] * 2, axis=1)
    assert ownership(bounds, (side, side), (1, 1)).group.tolist() == [0, 1, 2]


def test_two_regions_of_an_array_without_dimensions_overlap():
    with pytest.raises(InvalidInputError, match=r"regions \(\) \(number 0\) and \(\) \(number 1\) overlap"):
        ownership(as_bounds([(), ()], ()), (), ())


@given(st.data())
def test_groups_of_several_arrays_join(data: st.DataObject):
    count = data.draw(st.integers(1, 8))
    groups = []
    for _ in range(data.draw(st.integers(1, 3))):
        labels = data.draw(st.lists(st.integers(0, count), min_size=count, max_size=count))
        groups.append(np.array([labels.index(label) for label in labels], dtype=np.int64))
    touched = [{(which, int(group[i])) for which, group in enumerate(groups)} for i in range(count)]
    assert join_groups(groups).tolist() == model_groups(touched)


@given(st.data())
def test_every_region_is_dealt_once_with_its_group_in_order(data: st.DataObject):
    count, tasks = data.draw(st.integers(0, 30)), data.draw(st.integers(1, 10))
    labels = data.draw(st.lists(st.integers(0, count), min_size=count, max_size=count))
    group = np.array([labels.index(label) for label in labels], dtype=np.int64)
    weight = np.array(data.draw(st.lists(st.integers(0, 1000), min_size=count, max_size=count)), dtype=np.int64)

    assignments = assign_to_tasks(group, weight, tasks)

    assert sorted(itertools.chain.from_iterable(assigned.tolist() for assigned in assignments)) == list(range(count))
    assert len(assignments) <= tasks
    assert bool(assignments) == bool(count)
    for assigned in assignments:
        assert len(assigned)
        assert [(group[i], i) for i in assigned] == sorted((group[i], i) for i in assigned)
    owners = {(int(group[i]), number) for number, assigned in enumerate(assignments) for i in assigned}
    assert len(owners) == len(set(group.tolist()))


@pytest.mark.parametrize(("count", "tasks"), [(100, 7), (12, 12), (1000, 6), (6, 5)])
def test_regions_of_one_size_are_dealt_evenly(count: int, tasks: int):
    sizes = [len(assigned) for assigned in assign_to_tasks(np.arange(count), np.full(count, 9), tasks)]
    assert len(sizes) == tasks
    assert max(sizes) - min(sizes) <= 1


def test_there_are_as_many_tasks_as_groups_where_that_is_allowed():
    group = np.array([0, 0, 0, 3, 3, 5, 6], dtype=np.int64)
    assignments = assign_to_tasks(group, np.array([9, 9, 9, 9, 1, 1, 9], dtype=np.int64), 13)
    assert [assigned.tolist() for assigned in assignments] == [[0, 1, 2], [3, 4], [5], [6]]


def test_a_heavy_region_does_not_keep_others_waiting():
    weight = np.array([1, 1, 1, 1, 96], dtype=np.int64)
    assignments = assign_to_tasks(np.arange(5), weight, 2)
    assert [assigned.tolist() for assigned in assignments] == [[0, 1, 2, 3], [4]]


@given(grids(), st.integers(1, 16), st.integers(1, 4000))
def test_an_array_is_cut_into_regions_of_whole_chunks_that_cover_it_once(grid: ChunkGrid, itemsize: int, most: int):
    shape, unit = grid
    bounds = cut_regions(shape, unit, itemsize, most)

    seen = np.zeros(shape, dtype=int)
    for box in bounds:
        seen[as_slices(box)] += 1
    assert (seen == 1).all()
    assert ownership(bounds, shape, unit, "error").group.tolist() == list(range(len(bounds)))
    assert bounds[..., 0].tolist() == sorted(bounds[..., 0].tolist())
    for box in bounds:
        one_chunk = len(chunks(box, unit)) == 1
        assert one_chunk or math.prod((box[:, 1] - box[:, 0]).tolist()) * itemsize <= most


def test_nothing_of_an_array_of_no_cells_is_cut():
    assert len(cut_regions((0, 5), (1, 5), 4, 100)) == 0


@given(st.data())
def test_regions_mean_what_they_mean_to_numpy(data: st.DataObject):
    shape, _unit = data.draw(grids())
    names = "xyz"[: len(shape)]
    region = tuple(
        data.draw(st.slices(size).filter(lambda part: part.step in (None, 1)) | st.integers(-size, size - 1))
        for size in shape
    )
    ends = [
        (part.indices(size)[:2], part.stop is None or -size <= part.stop <= size) if isinstance(part, slice)
        else ((part % size, part % size + 1), True)
        for part, size in zip(region, shape, strict=True)
    ]  # fmt: skip
    forms = [region, list(region), dict(zip(names, region, strict=True)), (..., *region), (*region, ...)]
    if all(fits and a < b for (a, b), fits in ends):
        for form in forms:
            assert as_bounds([form], shape, names).tolist() == [[list(pair) for pair, _ in ends]]
    else:
        for form in forms:
            with pytest.raises(InvalidInputError, match="is empty or not within"):
                as_bounds([form], shape, names)


@pytest.mark.parametrize(
    ("region", "wanted"),
    [
        (slice(1, 3), [[1, 3], [0, 5], [0, 6]]),
        (2, [[2, 3], [0, 5], [0, 6]]),
        (-1, [[3, 4], [0, 5], [0, 6]]),
        ((), [[0, 4], [0, 5], [0, 6]]),
        (..., [[0, 4], [0, 5], [0, 6]]),
        ((..., 1), [[0, 4], [0, 5], [1, 2]]),
        ((1, ..., slice(-2, None)), [[1, 2], [0, 5], [4, 6]]),
        ((1, ..., 2, 3), [[1, 2], [2, 3], [3, 4]]),
        ((np.int64(1), slice(np.int32(2), np.uint8(4))), [[1, 2], [2, 4], [0, 6]]),
        ({}, [[0, 4], [0, 5], [0, 6]]),
        ({"z": 3}, [[0, 4], [0, 5], [3, 4]]),
    ],
)
def test_what_is_left_out_of_a_region_is_whole(region: object, wanted: list[list[int]]):
    assert as_bounds([region], (4, 5, 6), ["x", None, "z"]).tolist() == [wanted]  # type: ignore[list-item]


@pytest.mark.parametrize("dtype", ["i8", "i4", "u2", ">i4"])
def test_bounds_are_taken_as_an_array_of_any_integers(dtype: str):
    wanted = [[[0, 2], [1, 3]], [[2, 4], [0, 5]]]
    found = as_bounds(np.array(wanted, dtype=dtype), (4, 5))
    assert found.tolist() == wanted
    assert found.dtype == np.dtype("i8")


@pytest.mark.parametrize(
    ("regions", "said"),
    [
        ([slice(0, 4, 2)], "has a step"),
        ([slice(0.0, 4)], "the ends of slices must be integers"),
        ([1.5], "neither a slice nor a number"),
        (["x"], "neither a slice nor a number"),
        ([(slice(None), slice(None), slice(None))], "has 3 dimensions, and the array 2"),
        ([(0, 0, ..., 0)], "has 3 dimensions, and the array 2"),
        ([(..., ...)], "neither a slice nor a number"),
        ([{"q": 1}], "the array has no dimension 'q'"),
        ([slice(0, 5)], r"region x\[0:5\], y\[0:5\] \(number 0\) is empty or not within the array, whose shape"),
        ([slice(0, 1), slice(2, 2)], r"x\[2:2\], y\[0:5\] \(number 1\) is empty"),
        ([slice(-5, None)], "not within"),
        ([4], "not within"),
        ([-5], "not within"),
        ([slice(0, 10**30)], "far beyond the array"),
        (np.zeros((2, 2)), r"shape \(regions, 2, 2\), not float64 \(2, 2\)"),
        (np.zeros((2, 2, 2), dtype="f8"), "not float64"),
        (np.array([[[0, 2**64 - 1], [0, 1]]], dtype="u8"), "is empty or not within"),
        # One region is no list of them, though what is in it might pass for regions:
        ((slice(0, 2), slice(0, 3)), r"is one region; give a list of regions: \[\(slice"),
        ({"x": slice(0, 2)}, "is one region; give a list"),
        (slice(0, 2), "is not a list of regions"),
        (3, "is not a list of regions"),
    ],
)
def test_what_is_no_region_of_the_array_is_refused(regions: object, said: str):
    with pytest.raises(InvalidInputError, match=said):
        as_bounds(regions, (4, 5), ["x", "y"])  # type: ignore[arg-type]


def test_an_array_of_no_cells_has_no_regions():
    assert as_bounds([], (0, 5)).shape == (0, 2, 2)
    with pytest.raises(InvalidInputError, match="is empty"):
        as_bounds([()], (0, 5))


def test_an_array_without_dimensions_has_one_region():
    assert as_bounds([()], ()).shape == (1, 0, 2)
    assert as_slices(as_bounds([...], ())[0]) == ()
    assert ownership(as_bounds([()], ()), (), ()).chunks == 1


def test_regions_are_named_as_people_write_them():
    assert region_text(np.array([[0, 60], [0, 37]]), ["time", "lat"]) == "time[0:60], lat[0:37]"
    assert region_text(np.array([[0, 60], [0, 37]]), [None, "lat"]) == "[0:60], lat[0:37]"
    assert region_text(np.empty((0, 2), dtype=np.int64)) == "()"
