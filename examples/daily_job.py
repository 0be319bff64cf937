"""A job that appends a day, every day, while another job appends to the same arrays; and the upkeep after it.

    python examples/daily_job.py

A day arrives as a DataFrame of rows (hour, latitude, longitude, temperature).  The job has Spark write the rows where
their labels say, lets the arrays grow for hours that are new, and commits.  Meanwhile a backfill in another process
appends days of the year before.  Neither waits for the other: who commits second is put behind who was first, and no
chunk is written again.  A day that comes a second time replaces itself.  In the end the job looks after the repository.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import zarr

import arraystore
import arraystore.spark as asp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH = date(2025, 1, 1)
LATITUDES, LONGITUDES = np.arange(30.0, 60.0, 0.5), np.arange(-10.0, 30.0, 0.5)
DAYS = [date(2026, 3, day) for day in (1, 2, 3)]
YEAR_BEFORE = [date(2025, 3, day) for day in (1, 2, 3)]

ROWS = """
    SELECT timestamp '{day} 00:00:00 UTC' + make_interval(0, 0, 0, 0, hour) AS time, latitude, longitude,
           CAST({degrees} AS FLOAT) AS temperature
    FROM (SELECT EXPLODE(SEQUENCE(0, 23)) AS hour)
    CROSS JOIN (SELECT {south} + id * 0.5D AS latitude FROM RANGE({rows}))
    CROSS JOIN (SELECT {west} + id * 0.5D AS longitude FROM RANGE({columns}))
"""
"""What a job would read from somewhere: a table of Parquet, say."""


def hours_of(day: date) -> npt.NDArray[np.int64]:
    """The hours of a day, since the epoch."""
    return 24 * (day - EPOCH).days + np.arange(24)


def temperatures(day: date) -> npt.NDArray[np.float32]:
    """Some weather: colder to the north, warmer to the east, and each hour a bit more of it."""
    hour = np.arange(24.0)[:, None, None]
    values = (day - EPOCH).days * 0.0625 + 0.25 * hour - 0.5 * LATITUDES[:, None] + 0.125 * LONGITUDES
    return values.astype(np.float32)


def rows_of(spark: SparkSession, day: date) -> DataFrame:
    """The same as rows."""
    degrees = f"{(day - EPOCH).days} * 0.0625D + 0.25D * hour - 0.5D * latitude + 0.125D * longitude"
    return spark.sql(
        ROWS.format(
            day=day,
            degrees=degrees,
            south=LATITUDES[0],
            west=LONGITUDES[0],
            rows=len(LATITUDES),
            columns=len(LONGITUDES),
        )
    )


def create_arrays(store: Any) -> None:
    """Arrays without hours.  A chunk is a day, so that what is appended is always whole chunks."""
    group = zarr.create_group(store, path="weather")
    for name, values in (("latitude", LATITUDES), ("longitude", LONGITUDES)):
        group.create_array(name, data=values, dimension_names=[name])
    group.create_array(
        "time", shape=(0,), chunks=(24,), dtype="i8", dimension_names=["time"],
        attributes={"units": f"hours since {EPOCH}", "calendar": "standard"},
    )  # fmt: skip
    group.create_array(
        "temperature", shape=(0, len(LATITUDES), len(LONGITUDES)), chunks=(24, 30, 40), dtype="f4", fill_value=np.nan,
        dimension_names=["time", "latitude", "longitude"], attributes={"units": "degC"},
    )  # fmt: skip


def daily_job(repo: arraystore.Repository, spark: SparkSession, day: date) -> arraystore.Session:
    """Bring in a day through Spark; what is returned is not committed."""
    session = repo.writable_session("main")
    hours = [datetime(day.year, day.month, day.day, hour, tzinfo=UTC) for hour in range(24)]
    report = asp.write_dataframe(
        rows_of(spark, day), session, "weather/temperature", dims=["time", "latitude", "longitude"],
        value="temperature", coords="label", append_dim="time", append_labels=hours,
    )  # fmt: skip
    print(f"{day}: {report}")
    return session


def append(session: arraystore.Session, day: date, values: npt.NDArray[np.float32]) -> None:
    """Append a day to all arrays, unless it is there; whoever appends it meanwhile, too, makes the commit fail."""
    session.append({"weather/time": hours_of(day), "weather/temperature": values}, dim="time", unique="weather/time")


def backfill(place: str, day: date) -> str:
    """The other job, in a process of its own and without Spark."""
    repo = arraystore.Repository.open(arraystore.local_filesystem_storage(place))
    session = repo.writable_session("main")
    append(session, day, temperatures(day))
    return commit(session, f"Backfill of {day}")


def commit(session: arraystore.Session, message: str) -> str:
    """Commit, on top of whatever others have committed meanwhile."""
    return session.commit(message, rebase_with=arraystore.ConflictDetector())


def run_days(repo: arraystore.Repository, place: str, spark: SparkSession) -> None:
    """Three days, with a backfill that is always a bit faster."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as other:
        for day, earlier in zip(DAYS, YEAR_BEFORE, strict=True):
            session = daily_job(repo, spark, day)
            other.submit(backfill, place, earlier).result()
            snapshot = commit(session, f"Weather of {day}")
            print(f"{day}: {snapshot}, on top of the backfill of {earlier}, which came in between")


def run_again(repo: arraystore.Repository, spark: SparkSession) -> None:
    """Let the scheduler run a day twice: its hours are there, so its values take the place of those."""
    snapshot = commit(daily_job(repo, spark, DAYS[-1]), f"Weather of {DAYS[-1]}, again")
    print(f"{DAYS[-1]}: {snapshot}, in place: no hour is there twice")


def maintain(repo: arraystore.Repository) -> int:
    """Look after the repository, as the job does once a day."""
    repo.set_retention("last 4")
    report = repo.maintain(arraystore.UpkeepOptions(policy=repo.get_retention(), verify_sample=50))
    print(f"upkeep: {report.status} in {report.seconds:.2f} s, {', '.join(report.steps)}")
    return report.exit_code


def check(repo: arraystore.Repository) -> list[str]:
    """Compare the arrays with what both jobs were to append, in the order of their commits."""
    group = zarr.open_group(repo.readonly_session("main").store, path="weather", mode="r")
    order = [day for pair in zip(YEAR_BEFORE, DAYS, strict=True) for day in pair]
    wrong = []
    if not np.array_equal(np.asarray(group["time"][...]), np.concatenate([hours_of(day) for day in order])):
        wrong.append("the hours are not those of the days in the order of their commits")
    if not np.array_equal(np.asarray(group["temperature"][...]), np.concatenate([temperatures(day) for day in order])):
        wrong.append("the temperatures are not those of the days")
    return wrong


def main() -> int:
    """Three days of a job; 0 if all is right."""
    with tempfile.TemporaryDirectory(prefix="daily-job-") as name:
        place = str(Path(name) / "repository")
        repo = arraystore.Repository.create(arraystore.local_filesystem_storage(place))
        with repo.transaction("main", message="Arrays without hours") as store:
            create_arrays(store)
        spark = asp.start_session()
        try:
            run_days(repo, place, spark)
            run_again(repo, spark)
        finally:
            spark.stop()
        print("history:")
        for info in repo.ancestry(branch="main"):
            print(f"  {info.id}  {info.written_at:%H:%M:%S}  {info.message}")
        failed = maintain(repo)
        wrong = check(repo)
    if failed:
        wrong.append("the upkeep failed")
    print("\n".join(wrong) if wrong else "All days are there, each of them once.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
