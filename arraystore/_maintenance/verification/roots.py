"""Roots of a verification: the repository log, the logs of branches, and their retained snapshots."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from arraystore._environment import Environment
from arraystore._format.intent import read_intent_key
from arraystore._format.lifecycle import Expiry, Origin
from arraystore._format.record import first_carried, read_record_key, record_key
from arraystore._format.refs import branch_prefix, branches_prefix, name_from_key, refs_prefix
from arraystore._format.repository_log import (
    TABLE_EVERY,
    RepositoryRecord,
    RepositoryTable,
    carried_from,
    decode_repository_record,
    repository_log_prefix,
)
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import load_tip
from arraystore._log.retained_snapshots import RetainedHistory, load_retained
from arraystore._log.state import SnapshotState
from arraystore._maintenance.verification.findings import Collector, Severity
from arraystore._maintenance.verification.rebuilding import rebuild_records
from arraystore._runtime.concurrency import bounded
from arraystore.errors import ArrayStoreError, FormatError, NotFoundError, ObjectNotFoundError
from arraystore.storage.protocol import ObjectInfo, Storage

_PARALLEL = 16
_FOREIGN = re.compile("refs/([0-9A-Z]{20})/")
_RESTORE = "restore the object from a backup or an older version in the bucket"
_REBUILD = "run repair, which rebuilds the record from what later ones repeat of it"
_NOT_REBUILT = f"{_RESTORE}: no later record that fits repeats what it held, so it cannot be rebuilt"


@dataclass
class LogRoot:
    """Log of a branch."""

    log: BranchLog
    first: int
    """Number of the oldest existing record."""
    last: int
    """Number of the newest existing record."""
    intents: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Record numbers and sizes in bytes of the intents."""
    state: SnapshotState | None = None
    """Newest state, as a session would see it; None if it cannot be loaded."""

    @property
    def live(self) -> bool:
        """True unless the branch is known to be deleted."""
        return self.state is None or not self.state.life.deleted

    @property
    def shown_from(self) -> int:
        """Number of the oldest record whose snapshots the branch may show; 0 if its state cannot be loaded."""
        return 0 if self.state is None else max(self.state.life.start, self.state.life.expired + 1)


@dataclass
class Refs:
    """Objects below ``refs/``."""

    id: bytes = bytes(12)
    """Id of the repository."""
    logs: dict[str, LogRoot] = field(default_factory=dict[str, LogRoot])
    """Logs of branches by name, deleted ones included."""
    repository: list[int] = field(default_factory=list[int])
    """Numbers of the records of the repository log."""
    rebuilt: dict[int, RepositoryRecord] = field(default_factory=dict[int, RepositoryRecord])
    """Missing records of the repository log, as a repair can write them."""
    strays: list[ObjectInfo] = field(default_factory=list[ObjectInfo])
    """Objects with keys of unknown form."""
    foreign: dict[str, list[ObjectInfo]] = field(default_factory=dict[str, list[ObjectInfo]])
    """Objects in the logs of other repositories, by the ids in their keys."""

    @property
    def repository_prefix(self) -> str:
        """Prefix of the keys of repository records."""
        return repository_log_prefix(self.id)


def sort_refs(infos: Iterable[ObjectInfo], storage: Storage, repository: bytes, environment: Environment) -> Refs:
    """Sort a listing of ``refs/``."""
    refs = Refs(repository)
    mine, branches = refs_prefix(repository), branches_prefix(repository)
    for info in infos:
        if info.key.startswith(branches):
            if not _sort_branch(refs, info, info.key[len(branches) :].partition("/")[0], storage, environment):
                refs.strays.append(info)
        elif (number := read_record_key(refs.repository_prefix, info.key)) is not None:
            refs.repository.append(number)
        elif not info.key.startswith(mine) and (other := _FOREIGN.match(info.key)):
            refs.foreign.setdefault(other[1], []).append(info)
        else:
            refs.strays.append(info)
    return refs


def _sort_branch(refs: Refs, info: ObjectInfo, name: str, storage: Storage, environment: Environment) -> bool:
    branch = name_from_key(name)
    try:
        prefix = branch_prefix(refs.id, branch)
    except ArrayStoreError:
        return False
    number = read_record_key(prefix, info.key)
    if number is not None:
        root = refs.logs.get(branch)
        if root is None:
            root = refs.logs[branch] = LogRoot(BranchLog(storage, refs.id, branch, environment), number, number)
        root.last = number
        return True
    intent = read_intent_key(prefix, info.key)
    if intent is None or branch not in refs.logs:
        return False
    refs.logs[branch].intents.append((intent[0], info.size))
    return True


