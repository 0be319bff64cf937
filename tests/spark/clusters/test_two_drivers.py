"""Two jobs append to one array at the same time: both commit, and neither takes the place of the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from arraystore import Repository, Storage
from tests.spark.clusters.drivers import append
from tests.spark.clusters.masters import LOCAL
from tests.spark.clusters.model import X, Y, collected, cube, history, new_repository
from tests.spark.clusters.processes import running_driver, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-clusters"), pytest.mark.timeout(600)]

START, ONE, TWO = 2, 5, 3
"""Rows that there are, and that the two jobs append."""


def test_two_jobs_that_append_at_the_same_time_both_do(storage: Storage, tmp_path: Path) -> None:
    new_repository(storage, rows=START)
    meet = tmp_path / "meet"
    meet.mkdir()
    common = {"settings": LOCAL, "repository": str(tmp_path / "repository"), "meet": str(meet)}
    one = {"value": 1.0, "rows": ONE, "other": 2.0}
    two = {"value": 2.0, "rows": TWO, "other": 1.0}
    with (
        running_driver(append, tmp_path / "one", spark_environment(), **common, **one) as first,
        running_driver(append, tmp_path / "two", spark_environment(), **common, **two) as second,
    ):
        snapshots = {first.result(): "append 1.0", second.result(): "append 2.0"}
    found = [(info.id, info.message) for info in Repository.open(storage).ancestry(branch="main")][1::-1]
    assert dict(found) == snapshots
    messages = history(storage)
    assert sorted(messages) == ["append 1.0", "append 2.0"]
    rows = {"append 1.0": [1.0] * ONE, "append 2.0": [2.0] * TWO}
    expected = np.array([0.0] * START + rows[messages[0]] + rows[messages[1]])
    np.testing.assert_array_equal(cube(storage), np.broadcast_to(expected[:, None, None], (len(expected), Y, X)))
    assert collected(storage, needed=ONE + TWO) == 0
