"""Values that must not be seen: not in a representation, a log, an error or, unasked, a pickle."""

from __future__ import annotations

from typing import Any, NoReturn

from arraystore.errors import StorageError

__all__ = ["Secret"]


class Secret:
    """A string that shows only on `reveal`.

    It refuses to be pickled; whoever may pickle it calls `reveal` and wraps the text again on the other side.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return "'***'"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: Any) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise StorageError(
            "credentials are not pickled unasked: give the storage get_credentials or from_env, so that each "
            "process finds its own, or create it with pickle_credentials=True to send them along"
        )
