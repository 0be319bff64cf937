"""What can go wrong between the driver and its tasks, and how errors get through Spark's own.

Spark turns every exception of a Python worker into text.  An error of this package therefore carries a code that
programs and people can look for, ``[ARRAYSTORE_MERGE_CONFLICT]``, and behind it a mark from which `translate_error`
makes the same exception again: data only, never code.
"""

from __future__ import annotations

import json
import re
from typing import Any

from arraystore import errors as core
from arraystore.errors import ArrayStoreError

__all__ = ["SparkUnavailableError", "TaskFailedError", "code_of", "marked", "translate_error"]


class SparkUnavailableError(ArrayStoreError):
    """Spark cannot be started here: no Java, no PySpark, or no cluster."""


class TaskFailedError(ArrayStoreError):
    """A task failed as often as Spark allows; nothing was committed."""


_MARK = re.compile(r"<<arraystore:([0-9a-f]*)>>")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LONGEST = 32 << 10
"""Bytes of a message that travel: a list of all conflicts of a large commit may have any length."""

_SEEN_BY_TYPE: dict[type[ArrayStoreError], tuple[str, ...]] = {
    core.ConflictError: ("expected_parent", "actual_parent", "branch"),
    core.MergeConflictError: ("message", "path", "chunks"),
    core.FormatError: ("object_name", "reason"),
    core.ObjectNotFoundError: ("key", "where"),
}
"""What it takes to make an error again, where that is more than its message."""


def code_of(kind: type[ArrayStoreError]) -> str:
    """Return the code of a class of errors: ``ARRAYSTORE_REBASE_FAILED`` for `RebaseFailedError`."""
    return "ARRAYSTORE_" + _WORD.sub("_", kind.__name__.removesuffix("Error")).upper()


def _known() -> dict[str, type[ArrayStoreError]]:
    """Return the classes that may be made of text, by code: those of this package that are public."""
    found = {SparkUnavailableError, TaskFailedError, ArrayStoreError}
    for name in core.__all__:
        kind = getattr(core, name)
        if issubclass(kind, ArrayStoreError):
            found.add(kind)
    return {code_of(kind): kind for kind in found}


def marked(error: BaseException) -> str:
    """Return the text of an error with its code, as `translate_error` finds it again in whatever is around it."""
    known = _known()
    kind = next((base for base in type(error).__mro__ if base in known.values()), None)
    fields: dict[str, Any] = {}
    if kind is None or not isinstance(error, ArrayStoreError):
        kind, text = TaskFailedError, f"{type(error).__name__}: {error}"
    elif kind is ArrayStoreError:  # one that only some part of the package knows
        kind, text = TaskFailedError, error.message
    else:
        text = error.message
        fields = {name: getattr(error, name) for name in _SEEN_BY_TYPE.get(kind, ())}
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
    if kind is core.MergeConflictError:
        fields["message"] = text
    body = json.dumps({"code": code_of(kind), "message": text, "fields": fields})
    return f"[{code_of(kind)}] {text} <<arraystore:{body.encode().hex()}>>"


def translate_error(error: BaseException) -> BaseException:
    """Return the error of this package that stands behind one of Spark's; any other error as it is.

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
    found = _MARK.findall(_all_text(error))
    for mark in reversed(found):  # the last one is the outermost: what went wrong after all
        made = _made_again(mark)
        if made is not None:
            return made
    return error


def _all_text(error: BaseException) -> str:
    """Return the text of an error and of what Spark keeps beside it."""
    texts = [str(error)]
    parameters = getattr(error, "getMessageParameters", None)
    if callable(parameters):
        values = parameters()
        if isinstance(values, dict):
            texts += [str(value) for value in values.values()]
    if error.__cause__ is not None:
        texts.append(str(error.__cause__))
    return "\n".join(texts)


def _made_again(mark: str) -> ArrayStoreError | None:
    try:
        body = json.loads(bytes.fromhex(mark))
        kind = _known()[body["code"]]
        message, fields = str(body["message"]), body["fields"]
        wanted = _SEEN_BY_TYPE.get(kind, ())
        if kind is core.MergeConflictError:
            chunks = tuple(tuple(int(side) for side in chunk) for chunk in fields["chunks"])
            return core.MergeConflictError(message, str(fields["path"]), chunks)
        made: ArrayStoreError
        if kind is core.RebaseFailedError:  # its conflicts stay behind as text: they may be any number
            made = core.RebaseFailedError("", ())
        elif wanted:
            made = kind(*(fields[name] for name in wanted))
        else:
            made = kind(message)
    except (ValueError, KeyError, TypeError):
        return None
    made.args = (message,)
    return made
