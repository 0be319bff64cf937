"""Two jobs append to one array at the same time: both commit, and neither takes the place of the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from arraystore import Repository, Storage
from tests.spark.clusters.drivers import append_regions, append_rows
from tests.spark.clusters.masters import LOCAL
from tests.spark.clusters.model import X, Y, collected, cube, history, new_repository, numbers
from tests.spark.clusters.processes import running_driver, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-clusters"), pytest.mark.timeout(900)]

START, REGIONS, END = 2, 5, 6
"""Rows that there are, rows that one job appends as regions, and the end of those that the other job appends."""


def test_two_jobs_that_append_at_the_same_time_both_do(storage: Storage, tmp_path: Path) -> None:
    new_repository(storage, rows=START)
    meet = tmp_path / "meet"
    meet.mkdir()
    common = {"settings": LOCAL, "repository": str(tmp_path / "repository"), "meet": str(meet)}
    with (
        running_driver(append_regions, tmp_path / "one", spark_environment(), rows=REGIONS, **common) as one,
        running_driver(append_rows, tmp_path / "two", spark_environment(), first=START, end=END, **common) as two,
    ):
        snapshots = {one.result(): "regions", two.result(): "rows"}
    found = [(info.id, info.message) for info in Repository.open(storage).ancestry(branch="main")][1::-1]
    assert dict(found) == snapshots
    messages = history(storage)
    assert sorted(messages) == ["regions", "rows"]
    parts = {"regions": np.full((REGIONS, Y, X), -1.0), "rows": numbers()[START:END]}
    expected = np.concatenate([np.zeros((START, Y, X)), *(parts[message] for message in messages)])
    np.testing.assert_array_equal(cube(storage), expected)
    assert collected(storage, needed=REGIONS + END - START) == 0
