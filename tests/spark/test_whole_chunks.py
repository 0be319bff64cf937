"""Tasks in front of a shuffle write the chunks that they have whole, and each other row goes on, once."""

from __future__ import annotations

import re
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions

import arraystore as ars
from arraystore.errors import FormatError, InvalidInputError
from arraystore.spark import write_dataframe
from arraystore.spark.fork_job import Outcome
from arraystore.spark.writing import whole_chunks as module
from arraystore.spark.writing import write_dataframe as writing
from arraystore.spark.writing.chunk_assembler import Policy
from arraystore.spark.writing.chunk_grid import ChunkGrid
from arraystore.spark.writing.columns import ValueColumn
from arraystore.spark.writing.whole_chunks import IncompleteRestError, WholeChunks, outcomes_in_front
from arraystore.spark.writing.write_plan import WritePlan
from tests.spark.support import new_repository, read_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = tuple[int, int | None, float]
"""Position, and a value for each of two arrays."""


ROW_BYTES = 8 + 4 + 8


@dataclass
class Written:
    """What a fork was asked to write."""

    blocks: dict[tuple[str, tuple[slice, ...]], np.ndarray] = field(default_factory=dict)

    def write(self, path: str, region: tuple[slice, ...], values: np.ndarray) -> None:
        key = (path, tuple((part.start, part.stop) for part in region))
        assert key not in self.blocks, "a chunk is written once"
        self.blocks[key] = np.array(values)


def plan_of(grid: ChunkGrid, rows_held: int = 1 << 20) -> WritePlan:
    columns = (
        ValueColumn("a", "int", np.dtype("i2")),
        ValueColumn("b", "double", np.dtype("f8")),
    )
    policy = Policy(budget=rows_held * ROW_BYTES)
    return WritePlan(("a", "b"), grid, (), columns, (0, np.nan), policy, located=True)


