"""Parameters that the fast tier takes some of, and the thorough one the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["mostly_thorough"]


def mostly_thorough(values: Iterable[Any], *, every: int | None = None) -> list[Any]:
    """Leave all but the first of `values`, or all but each `every`-th, to the thorough tier."""
    return [value if at == 0 or (every and at % every == 0) else _thorough(value) for at, value in enumerate(values)]


def _thorough(value: Any) -> Any:
    if hasattr(value, "marks"):
        return pytest.param(*value.values, id=value.id, marks=[*value.marks, pytest.mark.thorough])
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.thorough)
