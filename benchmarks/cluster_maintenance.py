"""Maintenance on Spark: verification against reading alone, and the driver of a clone of many objects.

    python -m benchmarks.cluster_maintenance verify --gigabytes 10
    python -m benchmarks.cluster_maintenance clone --objects 1000000
    python -m benchmarks.cluster_maintenance driver --objects 1000000

`verify` compares the bytes a second of `verify(level="chunks")` with those of tasks that read the same objects and do
nothing else, in turns, from the disk.  `clone` copies a repository with so many objects between two S3 servers, is
killed half-way, and continues.  `driver` measures the driver alone: its tasks copy nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import zarr

import arraystore
from arraystore._runtime import run
from arraystore._runtime.concurrency import for_each
from arraystore.copying import clone_repository
from arraystore.copying.remote_objects import copy_remotely
from arraystore.copying.report import CopyCounter
from arraystore.spark import SparkEngine, engine
from arraystore.storage.protocol import ObjectInfo, Storage
from benchmarks.process_cpu import tree_cpu_seconds
from benchmarks.server import running_server
from benchmarks.spark_cluster import running_spark
from benchmarks.timing import note

MiB = 1 << 20
_AT_ONCE = 4
_OBJECTS_PER_TASK = 256


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("what", choices=["verify", "clone", "driver", "_clone"])
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--places", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.what == "verify":
        with tempfile.TemporaryDirectory() as directory:
            found = measure_verify(options.gigabytes, options.rounds, Path(directory))
        print(f"{options.gigabytes} GB: verification has {found.ratio:.2f} of the bandwidth of reading")
    elif options.what == "clone":
        print(measure_clone(options.objects))
    elif options.what == "driver":
        print(json.dumps(measure_driver(options.objects)))
    else:
        clone(*options.places)


# -- verification -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bandwidths:
    """Bytes a second of reading alone and of verification, and CPU seconds a gigabyte, by round."""

    reading: list[float]
    verifying: list[float]
    reading_cpu: list[float]
    verifying_cpu: list[float]

    @property
    def ratio(self) -> float:
        """Median of the ratios within each round."""
        return median(one / other for one, other in zip(self.verifying, self.reading, strict=True))


def measure_verify(gigabytes: float, rounds: int, directory: Path) -> Bandwidths:
    """Compare verification with reading, in turns, of files that are not in the page cache."""
    found = Bandwidths([], [], [], [])
    storage = arraystore.local_filesystem_storage(directory, fsync=False)
    repository = write_cube(storage, gigabytes)
    with running_spark() as spark:
        workers = engine(spark)
        repository.verify("chunks", engine=workers)  # warms everything but the page cache
        for _ in range(rounds):
            _measure(lambda: read_all(storage, workers), directory, found.reading, found.reading_cpu)
            _measure(lambda: _verify(repository, workers), directory, found.verifying, found.verifying_cpu)
            note(f"read {found.reading[-1] / 1e9:.2f} GB/s, verified {found.verifying[-1] / 1e9:.2f} GB/s")
    return found


def _measure(action: Callable[[], int], directory: Path, speeds: list[float], cpu: list[float]) -> None:
    forget_pages(directory)
    started, spent = time.perf_counter(), tree_cpu_seconds()
    size = action()
    speeds.append(size / (time.perf_counter() - started))
    cpu.append((tree_cpu_seconds() - spent) / size * 1e9)


def _verify(repository: arraystore.Repository, workers: SparkEngine) -> int:
    report = repository.verify("chunks", engine=workers)
    assert report.ok
    return report.counts["bytes_read"]


def forget_pages(directory: Path) -> None:
    """Drop files from the page cache, so that they are read from the disk again."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())  # pages that are not written yet stay
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_cube(storage: Storage, gigabytes: float) -> arraystore.Repository:
    """Commit an array of chunks of 1 MiB, none like another."""
    repository = arraystore.Repository.create(storage)
    count, random = int(gigabytes * 1e9 / MiB), np.random.default_rng(0)
    with repository.transaction("main", message="cube") as store:
        array = zarr.create_array(store, name="a", shape=(count, MiB), chunks=(1, MiB), dtype="u1", compressors=None)
        for first in range(0, count, 64):
            last = min(first + 64, count)
            array[first:last] = random.integers(0, 256, (last - first, MiB), dtype="u1")
    return repository


@dataclass(frozen=True)
class _Read:
    """Work of a task that only reads."""

    storage: Storage

    async def __call__(self, task: list[tuple[str, int]]) -> int:
        async def read(item: tuple[str, int]) -> None:
            await self.storage.get_ranges(item[0], [(0, item[1])])

        await for_each(task, read, _AT_ONCE)
        return sum(size for _, size in task)


