"""Batches of what is read together: as much as is worth a request, and no more than memory can be expected to have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_MOST_BYTES = 32 << 20


def batches(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Cut items into lists of some MiB; a larger one is alone."""
    batch: list[T] = []
    total = 0
    for item in items:
        if batch and total + size(item) > _MOST_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch
