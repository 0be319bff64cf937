"""An engine whose workers are threads: all travels as bytes, and tasks may run twice, fail, or return rubbish."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from arraystore._runtime.engine import perform
from arraystore._runtime.plain_values import pack, unpack

Change = Callable[[Any], Any]


@dataclass
class PickledEngine:
    """Runs one task after the other.

    Parameters
    ----------
    attempts
        How often each task runs; the result of the last attempt counts.
    change
        What becomes of each result on its way.
    fail_at
        Number of the task that fails after it has done its work.
    before
        Called with the number of a task before it runs.
    """

    attempts: int = 1
    change: Change | None = None
    fail_at: int | None = None
    before: Callable[[int], None] | None = None
    tasks: list[str] = field(default_factory=list[str])
    """Descriptions of the tasks that have run."""
    workers: str = "workers of the test"

    def dumps(self, value: Any) -> bytes:
        return pickle.dumps(value)

    async def run(self, work: Any, tasks: AsyncIterable[Any], description: str) -> AsyncGenerator[Any, None]:
        shipped = self.dumps(work)
        number = 0
        async for task in tasks:
            if self.before is not None:
                await asyncio.to_thread(self.before, number)
            result = b""
            for _ in range(self.attempts):
                result = await asyncio.to_thread(perform, shipped, self.dumps(task), pickle.loads)
            if number == self.fail_at:
                raise RuntimeError("the worker was killed")
            number += 1
            self.tasks.append(description)
            value = unpack("result", result)
            yield value if self.change is None else unpack("result", pack(self.change(value)))


def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each task have three chunks or objects, and packs of its own."""
    for module, name in (
        ("arraystore._format.reference_batches", "_MOST_REFERENCES"),
        ("arraystore.copying.remote_objects", "_TASK_OBJECTS"),
        ("arraystore.copying.zarr_import", "_TASK_VALUES"),
    ):
        monkeypatch.setattr(f"{module}.{name}", 3)


def _negated(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _negated(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [_negated(each) for each in value]
    return -1 - value if type(value) is int else value


RUBBISH: dict[str, Change] = {
    "nothing": lambda result: None,
    "a number": lambda result: 7,
    "too little": lambda result: result[:-1],
    "strings": lambda result: ["x"] * len(result),
    "empty": lambda result: [[] for _ in result],
    "negative": _negated,
}
"""What workers may return in place of a result, by name."""
