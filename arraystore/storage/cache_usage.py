"""Accounting of a cache: what it holds, and how often it helped."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CacheUsage"]


@dataclass(frozen=True)
class CacheUsage:
    """One kind of cache of a repository in this process.

    Parameters
    ----------
    entries
        Values that it holds.
    bytes
        Memory that they take, Python objects included, as estimated.
    limit
        Bytes that it may hold.
    hits, misses
        Look-ups that were answered from it, and those that were not.
    evictions
        Values that were dropped to make room.
    """

    entries: int = 0
    bytes: int = 0
    limit: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0

    def __add__(self, other: CacheUsage) -> CacheUsage:
        return CacheUsage(
            self.entries + other.entries,
            self.bytes + other.bytes,
            self.limit + other.limit,
            self.hits + other.hits,
            self.misses + other.misses,
            self.evictions + other.evictions,
        )
