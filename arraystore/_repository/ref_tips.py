"""Newest snapshots of branches and tags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from arraystore._runtime import run
from arraystore._runtime.concurrency import bounded
from arraystore.errors import RefNotFoundError

if TYPE_CHECKING:
    from arraystore._repository.repository import Repository
    from arraystore._repository.snapshots import SnapshotInfo

_AT_ONCE = 16
"""Number of concurrent look-ups of refs."""


def newest_of(repository: Repository, kind: str, names: Iterable[str]) -> dict[str, SnapshotInfo]:
    """Look up the snapshots of branches or tags concurrently, without those deleted meanwhile."""
    return run(_newest_of(repository, kind, sorted(names)))


async def _newest_of(repository: Repository, kind: str, names: Sequence[str]) -> dict[str, SnapshotInfo]:
    async def newest(name: str) -> SnapshotInfo | None:
        try:
            async for info in repository.async_ancestry(**{kind: name}):
                return info
        except RefNotFoundError:
            pass
        return None

    infos = zip(names, await bounded(newest, names, _AT_ONCE), strict=True)
    return {name: info for name, info in infos if info is not None}
