"""Errors of Spark jobs, and their way through Spark's own exceptions.

Spark turns every exception of a Python worker into text.  An error of this package therefore carries a code that
programs and people can look for, ``[ARRAYSTORE_MERGE_CONFLICT]``, and behind its message a mark with code and fields,
from which `translate_error` makes the same exception again: data only, never code.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from arraystore import errors as core
from arraystore.errors import ArrayStoreError


class SparkUnavailableError(ArrayStoreError):
    """Spark cannot be started: Java, PySpark or the cluster is missing."""


class TaskFailedError(ArrayStoreError):
    """A task failed as often as Spark retries it; nothing was committed."""


_NOT_ACTIVE = (
    "Spark does not find format('arraystore'). In a thread that is not the main one, call "
    "arraystore.spark.activate(spark) there first: Spark looks in the session that is active in the thread, and "
    "PySpark activates one in the main thread alone. Elsewhere, call arraystore.spark.register(spark)"
)
_MARK = re.compile(r" ?<<arraystore:([0-9A-Za-z_=-]*)>>")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LONGEST = 32 << 10
"""Characters of a message that are sent: a list of all conflicts of a large commit may have any length."""


def _text(value: Any) -> str | None:
    return None if value is None else str(value)[:_LONGEST]


def _place(value: Any) -> tuple[int, ...] | None:
    return None if value is None else tuple(int(side) for side in value)


def _places(value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(side) for side in place) for place in value)


_FIELDS: dict[type[ArrayStoreError], dict[str, Callable[[Any], Any]]] = {
    core.ConflictError: {"expected_parent": _text, "actual_parent": _text, "branch": _text},
    core.RebaseFailedError: {"snapshot": _text, "expected_parent": _text, "branch": _text},
    core.FormatError: {"object_name": _text, "reason": _text},
    core.LogForkError: {"object_name": _text, "reason": _text},
    core.LogHoleError: {"object_name": _text, "reason": _text},
    core.ObjectNotFoundError: {"key": _text, "where": _text},
    core.MergeConflictError: {"path": _text, "chunks": _places},
    core.ChunkDamagedError: {"object_name": _text, "offset": int, "length": int, "path": _text, "chunk": _place},
    core.SourceChangedError: {"url": _text, "expected": _text, "found": _text, "path": _text, "chunk": _place},
}
"""Arguments that are sent beside the message, and what checks them at both ends."""


def code_of(kind: type[ArrayStoreError]) -> str:
    """Return the code of a class of errors: ``ARRAYSTORE_REBASE_FAILED`` for `RebaseFailedError`."""
    return "ARRAYSTORE_" + _WORD.sub("_", kind.__name__.removesuffix("Error")).upper()


def _classes_by_code() -> dict[str, type[ArrayStoreError]]:
    """Return the public error classes by code, which are the ones that may be rebuilt from messages."""
    kinds = {SparkUnavailableError, TaskFailedError, ArrayStoreError}
    for name in core.__all__:
        kind = getattr(core, name)
        if issubclass(kind, ArrayStoreError):
            kinds.add(kind)
    return {code_of(kind): kind for kind in kinds}


def marked_text(error: BaseException) -> str:
    """Return the message of an error with its code and the mark that `translate_error` parses."""
    classes = _classes_by_code()
    kind = next((base for base in type(error).__mro__ if base in classes.values()), None)
    fields: dict[str, Any] = {}
    if kind is None or not isinstance(error, ArrayStoreError):
        kind, text = TaskFailedError, f"{type(error).__name__}: {error}"
    elif kind is ArrayStoreError:  # of a class that is not public
        kind, text = TaskFailedError, error.message
    else:
        text = error.message
        fields = {name: checked(getattr(error, name)) for name, checked in _FIELDS.get(kind, {}).items()}
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
    body = json.dumps({"code": code_of(kind)} | ({"fields": fields} if fields else {}), separators=(",", ":"))
    return f"[{code_of(kind)}] {_MARK.sub('', text)} <<arraystore:{base64.urlsafe_b64encode(body.encode()).decode()}>>"


@contextmanager
def marked_errors() -> Iterator[None]:
    """Raise errors of this package as `RuntimeError` with the marked message alone: Spark shows whole tracebacks."""
    try:
        yield
    except ArrayStoreError as error:
        raise RuntimeError(marked_text(error)) from None


def translate_error(error: BaseException) -> BaseException:
    """Return the error of this package that caused one of Spark's; return other errors unchanged.

    Parameters
    ----------
    error
        What an action, a write, or a streaming query raised.

    Returns
    -------
    BaseException
        To be raised, or compared by type: ``raise translate_error(error) from error``.
    """
    if isinstance(error, ArrayStoreError):
        return error
    text = _all_text(error)
    for mark in reversed(list(_MARK.finditer(text))):  # the last one is the outermost error
        made = _error_of_mark(mark[1], text[: mark.start()])
        if made is not None:
            return made
    if re.search(r"\[DATA_SOURCE_NOT_FOUND\].*\barraystore\b", text):
        return SparkUnavailableError(_NOT_ACTIVE)
    return error


def _all_text(error: BaseException) -> str:
    """Return the message of an error, of its parameters in Spark, and of its cause."""
    texts = [str(error)]
    parameters = getattr(error, "getMessageParameters", None)
    if callable(parameters):
        values = parameters()
        if isinstance(values, dict):
            texts += [str(value) for value in values.values()]
    if error.__cause__ is not None:
        texts.append(str(error.__cause__))
    return "\n".join(texts)


def _error_of_mark(mark: str, before: str) -> ArrayStoreError | None:
    """Return the error of a mark and the message before it; None if the mark is damaged or of another program."""
    try:
        body = json.loads(base64.urlsafe_b64decode(mark))
        kind = _classes_by_code()[body["code"]]
        _, there, message = before.rpartition(f"[{body['code']}] ")
        if not there:
            return None
        given = body.get("fields", {})
        fields = {name: checked(given[name]) for name, checked in _FIELDS.get(kind, {}).items()}
        if kind is core.RebaseFailedError:
            fields["conflicts"] = ()  # they stay behind as text: they may be any number
        if kind is core.MergeConflictError:
            fields["message"] = message
        made = kind(**fields)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    made.args = (message,)
    return made
