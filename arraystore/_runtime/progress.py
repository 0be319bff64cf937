"""Progress of long calls: ``progress=True`` shows a bar, a callable is called, and both get the same reports."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from arraystore._runtime import lazy_module
from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    from arraystore._runtime import progress_bars
else:
    progress_bars = lazy_module("arraystore._runtime.progress_bars")

__all__ = ["Progress", "callback_of", "shows_progress"]

Progress = Callable[[int, int], None]
"""Called, where the call was made, with the count of finished tasks or files and the count of all."""

P = ParamSpec("P")
T = TypeVar("T")


def shows_progress(title: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function, or coroutine function, whose `progress` may be True: it is called with the updates of a bar.

    The bar exists for as long as the call; it is made in the thread of the caller, where a notebook expects it.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        if inspect.iscoroutinefunction(function):
            asynchronous: Callable[P, T] = _asynchronous(title, function)
            return asynchronous

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if not _wants_bar(kwargs):
                return function(*args, **kwargs)
            with progress_bars.open_bar(title) as update:
                kwargs["progress"] = update
                return function(*args, **kwargs)

        return call

    return decorate


def _asynchronous(title: str, function: Callable[..., Any]) -> Any:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        if not _wants_bar(kwargs):
            return await function(*args, **kwargs)
        with progress_bars.open_bar(title) as update:
            return await function(*args, **kwargs | {"progress": update})

    return call


def _wants_bar(arguments: dict[str, Any]) -> bool:
    """Tell whether a call asks for a bar; False for `progress` becomes None, and what cannot be called is refused."""
    progress = arguments.get("progress")
    if progress is True:
        return True
    if progress is False:
        arguments["progress"] = None
    elif progress is not None and not callable(progress):
        raise InvalidInputError(f"progress must be True for a bar, a callable, or None, not {progress!r}")
    return False


def callback_of(progress: Callable[..., None] | bool | None) -> Callable[..., None] | None:
    """Return the callback of a decorated function, whose `progress` is never True."""
    return None if isinstance(progress, bool) else progress
