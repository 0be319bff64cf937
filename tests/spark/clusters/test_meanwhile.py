"""What others do while a job runs: they change the same chunks, or collect garbage."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import arraystore.spark as asp
from arraystore import ConflictDetector, Repository, Session, Storage
from arraystore.errors import ConflictError, RebaseFailedError, SessionExpiredError
from tests.spark.clusters.drivers import write_cube
from tests.spark.clusters.model import HALF, ROWS, collected, cube, history, new_repository, numbers, regions, values
from tests.spark.clusters.work import CollectsAt, Constant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-clusters"), pytest.mark.timeout(900)]


def test_of_two_jobs_that_change_the_same_chunks_the_second_is_told_which(
    spark: SparkSession, storage: Storage
) -> None:
    repo = new_repository(storage)
    session = repo.writable_session("main")
    asp.write_regions(session, "cube", regions(HALF - 2, ROWS), Constant(-1.0), spark=spark, tasks=2)
    write_cube(spark, storage)
    with pytest.raises(ConflictError):
        session.commit("the other job")
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("the other job", rebase_with=ConflictDetector())
    (conflict,) = caught.value.conflicts
    assert conflict.path == "/cube"
    assert conflict.conflicted_chunks is not None
    assert conflict.conflicted_chunks.tolist() == [[row, 0, 0] for row in range(HALF - 2, ROWS)]
    assert history(storage) == ["the cube"]
    np.testing.assert_array_equal(cube(storage), numbers())
    assert collected(storage, needed=ROWS) == ROWS - HALF + 2


def test_jobs_that_change_other_chunks_both_commit(spark: SparkSession, storage: Storage) -> None:
    repo = new_repository(storage)
    one, two = (repo.writable_session("main") for _ in range(2))
    asp.write_regions(one, "cube", regions(0, HALF), values, spark=spark, tasks=2)
    asp.write_regions(two, "cube", regions(HALF, ROWS), values, spark=spark, tasks=2)
    two.commit("the second half")
    one.commit("the first half", rebase_with=ConflictDetector())
    assert history(storage) == ["the second half", "the first half"]
    np.testing.assert_array_equal(cube(storage), numbers())
    assert collected(storage, needed=ROWS) == 0


def test_a_collection_of_what_was_there_before_the_job_disturbs_nothing(
    spark: SparkSession, storage: Storage, tmp_path: Path
) -> None:
    repo = new_repository(storage)
    abandoned = repo.writable_session("main")
    asp.write_regions(abandoned, "cube", regions(0, HALF), Constant(-1.0), spark=spark, tasks=1)
    session = repo.writable_session("main")
    collecting = CollectsAt(HALF + 3, str(tmp_path / "repository"), datetime.now(UTC))
    asp.write_regions(session, "cube", regions(), collecting, spark=spark, tasks=2)
    session.commit("the cube")
    assert history(storage) == ["the cube"]
    np.testing.assert_array_equal(cube(storage), numbers())
    assert collected(storage, needed=ROWS) == 0


def test_a_job_whose_chunks_a_collection_has_taken_is_told_so_and_runs_again(
    spark: SparkSession, storage: Storage
) -> None:
    repo = new_repository(storage)
    session = repo.writable_session("main")
    asp.write_regions(session, "cube", regions(), values, spark=spark, tasks=2)
    assert collected(storage, needed=0) == ROWS
    with pytest.raises(SessionExpiredError):
        session.commit("the cube")
    assert history(storage) == []
    write_cube(spark, storage)
    assert history(storage) == ["the cube"]
    np.testing.assert_array_equal(cube(storage), numbers())
    assert collected(storage, needed=ROWS) == 0


def test_a_batch_whose_chunks_a_collection_has_taken_is_written_again(spark: SparkSession, storage: Storage) -> None:
    new_repository(storage)
    written: list[int] = []

    def write(session: Session) -> None:
        asp.write_regions(session, "cube", regions(), values, spark=spark, tasks=2)
        if not written:
            assert collected(storage, needed=0) == ROWS
        written.append(1)

    for _ in range(2):
        asp.exactly_once(Repository.open(storage), "nightly", 0, write, message="the cube")
    assert written == [1, 1]
    assert history(storage) == ["the cube"]
    np.testing.assert_array_equal(cube(storage), numbers())
    assert collected(storage, needed=ROWS) == 0
