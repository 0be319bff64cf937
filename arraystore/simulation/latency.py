"""Latencies of requests: lognormal times with a floor, for several object stores.

The figures for S3 are those of a published simulation of table formats: GET of 27 ms in the median with sigma 0.62,
PUT of 60 ms and 20 ms per MiB with sigma 0.29, neither below 10 ms.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

__all__ = ["Delay", "Latencies"]

_MIB = 1 << 20


@dataclass(frozen=True)
class Delay:
    """A lognormal time.

    Parameters
    ----------
    median
        Seconds, of an empty object.
    sigma
        Standard deviation of the logarithm.
    floor
        No request is faster.
    per_mib
        Seconds that each MiB adds to the median.
    """

    median: float
    sigma: float = 0.0
    floor: float = 0.0
    per_mib: float = 0.0

    def draw(self, rng: random.Random, size: int = 0) -> float:
        """Return seconds for one request of some bytes."""
        median = self.median + self.per_mib * size / _MIB
        return max(self.floor, median * math.exp(rng.gauss(0.0, self.sigma)) if self.sigma else median)


@dataclass(frozen=True)
class Latencies:
    """Latencies of the requests of one kind of storage.

    Parameters
    ----------
    get
        Of GET, HEAD, LIST and DELETE.
    put
        Of PUT.
    create
        Of a PUT that succeeds only if nothing is there; that of `put` by default.
    parallel
        Most requests of one process at a time; None for no limit.
    """

    get: Delay
    put: Delay
    create: Delay | None = None
    parallel: int | None = None

    def draw(self, operation: str, size: int, rng: random.Random) -> float:
        """Return seconds for one request."""
        if operation in ("put_if_absent", "put_new"):
            return (self.create or self.put).draw(rng, size)
        return self.put.draw(rng, size) if operation == "put" else self.get.draw(rng, 0)

    @classmethod
    def s3(cls, *, parallel: int | None = None) -> Latencies:
        """S3 Standard, as published (GET 27 ms, PUT 60 ms); the same study gives 61 ms for a conditional PUT."""
        return cls(Delay(0.027, 0.62, 0.010), Delay(0.060, 0.29, 0.010, 0.020), parallel=parallel)

    @classmethod
    def s3_express(cls, *, parallel: int | None = None) -> Latencies:
        """S3 Express One Zone: "single-digit milliseconds" is all that its vendor publishes.

        The figures here (GET 5 ms, PUT 8 ms, S3's sigma for both halved) are an assumption within that.
        """
        return cls(Delay(0.005, 0.31, 0.002), Delay(0.008, 0.15, 0.003, 0.005), parallel=parallel)

    @classmethod
    def azure(cls, *, parallel: int | None = None) -> Latencies:
        """Azure Premium: published is a conditional write of 64 ms in the median; GET and PUT are taken from S3."""
        s3 = cls.s3()
        return cls(s3.get, s3.put, Delay(0.064, 0.29, 0.010, 0.020), parallel)

    @classmethod
    def gcs(cls, *, parallel: int | None = None) -> Latencies:
        """Google Cloud Storage: no medians are published with the study; an assumption of S3's times a half more.

        Its limit of about one write a second of *one* object is not part of this: no object is written twice.
        """
        return cls(Delay(0.040, 0.62, 0.010), Delay(0.090, 0.29, 0.010, 0.020), parallel=parallel)

    @classmethod
    def fixed(cls, get: float, put: float | None = None) -> Latencies:
        """Return latencies that are always the same."""
        return cls(Delay(get), Delay(get if put is None else put))
