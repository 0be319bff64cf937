"""What commits changed, with ``option("changes", "true")``: in batch and as a stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zarr

from arraystore import InvalidInputError, NotFoundError, Repository
from arraystore.spark import read_changes
from tests.spark.support import new_repository, spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = new_repository(tmp_path)
    with repo.transaction("main", message="begin") as store:
        for name in ("a", "b"):
            zarr.create_array(store, name=name, shape=(4, 4), chunks=(2, 2), dtype="i4", fill_value=0)
    return repo


def write(repo: Repository, name: str, row: int) -> str:
    with repo.transaction("main", message=f"{name}{row}") as store:
        zarr.open_array(store, path=name, mode="r+")[2 * row : 2 * row + 2, :2] = row + 7
    return repo.lookup_branch("main")


def load(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    return spark.read.format("arraystore").option("changes", "true").options(**options).load(path)


def chunks(frame: DataFrame) -> list[tuple[str, str, tuple[int, ...]]]:
    rows = frame.where("change = 'chunk'").collect()
    return sorted((row["message"], row["path"], tuple(row["chunk"])) for row in rows)


@pytest.mark.end_to_end
@pytest.mark.thorough
def test_changes_are_those_of_read_changes(spark: SparkSession, path: str, repo: Repository):
    first = write(repo, "a", 0)
    second = write(repo, "b", 1)
    write(repo, "a", 1)

    everything = load(spark, path)
    between = load(spark, path, **{"from": first, "to": second})

    assert everything.schema == read_changes(spark, repo).schema
    assert sorted(map(str, everything.collect())) == sorted(map(str, read_changes(spark, repo).collect()))
    assert chunks(between) == [("b1", "/b", (1, 0))]
    assert chunks(load(spark, path, array="a", **{"from": first})) == [("a1", "/a", (1, 0))]


def test_a_frame_of_changes_ends_where_the_branch_was(spark: SparkSession, path: str, repo: Repository):
    write(repo, "a", 0)
    frame = load(spark, path)

    write(repo, "a", 1)

    assert chunks(frame) == [("a0", "/a", (0, 0))]
    assert len(chunks(load(spark, path))) == 2


def test_no_changes_are_an_empty_frame(spark: SparkSession, path: str, repo: Repository):
    newest = write(repo, "a", 0)

    assert load(spark, path, **{"from": newest}).collect() == []


class Follower:
    """A streaming query over the changes, which writes them down and stops when it has all."""

    def __init__(self, spark: SparkSession, path: str, tmp_path: Path) -> None:
        self.spark, self.path = spark, path
        self.out, self.checkpoint = str(tmp_path / "seen"), str(tmp_path / "checkpoint")

    def run(self, **options: Any) -> int:
        """Return how many batches there were."""
        stream = self.spark.readStream.format("arraystore").option("changes", "true").options(**options)
        query = (
            stream.load(self.path)
            .writeStream.format("parquet")
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start(self.out)
        )
        query.awaitTermination(120)
        return len([progress for progress in query.recentProgress if progress.numInputRows])

    def seen(self) -> DataFrame:
        return self.spark.read.parquet(self.out)


@pytest.fixture
def follower(spark: SparkSession, path: str, tmp_path: Path) -> Follower:
    return Follower(spark, path, tmp_path)


@pytest.mark.end_to_end
def test_a_stream_tells_each_change_once_and_goes_on_where_it_was(follower: Follower, repo: Repository):
    write(repo, "a", 0)
    write(repo, "b", 0)
    follower.run()
    assert chunks(follower.seen()) == [("a0", "/a", (0, 0)), ("b0", "/b", (0, 0))]

    write(repo, "a", 1)
    follower.run()

    assert chunks(follower.seen()) == [("a0", "/a", (0, 0)), ("a1", "/a", (1, 0)), ("b0", "/b", (0, 0))]


def test_a_stream_may_start_late_and_take_few_snapshots_at_a_time(follower: Follower, repo: Repository):
    first = write(repo, "a", 0)
    for row in range(2):
        write(repo, "b", row)

    batches = follower.run(startingSnapshot=first, maxSnapshotsPerTrigger=1)

    assert batches == 2
    assert chunks(follower.seen()) == [("b0", "/b", (0, 0)), ("b1", "/b", (1, 0))]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"sel": "{}"}, "'sel' has no effect in reading changes"),
        ({"startingSnapshot": "latest"}, "are for readStream"),
        ({"maxSnapshotsPerTrigger": "3"}, "are for readStream"),
    ],
)
def test_what_is_wrong_with_a_load_of_changes_is_told(
    spark: SparkSession, path: str, options: dict[str, str], told: str
):
    error = spark_error(lambda: load(spark, path, **options).collect())

    assert isinstance(error, InvalidInputError)
    assert told in str(error)


def test_snapshots_that_are_not_on_the_branch_are_told(spark: SparkSession, path: str):
    error = spark_error(lambda: load(spark, path, **{"from": "00000000000000000000"}).collect())

    assert isinstance(error, InvalidInputError | NotFoundError)


def test_a_schema_for_changes_is_refused(spark: SparkSession, path: str):
    frame = spark.read.format("arraystore").schema("path string").option("changes", "true").load(path)

    assert "fixed columns" in str(spark_error(frame.collect))


def test_a_stream_says_from_where_in_its_own_words(follower: Follower):
    assert "use 'starting_snapshot'" in str(spark_error(lambda: follower.run(**{"from": "X"})))
    assert "option 'to' (endingVersion) is for spark.read" in str(spark_error(lambda: follower.run(to="X")))