def batches_of(rows: list[Row], size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        positions, first, second = zip(*rows[start : start + size], strict=True)
        arrays = [pa.array(positions, pa.int64()), pa.array(first, pa.int32()), pa.array(second, pa.float64())]
        yield pa.RecordBatch.from_arrays(arrays, names=["position", "v0", "v1"])


def sift(plan: WritePlan, rows: list[Row], size: int) -> tuple[Written, list[Row], dict[str, Any]]:
    """Return what one task writes, which rows it passes on, and what it reports."""
    fork: Any = Written()
    whole = WholeChunks(plan, fork)
    passed = [batch for given_batch in batches_of(rows, size) for batch in whole.take(given_batch)]
    passed += whole.finish()
    columns = [tuple(row.values()) for batch in passed for row in batch.to_pylist()]
    return fork, columns, whole.report()


def rows_written(grid: ChunkGrid, written: Written) -> Iterator[Row]:
    for (path, bounds), block in written.blocks.items():
        if path != "a":
            continue
        other = written.blocks["b", bounds]
        for place in np.ndindex(block.shape):
            cell = [np.array([start + at]) for (start, _), at in zip(bounds, place, strict=True)]
            yield int(grid.positions(cell)[0]), int(block[place]), float(other[place])


@dataclass(frozen=True)
class Case:
    grid: ChunkGrid
    rows: list[Row]
    size: int
    block: int
    held: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    grid = ChunkGrid(shape, tuple(draw(st.integers(1, 4)) for _ in shape))
    cells = list(np.ndindex(shape))
    if draw(st.booleans()):
        cells = draw(st.permutations(cells))
    cells = [cell for cell in cells if draw(st.integers(0, 30))]  # most chunks have all their rows
    cells += draw(st.lists(st.sampled_from(cells), max_size=2)) if cells else []
    positions = [int(grid.positions([np.array([index]) for index in cell])[0]) for cell in cells]
    rows: list[Row] = [(at, number, -float(number)) for number, at in enumerate(positions)]
    for flaw in draw(st.lists(st.sampled_from(["nowhere", "null", "unfit"]), max_size=2)):
        number = draw(st.integers(0, len(rows)))
        at, value, other = (-1, 7, 7.0) if flaw == "nowhere" or number == len(rows) else rows[number]
        rows[number : number + 1] = [(at, None if flaw == "null" else 1 << 20 if flaw == "unfit" else value, other)]
    return Case(
        grid, rows, draw(st.integers(1, 9)), draw(st.sampled_from([1, 5, 500])), draw(st.sampled_from([1, 9, 500]))
    )


@given(cases())
def test_each_row_is_written_in_a_chunk_that_is_whole_or_passed_on(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_BYTES", case.block * ROW_BYTES)
        written, passed, report = sift(plan_of(case.grid, case.held), case.rows, case.size)
    here = list(rows_written(case.grid, written))
    assert Counter(here + passed) == Counter(case.rows)
    assert (report["rows"], report["left"], report["chunks"]) == (len(here), len(passed), len(written.blocks))
    assert report["nbytes"] == 10 * len(here)


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_all_rows_are_written_where_they_come_in_order_and_chunks_fit_into_memory(size: int) -> None:
    grid = ChunkGrid((20, 7, 9), (3, 4, 9))
    cells = np.arange(20 * 7 * 9).reshape(20, 7, 9)
    indices = [part.reshape(-1) for part in np.indices(cells.shape)]
    rows: list[Row] = [(int(at), n, float(n)) for n, at in enumerate(grid.positions(indices))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_BYTES", 50 * ROW_BYTES)
        written, passed, _ = sift(plan_of(grid, rows_held=3 * 7 * 9 * 4), rows, size)
    assert passed == []
    whole = np.empty(cells.shape)
    for (path, bounds), block in written.blocks.items():
        if path == "b":
            whole[tuple(slice(*bound) for bound in bounds)] = block
    assert np.array_equal(whole, cells)


def test_rows_in_no_order_are_passed_on_as_they_come_once_memory_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = ChunkGrid((1000,), (10,))
    order = np.arange(1000).reshape(100, 10).T.reshape(-1)  # no chunk is whole before all rows have come
    rows: list[Row] = [(int(at), int(at), 0.0) for at in order]
    monkeypatch.setattr(module, "_BLOCK_BYTES", 100 * ROW_BYTES)
    written, passed, report = sift(plan_of(grid, rows_held=100), rows, 10)
    assert not written.blocks
    assert passed[100:] == rows[100:]
    assert report == {"rows": 0, "chunks": 0, "nbytes": 0, "left": 1000}


def peak_bytes(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_chunks_that_reach_far_beyond_the_array_are_written_a_few_at_a_time() -> None:
    grid = ChunkGrid((200, 1), (1, 100_000))
    rows: list[Row] = [(at * 100_000, at, float(at)) for at in range(200)]
    plan = plan_of(grid, rows_held=400_000)
    assert peak_bytes(lambda: sift(plan, rows, 50)) < 3 * plan.policy.budget
    written, passed, _ = sift(plan, rows, 50)
    assert len(written.blocks) == 400
    assert passed == []


def test_rows_are_held_by_their_bytes_not_by_those_of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 1 << 16)
    texts = (ValueColumn("a", "string", np.dtype(object)),)
    plan = WritePlan(("a",), ChunkGrid((1000,), (1000,)), (), texts, ("",), Policy(budget=1 << 18), located=True)
    fork: Any = Written()
    whole = WholeChunks(plan, fork)
    passed = 0
    for at in range(1000):
        row = [pa.array([at], pa.int64()), pa.array(["x" * 8000])]
        passed += len(list(whole.take(pa.RecordBatch.from_arrays(row, names=["position", "v0"]))))
        assert (at + 1 - passed) * 8000 <= 1 << 18
    assert passed > 900


@pytest.mark.parametrize(("shape", "chunk"), [((0,), (10,)), ((5, 0), (2, 3))])
def test_rows_for_an_array_without_cells_are_passed_on(shape: tuple[int, ...], chunk: tuple[int, ...]) -> None:
    rows: list[Row] = [(-1, 1, 1.0), (-2, 2, 2.0)]
    written, passed, _ = sift(plan_of(ChunkGrid(shape, chunk)), rows, 10)
    assert not written.blocks
    assert passed == rows


def outcome(task: int, **report: Any) -> Outcome:
    return Outcome(task, 0, b"", report)


def test_rows_that_did_not_arrive_are_noticed_by_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    in_front = {b"0": outcome(0, rows=5, left=3), b"1": outcome(1, rows=6, left=1)}
    monkeypatch.setattr(module, "read_outcome", lambda name, data: in_front[data])
    behind = [outcome(0, rows=3, in_front=[b"1"]), outcome(1, rows=1, in_front=[b"0"])]

    assert [each.task for each in outcomes_in_front(behind)] == [1, 0]
    for wrong in (
        [behind[0], outcome(1, rows=0, in_front=[b"0"])],  # of another attempt, which wrote that row
        [behind[0], replace(behind[1], report={"rows": 1})],
        [outcome(0, rows=1, in_front=[b"1", b"1"]), outcome(1, rows=1)],
    ):
        with pytest.raises(IncompleteRestError):
            outcomes_in_front(wrong)
    with pytest.raises(FormatError, match="does not list outcomes"):
        outcomes_in_front([outcome(0, rows=0, in_front=["text"])])


# -- with Spark -----------------------------------------------------------------------------------------------------

SHAPE, CHUNKS, DIMS = (12, 6, 10), (2, 3, 5), ["t", "y", "x"]
NUMBERS = np.arange(np.prod(SHAPE)).reshape(SHAPE)


@pytest.fixture
def repo(tmp_path: Path) -> ars.Repository:
    made = new_repository(tmp_path)
    with made.transaction("main", message="make the array") as store:
        zarr.create_array(store, name="v", shape=SHAPE, chunks=CHUNKS, dtype="f4", dimension_names=DIMS)
    return made


def in_order(spark: SparkSession, partitions: int) -> DataFrame:
    _, y, x = SHAPE
    rows = spark.range(0, NUMBERS.size, 1, partitions)
    return rows.selectExpr(f"id div {y * x} AS t", f"(id div {x}) % {y} AS y", f"id % {x} AS x", "float(id) AS value")


@pytest.mark.spark
@pytest.mark.end_to_end
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("partitions", [3, 5])
def test_rows_in_order_are_written_in_front_of_the_shuffle_but_those_of_chunks_that_partitions_share(
    spark: SparkSession, repo: ars.Repository, partitions: int
) -> None:
    session = repo.writable_session("main")
    report = write_dataframe(in_order(spark, partitions), session, "v", value="value", shuffle="rest", tasks=2)
    session.commit("rows")
    assert np.array_equal(read_array(repo, "v"), NUMBERS)
    assert (report.rows, report.chunks, report.nbytes) == (NUMBERS.size, 24, NUMBERS.nbytes // 2)
    # Three partitions end where chunks do, so that only their outcomes go through the shuffle.
    assert report.tasks == partitions + 2


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_rest_of_rows_in_no_order_is_all_of_them(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    mixed = in_order(spark, 2).repartition(4, "x")
    report = write_dataframe(mixed, session, "v", value="value", shuffle="rest", sort=True)
    session.commit("rows")
    assert np.array_equal(read_array(repo, "v"), NUMBERS)
    assert report.chunks == 24


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_of_a_chunk_of_fill_values_two_tasks_may_not_have_all_rows(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    zeros = in_order(spark, 1).withColumn("value", functions.lit(0.0).cast("float"))
    with pytest.raises(InvalidInputError, match="120 name a cell that another row names"):
        write_dataframe(zeros.union(zeros.where("t < 2")), session, "v", value="value", shuffle="rest")
    assert not session.has_uncommitted_changes


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_chunk_of_which_two_tasks_have_all_rows_is_refused_unless_they_say_the_same(
    spark: SparkSession, repo: ars.Repository
) -> None:
    session = repo.writable_session("main")
    twice = in_order(spark, 1).union(in_order(spark, 1).where("t < 2"))
    with pytest.raises(InvalidInputError, match="120 name a cell that another row names"):
        write_dataframe(twice, session, "v", value="value", shuffle="rest")
    assert not session.has_uncommitted_changes
    report = write_dataframe(twice, session, "v", value="value", shuffle="rest", on_duplicate="same")
    assert report.rows == NUMBERS.size + 120
    session.commit("rows")
    assert np.array_equal(read_array(repo, "v"), NUMBERS)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_rows_that_are_refused_are_those_that_a_whole_shuffle_finds(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    flawed = in_order(spark, 2).selectExpr(
        "if(t = 3, 99, t) AS t", "y", "x", "if(x = 1 AND t = 7, NULL, value) AS value"
    )
    texts = []
    for shuffle in (True, "rest"):
        with pytest.raises(InvalidInputError) as caught:
            write_dataframe(flawed, session, "v", value="value", shuffle=shuffle)
        texts.append(re.sub(r" \(for instance [^)]*\)", "", caught.value.message))
    assert texts[0] == texts[1]
    assert "60 are outside the array by 't'; 6 have no value in 'value'" in texts[0]
    report = write_dataframe(flawed.where("t < 12"), session, "v", value="value", shuffle="rest", on_null="skip")
    session.commit("rows")
    expected = NUMBERS.astype("f4")
    expected[3] = expected[7, :, 1] = 0
    assert np.array_equal(read_array(repo, "v"), expected)
    assert report.rows == NUMBERS.size - 60


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("mixed", [False, True])
def test_values_of_each_type_arrive_from_either_side_of_the_shuffle(
    spark: SparkSession, repo: ars.Repository, mixed: bool
) -> None:
    count = 40
    kinds = {"when": "M8[us]", "day": "M8[D]", "took": "m8[us]", "cost": "f8", "good": "?", "name": "U8", "raw": "S3"}
    session = repo.writable_session("main")
    for name, dtype in kinds.items():
        zarr.create_array(session.store, name=name, shape=(count,), chunks=(8,), dtype=dtype, dimension_names=["i"])
    rows = spark.range(0, count, 1, 2).selectExpr(
        "id AS i",
        "timestamp_seconds(id * 86400 + 5) AS when",
        "date_add(DATE'1970-01-01', CAST(id AS INT)) AS day",
        "make_dt_interval(0, 0, 0, id) AS took",
        "CAST(id AS DECIMAL(10, 2)) / 4 AS cost",
        "id % 3 = 0 AS good",
        "CAST(id AS STRING) AS name",
        "CAST(CAST(id AS STRING) AS BINARY) AS raw",
    )
    if mixed:
        rows = rows.repartition(3, "cost")
    write_dataframe(rows, session, values=list(kinds), dims=["i"], shuffle="rest", tasks=2)
    numbers = np.arange(count)
    expected: dict[str, Any] = {
        "when": (numbers * 86400 + 5).astype("M8[s]"),
        "day": numbers.astype("M8[D]"),
        "took": numbers.astype("m8[s]"),
        "cost": numbers / 4,
        "good": numbers % 3 == 0,
        "name": numbers.astype("U8"),
        "raw": numbers.astype("S3"),
    }
    for name in kinds:
        assert np.array_equal(session.read(name), expected[name]), name


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_where_tasks_do_not_agree_all_rows_are_shuffled(
    spark: SparkSession, repo: ars.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disagree(outcomes: list[Outcome]) -> list[Outcome]:
        raise IncompleteRestError

    monkeypatch.setattr(writing, "outcomes_in_front", disagree)
    session = repo.writable_session("main")
    report = write_dataframe(in_order(spark, 3), session, "v", value="value", shuffle="rest", tasks=2)
    session.commit("rows")
    assert np.array_equal(read_array(repo, "v"), NUMBERS)
    assert (report.rows, report.tasks) == (NUMBERS.size, 2)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_frame_without_rows_writes_nothing(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    for nothing in (in_order(spark, 2).where("t > 99"), in_order(spark, 2).where("t < 0").limit(0)):
        assert write_dataframe(nothing, session, "v", value="value", shuffle="rest").rows == 0
    assert not session.has_uncommitted_changes


def test_shuffle_is_one_of_three_choices(repo: ars.Repository) -> None:
    frame: Any = type("Frame", (), {"isStreaming": False})()
    with pytest.raises(InvalidInputError, match="shuffle='some'"):
        write_dataframe(frame, repo.writable_session("main"), "v", value="value", shuffle="some")  # type: ignore[arg-type]
