"""The history of a branch: listing its snapshots, finding one by id."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from arraystore._format.history import (
    HistoryPage,
    SnapshotRow,
    Survivors,
    decode_history,
    decode_survivors,
    history_key,
    page_span,
    survivors_key,
)
from arraystore._format.ids import SnapshotId
from arraystore._format.lifecycle import BranchLife
from arraystore._format.record import Birth, Commit, encode_note
from arraystore._format.refs import Hint
from arraystore._format.snapshot import PageRef
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import INITIAL_MESSAGE, Tip, load_checkpoint, load_tip
from arraystore._log.state import SnapshotState
from arraystore.errors import ObjectNotFoundError

Newest = Callable[[str], Awaitable[SnapshotState]]
"""Returns the newest state of a branch's log, deleted or not: what has expired there is said in it."""


@dataclass(frozen=True)
class Place:
    """Location of a snapshot in a log, and the nearest checkpoint at or before it."""

    branch: str
    row: SnapshotRow
    hint: Hint | None


async def rows_of_records(log: BranchLog, first: int, last: int) -> list[SnapshotRow]:
    """Read the snapshots of some neighbouring records from the records themselves, oldest first."""
    if last < first:
        return []
    span = await log.span(first, last)
    rows: list[SnapshotRow] = []
    for number, body in span.bodies.items():
        entry = log.decode(number, body)
        if isinstance(entry, Birth) and entry.origin is None:
            note = encode_note(INITIAL_MESSAGE, {})
            rows.append(SnapshotRow(number, entry.snapshot, entry.parent, entry.time, note))
        elif isinstance(entry, Commit):
            for item in entry.transactions:
                note = await log.note(number, item, span.records)
                rows.append(SnapshotRow(number, item.id, item.parent, item.time, note))
    return rows


async def read_page(log: BranchLog, ref: PageRef) -> HistoryPage:
    """Read a history page; one that is missing is made from the records, as its writer would have."""
    key = history_key(log.history_prefix, ref.level, ref.index)
    try:
        return decode_history(key, await log.storage.get(key), log.branch, ref.level, ref.index)
    except ObjectNotFoundError:
        rows = await rows_of_records(log, *page_span(ref.level, ref.index))
        return HistoryPage(log.branch, ref.level, ref.index, tuple(rows), ())


async def read_survivors(log: BranchLog, life: BranchLife) -> Survivors | None:
    """Read which of the snapshots that have expired are kept; None if none are."""
    if life.survivors is None:
        return None
    key = survivors_key(log.history_prefix, life.survivors)
    return decode_survivors(key, await log.storage.get(key), log.branch)


def covered(pages: tuple[PageRef, ...]) -> int:
    """Return the newest record that is in a page, -1 if there is no page."""
    return page_span(pages[-1].level, pages[-1].index)[1] if pages else -1


async def ancestry(log: BranchLog, tip: Tip, newest: Newest | None = None) -> AsyncIterator[list[SnapshotRow]]:
    """List snapshots newest first, a page at a time, through the origins of branches.

    Snapshots that have expired, whose place others took, or that a reset has left behind are passed over; the parent
    of what comes after them is the next one that is listed.  `newest` tells what has expired where `tip` is not the
    newest record of its log.
    """
    find = newest or _newest_in(log)
    life = tip.state.life if newest is None else (await newest(log.branch)).life
    part: _Part | None = await _part(log, tip.state, life, find)
    chain = _Chain(tip.state.snapshot)
    while part is not None:
        chain.reached = part.state.sequence
        async for rows in part.rows():
            listed = chain.follow(rows, part.links)
            if listed:
                yield listed
        before = await part.before()
        if not chain.leads_to(before):
            chain.go_on_at(await part.left_before(chain.reached))
            listed = chain.follow(part.left, part.links)
            if listed:
                yield listed
        part = None if before is None else await part.next(before, find)
    last = chain.end()
    if last:
        yield last


