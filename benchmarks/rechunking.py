"""Rechunking on Spark: maps to series, against copying the maps once, and the memory of workers.

    python -m benchmarks.rechunking --gigabytes 4

Each round copies the array with `transform_chunks`, rechunks it, and copies the result, with the same memory, and the
result is compared with the source.  The memory is the peak resident set of the Python workers.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

import arraystore
from arraystore.spark import SparkEngine, engine, write_regions
from arraystore.transforms import RechunkPlan, rechunk, transform_chunks
from benchmarks.process_cpu import tree_cpu_seconds
from benchmarks.spark_cluster import running_spark
from benchmarks.timing import note

COPY, RECHUNK, COPY_BACK = "copy the maps", "rechunk them", "copy the series"
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


@dataclass(frozen=True)
class Figures:
    """Seconds of a copy of the maps, of the rechunking, and of a copy of the series, by round, and CPU seconds too."""

    plan: RechunkPlan
    seconds: dict[str, list[float]]
    cpu_seconds: dict[str, list[float]]
    peak: int
    """Peak resident set of a Python worker, in bytes."""

    def ratio(self, figures: dict[str, list[float]], under: str = COPY) -> float:
        """Return the median of the ratios of rechunking and a copy within each round."""
        return median(one / other for one, other in zip(figures[RECHUNK], figures[under], strict=True))


def measure(gigabytes: float, memory: int, rounds: int, place: str) -> Figures:
    """Copy and rechunk in turns, and compare the result with the source."""
    repo = arraystore.Repository.create(arraystore.local_filesystem_storage(place))
    seconds: dict[str, list[float]] = {name: [] for name in (COPY, RECHUNK, COPY_BACK)}
    cpu: dict[str, list[float]] = {name: [] for name in seconds}

    def timed(name: str, action: Callable[[], Any]) -> Any:
        began, spent = time.perf_counter(), tree_cpu_seconds()
        result = action()
        seconds[name].append(time.perf_counter() - began)
        cpu[name].append(tree_cpu_seconds() - spent)
        note(f"{name}: {seconds[name][-1]:.1f} s, {cpu[name][-1]:.1f} s of CPU")
        return result

    with running_spark() as spark, watched_workers() as peaks:
        workers = engine(spark)
        session = repo.writable_session("main")
        zarr.create_array(
            session.store, name="maps", shape=(max(1, int(gigabytes * 1024)), SIDE, SIDE), chunks=(1, SIDE, SIDE),
            dtype="f4", fill_value=np.nan, dimension_names=("t", "y", "x"),
        )  # fmt: skip
        write_regions(session, "maps", None, make_maps, spark=spark)
        session.commit("maps")
        rechunked = partial(rechunk, repo, "maps", SERIES, engine=workers, memory=memory)
        for number in range(rounds):
            series = f"series{number}"
            timed(COPY, partial(copy_array, repo, "maps", f"maps{number}", workers, memory))
            report = timed(RECHUNK, partial(rechunked, target=series))
            timed(COPY_BACK, partial(copy_array, repo, series, f"again{number}", workers, memory))
    check(repo)
    return Figures(report.plan, seconds, cpu, max(peaks.values(), default=0))


def copy_array(repo: arraystore.Repository, source: str, target: str, workers: SparkEngine, memory: int) -> None:
    """Copy an array with its chunks."""
    session = repo.writable_session("main")
    zarr.from_array(session.store, data=zarr.open_array(session.store, path=source), name=target, write_data=False)
    transform_chunks(session, source, target, copied, engine=workers, memory=memory)
    session.commit("a copy")


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
        found = measure(options.gigabytes, options.memory << 20, options.rounds, str(Path(directory) / "repository"))
    print(found.plan)
    print(
        f"{found.ratio(found.seconds):.2f} times the duration of a copy of the maps, "
        f"{found.ratio(found.cpu_seconds):.2f} times its CPU seconds, and "
        f"{found.ratio(found.cpu_seconds, COPY_BACK):.2f} times those of a copy of the series; "
        f"workers {found.peak >> 20} MiB"
    )


if __name__ == "__main__":
    main()
