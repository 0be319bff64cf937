"""Rechunking on Spark: maps to series, against copying the maps once, and the memory of workers.

    python -m benchmarks.rechunking --gigabytes 4

Each round copies the array with `transform_chunks` and rechunks it with the same memory, in turns, and compares the
result with the source.  The memory is the peak resident set of the Python workers.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

import arraystore
from arraystore.spark import engine, write_regions
from arraystore.transforms import rechunk, transform_chunks
from benchmarks.spark_cluster import running_spark

SIDE = 512
SERIES = {"t": -1, "y": 32, "x": 32}


def make_maps(region: tuple[slice, ...]) -> npt.NDArray[Any]:
    """Return made-up maps: smooth fields with noise, which zstd halves."""
    day, y, x = np.ogrid[region]
    rng = np.random.default_rng(region[0].start)
    noise = rng.integers(0, 64, size=(len(day), SIDE, SIDE), dtype="u1") / np.float32(64)
    smooth = 280 + 10 * np.sin(day / 58) + 20 * np.cos(y / 85) * np.sin(x / 85)
    return np.asarray(smooth + noise, dtype="f4")


def copied(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return values as they are."""
    return values


@contextmanager
def watched_workers() -> Iterator[dict[str, int]]:
    """Note the peak memory of Python workers of Spark, in bytes by process id, until the end of the block."""
    peaks: dict[str, int] = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError, StopIteration):
                    if (
                        b"pyspark" in (process / "cmdline").read_bytes()
                        and b"daemon" in (process / "cmdline").read_bytes()
                    ):
                        lines = (process / "status").read_text().splitlines()
                        peaks[process.name] = 1024 * int(next(line for line in lines if "VmHWM" in line).split()[1])

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()


def measure(gigabytes: float, memory: int, rounds: int, place: str) -> None:
    """Copy and rechunk in turns, and print seconds, their ratio, and the memory of workers."""
    repo = arraystore.Repository.create(arraystore.local_filesystem_storage(place))
    ratios = []
    with running_spark() as spark, watched_workers() as peaks:
        workers = engine(spark)
        session = repo.writable_session("main")
        zarr.create_array(
            session.store, name="maps", shape=(int(gigabytes * 1024), SIDE, SIDE), chunks=(1, SIDE, SIDE), dtype="f4",
            fill_value=np.nan, dimension_names=("t", "y", "x"),
        )  # fmt: skip
        write_regions(session, "maps", None, make_maps, spark=spark)
        session.commit("maps")
        for number in range(rounds):
            session = repo.writable_session("main")
            source = zarr.open_array(session.store, path="maps")
            zarr.from_array(session.store, data=source, name=f"copy{number}", write_data=False)
            began = time.perf_counter()
            transform_chunks(session, "maps", f"copy{number}", copied, engine=workers, memory=memory)
            session.commit("a copy")
            copying = time.perf_counter() - began
            report = rechunk(repo, "maps", SERIES, target=f"series{number}", engine=workers, memory=memory)
            if not number:
                print(report.plan)
            ratios.append(report.seconds / copying)
            peak = max(peaks.values(), default=0) >> 20
            print(f"copy {copying:.1f} s, rechunk {report.seconds:.1f} s: {ratios[-1]:.2f} times; workers {peak} MiB")
    check(repo)
    print(f"{median(ratios):.2f} times the duration of a copy (the bar is 1.5), workers {peak} MiB (the bar is 1 GiB)")


def check(repo: arraystore.Repository) -> None:
    """Check that maps and series are equal, some columns at a time."""
    session = repo.readonly_session("main")
    for y in range(0, SIDE, 128):
        region = (slice(None), slice(y, y + 4), slice(None))
        assert np.array_equal(session.read("maps", region), session.read("series0", region))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--memory", type=int, default=512, help="MiB of values that a task may hold")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        measure(options.gigabytes, options.memory << 20, options.rounds, str(Path(directory) / "repository"))


if __name__ == "__main__":
    main()
