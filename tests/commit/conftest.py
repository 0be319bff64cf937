"""Fixtures of the tests of requests that are sent twice."""

from __future__ import annotations

import pytest

from arraystore._commit import prepare
from arraystore._maintenance import rewrite
from tests.commit.sent_twice import build


@pytest.fixture
def built() -> tuple[list[tuple[str, bytes]], list[str]]:
    """Return the objects of a repository of some commits, a branch and a tag, and its snapshots."""
    return build()


@pytest.fixture
def manifests_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let manifests be objects of their own, however small, so that there is something to delete."""
    for module in (rewrite, prepare):
        monkeypatch.setattr(module, "MAX_MANIFEST_IN_BODY", 0)
