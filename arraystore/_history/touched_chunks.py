"""Chunks written between two snapshots, where references alone do not tell.

A compaction copies chunks into other packs: their references change, their bytes do not.  The change logs between the
snapshots have the chunks that were written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from arraystore._chunks.cells import Cells
from arraystore._format.ids import NodeId, SnapshotId
from arraystore._format.record import Commit, Rewrite
from arraystore._format.refs import Hint
from arraystore._log.ancestry import read_page
from arraystore._log.branch_log import BranchLog
from arraystore._log.footprint import Footprint
from arraystore._log.loading import Passed, load_checkpoint, load_tip, passed_between
from arraystore._log.state import Resolved, SnapshotState, follows
from arraystore.errors import ObjectNotFoundError, SessionExpiredError

LogOf = Callable[[str], BranchLog]
"""Returns the log of a branch."""

Changes = Callable[[SnapshotState, SnapshotState], Awaitable[Mapping[NodeId, Cells]]]
"""Returns the cells that a snapshot changed, by node, given the one that it was made on, with the same layers."""


@dataclass(frozen=True, eq=False)
class _Stretch:
    """Records of one log between two snapshots in it."""

    log: BranchLog
    older: SnapshotState
    newer: SnapshotState


class _UnrelatedError(Exception):
    """The records between two snapshots do not lead from one to the other."""


@dataclass(frozen=True, eq=False)
class _Way:
    """Snapshots from either of two back to the stretch of a log that both histories are in."""

    ours: Sequence[SnapshotState]
    theirs: Sequence[SnapshotState]

    def stretches(self, log_of: LogOf, recorded: _Way) -> list[_Stretch]:
        """Return the stretches of logs, given the snapshots of records that stand for those on no branch."""
        stretches = [
            _Stretch(log_of(newer.branch), _at_start(origin, newer), newer)
            for states, side in ((self.ours, recorded.ours), (self.theirs, recorded.theirs))
            for origin, newer in zip(states[1:], side, strict=False)
        ]
        older, newer = sorted((recorded.ours[-1], recorded.theirs[-1]), key=lambda state: state.sequence)
        return [*stretches, _Stretch(log_of(older.branch), older, newer)]


async def cells_touched(
    log_of: LogOf, before: SnapshotState, after: SnapshotState, changes: Changes
) -> dict[NodeId, list[Cells]]:
    """Return the cells written between two snapshots, by id of nodes of both with compacted chunks.

    There are none if the snapshots are unrelated or the records between them have expired: then every difference
    counts.
    """
    nodes = before.keys.keys() & after.keys.keys()
    try:
        way = await _way(log_of, before, after)
        if way is None:
            return {}
        try:
            return await _touched(way.stretches(log_of, way), nodes)
        except _UnrelatedError:
            return await _touched_off_branches(log_of, way, nodes, changes)
    except (ObjectNotFoundError, SessionExpiredError, _UnrelatedError):  # every difference of references counts
        return {}


async def _touched(stretches: Sequence[_Stretch], nodes: AbstractSet[NodeId]) -> dict[NodeId, list[Cells]]:
    """Return the cells written in stretches of logs, by id of those of some nodes that were compacted there."""
    moved = set[NodeId]().union(*await asyncio.gather(*map(_compacted, stretches))) & nodes
    if not moved:
        return {}
    touched: dict[NodeId, list[Cells]] = {identifier: [] for identifier in sorted(moved)}
    for footprint in await asyncio.gather(*map(_footprint, stretches)):
        for identifier in moved & footprint.nodes.keys():
            touched[identifier] += footprint.nodes[identifier].cells()
    return touched


async def _touched_off_branches(
    log_of: LogOf, way: _Way, nodes: AbstractSet[NodeId], changes: Changes
) -> dict[NodeId, list[Cells]]:
    """Return the cells written on a way with snapshots on no branch: what these changed, and what records wrote."""
    recorded = _Way(*[[await _recorded(log_of(each.branch), each) for each in side] for side in (way.ours, way.theirs)])
    touched = await _touched(way.stretches(log_of, recorded), nodes)
    for base, made in zip((*recorded.ours, *recorded.theirs), (*way.ours, *way.theirs), strict=True):
        own = await changes(base, made) if touched and base is not made else {}
        for identifier in touched.keys() & own.keys():
            touched[identifier].append(own[identifier])
    return touched


async def _recorded(log: BranchLog, state: SnapshotState) -> SnapshotState:
    """Return the snapshot itself if a record makes it, or the one that it was made on, at the same record.

    Of a snapshot on no branch the latter has the layers that it was made on, whatever was compacted before and since.
    """
    page = await read_page(log, state.pages[-1]) if state.pages else None
    near = [] if page is None else [each for each in page.checkpoints if each[0] <= state.sequence]
    hint = Hint(*max(near)) if near else None
    for snapshot in (state.snapshot, state.parent):  # the last one of the record, if that does not make it
        found = (await load_tip(log, hint, at=state.sequence, snapshot=snapshot)).state
        if found.snapshot in (state.snapshot, state.parent):
            return state if found.snapshot == state.snapshot else found
    raise _UnrelatedError


async def _way(log_of: LogOf, before: SnapshotState, after: SnapshotState) -> _Way | None:
    """Follow the histories of two snapshots back to a common stretch of a log; None if there is none."""
    ours, theirs = [before], [after]
    while True:
        met = _met(ours, theirs)
        if met is not None:
            i, j = met
            return _Way(ours[: i + 1], theirs[: j + 1])
        side = next((side for side in (ours, theirs) if side[-1].life.origin is not None), None)
        origin = None if side is None else side[-1].life.origin
        if side is None or origin is None:
            return None
        side.append(await load_checkpoint(log_of(origin.branch).storage, origin.checkpoint))


def _met(ours: Sequence[SnapshotState], theirs: Sequence[SnapshotState]) -> tuple[int, int] | None:
    """Return the positions at which two ways back first are in one stretch of one log."""
    places = {(state.branch, state.life.start): i for i, state in reversed(list(enumerate(ours)))}
    for j, state in enumerate(theirs):
        i = places.get((state.branch, state.life.start))
        if i is not None:
            return i, j
    return None


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