def read_all(storage: Storage, workers: SparkEngine) -> int:
    """Read all packs in tasks, and return their bytes."""

    async def tasks() -> AsyncIterator[list[tuple[str, int]]]:
        task: list[tuple[str, int]] = []
        async for page in storage.list("chunks/"):
            for info in page:
                task.append((info.key, info.size))
                if len(task) == _OBJECTS_PER_TASK:
                    yield task
                    task = []
        if task:
            yield task

    async def read() -> int:
        async with aclosing(workers.run(_Read(storage), tasks(), "reading")) as results:
            return sum([size async for size in results])

    return run(read())


# -- clones -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CloneFigures:
    """What a driver did that was killed half-way, and the one after it."""

    killed_at: int
    """Objects at the target when the first driver was killed."""
    objects: int
    skipped: int
    seconds: float
    requests: int
    peak: int
    """Peak resident set of the Python process of the driver, in bytes."""


def measure_clone(objects: int) -> CloneFigures:
    """Clone a repository between two servers, kill the driver half-way, and clone again."""
    with ExitStack() as stack:
        directories = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        servers = [stack.enter_context(running_server(directory)) for directory in directories]
        keys = {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmark", "AWS_REGION": "us-east-1"}
        os.environ |= keys
        places = [server.endpoint_url for server in servers]
        source, target = map(bucket, places)
        write_objects(source, objects)
        command = [sys.executable, "-m", "benchmarks.cluster_maintenance", "_clone", "--places", *places]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as first:
            while count(target) < objects // 2:
                assert first.poll() is None, "the clone ended before it could be killed"
                time.sleep(0.2)
            first.send_signal(signal.SIGKILL)
        there = count(target)
        note(f"killed with {there:,} objects at the target")
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return CloneFigures(there, **json.loads(done.stdout.splitlines()[-1]))


def bucket(endpoint: str) -> Storage:
    """Return the storage at a server, with credentials of the environment."""
    return arraystore.s3_storage(
        bucket="benchmarks", prefix="repository", endpoint_url=endpoint, allow_http=True, force_path_style=True
    )


def write_objects(storage: Storage, objects: int) -> None:
    """Commit a repository, and put as many more packs that nothing refers to beside its own."""
    repository = arraystore.Repository.create(storage)
    with repository.transaction("main", message="one") as store:
        zarr.create_array(store, name="a", data=np.arange(1000))

    async def put(number: int) -> None:
        await storage.put("chunks/" + f"{number:020X}", b"x" * 1000)

    started = time.perf_counter()
    run(for_each(range(objects), put, 32))
    note(f"{objects:,} objects written in {time.perf_counter() - started:.0f} s")


def count(storage: Storage) -> int:
    """Return the count of packs at a storage."""

    async def counted() -> int:
        return sum([len(page) async for page in storage.list("chunks/")])

    return run(counted())


def clone(source: str, target: str) -> None:
    """Clone on Spark, and print what it took."""
    with running_spark() as spark:
        started = time.perf_counter()
        report = clone_repository(bucket(source), bucket(target), engine=engine(spark))
        seconds = time.perf_counter() - started
    figures = {"objects": report.objects, "skipped": report.skipped, "requests": report.requests}
    print(json.dumps(figures | {"seconds": seconds, "peak": peak()}))


def peak() -> int:
    """Return the peak resident set of this process, without Java's, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# -- the driver alone -------------------------------------------------------------------------------------------


class _Forged(arraystore.MemoryStorage):
    """Storage that lists many objects, each of which reads as a kilobyte, and forgets what is written."""

    shared = True

    def __init__(self, objects: int) -> None:
        super().__init__("forged")
        self.objects = objects

    def __reduce__(self) -> Any:
        return _Forged, (self.objects,)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        for first in range(0, self.objects, 1000):
            yield [ObjectInfo(f"{prefix}{number:020X}", 1000) for number in range(first, first + 1000)]
            await asyncio.sleep(0)

    async def get(self, key: str) -> bytes:
        return bytes(1000)

    async def put(self, key: str, data: Any) -> None:
        """Forget it."""


def measure_driver(objects: int) -> tuple[float, int]:
    """Copy objects that are forged on the workers, so that only the driver has work to do; return seconds and bytes."""
    source = _Forged(objects)

    async def listed() -> AsyncIterator[ObjectInfo]:
        async for page in source.list("chunks/"):
            for info in page:
                yield info

    with running_spark() as spark:
        counter, started = CopyCounter(), time.perf_counter()
        run(copy_remotely(engine(spark), source, _Forged(0), listed(), counter, checked=False))
        assert counter.objects == objects
        return time.perf_counter() - started, peak()


if __name__ == "__main__":
    main()
