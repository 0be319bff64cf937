"""Attempts that die half-way, whose executor dies, or that run twice, leave objects behind and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import arraystore.spark as asp
from arraystore import Storage
from tests.spark.clusters.drivers import lose_an_executor, write_with_copies
from tests.spark.clusters.masters import Cluster
from tests.spark.clusters.model import (
    HALF,
    ROWS,
    collected,
    cube,
    history,
    new_repository,
    numbers,
    regions,
    stored_chunks,
)
from tests.spark.clusters.processes import call_in_driver
from tests.spark.clusters.work import ExitsAt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-clusters"), pytest.mark.timeout(900)]


def check_written_once(storage: Storage) -> None:
    assert history(storage) == ["the cube"]
    np.testing.assert_array_equal(cube(storage), numbers())


def test_workers_that_exit_after_writing_are_replaced_and_leave_garbage_only(
    spark: SparkSession, storage: Storage
) -> None:
    session = new_repository(storage).writable_session("main")
    report = asp.write_regions(session, "cube", regions(), ExitsAt((5, HALF + 7)), spark=spark, tasks=2)
    session.commit("the cube")
    assert (report.chunks, report.tasks, report.attempts_wasted) == (ROWS, 2, 2)
    check_written_once(storage)
    assert collected(storage, needed=ROWS) == 5 + 7
    check_written_once(storage)


def test_an_executor_that_is_killed_while_it_writes_is_replaced(
    workers: Cluster, storage: Storage, tmp_path: Path
) -> None:
    new_repository(storage)
    report = call_in_driver(
        lose_an_executor,
        tmp_path / "driver",
        workers.environment,
        settings=workers.settings,
        repository=str(tmp_path / "repository"),
        row=HALF + 6,
    )
    assert report == {"chunks": ROWS, "tasks": 2, "wasted": 1}
    assert stored_chunks(storage) >= ROWS + 6
    check_written_once(storage)
    assert collected(storage, needed=ROWS) >= 6
    check_written_once(storage)


def test_of_a_task_and_its_copy_that_both_write_one_counts(workers: Cluster, storage: Storage, tmp_path: Path) -> None:
    new_repository(storage)
    notes = tmp_path / "notes"
    notes.mkdir()
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "200ms",
    }
    report = call_in_driver(
        write_with_copies,
        tmp_path / "driver",
        workers.environment,
        settings=workers.settings | speculation,
        repository=str(tmp_path / "repository"),
        row=HALF + 4,
        notes=str(notes),
    )
    assert (report["chunks"], report["tasks"]) == (ROWS, 2)
    both = [row for row in range(ROWS) if all((notes / f"{attempt}-{row}").exists() for attempt in (0, 1))]
    assert set(both) >= set(range(HALF, HALF + 5))
    assert stored_chunks(storage) >= ROWS + 4
    check_written_once(storage)
    assert collected(storage, needed=ROWS) >= 4
    check_written_once(storage)
