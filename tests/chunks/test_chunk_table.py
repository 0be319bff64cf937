"""The table of a session's chunks against a dictionary."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore._chunks import chunk_table, packed_run
from arraystore._chunks.chunk_table import ChunkReference, ChunkTable
from arraystore._chunks.packed_run import Segment

CELLS = st.tuples(st.integers(0, 5), st.integers(0, 3))


@pytest.fixture(scope="module", autouse=True, params=["plain", "packed"])
def _early_runs(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_table, "_SPILL", 3)
        if request.param == "packed":
            patch.setattr(chunk_table, "_PACKED", 4)
            patch.setattr(packed_run, "SEGMENT", 3)
            patch.setattr(packed_run, "_WINDOW", 6)
        yield


def apply(
    table: ChunkTable, model: dict[tuple[int, ...], ChunkReference], step: str, cells: list[tuple[int, int]]
) -> None:
    if step == "put":
        for offset, cell in enumerate(cells):
            model[cell] = (len(model), offset, 1)
            table.put(table.number(cell), model[cell])
    elif step == "many" and cells:
        columns = np.arange(3 * len(cells)).reshape(3, len(cells))
        table.put_many(np.array(cells), *columns)
        model.update({cell: tuple(columns[:, at].tolist()) for at, cell in enumerate(cells)})  # type: ignore[misc]
    elif step == "segments" and cells:
        cells = sorted(cells)
        numbers, values = np.array([table.number(cell) for cell in cells]), np.arange(3 * len(cells)).reshape(-1, 3)
        table.put_segments(Segment.of(numbers[at : at + 2], values[at : at + 2].T) for at in range(0, len(cells), 2))
        model.update({cell: tuple(row) for cell, row in zip(cells, values.tolist(), strict=True)})
    elif step == "forget":
        for cell in cells:
            table.forget(table.number(cell))
            model.pop(cell, None)
    elif step == "grow":
        table.fit((6 + len(cells), 4 * (1 + len(cells))))
    elif step == "drop":
        coords, _ = table.columns()
        table.drop(np.array([tuple(row) not in cells for row in coords.tolist()], dtype=bool))
        for cell in cells:
            model.pop(cell, None)
    elif step == "columns":
        coords, values = table.columns()
        assert [tuple(row) for row in coords.tolist()] == sorted(model)
        assert [tuple(row) for row in values.tolist()] == [model[cell] for cell in sorted(model)]
        stretches = list(table.stretches())
        assert [row for part, _ in stretches for row in part.tolist()] == coords.tolist()
        assert [row for _, part in stretches for row in part.tolist()] == values.tolist()


STEPS = ["put", "put", "many", "segments", "forget", "forget", "grow", "drop", "columns"]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.lists(CELLS, max_size=8, unique=True)), max_size=20))
def test_a_table_is_a_dictionary(steps: list[tuple[str, list[tuple[int, int]]]]) -> None:
    table, model = ChunkTable((6, 4)), dict[tuple[int, ...], ChunkReference]()
    for step, cells in steps:
        apply(table, model, step, cells)
        for cell in np.ndindex(6, 4):
            assert table.get(table.number(cell)) == model.get(cell), (step, cell)
        assert bool(table) == bool(model)
    apply(table, model, "columns", [])


def test_forgetting_cells_does_not_rebuild_the_table_each_time() -> None:
    """An array of a million chunks that is made smaller before its commit forgets them one by one."""
    table = ChunkTable((1000,))
    coords = np.arange(1000).reshape(-1, 1)
    table.put_many(coords, *np.ones((3, 1000), dtype=np.int64))
    before = table._runs[0]
    for number in range(0, 1000, 2):
        table.forget(number)
        assert table.get(number) is None
    assert table._runs[0] is before
    assert table.columns()[0][:, 0].tolist() == list(range(1, 1000, 2))


@pytest.mark.parametrize("count", [3, 400])
def test_many_cells_are_looked_up_as_one_by_one(count: int) -> None:
    generator = np.random.default_rng(count)
    table = ChunkTable((1000,))
    for _ in range(5):
        cells = generator.integers(0, 1000, count)
        table.put_many(cells[:, None], cells + 1, cells + 2, cells + 3)
        for cell in generator.integers(0, 1000, count).tolist():
            if generator.integers(2):
                table.put(cell, ChunkReference(cell, 7, 7))
            else:
                table.forget(cell)
        asked = generator.integers(0, 1000, count)
        expected = [table.get(cell) for cell in asked.tolist()]
        known, values = table.get_many(asked)
        assert known.tolist() == [entry is not None for entry in expected]
        assert values[known].tolist() == [list(entry) for entry in expected if entry is not None]
