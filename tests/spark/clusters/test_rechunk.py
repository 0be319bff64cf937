"""Rechunking whose executor or driver is killed is exact, and what it leaves behind is collected."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from arraystore import Repository, Storage
from arraystore.transforms import rechunk
from tests.spark.clusters.drivers import SERIES, rechunk_and_die, rechunk_cube, rechunk_without_an_executor
from tests.spark.clusters.masters import LOCAL, Cluster
from tests.spark.clusters.model import ROWS, X, Y, cube, history, new_repository, numbers, regions, stored_chunks
from tests.spark.clusters.processes import call_in_driver, running_driver, spark_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-clusters"), pytest.mark.timeout(900)]

SERIES_CHUNKS = (Y // SERIES["y"]) * (X // SERIES["x"])


@pytest.fixture
def repository(storage: Storage) -> Repository:
    """The cube, written."""
    repository = new_repository(storage)
    session = repository.writable_session("main")
    for region in regions():
        session.write("cube", region, numbers()[region])
    session.commit("the cube")
    return repository


def check_rechunked(storage: Storage) -> None:
    """Check that the cube is the same in other chunks, in one commit, and that nothing else is left."""
    repository = Repository.open(storage)
    assert history(storage) == ["the cube", "series"]
    np.testing.assert_array_equal(cube(storage), numbers())
    assert repository.list_branches() == {"main"}
    repository.garbage_collect(datetime.now(UTC))
    assert stored_chunks(storage) == ROWS + SERIES_CHUNKS  # of both snapshots, and nothing of copies and attempts
    np.testing.assert_array_equal(cube(storage), numbers())
    assert repository.verify("chunks").ok


def test_an_executor_that_is_killed_while_it_copies_is_replaced(
    workers: Cluster, repository: Repository, storage: Storage, tmp_path: Path
) -> None:
    report = call_in_driver(
        rechunk_without_an_executor,
        tmp_path / "driver",
        workers.environment,
        settings=workers.settings,
        repository=str(tmp_path / "repository"),
        mark=str(tmp_path / "killed"),
    )
    assert (tmp_path / "killed").exists()
    assert report["stages"] == 2
    assert report["wasted"] >= 1
    check_rechunked(storage)


@pytest.mark.parametrize("record", [4, 6])
def test_after_the_driver_is_killed_the_same_call_resumes(
    spark: SparkSession, repository: Repository, storage: Storage, tmp_path: Path, record: int
) -> None:
    job = {"settings": LOCAL, "repository": str(tmp_path / "repository"), "record": record}
    with running_driver(rechunk_and_die, tmp_path / "driver", spark_environment(), **job) as driver:
        driver.killed()
    assert history(storage) == ["the cube"]
    report = rechunk_cube(storage)
    assert report["resumed"]
    assert report["boxes"] < report["all"]
    check_rechunked(storage)
    assert rechunk(Repository.open(storage), "cube", SERIES).snapshot_id is None
