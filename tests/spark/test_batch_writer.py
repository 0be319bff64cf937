"""Streams of rows into arrays: each batch once, across crashes of the query, with errors that say what to do."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr

from arraystore import (
    ConflictDetector,
    InvalidInputError,
    RefNotFoundError,
    Repository,
    Session,
    StreamRestartedError,
    local_filesystem_storage,
)
from arraystore.spark.errors import translate_error
from arraystore.spark.streams.batch_writer import BatchWriter, batch_writer
from arraystore.spark.streams.batches import exactly_once
from arraystore.spark.streams.query_id import query_of_checkpoint
from tests.spark.support import read_array, streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SHAPE = (6, 4)
Cells = Sequence[tuple[int, int, float]]


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = Repository.create(local_filesystem_storage(tmp_path / "repository", fsync=False))
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="v", shape=SHAPE, chunks=(2, 2), dtype="f8", fill_value=0.0)
    session.commit("an array")
    return repo


class Feed:
    """A directory into which files of rows are dropped, and the stream that reads it, a file a batch."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place, self.files = spark, place, 0
        (place / "rows").mkdir()
        self.wanted: npt.NDArray[np.float64] = np.zeros(SHAPE)

    def drop(self, cells: Cells) -> None:
        """Drop a file; where it lands in the array is in `wanted` from now on."""
        text = "\n".join(json.dumps({"t": t, "x": x, "v": v}) for t, x, v in cells)
        waiting = self.place / f"{self.files}.json"
        waiting.write_text(text)
        waiting.rename(self.place / "rows" / f"{self.files:03d}.json")
        self.files += 1
        for t, x, v in cells:
            if 0 <= t < SHAPE[0]:
                self.wanted[t, x] = v

    def run(self, write: Callable[[DataFrame, int], None], checkpoint: str = "checkpoint") -> str:
        """Let a query write what is there; returns its id."""
        rows = (
            self.spark.readStream.schema("t bigint, x bigint, v double").option("maxFilesPerTrigger", 1)
            .json(str(self.place / "rows"))
        )  # fmt: skip
        query = (
            rows.writeStream.foreachBatch(write).option("checkpointLocation", str(self.place / checkpoint))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        try:
            query.awaitTermination(120)
        finally:
            query.stop()
        return str(query.id)


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    feed = Feed(spark, tmp_path)
    for number in range(3):
        feed.drop([(2 * number, x, 10.0 * number + x + 1) for x in range(4)])
    return feed


def writer(repo: Repository, **options: Any) -> BatchWriter:
    return batch_writer(repo, "v", dims=["t", "x"], value="v", **options)


def commits(repo: Repository) -> list[Mapping[str, Any]]:
    found = [info.metadata for info in repo.ancestry(branch="main") if "spark.batch" in info.metadata]
    return found[::-1]


def check(repo: Repository, feed: Feed, batches: Sequence[int]) -> None:
    """Check that the array is what numpy makes of all rows, and that each batch is one commit."""
    np.testing.assert_array_equal(read_array(repo, "v"), feed.wanted)
    assert [metadata["spark.batch"] for metadata in commits(repo)] == list(batches)


@pytest.mark.end_to_end
def test_each_batch_of_a_query_is_one_commit_and_the_query_goes_on_where_it_was(
    feed: Feed, repo: Repository, spark: SparkSession
) -> None:
    told: list[tuple[int, str]] = []
    write = writer(
        repo, metadata={"who": "me"}, on_commit=lambda report, snapshot: told.append((report.rows, snapshot))
    )
    query = feed.run(write)
    check(repo, feed, range(3))
    assert [rows for rows, _ in told] == [4, 4, 4]
    assert told[-1][1] == repo.lookup_branch("main")
    newest = commits(repo)[-1]
    assert newest["spark.tasks"] >= 1
    assert {**newest, "spark.tasks": 1} == {
        "spark.stream": query, "spark.batch": 2, "spark.rows": 4, "spark.tasks": 1, "who": "me",
        "spark.app_id": spark.sparkContext.applicationId,
    }  # fmt: skip
    feed.drop([(1, 1, 99.0)])
    assert feed.run(write) == query
    check(repo, feed, range(4))
    assert {name: each.batch for name, each in streams(repo.readonly_session("main")).items()} == {query: 3}


@pytest.mark.end_to_end
def test_a_crash_after_the_commit_and_before_the_checkpoint_writes_no_batch_twice(feed: Feed, repo: Repository) -> None:
    crashes = [1]

    def crash(report: Any, snapshot: str) -> None:
        if len(commits(repo)) == 2 and crashes.pop():
            raise ZeroDivisionError("the driver died")

    with pytest.raises(Exception, match="the driver died"):
        feed.run(writer(repo, on_commit=crash))
    assert len(commits(repo)) == 2
    crashes.append(0)
    feed.run(writer(repo, on_commit=crash))
    check(repo, feed, range(3))


def test_a_crash_before_the_commit_writes_the_batch_with_the_next_start(feed: Feed, repo: Repository) -> None:
    def dying(frame: DataFrame, batch: int) -> None:
        if batch == 1:
            raise ZeroDivisionError("the driver died")
        writer(repo)(frame, batch)

    with pytest.raises(Exception, match="the driver died"):
        feed.run(dying)
    assert len(commits(repo)) == 1
    feed.run(writer(repo))
    check(repo, feed, range(3))


def test_a_query_without_its_old_checkpoint_is_an_error_under_the_same_name(feed: Feed, repo: Repository) -> None:
    feed.run(writer(repo, stream_id="rows"))
    feed.drop([(5, 3, 7.0)])
    with pytest.raises(Exception, match="ARRAYSTORE") as caught:
        feed.run(writer(repo, stream_id="rows"), "another checkpoint")
    error = translate_error(caught.value)
    assert isinstance(error, StreamRestartedError)
    assert "restarted=True" in str(error)
    assert [metadata["spark.batch"] for metadata in commits(repo)] == [0, 1, 2]
    feed.run(writer(repo, stream_id="rows", restarted=True), "another checkpoint")
    check(repo, feed, [0, 1, 2, 0, 1, 2, 3])


def test_the_only_batch_of_a_query_without_its_old_checkpoint_is_not_taken_for_the_old_one(
    spark: SparkSession, repo: Repository, tmp_path: Path
) -> None:
    """Both have number 0; whether `exactly_once` is called by the user, who passes no run, or by the writer."""

    def own(frame: DataFrame, batch: int) -> None:
        rows = frame.collect()

        def write(session: Session) -> None:
            array = zarr.open_array(session.store, path="v")
            for row in rows:
                array[row.t, row.x] = row.v

        exactly_once(repo, "own", batch, write)

    feed = Feed(spark, tmp_path)
    feed.drop([(0, 0, 1.0)])
    writes: list[Callable[[DataFrame, int], None]] = [own, writer(repo, stream_id="rows")]
    for number, write in enumerate(writes):
        feed.run(write, f"checkpoint {number}")
        with pytest.raises(Exception, match=r"StreamRestartedError|ARRAYSTORE_STREAM_RESTARTED"):
            feed.run(write, f"another checkpoint {number}")
    assert [metadata["spark.batch"] for metadata in commits(repo)] == [0, 0]


def test_the_id_of_a_query_is_in_its_checkpoint(feed: Feed, repo: Repository, tmp_path: Path) -> None:
    query = feed.run(writer(repo, stream_id="rows"))
    write = writer(repo, stream_id="rows", checkpoint=str(tmp_path / "checkpoint"))
    write(frame_of(feed.spark, [(0, 0, 99.0)]), 2)
    assert query_of_checkpoint(feed.spark, (tmp_path / "checkpoint").as_uri() + "/") == query
    check(repo, feed, range(3))


@pytest.mark.parametrize("content", [None, "", "no JSON", "[]", "{}", '{"id": 7}', '{"id": ""}'])
def test_a_checkpoint_without_an_id_is_refused(
    spark: SparkSession, repo: Repository, tmp_path: Path, content: str | None
) -> None:
    (tmp_path / "checkpoint").mkdir()
    if content is not None:
        (tmp_path / "checkpoint" / "metadata").write_text(content)
    write = writer(repo, stream_id="rows", checkpoint=str(tmp_path / "checkpoint"))
    with pytest.raises(InvalidInputError, match="checkpointLocation"):
        write(frame_of(spark, [(0, 0, 1.0)]), 0)
    assert not commits(repo)


def test_a_reset_of_the_branch_lets_the_batches_be_written_again(feed: Feed, repo: Repository) -> None:
    base = repo.lookup_branch("main")
    feed.run(writer(repo))
    repo.reset_branch("main", base)
    feed.run(writer(repo), "another checkpoint")
    check(repo, feed, range(3))


def test_a_batch_goes_on_top_of_what_another_job_has_committed_meanwhile(feed: Feed, repo: Repository) -> None:
    """The other job writes other cells of the same chunk, of which the batch has read the older values."""
    left = [1]

    def meddling(frame: DataFrame, batch: int) -> None:
        def metadata(report: Any) -> dict[str, Any]:
            if left:
                left.pop()
                session = repo.writable_session("main")
                zarr.open_array(session.store, path="v")[1, 0] = 77.0
                session.commit("another job")
            return {}

        each = writer(repo)
        object.__setattr__(each.commit, "metadata", metadata)
        each(frame, batch)

    feed.wanted[1, 0] = 77.0
    feed.run(meddling)
    check(repo, feed, range(3))


def test_rows_that_cannot_be_written_stop_the_query_with_the_error_that_counts_them(
    feed: Feed, repo: Repository
) -> None:
    feed.drop([(99, 0, 1.0), (98, 0, 1.0)])
    with pytest.raises(Exception, match="ARRAYSTORE_INVALID_INPUT") as caught:
        feed.run(writer(repo))
    error = translate_error(caught.value)
    assert isinstance(error, InvalidInputError)
    assert "2" in str(error)
    check(repo, feed, range(3))


# -- without a query ----------------------------------------------------------------------------------------------


def frame_of(spark: SparkSession, cells: Cells) -> DataFrame:
    return spark.createDataFrame(list(cells), "t bigint, x bigint, v double")


def test_two_drivers_of_one_batch_at_a_time_make_one_commit(spark: SparkSession, repo: Repository) -> None:
    barrier, failed = threading.Barrier(2), []
    frame = frame_of(spark, [(0, 0, 1.0), (3, 3, 2.0)])

    def drive() -> None:
        def metadata(report: Any) -> dict[str, Any]:
            barrier.wait(60)  # both have written, and neither has committed
            return {}

        own = writer(Repository.open(repo.storage), stream_id="s")
        object.__setattr__(own.commit, "metadata", metadata)
        try:
            own(frame, 0)
        except Exception as error:  # noqa: BLE001 - told in the test's own thread
            failed.append(error)

    drivers = [threading.Thread(target=drive) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(120)
    assert not failed
    assert [metadata["spark.batch"] for metadata in commits(repo)] == [0]
    assert read_array(repo, "v")[0, 0] == 1.0


def test_a_batch_without_rows_leaves_nothing_in_the_history(spark: SparkSession, repo: Repository) -> None:
    before = repo.lookup_branch("main")
    writer(repo, stream_id="s")(frame_of(spark, []), 0)
    assert repo.lookup_branch("main") == before


def test_without_a_query_or_a_name_nobody_knows_the_stream(spark: SparkSession, repo: Repository) -> None:
    with pytest.raises(InvalidInputError, match="stream_id"):
        writer(repo)(frame_of(spark, [(0, 0, 1.0)]), 0)


def test_a_writer_travels_by_pickle_and_takes_a_path(spark: SparkSession, repo: Repository, tmp_path: Path) -> None:
    write = batch_writer(str(tmp_path / "repository"), "v", dims=["t", "x"], value="v", stream_id="s")
    copy: BatchWriter = pickle.loads(pickle.dumps(write))
    copy(frame_of(spark, [(0, 0, 5.0)]), 0)
    assert read_array(repo, "v")[0, 0] == 5.0


def test_arguments_that_cannot_be_used_are_refused_before_the_query_starts(repo: Repository) -> None:
    with pytest.raises(InvalidInputError, match=r"no option 'vaule'.*value"):
        batch_writer(repo, "v", dims=["t", "x"], vaule="v")
    with pytest.raises(InvalidInputError, match="no option 'session'"):
        batch_writer(repo, "v", dims=["t", "x"], session=None)
    with pytest.raises(RefNotFoundError, match="nobody"):
        writer(repo, branch="nobody")
    with pytest.raises(InvalidInputError, match="stream_id"):
        writer(repo, stream_id="x" * 2000)
    with pytest.raises(InvalidInputError, match="ConflictSolver"):
        writer(repo, rebase_with="ours")
    assert isinstance(writer(repo).commit.rebase_with, ConflictDetector)
