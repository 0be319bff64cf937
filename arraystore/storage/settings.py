"""How patient and how busy a storage is: time limits, retries, concurrency."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from arraystore.errors import InvalidInputError

__all__ = [
    "StorageConcurrencySettings",
    "StorageRetriesSettings",
    "StorageSettings",
    "StorageTimeoutSettings",
    "check_listing_lag",
]

MiB = 1024 * 1024


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise InvalidInputError(f"storage setting {name}={value!r}: it must be greater than 0")


def check_listing_lag(seconds: float) -> float:
    """Return a listing lag as a float, if it is one.

    Raises
    ------
    InvalidInputError
        If it is negative, infinite, or not a number.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise InvalidInputError(f"storage setting listing_lag={seconds!r}: it must be a number of seconds >= 0")
    return float(seconds)


@dataclass(frozen=True, slots=True)
class StorageTimeoutSettings:
    """Time limits of one request, in seconds.

    Parameters
    ----------
    connect
        Until the connection stands.
    request
        Until the response is complete, for one attempt.
    read
        Longest pause while bytes come in; None for no limit of its own.
    """

    connect: float = 5.0
    request: float = 60.0
    read: float | None = 60.0

    def __post_init__(self) -> None:
        _positive(connect=self.connect, request=self.request, read=1.0 if self.read is None else self.read)


@dataclass(frozen=True, slots=True)
class StorageRetriesSettings:
    """How often a request that failed for a passing reason is repeated, and after which pauses.

    The pauses grow twofold and are drawn at random below their bound, so that writers which failed together
    do not come back together.

    Parameters
    ----------
    max_tries
        Attempts in all, the first one included; 1 means that nothing is repeated.
    initial_backoff, max_backoff
        Bounds of the first pause and of the longest, in seconds.
    total
        No attempt starts later than this after the first, in seconds.
    """

    max_tries: int = 10
    initial_backoff: float = 0.1
    max_backoff: float = 15.0
    total: float = 180.0

    def __post_init__(self) -> None:
        _positive(
            max_tries=self.max_tries,
            initial_backoff=self.initial_backoff,
            max_backoff=self.max_backoff,
            total=self.total,
        )

    def pause(self, failures: int, elapsed: float, rng: random.Random) -> float | None:
        """Seconds to wait after the given number of failures, or None when it is time to give up."""
        if failures >= self.max_tries:
            return None
        bound = min(self.max_backoff, self.initial_backoff * 2 ** min(failures - 1, 30))
        delay = rng.uniform(bound / 10, bound)
        return None if elapsed + delay > self.total else delay


@dataclass(frozen=True, slots=True)
class StorageConcurrencySettings:
    """How much happens at once.

    Parameters
    ----------
    max_requests
        Asynchronous requests of one storage in flight at a time, on one event loop.  Synchronous requests are bounded
        by the number of threads that make them.
    max_parts
        Parts of one multipart upload in flight at a time.
    """

    max_requests: int = 256
    max_parts: int = 8

    def __post_init__(self) -> None:
        _positive(max_requests=self.max_requests, max_parts=self.max_parts)


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Settings of a storage on an object store; none of them changes what is stored.

    Parameters
    ----------
    timeouts, retries, concurrency
        See the classes.
    minimum_size_for_multipart_upload
        Objects of more bytes than this are uploaded in parts.
    multipart_part_size
        Bytes of one part.
    listing_lag
        Most seconds for which a listing may miss what was written; 0 where it never does, as of S3, GCS and Azure.
    """

    timeouts: StorageTimeoutSettings = field(default_factory=StorageTimeoutSettings)
    retries: StorageRetriesSettings = field(default_factory=StorageRetriesSettings)
    concurrency: StorageConcurrencySettings = field(default_factory=StorageConcurrencySettings)
    minimum_size_for_multipart_upload: int = 64 * MiB
    multipart_part_size: int = 16 * MiB
    listing_lag: float = 0.0

    def __post_init__(self) -> None:
        check_listing_lag(self.listing_lag)
        _positive(
            minimum_size_for_multipart_upload=self.minimum_size_for_multipart_upload,
            multipart_part_size=self.multipart_part_size,
        )
        if self.multipart_part_size < 5 * MiB:
            raise InvalidInputError(
                f"storage setting multipart_part_size={self.multipart_part_size}: S3 takes no parts below 5 MiB"
            )
