"""Kinds of runs, by name."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from arraystore.simulation.faults import Faults
from arraystore.simulation.latency import Delay
from tests.simulation.actors.scene import stream
from tests.simulation.actors.workload import OPERATIONS, Workload

__all__ = ["PROFILES", "Profile"]


@dataclass(frozen=True)
class Profile:
    """A kind of runs.

    Parameters
    ----------
    says
        What is special about it.
    workload, faults
        What a seed's random numbers make of it.
    upkeep
        Adds those who delete, expire, collect and compact.
    besides
        Share of runs in which snapshots are flushed, undone and repeated, and values are appended that must not repeat.
        It is drawn apart from all else, so that the other runs are what they were before there was any of that.
    """

    says: str
    workload: Callable[[random.Random], Workload]
    faults: Callable[[random.Random], Faults]
    upkeep: Callable[[random.Random, Workload], Workload] = lambda _, workload: workload
    besides: float = 0.0

    def drawn(self, seed: int) -> tuple[Workload, Faults]:
        """Return what a seed makes of it."""
        rng = stream(seed, "profile")
        workload, faults = self.workload(rng), self.faults(rng)
        if faults.of_requests and not faults.refused:
            faults = faults.sent_twice(stream(seed, "sent twice"))
        storage = stream(seed, "of storage")
        if faults.of_requests and storage.random() < 0.2:
            faults = faults.of_storage(storage)
        own = stream(seed, "besides")
        whole = self.upkeep(rng, workload)
        return (_besides(own, whole) if own.random() < self.besides else whole), faults


_BESIDES = 0.4
_FAULTY_SECONDS = (2.0, 20.0)
"""After how many seconds nothing fails any more: then everybody has to come to an end."""


def _ordinary(rng: random.Random) -> Workload:
    return Workload(
        writers=rng.randint(2, 5),
        readers=rng.randint(0, 2),
        referrers=rng.choice((0, 0, 1)),
        shared=rng.choice((1, 1, 2)),
        arrays=rng.randint(1, 4),
        groups=rng.randint(0, 3),
        think=rng.choice((0.02, 0.1, 0.3)),
        serializable=rng.choice((0.0, 0.3, 1.0)),
    )


def _besides(rng: random.Random, workload: Workload) -> Workload:
    transplanters, flushing = rng.choice((0, 1, 1, 2)), rng.choice((0.0, 0.1, 0.3))
    return replace(workload, transplanters=transplanters, flushing=flushing, unique=rng.choice((0.0, 0.2, 0.5)))


def _busy(rng: random.Random) -> Workload:
    """Many writers, one or two arrays, mostly with solvers that cross-process group commit takes."""
    return replace(
        _ordinary(rng),
        writers=rng.randint(6, 14),
        shared=rng.choice((1, 1, 3)),
        turns=(2, 4),
        steps=(1, 2),
        arrays=rng.randint(1, 2),
        groups=0,
        chunks=6,
        think=rng.choice((0.0, 0.02, 0.1)),
        operations={"write": 10.0, "append": 3.0, "erase": 1.0, "attributes": 1.0, "look": 2.0, "grow": 0.5},
        solvers={"none": 0.3, "detector": 6.0, "basic": 3.0, "custom": 0.5},
        serializable=rng.choice((0.0, 0.2)),
    )


def _hierarchy(rng: random.Random) -> Workload:
    heavy = {"create": 6.0, "delete": 4.0, "replace": 3.0, "move": 5.0, "attributes": 3.0, "file": 2.0, "list": 2.0}
    return replace(_ordinary(rng), groups=rng.randint(2, 4), operations={**OPERATIONS, **heavy, "write": 5.0})


def _appends(rng: random.Random) -> Workload:
    operations = {
        "append": 10.0,
        "write": 3.0,
        "look": 2.0,
        "shrink": 0.5,
        "grow": 0.5,
        "attributes": 1.0,
        "rebase": 1.0,
    }
    return replace(_ordinary(rng), writers=rng.randint(3, 7), arrays=rng.randint(1, 2), operations=operations)


def _serial(rng: random.Random) -> Workload:
    operations = {
        "look": 8.0,
        "list": 3.0,
        "write": 3.0,
        "create": 2.0,
        "delete": 1.0,
        "attributes": 2.0,
        "append": 1.0,
    }
    return replace(
        _ordinary(rng),
        writers=rng.randint(3, 7),
        arrays=rng.randint(1, 2),
        serializable=rng.choice((0.6, 1.0)),
        operations={**operations, "rebase": 0.5, "fork": 0.5, "move": 0.5, "shrink": 0.3},
    )


def _forks(rng: random.Random) -> Workload:
    return replace(_ordinary(rng), operations={**OPERATIONS, "fork": 12.0})


def _amends(rng: random.Random) -> Workload:
    return replace(_ordinary(rng), writers=rng.randint(1, 3), amending=rng.choice((0.2, 0.5)), turns=(4, 9))


def _virtual(rng: random.Random) -> Workload:
    """Chunks that are ranges of sources, which others overwrite."""
    operations = {"refer": 8.0, "look": 8.0, "write": 2.0, "erase": 1.0, "attributes": 1.0, "delete": 0.5, "list": 1.0}
    return replace(
        _ordinary(rng),
        overwriters=rng.randint(1, 2),
        readers=rng.randint(1, 3),
        serializable=0.0,
        operations=operations,
        solvers={"none": 1.0, "detector": 5.0, "basic": 2.0},
    )


def _long(rng: random.Random) -> Workload:
    """Enough commits for checkpoints, pages and folds."""
    return replace(_ordinary(rng), writers=rng.randint(3, 5), turns=(25, 35), steps=(1, 2), think=0.05)


def _lifecycle(rng: random.Random) -> Workload:
    """Few nodes and many turns, so that there is a lot to forget."""
    few = replace(_ordinary(rng), arrays=rng.randint(1, 2), groups=rng.randint(0, 1), turns=(4, 9), steps=(1, 3))
    return replace(few, writers=rng.randint(1, 4), readers=rng.randint(0, 2), referrers=rng.choice((0, 1)))


def _upkeep(rng: random.Random, workload: Workload) -> Workload:
    return replace(
        workload,
        readers=max(1, workload.readers),
        operators=rng.choice((0, 1, 1, 2)),
        expirers=rng.choice((0, 1, 1)),
        collectors=rng.choice((1, 1, 2)),
        compactors=rng.choice((0, 0, 1)),
        lingering=rng.choice((0.1, 0.4)),
        linger=rng.choice((1.0, 5.0)),
    )


def _hours(rng: random.Random, workload: Workload) -> Workload:
    """Have hours between transactions, so that records go whose snapshots expired an hour ago."""
    busy = _upkeep(rng, workload)
    return replace(busy, think=rng.choice((200.0, 1000.0)), expirers=1, linger=rng.choice((1000.0, 5000.0)))


def _killed_collectors(rng: random.Random, workload: Workload) -> Workload:
    """Have several collect, each by a clock of its own."""
    return replace(_upkeep(rng, workload), operators=rng.choice((1, 2)), expirers=1, collectors=rng.choice((2, 3)))


def _some_upkeep(rng: random.Random, workload: Workload) -> Workload:
    return _upkeep(rng, workload) if rng.random() < 0.2 else workload


def _mixed(rng: random.Random) -> Workload:
    kinds = (_ordinary, _ordinary, _busy, _hierarchy, _appends, _serial, _forks)
    return _long(rng) if rng.random() < 0.03 else rng.choice(kinds)(rng)


def _until(faults: Faults, rng: random.Random) -> Faults:
    return replace(faults, until=rng.uniform(*_FAULTY_SECONDS))


def _calm(_: random.Random) -> Faults:
    return Faults.none()


def _requests(rng: random.Random) -> Faults:
    heavy = Faults.heavy()
    return _until(replace(heavy, pauses=0.0, crashes=0.0), rng)


def _proxied(rng: random.Random) -> Faults:
    rate = rng.choice((0.05, 0.2))
    return _until(Faults(refused=rate, failed=rate / 4, repeated=rate, lateness=rng.choice((0.2, 5.0))), rng)


def _crashes(rng: random.Random) -> Faults:
    return _until(Faults(crashes=rng.choice((0.5, 2.0, 5.0)), downtime=rng.choice((0.05, 0.5)), skew=10.0), rng)


def _pauses(rng: random.Random) -> Faults:
    return _until(Faults(pauses=rng.choice((0.2, 1.0, 3.0)), skew=1000.0), rng)


def _swarm(rng: random.Random) -> Faults:
    kind = rng.random()
    if kind < 0.15:
        return Faults.none()
    return _until(Faults.heavy() if kind < 0.3 else Faults.swarm(rng), rng)


def _slow(rng: random.Random) -> Faults:
    faults = _swarm(rng)
    if not faults.of_requests and not faults.pauses and not faults.crashes:
        return faults
    pause = Delay(rng.choice((10.0, 1500.0)), 0.7)
    slow = replace(faults, until=rng.uniform(2_000.0, 40_000.0), pauses=faults.pauses * 500, pause=pause)
    return replace(slow, crashes=faults.crashes * 200, lateness=rng.choice((10.0, 300.0)))


def _clocks(rng: random.Random) -> Faults:
    crashes = rng.choice((0.5, 2.0, 5.0))
    return _until(Faults(crashes=crashes, downtime=rng.choice((0.05, 0.5)), skew=100_000.0), rng)


PROFILES: Mapping[str, Profile] = {
    "calm": Profile("a bit of everything, and nothing fails", _ordinary, _calm),
    "busy": Profile("many writers on one array", _busy, _calm),
    "crowd": Profile("many writers on one array, with any mixture of faults", _busy, _swarm),
    "hierarchy": Profile("nodes are made, moved and deleted", _hierarchy, _calm),
    "appends": Profile("several append to one array", _appends, _calm),
    "serial": Profile("transactions that depend on what they read", _serial, _calm),
    "forks": Profile("transactions of many processes", _forks, _swarm),
    "faults": Profile("requests fail in every way", _ordinary, _requests),
    "proxied": Profile(
        "requests are sent twice, and the second is answered", _lifecycle, _proxied, _upkeep, besides=0.4
    ),
    "crashes": Profile("processes die and start again", _ordinary, _crashes),
    "pauses": Profile("processes stop for a while", _ordinary, _pauses),
    "amends": Profile(
        "newest snapshots are replaced, some of them kept by refs", _amends, _swarm, _some_upkeep, besides=0.4
    ),
    "long": Profile("enough commits for checkpoints and folds", _long, _swarm),
    "lifecycle": Profile(
        "snapshots expire, refs are deleted, garbage is collected", _lifecycle, _swarm, _upkeep, besides=0.4
    ),
    "hours": Profile("the same over hours, so that records go, too", _lifecycle, _slow, _hours, besides=_BESIDES),
    "clocks": Profile(
        "the same under clocks a day apart, and collectors die", _lifecycle, _clocks, _killed_collectors, besides=0.4
    ),
    "virtual": Profile("chunks refer to sources that others overwrite", _virtual, _swarm, _some_upkeep),
    "mixed": Profile("any of these, with any mixture of faults", _mixed, _swarm, _some_upkeep, besides=_BESIDES),
}
"""Kinds of runs."""
