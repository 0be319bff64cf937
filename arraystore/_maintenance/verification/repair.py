"""Repair: damaged or missing objects that are functions of the logs are written again.

These are checkpoints, history pages and hints, and missing records whose bodies later ones repeat. Other records,
manifests, change logs and packs are never touched, since nothing else holds their content. A damaged checkpoint or page
is deleted and written again under the same key, by which immutable objects name it. Nothing is deleted before its
replacement is ready, and no record ever is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from arraystore._environment import Environment
from arraystore._format.history import HistoryPage, encode_history, page_span
from arraystore._format.record import LONG_SKIP, encode_record, record_key
from arraystore._format.refs import hint_key, name_from_key
from arraystore._format.repository_log import encode_repository_record
from arraystore._format.snapshot import checkpoint_key
from arraystore._log.ancestry import rows_of_records
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import load_tip
from arraystore._maintenance.checkpoints import encode_state, write_periodic
from arraystore._maintenance.collection.summary import StageProgress, no_progress
from arraystore._maintenance.verification.checkpoints import Named
from arraystore._maintenance.verification.findings import Finding, Severity
from arraystore._maintenance.verification.pages import cover, digest_page
from arraystore._maintenance.verification.roots import LogRoot, last_expiry
from arraystore._maintenance.verification.verify import Verification
from arraystore.errors import FormatError, NotFoundError
from arraystore.storage.protocol import Storage

_ROUNDS = 5
"""Rounds of a repair, each of which makes more readable; two and a last look nearly always suffice."""


@dataclass(frozen=True)
class RepairAction:
    """Repair of the object of a key, and its description."""

    key: str
    what: str


@dataclass(frozen=True)
class RepairReport:
    """Report of a repair.

    Parameters
    ----------
    actions
        Repairs that were made; with `dry_run`, those that would be.
    left
        Findings that it cannot repair, as a verification after it reports them.
    dry_run
        True if nothing was changed.
    """

    actions: tuple[RepairAction, ...]
    left: tuple[Finding, ...]
    dry_run: bool

    @property
    def ok(self) -> bool:
        """True if no error is left."""
        return all(finding.severity != Severity.ERROR for finding in self.left)

    @property
    def exit_code(self) -> int:
        """Exit code for programs: 0 if nothing is left, 3 if there are only warnings, 4 for errors."""
        return (3 if self.left else 0) if self.ok else 4

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON."""
        return {
            "dry_run": self.dry_run,
            "ok": self.ok,
            "actions": [{"key": action.key, "what": action.what} for action in self.actions],
            "left": [finding.to_dict() for finding in self.left],
        }

    def __str__(self) -> str:
        lines = [f"{action.key}: {'would be ' if self.dry_run else ''}{action.what}" for action in self.actions]
        lines += [str(finding) for finding in self.left]
        lines.append(f"{len(self.actions)} repaired, {len(self.left)} left" if lines else "nothing to repair")
        return "\n".join(lines)


async def repair(
    storage: Storage,
    repository: bytes,
    environment: Environment,
    *,
    dry_run: bool = False,
    progress: StageProgress | None = None,
) -> RepairReport:
    """Verify the metadata, and write again the objects that follow from the logs; a dry run changes nothing."""
    actions: list[RepairAction] = []
    for _ in range(_ROUNDS - 1):
        verification, work = await _round(storage, repository, environment, dry_run, progress)
        actions += work.actions
        if dry_run or not work.actions:
            break
    else:
        verification, work = await _round(storage, repository, environment, True, progress)
    findings = verification.report("metadata").findings
    if not dry_run:
        return RepairReport(tuple(actions), findings, dry_run)
    done, gone = {action.key for action in actions}, verification.collector.consequences if actions else ()
    left = tuple(each for each in findings if each.key not in done and (each.key, each.problem) not in gone)
    return RepairReport(tuple(actions), left, dry_run)


async def _round(
    storage: Storage, repository: bytes, environment: Environment, dry_run: bool, progress: StageProgress | None
) -> tuple[Verification, _Repair]:
    """Verify once, and repair the findings."""
    verification = Verification(storage, repository, environment, progress or no_progress)
    await verification.run()
    findings = verification.report("metadata").findings
    work = _Repair(verification, dry_run)
    await work.records()
    if work.actions and not dry_run:
        return verification, work  # the next round verifies the rest with them
    await work.pages([finding.key for finding in findings if finding.key.startswith("history/")])
    await work.checkpoints()
    await work.hints({finding.key for finding in findings if finding.key.startswith("hints/")})
    return verification, work


