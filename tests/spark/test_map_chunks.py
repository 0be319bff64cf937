"""Functions over chunks, through executors."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr

import arraystore.spark as asp
from arraystore import InvalidInputError, Repository, local_filesystem_storage
from arraystore.spark.reading.frame_plan import plan_frame
from arraystore.spark.reading.map_chunks import Chunk, ChunkMapper
from arraystore.spark.spark_action import by_task
from tests.spark.support import put_array

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - as Arrow returns what has no time zone
VALUES = np.arange(6 * 8 * 10, dtype="i4").reshape(6, 8, 10)


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    repo = Repository.create(local_filesystem_storage(tmp_path_factory.mktemp("map") / "repo"))
    session = repo.writable_session("main")
    put_array(session.store, "v", VALUES, (2, 4, 5), ("t", "y", "x"))
    put_array(session.store, "weight", np.arange(8.0), (8,), ("y",))
    put_array(session.store, "t", np.arange(6), (6,), ("t",), {"units": "days since 2000-01-01"})
    session.commit("cube")
    return repo


def summary(chunk: Chunk) -> dict[str, Any]:
    values = chunk.arrays["v"]
    assert values.shape == chunk.shape
    np.testing.assert_array_equal(values, VALUES[chunk.slices])
    return {"t": chunk.index[0], "y": chunk.index[1], "x": chunk.index[2], "mean": values.mean(), "n": values.size}


@pytest.mark.end_to_end
def test_a_function_sees_each_chunk_once_with_its_place(spark: SparkSession, repo: Repository) -> None:
    frame = asp.map_chunks(spark, repo, "v", summary, "t int, y int, x int, mean double, n bigint")
    found = {(row.t, row.y, row.x): row.mean for row in frame.collect()}
    assert found == {
        (t, y, x): VALUES[2 * t : 2 * t + 2, 4 * y : 4 * y + 4, 5 * x : 5 * x + 5].mean()
        for t in range(3) for y in range(2) for x in range(2)
    }  # fmt: skip
    assert frame.selectExpr("sum(n)").first()[0] == VALUES.size


def test_chunks_are_cut_to_the_selection(spark: SparkSession, repo: Repository) -> None:
    frame = asp.map_chunks(
        spark, repo, "v", summary, "t int, y int, x int, mean double, n int", isel={"t": slice(1, 4), "x": 7}, tasks=2
    )
    assert sorted((row.t, row.y, row.x, row.n) for row in frame.collect()) == [
        (0, 0, 1, 4), (0, 1, 1, 4), (1, 0, 1, 8), (1, 1, 1, 8)
    ]  # fmt: skip


def test_other_arrays_and_labels_are_at_hand(spark: SparkSession, repo: Repository) -> None:
    def weighted(chunk: Chunk) -> Iterator[dict[str, Any]]:
        assert chunk.arrays["weight"].shape == chunk.shape
        total = (chunk.arrays["v"] * chunk.arrays["weight"]).sum(axis=(1, 2))
        for number, day in enumerate(chunk.coords("t")):
            yield {"day": day, "total": total[number], "rows": [chunk.positions("y").tolist()]}

    frame = asp.map_chunks(
        spark, repo, ["v", "weight"], weighted, "day timestamp, total double, rows array<bigint>", decode=True
    )
    totals = frame.groupBy("day").sum("total").selectExpr("unix_seconds(day) s", "`sum(total)` total").collect()
    expected = (VALUES * np.arange(8.0)[:, None]).sum(axis=(1, 2))
    assert {row.s: row.total for row in totals} == {
        int(datetime(2000, 1, 1 + day, tzinfo=UTC).timestamp()): expected[day] for day in range(6)
    }
    assert sorted({tuple(row.rows) for row in frame.select("rows").collect()}) == [(0, 1, 2, 3), (4, 5, 6, 7)]


@pytest.mark.parametrize("form", ["table", "batch", "mapping", "list", "none"])
def test_a_function_may_return_columns_in_any_form(spark: SparkSession, repo: Repository, form: str) -> None:
    def columns(chunk: Chunk) -> Any:
        made = {"b": chunk.arrays["v"][:, 0, 0], "a": np.arange(len(chunk.arrays["v"]))}
        return {
            "table": pa.table(made),
            "batch": pa.RecordBatch.from_pydict(made),
            "mapping": made,
            "list": [made, pa.table(made)],
            "none": None,
        }[form]

    rows = asp.map_chunks(spark, repo, "v", columns, "a int, b bigint", isel={"y": 0, "x": 0}).collect()
    once = [(number % 2, VALUES[number, 0, 0]) for number in range(6)]
    assert sorted(rows) == sorted(once * {"list": 2, "none": 0}.get(form, 1))


@pytest.mark.end_to_end
def test_coarsened_chunks_are_written_back(spark: SparkSession, repo: Repository) -> None:
    def halved(chunk: Chunk) -> dict[str, Any]:
        t, y, x = (one.start for one in chunk.slices)
        small = chunk.arrays["v"].reshape(chunk.shape[0], -1, 2, chunk.shape[2]).mean(axis=2)
        return {"t": t, "y": y // 2, "x": x, "values": small.astype("<f8").tobytes()}

    frame = asp.map_chunks(spark, repo, "v", halved, "t int, y int, x int, values binary")
    session = repo.writable_session("main")
    small = zarr.create_array(session.store, name="small", shape=(6, 4, 10), chunks=(2, 2, 5), dtype="f8")
    for row in frame.collect():
        small[row.t : row.t + 2, row.y : row.y + 2, row.x : row.x + 5] = np.frombuffer(row["values"]).reshape(2, 2, 5)
    np.testing.assert_array_equal(small[:], VALUES.reshape(6, 4, 2, 10).mean(axis=2))


def test_chunks_that_nothing_is_in_can_be_skipped(spark: SparkSession, tmp_path: Path) -> None:
    repo = Repository.create(local_filesystem_storage(tmp_path / "repo"))
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="v", shape=(100,), chunks=(10,), dtype="i4")
    array[35], array[99] = 1, 2
    session.commit("sparse")
    frame = asp.map_chunks(
        spark, repo, "v", lambda chunk: {"at": chunk.index[0], "s": chunk.arrays["v"].sum()}, "at int, s int",
        skip_missing=True,
    )  # fmt: skip
    assert sorted(frame.collect()) == [(3, 1), (9, 2)]


def test_values_cannot_be_written_to(spark: SparkSession, repo: Repository) -> None:
    def writes(chunk: Chunk) -> None:
        chunk.arrays["v"][:] = 0

    with pytest.raises(Exception, match="read-only"):
        asp.map_chunks(spark, repo, "v", writes, "a int", tasks=1).collect()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"a": ["x"]}, "chunk at .0, 0, 0. does not fit the schema"),
        ({"b": [1]}, r"columns \['b'\].*\['a'\]"),
        ({"a": [1.5]}, "does not fit the schema: .*truncated"),
        ({"a": [2**70]}, "does not fit the schema"),
        (3, "returned int"),
        (pd.DataFrame({"a": [1]}), r"returned an iterable of str: .*Table.from_pandas"),
    ],
)
def test_what_does_not_fit_the_schema_is_refused_with_the_chunk(repo: Repository, returned: Any, message: str) -> None:
    plan = plan_frame(repo.readonly_session("main"), "v", coords="label", name_dims=False)
    mapper = ChunkMapper(plan, 1, lambda _: returned, pa.schema([("a", pa.int32())]))
    with pytest.raises(RuntimeError, match="ARRAYSTORE_INVALID_INPUT") as caught:
        list(by_task(mapper.rows)(iter([pa.RecordBatch.from_pydict({"id": [0]})])))
    with pytest.raises(InvalidInputError, match=message):
        raise asp.translate_error(caught.value)


def test_arguments_are_checked_before_anything_runs(spark: SparkSession, repo: Repository) -> None:
    with pytest.raises(InvalidInputError, match="fn must be a function"):
        asp.map_chunks(spark, repo, "v", "mean", "a int")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="isel selects along 'z'"):
        asp.map_chunks(spark, repo, "v", summary, "a int", isel={"z": 0})
    nothing = asp.map_chunks(spark, repo, "v", summary, "a int", isel={"t": []})
    assert (nothing.columns, nothing.collect()) == (["a"], [])


@pytest.mark.parametrize(
    ("returned", "kind", "told"),
    [
        ([1.0, None, 3], pa.int32(), [1, None, 3]),
        ([[1.0, 2.0], None], pa.list_(pa.int64()), [[1, 2], None]),
        ([2**63 - 1], pa.int64(), [2**63 - 1]),
        ([None], pa.int64(), [None]),
        # Times of NumPy are counts in a unit of their own.
        (np.array([1_000, "NaT"], "m8[ns]"), pa.duration("us"), [timedelta(microseconds=1), None]),
        ([np.timedelta64(1_000, "ns")], pa.duration("us"), [timedelta(microseconds=1)]),
        (np.array([86_400 * 10**9], "M8[ns]"), pa.date32(), [date(1970, 1, 2)]),
        ([[np.datetime64(10**9, "ns")]], pa.list_(pa.timestamp("us")), [[EPOCH + timedelta(seconds=1)]]),
        ([np.array([1], "m8[h]")], pa.list_(pa.duration("us")), [[timedelta(hours=1)]]),
    ],
)
def test_values_become_those_of_the_column(repo: Repository, returned: Any, kind: Any, told: Any) -> None:
    plan = plan_frame(
        repo.readonly_session("main"), "v", isel={"t": 0, "y": 0, "x": 0}, coords="label", name_dims=False
    )
    mapper = ChunkMapper(plan, 1, lambda _: {"a": returned}, pa.schema([("a", kind)]))
    (found,) = mapper.rows(0)
    assert found.column("a").to_pylist() == told


def test_an_array_without_dimensions_is_one_chunk(tmp_path: Path) -> None:
    session = Repository.create(local_filesystem_storage(tmp_path / "repo")).writable_session("main")
    zarr.create_array(session.store, name="v", shape=(), dtype="f4", attributes={"_FillValue": 7.0})[...] = 3
    plan = plan_frame(session, "v", coords="label", decode=True, name_dims=False)

    def value(chunk: Chunk) -> dict[str, Any]:
        assert (chunk.shape, chunk.index, chunk.slices) == ((), (), ())
        return {"a": chunk.arrays["v"]}

    (found,) = ChunkMapper(plan, 1, value, pa.schema([("a", pa.float32())])).rows(0)
    assert found.column("a").to_pylist() == [3.0]
