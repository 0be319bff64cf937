"""The change feed through Spark: as a DataFrame, and as a stream that goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zarr
from pyspark.sql.datasource import DataSource

from arraystore import (
    InvalidInputError,
    RefNotFoundError,
    Repository,
    SnapshotExpiredError,
    SnapshotNotFoundError,
    local_filesystem_storage,
)
from arraystore.spark.errors import translate_error
from arraystore.spark.streams.change_feed import plan_changes, read_changes
from arraystore.spark.streams.change_feed_rows import ARROW_SCHEMA, FEED_SCHEMA, batches_of
from arraystore.spark.streams.change_feed_stream import ChangeStreamReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = Repository.create(local_filesystem_storage(tmp_path / "repository", fsync=False))
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="g/a", shape=(8, 6), chunks=(2, 3), dtype="i4")
    session.commit("made")
    for number in range(5):
        write(repo, number)
    return repo


def write(repo: Repository, number: int) -> str:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="g/a")[number % 8, :] = number + 1
    return session.commit(f"wrote {number}")


def told(frame: DataFrame) -> list[str]:
    return [row["message"] for row in frame.orderBy("sequence", "path", "change", "chunk").collect()]


@pytest.mark.end_to_end
def test_the_dataframe_has_the_rows_of_the_comparison(spark: SparkSession, repo: Repository, tmp_path: Path) -> None:
    frame = read_changes(spark, str(tmp_path / "repository"), tasks=3)
    assert frame.rdd.getNumPartitions() == 3
    (share,) = plan_changes(repo, "main", None, None, 1)
    wanted = [row for batch in batches_of(repo, share, None) for row in batch.to_pylist()]
    found = frame.toArrow().to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    assert len(found) == 3 + 5 * 2  # two groups and an array; each commit writes two chunks


def test_the_schema_of_spark_and_that_of_the_batches_are_the_same(spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    assert to_arrow_schema(StructType.fromDDL(FEED_SCHEMA), timezone="UTC").equals(ARROW_SCHEMA)


def test_the_rows_can_be_asked_for_chunks_in_sql(spark: SparkSession, repo: Repository) -> None:
    read_changes(spark, repo, paths="g/a").createOrReplaceTempView("changes")
    found = spark.sql(
        "SELECT message, count(*) AS n, max(region_stop[1]) AS x FROM changes WHERE change = 'chunk' AND chunk[0] = 1 "
        "GROUP BY message ORDER BY message"
    ).collect()
    assert [tuple(row) for row in found] == [("wrote 2", 2, 6), ("wrote 3", 2, 6)]


def test_the_dataframe_stays_as_it_was_when_others_commit(spark: SparkSession, repo: Repository) -> None:
    frame = read_changes(spark, repo, from_=repo.lookup_branch("main"))
    assert frame.count() == 0
    assert frame.schema == read_changes(spark, repo).schema
    first = repo.lookup_branch("main")
    write(repo, 6)
    later = read_changes(spark, repo, from_=first)
    write(repo, 7)
    assert frame.count() == 0
    assert set(told(later)) == {"wrote 6"}


def test_what_cannot_be_told_is_said_before_any_task_starts(spark: SparkSession, repo: Repository) -> None:
    newest, older = repo.lookup_branch("main"), [info.id for info in repo.ancestry(branch="main")][2]
    with pytest.raises(SnapshotNotFoundError, match="reset"):
        read_changes(spark, repo, from_=newest, to=older)
    with pytest.raises(SnapshotExpiredError):
        read_changes(spark, repo, from_="0" * 20)
    with pytest.raises(RefNotFoundError):
        read_changes(spark, repo, branch="nobody")
    with pytest.raises(InvalidInputError, match="tasks"):
        read_changes(spark, repo, tasks=0)
    with pytest.raises(InvalidInputError, match="paths"):
        read_changes(spark, repo, paths=[])


class Feed(DataSource):
    """The reader as a source of its own."""

    @classmethod
    def name(cls) -> str:
        return "arraystore_change_feed"

    def schema(self) -> str:
        return FEED_SCHEMA

    def streamReader(self, schema: Any) -> ChangeStreamReader:  # noqa: N802 - Spark's name
        starting = self.options.get("startingSnapshot", "earliest")
        most = self.options.get("maxSnapshotsPerTrigger")
        return ChangeStreamReader(self.options["path"], starting=starting, most=most and int(most))


class Listener:
    """Collects what a stream brings, and its batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.batches.append(sorted(set(told(frame))))


def listen(spark: SparkSession, place: Path, **options: Any) -> list[list[str]]:
    spark.dataSource.register(Feed)
    listener = Listener()
    rows = spark.readStream.format("arraystore_change_feed").options(**options).load(str(place / "repository"))
    query = (
        rows.writeStream.foreachBatch(listener).option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        query.awaitTermination(120)
    finally:
        query.stop()
    return listener.batches


def test_a_stream_goes_on_where_it_was_and_says_when_the_branch_was_reset(
    spark: SparkSession, repo: Repository, tmp_path: Path
) -> None:
    base = next(info.id for info in repo.ancestry(branch="main") if info.message == "wrote 1")
    options = {"startingSnapshot": base, "maxSnapshotsPerTrigger": 2}
    assert listen(spark, tmp_path, **options) == [["wrote 2", "wrote 3"], ["wrote 4"]]
    assert listen(spark, tmp_path, **options) == []
    write(repo, 5)
    assert listen(spark, tmp_path, **options) == [["wrote 5"]]
    repo.reset_branch("main", base)
    write(repo, 6)
    with pytest.raises(Exception, match="ARRAYSTORE") as caught:
        listen(spark, tmp_path, **options)
    error = translate_error(caught.value)
    assert isinstance(error, SnapshotNotFoundError)
    assert "startingSnapshot" in str(error)
