"""Cache of values by record number, bounded by count and by bytes."""

from __future__ import annotations

from typing import Generic, TypeVar

from arraystore.storage.cache_usage import CacheUsage

T = TypeVar("T")


class RecordCache(Generic[T]):
    """Cache of values by record number, which evicts the oldest where there is no room; one value always stays.

    Others may share the dictionary of values; callers of `put` estimate bytes.
    """

    def __init__(self, values: dict[int, T], most: int, room: int) -> None:
        self._values = values
        self._weights: dict[int, int] = {}
        self._most = most
        self._room = room
        self.bytes = 0
        """Estimated bytes of the values."""
        self._hits = self._misses = self._evictions = 0

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
        """What it holds, and how often it helped."""
        return CacheUsage(len(self._values), self.bytes, self._room, self._hits, self._misses, self._evictions)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, number: int) -> bool:
        return number in self._values

    def put(self, number: int, value: T, weight: int) -> None:
        """Add a value of about so many bytes."""
        self._drop(number)
        while self._weights and (len(self._weights) >= self._most or self.bytes + weight > self._room):
            self._drop(next(iter(self._weights)))
            self._evictions += 1
        self._values[number] = value
        self._weights[number] = weight
        self.bytes += weight

    def _drop(self, number: int) -> None:
        self.bytes -= self._weights.pop(number, 0)
        self._values.pop(number, None)

    def clear(self) -> None:
        """Remove all values."""
        for number in list(self._weights):
            self._drop(number)
