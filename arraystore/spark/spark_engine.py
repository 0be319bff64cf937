"""The engine of maintenance and transforms on Spark.

Maintenance runs in jobs of a few tasks for each slot, the next one while the last still runs; transforms in a job each.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from arraystore._runtime.engine import Work, expect, perform
from arraystore._runtime.plain_values import unpack
from arraystore._runtime.progress import Progress
from arraystore._session.session import Session
from arraystore.spark.cluster import required_session, slots
from arraystore.spark.errors import marked_text
from arraystore.spark.fork_engine import run_forks
from arraystore.spark.spark_action import map_tasks, run_action
from arraystore.transforms.engines import ForkWork, TaskResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_TASKS_PER_SLOT = 3
_JOBS_AT_ONCE = 2
_MOST_BYTES = 8 << 20
"""Bytes of the pickled tasks of one job, which each of its tasks is sent."""


class SparkEngine:
    """Runs tasks on the executors of a Spark session; see `engine`."""

    workers = "workers of Spark"

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.util import inheritable_thread_target

        self._spark = spark
        self._as_caller: Callable[..., list[Any]] = inheritable_thread_target(spark)(_call)

    def __repr__(self) -> str:
        return f"SparkEngine({self._spark!r})"

    def dumps(self, value: Any) -> bytes:
        """Pickle work or a task, functions of the main program included."""
        from pyspark.cloudpickle import dumps

        pickle: Any = dumps
        return bytes(pickle(value))

    @property
    def slots(self) -> int:
        """Count of tasks that run at once."""
        return slots(self._spark)

    def run_forks(
        self, session: Session, work: ForkWork[T], shares: Sequence[T], *, description: str, progress: Progress | None
    ) -> list[TaskResult]:
        """Run a task of a transform for each share, and merge the changes of all into a session, or of none."""
        return run_forks(self._spark, session, work, shares, description=description, progress=progress)

    async def run(self, work: Work[T], tasks: AsyncIterable[T], description: str) -> AsyncGenerator[Any, None]:
        """Run tasks, and yield the result of each once, in their order."""
        stop = threading.Event()
        shipped = self.dumps(work)
        pool = ThreadPoolExecutor(_JOBS_AT_ONCE, thread_name_prefix="arraystore-engine")
        running: deque[asyncio.Future[list[Any]]] = deque()
        try:
            most = await asyncio.wrap_future(pool.submit(slots, self._spark)) * _TASKS_PER_SLOT
            async for first, wave in self._waves(tasks, most):
                job = partial(self._run_job, shipped, wave, first, description, stop)
                running.append(asyncio.wrap_future(pool.submit(self._as_caller, job)))
                if len(running) == _JOBS_AT_ONCE:
                    for result in await asyncio.shield(running[0]):
                        yield result
                    running.popleft()
            while running:
                for result in await asyncio.shield(running[0]):
                    yield result
                running.popleft()
        finally:
            stop.set()
            await asyncio.gather(*running, return_exceptions=True)  # jobs that still run are cancelled
            pool.shutdown(wait=False)

    async def _waves(self, tasks: AsyncIterable[Any], most: int) -> AsyncIterator[tuple[int, list[bytes]]]:
        """Yield pickled tasks in batches of one job each, with the number of the first."""
        first, size = 0, 0
        wave: list[bytes] = []
        async for task in tasks:
            wave.append(self.dumps(task))
            size += len(wave[-1])
            if len(wave) == most or size >= _MOST_BYTES:
                yield first, wave
                first, wave, size = first + len(wave), [], 0
        if wave:
            yield first, wave

    def _run_job(
        self, work: bytes, tasks: Sequence[bytes], first: int, description: str, stop: threading.Event
    ) -> list[Any]:
        from pyspark.sql.types import BinaryType, LongType, StructField, StructType

        schema = StructType([StructField("task", LongType()), StructField("result", BinaryType())])
        frame = map_tasks(self._spark, len(tasks), _attempt(work, tasks), schema)
        text = f"arraystore: {description}, tasks {first + 1:,} to {first + len(tasks):,}"
        table = run_action(self._spark, frame.toArrow, description=text, tasks=len(tasks), stop=stop)
        return _results(len(tasks), table.column(0).to_pylist(), table.column(1).to_pylist())


def _call(job: Callable[[], list[Any]]) -> list[Any]:
    return job()


def _attempt(work: bytes, tasks: Sequence[bytes]) -> Callable[[int], Iterator[Any]]:
    """Return the function that runs on executors."""

    def attempt(number: int) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark.cloudpickle import loads

        try:
            result = perform(work, tasks[number], loads)
        except Exception as error:
            raise RuntimeError(marked_text(error)) from error
        yield pa.RecordBatch.from_pydict({"task": [number], "result": [result]})

    return attempt


def _results(count: int, tasks: Sequence[int], results: Sequence[bytes]) -> list[Any]:
    """Return the results of the tasks of a job, one of each, in their order."""
    found = dict(zip(tasks, results, strict=True))
    expect(len(tasks) == count and found.keys() == set(range(count)), "one for each task")
    return [unpack("result of a task", found[number]) for number in range(count)]


def engine(spark: SparkSession | None = None) -> SparkEngine:
    """Return an engine for maintenance and transforms that runs on the executors of a Spark session.

    Functions with a parameter `engine` take it, or ``"spark"`` for the active session: `Repository.verify`,
    `Repository.compact`, those of `arraystore.copying` and `arraystore.transforms`, and
    `arraystore.virtual.virtualize`.  Executors need arraystore, and credentials of their own: keys are sent only by
    storages that were made to pickle them.

    Parameters
    ----------
    spark
        Session, classic or Connect; the active one by default.

    Raises
    ------
    SparkUnavailableError
        If there is no active session.
    """
    return SparkEngine(required_session(spark))
