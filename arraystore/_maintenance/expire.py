"""Expiry: entries in the logs that say which snapshots are gone; a later collection deletes what only they needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from arraystore._concurrency import bounded
from arraystore._format.history import SnapshotRow, Survivors, encode_survivors, page_span, survivors_key
from arraystore._format.record import Body, Expiry
from arraystore._format.refs import Hint
from arraystore._format.repository_log import RepositoryEntry, RepositoryOperation, RepositoryTable, Tag
from arraystore._format.snapshot import checkpoint_key
from arraystore._log.ancestry import ancestry, find_snapshot, read_page, rows_of_records
from arraystore._log.branch_entries import append_when
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip, load_tip
from arraystore._log.retained_snapshots import Kept
from arraystore._log.state import State
from arraystore._maintenance.checkpoints import encode_state
from arraystore._maintenance.scope import MaintenanceScope
from arraystore.errors import ArrayStoreError, ObjectNotFoundError, StorageError

__all__ = ["GivenUp", "Keeps", "expire"]

_TRIES = 10

Keeps = Callable[[Sequence[SnapshotRow]], set[bytes]]
"""Told the history of a branch, newest first, returns the ids of the snapshots to keep."""


@dataclass(frozen=True)
class GivenUp:
    """Branches and tags that are deleted, or would be: what only they show expires with them.

    Parameters
    ----------
    branches
        Their names.
    tags
        By name.
    """

    branches: frozenset[str] = frozenset()
    tags: Mapping[str, Tag] = field(default_factory=dict[str, Tag])

    def __bool__(self) -> bool:
        return bool(self.branches or self.tags)

    def among(self, tips: Mapping[str, Tip]) -> GivenUp:
        """Return the same without branches that somebody has created anew."""
        ended = {name for name in self.branches if name in tips and tips[name].state.life.deleted}
        return GivenUp(frozenset(ended), self.tags)


class _OutdatedError(ArrayStoreError):
    """Another expiry, or a collection, came between."""


async def expire(
    scope: MaintenanceScope,
    older_than: int,
    keeps: Keeps | None = None,
    *,
    dry_run: bool = False,
    given_up: GivenUp | None = None,
) -> set[bytes]:
    """Let snapshots expire.

    Kept are, whatever their age, the newest snapshot of each branch, those of tags, and the very first one; and what
    stands between those that are kept is closed up: the parent of each is the next older one that is left.

    Parameters
    ----------
    scope
        The repository.
    older_than
        Snapshots that were committed before this moment expire; microseconds since 1970, by the clocks of writers.
    keeps
        Says which snapshots of a branch are kept besides.
    dry_run
        Whether only to tell what would expire.
    given_up
        What was deleted just now for being old; in a dry run, what is taken for deleted.

    Returns
    -------
    set
        Ids of the snapshots that have expired.
    """
    failure: ArrayStoreError | None = None
    given_up = given_up or GivenUp()
    for _ in range(_TRIES):
        table = await scope.repository_log.table()
        tips = await scope.tips(table)
        ended = given_up if dry_run else given_up.among(tips)
        try:
            plan = await _Planning(scope, table, tips, ended, older_than, keeps).plan()
            if dry_run or not plan:
                return _all_gone(plan)
            for cut in plan:
                await _carry_out(scope, cut, tips[cut.log.branch])
        except (_OutdatedError, ObjectNotFoundError) as error:  # a collection may have taken what was looked at
            failure = error
            if isinstance(error, ObjectNotFoundError):
                given_up = GivenUp() if not dry_run else given_up
            continue
        gone = _all_gone(plan)
        value = {"snapshots": len(gone)}
        entry = RepositoryEntry(RepositoryOperation.EXPIRED, scope.environment.now_us(), value=value)
        await scope.repository_log.append(lambda _, entry=entry: entry)  # type: ignore[misc]
        return gone
    if isinstance(failure, ObjectNotFoundError):
        raise failure  # it is missing for good, then
    raise StorageError(f"{scope.storage.location}: others came between {_TRIES} times in a row; try again")


def _all_gone(plan: Iterable[_Cut]) -> set[bytes]:
    return {row.id for cut in plan for row in cut.gone}


@dataclass(frozen=True)
class _Cut:
    """What goes of one log, and what of the same stretch stays."""

    log: BranchLog
    upto: int
    gone: tuple[SnapshotRow, ...]
    stay: tuple[SnapshotRow, ...]
    checkpoints: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    """Of those that have survived before, by id."""
    parents: dict[bytes, bytes | None] = field(default_factory=dict[bytes, bytes | None])
    """Of all that go, and what earlier expiries have put in the place of others."""
    named: tuple[bytes, ...] = ()
    """Snapshots that something begins with, or has as its parent."""


class _Planning:
    def __init__(
        self,
        scope: MaintenanceScope,
        table: RepositoryTable,
        tips: dict[str, Tip],
        given_up: GivenUp,
        older_than: int,
        keeps: Keeps | None,
    ) -> None:
        self._scope = scope
        self._tips = tips
        self._tags = {name: tag for name, tag in table.tags.items() if name not in given_up.tags}
        self._left = {
            name: tip for name, tip in tips.items() if not (tip.state.life.deleted or name in given_up.branches)
        }
        self._given_up = given_up
        self._older_than = older_than
        self._keeps = keeps

    async def plan(self) -> list[_Cut]:
        """Return what to cut of which log."""
        roots = [tag.origin for tag in (*self._tags.values(), *self._given_up.tags.values())]
        shown = {name: _alive(tip) if name in self._given_up.branches else tip for name, tip in self._tips.items()}
        kept = await self._scope.kept(shown, roots)
        stay = {tag.snapshot for tag in self._tags.values()} | {tip.state.snapshot for tip in self._left.values()}
        if self._keeps is not None:
            for name, tip in self._left.items():
                stay |= self._keeps(await self._history(self._scope.log(name), tip))
        still = await self._still_shown()
        cuts = [await self._cut(name, found, stay, still) for name, found in kept.items()]
        return [cut for cut in cuts if cut is not None]

    async def _still_shown(self) -> set[bytes] | None:
        """Return the snapshots that those branches and tags show which are left; None where none were given up."""
        if not self._given_up:
            return None
        tips = {name: tip if name in self._left else _ended(tip) for name, tip in self._tips.items()}
        kept = await self._scope.kept(tips, [tag.origin for tag in self._tags.values()])
        found: set[bytes] = set()
        for name, part in kept.items():
            found |= part.survivors.keys() | {row.id for row in await _rows(self._scope.log(name), part)}
        return found

    async def _history(self, log: BranchLog, tip: Tip) -> list[SnapshotRow]:
        async def newest(branch: str) -> State:
            return self._tips[branch].state

        return [row async for rows in ancestry(log, tip, newest) for row in rows]

    async def _cut(self, name: str, kept: Kept, stay: set[bytes], still: set[bytes] | None) -> _Cut | None:
        log = self._scope.log(name)
        rows = await _rows(log, kept)
        old = {row.id for row, _ in kept.survivors.values()}
        survivors = sorted((row for row, _ in kept.survivors.values()), key=lambda row: row.sequence)
        every = survivors + rows

        def goes(row: SnapshotRow) -> bool:
            is_given_up = still is not None and row.id not in still
            return (row.time < self._older_than or is_given_up) and row.id not in stay and not _is_first(row)

        gone = [row for row in every if goes(row)]
        if not gone:
            return None
        last_gone = max((row.sequence for row in gone if row.id not in old), default=kept.newest.life.expired)
        following = [row.sequence for row in rows if row.sequence > last_gone]
        # Rewrites behind the last one that goes belong to what goes: they spare the base what they have replaced.
        upto = max(min(following) - 1 if following else last_gone, kept.newest.life.expired)
        lost = {row.id for row in gone}
        left = [row for row in every if row.sequence <= upto and row.id not in lost]
        checkpoints = {row.id: checkpoint for row, checkpoint in kept.survivors.values()}
        parents = kept.links | {row.id: row.parent for row in gone}
        named = [each for end in kept.ends for each in (end.snapshot, end.parent) if each is not None]
        return _Cut(log, upto, tuple(gone), tuple(left), checkpoints, parents, tuple(named))


def _alive(tip: Tip) -> Tip:
    """Return a tip as if its branch was not deleted."""
    state = tip.state
    return replace(tip, state=replace(state, life=replace(state.life, deleted=False)))


def _ended(tip: Tip) -> Tip:
    """Return a tip as if its branch was deleted."""
    state = tip.state
    return replace(tip, state=replace(state, life=replace(state.life, deleted=True)))


def _is_first(row: SnapshotRow) -> bool:
    return row.parent is None and row.sequence == 0


async def _rows(log: BranchLog, kept: Kept) -> list[SnapshotRow]:
    """Return the snapshots of the kept stretches of a log that have not expired yet, oldest first, each once."""
    found: dict[bytes, SnapshotRow] = {}
    pages = kept.newest.pages
    for stretch in kept.stretches:
        at = stretch.first
        for ref in pages:
            first, last = page_span(ref.level, ref.index)
            if last < at or first > stretch.last:
                continue
            page = await read_page(log, ref)
            for row in page.rows:
                if stretch.first <= row.sequence <= stretch.last:
                    found[row.id] = row
            at = last + 1
        for row in await rows_of_records(log, at, stretch.last):
            found[row.id] = row
    return sorted(found.values(), key=lambda row: row.sequence)


async def _carry_out(scope: MaintenanceScope, cut: _Cut, tip: Tip) -> None:
    """Write what is read in the place of the records, then the entry that says so."""
    log, environment = cut.log, scope.environment
    life = tip.state.life
    written: list[bytes] = []

    async def checkpoint(state: State) -> bytes:
        identifier = environment.new_id()
        written.append(identifier)
        key = checkpoint_key(identifier)
        await scope.storage.put(key, await encode_state(log, key, state))
        return identifier

    async def survivor(row: SnapshotRow) -> bytes:
        known = cut.checkpoints.get(row.id)
        if known is not None:
            return known
        place = await find_snapshot(log, tip, row.id)
        hint = None if place is None else place.hint
        return await checkpoint((await load_tip(log, hint, at=row.sequence, snapshot=row.id)).state)

    bottom = (await load_tip(log, _hint_before(tip, cut.upto), at=cut.upto)).state
    if cut.upto == life.expired and life.base is not None:
        base = life.base
    else:
        base = await checkpoint(bottom)
    checkpoints = await bounded(survivor, cut.stay)
    survivors: bytes | None = None
    links = _links(cut, (bottom.snapshot, bottom.parent))
    if cut.stay or links:
        survivors = environment.new_id()
        written.append(survivors)
        kept = Survivors(log.branch, cut.upto, _closed_up(cut), tuple(checkpoints), links)
        key = survivors_key(log.history_prefix, survivors)
        await scope.storage.put(key, encode_survivors(key, kept))
    await scope.storage.sync()
    oldest = min(written, default=None)

    def entry(newest: Tip) -> Body:
        now = newest.state.life
        same = (now.expired, now.survivors, now.start, now.deleted) == (
            life.expired,
            life.survivors,
            life.start,
            life.deleted,
        )
        if not same or (oldest is not None and oldest < now.fence):
            raise _OutdatedError("another expiry, or a collection, came between")
        return Expiry(environment.now_us(), cut.upto, base, survivors)

    await append_when(log, tip, entry)


def _hint_before(tip: Tip, sequence: int) -> Hint | None:
    known = tip.state.checkpoint
    return Hint(known.sequence, known.id) if known is not None and known.sequence <= sequence else None


def _closed_up(cut: _Cut) -> tuple[SnapshotRow, ...]:
    """Return what stays; the parent of each is the next older one of its history that does, or is in another log."""
    return tuple([replace(row, parent=_left(row.parent, cut)) for row in cut.stay])


def _left(snapshot: bytes | None, cut: _Cut) -> bytes | None:
    """Return a snapshot, or the nearest one before it that is left."""
    while snapshot in cut.parents:
        snapshot = cut.parents[snapshot]
    return snapshot


def _links(cut: _Cut, others: Sequence[bytes | None]) -> tuple[tuple[bytes, bytes | None], ...]:
    """Return what takes the place of snapshots that go, wherever something has one of them as its parent or origin.

    Others are the parents that commits on top of the newest snapshot that goes may have.
    """
    named = sorted({each for each in (*cut.named, *others) if each is not None and each in cut.parents})
    return tuple([(each, _left(each, cut)) for each in named])