@dataclass(frozen=True)
class _Part:
    """The part of a history that is in one log: up to a snapshot of it, from where its branch began."""

    log: BranchLog
    state: SnapshotState
    life: BranchLife
    kept: Survivors | None

    @cached_property
    def links(self) -> Mapping[SnapshotId, SnapshotId | None]:
        """Snapshots that are gone, each with the next one that is left."""
        return {} if self.kept is None else dict(self.kept.links)

    @cached_property
    def left(self) -> tuple[SnapshotRow, ...]:
        """The snapshots that an expiry has left, newest first."""
        return () if self.kept is None else self.kept.rows[::-1]

    async def rows(self) -> AsyncIterator[Sequence[SnapshotRow]]:
        """List snapshots newest first; the first one may be on no branch."""
        state = self.state
        if state.snapshot not in {row.id for row in self.left}:
            yield [SnapshotRow(state.sequence, state.snapshot, state.parent, state.time, state.note)]
        async for rows in _of_log(self.log, state, self.life):
            yield rows
        yield self.left

    async def before(self) -> SnapshotState | None:
        """Read the snapshot of a log at which the branch began; None if it began with the repository."""
        origin = self.state.life.origin
        return None if origin is None else await load_checkpoint(self.log.storage, origin.checkpoint)

    async def next(self, before: SnapshotState, find: Newest) -> _Part:
        """Return the part up to the snapshot at which the branch began."""
        log = BranchLog(self.log.storage, self.log.repository, before.branch, self.log.environment)
        return await _part(log, before, (await find(before.branch)).life, find)

    async def left_before(self, sequence: int) -> SnapshotId | None:
        """Return the next snapshot before a record that is left, where nothing leads on to it; None if that is unknown.

        Expiries make links from what they see: not from the parent of a branch that is created meanwhile, nor of what
        goes on from a snapshot on no branch.  The history of the log itself, from its base on, leads past that place.
        """
        if self.life.base is None or self.life.expired < self.state.life.start:
            return None
        base = await load_checkpoint(self.log.storage, self.life.base)
        if base.life.start != self.state.life.start:
            return None  # the history of another life of the log
        found: SnapshotId | None = self.links.get(base.snapshot, base.snapshot)
        for row in self.left:
            if row.id == found and row.sequence >= sequence:
                found = None if row.parent is None else self.links.get(row.parent, row.parent)
        return found


async def left_behind(log: BranchLog, state: SnapshotState, life: BranchLife) -> SnapshotId | None:
    """Return what the history of an expired snapshot goes on with where no link says so; None if that is unknown."""
    part = _Part(log, state, life, await read_survivors(log, life))
    if state.parent is None or state.parent in part.links or state.parent in {row.id for row in part.left}:
        return None
    before = await part.before()
    if before is not None and state.parent in (before.snapshot, before.parent):
        return None
    return await part.left_before(state.sequence)


async def _part(log: BranchLog, state: SnapshotState, life: BranchLife, find: Newest) -> _Part:
    while True:
        try:
            return _Part(log, state, life, await read_survivors(log, life))
        except ObjectNotFoundError:  # another expiry may have replaced the list, and a collection deleted it
            newest = (await find(log.branch)).life
            if newest.survivors == life.survivors:
                raise
            life = newest


class _Chain:
    """Follows parents through rows that may hold more than one history."""

    def __init__(self, snapshot: SnapshotId) -> None:
        self._wanted: SnapshotId | None = snapshot
        self._held: SnapshotRow | None = None
        self.reached = 0
        """Number of the record in the log at hand that it has come to."""

    def leads_to(self, before: SnapshotState | None) -> bool:
        """Tell whether what is wanted next is nothing, or what a log goes on from: a snapshot, or what it replaced."""
        return self._wanted is None or (before is not None and self._wanted in (before.snapshot, before.parent))

    def go_on_at(self, snapshot: SnapshotId | None) -> None:
        """Want another snapshot next, if there is one."""
        self._wanted = snapshot or self._wanted

    def follow(self, rows: Sequence[SnapshotRow], links: Mapping[SnapshotId, SnapshotId | None]) -> list[SnapshotRow]:
        """Take those rows, newest first, that are parents of one another; the oldest waits for its parent.

        Links lead from snapshots that are gone to the next one that is left.
        """
        ready: list[SnapshotRow] = []
        self._link(links)
        for row in rows:
            if row.id != self._wanted:
                continue
            self._wanted = row.parent
            self._link(links)
            if self._held is not None:
                ready.append(self._held if self._held.parent == row.id else replace(self._held, parent=row.id))
            self._held = row
            self.reached = row.sequence
        return ready

    def _link(self, links: Mapping[SnapshotId, SnapshotId | None]) -> None:
        if self._wanted is not None:
            self._wanted = links.get(self._wanted, self._wanted)

    def end(self) -> list[SnapshotRow]:
        """Return the oldest row of all."""
        return [] if self._held is None else [replace(self._held, parent=None)]


