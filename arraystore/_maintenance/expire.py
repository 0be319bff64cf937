"""Expiry: records that remove snapshots from history, so that a collection can delete what only they reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from arraystore._format.history import SnapshotRow, Survivors, encode_survivors, page_span, survivors_key
from arraystore._format.ids import CheckpointId, SnapshotId
from arraystore._format.lifecycle import Expiry
from arraystore._format.record import Body
from arraystore._format.refs import Hint
from arraystore._format.repository_log import RepositoryEntry, RepositoryOperation, RepositoryTable, Tag
from arraystore._format.snapshot import checkpoint_key
from arraystore._log.ancestry import ancestry, find_snapshot, left_behind, read_page, read_survivors, rows_of_records
from arraystore._log.branch_entries import append_when
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip, load_tip
from arraystore._log.retained_snapshots import RetainedHistory
from arraystore._log.state import SnapshotState
from arraystore._maintenance.checkpoints import encode_state
from arraystore._maintenance.scope import MaintenanceScope
from arraystore._runtime.concurrency import bounded
from arraystore.errors import ArrayStoreError, FormatError, ObjectNotFoundError, StorageError

_TRIES = 10
_LINKS_KEPT = 256
"""Links of earlier expiries that go on, the newest: of what was flushed, or announced, and gets a name only later."""

_NO_LIMIT = 1 << 62
"""Beyond the number of any record."""

Keeps = Callable[[Sequence[SnapshotRow]], set[SnapshotId]]
"""Called with the history of a branch, newest first; returns the ids of the snapshots to retain."""


@dataclass(frozen=True)
class DeletedRefs:
    """Branches and tags that are deleted, or in a dry run would be: the snapshots that only they retain expire with
    them.
    """

    branches: frozenset[str] = frozenset()
    tags: Mapping[str, Tag] = field(default_factory=dict[str, Tag])

    def __bool__(self) -> bool:
        return bool(self.branches or self.tags)

    def __str__(self) -> str:
        kinds = (("branch", self.branches), ("tag", self.tags))
        return ", ".join(f"{kind} {name!r}" for kind, names in kinds for name in sorted(names))

    def with_branch(self, name: str) -> DeletedRefs:
        """Add a branch."""
        return replace(self, branches=self.branches | {name})

    def with_tag(self, name: str, tag: Tag) -> DeletedRefs:
        """Add a tag."""
        return replace(self, tags={**self.tags, name: tag})

    def among(self, tips: Mapping[str, Tip]) -> DeletedRefs:
        """Return the refs without branches that have been created again."""
        ended = {name for name in self.branches if name in tips and tips[name].state.life.deleted}
        return DeletedRefs(frozenset(ended), self.tags)


class _OutdatedError(ArrayStoreError):
    """Another expiry or a collection has outdated the plan."""


async def expire(
    scope: MaintenanceScope,
    older_than: int,
    keeps: Keeps | None = None,
    *,
    dry_run: bool = False,
    deleted_refs: DeletedRefs | None = None,
) -> set[SnapshotId]:
    """Expire snapshots committed before `older_than`, in microseconds since 1970; returns their ids.

    The newest snapshot of each branch, tagged snapshots and the empty one of the repository are retained at any age.
    The parent of a survivor becomes the next older snapshot that is retained. A dry run writes nothing.
    """
    gone: set[SnapshotId] = set()
    try:
        return await _expire(scope, older_than, keeps, dry_run, deleted_refs or DeletedRefs(), gone)
    except ArrayStoreError as error:
        if gone:
            error.add_note(f"Before that {len(gone)} snapshots have expired.")
        raise


async def _expire(
    scope: MaintenanceScope,
    older_than: int,
    keeps: Keeps | None,
    dry_run: bool,
    deleted_refs: DeletedRefs,
    gone: set[SnapshotId],
) -> set[SnapshotId]:
    """Expire snapshots, and add each to `gone` as soon as its log says so."""
    failure: ArrayStoreError | None = None
    for _ in range(_TRIES):
        table = await scope.repository_log.table()
        tips = await scope.tips(table)
        ended = deleted_refs if dry_run else deleted_refs.among(tips)
        try:
            plan = await _Planning(scope, table, tips, ended, older_than, keeps).plan()
            if dry_run:
                return _all_gone(plan)
            for cut in plan:
                await _carry_out(scope, cut, tips[cut.log.branch])
                gone |= _all_gone([cut])
        except (_OutdatedError, ObjectNotFoundError) as error:  # a collection may have deleted what the plan reads
            failure = error
            if isinstance(error, ObjectNotFoundError):
                deleted_refs = DeletedRefs() if not dry_run else deleted_refs
            continue
        if gone:
            await _note(scope, len(gone))
        return gone
    if isinstance(failure, ObjectNotFoundError):
        raise failure  # missing in every attempt, so damage and no race
    raise StorageError(f"{scope.storage.location}: {_TRIES} attempts of an expiry were outdated by others; try again")


async def _note(scope: MaintenanceScope, snapshots: int) -> None:
    """Append the entry of an expiry to the repository log."""
    value = {"snapshots": snapshots}
    entry = RepositoryEntry(RepositoryOperation.EXPIRED, scope.environment.now_us(), value=value)
    await scope.repository_log.append(lambda _: entry)


def _all_gone(plan: Iterable[_Cut]) -> set[SnapshotId]:
    return {row.id for cut in plan for row in cut.gone}


@dataclass(frozen=True)
class _Cut:
    """Part of a log to expire, with its survivors."""

    log: BranchLog
    upto: int
    gone: tuple[SnapshotRow, ...]
    stay: tuple[SnapshotRow, ...]
    checkpoints: dict[SnapshotId, CheckpointId] = field(default_factory=dict[SnapshotId, CheckpointId])
    """Checkpoints of earlier survivors, by snapshot."""
    parents: dict[SnapshotId, SnapshotId | None] = field(default_factory=dict[SnapshotId, SnapshotId | None])
    """Parents of expired snapshots, and those that earlier expiries have put in their place."""
    named: tuple[SnapshotId, ...] = ()
    """Snapshots that a branch begins at, or that are parents of others."""


@dataclass(eq=False)
class _Planning:
    _scope: MaintenanceScope
    _table: RepositoryTable
    _tips: dict[str, Tip]
    _deleted_refs: DeletedRefs
    _older_than: int
    _keeps: Keeps | None

    def __post_init__(self) -> None:
        self._tags = {name: tag for name, tag in self._table.tags.items() if name not in self._deleted_refs.tags}
        given_up = self._deleted_refs.branches
        self._left = {name: tip for name, tip in self._tips.items() if not (tip.state.life.deleted or name in given_up)}

    async def plan(self) -> list[_Cut]:
        """Plan the parts of all logs to expire."""
        roots = [tag.origin for tag in (*self._tags.values(), *self._deleted_refs.tags.values())]
        shown = {
            name: _as_if(tip, deleted=False) if name in self._deleted_refs.branches else tip
            for name, tip in self._tips.items()
        }
        retained = await self._scope.load_retained(shown, roots)
        stay = {tag.snapshot for tag in self._tags.values()} | {tip.state.snapshot for tip in self._left.values()}
        if self._keeps is not None:
            for name, tip in self._left.items():
                stay |= self._keeps(await self._history(self._scope.log(name), tip))
        still = await self._still_shown()
        cuts = [await self._cut(name, part, stay, still) for name, part in retained.items()]
        return [cut for cut in cuts if cut is not None]

    async def _still_shown(self) -> set[SnapshotId] | None:
        """Load the snapshots that the remaining branches and tags retain; None where no refs are deleted."""
        if not self._deleted_refs:
            return None
        tips = {name: tip if name in self._left else _as_if(tip, deleted=True) for name, tip in self._tips.items()}
        retained = await self._scope.load_retained(tips, [tag.origin for tag in self._tags.values()])
        shown: set[SnapshotId] = set()
        for name, part in retained.items():
            shown |= part.survivors.keys() | {row.id for row in await _rows(self._scope.log(name), part)}
        return shown

    async def _history(self, log: BranchLog, tip: Tip) -> list[SnapshotRow]:
        async def newest(branch: str) -> SnapshotState:
            if branch not in self._tips:
                raise _OutdatedError(f"branch {branch!r} has been created meanwhile")
            return self._tips[branch].state

        return [row async for rows in ancestry(log, tip, newest) for row in rows]

    async def _cut(
        self, name: str, retained: RetainedHistory, stay: set[SnapshotId], still: set[SnapshotId] | None
    ) -> _Cut | None:
        log = self._scope.log(name)
        rows = await _rows(log, retained)
        old = {row.id for row, _ in retained.survivors.values()}
        survivors = sorted((row for row, _ in retained.survivors.values()), key=lambda row: row.sequence)
        every = survivors + rows

        def goes(row: SnapshotRow) -> bool:
            is_deleted = still is not None and row.id not in still
            return (row.time < self._older_than or is_deleted) and row.id not in stay and not _is_first(row)

        gone = [row for row in every if goes(row)]
        if not gone:
            return None
        unshown = [] if name in self._deleted_refs.branches else await _unshown(log, retained)
        limit = min((row.sequence for row in unshown if row.time >= self._older_than), default=_NO_LIMIT)
        gone = [row for row in gone if row.sequence < limit]
        if not gone:
            return None
        last_gone = max((row.sequence for row in gone if row.id not in old), default=retained.newest.life.expired)
        following = [row.sequence for row in rows if row.sequence > last_gone]
        # Rewrites behind the last expired snapshot expire with it, so that the base needs no layers that they replaced.
        upto = min([*following, limit]) - 1 if following else last_gone
        if not any(each.first <= upto <= each.last for each in retained.stretches):
            upto = last_gone  # a collection may have taken what the state there is made of, since nobody shows it
        upto = max(upto, retained.newest.life.expired)
        lost = {row.id for row in gone}
        left = [row for row in every if row.sequence <= upto and row.id not in lost]
        checkpoints = {row.id: checkpoint for row, checkpoint in retained.survivors.values()}
        aside = {row.id: row.parent for row in unshown if row.sequence <= upto and row.id not in stay}
        links = (retained.links or await _links_left_behind(log, retained)) | await _links_of_ends(log, retained)
        parents = links | aside | {row.id: row.parent for row in gone}
        named = [each for end in retained.ends for each in (end.snapshot, end.parent) if each is not None]
        named += [each for pair in aside.items() for each in pair if each is not None]
        named += sorted(links)[-_LINKS_KEPT:]
        return _Cut(log, upto, tuple(gone), tuple(left), checkpoints, parents, tuple(named))


def _as_if(tip: Tip, *, deleted: bool) -> Tip:
    """Return a tip as if its branch was deleted, or was not."""
    state = tip.state
    return replace(tip, state=replace(state, life=replace(state.life, deleted=deleted)))


def _is_first(row: SnapshotRow) -> bool:
    return row.parent is None and row.sequence == 0


async def _rows(log: BranchLog, retained: RetainedHistory) -> list[SnapshotRow]:
    """Load the snapshots of the retained stretches of a log that have not expired yet, oldest first, each once."""
    by_id: dict[SnapshotId, SnapshotRow] = {}
    for stretch in retained.stretches:
        by_id.update({row.id: row for row in await _rows_between(log, retained, stretch.first, stretch.last)})
    return sorted(by_id.values(), key=lambda row: row.sequence)


async def _unshown(log: BranchLog, retained: RetainedHistory) -> list[SnapshotRow]:
    """Load the snapshots of a log that no branch or tag shows, as before a reset.

    A branch may be created there at the same time, and then shows them.
    """
    rows: list[SnapshotRow] = []
    at = retained.newest.life.expired + 1
    for stretch in sorted(retained.stretches):
        with suppress(ObjectNotFoundError):  # a collection has seen that nobody shows them
            rows += await _rows_between(log, retained, at, stretch.first - 1)
        at = max(at, stretch.last + 1)
    return rows


async def _links_left_behind(log: BranchLog, retained: RetainedHistory) -> dict[SnapshotId, SnapshotId | None]:
    """Return the links that an expiry made before a reset: a branch may go on from there."""
    survivors = await read_survivors(log, retained.newest.life)
    return {} if survivors is None else dict(survivors.links)


async def _links_of_ends(log: BranchLog, retained: RetainedHistory) -> dict[SnapshotId, SnapshotId | None]:
    """Return links from what branches begin at that came to be while it expired, and before a reset.

    Readers lead on from there by the base of the expiry, whose place this one takes.
    """
    life = retained.newest.life
    links: dict[SnapshotId, SnapshotId | None] = {}
    for end in retained.ends:
        if end.life.start < life.start and end.sequence <= life.expired and end.parent is not None:
            left = await left_behind(log, end, life)
            if left is not None:
                links[end.parent] = left
    return links


async def _rows_between(log: BranchLog, retained: RetainedHistory, begin: int, end: int) -> list[SnapshotRow]:
    """Load the snapshots of consecutive records from history pages, or from the records that are in none."""
    rows: list[SnapshotRow] = []
    for ref in retained.newest.pages if begin <= end else ():
        first, last = page_span(ref.level, ref.index)
        if begin <= last and first <= end:
            rows += [row for row in (await read_page(log, ref)).rows if begin <= row.sequence <= end]
            begin = last + 1
    return rows + await rows_of_records(log, begin, end)


async def _carry_out(scope: MaintenanceScope, cut: _Cut, tip: Tip) -> None:
    """Write the base and survivors that take the place of expired records, then append the expiry."""
    log, environment = cut.log, scope.environment
    life = tip.state.life
    written: list[bytes] = []

    async def checkpoint(state: SnapshotState) -> CheckpointId:
        identifier = CheckpointId(environment.new_id())
        written.append(identifier)
        key = checkpoint_key(identifier)
        await scope.storage.put(key, await encode_state(log, key, state))
        return identifier

    async def survivor(row: SnapshotRow) -> CheckpointId:
        existing = cut.checkpoints.get(row.id)
        if existing is not None:
            return existing
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
        listed = Survivors(log.branch, cut.upto, _closed_up(cut), tuple(checkpoints), links)
        key = survivors_key(log.history_prefix, survivors)
        await scope.storage.put(key, encode_survivors(key, listed))
    await scope.storage.sync()
    oldest = min(written, default=None)

    def entry(newest: Tip) -> Body:
        now = newest.state.life
        if now.retention != life.retention or (oldest is not None and oldest < now.fence):
            raise _OutdatedError("another expiry or a collection has outdated this one")
        return Expiry(environment.now_us(), cut.upto, base, survivors)

    await append_when(log, tip, entry)


def _hint_before(tip: Tip, sequence: int) -> Hint | None:
    newest = tip.state.checkpoint
    return Hint(newest.sequence, newest.id) if newest is not None and newest.sequence <= sequence else None


def _closed_up(cut: _Cut) -> tuple[SnapshotRow, ...]:
    """Return the survivors, each with its nearest retained ancestor as parent, which may be in another log."""
    return tuple([replace(row, parent=_left(row.parent, cut)) for row in cut.stay])


def _left(snapshot: SnapshotId | None, cut: _Cut) -> SnapshotId | None:
    """Return a snapshot, or its nearest retained ancestor."""
    for _ in range(len(cut.parents) + 1):
        if snapshot is None or snapshot not in cut.parents:
            return snapshot
        snapshot = cut.parents[snapshot]
    raise FormatError(f"history of branch {cut.log.branch!r}", "snapshots must not be their own ancestors")


def _links(cut: _Cut, others: Sequence[SnapshotId | None]) -> tuple[tuple[SnapshotId, SnapshotId | None], ...]:
    """Return replacements of expired snapshots that are parents or origins elsewhere.

    `others` are possible parents of commits behind the newest expired snapshot.
    """
    named = sorted({each for each in (*cut.named, *others) if each is not None and each in cut.parents})
    return tuple([(each, _left(each, cut)) for each in named])
