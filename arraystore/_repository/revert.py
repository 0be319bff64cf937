"""Commits derived from other commits: one that undoes a snapshot, and one that repeats it on another branch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arraystore._chunks.statistics_objects import load_statistics
from arraystore._commit.solvers import ConflictDetector
from arraystore._context.context import Context
from arraystore._format.ids import id_to_text
from arraystore._format.layer import Layer
from arraystore._format.record import decode_note
from arraystore._history.pinning import announce
from arraystore._history.three_way_merge import Transplant, transplant
from arraystore._log.state import SnapshotState
from arraystore._repository.snapshots import load_snapshot
from arraystore._session.session import Session
from arraystore.errors import (
    InvalidInputError,
    RebaseFailedError,
    SessionExpiredError,
    SnapshotNotFoundError,
    StorageError,
)

_TRIES = 20
"""Most garbage collections that may start during one commit."""


@dataclass(frozen=True)
class _Change:
    """Difference of two snapshots, and the branch, message and metadata of the commit that makes it."""

    base: SnapshotState
    ours: SnapshotState
    branch: str
    message: str
    metadata: Mapping[str, str]

    def new_layers(self) -> list[Layer]:
        """Return the layers that the second snapshot added: what they know of a chunk is bound to its bytes."""
        known = {layer.id for node in self.base.nodes.values() for layer in node.layers}
        return [layer for node in self.ours.nodes.values() for layer in node.layers if layer.id not in known]


async def revert(
    context: Context, snapshot_id: str, branch: str, message: str | None, default_metadata: Mapping[str, Any]
) -> str:
    """Undo a snapshot in a new commit."""
    snapshot, before = await _load_with_parent(context, snapshot_id, "reverted")
    if message is None:
        message = f"Revert {_message(snapshot)!r}"
    change = _Change(snapshot, before, branch, message, {"reverts": snapshot_id})
    return await _commit(context, change, default_metadata)


async def cherry_pick(
    context: Context, snapshot_id: str, branch: str, message: str | None, default_metadata: Mapping[str, Any]
) -> str:
    """Repeat the changes of a snapshot in a new commit on another branch."""
    snapshot, before = await _load_with_parent(context, snapshot_id, "cherry-picked")
    if message is None:
        message = _message(snapshot)
    change = _Change(before, snapshot, branch, message, {"cherry_picked_from": snapshot_id})
    return await _commit(context, change, default_metadata)


async def _load_with_parent(context: Context, snapshot_id: str, verb: str) -> tuple[SnapshotState, SnapshotState]:
    """Return a snapshot and its parent."""
    state = (await load_snapshot(context, snapshot_id=snapshot_id)).state
    if state.parent is None:
        raise InvalidInputError(f"snapshot {snapshot_id} cannot be {verb}: it is the first one, and changes nothing")
    try:
        return state, (await load_snapshot(context, snapshot_id=id_to_text(state.parent))).state
    except SnapshotNotFoundError as error:
        raise SnapshotNotFoundError(
            f"snapshot {snapshot_id} cannot be {verb}: its parent {id_to_text(state.parent)} has expired, so "
            "that its changes are unknown"
        ) from error


async def _commit(context: Context, change: _Change, default_metadata: Mapping[str, Any]) -> str:
    """Commit a change to a branch, repeated if a garbage collection starts meanwhile."""
    for _ in range(_TRIES):
        try:
            return await _commit_once(context, change, default_metadata)
        except SessionExpiredError:  # a collection has started since the snapshot was announced
            continue
    raise StorageError(f"{context.storage.location}: {_TRIES} garbage collections started meanwhile; try again")


async def _commit_once(context: Context, change: _Change, default_metadata: Mapping[str, Any]) -> str:
    session = Session(context, await context.tip(change.branch), change.branch)
    session.default_metadata = dict(default_metadata)
    tip = session.base_tip.state
    merged = await transplant(change.base, change.ours, tip, context)
    _check(merged, change, tip)
    changes = session.hierarchy.writable()
    if merged.borrows:
        changes.borrowed.append(await announce(context, change.ours))
        if changes.packs.settings.statistics:
            changes.packs.adopt_statistics(await load_statistics(context.storage, change.new_layers()))
    merged.put_into(changes)
    return await session.commit_async(change.message, dict(change.metadata), rebase_with=ConflictDetector())


def _check(merged: Transplant, change: _Change, tip: SnapshotState) -> None:
    """Check that there are changes left to commit, and none that conflict with those of the branch."""
    if merged.conflicts:
        raise RebaseFailedError(
            id_to_text(tip.snapshot), merged.conflicts, id_to_text(change.base.snapshot), change.branch
        )
    if merged.empty:
        ((way, snapshot),) = change.metadata.items()
        left = "has nothing left that snapshot" if way == "reverts" else "has already all that snapshot"
        raise InvalidInputError(f"branch {change.branch!r} {left} {snapshot} changed; nothing was committed")


def _message(state: SnapshotState) -> str:
    message, _ = decode_note(f"note of snapshot {id_to_text(state.snapshot)}", state.note)
    return message
