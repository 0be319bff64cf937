"""Faults of requests and of processes in a simulation, and their rates."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, fields, replace

from arraystore.simulation.latency import Delay

__all__ = ["Faults"]


@dataclass(frozen=True)
class Faults:
    """Rates of faults: probabilities of those of requests, and mean times between those of processes.

    Parameters
    ----------
    lost
        A request never takes effect; its sender hears nothing and gives up after `timeout`.
    unacknowledged
        It takes effect; the answer is lost.
    late
        It takes effect some time after its sender has timed out, up to `lateness`.
    duplicated
        It takes effect a second time, up to `lateness` later.
    throttled
        It is refused with 503, without effect.
    refused
        A PUT-if-absent writes, and is answered as existing: an intermediary has repeated the request, and returns the
        answer to the second.
    failed
        It takes effect, and is answered with 500, at once.
    repeated
        It takes effect twice, the second time up to `lateness` later, and only that one is answered.
    stale_hints
        A read of a hint returns an older value, or none.
    slow_listings
        A listing is answered long after it has looked, up to `lateness`.
    broken
        It fails at once with an error of the storage's own (EIO, 500 before anything was done), without effect.
    short
        A read is answered with fewer bytes than were announced, which the client notices, as HTTP clients do.
    late_listings
        Most seconds of writes that a listing misses; up to so many, drawn for each listing.
    timeout
        Seconds after which a sender gives a request up.
    tries
        Attempts of a sender for each request before its caller gets a `StorageError`.
    lateness
        Most seconds by which something is late.
    pauses
        Mean seconds between two pauses of a process; 0 for none.
    pause
        Duration of a pause.
    crashes
        Mean seconds between two crashes of a process; 0 for none.
    downtime
        Mean seconds until a process that crashed starts again.
    skew
        Most seconds by which a process's clock is off.
    until
        Virtual time from which there are no more faults, so that everything can end.
    """

    lost: float = 0.0
    unacknowledged: float = 0.0
    late: float = 0.0
    duplicated: float = 0.0
    throttled: float = 0.0
    stale_hints: float = 0.0
    slow_listings: float = 0.0
    refused: float = 0.0
    failed: float = 0.0
    repeated: float = 0.0
    timeout: float = 2.0
    tries: int = 3
    lateness: float = 10.0
    pauses: float = 0.0
    pause: Delay = Delay(1.0, 1.5)  # noqa: RUF009 - frozen
    crashes: float = 0.0
    downtime: float = 1.0
    skew: float = 0.0
    until: float = math.inf
    broken: float = 0.0
    short: float = 0.0
    late_listings: float = 0.0

    @property
    def of_requests(self) -> bool:
        """Tell whether there are faults of requests."""
        return any(getattr(self, name) for name in (*_OF_REQUESTS, *_SENT_TWICE, *_OF_STORAGE))

    def sent_twice(self, rng: random.Random) -> Faults:
        """Return the same with a mixture of faults of intermediaries, which repeat requests."""
        heavy = Faults.heavy()
        chosen = {
            name: getattr(heavy, name) * rng.choice((0.2, 1.0, 4.0)) for name in _SENT_TWICE if rng.random() < 0.5
        }
        return replace(self, **chosen)

    def of_storage(self, rng: random.Random) -> Faults:
        """Return the same with a mixture of faults of a storage: errors, short answers, late listings."""
        broken, short = (rng.choice((0.01, 0.05)) if rng.random() < 0.4 else 0.0 for _ in range(2))
        lag = rng.choice((0.5, 2.0, 10.0)) if rng.random() < 0.4 else 0.0
        return replace(self, broken=broken, short=short, late_listings=lag)

    @classmethod
    def none(cls) -> Faults:
        """Return no faults."""
        return cls()

    @classmethod
    def light(cls) -> Faults:
        """Return the faults of a bad day."""
        return cls(
            0.005, 0.005, 0.002, 0.005, 0.01, 0.05, 0.05, 0.002, 0.002, 0.002, pauses=30.0, crashes=120.0, skew=5.0
        )

    @classmethod
    def heavy(cls) -> Faults:
        """Everything, all the time."""
        return cls(
            *(0.05, 0.05, 0.02, 0.05, 0.05, 0.5, 0.2),
            *(0.03, 0.03, 0.03),
            tries=2,
            pauses=3.0,
            crashes=10.0,
            downtime=0.5,
            skew=100_000.0,
        )

    @classmethod
    def swarm(cls, rng: random.Random) -> Faults:
        """Draw a mixture: runs in which few kinds of faults are frequent find what a bit of everything does not."""
        heavy, none = cls.heavy(), cls.none()
        chosen = {
            field.name: getattr(heavy, field.name) * rng.choice((0.2, 1.0, 2.0))
            for field in fields(cls)
            if field.name in _SWARMED and rng.random() < 0.4
        }
        return replace(none, tries=rng.choice((1, 2, 3)), timeout=rng.choice((0.5, 2.0)), **chosen)


_OF_REQUESTS = ("lost", "unacknowledged", "late", "duplicated", "throttled", "stale_hints", "slow_listings")
_SENT_TWICE = ("refused", "failed", "repeated")
_OF_STORAGE = ("broken", "short", "late_listings")
_SWARMED = (*_OF_REQUESTS, "pauses", "crashes", "skew")
