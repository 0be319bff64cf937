"""Chunks written between two snapshots, where references alone do not tell.

A compaction copies chunks into other packs: their references change, their bytes do not.  The change logs between the
snapshots have the chunks that were written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from arraystore._chunks.cells import Cells
from arraystore._format.ids import NodeId, SnapshotId
from arraystore._format.record import Commit, Rewrite
from arraystore._log.branch_log import BranchLog
from arraystore._log.footprint import Footprint
from arraystore._log.loading import Passed, load_checkpoint, passed_between
from arraystore._log.state import Resolved, SnapshotState, follows
from arraystore.errors import ObjectNotFoundError, SessionExpiredError

LogOf = Callable[[str], BranchLog]
"""Returns the log of a branch."""


@dataclass(frozen=True, eq=False)
class _Stretch:
    """Records of one log between two snapshots in it."""

    log: BranchLog
    older: SnapshotState
    newer: SnapshotState


class _UnrelatedError(Exception):
    """The records between two snapshots do not lead from one to the other, as where one of them is on no branch."""


async def cells_touched(log_of: LogOf, before: SnapshotState, after: SnapshotState) -> dict[NodeId, list[Cells]]:
    """Return the cells written between two snapshots, by id of nodes of both with compacted chunks.

    There are none if the snapshots are unrelated or the records between them have expired: then every difference
    counts.
    """
    try:
        stretches = await _way(log_of, before, after)
        moved = set[NodeId]().union(*await asyncio.gather(*map(_compacted, stretches))) & before.keys.keys()
        moved &= after.keys.keys()
        if not moved:
            return {}
        footprints = await asyncio.gather(*map(_footprint, stretches))
    except (ObjectNotFoundError, SessionExpiredError, _UnrelatedError):  # every difference of references counts
        return {}
    touched: dict[NodeId, list[Cells]] = {identifier: [] for identifier in sorted(moved)}
    for footprint in footprints:
        for identifier in moved & footprint.nodes.keys():
            touched[identifier] += footprint.nodes[identifier].cells()
    return touched


async def _way(log_of: LogOf, before: SnapshotState, after: SnapshotState) -> list[_Stretch]:
    """Return the stretches from one snapshot back to a common ancestor, and from there to the other."""
    ours, theirs = [before], [after]
    while True:
        met = _met(ours, theirs)
        if met is not None:
            i, j = met
            stretches = [*_stretches(log_of, ours, i), *_stretches(log_of, theirs, j)]
            older, newer = sorted((ours[i], theirs[j]), key=lambda state: state.sequence)
            return [*stretches, _Stretch(log_of(older.branch), older, newer)]
        side = next((side for side in (ours, theirs) if side[-1].life.origin is not None), None)
        origin = None if side is None else side[-1].life.origin
        if side is None or origin is None:
            return []
        side.append(await load_checkpoint(log_of(origin.branch).storage, origin.checkpoint))


def _met(ours: Sequence[SnapshotState], theirs: Sequence[SnapshotState]) -> tuple[int, int] | None:
    """Return the positions at which two ways back first are in one stretch of one log."""
    places = {(state.branch, state.life.start): i for i, state in reversed(list(enumerate(ours)))}
    for j, state in enumerate(theirs):
        i = places.get((state.branch, state.life.start))
        if i is not None:
            return i, j
    return None


def _stretches(log_of: LogOf, states: Sequence[SnapshotState], count: int) -> list[_Stretch]:
    """Return `count` stretches: from a snapshot back to its origin, from this one to its own, and so on."""
    return [
        _Stretch(log_of(newer.branch), _at_start(origin, newer), newer)
        for newer, origin in pairwise(states[: count + 1])
    ]


def _at_start(origin: SnapshotState, newer: SnapshotState) -> SnapshotState:
    """Return the snapshot that a branch started from as that of its first record."""
    return SnapshotState(
        newer.branch,
        newer.life.start,
        origin.snapshot,
        origin.parent,
        origin.time,
        origin.note,
        origin.nodes,
        origin.keys,
    )


async def _compacted(stretch: _Stretch) -> set[NodeId]:
    """Return the nodes whose chunks were copied into other packs."""
    first, last = stretch.older.sequence + 1, stretch.newer.sequence
    if last < first:
        return set()
    span = await stretch.log.span(first, last)
    entries = [stretch.log.decode(number, body) for number, body in span.bodies.items()]
    rewrites = [entry for entry in entries if isinstance(entry, Rewrite) and entry.packs != b""]
    return {item.node for entry in rewrites for item in entry.replacements}


async def _footprint(stretch: _Stretch) -> Footprint:
    """Return the footprint of the transactions between two snapshots."""
    first, last = stretch.older.sequence, stretch.newer.sequence
    passed = await passed_between(stretch.log, first - 1, last)
    footprint = Footprint()
    snapshot, parent = stretch.older.snapshot, stretch.older.parent
    for transaction, log, _ in _between(passed, snapshot, stretch.newer.snapshot):
        if not follows(transaction, snapshot, parent):
            raise _UnrelatedError
        footprint.add(stretch.older, transaction.id, log)
        snapshot, parent = transaction.id, transaction.parent
    if snapshot != stretch.newer.snapshot:
        raise _UnrelatedError
    return footprint


def _between(passed: Sequence[Passed], older: SnapshotId, newer: SnapshotId) -> list[Resolved]:
    """Return the transactions after one snapshot, up to another; a record may hold several."""
    between: list[Resolved] = []
    for at, entry in enumerate(passed):
        items = list(entry.transactions) if isinstance(entry.entry, Commit) else []
        ids = [transaction.id for transaction, _, _ in items]
        if not at:
            items = items[ids.index(older) + 1 :] if older in ids else []
        if entry is passed[-1] and newer in ids:
            items = items[: len(items) - (len(ids) - ids.index(newer) - 1)]
        between += items
    return between
