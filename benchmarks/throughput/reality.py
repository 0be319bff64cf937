"""The simulation against reality: the same clients as real processes, on a real S3 server behind slowed requests."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from arraystore import Repository, s3_storage
from arraystore.storage import Storage
from benchmarks.places import S3Server
from benchmarks.server import running_server
from benchmarks.throughput.closed import Load, commit_for, simulate
from benchmarks.throughput.latencies import S3, Provider
from benchmarks.throughput.outcomes import Figures, Outcome, figures, mean_of
from benchmarks.throughput.points import Point, note
from benchmarks.throughput.proxy import Delayed, delayed
from benchmarks.throughput.transactions import CONFIG, make_arrays
from benchmarks.throughput.workload import Workload

__all__ = ["study"]

_SEEDS = 3
"""Simulated runs, whose mean is compared with one real run."""

_START = 5.0
"""Seconds after which everybody begins: by then the processes have imported what they need."""


def _storage(server: S3Server, prefix: str) -> Storage:
    return s3_storage(
        bucket=server.bucket,
        prefix=prefix,
        endpoint_url=server.endpoint_url,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
        region=server.region,
        allow_http=True,
        force_path_style=True,
    )


async def _create(server: S3Server, prefix: str) -> None:
    await make_arrays(await Repository.create_async(_storage(server, prefix), CONFIG))


def _client(pipe: Connection, server: S3Server, prefix: str, client: int, load: Load, start: float) -> None:
    async def work() -> list[Outcome]:
        repo = await Repository.open_async(_storage(server, prefix))
        await asyncio.sleep(start - time.time())
        return await commit_for(repo, client, load, lambda: time.time() - start)

    pipe.send((asyncio.run(work()), time.process_time()))


def _measure(load: Load, provider: Provider, server: S3Server, seed: int) -> tuple[list[Outcome], Delayed, float]:
    """Run real processes; returns what became of the transactions, what the proxy saw, and their processor time."""
    prefix = f"reality-{load.clients}-{load.heavy_every}-{load.slowdown:g}"
    asyncio.run(_create(server, prefix))
    context = multiprocessing.get_context("spawn")
    address = urlsplit(server.endpoint_url)
    with delayed(address.hostname or "", address.port or 0, provider, seed) as proxy:
        slow = replace(server, endpoint_url=f"http://127.0.0.1:{proxy.port}")
        start = time.time() + _START + load.clients
        pipes: list[Connection] = []
        processes: list[Any] = []
        for client in range(load.clients):
            ours, its = context.Pipe()
            pipes.append(ours)
            processes.append(context.Process(target=_client, args=(its, slow, prefix, client, load, start)))
            processes[-1].start()
        found: list[Outcome] = []
        seconds = 0.0
        for pipe in pipes:
            if not pipe.poll(load.seconds + 120):
                raise RuntimeError("a client has not ended in time")
            outcomes, used = pipe.recv()
            found += outcomes
            seconds += used
        for process in processes:
            process.join()
    return found, proxy, seconds


def _figures(load: Load, outcomes: list[Outcome], requests: float) -> Figures:
    workload = Workload(0, runtime=0, duration=load.seconds + load.warmup, margin=load.warmup)
    return replace(figures(outcomes, workload), requests=requests / max(1, len(outcomes)))


def study(quick: bool, full: bool) -> Iterator[Point]:
    """Compare both, with more and more clients."""
    seconds = 6.0 if quick else 120.0 if full else 22.0
    shapes = [(2, 0)] if quick else [(1, 0), (4, 0), (8, 0), (8, 2)]
    loads = [
        Load(clients, seconds * slowdown, heavy, 2.0 * slowdown, slowdown)
        for slowdown in ((1.0,) if quick else (1.0, 3.0))
        for clients, heavy in shapes
    ]
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, running_server(Path(scratch)) as server:
        for load in loads:
            yield from _compare(load, server)


def _compare(load: Load, server: S3Server) -> Iterator[Point]:
    provider = S3.slower(load.slowdown)
    simulated = mean_of([_figures(load, *simulate(load, provider, seed)) for seed in range(_SEEDS)])
    measured, proxy, used = _measure(load, provider, server, seed=load.clients)
    total = sum(proxy.requests.values())
    more = {
        "clients": load.clients,
        "seconds": load.seconds,
        "slowdown": load.slowdown,
        "late": proxy.late / max(1, total),
        "lateness": proxy.lateness / max(1, total),
        "processor": used / load.seconds,
        "load": os.getloadavg()[0],
    }
    light = 1 - 1 / load.heavy_every if load.heavy_every else 1.0
    for kind, found in (("simulated", simulated), ("measured", _figures(load, measured, total))):
        point = Point("reality", 0.0, light, 0.0, kind, _SEEDS if kind == "simulated" else 1, found, more)
        note(f"{load.clients} clients, {light:.0%} light, {kind}: {point.figures.throughput:.2f}/s {more}")
        yield point
