"""Engines: where maintenance reads and writes chunks and objects, in this process or on the workers of a cluster.

The driver cuts work into tasks, an engine runs them elsewhere, and the driver checks what comes back and commits.
Work and tasks are pickled; results are plain values, since a worker's bytes are not trusted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from arraystore._runtime import run
from arraystore._runtime.plain_values import pack
from arraystore.errors import FormatError, InvalidInputError

__all__ = [
    "Engine",
    "EngineOption",
    "Work",
    "caller_engine",
    "expect",
    "perform",
    "spark_engine",
    "unexpected",
    "unknown_engine",
    "worker_engine",
]

T = TypeVar("T")
Work: TypeAlias = Callable[[T], Awaitable[Any]]
"""Picklable function of a task, which may run more than once, and returns plain values."""

_THREADS, _SPARK = "threads", "spark"
_RESULT = "result of a task"


@runtime_checkable
class Engine(Protocol):
    """Workers of a cluster that run tasks."""

    workers: str
    """Name of the workers in messages."""

    def dumps(self, value: Any) -> bytes:
        """Pickle work or a task for the workers."""
        ...

    def run(self, work: Work[T], tasks: AsyncIterable[T], description: str) -> AsyncGenerator[Any, None]:
        """Run tasks, and yield the result of each once, in their order; the first failure cancels the others.

        Tasks are drawn as earlier ones end, so that few are in memory at a time. Closing the iterator cancels those
        that run, and waits for them.
        """
        ...


EngineOption: TypeAlias = Engine | Literal["threads", "spark"]
"""Names of engines, and engines."""


def caller_engine(engine: EngineOption) -> EngineOption:
    """Return the engine of a name, bound to the calling thread, of which Spark's jobs inherit their properties."""
    return worker_engine(engine) or "threads"


def worker_engine(engine: EngineOption) -> Engine | None:
    """Return the engine of workers elsewhere; None for threads of this process."""
    if engine == _THREADS:
        return None
    if engine == _SPARK:
        made: Engine = spark_engine()
        return made
    if not isinstance(engine, Engine):
        raise unknown_engine(engine)
    return engine


def spark_engine() -> Any:
    """Return the engine of the active Spark session: the name of a plug-in above, and the only import that goes up."""
    return import_module("arraystore.spark.spark_engine").engine()


def unknown_engine(engine: object) -> InvalidInputError:
    """Return the error of an argument that is neither an engine nor the name of one."""
    return InvalidInputError(
        f"engine={engine!r} must be 'threads', 'spark', or an engine (arraystore.spark.engine(session))"
    )


@lru_cache(maxsize=2)
def _load(work: bytes, loads: Callable[[bytes], Any]) -> Work[Any]:
    """Unpickle work once per worker process: its storages keep their connections, and its caches what they hold."""
    loaded: Work[Any] = loads(work)
    return loaded


def perform(work: bytes, task: bytes, loads: Callable[[bytes], Any]) -> bytes:
    """Perform a task on a worker, and return its result as bytes."""

    async def result() -> Any:
        return await _load(work, loads)(loads(task))

    return pack(run(result()))


def unexpected(what: str) -> FormatError:
    """Return the error of a result of a worker that is not what its work returns."""
    return FormatError(_RESULT, f"is not {what}; workers must run the same version of arraystore as the driver")


def expect(valid: bool, what: str) -> None:
    """Raise `FormatError` unless a result of a worker is valid."""
    if not valid:
        raise unexpected(what)
