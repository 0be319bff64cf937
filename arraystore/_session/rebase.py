"""Getting a session's changes over what others have committed: checking, asking a solver, looking at coordinates."""

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
from arraystore._commit.rewrite import rewrite_transaction
from arraystore._commit.solvers import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictSolver,
    Solution,
    Versions,
    answer_of,
)
from arraystore._conflicts import Conflict, ConflictType
from arraystore._format.ids import id_to_text
from arraystore._format.node import Documents, NodeKind
from arraystore._format.reserved_keys import is_hidden
from arraystore._format.transaction import Operation
from arraystore._format.zarr_metadata import array_info
from arraystore._log.loading import Tip
from arraystore._log.state import State
from arraystore._session.base import SessionBase
from arraystore._session.hierarchy import Hierarchy
from arraystore.errors import InvalidInputError, RebaseFailedError

__all__ = ["Unique", "open_view", "rebase_prepared", "resolve_conflicts"]

_BUILT_IN = (ConflictDetector, BasicConflictSolver)
"""They look at nothing but the conflict, so they need no thread of their own."""

_REQUESTS = 32
"""Chunks of a coordinate that are read at a time."""


@dataclass(frozen=True, eq=False)
class Unique:
    """A coordinate that must not repeat, and what the session has appended to it.

    Parameters
    ----------
    node
        Id of the array.
    path
        Its path when it was appended to.
    start
        Its length before.
    values
        What was appended.
    """

    node: bytes
    path: str
    start: int
    values: npt.NDArray[Any]


async def rebase_prepared(
    session: SessionBase, uniques: Sequence[Unique], transaction: PendingTransaction, tip: Tip, solver: ConflictSolver
) -> Prepared:
    """Rebase a session's transaction onto a record without committing it.

    Raises
    ------
    ArrayStoreError
        If a conflict is left, or nothing of the session can be committed any more.
    """
    request = Request(transaction, session.base_tip, 1)
    obstacle = await rebase_uncommitted(session.context.log(session.branch or ""), request, tip)
    if obstacle is None:
        return request.prepared
    return await resolve_conflicts(session, uniques, request.prepared, obstacle, solver)


async def resolve_conflicts(
    session: SessionBase, uniques: Sequence[Unique], prepared: Prepared, obstacle: Obstacle, solver: ConflictSolver
) -> Prepared:
    """Return a session's transaction rebased onto what it collided with.

    Raises
    ------
    RebaseFailedError
        If a conflict is left.
    """
    after = obstacle.tip.state
    saved = saved_by_others(prepared, after)
    if saved:
        context = session.context
        nodes = [change for change in prepared.log.nodes if change.id not in saved]
        prepared = await rewrite_transaction(
            prepared, nodes, prepared.log.chunks, (), context.storage, context.environment
        )
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
    """Return a transaction whose documents have the shapes that theirs has let grow."""
    nodes = adapt_node_changes(prepared, obstacle.before, obstacle.tip.state)
    if nodes is None:
        return prepared
    context = session.context
    return await rewrite_transaction(prepared, nodes, prepared.log.chunks, (), context.storage, context.environment)


def _failed(session: SessionBase, after: State, conflicts: Sequence[Conflict]) -> RebaseFailedError:
    return RebaseFailedError(id_to_text(after.snapshot), conflicts, session.snapshot_id, session.branch or "")


def _find_raised(
    prepared: Prepared, resolved: Prepared, obstacle: Obstacle, solved: Sequence[tuple[Conflict, Solution]]
) -> list[Conflict]:
    """Return conflicts that are there only because of how others were solved."""
    known = {(conflict.conflict_type, conflict.node) for conflict, _ in solved}
    mine, after = Ours.of(resolved), obstacle.tip.state
    found = [*detect(mine, obstacle.theirs, obstacle.before, after), *_find_homeless(Ours.of(prepared), mine, after)]
    decided = _deleted(resolved) - _deleted(prepared)  # whoever solved a conflict had them deleted, changed or not
    return [c for c in found if (c.conflict_type, c.node) not in known and c.node not in decided]


def _find_homeless(wanted: Ours, left: Ours, after: State) -> list[Conflict]:
    """Find what was to come into a group that, as conflicts were solved, does not come."""
    lost = wanted.places.keys() - left.places.keys() - after.nodes.keys()
    kinds = {
        Operation.CREATED: ConflictType.NewNodeInInvalidGroup,
        Operation.MOVED: ConflictType.MoveOperationCannotBeRebased,
    }
    snapshot = id_to_text(after.snapshot)
    return [
        Conflict(kinds[change.operation], "/" + change.path, None, snapshot, "its group does not come", change.id)
        for change in left.log.nodes
        if change.operation in kinds
        and change.kind != NodeKind.FILE
        and (change.target or change.path).rpartition("/")[0] in lost
    ]


def _deleted(prepared: Prepared) -> set[bytes]:
    return {change.id for change in prepared.log.nodes if change.operation == Operation.DELETED}


# -- solvers ------------------------------------------------------------------------------------------------------


