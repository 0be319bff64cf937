"""Differences between two snapshots: nodes, documents line by line, chunks as a map."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from arraystore._format.node import Node, NodeKind
from arraystore._format.zarr_metadata import array_info
from arraystore._history.compare import compare
from arraystore._log.state import SnapshotState
from arraystore._repository.repository import Repository
from arraystore._session.session import Session
from arraystore.errors import NodeNotFoundError
from arraystore.ui.views.chunk_map import Picture, changed_chunks, count_in, make_picture
from arraystore.ui.views.differing_place import differing_place
from arraystore.ui.views.document_lines import document_lines
from arraystore.ui.views.limits import MAX_PATHS
from arraystore.ui.views.snapshots import load_session, node_at, state_of

__all__ = ["Differences", "NodeDifference", "counterparts", "differences", "load_both", "node_difference"]


@dataclass(frozen=True)
class PathRow:
    """Node that differs."""

    path: str
    kind: str
    chunks: int = 0
    """Chunks that differ."""
    before: str | None = None
    """Path in the first snapshot, of a node that moved."""


@dataclass(frozen=True)
class Differences:
    """Differences of two snapshots, at most 2,000 paths of each kind."""

    before: str
    after: str
    created: tuple[PathRow, ...]
    deleted: tuple[PathRow, ...]
    updated: tuple[PathRow, ...]
    moved: tuple[PathRow, ...]
    chunks: tuple[PathRow, ...]
    """Arrays with chunks that differ."""
    counts: dict[str, int]
    """Numbers of all paths of each kind."""


@dataclass(frozen=True, eq=False)
class NodeDifference:
    """Differences of one node."""

    before: str
    after: str
    path: str
    kind: str
    side: str
    """``before`` or ``after`` for a node of one of the two only, else ``both``."""
    lines: tuple[str, ...]
    """Lines of a unified diff of the metadata documents."""
    picture: Picture | None
    changed: npt.NDArray[np.int32] | None
    """Chunks that differ, by picture cell; None for no array."""
    chunks: int
    index: tuple[int, ...]
    """Item at which values differ, as `differing_place` finds it; empty where there is none."""


async def differences(repository: Repository, before: str, after: str) -> Differences:
    """Return what differs between two snapshots."""
    first, second = await load_both(repository, before, after)
    context = repository.context
    found = await compare(state_of(first), state_of(second), context.manifests, context.log)
    lists = {
        "created": [_row(node) for node in found.created],
        "deleted": [_row(node) for node in found.deleted],
        "updated": [_row(node) for node in found.updated],
        "moved": [PathRow(move.after, move.kind.name.lower(), 0, move.before) for move in found.moved],
        "chunks": [_row(node, len(coords)) for node, coords in found.chunks],
    }
    counts = {name: len(rows) for name, rows in lists.items()}
    shown = {name: tuple(sorted(rows, key=lambda row: row.path)[:MAX_PATHS]) for name, rows in lists.items()}
    return Differences(first.snapshot_id, second.snapshot_id, **shown, counts=counts)


def _row(node: Node, chunks: int = 0) -> PathRow:
    return PathRow(node.path, node.kind.name.lower(), chunks)


async def load_both(repository: Repository, before: str, after: str) -> tuple[Session, Session]:
    """Return sessions at two snapshots."""
    first, second = await asyncio.gather(load_session(repository, before), load_session(repository, after))
    return first, second


async def node_difference(
    repository: Repository,
    before: str,
    after: str,
    path: str,
    axes: Sequence[int] | None = None,
    index: Sequence[int] | None = None,
) -> NodeDifference:
    """Return what differs in one node, by its path in the second snapshot, or in the first if it is only there."""
    first, second = await load_both(repository, before, after)
    was, now = counterparts(first, second, path)
    shown = now or was
    assert shown is not None
    lines = tuple(await asyncio.to_thread(document_lines, was, now))
    picture = changed = None
    chunks = 0
    place: tuple[int, ...] = ()
    if shown.kind == NodeKind.ARRAY:
        coords = await _changed(repository, state_of(first), state_of(second), was, now)
        picture = make_picture(array_info(shown.documents).grid, axes, index)
        changed, chunks, place = (
            count_in(picture, coords),
            len(coords),
            await differing_place((first, was), (second, now), coords),
        )
    kind, side = shown.kind.name.lower(), "before" if now is None else "after" if was is None else "both"
    return NodeDifference(
        first.snapshot_id, second.snapshot_id, shown.path, kind, side, lines, picture, changed, chunks, place
    )


def counterparts(first: Session, second: Session, path: str) -> tuple[Node | None, Node | None]:
    """Return a node in both snapshots, wherever it has moved."""
    try:
        now = node_at(second, path)
    except NodeNotFoundError:
        was = node_at(first, path)
        return was, state_of(second).by_id(was.id)
    return state_of(first).by_id(now.id) or _replaced_node(first, second, now), now


def _replaced_node(first: Session, second: Session, now: Node) -> Node | None:
    """Return the node of the same path and kind that another one has replaced, as writing a dataset anew does."""
    was = state_of(first).nodes.get(now.key)
    return was if was is not None and was.kind == now.kind and state_of(second).by_id(was.id) is None else None


async def _changed(
    repository: Repository, before: SnapshotState, after: SnapshotState, was: Node | None, now: Node | None
) -> npt.NDArray[np.int64]:
    if now is None:
        assert was is not None
        return await changed_chunks(repository.context, after, before, was)  # all that it had
    return await changed_chunks(repository.context, before, after, now)
