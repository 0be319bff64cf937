"""Fault injection: requests that fail before they take effect, or whose acknowledgement is lost."""

from __future__ import annotations

import fnmatch
import random
from collections.abc import AsyncIterator, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from arraystore.errors import InvalidInputError, StorageError
from arraystore.storage.forking import ForkSafeLock
from arraystore.storage.protocol import ObjectInfo, Storage
from arraystore.storage.wrapper import StorageRequest, WrapperStorage

__all__ = ["Fault", "FaultyStorage", "InjectedFaultError"]

_OPERATIONS = frozenset({"*", "get", "get_ranges", "put", "put_if_absent", "head", "delete", "list", "sync"})


class InjectedFaultError(StorageError):
    """Failure injected by a `FaultyStorage`."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Rule that makes matching calls fail.

    Parameters
    ----------
    operation
        One of get, get_ranges, put, put_if_absent, head, delete, list, sync, or ``*`` for all; synchronous methods
        count as their operation.
    key
        Shell-style pattern that the key must match; for a listing its prefix, for a delete any of its keys.
    when
        ``before``: the request has no effect.  ``after``: it takes effect and the acknowledgement is lost.
    first
        Number of the first matching call that fails, counted from 1.
    times
        Number of matching calls that fail from then on; None for all.
    probability
        Probability with which each of those calls fails.
    """

    operation: str = "*"
    key: str = "*"
    when: Literal["before", "after"] = "before"
    first: int = 1
    times: int | None = 1
    probability: float = 1.0

    def __post_init__(self) -> None:
        if self.operation not in _OPERATIONS:
            raise InvalidInputError(
                f"operation {self.operation!r} is not a valid operation: choose one of {sorted(_OPERATIONS)}"
            )
        if self.first < 1 or not 0 <= self.probability <= 1 or self.when not in ("before", "after"):
            raise InvalidInputError(
                f"{self!r}: first must be >= 1, probability between 0 and 1, and when either before or after"
            )

    def matches(self, operation: str, keys: Sequence[str]) -> bool:
        """Return whether this rule applies to a call."""
        return self.operation in ("*", operation) and any(fnmatch.fnmatchcase(key, self.key) for key in keys)


class FaultyStorage(WrapperStorage):
    """Storage that injects failures; the same seed and the same calls give the same failures.

    Parameters
    ----------
    inner
        Storage that handles the requests.
    faults
        Rules.  Each counts its own matching calls; the first one that applies decides.
    seed
        Seed for faults with a probability; a pickled copy starts from it again, with all counts at zero.
    """

    def __init__(self, inner: Storage, faults: Sequence[Fault] = (), *, seed: int = 0) -> None:
        super().__init__(inner)
        self._faults = tuple(faults)
        self._seed = seed
        self._rng = random.Random(seed)
        self._seen = [0] * len(self._faults)
        self._injected: list[tuple[str, str, str]] = []
        self._lock = ForkSafeLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (partial(FaultyStorage, seed=self._seed), (self._inner, self._faults))

    @property
    def injected(self) -> tuple[tuple[str, str, str], ...]:
        """Injected failures so far: operation, key, and ``before`` or ``after``."""
        with self._lock:
            return tuple(self._injected)

    def _next_failure(self, operation: str, *keys: str) -> str | None:
        """Return the point at which this call fails, None if it succeeds; advances the counts of all rules."""
        point: str | None = None
        with self._lock:
            for index, fault in enumerate(self._faults):
                if not fault.matches(operation, keys):
                    continue
                self._seen[index] += 1
                turn = self._seen[index] - fault.first
                in_turn = turn >= 0 and (fault.times is None or turn < fault.times)
                if in_turn and point is None and (fault.probability >= 1 or self._rng.random() < fault.probability):
                    point = fault.when
            if point is not None:
                self._injected.append((operation, keys[0], point))
        return point

    def _fail_if(self, point: str | None, when: str, operation: str, key: str) -> None:
        if point == when:
            effect = "before it took effect" if when == "before" else "after it took effect"
            raise InjectedFaultError(f"{self.location}: {operation} of {key!r} failed on purpose, {effect}")

    def around(self, request: StorageRequest) -> Generator[float, Any, None]:
        """Fail before or after a request, where a rule says so."""
        point, keys = self._next_failure(request.operation, *request.keys), ", ".join(request.keys)
        self._fail_if(point, "before", request.operation, keys)
        yield 0.0
        self._fail_if(point, "after", request.operation, keys)
        yield 0.0

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects; ``after`` fails once the first page was returned."""
        point = self._next_failure("list", prefix)
        self._fail_if(point, "before", "list", prefix)
        async for page in self._inner.list(prefix, start_after):
            yield page
            self._fail_if(point, "after", "list", prefix)
