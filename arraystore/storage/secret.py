"""Strings that must not appear in a representation, a log, an error or, by default, a pickle."""

from __future__ import annotations

from typing import Any, NoReturn

from arraystore.errors import StorageError

__all__ = ["Secret"]


class Secret:
    """String that only `reveal` shows.

    It refuses to be pickled; code that may pickle it calls `reveal`, and wraps the string again after unpickling.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the string."""
        return self._value

    def __repr__(self) -> str:
        return "'***'"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: Any) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise StorageError(
            "pickle_credentials=True was not passed when the storage was created, so its credentials do not go to "
            "other processes: pass it to send them along, or create the storage with get_credentials or from_env=True, "
            "so that each process finds its own"
        )
