"""Engines: where the tasks of a transform run, in threads of this process or on Spark.

Each task writes through a fork of one session.  The changes of all tasks are merged into the session at the end, or
those of none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from arraystore._runtime.engine import Engine, expect, spark_engine, unknown_engine
from arraystore._session.fork import ForkSession
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    from arraystore._runtime.progress import Progress

T = TypeVar("T")
ForkWork: TypeAlias = Callable[[ForkSession, T], Mapping[str, Any]]
"""Picklable function of a fork and of what a task is to do; writes through the fork and returns plain values."""

TASKS_PER_SLOT = 3
_MOST_THREADS = 8


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of a task whose changes are merged."""

    read_bytes: int = 0
    """Bytes of the values that it read."""
    nbytes: int = 0
    """Bytes of the values that it wrote."""
    parts: Sequence[Any] = ()
    """Plain values that it returned beside these."""
    attempt: int = 0
    """Attempts before the one that succeeded."""


def task_result(report: Mapping[str, Any], attempt: int = 0) -> TaskResult:
    """Return the result of a task from its report, which may be anything; raise `FormatError`."""
    counts, parts = (report.get("read_bytes", 0), report.get("nbytes", 0)), report.get("parts", [])
    expect(all(type(count) is int and count >= 0 for count in counts), "a report of bytes")
    expect(type(parts) is list, "a list of partial results")
    return TaskResult(*counts, parts, attempt)


@runtime_checkable
class TransformEngine(Protocol):
    """Runs tasks through forks of a session."""

    @property
    def slots(self) -> int:
        """Count of tasks that run at once."""
        ...

    def run_forks(
        self, session: Session, work: ForkWork[T], shares: Sequence[T], *, description: str, progress: Progress | None
    ) -> list[TaskResult]:
        """Run a task for each share, and merge the changes of all into the session, or of none."""
        ...


EngineOption: TypeAlias = TransformEngine | Engine | Literal["threads", "spark"]
"""Names of engines, and engines; that of maintenance on Spark runs transforms, too."""


def transform_engine(engine: EngineOption) -> TransformEngine:
    """Return the engine of a name, or the one that is passed."""
    if engine == "threads":
        return ThreadsEngine()
    if engine == "spark":
        made: TransformEngine = spark_engine()
        return made
    if not isinstance(engine, TransformEngine):
        raise unknown_engine(engine)
    return engine


class ThreadsEngine:
    """Runs tasks in threads of this process, which overlap as far as codecs and storages release the interpreter.

    Parameters
    ----------
    threads
        Tasks that run at once; by default one for each processor, and eight at most.
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and (type(threads) is not int or threads < 1):
            raise InvalidInputError(f"threads={threads!r} must be an integer >= 1")
        self._threads = threads or min(_MOST_THREADS, os.cpu_count() or 1)

    def __repr__(self) -> str:
        return f"ThreadsEngine({self._threads})"

    @property
    def slots(self) -> int:
        """Count of tasks that run at once."""
        return self._threads

    def run_forks(
        self, session: Session, work: ForkWork[T], shares: Sequence[T], *, description: str, progress: Progress | None
    ) -> list[TaskResult]:
        """Run a task for each share, and merge the changes of all into the session, or of none."""
        if not shares:
            return []
        fork = session.fork()  # its own forks all see the session as it is now

        def task(share: T) -> tuple[bytes, Mapping[str, Any]]:
            own = fork.fork()
            report = work(own, share)
            return own.changes(), report

        try:
            with ThreadPoolExecutor(self._threads, thread_name_prefix="arraystore-transform") as pool:
                outcomes = _collect([pool.submit(task, share) for share in shares], progress)
            results = [task_result(report) for _, report in outcomes]
            fork.merge([changes for changes, _ in outcomes])
            session.merge(fork)
        except BaseException:
            session.abandon(fork)
            raise
        return results


def _collect(futures: Sequence[Future[T]], progress: Progress | None) -> list[T]:
    """Return all results; after the first failure, do not start what has not begun."""
    waiting = set(futures)
    try:
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
            if progress is not None:
                progress(len(futures) - len(waiting), len(futures))
    finally:
        for future in waiting:
            future.cancel()
    return [future.result() for future in futures]
