"""Cache of values by record number, bounded by count and by bytes."""

from __future__ import annotations

from typing import Generic, TypeVar

from arraystore._chunks.cache_budget import PROCESS, CacheBudget
from arraystore.storage.cache_usage import CacheUsage
from arraystore.storage.forking import ForkSafeLock

T = TypeVar("T")


class RecordCache(Generic[T]):
    """Cache of values by record number, which evicts the oldest where there is no room; one value always stays.

    Others may share the dictionary of values; callers of `put` estimate bytes.
    """

    def __init__(self, values: dict[int, T], most: int, room: int, budget: CacheBudget = PROCESS) -> None:
        self._values = values
        self._weights: dict[int, int] = {}
        self._most = most
        self._room = room
        self._lock = ForkSafeLock()
        self.account = budget.open(self)
        self._hits = self._misses = self._evictions = 0
        budget.join(self)

    @property
    def bytes(self) -> int:
        """Estimated bytes of the values."""
        return self.account.bytes

    def get(self, number: int) -> T | None:
        """Return the value of a record; None if it is not there."""
        value = self._values.get(number)
        if value is None:
            self._misses += 1
        else:
            self._hits += 1
        return value

    @property
    def usage(self) -> CacheUsage:
        """Return what it holds, and how often it helped."""
        return CacheUsage(len(self._values), self.bytes, self._room, self._hits, self._misses, self._evictions)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, number: int) -> bool:
        return number in self._values

    def put(self, number: int, value: T, weight: int) -> None:
        """Add a value of about so many bytes."""
        with self._lock:
            self._drop(number)
            while self._weights and (len(self._weights) >= self._most or self.bytes + weight > self._room):
                self._drop(next(iter(self._weights)))
                self._evictions += 1
            self._values[number] = value
            self._weights[number] = weight
            self.account.add(weight)
        self.account.settle()

    def evict(self, excess: int) -> int:
        """Drop the oldest values until `excess` bytes are free or one is left; returns their count."""
        with self._lock:
            left, dropped = self.bytes - excess, 0
            while self.bytes > left and len(self._weights) > 1:
                self._drop(next(iter(self._weights)))
                dropped += 1
            self._evictions += dropped
        return dropped

    def _drop(self, number: int) -> None:
        weight = self._weights.pop(number, 0)
        if weight:
            self.account.add(-weight)
        self._values.pop(number, None)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            for number in list(self._weights):
                self._drop(number)
