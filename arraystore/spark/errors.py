"""Errors of Spark jobs, and their way through Spark's own exceptions.

Spark turns every exception of a Python worker into text.  An error of this package therefore carries a code that
programs and people can look for, ``[ARRAYSTORE_MERGE_CONFLICT]``, and behind it a mark from which `translate_error`
makes the same exception again: data only, never code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from arraystore import errors as core
from arraystore.errors import ArrayStoreError

__all__ = ["SparkUnavailableError", "TaskFailedError", "code_of", "marked_errors", "marked_text", "translate_error"]


class SparkUnavailableError(ArrayStoreError):
    """Spark cannot be started: Java, PySpark or the cluster is missing."""


class TaskFailedError(ArrayStoreError):
    """A task failed as often as Spark retries it; nothing was committed."""


_MARK = re.compile(r"<<arraystore:([0-9a-f]*)>>")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LONGEST = 32 << 10
"""Characters of a message that are sent: a list of all conflicts of a large commit may have any length."""

_TEXTS: dict[type[ArrayStoreError], tuple[str, ...]] = {
    core.ConflictError: ("expected_parent", "actual_parent", "branch"),
    core.RebaseFailedError: ("expected_parent", "actual_parent", "branch"),
    core.FormatError: ("object_name", "reason"),
    core.LogForkError: ("object_name", "reason"),
    core.LogHoleError: ("object_name", "reason"),
    core.ObjectNotFoundError: ("key", "where"),
    core.MergeConflictError: ("path",),
    core.ChunkDamagedError: ("object_name", "path"),
    core.SourceChangedError: ("url", "expected", "found", "path"),
}
"""Attributes that are sent beside the message: strings, or None."""

_NUMBERS: dict[type[ArrayStoreError], tuple[str, ...]] = {
    core.ChunkDamagedError: ("offset", "length"),
    core.SourceChangedError: (),
}
"""Attributes that are numbers, of errors that are about one chunk."""


def code_of(kind: type[ArrayStoreError]) -> str:
    """Return the code of a class of errors: ``ARRAYSTORE_REBASE_FAILED`` for `RebaseFailedError`."""
    return "ARRAYSTORE_" + _WORD.sub("_", kind.__name__.removesuffix("Error")).upper()


def _classes_by_code() -> dict[str, type[ArrayStoreError]]:
    """Return the public error classes by code, which are the ones that may be rebuilt from text."""
    kinds = {SparkUnavailableError, TaskFailedError, ArrayStoreError}
    for name in core.__all__:
        kind = getattr(core, name)
        if issubclass(kind, ArrayStoreError):
            kinds.add(kind)
    return {code_of(kind): kind for kind in kinds}


def marked_text(error: BaseException) -> str:
    """Return the text of an error with its code and the mark that `translate_error` parses."""
    classes = _classes_by_code()
    kind = next((base for base in type(error).__mro__ if base in classes.values()), None)
    fields: dict[str, Any] = {}
    if kind is None or not isinstance(error, ArrayStoreError):
        kind, text = TaskFailedError, f"{type(error).__name__}: {error}"
    elif kind is ArrayStoreError:  # of a class that is not public
        kind, text = TaskFailedError, error.message
    else:
        text = error.message
        fields = {name: _text_or_none(getattr(error, name)) for name in _TEXTS.get(kind, ())}
    if isinstance(error, core.MergeConflictError):
        fields["chunks"] = [[int(side) for side in chunk] for chunk in error.chunks]
    if isinstance(error, core.ChunkDamagedError | core.SourceChangedError):
        fields["chunk"] = None if error.chunk is None else [int(side) for side in error.chunk]
        fields.update({name: int(getattr(error, name)) for name in _NUMBERS.get(kind, ())})
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
    body = json.dumps({"code": code_of(kind), "message": text, "fields": fields})
    return f"[{code_of(kind)}] {text} <<arraystore:{body.encode().hex()}>>"


@contextmanager
def marked_errors() -> Iterator[None]:
    """Raise errors of this package as `RuntimeError` with their marked text alone, as Spark shows whole tracebacks."""
    try:
        yield
    except ArrayStoreError as error:
        raise RuntimeError(marked_text(error)) from None


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)[:_LONGEST]


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
    marks = _MARK.findall(_all_text(error))
    for mark in reversed(marks):  # the last one is the outermost error
        made = _error_of_mark(mark)
        if made is not None:
            return made
    return error


def _all_text(error: BaseException) -> str:
    """Return the text of an error, of its parameters in Spark, and of its cause."""
    texts = [str(error)]
    parameters = getattr(error, "getMessageParameters", None)
    if callable(parameters):
        values = parameters()
        if isinstance(values, dict):
            texts += [str(value) for value in values.values()]
    if error.__cause__ is not None:
        texts.append(str(error.__cause__))
    return "\n".join(texts)


def _error_of_mark(mark: str) -> ArrayStoreError | None:
    """Return the error that a mark encodes; None if the mark is damaged or of another program."""
    try:
        body = json.loads(bytes.fromhex(mark))
        kind = _classes_by_code()[body["code"]]
        message, fields = str(body["message"]), body["fields"]
        texts = {name: _text_or_none(fields[name]) for name in _TEXTS.get(kind, ())}
        return _rebuild(kind, message, texts, fields)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _rebuild(
    kind: type[ArrayStoreError], message: str, texts: dict[str, str | None], fields: dict[str, Any]
) -> ArrayStoreError:
    made: ArrayStoreError
    if kind is core.MergeConflictError:
        chunks = tuple(tuple(int(side) for side in chunk) for chunk in fields["chunks"])
        made = core.MergeConflictError(message, texts["path"] or "", chunks)
    elif kind is core.RebaseFailedError:  # its conflicts stay behind as text: they may be any number
        branch = texts["branch"] or ""
        made = core.RebaseFailedError(texts["actual_parent"] or "", (), texts["expected_parent"], branch)
    elif kind in _NUMBERS:
        numbers = {name: int(fields[name]) for name in _NUMBERS[kind]}
        chunk = None if fields["chunk"] is None else tuple(int(side) for side in fields["chunk"])
        attributes: dict[str, Any] = {**texts, **numbers, "chunk": chunk}
        made = kind(**attributes)
    elif texts:
        made = kind(**texts)
    else:
        made = kind(message)
    made.args = (message,)
    return made
