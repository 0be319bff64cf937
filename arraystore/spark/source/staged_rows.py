"""Rows that wait for the commit, because the arrays that they need are made or grow by what all rows hold.

Spark shows a data source no rows before its tasks run, and its tasks do not know each other's labels. So each task
stores its rows, and the commit finds the labels, creates the arrays or lets them grow, and writes the rows, in bounded
memory. The stored rows are unreferenced then, and garbage collection deletes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from arraystore._format.ids import ID_BYTES
from arraystore._log.branch_log import transaction_key
from arraystore._runtime import run
from arraystore._session.fork import ForkSession
from arraystore.errors import FormatError, ObjectNotFoundError, SessionExpiredError
from arraystore.spark.creation.distinct_labels import LabelScan, labels_by_column

if TYPE_CHECKING:
    from arraystore._context.context import Context

_BYTES = 32 << 20
"""Size of the rows of an object, before compression."""

_NAME = "report of a task"


@dataclass(frozen=True)
class StageRows:
    """Work of a task: it stores rows, and the labels in them."""

    columns: tuple[str, ...]
    """Columns that are stored."""
    labelled: tuple[str, ...]
    indexed: tuple[str, ...]
    """Columns of labels and of indices that are looked for."""
    most_labels: int

    def __call__(self, fork: ForkSession, batches: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
        """Store the rows, and return the names of the objects."""
        scan = LabelScan((*self.labelled, *self.indexed), len(self.labelled), self.most_labels)
        objects: list[list[Any]] = []
        rows, held, size = 0, list[pa.RecordBatch](), 0
        for all_columns in batches:
            batch = all_columns.select(list(self.columns))
            scan.take([batch.column(column) for column in scan.columns])
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if size >= _BYTES:
                objects.append(_store(fork, held))
                held, size = [], 0
        if rows and held:
            objects.append(_store(fork, held))
        labels = [_store(fork, [batch]) for batch in scan.batches()]
        return {"rows": rows, "staged": objects, "labels": labels}


def _store(fork: ForkSession, batches: Sequence[pa.RecordBatch]) -> list[Any]:
    """Store Arrow batches, and return the id and the size of their object."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    identifier = fork.context.environment.new_id()
    run(_put(fork.context, identifier, data))
    return [identifier, len(data)]


async def _put(context: Context, identifier: bytes, data: bytes) -> None:
    await context.storage.put(transaction_key(identifier), data)  # garbage collection covers its prefix
    await context.storage.sync()


@dataclass(frozen=True)
class StagedRows:
    """Rows that tasks have stored."""

    context: Context
    rows: tuple[tuple[bytes, int], ...]
    labels: tuple[tuple[bytes, int], ...]
    """Objects, by id and size."""

    @classmethod
    def of(cls, context: Context, reports: Iterable[Mapping[str, Any]]) -> StagedRows:
        """Return the rows of the reports of tasks; raise `FormatError` if one is malformed."""
        rows: list[tuple[bytes, int]] = []
        labels: list[tuple[bytes, int]] = []
        for report in reports:
            rows += _objects(report.get("staged"))
            labels += _objects(report.get("labels"))
        return cls(context, tuple(rows), tuple(labels))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows, one object at a time."""
        return self._read(self.rows)

    def find_labels(self, columns: Sequence[str], labelled: int, most: int) -> Mapping[str, pa.Array]:
        """Return the labels of columns, as `distinct_labels` does."""
        batches = list(self._read(self.labels))
        if not batches:
            return {}
        merged = LabelScan(tuple(columns), labelled, most)
        for batch in batches:
            merged.take([batch.column(1 + number) for number in range(len(columns))])
        return labels_by_column(pa.Table.from_batches(merged.batches()), columns, labelled, most)

    def _read(self, objects: Sequence[tuple[bytes, int]]) -> Iterator[pa.RecordBatch]:
        for identifier, size in objects:
            key = transaction_key(identifier)
            try:
                data = bytes(run(self.context.storage.get(key)))
            except ObjectNotFoundError as error:
                raise SessionExpiredError(
                    f"{key}, the rows of a task, was deleted: a garbage collection with a later cut-off than the start "
                    "of this job has run. Nothing was committed; run the job again"
                ) from error
            if len(data) != size:
                raise FormatError(key, f"holds {len(data)} bytes where the task has written {size}")
            try:
                with pa.ipc.open_stream(data) as reader:
                    yield from reader
            except (pa.ArrowInvalid, OSError) as error:
                raise FormatError(key, f"does not hold rows of a task: {error}") from error


def _objects(plain: Any) -> list[tuple[bytes, int]]:
    objects: list[tuple[bytes, int]] = []
    for entry in plain if isinstance(plain, list) else [None]:
        match entry:
            case [bytes() as identifier, int() as size] if len(identifier) == ID_BYTES and size > 0:
                objects.append((identifier, size))
            case _:
                raise FormatError(_NAME, f"does not name stored rows: {entry!r:.100}")
    return objects
