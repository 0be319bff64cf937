"""Rows replace a region whole: cells of the region without rows become the fill value."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import arraystore as ars
from arraystore.errors import InvalidInputError
from arraystore.spark import write_dataframe
from arraystore.spark.writing.chunk_grid import ChunkGrid
from arraystore.spark.writing.replaced_region import ErasedChunks, ReplacedRegion
from tests.spark.support import new_repository, put_array, read_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

OLD = np.arange(1.0, 71).reshape(7, 10)
DAYS = [3, 4, 5, 8, 9, 10, 11]


@pytest.fixture
def repo(tmp_path: Path) -> ars.Repository:
    repo = new_repository(tmp_path)
    session = repo.writable_session("main")
    units = {"units": "days since 2026-01-01"}
    put_array(session.store, "day", np.array(DAYS, "i4"), (7,), ("day",), units)
    for name, factor in ("a", 1), ("b", -1):
        put_array(session.store, name, factor * OLD, (2, 3), ("day", "x"))
    session.commit("begin")
    return repo


def rows(spark: SparkSession, *cells: tuple[int, int]) -> DataFrame:
    """Return rows of the values 1000, 1001, ... in a, and their negatives in b."""
    numbered = [(day, x, 1000.0 + n) for n, (day, x) in enumerate(cells)]
    frame = spark.createDataFrame(numbered, "n int, x int, a double")
    return frame.selectExpr("timestamp(date_add(date'2026-01-01', n)) day", "x", "a", "-a as b")


def replace(session: ars.Session, df: DataFrame, where: Any, **options: Any) -> Any:
    return write_dataframe(
        df, session, "", dims=["day", "x"], values=["a", "b"], coords={"day": "label"}, replace_where=where, **options
    )


def expected(where: tuple[Any, Any], *cells: tuple[int, int]) -> Any:
    values = OLD.copy()
    values[np.ix_(*where)] = 0
    for n, (day, x) in enumerate(cells):
        values[DAYS.index(day), x] = 1000 + n
    return values


@pytest.mark.end_to_end
def test_cells_of_the_region_without_rows_become_the_fill_value(spark: SparkSession, repo: ars.Repository) -> None:
    cells = [(5, 2), (8, 3), (10, 8), (5, 8)]
    session = repo.writable_session("main")
    report = replace(session, rows(spark, *cells), {"day": slice("2026-01-06", "2026-01-11"), "x": slice(2, 9)})
    session.commit("replace")
    values = expected((range(2, 6), range(2, 9)), *cells)
    assert report.rows == 4
    assert np.array_equal(read_array(repo, "a"), values)
    assert np.array_equal(read_array(repo, "b"), -values)
    # Chunks that are in the region as a whole, and have no rows, are gone.
    kept = {tuple(each) for each in repo.readonly_session("main").chunk_coordinates("a").tolist()}
    assert (2, 1) not in kept
    assert (1, 1) in kept


def test_no_rows_empty_the_region(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    replace(session, rows(spark, (3, 0)).where("x > 5"), {"x": [0, 9]})
    session.commit("empty")
    assert np.array_equal(read_array(repo, "a"), expected((range(7), [0, 9])))


def test_rows_outside_of_the_region_are_refused_and_nothing_changes(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    with pytest.raises(InvalidInputError, match=r"1 are outside of the region .*day=2026-01-05"):
        replace(session, rows(spark, (3, 1), (4, 1)), {"day": "2026-01-04"})
    assert not session.has_uncommitted_changes
    assert not session.has_forks
    for where, message in ({"z": 1}, "dimensions are 'day', 'x'"), ({}, "must select"), ({"x": 10}, "not among them"):
        with pytest.raises(InvalidInputError, match=message):
            replace(session, rows(spark, (3, 1)), where)
    with pytest.raises(InvalidInputError, match="give one of them"):
        replace(session, rows(spark, (3, 1)), {"x": 1}, partial="fill")


def test_uncommitted_values_are_replaced_too(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+")[:] = 5
    replace(session, rows(spark, (3, 0)), {"day": "2026-01-04"})
    session.commit("both")
    values = np.full((7, 10), 5.0)
    values[0] = [1000] + [0] * 9
    assert np.array_equal(read_array(repo, "a"), values)


# -- without Spark ----------------------------------------------------------------------------------------------------


def region() -> ReplacedRegion:
    masks = np.zeros(5, bool), np.ones(4, bool)
    masks[0][[1, 2, 4]] = True
    return ReplacedRegion(ChunkGrid((5, 4), (2, 3)), masks)


def test_a_region_knows_its_cells_and_chunks() -> None:
    every = [np.repeat(np.arange(5), 4), np.tile(np.arange(4), 5)]
    positions = region().grid.positions(every)
    assert region().contains(positions).tolist() == [y in (1, 2, 4) for y in range(5) for _ in range(4)]
    assert region().touched(np.array([[0, 0], [1, 1], [2, 1], [3, 0]])).tolist() == [0, 3, 5]
    assert [region().covers(number) for number in range(6)] == [False] * 4 + [True] * 2


def test_chunks_that_were_written_are_read_back_as_they_are() -> None:
    class Memory:
        def __init__(self) -> None:
            self.block = np.ones((2, 3))

        def read(self, array: int, number: int) -> Any:
            return self.block

        def write(self, array: int, number: int, block: Any) -> None:
            self.block = block.copy()

    chunks = ErasedChunks(Memory(), region(), [0])
    assert chunks.read(0, 0).tolist() == [[1, 1, 1], [0, 0, 0]]
    chunks.write(0, 0, np.full((2, 3), 7))
    assert chunks.read(0, 0).tolist() == [[7, 7, 7], [7, 7, 7]]
