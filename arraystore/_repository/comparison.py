"""Comparison of snapshots, and the graph of a history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from arraystore._context.context import Context
from arraystore._format.history import SnapshotRow
from arraystore._format.ids import SnapshotId
from arraystore._format.repository_log import FIRST_BRANCH, RepositoryTable, Tag
from arraystore._history.compare import compare
from arraystore._history.diff import Diff, diff_of
from arraystore._history.graph import AncestryGraph, History, draw_history, gather_rows
from arraystore._repository.history import read_ancestry
from arraystore._repository.snapshots import load_snapshot
from arraystore._runtime.concurrency import bounded
from arraystore.errors import InvalidInputError, RefNotFoundError, SnapshotExpiredError

_REQUESTS = 16
"""Branches that are looked up at a time."""

_LOOK_BRANCHES, _LOOK_TAGS = 16, 16
"""Branches and tags that a look at a repository reads, each of which takes requests."""


class LabelledSnapshots(NamedTuple):
    """Snapshots, and the names of those that branches and tags point to."""

    rows: dict[SnapshotId, SnapshotRow]
    labels: dict[SnapshotId, list[str]]


async def diff(
    context: Context,
    *,
    from_branch: str | None,
    from_tag: str | None,
    from_snapshot_id: str | None,
    to_branch: str | None,
    to_tag: str | None,
    to_snapshot_id: str | None,
) -> Diff:
    """Return the differences of two snapshots."""
    _check_one("from", from_branch, from_tag, from_snapshot_id)
    _check_one("to", to_branch, to_tag, to_snapshot_id)
    before, after = await asyncio.gather(
        load_snapshot(context, branch=from_branch, tag=from_tag, snapshot_id=from_snapshot_id),
        load_snapshot(context, branch=to_branch, tag=to_tag, snapshot_id=to_snapshot_id),
    )
    return diff_of(await compare(before.state, after.state, context.manifests, context.log))


def _check_one(side: str, branch: str | None, tag: str | None, snapshot_id: str | None) -> None:
    if sum(value is not None for value in (branch, tag, snapshot_id)) != 1:
        raise InvalidInputError(f"pass exactly one of {side}_branch, {side}_tag and {side}_snapshot_id")


async def draw_graph(
    context: Context, *, branch: str | None, tag: str | None, snapshot_id: str | None, plain: bool, limit: int
) -> AncestryGraph:
    """Draw the history of one snapshot, or of all branches and tags."""
    if limit < 1:
        raise InvalidInputError(f"limit={limit} must be >= 1")
    table = await context.repository_log.table()
    branches = await _newest(context, [name for name, row in table.branches.items() if not row.deleted])
    if (branch, tag, snapshot_id) == (None, None, None):
        rows, labels = await read_graph(context, limit, branches, table.tags)
        return draw_history(rows, labels, limit, plain=plain)
    histories = [(SnapshotId(b""), read_ancestry(context, branch=branch, tag=tag, snapshot_id=snapshot_id))]
    return draw_history(await gather_rows(histories, limit), _labels(branches, table.tags), limit, plain=plain)


async def read_graph(
    context: Context, limit: int, branches: Mapping[str, SnapshotId], tags: Mapping[str, Tag]
) -> LabelledSnapshots:
    """Read the history of branches, with their newest snapshots, and of tags, and the names of its snapshots."""
    rows = await gather_rows(_all_histories(context, branches, tags), limit)
    return LabelledSnapshots(rows, _labels(branches, tags))


async def read_newest(context: Context, limit: int) -> LabelledSnapshots:
    """Read the newest snapshots, and their names, from some branches and tags, so that a look takes few requests."""
    table = await context.repository_log.table()
    newest_tags = sorted(table.tags.items(), key=lambda item: item[1].snapshot)[-_LOOK_TAGS:]
    return await read_graph(context, limit, await _some_branches(context, table), dict(newest_tags))


async def read_labels(context: Context) -> dict[SnapshotId, list[str]]:
    """Read the names of snapshots: those of some branches, and of all tags."""
    table = await context.repository_log.table()
    return _labels(await _some_branches(context, table), table.tags)


async def _some_branches(context: Context, table: RepositoryTable) -> dict[str, SnapshotId]:
    live = sorted([name for name, row in table.branches.items() if not row.deleted], key=first_branch_first)
    return await _newest(context, live[:_LOOK_BRANCHES])


def _labels(branches: Mapping[str, SnapshotId], tags: Mapping[str, Tag]) -> dict[SnapshotId, list[str]]:
    """Return the branch and tag names of snapshots."""
    labels: dict[SnapshotId, list[str]] = {}
    for name, snapshot in branches.items():
        labels.setdefault(snapshot, []).append(name)
    for name, row in sorted(tags.items()):
        labels.setdefault(row.snapshot, []).append(f"tag: {name}")
    return labels


async def _newest(context: Context, branches: Iterable[str]) -> dict[str, SnapshotId]:
    """Return the newest snapshot of each branch, starting with the first branch."""

    async def newest(branch: str) -> SnapshotId | None:
        try:
            return (await context.tip(branch)).state.snapshot
        except RefNotFoundError:  # deleted meanwhile
            return None

    ordered = sorted(branches, key=first_branch_first)
    pairs = zip(ordered, await bounded(newest, ordered, _REQUESTS), strict=True)
    return {name: snapshot for name, snapshot in pairs if snapshot is not None}


def first_branch_first(name: str) -> tuple[bool, str]:
    """Return the key by which names of branches are sorted."""
    return name != FIRST_BRANCH, name


def _all_histories(context: Context, branches: Mapping[str, SnapshotId], tags: Mapping[str, Tag]) -> Iterable[History]:
    """Yield the histories of all branches, then of all tags."""
    for name, snapshot in branches.items():
        yield snapshot, _as_long_as_it_is_there(read_ancestry(context, branch=name))
    for name, row in sorted(tags.items()):
        yield row.snapshot, _as_long_as_it_is_there(read_ancestry(context, tag=name))


async def _as_long_as_it_is_there(
    history: AsyncIterator[Sequence[SnapshotRow]],
) -> AsyncIterator[Sequence[SnapshotRow]]:
    """Read a history up to where it is gone, since somebody has deleted its branch or tag meanwhile."""
    with suppress(RefNotFoundError, SnapshotExpiredError):
        async for rows in history:
            yield rows
