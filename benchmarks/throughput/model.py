"""A small model of how transactions commit to one table of a table format on object storage.

A transaction reads the catalog, runs, and then makes attempts.  Each attempt reads and writes metadata, one request
after another, and ends in a compare-and-set of the catalog that succeeds if nobody else has committed since the
transaction read the catalog last.  After a failure it reads the catalog again and tries anew at once.  A heavy
transaction also reads, before it tries anew, the manifest list of every snapshot that was committed meanwhile.

Nothing that happens between two looks at the catalog depends on anyone else, so one event for each look is enough.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchmarks.throughput.latencies import S3, Provider, Stream, Timing
from benchmarks.throughput.outcomes import Outcome
from benchmarks.throughput.workload import Arrival, Workload

__all__ = ["CORRECTED", "INSTANT", "PUBLISHED", "Protocol", "run"]

INSTANT = Timing(1, 0.0)
_KIB = 1024
_MANY = 64
"""Requests whose total is drawn at once, from the normal distribution that sums approach."""


@dataclass(frozen=True)
class Protocol:
    """What an attempt costs.

    Parameters
    ----------
    provider
        Where manifest lists and metadata are.
    catalog
        Time of a compare-and-set or a read of the catalog.
    reads_metadata
        Whether an attempt reads the table metadata, and so does who learns why one failed.
    metadata, manifest_list
        Bytes of what is read and written.
    parallel
        How many of the manifest lists of a validation are read at a time.
    retries
        Attempts after the first.
    """

    provider: Provider = S3
    catalog: Timing = INSTANT
    reads_metadata: bool = False
    metadata: int = 100 * _KIB
    manifest_list: int = 10 * _KIB
    parallel: int = 1
    retries: int = 10

    def with_catalog(self, median_ms: float) -> Protocol:
        """The same with a slower or faster catalog."""
        return replace(self, catalog=replace(self.catalog, median_ms=median_ms))

    def attempt(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """Seconds of attempts: read, merge and write a manifest list, write metadata, compare and set."""
        get, put = self.provider.get, self.provider.put
        taken = get.many(rng, self.manifest_list, count) + put.many(rng, self.manifest_list, count)
        taken += put.many(rng, self.metadata, count) + self.catalog.many(rng, 0, count)
        return taken + get.many(rng, self.metadata, count) if self.reads_metadata else taken

    def look(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """Seconds after a look at the catalog until it is known what has changed."""
        if self.reads_metadata:
            return self.provider.get.many(rng, self.metadata, count)
        return np.zeros(count)

    def validation(self, rng: np.random.Generator, snapshots: int) -> float:
        """Seconds that a heavy transaction spends on the snapshots that were committed meanwhile."""
        get, size = self.provider.get, self.manifest_list
        if snapshots > _MANY:
            mean, deviation = get.moments(size)
            total = mean * snapshots + deviation * math.sqrt(snapshots) * rng.standard_normal()
            return float(total) / self.parallel
        drawn: list[float] = get.many(rng, size, snapshots).tolist()
        if self.parallel == 1:
            return sum(drawn)
        lanes = [0.0] * self.parallel
        for each in drawn:
            heapq.heapreplace(lanes, lanes[0] + each)
        return max(lanes)


PUBLISHED = Protocol()
"""Three requests an attempt, as the study was published."""

CORRECTED = Protocol(reads_metadata=True)
"""Five, with the reads of table metadata that its errata add."""

_START, _CAS, _READ = 0, 1, 2


@dataclass(eq=False)
class _Running:
    arrival: Arrival
    began: float
    seen: int = 0
    tries: int = 0


def run(workload: Workload, seed: int, protocol: Protocol = PUBLISHED) -> list[Outcome]:
    """Simulate all transactions that arrive; those still busy at the end of the hour have no outcome."""
    rng = np.random.default_rng([seed, round(workload.mean_ms), round(workload.light * 100)])
    attempts = Stream(lambda count: protocol.attempt(rng, count))
    looks = Stream(lambda count: protocol.look(rng, count))
    catalog = Stream(lambda count: protocol.catalog.many(rng, 0, count))
    arrivals = workload.arrivals(seed)
    outcomes: list[Outcome] = []
    queue: list[tuple[float, int, int, _Running]] = []
    order = itertools.count()
    snapshots = 0

    def push(at: float, kind: int, which: _Running) -> None:
        heapq.heappush(queue, (at, next(order), kind, which))

    def enter() -> None:
        arrival = next(arrivals, None)
        if arrival is not None:
            push(arrival.at + catalog.next(), _START, _Running(arrival, 0.0))

    enter()
    while queue:
        now, _, kind, which = heapq.heappop(queue)
        if now >= workload.duration:
            break
        if kind == _CAS:
            which.tries += 1
            won = which.seen == snapshots
            snapshots += won
            if won or which.tries > protocol.retries:
                outcomes.append(_outcome(which, now, won))
            else:
                push(now + catalog.next(), _READ, which)
            continue
        missed, which.seen = snapshots - which.seen, snapshots
        if kind == _START:
            enter()
            which.began = ready = now + which.arrival.runtime
        else:
            ready = now + looks.next()
            if which.arrival.heavy:
                ready += protocol.validation(rng, missed)
        push(ready + attempts.next(), _CAS, which)
    return outcomes


def _outcome(which: _Running, now: float, committed: bool) -> Outcome:
    return Outcome(which.arrival.at, which.began, now, which.arrival.heavy, committed, which.tries - 1)
