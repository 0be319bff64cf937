"""Spark Connect: the driver is another process, there is no Spark context, and all is as it is without."""

from __future__ import annotations

from pathlib import Path

import pytest

from arraystore import Storage
from tests.spark.clusters.drivers import through_connect
from tests.spark.clusters.masters import connect_server
from tests.spark.clusters.model import HALF, ROWS, X, Y, history, new_repository, numbers
from tests.spark.clusters.processes import running_driver, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-clusters"), pytest.mark.timeout(900)]


def test_arrays_are_written_and_read_and_errors_come_back_through_spark_connect(
    storage: Storage, tmp_path: Path
) -> None:
    new_repository(storage)
    with connect_server(tmp_path) as url:
        job = {"url": url, "repository": str(tmp_path / "repository")}
        with running_driver(through_connect, tmp_path / "client", spark_environment(), **job) as client:
            answer = client.result()
    read = numbers()[3 : ROWS - 2]
    assert answer["read"] == [read.size, read.sum(), 3, ROWS - 3]
    assert (answer["chunks"], answer["rows"]) == (HALF, HALF * Y * X)
    assert answer["cube"] == numbers().tolist()
    assert history(storage) == ["the cube"]
    kind, code, text = answer["refused"]
    assert (kind, code) == ("TaskFailedError", "ARRAYSTORE_TASK_FAILED")
    assert "there is no row 5 in the source" in text
    assert not answer["written"]
    kind, code, text = answer["lost"]
    assert (kind, code) == ("ObjectNotFoundError", "ARRAYSTORE_OBJECT_NOT_FOUND")
    assert "chunks/" in text
