"""Checks of arguments that several functions have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arraystore.errors import InvalidInputError


def check_choice(name: str, choice: object, choices: Sequence[Any]) -> None:
    """Check an argument that has few values; raise `InvalidInputError`."""
    if choice not in choices:
        raise InvalidInputError(f"{name}={choice!r} must be one of {', '.join(map(repr, choices))}")


def check_count(name: str, count: object) -> None:
    """Check an argument that is a count, or None for a default; raise `InvalidInputError`."""
    if count is not None and (type(count) is not int or count < 1):
        raise InvalidInputError(f"{name}={count!r} must be an integer >= 1")
