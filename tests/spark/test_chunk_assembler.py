"""Rows end up in chunks as one assignment in NumPy puts them, however little memory there is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore.spark.writing import chunk_assembler as module
from arraystore.spark.writing.chunk_assembler import ChunkAssembler, Policy
from arraystore.spark.writing.chunk_grid import ChunkGrid


@dataclass
class Memory:
    """Arrays in memory, read and written by chunk."""

    grid: ChunkGrid
    arrays: list[np.ndarray]
    read_from: list[tuple[int, int]] = field(default_factory=list)
    written_to: list[tuple[int, int]] = field(default_factory=list)

    def read(self, array: int, number: int) -> np.ndarray:
        self.read_from.append((array, number))
        return self.arrays[array][self.grid.box(number)].copy()

    def write(self, array: int, number: int, block: np.ndarray) -> None:
        self.written_to.append((array, number))
        self.arrays[array][self.grid.box(number)] = block


@dataclass(frozen=True)
class Case:
    grid: ChunkGrid
    cells: list[tuple[int, ...]]
    batch: int
    slots: int
    fill: bool
    skipped: list[bool]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    grid = ChunkGrid(shape, tuple(draw(st.integers(1, 4)) for _ in shape))
    every = list(np.ndindex(shape))
    cells = draw(st.lists(st.sampled_from(every), unique=True, max_size=len(every)))
    skipped = draw(st.lists(st.booleans(), min_size=len(cells), max_size=len(cells)))
    return Case(grid, cells, draw(st.integers(1, 9)), draw(st.integers(1, 4)), draw(st.booleans()), skipped)


def budget(grid: ChunkGrid, slots: int) -> int:
    return slots * grid.cells * (4 + 8 + 2)


def run(case: Case, memory: Memory, positions: np.ndarray, ordered: bool) -> ChunkAssembler:
    refused: list[int] = []
    policy = Policy(fill=case.fill, ordered=ordered, budget=budget(case.grid, case.slots))
    found = ChunkAssembler(
        case.grid, [np.dtype("i4"), np.dtype("f8")], [-1, -2.0], memory, policy, lambda p: refused.extend(p.tolist())
    )
    order = np.argsort(positions) if ordered else np.arange(len(positions))
    skipped = np.array(case.skipped, bool)
    values = 1000 + np.arange(len(positions))
    for start in range(0, len(positions), case.batch):
        rows = order[start : start + case.batch]
        absent = skipped[rows] if skipped[rows].any() else None
        found.add(positions[rows], [values[rows].astype("i4"), values[rows].astype("f8")], [None, absent])
    found.finish()
    assert refused == []
    return found


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("ordered", [True, False])
@given(case=cases())
def test_arrays_are_those_of_numpy(case: Case, ordered: bool, table: bool) -> None:
    base = [np.arange(np.prod(case.grid.shape)).reshape(case.grid.shape).astype(t) for t in ("i4", "f8")]
    memory = Memory(case.grid, [array.copy() for array in base])
    indices = [np.array([cell[k] for cell in case.cells], np.int64) for k in range(len(case.grid.shape))]
    positions = case.grid.positions(indices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_TABLE", 1 << 24 if table else 0)
        done = run(case, memory, positions, ordered)
    touched = set((positions // case.grid.cells).tolist())
    if case.fill:
        for number in touched:
            base[0][case.grid.box(number)], base[1][case.grid.box(number)] = -1, -2
    for row, cell in enumerate(case.cells):
        base[0][cell] = 1000 + row
        if not case.skipped[row]:
            base[1][cell] = 1000 + row
    assert np.array_equal(memory.arrays[0], base[0])
    assert np.array_equal(memory.arrays[1], base[1])
    assert {number for _, number in memory.written_to} <= touched
    if ordered:
        assert len(memory.written_to) == len(set(memory.written_to)) == done.written


@given(case=cases(), again=st.lists(st.integers(0, 10**6), max_size=20), seed=st.integers(0, 99))
def test_each_row_beyond_the_first_of_a_cell_is_counted(case: Case, again: list[int], seed: int) -> None:
    indices = [np.array([cell[k] for cell in case.cells], np.int64) for k in range(len(case.grid.shape))]
    positions = case.grid.positions(indices)
    if not len(positions):
        return
    extra = positions[np.array(again, np.int64) % len(positions)]
    rows = np.random.default_rng(seed).permutation(np.concatenate([positions, extra]))
    refused: list[int] = []
    memory = Memory(case.grid, [np.zeros(case.grid.shape, "i4")])
    policy = Policy(budget=budget(case.grid, case.slots) // 2)
    scatter = ChunkAssembler(case.grid, [np.dtype("i4")], [0], memory, policy, lambda p: refused.extend(p.tolist()))
    for start in range(0, len(rows), case.batch):
        part = rows[start : start + case.batch]
        scatter.add(part, [part.astype("i4")], [None])
    scatter.finish()
    assert sorted(refused) == sorted(extra.tolist())
    assert scatter.dry == bool(again)


@given(case=cases(), seed=st.integers(0, 99))
def test_rows_that_repeat_the_same_are_accepted_and_others_are_not(case: Case, seed: int) -> None:
    indices = [np.array([cell[k] for cell in case.cells], np.int64) for k in range(len(case.grid.shape))]
    positions = case.grid.positions(indices)
    rows = np.random.default_rng(seed).permutation(np.concatenate([positions, positions]))
    memory = Memory(case.grid, [np.zeros(case.grid.shape, "f8")])
    refused: list[int] = []
    policy = Policy(same=True, budget=budget(case.grid, case.slots))
    scatter = ChunkAssembler(case.grid, [np.dtype("f8")], [0], memory, policy, lambda p: refused.extend(p.tolist()))
    values = np.where(rows % 3 == 0, np.nan, rows.astype("f8"))
    for start in range(0, len(rows), case.batch):
        part = slice(start, start + case.batch)
        scatter.add(rows[part], [values[part]], [None])
    assert refused == []
    if len(positions):
        scatter.add(positions[:1], [np.array([-5.0])], [None])
        assert refused == positions[:1].tolist()


@pytest.mark.parametrize("fill", [True, False])
@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("first", [True, False])
def test_a_row_without_a_value_does_not_differ_from_one_for_the_same_cell(first: bool, slots: int, fill: bool) -> None:
    grid = ChunkGrid((4,), (2,))
    memory = Memory(grid, [np.full(4, 7.0)])
    refused: list[int] = []
    policy = Policy(fill=fill, same=True, budget=slots * grid.cells * (8 + 2))
    scatter = ChunkAssembler(grid, [np.dtype("f8")], [-1.0], memory, policy, lambda p: refused.extend(p.tolist()))
    for cell, value, absent in [(0, 5.0, first), (2, 6.0, False), (0, 5.0, not first)]:
        scatter.add(np.array([cell], np.int64), [np.array([value])], [np.array([absent])])
    scatter.finish()
    rest = -1.0 if fill else 7.0
    assert refused == []
    assert memory.arrays[0].tolist() == [5.0, rest, 6.0, rest]


def test_whole_chunks_are_not_read() -> None:
    grid = ChunkGrid((4, 6), (2, 3))
    memory = Memory(grid, [np.zeros((4, 6), "i4")])
    scatter = ChunkAssembler(grid, [np.dtype("i4")], [0], memory, Policy(), print)
    positions = np.arange(24, dtype=np.int64)
    scatter.add(positions, [positions.astype("i4")], [None])
    scatter.finish()
    assert memory.read_from == []
    assert len(memory.written_to) == scatter.written == 4
    assert scatter.nbytes == 24 * 4


def test_memory_is_bounded_by_the_budget() -> None:
    grid = ChunkGrid((1000, 1000), (10, 10))
    scatter = ChunkAssembler(grid, [np.dtype("f8")], [0], Memory(grid, []), Policy(budget=100_000), print)
    assert scatter.slots == 100_000 // (100 * 10)
