"""Repositories that do not wait before they try again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from arraystore._environment import ENVIRONMENT, Environment


async def _no_sleep(seconds: float) -> None:
    await asyncio.sleep(0)


@pytest.fixture
def impatient() -> Iterator[None]:
    """Let repositories that are opened in the test try again at once."""
    token = ENVIRONMENT.set(Environment(sleep=_no_sleep))
    yield
    ENVIRONMENT.reset(token)
