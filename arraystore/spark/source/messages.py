"""Messages from the tasks of a write of the data source to its commit: plain values in bytes.

Spark pickles the objects that carry these bytes; the bytes themselves are never unpickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import WriterCommitMessage

from arraystore._format.ids import SnapshotId
from arraystore._runtime.plain_values import pack, unpack
from arraystore._session.handoff import SessionHandoff
from arraystore._session.pickling import SnapshotLocator
from arraystore.errors import FormatError
from arraystore.spark.fork_job import Outcome, read_outcome

if TYPE_CHECKING:
    from arraystore._context.context import Context

_NAME = "message of a task"
_VERSION = 1


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """Result of one task."""

    data: bytes
    """Packed fields; see `message_of`."""


def message_of(outcome: bytes, handoff: SessionHandoff, query: str | None) -> TaskMessage:
    """Return the message of a task."""
    of = handoff.locator
    plain = handoff.branch, of.branch, of.sequence, of.hint, of.snapshot, handoff.identifier
    return TaskMessage(pack((_VERSION, outcome, plain, query)))


def outcomes_of(messages: Sequence[object]) -> list[Outcome]:
    """Return the outcomes in messages; raise `FormatError` if one is missing or damaged."""
    return [read_outcome(_NAME, _fields(message)[0]) for message in messages]


def handoff_in(messages: Sequence[object], context: Context, branch: str) -> SessionHandoff:
    """Return the session that the tasks wrote for, on which they must agree."""
    named = {_fields(message)[1] for message in messages}
    if len(named) != 1:
        raise FormatError(_NAME, f"{len(named)} sessions are named where all tasks of a batch write for one")
    match named.pop():
        case (
            str() as of, str() as pinned, int() as sequence, None | (int(), bytes()) as hint,
            bytes() as snapshot, bytes() as identifier,
        ) if of == branch:  # fmt: skip
            locator = SnapshotLocator(context, pinned, sequence, cast("Any", hint), SnapshotId(snapshot))
            return SessionHandoff(locator, branch, identifier)
        case _:
            raise FormatError(_NAME, f"it names no session of branch {branch!r}")


def query_of(messages: Sequence[object]) -> str | None:
    """Return the id of the streaming query in messages; None if they name none."""
    queries = {_fields(message)[2] for message in messages}
    query = queries.pop() if len(queries) == 1 else b""
    if not isinstance(query, str | None):
        raise FormatError(_NAME, "the tasks of a batch do not name one query")
    return query


def _fields(message: object) -> tuple[Any, ...]:
    """Return outcome, handoff and query."""
    if not isinstance(message, TaskMessage) or not isinstance(message.data, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FormatError(_NAME, "it is missing, or written by another program")
    fields = unpack(_NAME, message.data)
    if not isinstance(fields, tuple) or len(fields) != 4 or fields[0] != _VERSION:
        raise FormatError(_NAME, "it is of another release")
    return fields[1:]
