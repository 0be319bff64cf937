"""Storages for tests."""

from __future__ import annotations

from functools import partial
from typing import Any

from arraystore import storage as core
from arraystore.compat.icechunk.storage import Storage, StorageSettings

__all__ = ["LatencyStorage"]


class LatencyStorage(Storage):
    """A storage whose requests take as long as told."""

    def __init__(self, inner: Storage, *, write_latency_ms: int = 0, read_latency_ms: int = 0) -> None:
        super().__init__(partial(_slow, self), {"type": "latency", "inner": inner})
        self.inner = inner
        self.write_latency_ms = write_latency_ms
        self.read_latency_ms = read_latency_ms

    def __reduce__(self) -> tuple[Any, ...]:
        return _latency, (self.inner, self.write_latency_ms, self.read_latency_ms)


def _latency(inner: Storage, write: int, read: int) -> LatencyStorage:
    return LatencyStorage(inner, write_latency_ms=write, read_latency_ms=read)


def _slow(storage: LatencyStorage, settings: StorageSettings | None, agent: str) -> core.Storage:
    return core.LatencyStorage(storage.inner.core(settings, agent))
