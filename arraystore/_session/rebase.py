"""Rebases of sessions: checks, answers of solvers, and unique coordinates."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._commit.append_adaptation import adapt_node_changes
from arraystore._commit.conflict_detection import Ours, detect
from arraystore._commit.conflict_resolution import RewriteContext, resolve, saved_by_others
from arraystore._commit.edge_chunks import (
    RefusedError,
    longer,
    merge_edge_chunks,
    only_chunk,
    open_in_memory,
    shape_of_ours,
)
from arraystore._commit.prepared import Prepared
from arraystore._commit.rebase_request import rebase_uncommitted
from arraystore._commit.rebase_step import PendingTransaction
from arraystore._commit.request import Obstacle, Request
from arraystore._commit.rewrite import rewrite_nodes
from arraystore._commit.solvers import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictSolver,
    Solution,
    Versions,
    answer_of,
)
from arraystore._conflicts import Conflict, ConflictType
from arraystore._format.ids import NodeId, id_to_text
from arraystore._format.node import Documents, NodeKind, ancestors
from arraystore._format.reserved_keys import is_hidden
from arraystore._format.transaction import Operation
from arraystore._format.zarr_metadata import array_info
from arraystore._log.loading import Tip
from arraystore._log.state import SnapshotState, StateBuilder
from arraystore._runtime.concurrency import bounded
from arraystore._session.base import SessionBase
from arraystore._session.hierarchy import Hierarchy
from arraystore.errors import InvalidInputError, RebaseFailedError

_BUILT_IN = (ConflictDetector, BasicConflictSolver)
"""Solvers that read nothing but the conflict, so they need no thread."""

_REQUESTS = 32
"""Chunks of a coordinate that are read at a time."""


@dataclass(frozen=True, eq=False)
class Unique:
    """A coordinate whose values must not repeat, and the values that the session has appended to it."""

    node: NodeId
    """Id of the array."""
    path: str
    """Path of the array when it was appended to."""
    start: int
    """Length of the array before."""
    values: npt.NDArray[Any]
    """The appended values."""


async def rebase_prepared(
    session: SessionBase, uniques: Sequence[Unique], transaction: PendingTransaction, tip: Tip, solver: ConflictSolver
) -> Prepared:
    """Rebase a session's transaction onto a record without committing it."""
    request = Request(transaction, session.base_tip, 1)
    obstacle = await rebase_uncommitted(session.context.log(session.branch or ""), request, tip)
    if obstacle is None:
        return request.prepared
    return await resolve_conflicts(session, uniques, request.prepared, obstacle, solver)


async def resolve_conflicts(
    session: SessionBase, uniques: Sequence[Unique], prepared: Prepared, obstacle: Obstacle, solver: ConflictSolver
) -> Prepared:
    """Rebase a session's transaction past an obstacle; raises `RebaseFailedError` if a conflict is left."""
    after = obstacle.tip.state
    saved = saved_by_others(prepared, after)
    if saved:
        nodes = [change for change in prepared.log.nodes if change.id not in saved]
        prepared = await rewrite_nodes(prepared, nodes, session.context.storage, session.context.environment)
        obstacle = replace(obstacle, conflicts=tuple(c for c in obstacle.conflicts if c.node not in saved))
    conflicts = [*obstacle.conflicts, *await _find_repeated(session, uniques, obstacle)]
    answers = await _ask(session, prepared, conflicts, obstacle, solver) if conflicts else []
    solved = [(c, answer) for c, answer in zip(conflicts, answers, strict=True) if answer is not None]
    left = [c for c, answer in zip(conflicts, answers, strict=True) if answer is None]
    if left:
        raise _failed(session, after, left)
    if not solved:
        return await _adapt(session, prepared, obstacle)
    rewriting = RewriteContext(session.context.reader, session.context.environment, session.config.pack_settings())
    base, reader = session.base_tip.state, session.context.reader
    try:
        solved = await merge_edge_chunks(prepared, solved, base, after, reader)
        resolved = await resolve(prepared, solved, obstacle.before, after, rewriting)
    except RefusedError as error:
        conflict, reason = error.args
        detail = f"{conflict.detail}; the solver's answer cannot be used: {reason}"
        raise _failed(session, after, [replace(conflict, detail=detail)]) from None
    raised = _find_raised(prepared, resolved, obstacle, solved)
    if raised:
        raise _failed(session, after, raised)
    return await _adapt(session, resolved, obstacle)


