"""What tasks of a write of the data source send to its commit: plain values in bytes.

Spark pickles the objects that carry these bytes, on its own account; nothing of what is in them is unpickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgpack
from pyspark.sql.datasource import WriterCommitMessage

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
    """What one task did.

    Parameters
    ----------
    data
        See `message_of`.
    """

    data: bytes


def message_of(row: tuple[int, int, bytes, bytes], handoff: SessionHandoff, query: str | None) -> TaskMessage:
    """Return the message of a task.

    Parameters
    ----------
    row
        What `Attempt.outcome` returned.
    handoff
        Where its changes are to be merged: the commit of a stream sees nothing but messages.
    query
        Id of the streaming query, if it is one.
    """
    return TaskMessage(_packed(_VERSION, *row, _plain(handoff), query))


def outcomes_of(messages: Sequence[object]) -> list[Outcome]:
    """Return what tasks did.

    Raises
    ------
    FormatError
        If a message is missing or damaged.
    """
    found = []
    for fields in map(_fields, messages):
        task, attempt, change_set, report = fields[:4]
        if type(task) is not int or type(attempt) is not int or not isinstance(change_set, bytes):
            raise FormatError(_NAME, "it tells no task")
        if not isinstance(report, bytes):
            raise FormatError(_NAME, "it has no report")
        found.append(Outcome(task, attempt, change_set, unpack_report(report)))
    return found


def handoff_in(messages: Sequence[object], context: Context, branch: str) -> SessionHandoff:
    """Return where the tasks say that their changes are to be merged.

    Parameters
    ----------
    context
        Of the repository.
    branch
        That they must agree upon.

    Raises
    ------
    FormatError
        If they do not agree.
    """
    named = {_fields(message)[4] for message in messages}
    if len(named) != 1:
        raise FormatError(_NAME, f"{len(named)} sessions are named where all tasks of a batch write for one")
    match named.pop():
        case (str() as of, str() as pinned, int() as sequence, hint, bytes() as snapshot, bytes() as identifier) if (
            of == branch and _is_hint(hint)
        ):
            return SessionHandoff(SnapshotLocator(context, pinned, sequence, hint, snapshot), branch, identifier)
        case _:
            raise FormatError(_NAME, f"it names no session of branch {branch!r}")


def query_of(messages: Sequence[object]) -> str | None:
    """Return the id of the streaming query that messages name; None where they name none.

    Raises
    ------
    FormatError
        If they do not agree.
    """
    found = {_fields(message)[5] for message in messages}
    query = found.pop() if len(found) == 1 else b""
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


def _packed(*values: Any) -> bytes:
    found = msgpack.packb(values, use_bin_type=True)
    assert isinstance(found, bytes)
    return found


def _fields(message: object) -> tuple[Any, ...]:
    """Return task, attempt, change set, report, handoff and query."""
    if not isinstance(message, TaskMessage) or not isinstance(message.data, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FormatError(_NAME, "it is missing, or of another program")
    try:
        found = msgpack.unpackb(message.data, use_list=False, raw=False, max_ext_len=0)
    except Exception as error:
        raise FormatError(_NAME, f"cannot be read ({type(error).__name__})") from error
    if not isinstance(found, tuple) or len(found) != 7 or found[0] != _VERSION:
        raise FormatError(_NAME, "it is of another release")
    return found[1:]