def _newest_in(log: BranchLog) -> Newest:
    async def newest(branch: str) -> SnapshotState:
        other = BranchLog(log.storage, log.repository, branch, log.environment)
        return (await load_tip(other, await other.hint())).state

    return newest


async def _of_log(log: BranchLog, state: SnapshotState, life: BranchLife) -> AsyncIterator[list[SnapshotRow]]:
    """List the snapshots of one log, newest first, from a record back to where the branch began or the rest expired."""
    first, at = max(state.life.start, life.expired + 1), state.sequence
    if first > at:
        return
    pages = [page for page in state.pages if page_span(page.level, page.index)[1] <= at]
    rows = await rows_of_records(log, max(covered(tuple(pages)) + 1, first), at)
    yield rows[::-1]
    for ref in reversed(pages):
        if page_span(ref.level, ref.index)[1] < first:
            return
        page = await read_page(log, ref)
        yield [row for row in reversed(page.rows) if row.sequence >= first]


async def find_snapshot(log: BranchLog, tip: Tip, snapshot: SnapshotId) -> Place | None:
    """Find a snapshot in the log of a branch (not of its origins); None if it is not there, or has expired.

    The directory of pages in the checkpoint tells which page can hold the id, so this takes a request or two.
    """
    state = tip.state
    gone = state.life.expired
    rows = await rows_of_records(log, max(covered(state.pages), gone) + 1, state.sequence)
    hint = None if state.checkpoint is None else Hint(state.checkpoint.sequence, state.checkpoint.id)
    for at, row in enumerate(rows):
        if row.id == snapshot:
            newest = _newest_start(rows, at)
            return Place(log.branch, row, hint if hint is not None and hint.sequence <= newest else None)
    for ref in reversed(state.pages):
        if not ref.lowest <= snapshot <= ref.highest or page_span(ref.level, ref.index)[1] <= gone:
            continue
        page = await read_page(log, ref)
        for at, row in enumerate(page.rows):
            if row.id == snapshot and row.sequence > gone:
                newest = _newest_start(page.rows, at)
                before = [c for c in page.checkpoints if c[0] <= newest]
                return Place(log.branch, row, Hint(*max(before)) if before else None)
    kept = await read_survivors(log, state.life)
    for row, checkpoint in zip(kept.rows, kept.checkpoints, strict=True) if kept is not None else ():
        if row.id == snapshot:
            return Place(log.branch, row, Hint(row.sequence, checkpoint))
    return None


async def find_expired(log: BranchLog, tip: Tip, snapshot: SnapshotId) -> SnapshotRow | None:
    """Find a snapshot in what has expired of a log; None if it is not there, or nothing tells any more."""
    state = tip.state
    if state.life.expired < 0:
        return None
    whole = replace(state, life=replace(state.life, expired=-1, survivors=None))
    try:
        place = await find_snapshot(log, replace(tip, state=whole), snapshot)
    except ObjectNotFoundError:  # the records are deleted, too
        return None
    return None if place is None else place.row


def _newest_start(rows: Sequence[SnapshotRow], at: int) -> int:
    """Return the newest record whose checkpoint leads to a snapshot: its own if it is the last one in there."""
    sequence = rows[at].sequence
    return sequence - 1 if at + 1 < len(rows) and rows[at + 1].sequence == sequence else sequence