async def _adapt(session: SessionBase, prepared: Prepared, obstacle: Obstacle) -> Prepared:
    """Rewrite a transaction whose documents have shapes that others let grow."""
    nodes = adapt_node_changes(prepared, obstacle.before, obstacle.tip.state)
    if nodes is None:
        return prepared
    return await rewrite_nodes(prepared, nodes, session.context.storage, session.context.environment)


def _failed(session: SessionBase, after: SnapshotState, conflicts: Sequence[Conflict]) -> RebaseFailedError:
    return RebaseFailedError(id_to_text(after.snapshot), conflicts, session.snapshot_id, session.branch or "")


_PLACEMENT_CONFLICTS = frozenset(
    {
        ConflictType.NewNodeConflictsWithExistingNode,
        ConflictType.NewNodeInInvalidGroup,
        ConflictType.MoveOperationCannotBeRebased,
    }
)
"""Conflicts that are gone once they are solved, and are there again where the answer to another one left a node."""


def _find_raised(
    prepared: Prepared, resolved: Prepared, obstacle: Obstacle, solved: Sequence[tuple[Conflict, Solution]]
) -> list[Conflict]:
    """Find conflicts that exist only because of how others were solved."""
    solved_keys = {(c.conflict_type, c.node) for c, _ in solved if c.conflict_type not in _PLACEMENT_CONFLICTS}
    mine, after = Ours.of(resolved), obstacle.tip.state
    decided = _deleted(resolved) - _deleted(prepared)  # deleted by the answer of a solver, changed or not

    def unsolved(conflicts: list[Conflict]) -> list[Conflict]:
        return [c for c in conflicts if (c.conflict_type, c.node) not in solved_keys and c.node not in decided]

    raised = unsolved(detect(mine, obstacle.theirs, obstacle.before, after))
    return raised or unsolved(_find_homeless(Ours.of(prepared), mine, after))


def _find_homeless(wanted: Ours, left: Ours, after: SnapshotState) -> list[Conflict]:
    """Find nodes whose group, created by the same transaction, was dropped by a solver."""
    if wanted.places.keys() == left.places.keys():
        return []
    placing = (Operation.CREATED, Operation.DELETED, Operation.MOVED)
    builder = StateBuilder(after)
    builder.change_nodes(tuple(change for change in left.log.nodes if change.operation in placing))
    lost = wanted.places.keys() - builder.build().nodes.keys()
    kinds = {
        Operation.CREATED: ConflictType.NewNodeInInvalidGroup,
        Operation.MOVED: ConflictType.MoveOperationCannotBeRebased,
    }
    snapshot = id_to_text(after.snapshot)
    return [
        Conflict(kinds[change.operation], "/" + change.path, None, snapshot, "its group is not created", change.id)
        for change in left.log.nodes
        if change.operation in kinds
        and change.kind != NodeKind.FILE
        and next((above for above in ancestors(change.target or change.path) if above in wanted.places), None) in lost
    ]


def _deleted(prepared: Prepared) -> set[NodeId]:
    return {change.id for change in prepared.log.nodes if change.operation == Operation.DELETED}


# -- solvers ------------------------------------------------------------------------------------------------------


async def _ask(
    session: SessionBase, prepared: Prepared, conflicts: Sequence[Conflict], obstacle: Obstacle, solver: ConflictSolver
) -> list[Solution | None]:
    if any(is_hidden(conflict.path.lstrip("/")) for conflict in conflicts):
        # A conflict of the library's own keys, such as the progress of a stream, always fails the rebase, so solvers
        # need not be asked about the others.
        return [None] * len(conflicts)
    versions = Versions(*(open_view(session, which, obstacle) for which in ("base", "ours", "theirs")))
    if type(solver) in _BUILT_IN:
        return [answer_of(solver.solve(conflict, versions)) for conflict in conflicts]
    return await asyncio.to_thread(_ask_all, prepared, conflicts, versions, solver)


