"""The repository as a whole: its branches and tags, and where it is."""

from __future__ import annotations

from dataclasses import dataclass

from arraystore._context.context import Context
from arraystore._format.ids import SnapshotId, id_to_text
from arraystore._format.repository_log import FIRST_BRANCH, RepositoryTable
from arraystore._repository.repository import Repository
from arraystore._runtime.concurrency import bounded
from arraystore.errors import ArrayStoreError, FormatError, NotFoundError, RefNotFoundError

__all__ = ["BranchTip", "Overview", "RefView", "branch_tips", "repository_overview"]

_REQUESTS = 32

_MAX_BRANCHES = 200
"""Branches that are looked up, which takes a request each."""


@dataclass(frozen=True)
class RefView:
    """Branch or tag, with the snapshot that it names."""

    name: str
    snapshot: str
    time: float | None
    """Time of the commit in milliseconds since 1970; None for a tag, whose snapshot is not read."""
    broken: str | None = None
    """Why the snapshot cannot be read; None where it can."""


@dataclass(frozen=True)
class Overview:
    """Branches, tags and state of a repository."""

    id: str
    location: str
    status: str
    status_reason: str | None
    branches: tuple[RefView, ...]
    """Branches, the first one first; at most 200."""
    tags: tuple[RefView, ...]
    more_branches: int
    """Number of branches that are left out."""


@dataclass(frozen=True)
class BranchTip:
    """Newest snapshot of a branch."""

    name: str
    snapshot: SnapshotId | None
    """None where it cannot be read."""
    time: float | None
    broken: str | None


async def repository_overview(repository: Repository) -> Overview:
    """Return branches, tags and state of a repository: a request for each branch, and one or two for the rest."""
    context = repository.context
    table = await context.repository_log.table()
    status = await repository.get_status_async()
    tips = await branch_tips(context, table)
    return Overview(
        repository.id,
        repository.storage.location,
        status.availability.value,
        status.limited_availability_reason,
        tuple(map(_ref, tips)),
        tuple([RefView(name, id_to_text(row.snapshot), None) for name, row in sorted(table.tags.items())]),
        max(0, sum(not row.deleted for row in table.branches.values()) - _MAX_BRANCHES),
    )


def _ref(tip: BranchTip) -> RefView:
    return RefView(tip.name, "" if tip.snapshot is None else id_to_text(tip.snapshot), tip.time, tip.broken)


async def branch_tips(context: Context, table: RepositoryTable) -> list[BranchTip]:
    """Return the newest snapshots of the first 200 branches, the first branch first; of damaged ones, what is wrong."""
    names = [name for name, row in table.branches.items() if not row.deleted]
    names.sort(key=lambda name: (name != FIRST_BRANCH, name))

    async def newest(name: str) -> BranchTip | None:
        try:
            state = (await context.tip(name)).state
        except RefNotFoundError:  # deleted meanwhile
            return None
        except (FormatError, NotFoundError) as error:
            return BranchTip(name, None, None, _text(error))
        return BranchTip(name, state.snapshot, state.time / 1000, None)

    return [tip for tip in await bounded(newest, names[:_MAX_BRANCHES], _REQUESTS) if tip is not None]


def _text(error: ArrayStoreError) -> str:
    return str(error)[:1_000]