async def read_repository_log(
    storage: Storage, refs: Refs, collector: Collector, counts: Counter[str]
) -> RepositoryTable | None:
    """Load the repository log, compare what its records repeat, and return the newest table; None if it is lost."""
    numbers, prefix = refs.repository, refs.repository_prefix

    async def read(number: int) -> RepositoryRecord | None:
        key = record_key(prefix, number)
        try:
            record = decode_repository_record(key, await storage.get(key), number, refs.id)
        except ObjectNotFoundError:
            return None
        except FormatError as error:
            what = f"the record of the repository log cannot be read: {error.reason}"
            collector.error(key, what, _RESTORE)
            return None
        counts["repository_records"] += 1
        return record

    loaded = await bounded(read, numbers, _PARALLEL)
    records = {number: record for number, record in zip(numbers, loaded, strict=True) if record is not None}
    if not numbers:
        return RepositoryTable.first(refs.id)
    # Old records may have been deleted, but none that the newest one repeats.
    there = set(numbers)
    lost = [n for n in range(min(numbers[0], carried_from(numbers[-1])), numbers[-1]) if n not in there]
    refs.rebuilt = rebuild_records(lost, records, refs.id)
    for number in lost:
        what = "the record of the repository log does not exist, though later ones do"
        remedy = _REBUILD if number in refs.rebuilt else _remedy(number, numbers[-1])
        collector.warning(record_key(prefix, number), what, remedy)
    return _replayed(records, prefix, numbers[-1], collector)


def _remedy(number: int, newest: int) -> str:
    """Return the remedy for a lost record of the repository log."""
    if number % TABLE_EVERY == 0 and newest - number < TABLE_EVERY:
        return f"{_NOT_REBUILT}; until then tags, branches and settings are lost, and branches are read-only"
    return f"{_NOT_REBUILT}; later records tell tags, branches and settings without it, but for the log of operations"


def _replayed(
    records: dict[int, RepositoryRecord], prefix: str, last: int, collector: Collector
) -> RepositoryTable | None:
    """Apply all entries, and compare the tables between them."""
    table: RepositoryTable | None = None
    own = {number: record.entries[-1] for number, record in records.items()}
    for number, record in sorted(records.items()):
        key = record_key(prefix, number)
        first = carried_from(number)
        if table is None and first == 1:
            table = RepositoryTable.first(record.repository)
        for at, entry in enumerate(record.entries, first):
            if at in own and own[at] != entry:
                collector.error(key, f"the record repeats record {at} otherwise than that one is", _RESTORE)
            if table is not None and at == table.number + 1:
                if at == number and record.before != table.digest:
                    collector.error(
                        key, f"the record goes on from another record {at - 1} than the existing one", _RESTORE
                    )
                table = table.after(entry)
        if record.table is not None:
            if table is not None and table.number == number and table != record.table:
                collector.error(key, "its table is not what the entries before it make", _RESTORE)
            table = record.table
    if table is None or table.number != last:
        collector.error(
            record_key(prefix, last),
            "it is unknown which tags and branches there are: the records that tell cannot be read",
            _RESTORE,
        )
        return None
    return table


async def open_logs(logs: Iterable[LogRoot], collector: Collector) -> None:
    """Load the newest state of each log, as a session does."""

    async def load(root: LogRoot) -> None:
        try:
            hint = await root.log.hint()
            root.state = (await load_tip(root.log, hint, at=root.last)).state
        except (FormatError, NotFoundError) as error:
            what = f"no session can be opened at the tip of the branch: {error}"
            collector.consequence(Severity.ERROR, root.log.key(root.last), what)

    await bounded(load, logs, _PARALLEL)


async def last_expiry(root: LogRoot) -> Expiry | None:
    """Search the newest expiry of a log whose newest state cannot be loaded, ignoring unreadable records."""
    number = root.last
    while number >= root.first:
        try:
            record = await root.log.read(number)
            for at, body in sorted(record.bodies().items(), reverse=True):
                entry = root.log.decode(at, body)
                if isinstance(entry, Expiry):
                    return entry
            number = first_carried(number) - 1
        except (FormatError, ObjectNotFoundError):  # reported by the walk
            number -= 1
    return None


async def load_retained_roots(
    storage: Storage, refs: Refs, table: RepositoryTable | None, collector: Collector
) -> dict[str, RetainedHistory] | None:
    """Load the retained snapshots; None where damage hides them, so that all count as retained."""
    logs = refs.logs
    if table is None or any(root.state is None for root in logs.values()):
        return None
    opened = {name: (root.log, root.state) for name, root in logs.items() if root.state is not None}
    roots: list[Origin] = [tag.origin for tag in table.tags.values()]
    for name, row in table.branches.items():  # of branches without a record yet; others have their state in their logs
        behind = name not in opened or opened[name][1].life.cause < row.number
        if row.origin is not None and not row.deleted and behind:
            roots.append(row.origin)
    try:
        return await load_retained(storage, opened, roots)
    except (FormatError, NotFoundError) as error:
        what = f"it cannot be worked out which snapshots are kept, so all are taken for kept: {error}"
        name = error.object_name if isinstance(error, FormatError) else getattr(error, "key", refs.repository_prefix)
        collector.consequence(Severity.WARNING, name, what)
    return None
