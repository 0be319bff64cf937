"""History of a repository in Icechunk's shapes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping

import arraystore
from arraystore._format.ids import id_to_text
from arraystore._format.node import Node, NodeKind
from arraystore._log.state import SnapshotState
from arraystore._repository.snapshots import load_snapshot
from arraystore.compat.icechunk._exceptions import ErrorKind
from arraystore.compat.icechunk.snapshots import Diff, ManifestFileInfo, SnapshotInfo
from arraystore.errors import InvalidInputError

__all__ = ["check_lineage", "committed_diff", "manifest_files", "moves", "newest_first", "uncommitted_diff"]

_Version = Mapping[str, str | None]
"""A branch, a tag or the id of a snapshot."""


async def newest_first(
    repository: arraystore.Repository, *, branch: str | None, tag: str | None, snapshot_id: str | None
) -> AsyncIterator[SnapshotInfo]:
    """Yield a snapshot and those before it; each waits for the next, which tells whether its parent is the first."""
    waiting: arraystore.SnapshotInfo | None = None
    async for info in repository.async_ancestry(branch=branch, tag=tag, snapshot_id=snapshot_id):
        if waiting is not None:
            yield SnapshotInfo.of(waiting, info.id if info.parent_id is None else None)
        waiting = info
    if waiting is not None:
        yield SnapshotInfo.of(waiting, waiting.id if waiting.parent_id is None else None)


async def check_lineage(repository: arraystore.Repository, start: _Version, end: _Version) -> None:
    """Check that a snapshot is among those before another one, as Icechunk needs it."""
    wanted = id_to_text((await load_snapshot(repository.context, **start)).state.snapshot)
    async for info in repository.async_ancestry(**end):
        if info.id == wanted:
            return
    raise InvalidInputError(
        f"invalid snapshot chain for diff: the history of the second snapshot doesn't include {wanted}; "
        "arraystore.Repository.diff compares any two",
        ErrorKind.BAD_SNAPSHOT_CHAIN_FOR_DIFF,
    )


async def committed_diff(repository: arraystore.Repository, start: _Version, end: _Version) -> Diff:
    """Return what changed from one snapshot to one that comes after it."""
    found = await repository.diff_async(
        **{f"from_{name}": value for name, value in start.items()},
        **{f"to_{name}": value for name, value in end.items()},
    )
    await check_lineage(repository, start, end)
    if not found.moved_nodes:
        return Diff.of(found, [])
    before, after = [(await load_snapshot(repository.context, **which)).state for which in (start, end)]
    return Diff.of(found, moves(before, after.nodes.values()))


def uncommitted_diff(session: arraystore.Session) -> Diff:
    """Return the uncommitted changes of a session."""
    found, changes = session.status(), session.hierarchy.changes
    if not found.moved_nodes or changes is None:
        return Diff.of(found, [])
    return Diff.of(found, moves(session.base_tip.state, changes.all_nodes()))


def moves(before: SnapshotState, after: Iterable[Node]) -> list[tuple[str, str]]:
    """Return the paths of all nodes that have moved, those below a moved group included, in order of the new ones."""
    nodes = [(before.by_id(node.id), node) for node in after if node.kind != NodeKind.FILE]
    moved = [("/" + old.path, "/" + new.path) for old, new in nodes if old is not None and old.path != new.path]
    return sorted(moved, key=lambda move: move[1].split("/"))


async def manifest_files(repository: arraystore.Repository, snapshot_id: str) -> list[ManifestFileInfo]:
    """Return the references of each array of a snapshot."""
    tip = await load_snapshot(repository.context, snapshot_id=snapshot_id)
    found: list[ManifestFileInfo] = []
    for node in tip.state.nodes.values():
        if node.kind != NodeKind.ARRAY or not node.layers:
            continue
        present = await repository.context.reader.present(node.layers)
        if present is not None and len(present):
            manifests = [await repository.context.reader.manifests.load(layer) for layer in node.layers]
            size = sum(manifest.nbytes for manifest in manifests)
            found.append(ManifestFileInfo(id_to_text(node.layers[-1].id), size, len(present)))
    return found
