"""Maps to series on a small cluster: a year of maps, rechunked in place, with executors of half a gigabyte.

    python examples/rechunk.py

Two executors are processes of their own, as on a cluster (Spark calls that a local cluster).  The plan is printed
before anything is copied; memory is so small that an intermediate array is needed.  One commit replaces the array; the
intermediate array is garbage, which is collected at the end.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import zarr

import arraystore
import arraystore.spark as asp
from arraystore.transforms import plan_rechunk, rechunk, reduce_array

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS, LAT, LON = 365, 360, 720
SERIES = {"time": -1, "lat": 30, "lon": 30}
MEMORY = 48 << 20
PLACES = ((0, 0), (97, 401), (359, 719))


def make_maps(region: tuple[slice, ...]) -> npt.NDArray[np.float32]:
    """Return made-up temperatures of a region: seasons, latitudes, and some weather."""
    day, lat, lon = np.ogrid[region]
    weather = np.sin(day * 1.7 + lat * 0.05) * np.cos(day * 0.3 + lon * 0.03)
    values: npt.NDArray[np.float32] = (288 - 30 * np.abs(lat / LAT - 0.5) + 10 * np.sin(day / 58) + 4 * weather).astype(
        "f4"
    )
    return values


@contextmanager
def small_cluster(directory: Path) -> Iterator[SparkSession]:
    """Run two executors with a core and half a gigabyte each; they write their logs into a directory."""
    import pyspark
    from pyspark.sql import SparkSession

    home = directory / "spark"  # a local cluster writes beneath the home of Spark, which may be read-only
    home.mkdir()
    for name in ("bin", "jars", "python", "sbin"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    os.environ |= {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(Path(arraystore.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
    }
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    spark = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=dict(settings)).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def make_repository(directory: Path, spark: SparkSession) -> arraystore.Repository:
    """Create a repository with a year of maps, a chunk for each day."""
    repo = arraystore.Repository.create(arraystore.local_filesystem_storage(str(directory / "climate")))
    session = repo.writable_session("main")
    zarr.create_array(
        session.store, name="kelvin", shape=(DAYS, LAT, LON), chunks=(1, LAT, LON), dtype="f4", fill_value=np.nan,
        dimension_names=("time", "lat", "lon"), attributes={"units": "K"},
    )  # fmt: skip
    print(asp.write_regions(session, "kelvin", None, make_maps, spark=spark))
    session.commit("A year of maps")
    return repo


def read_series(repo: arraystore.Repository) -> tuple[Any, float]:
    """Return some series, and the seconds that reading them took."""
    session = repo.readonly_session("main")
    began = time.perf_counter()
    values = np.stack([session.read("kelvin", (slice(None), lat, lon)) for lat, lon in PLACES])
    return values, time.perf_counter() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as name, small_cluster(Path(name)) as spark:
        repo = make_repository(Path(name), spark)
        before, slow = read_series(repo)

        engine = asp.engine(spark)
        print(plan_rechunk(repo, "kelvin", SERIES, memory=MEMORY, engine=engine))
        report = rechunk(repo, "kelvin", SERIES, memory=MEMORY, engine=engine, message="Series in place of maps")
        print(f"{report.boxes} boxes in {report.tasks} tasks, {report.seconds:.1f} s, snapshot {report.snapshot_id}")

        after, quick = read_series(repo)
        assert np.array_equal(before, after)
        print(f"{len(PLACES)} series: {slow * 1000:.0f} ms from maps, {quick * 1000:.0f} ms from series")

        session = repo.writable_session("main")
        reduce_array(session, "kelvin", "mean", "mean", "time", engine=engine)
        session.commit("The mean of the year")
        print(repo.garbage_collect(datetime.now(UTC)))
        print([info.message for info in repo.ancestry(branch="main")][:-1], repo.list_branches())


if __name__ == "__main__":
    main()
