"""120 monthly files become one cube: in parallel with one commit, and again as a stream that survives a kill.

    python examples/ice_velocity.py

The files are real (ten years of sea ice velocity from the Met Office, in the package iris-sample-data) and in a format
that nothing here knows: a few lines of numpy read it.  Branch `main` gets all of them through `write_regions`.  Branch
`stream` starts from the same empty cube, and gets them as they are dropped into a directory: a structured stream
appends batches along time.  Its driver is killed after a commit that Spark has not heard of; the next driver goes on
from there, and the two branches are equal.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import iris_sample_data
import numpy as np
import numpy.typing as npt
import zarr

import arraystore
import arraystore.spark as asp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = sorted(str(path) for path in (Path(iris_sample_data.path) / "UM").glob("*.pp"))
FIRST_YEAR = 1890
ROWS, COLUMNS = 215, 360
STREAM = "ice"
FILES_PER_BATCH = 12

HEADER = np.dtype([("begin", ">u4"), ("words", ">i4", 45), ("numbers", ">f4", 19), ("end", ">u4")])
"""Of a record: Fortran writes its length before and after it."""


def read_field(path: str) -> tuple[int, npt.NDArray[np.float32]]:
    """Read a PP file of one field: its month, counted from the first one, and its values."""
    header = np.fromfile(path, HEADER, count=1)[0]
    words = header["words"]
    if (header["begin"], header["end"]) != (256, 256) or (words[17], words[18]) != (ROWS, COLUMNS):
        raise ValueError(f"{path} does not begin with a field of {ROWS} x {COLUMNS}")
    values = np.fromfile(path, ">f4", count=ROWS * COLUMNS, offset=HEADER.itemsize + 4).astype(np.float32)
    values[values == header["numbers"][17]] = np.nan  # the number that stands for missing values
    return 12 * int(words[0] - FIRST_YEAR) + int(words[1]) - 1, values.reshape(ROWS, COLUMNS)


def create_cube(store: Any) -> None:
    """Make a cube without months."""
    group = zarr.create_group(store, path="ice")
    group.create_array(
        "velocity", shape=(0, ROWS, COLUMNS), chunks=(1, ROWS, COLUMNS), dtype="f4", fill_value=np.nan,
        dimension_names=["time", "y", "x"],
        attributes={"standard_name": "northward_sea_ice_velocity", "units": "m s-1"},
    )  # fmt: skip
    group.create_array(
        "time", shape=(0,), chunks=(12,), dtype="i4", dimension_names=["time"],
        attributes={"units": f"days since {FIRST_YEAR}-01-01", "calendar": "360_day"},
    )  # fmt: skip


def append_months(session: arraystore.Session, spark: SparkSession, paths: Sequence[str]) -> asp.WriteReport:
    """Let the cube grow by some files, which executors read; the caller commits."""
    velocity = zarr.open_array(session.store, path="ice/velocity")
    start, count = velocity.shape[0], len(paths)
    with session.appending("time") as store:
        time_axis = zarr.open_array(store, path="ice/time")
        velocity.resize((start + count, ROWS, COLUMNS))
        time_axis.resize((start + count,))
    time_axis[start:] = 30 * np.arange(start, start + count) + 15  # the middles of months of 30 days

    def values(region: tuple[slice, ...]) -> npt.NDArray[np.float32]:
        months = range(region[0].start, region[0].stop)
        fields = [read_field(paths[month - start]) for month in months]
        if [month for month, _ in fields] != list(months):
            raise ValueError(f"these files are of months {[month for month, _ in fields]}, and not of {list(months)}")
        return np.stack([field for _, field in fields])

    # A region for a year: a task reads its files, and writes twelve chunks at once.
    years = [slice(at, min(at + 12, start + count)) for at in range(start, start + count, 12)]
    return asp.write_regions(session, "ice/velocity", years, values, spark=spark, align="error")


def bring_in_all(repo: arraystore.Repository, spark: SparkSession) -> None:
    """All files, in parallel, one commit."""
    session = repo.writable_session("main")
    report = append_months(session, spark, FILES)
    snapshot = session.commit("Ten years of ice", metadata={"files": len(FILES)})
    print(f"main: {report}")
    print(f"main: one commit, {snapshot}")


def drop(paths: Sequence[str], inbox: Path) -> None:
    """Put files where the stream looks for them, one by one.  It takes them in the order of their times."""
    inbox.mkdir(exist_ok=True)
    for path in paths:
        partial = inbox / f".{Path(path).name}"
        shutil.copyfile(path, partial)
        moment = time.time() - len(FILES) + len(list(inbox.glob("*.pp")))
        os.utime(partial, (moment, moment))
        partial.rename(inbox / Path(path).name)  # a file appears as a whole, or not at all


def follow(directory: Path, spark: SparkSession, die_after: int | None = None) -> list[int]:
    """Write what is in the inbox; return the numbers of batches that were in the history already."""
    repo = arraystore.Repository.open(arraystore.local_filesystem_storage(str(directory / "repository")))
    known: list[int] = []

    def write(frame: DataFrame, batch: int) -> None:
        found = sorted(unquote(urlsplit(row.path).path) for row in frame.select("path").collect())
        first = "-".join(Path(found[0]).name.split(".")[1:3])
        snapshot = asp.exactly_once(
            repo, STREAM, batch, lambda session: append_months(session, frame.sparkSession, found), branch="stream",
            message=f"{len(found)} months from {first}", metadata={"files": len(found)},
        )  # fmt: skip
        if snapshot is None:
            known.append(batch)
        if batch == die_after:
            os.kill(os.getpid(), signal.SIGKILL)  # committed here; Spark was not told that the batch is done

    files = spark.readStream.format("binaryFile").option("maxFilesPerTrigger", FILES_PER_BATCH)
    files = files.schema("path string, modificationTime timestamp, length long, content binary")
    stream = files.load(str(directory / "inbox")).writeStream.foreachBatch(write)
    query = stream.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return known


def stream_and_kill(directory: Path, spark: SparkSession) -> list[int]:
    """Half of the files with a driver that is killed, and the rest with the next one."""
    half = len(FILES) // 2
    drop(FILES[:half], directory / "inbox")
    command = [sys.executable, __file__, "follow", str(directory), "2"]
    # It cannot tidy up after itself: what it leaves behind goes away with the directory.
    driver = subprocess.run(command, check=False, env={**os.environ, "TMPDIR": str(directory)})
    if driver.returncode != -signal.SIGKILL:
        raise SystemExit(f"the first driver should have been killed, and ended with {driver.returncode}")
    print("stream: the first driver was killed after the commit of batch 2, before Spark knew of it")
    drop(FILES[half:], directory / "inbox")
    known = follow(directory, spark)
    print(f"stream: the second driver was given batch {known} again, and found it in the history")
    return known


def check(repo: arraystore.Repository, known: Sequence[int]) -> list[str]:
    """Compare with numpy, the branches with each other, and the history with what should have happened."""
    expected = np.stack([values for _, values in map(read_field, FILES)])
    cubes = {name: repo.readonly_session(name).store for name in ("main", "stream")}
    wrong = []
    for name, store in cubes.items():
        group = zarr.open_group(store, path="ice", mode="r")
        if not np.array_equal(np.asarray(group["velocity"][...]), expected, equal_nan=True):
            wrong.append(f"the cube of branch {name} is not what numpy reads from the files")
        if not np.array_equal(np.asarray(group["time"][...]), 30 * np.arange(len(FILES)) + 15):
            wrong.append(f"the times of branch {name} are not those of the files")
    batches = [
        info.metadata["spark.batch"] for info in repo.ancestry(branch="stream") if "spark.batch" in info.metadata
    ]
    if batches[::-1] != list(range(len(FILES) // FILES_PER_BATCH)):
        wrong.append(f"batches in the history: {batches[::-1]}")
    if list(known) != [2]:
        wrong.append(f"batches that came again: {known}")
    return wrong


def main() -> int:
    """Do both; 0 if both cubes are right."""
    with tempfile.TemporaryDirectory(prefix="ice-velocity-") as name:
        directory = Path(name)
        repo = arraystore.Repository.create(arraystore.local_filesystem_storage(str(directory / "repository")))
        with repo.transaction("main", message="A cube without months") as store:
            create_cube(store)
        repo.create_branch("stream", repo.lookup_branch("main"))
        spark = asp.start_session()
        try:
            bring_in_all(repo, spark)
            known = stream_and_kill(directory, spark)
        finally:
            spark.stop()
        for info in reversed(list(repo.ancestry(branch="stream"))):
            print(f"stream: {info.message}")
        wrong = check(repo, known)
    print("\n".join(wrong) if wrong else "Both cubes are equal to what numpy reads from the files.")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["follow"]:  # the first driver, in a process of its own
        follow(Path(sys.argv[2]), asp.start_session(), die_after=int(sys.argv[3]))
    else:
        sys.exit(main())
