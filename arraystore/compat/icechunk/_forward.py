"""Methods that are those of arraystore, with ids and errors as Icechunk's users know them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from arraystore._runtime import run
from arraystore.compat.icechunk._exceptions import refine
from arraystore.compat.icechunk.snapshots import FIRST_SNAPSHOT
from arraystore.errors import ArrayStoreError

__all__ = ["forwarded", "refining"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


@contextmanager
def refining() -> Iterator[None]:
    """Give errors of the block the kinds and words that Icechunk's users look for."""
    try:
        yield
    except ArrayStoreError as error:
        other = refine(error)
        if other is not None:
            raise other from error
        raise


def forwarded(method: Callable[Concatenate[Any, _P], _R]) -> Callable[Concatenate[Any, _P], _R]:
    """Return a method that calls the one of this name of the object of arraystore, with the same arguments."""
    name = method.__name__
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def call_async(self: Any, *args: Any, **kwargs: Any) -> Any:
            with refining():
                return await getattr(self._core, name)(*await _known(self, args), **await _known_by_name(self, kwargs))

        return cast("Callable[Concatenate[Any, _P], _R]", call_async)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with refining():
            if FIRST_SNAPSHOT in args or FIRST_SNAPSHOT in kwargs.values():
                args, kwargs = run(_known(self, args)), run(_known_by_name(self, kwargs))
            return getattr(self._core, name)(*args, **kwargs)

    return cast("Callable[Concatenate[Any, _P], _R]", call)


async def _known(owner: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace Icechunk's id of the first snapshot."""
    return tuple([await owner._known_id(value) if value == FIRST_SNAPSHOT else value for value in values])


async def _known_by_name(owner: Any, values: dict[str, Any]) -> dict[str, Any]:
    return dict(zip(values, await _known(owner, tuple(values.values())), strict=True))
