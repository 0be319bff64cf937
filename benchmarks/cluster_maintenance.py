"""Maintenance on Spark: verification against reading alone, and the driver of a clone of many objects.

    python -m benchmarks.cluster_maintenance verify --gigabytes 10
    python -m benchmarks.cluster_maintenance clone --objects 1000000
    python -m benchmarks.cluster_maintenance driver --objects 1000000

`verify` compares the bytes a second of `verify(level="chunks")` with those of tasks that read the same ranges and do
nothing else, in turns.  `clone` copies a repository with so many objects between two S3 servers, is killed half-way,
and continues.  `driver` measures the driver alone: its tasks copy nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
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
from benchmarks.server import running_server
from benchmarks.spark_cluster import running_spark

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
        measure_verify(options.gigabytes, options.rounds)
    elif options.what == "clone":
        measure_clone(options.objects)
    elif options.what == "driver":
        measure_driver(options.objects)
    else:
        clone(*options.places)


# -- verification -----------------------------------------------------------------------------------------------


def measure_verify(gigabytes: float, rounds: int) -> None:
    """Compare verification with reading, in turns."""
    with tempfile.TemporaryDirectory() as directory:
        storage = arraystore.local_filesystem_storage(Path(directory) / "repository", fsync=False)
        repository = write_cube(storage, gigabytes)
        with running_spark() as spark:
            workers, ratios = engine(spark), []
            for number in range(rounds + 1):
                reading = read_all(storage, workers)
                started = time.perf_counter()
                report = repository.verify("chunks", engine=workers)
                verifying = report.counts["bytes_read"] / (time.perf_counter() - started)
                assert report.ok
                if number:  # the first round warms everything
                    ratios.append(verifying / reading)
                print(f"read {reading / 1e9:.2f} GB/s, verified {verifying / 1e9:.2f} GB/s", flush=True)
        print(f"{gigabytes} GB: verification has {median(ratios):.2f} of the bandwidth of reading")


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


def read_all(storage: Storage, workers: SparkEngine) -> float:
    """Return the bytes a second of tasks that read all packs."""

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

    started = time.perf_counter()
    return run(read()) / (time.perf_counter() - started)


# -- clones -----------------------------------------------------------------------------------------------------


def measure_clone(objects: int) -> None:
    """Clone a repository between two servers, kill the driver half-way, and clone again."""
    with ExitStack() as stack:
        directories = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        servers = [stack.enter_context(running_server(directory)) for directory in directories]
        os.environ |= {
            "AWS_ACCESS_KEY_ID": "benchmark",
            "AWS_SECRET_ACCESS_KEY": "benchmark",
            "AWS_REGION": "us-east-1",
        }
        places = [server.endpoint_url for server in servers]
        source, target = map(bucket, places)
        write_objects(source, objects)
        command = [sys.executable, "-m", "benchmarks.cluster_maintenance", "_clone", "--places", *places]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        while count(target) < objects // 2:
            assert first.poll() is None, "the clone ended before it could be killed"
            time.sleep(1)
        first.send_signal(signal.SIGKILL)
        first.wait()
        print(f"killed with {count(target):,} objects at the target", flush=True)
        subprocess.run(command, check=True)


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
    print(f"{objects:,} objects written in {time.perf_counter() - started:.0f} s", flush=True)


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
    print(
        f"{report.objects:,} objects copied and {report.skipped:,} skipped in {seconds:.0f} s, "
        f"{report.requests / seconds:,.0f} requests a second; {peak()}"
    )


def peak() -> str:
    """Return the peak memory of this process, without Java's."""
    return f"driver's Python {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB at its peak"


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


def measure_driver(objects: int) -> None:
    """Copy objects that are forged on the workers, so that only the driver has work to do."""
    source = _Forged(objects)

    async def listed() -> AsyncIterator[ObjectInfo]:
        async for page in source.list("chunks/"):
            for info in page:
                yield info

    with running_spark() as spark:
        before, counter, started = peak(), CopyCounter(), time.perf_counter()
        run(copy_remotely(engine(spark), source, _Forged(0), listed(), counter, checked=False))
        seconds = time.perf_counter() - started
    print(f"{counter.objects:,} objects in {seconds:.0f} s; {peak()}, before: {before}")


if __name__ == "__main__":
    main()
