"""Messages from the tasks of a write of the data source to its commit: plain values in bytes.

Spark pickles the objects that carry these bytes; the bytes themselves are never unpickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgpack
from pyspark.sql.datasource import WriterCommitMessage

from arraystore._format.ids import SnapshotId
from arraystore._session.handoff import SessionHandoff
from arraystore._session.pickling import SnapshotLocator
from arraystore.errors import FormatError
from arraystore.spark.fork_job import Outcome, unpack_report

if TYPE_CHECKING:
    from arraystore._context import Context

__all__ = ["TaskMessage", "handoff_in", "message_of", "outcomes_of", "query_of"]

_NAME = "message of a task"
_VERSION = 1


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """Result of one task."""

    data: bytes
    """Packed fields; see `message_of`."""


def message_of(row: tuple[int, int, bytes, bytes], handoff: SessionHandoff, query: str | None) -> TaskMessage:
    """Return the message of a task."""
    return TaskMessage(_pack(_VERSION, *row, _plain(handoff), query))


def outcomes_of(messages: Sequence[object]) -> list[Outcome]:
    """Return the outcomes in messages; raise `FormatError` if one is missing or damaged."""
    outcomes = []
    for fields in map(_fields, messages):
        task, attempt, change_set, report = fields[:4]
        if type(task) is not int or type(attempt) is not int or not isinstance(change_set, bytes):
            raise FormatError(_NAME, "it names no task")
        if not isinstance(report, bytes):
            raise FormatError(_NAME, "it has no report")
        outcomes.append(Outcome(task, attempt, change_set, unpack_report(report)))
    return outcomes


def handoff_in(messages: Sequence[object], context: Context, branch: str) -> SessionHandoff:
    """Return the session that the tasks wrote for, on which they must agree."""
    named = {_fields(message)[4] for message in messages}
    if len(named) != 1:
        raise FormatError(_NAME, f"{len(named)} sessions are named where all tasks of a batch write for one")
    match named.pop():
        case (str() as of, str() as pinned, int() as sequence, hint, bytes() as snapshot, bytes() as identifier) if (
            of == branch and _is_hint(hint)
        ):
            return SessionHandoff(
                SnapshotLocator(context, pinned, sequence, hint, SnapshotId(snapshot)), branch, identifier
            )
        case _:
            raise FormatError(_NAME, f"it names no session of branch {branch!r}")


def query_of(messages: Sequence[object]) -> str | None:
    """Return the id of the streaming query in messages; None if they name none."""
    queries = {_fields(message)[5] for message in messages}
    query = queries.pop() if len(queries) == 1 else b""
    if not isinstance(query, str | None):
        raise FormatError(_NAME, "the tasks of a batch do not name one query")
    return query


def _plain(handoff: SessionHandoff) -> tuple[Any, ...]:
    locator = handoff.locator
    return handoff.branch, locator.branch, locator.sequence, locator.hint, locator.snapshot, handoff.identifier


def _is_hint(hint: Any) -> bool:
    return hint is None or (
        isinstance(hint, tuple) and len(hint) == 2 and type(hint[0]) is int and isinstance(hint[1], bytes)
    )


def _pack(*values: Any) -> bytes:
    packed = msgpack.packb(values, use_bin_type=True)
    assert isinstance(packed, bytes)
    return packed


def _fields(message: object) -> tuple[Any, ...]:
    """Return task, attempt, change set, report, handoff and query."""
    if not isinstance(message, TaskMessage) or not isinstance(message.data, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FormatError(_NAME, "it is missing, or written by another program")
    try:
        fields = msgpack.unpackb(message.data, use_list=False, raw=False, max_ext_len=0)
    except Exception as error:
        raise FormatError(_NAME, f"cannot be read ({type(error).__name__})") from error
    if not isinstance(fields, tuple) or len(fields) != 7 or fields[0] != _VERSION:
        raise FormatError(_NAME, "it is of another release")
    return fields[1:]
