"""Base of all methods of `Repository`: the repository of arraystore, and the id of its first snapshot."""

from __future__ import annotations

from typing import Any

import arraystore
from arraystore.compat.icechunk._opening import Opened
from arraystore.compat.icechunk.snapshots import FIRST_SNAPSHOT

__all__ = ["RepositoryBase", "first_snapshot"]


async def first_snapshot(repository: arraystore.Repository) -> str:
    """Return the id of the first snapshot of a repository."""
    oldest = ""
    async for info in repository.async_ancestry(branch="main"):
        oldest = info.id
    return oldest


class RepositoryBase:
    """A repository of arraystore, and what it was opened with."""

    def __init__(self, opened: Opened) -> None:
        self._opened: Opened = opened
        self._first: str | None = None

    @property
    def _core(self) -> arraystore.Repository:
        return self._opened.core

    async def _first_id(self) -> str:
        if self._first is None:
            self._first = await first_snapshot(self._core)
        return self._first

    async def _known_id(self, snapshot_id: Any) -> Any:
        """Return the id of arraystore for one of Icechunk, which differs for the first snapshot."""
        return await self._first_id() if snapshot_id == FIRST_SNAPSHOT else snapshot_id

    async def _shown_id(self, snapshot_id: str) -> str:
        """Return the id of Icechunk for one of arraystore."""
        return FIRST_SNAPSHOT if snapshot_id == await self._first_id() else snapshot_id
