"""Batches of references for tasks of about as many bytes each, in the order of their bytes in packs and sources."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

import numpy as np

from arraystore._format.manifest import Manifest
from arraystore._format.references import References, to_manifests

__all__ = ["TASK_BYTES", "ReferenceTask", "batches", "tasks_of"]

K = TypeVar("K")
ReferenceTask = list[tuple[K, Manifest]]
"""References of one task, with what they belong to."""

TASK_BYTES = 256 << 20
"""Bytes of chunks that a task reads: a second or more, beside which its start does not count."""

_MOST_REFERENCES = 1 << 14


def batches(references: References, most: int = TASK_BYTES) -> Iterator[Manifest]:
    """Cut references into manifests of so many bytes of chunks, each with only its own packs, locations and bytes."""
    order = np.lexsort((references.offset, references.source))
    lengths = references.length[order]
    place = (np.cumsum(lengths) - lengths) // most
    for some in np.split(order, np.flatnonzero(np.diff(place)) + 1):
        for start in range(0, len(some), _MOST_REFERENCES):
            rows = np.sort(some[start : start + _MOST_REFERENCES])
            yield from to_manifests(references.take(rows))


async def tasks_of(
    values: AsyncIterator[tuple[K, References]], most: int = TASK_BYTES
) -> AsyncIterator[ReferenceTask[K]]:
    """Cut references to chunks, each with what they belong to, into tasks; small ones share a task."""
    task: ReferenceTask[K] = []
    size = count = 0
    async for owner, references in values:
        for manifest in batches(references, most):
            added = int(manifest.length.sum(dtype=np.int64))
            if task and (size + added > most or count + manifest.count > _MOST_REFERENCES):
                yield task
                task, size, count = [], 0, 0
            task.append((owner, manifest))
            size += added
            count += manifest.count
    if task:
        yield task