def _ask_all(
    prepared: Prepared, conflicts: Sequence[Conflict], versions: Versions[SessionBase], solver: ConflictSolver
) -> list[Solution | None]:
    """Ask a custom solver, in a thread where it may wait for storage."""
    answers = [answer_of(solver.solve(conflict, versions)) for conflict in conflicts]
    return [None if a is None else _encoded(a, c, prepared, versions) for c, a in zip(conflicts, answers, strict=True)]


def open_view(session: SessionBase, which: str, obstacle: Obstacle) -> SessionBase:
    """Return a read-only session of the base, of ours with its changes, or of theirs."""
    if which == "theirs":
        return SessionBase(session.context, obstacle.tip)
    view = SessionBase(session.context, session.base_tip)
    if which == "ours":
        mine = session.hierarchy
        view.hierarchy = Hierarchy(mine.state, mine.reader, mine.changes)
    return view


def _encoded(answer: Solution, conflict: Conflict, prepared: Prepared, versions: Versions[SessionBase]) -> Solution:
    """Encode merged chunks that are arrays, with the metadata that the array will have."""
    if not any(isinstance(value, np.ndarray) for value in answer.chunks.values()):
        return answer
    node = versions.theirs.hierarchy.node(conflict.path.lstrip("/"))
    if node is None:
        raise InvalidInputError(f"a solver merged chunks of {conflict.path!r}, which does not exist in theirs")
    mine = shape_of_ours(prepared, NodeId(conflict.node), versions.base.hierarchy.state)
    documents = node.documents if mine is None else longer(node.documents, mine)
    chunks = {c: v if isinstance(v, bytes) else _encode(documents, c, v) for c, v in answer.chunks.items()}
    return replace(answer, chunks=chunks)


def _encode(documents: Documents, coords: tuple[int, ...], values: npt.NDArray[Any]) -> bytes:
    """Encode one chunk through zarr, in an in-memory array of the same metadata."""
    kept: dict[str, Any] = {}
    array = open_in_memory(documents, kept)
    shape = np.shape(array.blocks[coords] if coords else array[...])
    if values.shape != shape:
        raise InvalidInputError(f"a solver must merge chunk {coords} as values of shape {shape}, not {values.shape}")
    if coords:
        array.blocks[coords] = values
    else:
        array[...] = values
    return only_chunk(documents, kept)


# -- coordinates that must not repeat -------------------------------------------------------------------------------


async def _find_repeated(session: SessionBase, uniques: Sequence[Unique], obstacle: Obstacle) -> list[Conflict]:
    """Find appended values of unique coordinates that theirs has too."""
    concerned = [unique for unique in uniques if unique.node in obstacle.theirs.nodes]
    if not concerned:
        return []
    theirs = open_view(session, "theirs", obstacle)
    return [conflict for unique in concerned for conflict in await _compare(theirs, unique, obstacle)]


async def _compare(theirs: SessionBase, unique: Unique, obstacle: Obstacle) -> list[Conflict]:
    key = obstacle.tip.state.keys.get(unique.node)
    if key is None:
        return []  # its deletion is a conflict of its own
    twice = np.intersect1d(await _read_values(theirs, key), unique.values)
    if not len(twice):
        return []
    node = obstacle.theirs.nodes[unique.node]
    shown = ", ".join(map(str, twice[:3])) + (f" and {len(twice) - 3} more" if len(twice) > 3 else "")
    snapshot = id_to_text(node.appended or node.updated or node.chunks[-1].snapshot)
    detail = f"theirs has appended {shown} already"
    return [Conflict(ConflictType.DuplicateAppend, "/" + key, None, snapshot, detail, unique.node)]


async def _read_values(view: SessionBase, path: str) -> npt.NDArray[Any]:
    """Read the values of a whole array, decoding them in a thread."""
    node = view.hierarchy.node(path)
    assert node is not None
    info = array_info(node.documents)

    async def read(coords: tuple[int, ...]) -> tuple[str, bytes | None]:
        value = await view.store.get(f"{path}/{info.key(coords)}".lstrip("/"))
        return info.key(coords), None if value is None else value.to_bytes()

    chunks = await bounded(read, np.ndindex(*info.grid), _REQUESTS)
    kept: dict[str, Any] = {key: data for key, data in chunks if data is not None}
    return await asyncio.to_thread(lambda: np.asarray(open_in_memory(node.documents, kept)[...]))
