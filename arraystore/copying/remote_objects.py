"""Copying objects by the workers of a cluster: this process lists, workers read and write."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from arraystore._runtime.concurrency import MiB
from arraystore._runtime.engine import Engine, expect, unexpected
from arraystore.copying.objects import ObjectCopier
from arraystore.copying.report import CopyCounter
from arraystore.storage.counting import CountingStorage
from arraystore.storage.protocol import ObjectInfo, Storage

__all__ = ["copy_remotely"]

_TASK_BYTES = 256 * MiB
_TASK_OBJECTS = 2000
"""Objects of a task: two seconds at a millisecond a request, sixteen at a time, or more."""

Objects = list[tuple[str, int]]
"""Keys and sizes."""


@dataclass(frozen=True)
class _CopyObjects:
    """Work of a task: some objects are copied as they are."""

    source: Storage
    target: Storage
    checked: bool

    async def __call__(self, task: Objects) -> Any:
        counter = CopyCounter()
        source, target = CountingStorage(self.source, log=False), CountingStorage(self.target, log=False)
        objects = [ObjectInfo(key, size) for key, size in task]
        await ObjectCopier(source, target, counter).copy(objects, checked=self.checked)
        await target.sync()
        return counter.counts(), source.counts.total + target.counts.total


async def copy_remotely(
    engine: Engine,
    source: Storage,
    target: Storage,
    objects: AsyncIterator[ObjectInfo],
    counter: CopyCounter,
    *,
    checked: bool,
) -> None:
    """Copy objects on an engine; the tasks write what a repeated one writes again, byte for byte."""
    sent: deque[Objects] = deque()

    async def tasks() -> AsyncIterator[Objects]:
        async for task in _tasks(objects):
            sent.append(task)
            yield task

    work = _CopyObjects(source, target, checked)
    async with aclosing(engine.run(work, tasks(), f"copying {counter.stage}")) as results:
        async for result in results:
            _take(sent.popleft(), result, counter)


async def _tasks(objects: AsyncIterator[ObjectInfo]) -> AsyncIterator[Objects]:
    task: Objects = []
    size = 0
    async for info in objects:
        task.append((info.key, info.size))
        size += info.size
        if size >= _TASK_BYTES or len(task) == _TASK_OBJECTS:
            yield task
            task, size = [], 0
    if task:
        yield task


def _take(task: Sequence[tuple[str, int]], result: Any, counter: CopyCounter) -> None:
    """Count what a task did, after checking that it did all of it."""
    match result:
        case (counts, int() as requests) if requests >= 0:
            done = CopyCounter()
            done.add_counts(counts)
        case _:
            raise unexpected("counts of objects")
    sizes = dict(task)
    left_out = {item.key for item in done.left_out}
    expect(left_out <= sizes.keys() and done.objects + len(left_out) == len(task), "counts of all objects")
    expect(done.bytes == sum(size for key, size in task if key not in left_out), "counts of all bytes")
    counter.requests += requests
    counter.left_out += done.left_out
    counter.copied(done.bytes, done.objects)
