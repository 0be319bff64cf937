"""Snapshots that views look at, by name, with those used last kept in memory."""

from __future__ import annotations

from collections import OrderedDict
from weakref import WeakKeyDictionary

from arraystore._context.context import Context
from arraystore._format.ids import id_to_text, is_id_text
from arraystore._format.node import Node, NodeKind
from arraystore._log.loading import Tip
from arraystore._log.state import SnapshotState
from arraystore._repository.repository import Repository
from arraystore._repository.snapshots import load_snapshot
from arraystore._session.session import Session
from arraystore.errors import FormatError, InvalidInputError, NodeNotFoundError
from arraystore.ui.views.overview import branch_tips

__all__ = ["array_at", "load_session", "node_at"]

_KEPT = 12
"""Sessions of one repository in memory: enough to go back and forth between two snapshots and their parents."""

_LONGEST_NAME = 1_024

_sessions: WeakKeyDictionary[Context, OrderedDict[str, Session]] = WeakKeyDictionary()


async def load_session(repository: Repository, at: str) -> Session:
    """Return a read-only session at ``branch:NAME``, ``tag:NAME`` or the id of a snapshot.

    Raises `InvalidInputError` for any other name, `RefNotFoundError` or `SnapshotNotFoundError` for a missing one.
    """
    kept = _sessions.setdefault(repository.context, OrderedDict())
    if at in kept:
        kept.move_to_end(at)
        return kept[at]
    tip = await _load_tip(repository.context, at)
    session = Session(repository.context, tip, None)
    return _keep(kept, session)


def _keep(kept: OrderedDict[str, Session], session: Session) -> Session:
    session = kept.setdefault(session.snapshot_id, session)  # with the arrays that it has opened
    kept.move_to_end(session.snapshot_id)
    while len(kept) > _KEPT:
        kept.popitem(last=False)
    return session


async def _load_tip(context: Context, at: str) -> Tip:
    kind, _, name = at.partition(":")
    if len(at) > _LONGEST_NAME:
        raise InvalidInputError(f"the name of a snapshot must have at most {_LONGEST_NAME} characters")
    if kind == "branch" and name:
        return await load_snapshot(context, branch=name)
    if kind == "tag" and name:
        return await load_snapshot(context, tag=name)
    if not is_id_text(at):
        raise InvalidInputError(f"{at!r} is not valid: use branch:NAME, tag:NAME or the id of a snapshot")
    try:
        return await load_snapshot(context, snapshot_id=at)
    except FormatError:  # of a log that was looked through: another one may name the snapshot
        found = await _named(context, at)
        if found is None:
            raise
        return found


async def _named(context: Context, identifier: str) -> Tip | None:
    """Return a snapshot that a sound branch or a tag names; None if there is none."""
    table = await context.repository_log.table()
    for tip in await branch_tips(context, table):
        if tip.snapshot is not None and id_to_text(tip.snapshot) == identifier:
            return await load_snapshot(context, branch=tip.name)
    tags = [name for name, row in table.tags.items() if id_to_text(row.snapshot) == identifier]
    return await load_snapshot(context, tag=tags[0]) if tags else None


def state_of(session: Session) -> SnapshotState:
    """Return the snapshot of a session."""
    return session.base_tip.state


def node_at(session: Session, path: str) -> Node:
    """Return the group, array or file at a path; raises `NodeNotFoundError`."""
    nodes, key = state_of(session).nodes, path.strip("/")
    node = nodes.get(key) or nodes.get("\0" + key)
    if node is None:
        raise NodeNotFoundError(f"there is no node '/{key}' in snapshot {session.snapshot_id}")
    return node


def array_at(session: Session, path: str) -> Node:
    """Return the array at a path; raises `NodeNotFoundError`."""
    node = node_at(session, path)
    if node.kind != NodeKind.ARRAY:
        raise NodeNotFoundError(f"there is no array '/{node.path}' in snapshot {session.snapshot_id}")
    return node
