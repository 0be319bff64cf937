"""Make the speed table: ``python -m benchmarks.speed [--quick] [--only WORKLOAD …] [--rounds N] [--print]``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

os.environ.setdefault("ICECHUNK_LOG", "error")

from benchmarks.places import Place, PlaceMaker, S3Server
from benchmarks.server import running_server
from benchmarks.speed.contenders import DISTANT, LOCAL
from benchmarks.speed.datasets import Contender
from benchmarks.speed.page import publish, rendered
from benchmarks.speed.rows import Row, rows_of
from benchmarks.speed.workloads import WORKLOADS, Workload, distant_workloads, workloads
from benchmarks.throughput.latencies import Provider, Timing
from benchmarks.throughput.proxy import delayed
from benchmarks.timing import Stopwatch, interleaved, note

_SHARED_MEMORY = Path("/dev/shm")
_LATENCY_MS = 25.0
_ROUNDS = 3
"""Of five, half of the workloads take twenty minutes of two idle processors."""

_DISTANT = Provider("distant", "25 ms", *(Timing(_LATENCY_MS, 0.0) for _ in range(3)), source="a constant")


_TOUCHED = 512 << 20
"""Bytes of memory that are touched and freed before each run.

A virtual machine gives free memory back to its host: 96 MiB of new memory were copied in 10 ms or 230, by chance, and
who was measured after a pause paid for it.  What was freed last is used first, so all begin with memory that is there.
"""


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small loads, to see that all works; publishes nothing")
    parser.add_argument("--only", action="append", choices=WORKLOADS, metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--contender", action="append", default=[], help="part of the name of a contender to measure")
    parser.add_argument("--rounds", type=int, default=None, help="measured rounds (3; 1 when quick)")
    parser.add_argument("--print", action="store_true", help="print the table and publish nothing")
    parser.add_argument("--dir", type=Path, default=None, help="directory on the file system to measure (tmpfs)")
    return parser.parse_args(given)


def _prepared(workload: Workload, contender: Contender, places: PlaceMaker, stack: ExitStack) -> Place:
    """Give a contender a place for all rounds, and let it write there what they read."""
    place = stack.enter_context(places.fresh())
    with contender.settings():
        workload.prepare(contender, place)
    return place


def _wanted(known: dict[str, Workload], only: list[str] | None) -> dict[str, Workload]:
    return {name: workload for name, workload in known.items() if not only or name in only}


def _measured(
    wanted: dict[str, Workload], contenders: tuple[Contender, ...], places: PlaceMaker, rounds: int
) -> list[Row]:
    return [_measure(name, workload, contenders, places, rounds) for name, workload in wanted.items()]


def _measure(name: str, workload: Workload, contenders: tuple[Contender, ...], places: PlaceMaker, rounds: int) -> Row:
    started = time.monotonic()
    with ExitStack() as stack:
        runs: dict[str, Callable[[], Stopwatch]] = {}
        for contender in contenders:
            if workload.suits(contender):
                place = _prepared(workload, contender, places, stack)
                runs[contender.name] = partial(_run, workload, contender, place, places)
        found = interleaved(runs, rounds)
    note(f"{name}: {time.monotonic() - started:.0f} s")
    return Row(name, workload.title, {each: dict(samples.parts) for each, samples in found.items()})


def _run(workload: Workload, contender: Contender, place: Place, places: PlaceMaker) -> Stopwatch:
    np.ones(_TOUCHED, dtype=np.uint8)
    with contender.settings():
        return workload.run(contender, place, places)


def _chosen(contenders: tuple[Contender, ...], wanted: list[str]) -> tuple[Contender, ...]:
    return tuple(each for each in contenders if not wanted or any(part in each.name for part in wanted))


def _idle() -> bool:
    cores = os.cpu_count() or 1
    return os.getloadavg()[0] <= cores


@contextmanager
def _distant_places(scratch: Path) -> Iterator[PlaceMaker]:
    """Yield places on an S3 server of this machine, each of whose requests takes as long as in a far one."""
    with running_server(scratch) as server:
        address = urlsplit(server.endpoint_url)
        with delayed(address.hostname or "", address.port or 0, _DISTANT, seed=1) as proxy:
            endpoint = f"http://127.0.0.1:{proxy.port}"
            far = S3Server(endpoint, server.bucket, server.access_key_id, server.secret_access_key)
            yield PlaceMaker("s3", scratch, far)


def main(given: list[str] | None = None) -> int:
    """Measure, print the table, and publish it where the machine was idle."""
    arguments = _arguments(given)
    rounds = arguments.rounds or (1 if arguments.quick else _ROUNDS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    publishes = not (arguments.quick or arguments.print or arguments.contender)
    if publishes and not _idle():
        raise SystemExit(
            f"the machine must be idle to publish figures: its load is {os.getloadavg()[0]:.1f}, above 1 per core. "
            "Try again later, or add --print to see figures that are not kept"
        )
    rows: list[Row] = []
    directory = arguments.dir or (_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=directory) as scratch:
        near, far = workloads(arguments.quick), distant_workloads(arguments.quick)
        places = PlaceMaker("local", Path(scratch))
        rows += _measured(_wanted(near, arguments.only), _chosen(LOCAL, arguments.contender), places, rounds)
        wanted = _wanted(far, arguments.only)
        if wanted:
            with _distant_places(Path(scratch)) as distant:
                rows += _measured(wanted, _chosen(DISTANT, arguments.contender), distant, min(rounds, 3))
    print(rendered(rows_of(rows)))
    if publishes:
        publish(rows, rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
