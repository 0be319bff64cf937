"""A driver that dies before its commit leaves nothing that anybody sees; one that dies after it has committed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arraystore import Repository, Storage
from arraystore.spark.streams.progress import last_batch
from tests.spark.clusters.drivers import STREAM, stream_and_die, stream_files, write_and_die, write_cube
from tests.spark.clusters.dying import Moment
from tests.spark.clusters.masters import LOCAL
from tests.spark.clusters.model import (
    HALF,
    ROWS,
    X,
    Y,
    collected,
    cube,
    history,
    new_repository,
    numbers,
    stored_chunks,
)
from tests.spark.clusters.processes import running_driver, spark_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-clusters"), pytest.mark.timeout(900)]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_writing_regions_is_one_commit_or_none(
    spark: SparkSession, storage: Storage, tmp_path: Path, moment: Moment
) -> None:
    new_repository(storage)
    job = {"settings": LOCAL, "repository": str(tmp_path / "repository"), "moment": moment}
    with running_driver(write_and_die, tmp_path / "driver", spark_environment(), **job) as driver:
        driver.killed()
    assert stored_chunks(storage) == ROWS
    if moment == "before":
        assert history(storage) == []
        np.testing.assert_array_equal(cube(storage), np.zeros((ROWS, Y, X)))
        write_cube(spark, storage)
    assert history(storage) == ["the cube"]
    np.testing.assert_array_equal(cube(storage), numbers())
    assert collected(storage, needed=ROWS) == (ROWS if moment == "before" else 0)
    np.testing.assert_array_equal(cube(storage), numbers())


def test_a_batch_that_is_repeated_after_a_crash_is_written_once(
    spark: SparkSession, storage: Storage, tmp_path: Path
) -> None:
    """A crash before the commit is one of `test_batch_writer`."""
    new_repository(storage)
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    _drop_file(source, 0, HALF)
    job = {"settings": LOCAL, "repository": str(tmp_path / "repository"), "moment": "after"}
    places = {"source": str(source), "checkpoint": str(checkpoint)}
    with running_driver(stream_and_die, tmp_path / "driver", spark_environment(), **job, **places) as driver:
        driver.killed()
    first, second = (f"batch {number} of stream {STREAM}" for number in (0, 1))
    assert history(storage) == [first]
    _drop_file(source, HALF, ROWS)
    stream_files(spark, storage, source, checkpoint)
    assert history(storage) == [first, second]
    assert last_batch(Repository.open(storage).readonly_session("main"), STREAM) == 1
    np.testing.assert_array_equal(cube(storage), numbers())
    assert collected(storage, needed=ROWS) == 0
    stream_files(spark, storage, source, checkpoint)
    assert history(storage) == [first, second]
    np.testing.assert_array_equal(cube(storage), numbers())


def _drop_file(source: Path, first: int, end: int) -> None:
    """Put a file with some rows of the cube where a stream finds it, whole from the start."""
    t, y, x = (axis.ravel() for axis in np.mgrid[first:end, 0:Y, 0:X])
    table = pa.table({"t": t, "y": y, "x": x, "v": numbers()[first:end].ravel()})
    new = source.parent / "new"
    pq.write_table(table, new)
    new.rename(source / f"{first}.parquet")