async def _ask(
    session: SessionBase, prepared: Prepared, conflicts: Sequence[Conflict], obstacle: Obstacle, solver: ConflictSolver
) -> list[Solution | None]:
    if any(is_hidden(conflict.path.lstrip("/")) for conflict in conflicts):
        # The library's own keys, such as how far a stream is: whoever collides there has to look again, and with what
        # it wrote for it to go nothing may be committed, so nobody needs to be asked about the rest.
        return [None] * len(conflicts)
    versions = Versions(*(open_view(session, which, obstacle) for which in ("base", "ours", "theirs")))
    if type(solver) in _BUILT_IN:
        return [answer_of(solver.solve(conflict, versions)) for conflict in conflicts]
    return await asyncio.to_thread(_ask_all, prepared, conflicts, versions, solver)


def _ask_all(
    prepared: Prepared, conflicts: Sequence[Conflict], versions: Versions[SessionBase], solver: ConflictSolver
) -> list[Solution | None]:
    """Ask somebody else's solver, in a thread where it may wait for storage."""
    answers = [answer_of(solver.solve(conflict, versions)) for conflict in conflicts]
    return [None if a is None else _encoded(a, c, prepared, versions) for c, a in zip(conflicts, answers, strict=True)]


def open_view(session: SessionBase, which: str, obstacle: Obstacle) -> SessionBase:
    """Return a session that only reads: the base, ours with its changes, or theirs."""
    if which == "theirs":
        return SessionBase(session.context, obstacle.tip)
    view = SessionBase(session.context, session.base_tip)
    if which == "ours":
        mine = session.hierarchy
        view.hierarchy = Hierarchy(mine.state, mine.reader, mine.changes)
    return view


def _encoded(answer: Solution, conflict: Conflict, prepared: Prepared, versions: Versions[SessionBase]) -> Solution:
    """Encode merged chunks that come as arrays, as the metadata says of the array as it will be."""
    if not any(isinstance(value, np.ndarray) for value in answer.chunks.values()):
        return answer
    node = versions.theirs.hierarchy.node(conflict.path.lstrip("/"))
    if node is None:
        raise InvalidInputError(f"a solver merged chunks of {conflict.path!r}, which theirs does not have")
    mine = shape_of_ours(prepared, conflict.node, versions.base.hierarchy.state)
    documents = node.documents if mine is None else longer(node.documents, mine)
    chunks = {c: v if isinstance(v, bytes) else _encode(documents, c, v) for c, v in answer.chunks.items()}
    return replace(answer, chunks=chunks)


def _encode(documents: Documents, coords: tuple[int, ...], values: npt.NDArray[Any]) -> bytes:
    """Encode one chunk by letting zarr write it to an array of the same metadata in memory."""
    kept: dict[str, Any] = {}
    array = open_in_memory(documents, kept)
    shape = np.shape(array.blocks[coords] if coords else array[...])
    if values.shape != shape:
        raise InvalidInputError(f"a solver merged chunk {coords} as values of shape {values.shape}, not {shape}")
    if coords:
        array.blocks[coords] = values
    else:
        array[...] = values
    return only_chunk(documents, kept)


# -- coordinates that must not repeat -------------------------------------------------------------------------------


async def _find_repeated(session: SessionBase, uniques: Sequence[Unique], obstacle: Obstacle) -> list[Conflict]:
    """Find values of unique coordinates that theirs has by now."""
    concerned = [unique for unique in uniques if unique.node in obstacle.theirs.nodes]
    if not concerned:
        return []
    theirs = open_view(session, "theirs", obstacle)
    return [found for unique in concerned for found in await _compare(theirs, unique, obstacle)]


async def _compare(theirs: SessionBase, unique: Unique, obstacle: Obstacle) -> list[Conflict]:
    key = obstacle.tip.state.keys.get(unique.node)
    if key is None:
        return []  # deleted, which is a conflict of its own
    twice = np.intersect1d(await _values(theirs, key), unique.values)
    if not len(twice):
        return []
    node = obstacle.theirs.nodes[unique.node]
    shown = ", ".join(map(str, twice[:3])) + (f" and {len(twice) - 3} more" if len(twice) > 3 else "")
    snapshot = id_to_text(node.appended or node.updated or node.chunks[-1].snapshot)
    detail = f"theirs has appended {shown} already"
    return [Conflict(ConflictType.DuplicateAppend, "/" + key, None, snapshot, detail, unique.node)]


async def _values(view: SessionBase, path: str) -> npt.NDArray[Any]:
    """Return the values of a whole array; they are decoded in a thread, and no loop waits for that."""
    node = view.hierarchy.node(path)
    assert node is not None
    info, bound = array_info(node.documents), asyncio.Semaphore(_REQUESTS)

    async def read(coords: tuple[int, ...]) -> tuple[str, bytes | None]:
        async with bound:
            found = await view.store.get(f"{path}/{info.key(coords)}".lstrip("/"))
            return info.key(coords), None if found is None else found.to_bytes()

    chunks = await asyncio.gather(*(read(coords) for coords in np.ndindex(*info.grid)))
    kept: dict[str, Any] = {key: data for key, data in chunks if data is not None}
    return await asyncio.to_thread(lambda: np.asarray(open_in_memory(node.documents, kept)[...]))
