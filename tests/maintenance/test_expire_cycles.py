"""Expiry of a log whose snapshots are their own ancestors, which only wrong or hostile code writes: an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from arraystore._maintenance.expire import _Cut, _left
from arraystore.errors import FormatError

A, B, C = (bytes([number]) * 12 for number in (1, 2, 3))
LOG: Any = SimpleNamespace(branch="main")


def test_the_nearest_ancestor_that_is_left_is_found() -> None:
    assert _left(A, _Cut(LOG, 3, (), (), parents={A: B, B: C})) == C
    assert _left(A, _Cut(LOG, 3, (), (), parents={A: None})) is None


def test_ancestors_in_a_circle_are_an_error_and_no_endless_search() -> None:
    with pytest.raises(FormatError, match="branch 'main': snapshots must not be their own ancestors"):
        _left(A, _Cut(LOG, 3, (), (), parents={A: B, B: A}))