class _Repair:
    def __init__(self, verification: Verification, dry_run: bool) -> None:
        self._verification = verification
        self._storage = verification.storage
        self._dry_run = dry_run
        self.actions: list[RepairAction] = []

    async def _write(self, key: str, data: bytes, what: str) -> None:
        self.actions.append(RepairAction(key, what))
        if not self._dry_run:
            await self._storage.delete([key])
            await self._storage.put_if_absent(key, data)

    # -- records ------------------------------------------------------------------------------------------------

    async def records(self) -> None:
        """Write missing records, the oldest first; existing ones are never changed."""
        refs = self._verification.refs
        for number, lost in sorted(refs.rebuilt.items()):
            await self._rebuilt(record_key(refs.repository_prefix, number), encode_repository_record(lost))
        for name, records in self._verification.rebuilt.items():
            log = self._verification.refs.logs[name].log
            expired = await self._expired(self._verification.refs.logs[name]) if records else None
            due = () if expired is None else [each for each in records if each.sequence > expired]
            for record in due:
                await self._rebuilt(log.key(record.sequence), encode_record(record))

    async def _rebuilt(self, key: str, data: bytes) -> None:
        if self._dry_run or await self._storage.put_if_absent(key, data):
            self.actions.append(RepairAction(key, "rebuilt from what later records repeat of it"))

    async def _expired(self, root: LogRoot) -> int | None:
        """Load the number of the newest expired record, -1 for none; None if the log was trimmed meanwhile."""
        log = BranchLog(self._storage, root.log.repository, root.log.branch, root.log.environment)
        try:
            expiry = await last_expiry(LogRoot(log, root.first, await log.tip(root.last)))
        except NotFoundError:
            return None
        return -1 if expiry is None else expiry.upto

    # -- pages --------------------------------------------------------------------------------------------------

    async def pages(self, keys: Iterable[str]) -> None:
        """Write pages again from the records."""
        for key in dict.fromkeys(keys):
            parts = key.split("/")
            if len(parts) != 5 or not (parts[3].isdigit() and parts[4].isdigit()):
                continue
            root = self._verification.refs.logs.get(name_from_key(parts[2]))
            if root is not None and key.startswith(root.log.history_prefix):
                await self._page(key, root, int(parts[3]), int(parts[4]))

    async def _page(self, key: str, root: LogRoot, level: int, index: int) -> None:
        log = root.log
        first, last = page_span(level, index)
        if last > root.last and last > await log.tip(root.last):  # others may have committed meanwhile
            self.actions.append(RepairAction(key, "removed: it covers records that do not exist"))
            if not self._dry_run:
                await self._storage.delete([key])
            return
        try:
            rows = await rows_of_records(log, first, last)
        except (FormatError, NotFoundError):
            return  # the records are damaged or missing: the finding is left
        existing = self._verification.checkpoints.of_branch(log.branch)
        within = [each for each in existing if first <= each[0] <= last]
        before = [each for each in existing if each[0] < first][-1:]
        page = HistoryPage(log.branch, level, index, tuple(rows), (*before, *within))
        await self._write(key, encode_history(page), "written again from the records")
        self._verification.pages.setdefault(log.branch, {})[level, index] = digest_page(key, page)

    # -- checkpoints --------------------------------------------------------------------------------------------

    async def checkpoints(self) -> None:
        """Write checkpoints again, first those at which other logs begin."""
        wrong = dict(self._verification.checkpoints.wrong)
        while True:
            unknown = {named.id for named in wrong.values()}
            ready = [
                place
                for place, named in wrong.items()
                if not self._verification.origins.get(named.branch, set()) & unknown
            ]
            done = [place for place in ready if await self._checkpoint(wrong[place])]
            if not done:
                return
            for place in done:
                del wrong[place]

    async def _checkpoint(self, named: Named) -> bool:
        root = self._verification.refs.logs.get(named.branch)
        if root is None or named.sequence > root.last:
            return False
        try:
            state = (await load_tip(root.log, at=named.sequence, snapshot=named.snapshot)).state
        except (FormatError, NotFoundError):
            return False  # the records are damaged or missing: the finding is left
        if named.snapshot not in (None, state.snapshot):
            return False
        directory = cover(self._verification.pages.get(named.branch, {}), named.sequence, root.shown_from)
        key = checkpoint_key(named.id)
        data = await encode_state(root.log, key, replace(state, pages=directory))
        await self._write(key, data, "written again from the records")
        return True

    # -- hints --------------------------------------------------------------------------------------------------

    async def hints(self, keys: set[str]) -> None:
        """Write missing and wrong hints again, and delete those of no branch."""
        there = {info.key for info in self._verification.inventory.small["hints/"]}
        branches = {hint_key(name): root for name, root in self._verification.refs.logs.items()}
        due = {key for key, root in branches.items() if key not in there and root.live and root.last >= LONG_SKIP}
        for key in sorted(keys | due):
            root = branches.get(key)
            if key in there and not self._dry_run:
                await self._storage.delete([key])
            if root is None or not root.live or root.last < LONG_SKIP:
                self.actions.append(RepairAction(key, "removed: the records lead to the tip as fast"))
            elif await self._hint(root):
                self.actions.append(RepairAction(key, "written again, with a checkpoint of the branch"))

    async def _hint(self, root: LogRoot) -> bool:
        target = root.last // LONG_SKIP * LONG_SKIP
        try:
            tip = await load_tip(root.log, at=target)
        except (FormatError, NotFoundError):
            return False
        if not self._dry_run:
            pages = cover(self._verification.pages.get(root.log.branch, {}), target, root.shown_from)
            await write_periodic(root.log, replace(tip, state=replace(tip.state, pages=pages)))
        return True
