"""Positions and owners, against NumPy's own indexing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore.errors import InvalidInputError
from arraystore.spark.writing.chunk_grid import MISSING, NOWHERE, ChunkGrid, ChunkOwners, flaw


@st.composite
def grids(draw: st.DrawFn) -> ChunkGrid:
    shape = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    chunk = [draw(st.integers(1, 15)) for _ in shape]
    return ChunkGrid(tuple(shape), tuple(chunk))


def every_cell(grid: ChunkGrid) -> list[np.ndarray]:
    return [index.ravel().astype(np.int64) for index in np.indices(grid.shape)]


@given(grids())
def test_each_cell_has_a_position_of_its_own_in_its_chunk(grid: ChunkGrid) -> None:
    indices = every_cell(grid)
    positions = grid.positions(indices)
    assert len(np.unique(positions)) == len(positions)
    numbers = positions // grid.cells
    for number in np.unique(numbers).tolist():
        box = grid.box(number)
        inside = np.logical_and.reduce(
            [(index >= b.start) & (index < b.stop) for index, b in zip(indices, box, strict=True)]
        )
        assert np.array_equal(inside, numbers == number)


@given(grids())
def test_a_position_tells_its_indices(grid: ChunkGrid) -> None:
    indices = every_cell(grid)
    for row, position in enumerate(grid.positions(indices).tolist()):
        assert grid.indices(position) == tuple(int(index[row]) for index in indices)


@given(grids())
def test_the_place_in_a_chunk_is_that_of_a_c_ordered_block(grid: ChunkGrid) -> None:
    indices = every_cell(grid)
    places = grid.positions(indices) % grid.cells
    inside = [index % n for index, n in zip(indices, grid.chunk, strict=True)]
    assert np.array_equal(places, np.ravel_multi_index(inside, grid.chunk))


@given(st.integers(0, 3), st.sampled_from([MISSING, NOWHERE]), st.integers(0, 3))
def test_a_row_without_a_place_tells_the_first_dimension_that_lacks_one(axis: int, kind: int, other: int) -> None:
    grid = ChunkGrid((5, 6, 7, 8), (2, 3, 4, 5))
    indices = [np.array([1, 1], np.int64) for _ in range(4)]
    indices[axis][0] = kind
    if other > axis:
        indices[other][0] = MISSING
    positions = grid.positions(indices)
    assert positions[0] < 0
    assert flaw(int(positions[0])) == (axis, kind)
    assert positions[1] >= 0


def test_an_array_that_cannot_be_numbered_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="more cells"):
        ChunkGrid((2**40, 2**40), (1, 1))


@given(grids(), st.integers(1, 9), st.integers(1, 4))
def test_every_chunk_has_one_owner_among_the_tasks(grid: ChunkGrid, tasks: int, run: int) -> None:
    owner = ChunkOwners(grid, tasks, run).owner(np.arange(grid.chunks, dtype=np.int64))
    assert owner.shape == (grid.chunks,)
    assert owner.min() >= 0
    assert owner.max() < tasks


@pytest.mark.parametrize("tasks", [1, 2, 3, 4, 7, 8, 16, 40])
@pytest.mark.parametrize("shape", [(40,), (40, 1, 1), (6, 7), (10, 20, 30), (4, 4), (100, 2, 2), (1, 1000)])
def test_tasks_own_about_the_same_number_of_chunks(shape: tuple[int, ...], tasks: int) -> None:
    grid = ChunkGrid(shape, (1,) * len(shape))
    owned = np.bincount(ChunkOwners(grid, tasks).owner(np.arange(grid.chunks)), minlength=tasks)
    assert owned.max() <= 1.2 * grid.chunks / tasks + 1


@pytest.mark.parametrize("tasks", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_line_of_chunks_along_any_dimension_is_shared_by_all_tasks(axis: int, tasks: int) -> None:
    grid = ChunkGrid((64, 48, 32), (1, 1, 1))
    coords = np.zeros((3, grid.counts[axis]), np.int64)
    coords[axis] = np.arange(grid.counts[axis])
    owned = np.bincount(
        ChunkOwners(grid, tasks).owner(np.ravel_multi_index(list(coords), grid.counts)), minlength=tasks
    )
    assert owned.max() - owned.min() <= 1


def test_small_chunks_have_the_owner_of_their_neighbours_and_large_ones_have_their_own() -> None:
    small = ChunkOwners.of(ChunkGrid((1000, 1000), (1, 10)), 2, 8)
    assert small.run == 100
    large = ChunkOwners.of(ChunkGrid((1000, 1000), (100, 1000)), 2, 16)
    assert large.run == 1


def test_rows_for_an_array_without_cells_have_some_owner() -> None:
    owners = ChunkOwners.of(ChunkGrid((0, 4), (2, 4)), 2, 4)
    assert owners.owner(np.zeros(3, np.int64)).tolist() == [0, 0, 0]
