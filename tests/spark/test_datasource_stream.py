"""Saving streams with ``writeStream.format("arraystore")``: a commit for each batch, and each batch once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

from arraystore import InvalidInputError, MergeConflictError, Repository, StreamRestartedError
from arraystore.spark import repartition_by_chunk
from arraystore.spark.source.options import raw_options, write_options
from arraystore.spark.source.source import ArrayStoreDataSource
from arraystore.spark.source.stream import RowStreamWriter
from arraystore.spark.source.write import prepare_write
from arraystore.spark.streams.progress import last_batch
from tests.spark.support import new_repository, read_array, spark_error, streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SHAPE = (6, 4)
ROWS = "t long, x long, v double"


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = new_repository(tmp_path)
    with repo.transaction("main", message="begin") as store:
        zarr.create_array(
            store, name="a", shape=SHAPE, chunks=(1, 4), dtype="f8", fill_value=-1, dimension_names=["t", "x"]
        )
    return repo


class Drop:
    """A directory that files are dropped into, one for each time; a file is a batch."""

    def __init__(self, spark: SparkSession, tmp_path: Path) -> None:
        self.spark = spark
        self.inbox = tmp_path / "inbox"
        self.inbox.mkdir()
        self.repo = str(tmp_path / "repo")
        self.checkpoint = str(tmp_path / "checkpoint")

    def file(self, time: int, add: float = 0) -> None:
        lines = "".join(f"{time},{x},{10 * time + x + add}\n" for x in range(4))
        part = self.inbox / f".part-{time}"
        part.write_text(lines)
        os.utime(part, (time + 1, time + 1))  # Spark takes the oldest first
        part.rename(self.inbox / f"{time}-{add:g}.csv")

    def rows(self) -> DataFrame:
        return self.spark.readStream.schema(ROWS).option("maxFilesPerTrigger", 1).csv(str(self.inbox))

    def run(self, rows: DataFrame | None = None, mode: str = "append", **options: Any) -> Any:
        """Write what is there, and return the query when it has ended."""
        given = {"array": "a", "dims": "t,x", "value": "v", "checkpointLocation": self.checkpoint} | options
        frame = self.rows().coalesce(1) if rows is None else rows
        query = (
            frame.writeStream.format("arraystore").options(**given).outputMode(mode).trigger(availableNow=True)
        ).start(self.repo)
        query.awaitTermination(120)
        return query


@pytest.fixture
def drop(spark: SparkSession, repo: Repository, tmp_path: Path) -> Drop:
    return Drop(spark, tmp_path)


def expected(*times: int) -> np.ndarray:
    found = np.full(SHAPE, -1.0)
    for time in times:
        found[time] = 10 * time + np.arange(4)
    return found


def commits(repo: Repository) -> list[tuple[Any, Any]]:
    """Stream and batch of all commits, the oldest first."""
    history = [snapshot.metadata for snapshot in repo.ancestry(branch="main")][:-2]
    return [(metadata["spark.stream"], metadata["spark.batch"]) for metadata in reversed(history)]


@pytest.mark.end_to_end
def test_each_batch_is_a_commit_that_tells_stream_and_batch(drop: Drop, repo: Repository):
    for time in range(3):
        drop.file(time)

    query = drop.run()

    assert np.array_equal(read_array(repo), expected(0, 1, 2))
    assert commits(repo) == [(query.id, 0), (query.id, 1), (query.id, 2)]
    assert last_batch(repo.readonly_session("main"), query.id) == 2
    newest = next(iter(repo.ancestry(branch="main")))
    assert newest.message == "write /a with 4 rows from Spark"
    assert newest.metadata["spark.rows"] == 4


def test_a_batch_that_was_committed_before_a_crash_is_not_committed_again(drop: Drop, repo: Repository):
    drop.file(0)
    drop.file(1)
    drop.run(stream="daily")
    # The driver dies after the commit of a batch, before Spark writes down that it is done.
    done = Path(drop.checkpoint) / "commits"
    for name in ("1", ".1.crc"):
        (done / name).unlink()

    drop.file(2)
    drop.run(stream="daily")

    assert np.array_equal(read_array(repo), expected(0, 1, 2))
    assert commits(repo) == [("daily", 0), ("daily", 1), ("daily", 2)]


def test_a_new_checkpoint_under_an_old_name_is_refused_or_wanted(drop: Drop, repo: Repository):
    drop.file(0)
    drop.run(stream="daily")
    shutil.rmtree(drop.checkpoint)
    (drop.inbox / "0-0.csv").unlink()
    drop.file(1)

    error = spark_error(lambda: drop.run(stream="daily"))
    assert isinstance(error, StreamRestartedError)
    assert np.array_equal(read_array(repo), expected(0))

    drop.run(stream="daily", restarted="true")
    assert np.array_equal(read_array(repo), expected(0, 1))
    assert commits(repo) == [("daily", 0), ("daily", 0)]


@pytest.fixture
def few_partitions(spark: SparkSession) -> Iterator[None]:
    """Have aggregations keep their state in two partitions: each of the 200 that are usual takes a moment a batch."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, "2")
    yield
    spark.conf.set(name, before)


