"""Settings of storages: how many requests, how long they may take, how often they are repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from arraystore import storage as core
from arraystore.compat.icechunk._display import Record

__all__ = [
    "StorageConcurrencySettings",
    "StorageRetriesSettings",
    "StorageSettings",
    "StorageTimeoutSettings",
]


@dataclass(repr=False, unsafe_hash=True)
class StorageRetriesSettings(Record):
    """Count of repetitions of a request, and pauses before them."""

    _title: ClassVar[str] = "icechunk.storage.StorageRetriesSettings"
    _defaults: ClassVar[Mapping[str, Any]] = {"max_tries": 10, "initial_backoff_ms": 100, "max_backoff_ms": 180_000}

    max_tries: int | None = None
    initial_backoff_ms: int | None = None
    max_backoff_ms: int | None = None


@dataclass(repr=False, unsafe_hash=True)
class StorageTimeoutSettings(Record):
    """Longest time of a connection and of a request."""

    _title: ClassVar[str] = "icechunk.storage.StorageTimeoutSettings"

    connect_timeout_ms: int | None = None
    read_timeout_ms: int | None = None
    operation_timeout_ms: int | None = None
    operation_attempt_timeout_ms: int | None = None


@dataclass(repr=False, unsafe_hash=True)
class StorageConcurrencySettings(Record):
    """Count of requests at once for an object; arraystore sees to it itself."""

    _title: ClassVar[str] = "icechunk.storage.StorageConcurrencySettings"
    _defaults: ClassVar[Mapping[str, Any]] = {
        "max_concurrent_requests_for_object": 18,
        "ideal_concurrent_request_size": 12 << 20,
    }

    max_concurrent_requests_for_object: int | None = None
    ideal_concurrent_request_size: int | None = None


@dataclass(repr=False, unsafe_hash=True)
class StorageSettings(Record):
    """Settings of a storage."""

    _title: ClassVar[str] = "icechunk.storage.StorageSettings"
    _defaults: ClassVar[Mapping[str, Any]] = {
        "concurrency": StorageConcurrencySettings(),
        "retries": StorageRetriesSettings(),
        "unsafe_use_conditional_create": True,
        "unsafe_use_conditional_update": True,
        "unsafe_use_metadata": True,
        "minimum_size_for_multipart_upload": 100 << 20,
    }

    concurrency: StorageConcurrencySettings | None = None
    retries: StorageRetriesSettings | None = None
    timeouts: StorageTimeoutSettings | None = None
    unsafe_use_conditional_create: bool | None = None
    unsafe_use_conditional_update: bool | None = None
    unsafe_use_metadata: bool | None = None
    storage_class: str | None = None
    metadata_storage_class: str | None = None
    chunks_storage_class: str | None = None
    minimum_size_for_multipart_upload: int | None = None


def default_settings() -> StorageSettings:
    """Return the settings that hold where nothing is said."""
    return StorageSettings(
        concurrency=StorageConcurrencySettings(18, 12 << 20),
        retries=StorageRetriesSettings(10, 100, 180_000),
        unsafe_use_conditional_create=True,
        unsafe_use_conditional_update=True,
        unsafe_use_metadata=True,
        minimum_size_for_multipart_upload=100 << 20,
    )


def core_settings(settings: StorageSettings | None) -> core.StorageSettings:
    """Return settings as arraystore has them; what is not said stays at its default."""
    if settings is None:
        return core.StorageSettings()
    changed: dict[str, Any] = {}
    if settings.timeouts is not None:
        changed["timeouts"] = core.StorageTimeoutSettings(
            **_seconds(
                connect=settings.timeouts.connect_timeout_ms,
                read=settings.timeouts.read_timeout_ms,
                request=settings.timeouts.operation_attempt_timeout_ms,
            )
        )
    if settings.retries is not None:
        tries = {} if settings.retries.max_tries is None else {"max_tries": settings.retries.max_tries}
        pauses = _seconds(
            initial_backoff=settings.retries.initial_backoff_ms, max_backoff=settings.retries.max_backoff_ms
        )
        changed["retries"] = core.StorageRetriesSettings(**tries, **pauses)
    if settings.minimum_size_for_multipart_upload is not None:
        changed["minimum_size_for_multipart_upload"] = settings.minimum_size_for_multipart_upload
    changed["chunks_storage_class"] = settings.chunks_storage_class or settings.storage_class
    changed["metadata_storage_class"] = settings.metadata_storage_class or settings.storage_class
    return core.StorageSettings(**changed)


def _seconds(**milliseconds: int | None) -> dict[str, Any]:
    """Return what is said, in seconds; none of them may be 0."""
    return {name: max(value, 1) / 1000 for name, value in milliseconds.items() if value is not None}
