"""Garbage collection, from fencing to the object that the next collection starts from.

The order makes it safe at any time. Expired snapshots are recorded in the logs; a watermark is published; every branch
is fenced, and its retained snapshots are read as of its fence; only then are names and announced snapshots listed,
which may retain more; objects that any of these reference are traced; unreferenced objects with ids below the watermark
are deleted. A commit that references an object below the watermark either precedes the fence and is traced, or is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from arraystore._format.collection import (
    Collection,
    LogSeen,
    collection_key,
    decode_collection,
    encode_collection,
)
from arraystore._format.ids import ID_BYTES, CheckpointId, SnapshotId, id_to_text, ids_of, split_ids
from arraystore._format.lifecycle import Fence, Origin
from arraystore._format.repository_log import RepositoryEntry, RepositoryOperation, RepositoryTable
from arraystore._log.ancestry import rows_of_records
from arraystore._log.loading import Tip, load_checkpoint
from arraystore._log.retained_snapshots import RetainedHistory
from arraystore._log.state import SnapshotState
from arraystore._maintenance.collection.fence import FencedBranches, raise_fence
from arraystore._maintenance.collection.retire import idle_logs, retire_logs
from arraystore._maintenance.collection.summary import GCSummary, StageProgress, no_progress
from arraystore._maintenance.collection.sweep import Listing, delete_all
from arraystore._maintenance.collection.trace import Trace
from arraystore._maintenance.collection.trim import Trimmed, detach, trimmed_history, trimmed_records
from arraystore._maintenance.due import RECORD_GRACE
from arraystore._maintenance.object_table import ObjectTable, columns_of
from arraystore._maintenance.scope import MaintenanceScope
from arraystore._runtime.concurrency import bounded
from arraystore.errors import FormatError, ObjectNotFoundError
from arraystore.storage.protocol import DeleteFailure

_WITH_LAYERS = "statistics"
"""Objects with the ids of layers, which are in use as long as these are."""

_KINDS = ("chunks", "manifests", "transactions", "snapshots", _WITH_LAYERS)
_MOST_CANDIDATES = 1_000_000
"""Objects of each kind in one pass: 13 bytes each, and as much again while numpy concatenates them."""

_KEYS_AT_A_TIME = 50_000
_LOGS_AT_ONCE = 16
_TRIES = 5
"""Attempts of a collection whose objects concurrent collections delete."""


async def collect(
    scope: MaintenanceScope,
    watermark: bytes,
    *,
    full: bool = False,
    dry_run: bool = False,
    grace: float = RECORD_GRACE.total_seconds(),
    progress: StageProgress | None = None,
) -> GCSummary:
    """Delete unreferenced objects with ids below `watermark`, or below a higher one that a collection has published.

    With `full`, all objects are examined, and not only those created or released since the last collection. With
    `dry_run`, nothing is written, not even a fence. Records of expired snapshots are retained for `grace` seconds.
    """
    failure: ObjectNotFoundError | None = None
    for _ in range(_TRIES):
        run = _Run(scope, watermark, dry_run, grace, progress or no_progress)
        try:
            return await run.collect(full)
        except ObjectNotFoundError as error:  # deleted by a concurrent expiry and collection
            failure = error
    assert failure is not None
    raise failure


@dataclass(eq=False)
class _Run:
    scope: MaintenanceScope
    watermark: bytes
    dry_run: bool
    grace: float
    progress: StageProgress
    summary: GCSummary = field(default_factory=GCSummary)
    failures: list[DeleteFailure] = field(default_factory=list[DeleteFailure])
    early: list[bytes] = field(default_factory=list[bytes])

    async def collect(self, full: bool) -> GCSummary:
        table, tips = await self._fenced()
        self.watermark = max(self.watermark, table.watermark)  # and what another collection has left undone
        previous = None if full else await self._previous(table)
        await self._outwait_listings()
        table = await self.scope.repository_log.table()  # with names created since
        tips = await self._with_new_branches(table, tips)
        if previous is not None and (
            _is_released(previous, table, tips) or not await self._continue(previous.logs, tips)
        ):
            previous = None
        tagged = [tag.origin for tag in table.tags.values()]
        retained = await self.scope.load_retained(tips, tagged)
        announced = await self._announced(table, tips, retained, previous)
        retired = {} if self.dry_run else await self._retired(table, tips, retained, announced, previous)
        if retired:  # before the trace, so that this collection deletes what they release
            tips |= retired
            retained = await self.scope.load_retained(tips, tagged)
        self.summary = replace(
            self.summary, full=previous is None, watermark=id_to_text(self.watermark), dry_run=self.dry_run
        )
        trace = await self._sweep(
            retained, tagged, previous, [await self._load_retained_by(tips, each) for each in announced]
        )
        await self._trim(tips, previous, trace, retired.keys())
        if not self.dry_run:
            await self._leave_behind(table, tips)
        return replace(self.summary, failures=tuple(self.failures))

    # -- retained snapshots ---------------------------------------------------------------------------------------

    async def _fenced(self) -> FencedBranches:
        if not self.dry_run:
            return await raise_fence(self.scope, self.watermark)
        table = await self.scope.repository_log.table()
        return FencedBranches(table, await self.scope.tips(table))

    async def _outwait_listings(self) -> None:
        """Wait until listings show all snapshots announced before their writers can see the fence.

        A writer that announces a snapshot checks afterwards that it is retained. An announcement that the next listing
        misses is younger than the listing lag, so its writer checks at least one lag after the fence and sees it, and
        all expiries.
        """
        lag = self.scope.storage.listing_lag
        if lag and not self.dry_run:
            await self.scope.environment.sleep(2 * lag)

    async def _with_new_branches(self, table: RepositoryTable, tips: dict[str, Tip]) -> dict[str, Tip]:
        """Add branches created since the watermark was published; their logs begin at that watermark."""
        new = [name for name in table.branches if name not in tips]
        if not new:
            return tips
        newest = await self.scope.tips(table)
        return tips | {name: newest[name] for name in new}

    async def _announced(
        self,
        table: RepositoryTable,
        tips: dict[str, Tip],
        retained: dict[str, RetainedHistory],
        previous: Collection | None,
    ) -> list[Origin]:
        """Load the origins of checkpoints above the watermark that a writer may be about to make reachable.

        Those that a branch retains are left out.
        """
        named = {tag.origin.checkpoint for tag in table.tags.values()}
        named |= {tip.state.checkpoint.id for tip in tips.values() if tip.state.checkpoint is not None}
        if previous is not None:  # which it has traced as announced
            named.update(split_ids(previous.early, CheckpointId))
        identifiers: list[CheckpointId] = []
        prefix = "snapshots/"
        async for page in self.scope.storage.list(prefix, prefix + id_to_text(self.watermark)):
            there = columns_of(page, prefix)
            identifiers += split_ids(np.ascontiguousarray(there.ids[there.valid]).tobytes(), CheckpointId)

        async def origin(identifier: CheckpointId) -> Origin | None:
            try:
                state = await load_checkpoint(self.scope.storage, identifier)
            except (ObjectNotFoundError, FormatError):
                return None  # deleted by its writer or another collection, or not a checkpoint
            part = retained.get(state.branch)
            if part is None or (part.holds(state.sequence, SnapshotId(b"")) and await self._is_made_by_record(state)):
                return None
            return Origin(state.branch, state.sequence, identifier)

        origins = await bounded(origin, [each for each in identifiers if each not in named])
        return [each for each in origins if each is not None]

    async def _retired(
        self,
        table: RepositoryTable,
        tips: dict[str, Tip],
        retained: dict[str, RetainedHistory],
        announced: list[Origin],
        previous: Collection | None,
    ) -> dict[str, Tip]:
        """Retire the logs of deleted branches to which neither names nor announcements lead.

        An announcement that the last collection has traced needs its history as much as one made since.
        """
        tagged = [tag.origin for tag in table.tags.values()]
        needed = await self.scope.load_retained(tips, tagged, announced) if announced else retained
        idle = idle_logs(needed, tips)
        if idle and previous is not None:  # whose announcements were passed over
            announced = await self._announced(table, tips, retained, None)
            idle = idle_logs(await self.scope.load_retained(tips, tagged, announced), tips)
        return await retire_logs(self.scope, idle)

    async def _is_made_by_record(self, state: SnapshotState) -> bool:
        """Tell whether the record of a state makes its snapshot, which the record of one on no branch does not.

        Without certainty, as after a fence, it says no: the snapshot is traced once more.
        """
        rows = await rows_of_records(self.scope.log(state.branch), state.sequence, state.sequence)
        return bool(rows) and rows[-1].id == state.snapshot

    async def _load_retained_by(
        self, tips: dict[str, Tip], announced: Origin
    ) -> tuple[Origin, dict[str, RetainedHistory]]:
        return announced, await self.scope.load_retained_by(tips, announced)

    async def _previous(self, table: RepositoryTable) -> Collection | None:
        """Load the object that the last collection left; None if it is missing, damaged or of a higher watermark."""
        if table.collection is None:
            return None
        key = collection_key(table.collection)
        try:
            previous = decode_collection(key, await self.scope.storage.get(key))
        except (ObjectNotFoundError, FormatError):
            return None
        return previous if previous.watermark <= self.watermark else None

    async def _continue(self, seen: Mapping[str, LogSeen], tips: dict[str, Tip]) -> bool:
        """Tell whether all logs go on from where the last collection has read them."""
        continued = await bounded(lambda name: self._continues(tips[name], seen[name]), seen, _LOGS_AT_ONCE)
        return all(continued)

    async def _continues(self, tip: Tip, seen: LogSeen) -> bool:
        """Tell whether a log still has the fence of the last collection.

        If it was lost with all later records, others have its number by now, and would count as traced.
        """
        number = seen.life.fenced
        if tip.sequence < seen.sequence:
            return False
        if number <= tip.state.life.expired or tip.state.life == seen.life:
            return True
        log = self.scope.log(tip.state.branch)
        body = tip.bodies.get(number)
        entry = log.decode(number, (await log.span(number, number)).bodies[number] if body is None else body)
        return isinstance(entry, Fence) and entry.watermark <= seen.life.fence

    # -- deletion -------------------------------------------------------------------------------------------------

    async def _sweep(
        self,
        retained: dict[str, RetainedHistory],
        roots: list[Origin],
        previous: Collection | None,
        announced: Sequence[tuple[Origin, dict[str, RetainedHistory]]],
    ) -> Trace:
        """Delete unreferenced objects, in passes whose candidates fit into memory."""
        after = None if previous is None else previous.watermark
        listings = {kind: Listing(self.scope.storage, kind, after, self.watermark) for kind in _KINDS}
        trace: Trace | None = None
        while trace is None or not all(listing.exhausted for listing in listings.values()):
            candidates = {
                kind: ObjectTable() if listing.exhausted else await listing.take(_MOST_CANDIDATES)
                for kind, listing in listings.items()
            }
            note = None if trace is not None else self._note_early
            trace = Trace(self.scope, retained, roots, previous, partial(_mark, candidates, note))
            await trace.run()
            for origin, part in announced:
                await trace.announced(origin, part)
            for kind in _KINDS:
                await self._delete_ids(kind, *candidates.pop(kind).unreached())
        return trace

    async def _delete_ids(self, kind: str, ids: bytes, size: int) -> None:
        """Delete objects by their ids, making keys in parts because they take ten times the memory."""
        step = _KEYS_AT_A_TIME * ID_BYTES
        for first in range(0, max(len(ids), 1), step):
            part = ids[first : first + step]
            keys = [f"{kind}/{id_to_text(each)}" for each in split_ids(part, bytes)]
            await self._delete(kind, keys, 0 if first else size)

    def _note_early(self, ids: bytes) -> None:
        """Collect referenced ids above the watermark, which may be below that of the next collection."""
        column = ids_of(ids)
        early = column[column >= ids_of(self.watermark)[0]]
        if len(early):
            self.early.append(np.ascontiguousarray(early).tobytes())

    async def _delete(self, kind: str, keys: list[str], size: int) -> None:
        self.progress(f"deleting {kind}", 0, len(keys))
        failures = [] if self.dry_run else await delete_all(self.scope.storage, keys, in_order=kind == "refs")
        self.progress(f"deleting {kind}", len(keys), len(keys))
        self.failures += failures
        deleted = len(keys) - len(failures)
        name = {
            "chunks": "chunks_deleted",
            "manifests": "manifests_deleted",
            "transactions": "transaction_logs_deleted",
            "snapshots": "snapshots_deleted",
            "refs": "records_deleted",
        }.get(kind, "others_deleted")
        counted = {name: getattr(self.summary, name) + deleted}
        self.summary = replace(self.summary, bytes_deleted=self.summary.bytes_deleted + size, **counted)

    # -- logs -----------------------------------------------------------------------------------------------------

    async def _trim(
        self, tips: dict[str, Tip], previous: Collection | None, trace: Trace, retired: AbstractSet[str]
    ) -> None:
        if trace.attached and not self.dry_run:
            await detach(self.scope, trace.attached.values())
        records, history = Trimmed(), Trimmed()
        for name, tip in tips.items():
            seen = 0 if previous is None or name not in previous.logs else previous.logs[name].sequence
            log = self.scope.log(name)
            records.extend(await trimmed_records(log, tip, seen, self.grace))
            if previous is None or name in retired:
                history.extend(await trimmed_history(log, tip, self.watermark))
        await self._delete("refs", records.keys, records.size)
        await self._delete("history", history.keys, history.size)

    # -- object for the next collection ---------------------------------------------------------------------------

    async def _leave_behind(self, table: RepositoryTable, tips: dict[str, Tip]) -> None:
        environment = self.scope.environment
        logs = {name: LogSeen(tip.sequence, tip.state.life) for name, tip in tips.items()}
        tags = tuple(sorted(tag.origin.checkpoint for tag in table.tags.values()))
        early = np.unique(ids_of(b"".join(self.early)))
        left = Collection(self.watermark, table.number, logs, tags, np.ascontiguousarray(early).tobytes())
        identifier = environment.new_id()
        key = collection_key(identifier)
        await self.scope.storage.put(key, encode_collection(key, left))
        await self.scope.storage.sync()
        value = {"objects": self.summary.objects_deleted, "bytes": self.summary.bytes_deleted}
        now = environment.now_us()
        entry = RepositoryEntry(
            RepositoryOperation.COLLECTED, now, value=value, watermark=self.watermark, object=identifier
        )
        before = table.collection
        await self.scope.repository_log.append(lambda _: entry, fresh=False)
        if self.summary.full:
            await self._forget_older(identifier)
        elif before is not None:
            self.failures += await delete_all(self.scope.storage, [collection_key(before)])

    async def _forget_older(self, current: bytes) -> None:
        """Delete the objects of earlier collections; a concurrent collection that misses one becomes a full one."""
        old: list[str] = []
        key = collection_key(current)
        async for page in self.scope.storage.list("collections/"):
            old += [info.key for info in page if info.key < key]
        self.failures += await delete_all(self.scope.storage, old)


def _mark(candidates: dict[str, ObjectTable], note: Callable[[bytes], None] | None, kind: str, ids: bytes) -> None:
    candidates[kind].reach(ids)
    if kind == "manifests":
        candidates[_WITH_LAYERS].reach(ids)
    if note is not None:
        note(ids)


def _is_released(previous: Collection, table: RepositoryTable, tips: dict[str, Tip]) -> bool:
    """Tell whether objects that the last collection retained may be unreferenced now."""
    if not set(previous.tags) <= {tag.origin.checkpoint for tag in table.tags.values()}:
        return True
    for name, seen in previous.logs.items():
        if name not in tips:
            return True
        if tips[name].state.life.retention != seen.life.retention:
            return True
    return False
