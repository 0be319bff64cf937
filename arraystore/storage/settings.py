"""Timeouts, retries and concurrency of a storage."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

from arraystore.errors import InvalidInputError
from arraystore.storage.protocol import check_listing_lag

__all__ = [
    "StorageConcurrencySettings",
    "StorageHedgingSettings",
    "StorageRetriesSettings",
    "StorageSettings",
    "StorageTimeoutSettings",
]

MiB = 1024 * 1024


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise InvalidInputError(f"storage setting {name}={value!r} must be > 0")


def _check_class_names(*names: str | None) -> None:
    for name in names:
        if name is not None and not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise InvalidInputError(f"{name!r} is not a valid storage class: it must be a name of the service's")


@dataclass(frozen=True, slots=True)
class StorageTimeoutSettings:
    """Timeouts of one request, in seconds.

    Parameters
    ----------
    connect
        Time to establish a connection.
    request
        Time until the response is complete, for one attempt.
    read
        Longest pause within a response; None for no limit.
    """

    connect: float = 5.0
    request: float = 60.0
    read: float | None = 60.0

    def __post_init__(self) -> None:
        _check_positive(connect=self.connect, request=self.request, read=1.0 if self.read is None else self.read)


@dataclass(frozen=True, slots=True)
class StorageRetriesSettings:
    """Retries of transient failures, with exponential backoff.

    The bound of the delay doubles with each attempt, and the delay is random below it, so that writers that failed
    together do not retry together.

    Parameters
    ----------
    max_tries
        Maximum number of attempts, the first one included; 1 disables retries.
    initial_backoff, max_backoff
        Bounds of the first delay and of the longest, in seconds.
    total
        Time in seconds after the first attempt, after which no other starts.
    """

    max_tries: int = 10
    initial_backoff: float = 0.1
    max_backoff: float = 15.0
    total: float = 180.0

    def __post_init__(self) -> None:
        _check_positive(
            max_tries=self.max_tries,
            initial_backoff=self.initial_backoff,
            max_backoff=self.max_backoff,
            total=self.total,
        )

    def pause(self, failures: int, elapsed: float, rng: random.Random) -> float | None:
        """Return the delay in seconds after a number of failures, None when no attempt is left."""
        if failures >= self.max_tries:
            return None
        bound = min(self.max_backoff, self.initial_backoff * 2 ** min(failures - 1, 30))
        delay = rng.uniform(bound / 10, bound)
        return None if elapsed + delay > self.total else delay


@dataclass(frozen=True, slots=True)
class StorageConcurrencySettings:
    """Limits of concurrency.

    Parameters
    ----------
    max_requests
        Maximum number of requests of one process to one bucket in flight, from all threads and event loops.
    min_requests
        Number of requests that may be in flight however much the service throttles.
    max_parts
        Maximum number of parts of one multipart upload in flight; they count as one request.
    """

    max_requests: int = 256
    min_requests: int = 4
    max_parts: int = 8

    def __post_init__(self) -> None:
        _check_positive(max_requests=self.max_requests, min_requests=self.min_requests, max_parts=self.max_parts)


@dataclass(frozen=True, slots=True)
class StorageHedgingSettings:
    """Hedged reads: an asynchronous read that is late is sent a second time, and the first answer wins.

    Parameters
    ----------
    budget
        Maximum fraction of reads that are sent twice; 0 disables hedging.
    multiple
        Multiple of the 95th percentile of recent reads of similar size after which a read is late.
    minimum_delay
        Time in seconds before which no read is late.
    """

    budget: float = 0.02
    multiple: float = 3.0
    minimum_delay: float = 0.05

    def __post_init__(self) -> None:
        _check_positive(multiple=self.multiple, minimum_delay=self.minimum_delay)
        if not 0 <= self.budget <= 1:
            raise InvalidInputError(f"storage setting budget={self.budget!r} must be >= 0 and <= 1")


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Settings of a storage on an object store; none of them affects the stored bytes.

    Storage classes are those of the service (``"STANDARD_IA"``, ``"NEARLINE"``, ``"Cool"``), for the objects that this
    storage writes; the service's default where there is none.  fsspec's filesystems have none.

    Parameters
    ----------
    timeouts, retries, concurrency
        Settings of requests, see the classes.
    minimum_size_for_multipart_upload
        Size in bytes above which objects are uploaded in parts.
    multipart_part_size
        Size in bytes of one part.
    listing_lag
        Maximum time in seconds for which a listing may miss new objects; 0 for consistent listings, as of S3, GCS and
        Azure.
    hedging
        Settings of reads that are sent twice, see the class.
    chunks_storage_class
        Storage class of objects with chunks; written once, and rewritten by compaction only.
    metadata_storage_class
        Storage class of all others, which are small and read by everybody who opens the repository.
    """

    timeouts: StorageTimeoutSettings = field(default_factory=StorageTimeoutSettings)
    retries: StorageRetriesSettings = field(default_factory=StorageRetriesSettings)
    concurrency: StorageConcurrencySettings = field(default_factory=StorageConcurrencySettings)
    minimum_size_for_multipart_upload: int = 64 * MiB
    multipart_part_size: int = 16 * MiB
    listing_lag: float = 0.0
    hedging: StorageHedgingSettings = field(default_factory=StorageHedgingSettings)
    chunks_storage_class: str | None = None
    metadata_storage_class: str | None = None

    def __post_init__(self) -> None:
        _check_class_names(self.chunks_storage_class, self.metadata_storage_class)
        check_listing_lag(self.listing_lag)
        _check_positive(
            minimum_size_for_multipart_upload=self.minimum_size_for_multipart_upload,
            multipart_part_size=self.multipart_part_size,
        )
        if self.multipart_part_size < 5 * MiB:
            raise InvalidInputError(
                f"storage setting multipart_part_size={self.multipart_part_size} must be >= 5 MiB, the minimum of S3"
            )