@pytest.mark.usefixtures("few_partitions")
def test_complete_mode_puts_each_result_in_place_of_the_one_before(drop: Drop, repo: Repository):
    with repo.transaction("main", message="something is there") as store:
        zarr.open_array(store, path="a", mode="r+")[5] = 99
    for time in range(2):
        drop.file(time)
    totals = drop.rows().groupBy("t").agg({"v": "sum"}).selectExpr("t", "0L AS x", "`sum(v)` AS v").coalesce(1)

    drop.run(totals, mode="complete", stream="totals")

    wanted = np.full(SHAPE, -1.0)
    wanted[:2, 0] = [6, 46]
    assert np.array_equal(read_array(repo), wanted)
    assert set(streams(repo.readonly_session("main"))) == {"totals"}


def test_a_chunk_of_two_tasks_fails_the_query_with_the_remedy(drop: Drop, repo: Repository):
    drop.file(0)

    error = spark_error(lambda: drop.run(drop.rows().repartition(2, "x")))

    assert isinstance(error, MergeConflictError)
    assert "repartition_by_chunk" in str(error)
    assert commits(repo) == []


def test_rows_that_are_brought_together_by_chunk_are_written_by_many_tasks(drop: Drop, repo: Repository):
    drop.file(0)
    drop.file(1)
    pinned = repo.readonly_session("main")

    drop.run(repartition_by_chunk(drop.rows(), pinned, "a", dims=["t", "x"], tasks=2, sort=False), stream="s")

    assert np.array_equal(read_array(repo), expected(0, 1))
    assert commits(repo) == [("s", 0), ("s", 1)]
    assert next(iter(repo.ancestry(branch="main"))).metadata["spark.tasks"] == 2


def test_a_batch_without_rows_is_no_commit(drop: Drop, repo: Repository):
    drop.file(0)
    drop.file(1)

    drop.run(drop.rows().where("t > 0").coalesce(1), stream="s")

    assert commits(repo) == [("s", 1)]
    assert np.array_equal(read_array(repo), expected(1))


def test_bad_rows_fail_the_query_and_are_written_when_they_are_mended(drop: Drop, repo: Repository):
    drop.file(7)

    error = spark_error(drop.run)

    assert isinstance(error, InvalidInputError)
    assert commits(repo) == []


def test_what_is_wrong_with_a_stream_is_told_when_it_starts(drop: Drop):
    drop.file(0)

    assert "'streem'" in str(spark_error(lambda: drop.run(streem="x")))


def test_rows_of_older_releases_of_spark_are_written_alike(
    spark: SparkSession, drop: Drop, repo: Repository, monkeypatch: pytest.MonkeyPatch
):
    """Spark 4.0 hands streams over in rows only."""
    from datetime import datetime

    from pyspark.sql import Row
    from pyspark.sql.types import _parse_datatype_string

    with repo.transaction("main", message="times") as store:
        zarr.create_array(store, name="times", shape=(4,), chunks=(4,), dtype="M8[us]", dimension_names=["x"])
    schema = _parse_datatype_string("x long, v timestamp")
    named = {"path": drop.repo, "array": "times", "dims": "x", "value": "v", "stream": "s"}
    options = write_options(raw_options(named), stream=True)
    moments = [datetime(2026, 1, day, 12) for day in (1, 2, 3)]  # noqa: DTZ001 - as rows of Spark have them

    monkeypatch.setattr("arraystore.spark.source.stream.query_of_task", lambda: "a query")
    writer = RowStreamWriter(prepare_write(options, schema, overwrite=False), schema)
    message = writer.write(Row("x", "v")(*pair) for pair in enumerate(moments))
    other = ArrayStoreDataSource(named).streamWriter(schema, overwrite=False)
    other.commit([message], 0)
    other.commit([message], 0)

    stored = zarr.open_array(repo.readonly_session("main").store, path="times", mode="r")[:3]
    assert stored.tolist() == [np.datetime64(int(moment.timestamp() * 1e6), "us").item() for moment in moments]
    assert last_batch(repo.readonly_session("main"), "s") == 0
