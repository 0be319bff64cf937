"""Making a storage fail on purpose: before a request takes effect, or after it did but before the answer came."""

from __future__ import annotations

import fnmatch
import random
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from arraystore.errors import InvalidInputError, StorageError
from arraystore.storage.forking import renew_locks_after_fork
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo, Storage
from arraystore.storage.wrapper import WrapperStorage

__all__ = ["Fault", "FaultyStorage", "InjectedFaultError"]

_OPERATIONS = frozenset({"*", "get", "get_ranges", "put", "put_if_absent", "head", "delete", "list", "sync"})


class InjectedFaultError(StorageError):
    """A failure that a `FaultyStorage` made."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Which calls fail, and how.

    Parameters
    ----------
    operation
        One of get, get_ranges, put, put_if_absent, head, delete, list, sync, or ``*`` for all; synchronous twins count
        as their operation.
    key
        Shell-style pattern that the key has to match, for a listing its prefix and for a delete any of its keys.
    when
        ``before``: nothing happens.  ``after``: the request takes effect and the acknowledgement is lost.
    first
        Number, from 1, of the first matching call that fails.
    times
        How many matching calls fail from then on; None for all.
    probability
        Of those, each fails with this probability.
    """

    operation: str = "*"
    key: str = "*"
    when: Literal["before", "after"] = "before"
    first: int = 1
    times: int | None = 1
    probability: float = 1.0

    def __post_init__(self) -> None:
        if self.operation not in _OPERATIONS:
            raise InvalidInputError(f"no operation {self.operation!r} can fail: choose from {sorted(_OPERATIONS)}")
        if self.first < 1 or not 0 <= self.probability <= 1 or self.when not in ("before", "after"):
            raise InvalidInputError(f"{self!r}: first starts from 1, probability is 0 to 1, when is before or after")

    def matches(self, operation: str, keys: Sequence[str]) -> bool:
        """Whether this is about such a call."""
        return self.operation in ("*", operation) and any(fnmatch.fnmatchcase(key, self.key) for key in keys)


class FaultyStorage(WrapperStorage):
    """Fails as told; the same seed and the same calls give the same failures.

    Parameters
    ----------
    inner
        The storage that does the work.
    faults
        What fails.  Each counts its matching calls by itself; the first one that applies decides.
    seed
        For faults with a probability; each pickled copy starts from it again, with all counts at zero.
    """

    def __init__(self, inner: Storage, faults: Sequence[Fault] = (), *, seed: int = 0) -> None:
        super().__init__(inner)
        self._faults = tuple(faults)
        self._seed = seed
        self._rng = random.Random(seed)
        self._seen = [0] * len(self._faults)
        self._injected: list[tuple[str, str, str]] = []
        self.renew_locks()
        renew_locks_after_fork(self)

    def renew_locks(self) -> None:
        """Replace the lock, in a forked child."""
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_faulty_storage, (self._inner, self._faults, self._seed))

    @property
    def injected(self) -> tuple[tuple[str, str, str], ...]:
        """The failures so far: operation, key, and ``before`` or ``after``."""
        with self._lock:
            return tuple(self._injected)

    def _due(self, operation: str, *keys: str) -> str | None:
        """When this call fails, if it does; call once per call."""
        due: str | None = None
        with self._lock:
            for index, fault in enumerate(self._faults):
                if not fault.matches(operation, keys):
                    continue
                self._seen[index] += 1
                turn = self._seen[index] - fault.first
                in_turn = turn >= 0 and (fault.times is None or turn < fault.times)
                if in_turn and due is None and (fault.probability >= 1 or self._rng.random() < fault.probability):
                    due = fault.when
            if due is not None:
                self._injected.append((operation, keys[0], due))
        return due

    def _fail_if(self, due: str | None, when: str, operation: str, key: str) -> None:
        if due == when:
            effect = "before it took effect" if when == "before" else "after it took effect"
            raise InjectedFaultError(f"{self.location}: {operation} of {key!r} failed on purpose, {effect}")

    async def get(self, key: str) -> BytesLike:
        """Return a whole object."""
        due = self._due("get", key)
        self._fail_if(due, "before", "get", key)
        data = await super().get(key)
        self._fail_if(due, "after", "get", key)
        return data

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object."""
        due = self._due("get_ranges", key)
        self._fail_if(due, "before", "get_ranges", key)
        data = await super().get_ranges(key, ranges)
        self._fail_if(due, "after", "get_ranges", key)
        return data

    async def get_source_ranges(self, key: str, ranges: Sequence[ByteRange]) -> tuple[list[BytesLike], ObjectInfo]:
        """Return byte ranges of an object, and its state; fails as `get_ranges`, without ranges as `head`."""
        operation = "get_ranges" if ranges else "head"
        due = self._due(operation, key)
        self._fail_if(due, "before", operation, key)
        found = await super().get_source_ranges(key, ranges)
        self._fail_if(due, "after", operation, key)
        return found

    async def put(self, key: str, data: BytesLike) -> None:
        """Write an object."""
        due = self._due("put", key)
        self._fail_if(due, "before", "put", key)
        await super().put(key, data)
        self._fail_if(due, "after", "put", key)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Write an object unless one of this key exists."""
        due = self._due("put_if_absent", key)
        self._fail_if(due, "before", "put_if_absent", key)
        written = await super().put_if_absent(key, data)
        self._fail_if(due, "after", "put_if_absent", key)
        return written

    async def head(self, key: str) -> ObjectInfo:
        """Tell about one object."""
        due = self._due("head", key)
        self._fail_if(due, "before", "head", key)
        info = await super().head(key)
        self._fail_if(due, "after", "head", key)
        return info

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete objects."""
        due = self._due("delete", *keys)
        self._fail_if(due, "before", "delete", ", ".join(keys))
        failures = await super().delete(keys)
        self._fail_if(due, "after", "delete", ", ".join(keys))
        return failures

    async def sync(self) -> None:
        """Return once every earlier `put` is durable."""
        due = self._due("sync", "")
        self._fail_if(due, "before", "sync", "")
        await super().sync()
        self._fail_if(due, "after", "sync", "")

    def get_sync(self, key: str) -> BytesLike:
        """Like `get`."""
        due = self._due("get", key)
        self._fail_if(due, "before", "get", key)
        data = super().get_sync(key)
        self._fail_if(due, "after", "get", key)
        return data

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        """One range, like `get_ranges`."""
        due = self._due("get_ranges", key)
        self._fail_if(due, "before", "get_ranges", key)
        data = super().get_range_sync(key, start, stop)
        self._fail_if(due, "after", "get_ranges", key)
        return data

    def get_source_range_sync(self, key: str, start: int, stop: int) -> tuple[BytesLike, ObjectInfo]:
        """One range, like `get_source_ranges`."""
        due = self._due("get_ranges", key)
        self._fail_if(due, "before", "get_ranges", key)
        found = super().get_source_range_sync(key, start, stop)
        self._fail_if(due, "after", "get_ranges", key)
        return found

    def put_sync(self, key: str, data: BytesLike) -> None:
        """Like `put`."""
        due = self._due("put", key)
        self._fail_if(due, "before", "put", key)
        super().put_sync(key, data)
        self._fail_if(due, "after", "put", key)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects; ``after`` fails when the first page has been given."""
        due = self._due("list", prefix)
        self._fail_if(due, "before", "list", prefix)
        async for page in self._inner.list(prefix, start_after):
            yield page
            self._fail_if(due, "after", "list", prefix)


def _faulty_storage(inner: Storage, faults: Sequence[Fault], seed: int) -> FaultyStorage:
    return FaultyStorage(inner, faults, seed=seed)
