"""Pickled sessions that could not be opened where they were unpickled: their error comes with the first use.

A scheduler that unpickles a task cannot report an error of it: it tries again for ever, or ends the worker.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from arraystore.errors import ArrayStoreError

_Session = TypeVar("_Session")


class UnavailableSession:
    """Pickled session whose snapshot cannot be loaded: every use of it raises the error."""

    read_only = True

    def __init__(self, error: ArrayStoreError, reduced: tuple[Any, ...]) -> None:
        self._error = error
        self._reduced = reduced

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced  # another process may be able to load it

    def __repr__(self) -> str:
        return f"<unavailable session: {self._error}>"

    def describe(self) -> str:
        """Return why it is unavailable."""
        return f"(unavailable: {self._error})"

    def for_store(self) -> UnavailableSession:
        """Return what is pickled with a store."""
        return self

    def __dask_tokenize__(self) -> str:
        """Return what names of dask arrays are made of: each time another, since nothing is known."""
        return uuid.uuid4().hex

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        raise self._error.with_traceback(None)


def opened_or_unavailable(
    open_session: Callable[[], _Session], reduced: tuple[Any, ...]
) -> _Session | UnavailableSession:
    """Open a session that was pickled as `reduced`; one that cannot be opened is returned as unavailable."""
    try:
        return open_session()
    except ArrayStoreError as error:
        return UnavailableSession(error, reduced)
