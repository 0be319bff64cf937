"""Transforms on executors: the same values as in threads, exact when tasks are repeated."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import arraystore.spark as asp
from arraystore import Repository, Session
from arraystore.spark import TaskFailedError
from arraystore.transforms import build_pyramid, quantile, rechunk, reduce_array, transform_chunks
from arraystore.transforms.rechunking import boxes, plan
from tests.spark.support import messages, new_repository, put_array, read_array

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SHAPE, DIMS = (24, 10, 12), ("t", "y", "x")
VALUES = np.random.default_rng(0).normal(280, 10, SHAPE)


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = new_repository(tmp_path)
    with repo.transaction("main", message="begin") as store:
        put_array(store, "maps", VALUES, (1, 10, 12), DIMS, {"units": "K"})
        zarr.create_array(store, name="out", shape=SHAPE, chunks=(4, 4, 4), dtype="f8", dimension_names=DIMS)
    return repo


@pytest.fixture
def session(repo: Repository) -> Session:
    return repo.writable_session("main")


def in_session(session: Session, path: str) -> Any:
    return np.asarray(zarr.open_array(session.store, path=path, mode="r")[...])


@pytest.mark.end_to_end
def test_a_function_with_a_halo_runs_on_executors_and_the_caller_commits(spark: SparkSession, repo: Repository) -> None:
    session = repo.writable_session("main")
    report = transform_chunks(
        session, "maps", "out", lambda a: a[:-2] + a[1:-1] + a[2:], halo={"t": 1}, boundary="nearest", memory=1,
        engine="spark",
    )  # fmt: skip
    assert not read_array(repo, "out").any()  # nothing is committed yet
    session.commit("sums")
    padded = np.pad(VALUES, ((1, 1), (0, 0), (0, 0)), mode="edge")
    np.testing.assert_array_equal(read_array(repo, "out"), padded[:-2] + padded[1:-1] + padded[2:])
    assert (report.boxes, report.tasks, report.attempts_wasted) == (54, 6, 0)


def test_tasks_that_die_after_writing_are_repeated_and_count_once(spark: SparkSession, session: Session) -> None:
    def die_at_first(a: Any, region: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and region[0].start == 12:
            os._exit(9)
        return a * 2

    report = transform_chunks(
        session, "maps", "out", die_at_first, with_region=True, memory=1, engine=asp.engine(spark), tasks=2
    )
    assert (report.tasks, report.attempts_wasted, report.nbytes) == (2, 1, VALUES.nbytes)
    np.testing.assert_array_equal(in_session(session, "out"), VALUES * 2)


def test_a_function_that_fails_for_good_leaves_the_session_as_it_was(spark: SparkSession, session: Session) -> None:
    with pytest.raises(
        TaskFailedError, match=r"computing t\[0:4\], y\[0:4\], x\[0:4\] of 'out' failed: ZeroDivisionError"
    ):
        transform_chunks(session, "maps", "out", lambda a: 1 / 0, engine="spark", memory=1, tasks=1)
    assert not session.has_uncommitted_changes
    assert not session.has_forks


def test_reductions_and_pyramids_are_those_of_threads(spark: SparkSession, session: Session) -> None:
    for engine in ("spark", "threads"):
        reduce_array(session, "maps", f"{engine}/mean", "mean", "t", engine=engine, memory=5000)
        reduce_array(session, "maps", f"{engine}/std", "std", engine=engine, memory=5000)
        quantile(session, "maps", f"{engine}/median", 0.5, engine=engine, memory=5000)
    for name in ("mean", "std", "median"):
        np.testing.assert_array_equal(in_session(session, f"spark/{name}"), in_session(session, f"threads/{name}"))
    np.testing.assert_allclose(in_session(session, "spark/mean"), VALUES.mean(0))
    np.testing.assert_allclose(in_session(session, "spark/median"), np.median(VALUES))
    build_pyramid(session, "maps", {"y": 2, "x": 2}, levels=1, engine="spark")
    windows = VALUES.reshape(24, 5, 2, 6, 2).mean((2, 4))
    np.testing.assert_allclose(in_session(session, "overviews/1/maps"), windows)


@pytest.mark.end_to_end
def test_maps_become_series_through_an_intermediate_array(
    spark: SparkSession, repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "_STAGE_BYTES", 0)
    monkeypatch.setattr(boxes, "_ACCESS_BYTES", 100)
    told: list[tuple[int, int]] = []
    report = rechunk(
        repo, "maps", {"t": -1, "y": 2, "x": 3}, memory=9000, engine="spark",
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    array = zarr.open_array(repo.readonly_session("main").store, path="maps", mode="r")
    assert report.plan.intermediate is not None
    assert (array.chunks, dict(array.attrs)) == ((24, 2, 3), {"units": "K"})
    np.testing.assert_array_equal(array[...], VALUES)
    assert messages(repo) == ["Rechunk maps to maps in chunks of 24×2×3", "begin"]
    assert repo.list_branches() == {"main"}
    assert told[-1] == (report.boxes, report.boxes)
