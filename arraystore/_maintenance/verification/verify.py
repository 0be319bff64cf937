"""Verification of a repository: a walk over all objects that branches and tags lead to.

Damage never raises: each damaged object becomes a finding, and the walk continues behind it. Commits made during the
walk are left for the next one; if snapshots expire meanwhile, errors are looked for again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

from arraystore._chunks.reader import ChunkReader
from arraystore._environment import Environment
from arraystore._format.collection import Collection, collection_key, decode_collection
from arraystore._format.history import history_key, page_span, survivors_key
from arraystore._format.ids import CheckpointId, SnapshotId, id_to_text
from arraystore._format.intent import PATIENCE
from arraystore._format.layer import Layer
from arraystore._format.record import Record
from arraystore._format.refs import (
    REPOSITORY_KEY,
    Hint,
    branch_prefix,
    decode_hint,
    decode_repository,
    hint_key,
    name_from_key,
)
from arraystore._format.repository_log import RepositoryTable
from arraystore._format.snapshot import checkpoint_key
from arraystore._log.ancestry import covered, read_survivors
from arraystore._log.loading import load_checkpoint, load_tip
from arraystore._log.retained_snapshots import RetainedHistory
from arraystore._log.state import SnapshotState
from arraystore._maintenance.collection.summary import StageProgress, no_progress
from arraystore._maintenance.remote_readers import RemoteReaders
from arraystore._maintenance.verification.checkpoints import Checkpoints, Named
from arraystore._maintenance.verification.chunk_reading import ChunkVerifier
from arraystore._maintenance.verification.chunks import ChunkChecker
from arraystore._maintenance.verification.findings import Collector, Leak, Use, VerifyReport
from arraystore._maintenance.verification.inventory import SHELVES, Audit, Inventory, list_all, take_inventory
from arraystore._maintenance.verification.layers import LayerChecker, LayerUse
from arraystore._maintenance.verification.lost_tips import check_evidence, listed_evidence, unreferenced_evidence
from arraystore._maintenance.verification.outdated import is_outdated
from arraystore._maintenance.verification.pages import PageDigest, pages_of, read_pages
from arraystore._maintenance.verification.remote_chunks import RemoteChunkVerifier
from arraystore._maintenance.verification.roots import (
    LogRoot,
    Refs,
    last_expiry,
    load_retained_roots,
    open_logs,
    read_repository_log,
    sort_refs,
)
from arraystore._maintenance.verification.walk import LogWalk, Shared, Start
from arraystore.errors import FormatError, InvalidInputError, NotFoundError, ObjectNotFoundError
from arraystore.storage.protocol import ObjectInfo, Storage

_TRIES = 4
"""Verifications of a repository of which snapshots expire all the time."""

_HINT_REPAIR = "run repair, which writes the hint again, or removes it"
_PAGE_REPAIR = "run repair, which writes the page again from the records"
_RESTORE = "restore the object from a backup or an older version in the bucket"


async def verify(
    storage: Storage,
    repository: bytes,
    environment: Environment,
    reader: ChunkReader,
    level: Literal["metadata", "chunks"] = "metadata",
    *,
    sample: int | None = None,
    progress: StageProgress | None = None,
    remote: RemoteReaders | None = None,
) -> VerifyReport:
    """Verify all objects that branches and tags lead to.

    With the level "metadata", chunks are only checked to exist; with "chunks", all or a random sample of them are
    compared with their checksums, and virtual ones are decoded, by workers if `remote` is passed. Errors count only if
    no expiry, deletion or collection came in between, which may have deleted what they miss; otherwise the verification
    begins again.
    """
    if level not in ("metadata", "chunks"):
        raise InvalidInputError(f"level={level!r} must be 'metadata' or 'chunks'")
    if sample is not None and (type(sample) is not int or sample < 0):
        raise InvalidInputError(f"sample={sample!r} must be None or an integer >= 0")

    async def run() -> Verification:
        verification = Verification(storage, repository, environment, progress or no_progress)
        if level == "chunks":
            verification.chunks = ChunkChecker(_verifier(verification, reader, remote), sample, environment.random)
        await verification.run()
        return verification

    for _ in range(_TRIES - 1):
        verification = await run()
        report = verification.report(level)
        if report.ok or not await is_outdated(storage, environment, verification.refs):
            return report
    return (await run()).report(level)


def _verifier(
    verification: Verification, reader: ChunkReader, remote: RemoteReaders | None
) -> ChunkVerifier | RemoteChunkVerifier:
    collector, counts = verification.collector, verification.counts
    if remote is None:
        return ChunkVerifier(reader, collector, counts)
    return RemoteChunkVerifier(remote, collector, counts, verification.progress)


@dataclass
class Verification:
    """Verification with its results; without `chunks`, no chunk is read."""

    storage: Storage
    repository: bytes
    environment: Environment
    progress: StageProgress = no_progress
    chunks: ChunkChecker | None = None

    def __post_init__(self) -> None:
        self.storage = self.storage.origin
        self.collector = Collector()
        self.counts: Counter[str] = Counter()
        self.inventory = Inventory()
        self.refs = Refs()
        self.leaks: dict[str, Leak] = {}
        self.left_behind: list[ObjectInfo] = []
        self.pages: dict[str, dict[tuple[int, int], PageDigest]] = {}
        self.origins: dict[str, set[CheckpointId]] = {}
        self.rebuilt: dict[str, list[Record]] = {}
        self.superseded: list[Layer] = []

    async def run(self) -> None:
        """Verify the repository."""
        self.progress("listing", 0, None)
        # Refs are listed first: whatever the records say that are in this listing is in the one that follows.
        refs = self.refs = sort_refs(
            await list_all(self.storage, "refs/"), self.storage, self.repository, self.environment
        )
        self.inventory = await take_inventory(self.storage)
        await self._repository()
        self._strangers()
        table = await read_repository_log(self.storage, refs, self.collector, self.counts)
        await open_logs(refs.logs.values(), self.collector)
        retained = await load_retained_roots(self.storage, refs, table, self.collector)
        self.audit = Audit(self.storage, self.repository, self.inventory, self.collector, self.counts)
        self.checkpoints = Checkpoints(self.audit)
        self.layers = LayerChecker(self.audit, None if self.chunks is None else self.chunks.take)
        collection = None
        if table is not None:
            self._name_roots(table)
            collection = await self._collection(table)
        await self._walk_all(retained)
        await self._left()
        if table is not None:
            await self._lost_tips(table, collection)
        if self.chunks is not None:
            await self.chunks.finish()
        await self.layers.reach(self.superseded)
        self._take_leaks()
        self.progress("done", 1, 1)

    def report(self, level: str) -> VerifyReport:
        """Return the report."""
        findings = self.collector.findings()
        unread = {} if self.chunks is None else self.chunks.unread
        return VerifyReport(level, findings, self.collector.omitted, dict(self.counts), self.leaks, unread)

    async def _repository(self) -> None:
        try:
            decode_repository(REPOSITORY_KEY, await self.storage.get(REPOSITORY_KEY))
        except FormatError as error:
            self.collector.error(REPOSITORY_KEY, error.reason, _RESTORE)
        except ObjectNotFoundError:
            self.collector.error(REPOSITORY_KEY, "it does not exist, so the repository cannot be opened", _RESTORE)

    def _strangers(self) -> None:
        """Report logs of other repositories, which do no harm."""
        for identifier, infos in self.refs.foreign.items():
            what = (
                f"{len(infos)} objects of the logs of another repository, which was here before or was never finished; "
                "a session that outlived it may have written them, and nothing of them is read"
            )
            remedy = (
                f"delete everything below refs/{identifier}/ and history/{identifier}/ once no such session is left"
            )
            self.collector.warning(f"refs/{identifier}/", what, remedy)

    def _name_roots(self, table: RepositoryTable) -> None:
        for name, tag in table.tags.items():
            self.checkpoints.name(Named.origin(tag.origin, f"tag {name!r}", tag.snapshot))
        for name, row in table.branches.items():
            if row.deleted or name in self.refs.logs:
                continue
            if row.origin is not None:
                self.checkpoints.name(Named.origin(row.origin, f"branch {name!r}", row.snapshot))
            else:
                what = f"the branch {name!r} has no record"
                self.collector.error(branch_prefix(self.repository, name), what, _RESTORE)

    async def _collection(self, table: RepositoryTable) -> Collection | None:
        """Return the object that the last collection left for the next one, if it can be read."""
        for info in self.inventory.small["collections/"]:
            if table.collection is None or info.key != collection_key(table.collection):
                self.left_behind.append(info)
        if table.collection is None:
            return None
        key = collection_key(table.collection)
        repair = "run a full collection, which needs nothing of earlier ones"
        try:
            return decode_collection(key, await self.storage.get(key))
        except FormatError as error:
            self.collector.warning(key, f"what the last collection left cannot be read: {error.reason}", repair)
        except ObjectNotFoundError:
            self.collector.warning(key, "what the last collection left does not exist", repair)
        return None

    async def _lost_tips(self, table: RepositoryTable, collection: Collection | None) -> None:
        """Report logs that end before a record that another object names."""
        logs = self.refs.logs
        evidence = [*listed_evidence(logs, table, collection), *await unreferenced_evidence(self.audit)]
        for each in evidence:
            await check_evidence(self.audit, logs, self.environment, each)

    # -- logs ---------------------------------------------------------------------------------------------------

    async def _walk_all(self, retained: dict[str, RetainedHistory] | None) -> None:
        # Branches mostly start from the first one, so it comes last, when all that they name of it has been read.
        names = sorted(self.refs.logs, key=lambda name: (name == "main", name))
        await self._hints()
        history = [info.key for info in self.inventory.small["history/"]]
        for done, name in enumerate(names):
            self.progress(f"branch {name}", done, len(names))
            root = self.refs.logs[name]
            pages = await read_pages(self.audit, name, pages_of(root.log.history_prefix, history))
            self.pages[name] = pages
            self._name_from(root, pages)
            await self._survivors(root)
            keeps = None if retained is None else retained[name].stretches
            if keeps or keeps is None or root.live:
                await self._walk(root, pages, None if keeps is None else [(s.first, s.last) for s in keeps])
            self._missing_pages(root, set(history))
            self._old_lists(root)

    async def _walk(
        self, root: LogRoot, pages: dict[tuple[int, int], PageDigest], keeps: list[tuple[int, int]] | None
    ) -> None:
        self.counts["branches"] += root.live
        shared = Shared(self.audit, self.checkpoints, self.layers)
        walk = LogWalk(shared, root.log, pages, keeps, root.shown_from, root.live)
        start = await self._start(root)
        await walk.run(start, root.last)
        self.origins[root.log.branch] = walk.origins
        self.rebuilt[root.log.branch] = walk.rebuilt
        self.superseded += walk.superseded

    async def _start(self, root: LogRoot) -> Start:
        """Return where the walk begins: at the birth of the log, or behind its expired records."""
        expiry = await last_expiry(root) if root.state is None else None
        upto, base = (expiry.upto, expiry.base) if expiry is not None else (-1, None)
        if root.state is not None:
            upto, base = root.state.life.expired, root.state.life.base
        if base is not None:
            named = Named(base, root.log.branch, upto, f"the expiry of {root.log.branch!r}", needed=True)
            self.checkpoints.name(named)
            return Start(upto + 1, await self.checkpoints.load(named, []))
        return Start(0)

    def _name_from(self, root: LogRoot, pages: dict[tuple[int, int], PageDigest]) -> None:
        gone = -1 if root.state is None else root.state.life.expired
        for page in pages.values():
            for number, identifier in page.checkpoints:
                if number > gone:
                    self.checkpoints.name(Named(identifier, root.log.branch, number, page.key))
        life = None if root.state is None else root.state.life
        if life is not None and life.origin is not None and life.start <= life.expired and root.live:
            # The record that names it has expired, and the history continues behind it.
            self.checkpoints.name(replace(Named.origin(life.origin, root.log.key(life.start)), shown=False))

    def _missing_pages(self, root: LogRoot, keys: set[str]) -> None:
        """Report missing pages that the newest checkpoint names."""
        state = root.state
        if state is None or not root.live:
            return
        for ref in state.pages:
            first, last = page_span(ref.level, ref.index)
            key = history_key(root.log.history_prefix, ref.level, ref.index)
            if key in keys or last <= state.life.expired:
                continue
            if first <= root.first and root.first > 0:
                what = "the history page does not exist, nor do some of the records that it is made from"
                self.collector.error(key, what, _RESTORE)
            else:
                what = "the history page does not exist; whoever needs it has to read the records"
                self.collector.warning(key, what, _PAGE_REPAIR)
        self.counts["history_records_covered"] += max(covered(state.pages), 0)

    def _old_lists(self, root: LogRoot) -> None:
        """Mark lists of survivors that a later expiry has replaced."""
        listed = None if root.state is None else root.state.life.survivors
        current = None if listed is None else survivors_key(root.log.history_prefix, listed)
        for info in self.inventory.small["history/"]:
            if (
                info.key.startswith(f"{root.log.history_prefix}kept/")
                and info.key != current
                and root.state is not None
            ):
                self.left_behind.append(info)

    async def _survivors(self, root: LogRoot) -> None:
        """Check survivors of expiries."""
        if root.state is None or root.state.life.survivors is None:
            return
        key = survivors_key(root.log.history_prefix, root.state.life.survivors)
        try:
            survivors = await read_survivors(root.log, root.state.life)
        except FormatError as error:
            self.collector.error(key, f"the list of snapshots that an expiry kept: {error.reason}", _RESTORE)
            return
        except ObjectNotFoundError:
            self.collector.error(key, "the list of snapshots that an expiry kept does not exist", _RESTORE)
            return
        if survivors is None:
            return
        for row, checkpoint in zip(survivors.rows, survivors.checkpoints, strict=True):
            named = Named(checkpoint, root.log.branch, row.sequence, key, row.id, needed=True)
            self.checkpoints.name(named)
            await self._pinned(named, row.id)
            self.counts["snapshots"] += 1

    async def _pinned(self, named: Named, snapshot: SnapshotId) -> SnapshotState | None:
        """Check a snapshot that only its checkpoint holds."""
        state = await self.checkpoints.load(named, [Use(None, [snapshot], 0)])
        if state is not None:
            nodes = [(node, layer) for node in state.nodes.values() for layer in node.layers]
            await self.layers.check(
                [LayerUse(layer, node, Use(node.path, [snapshot], 0), stack=node.layers) for node, layer in nodes], {}
            )
        return state

    async def _left(self) -> None:
        """Check checkpoints that were named too late, or whose records were not read."""
        for named in list(self.checkpoints.left()):
            root = self.refs.logs.get(named.branch)
            if root is None or named.sequence > root.last:
                what = (
                    f"{named.by} names a checkpoint of record {named.sequence} of {named.branch!r}, which is not there"
                )
                report = self.collector.error if named.needed else self.collector.warning
                report(checkpoint_key(named.id), what, _HINT_REPAIR if not named.needed else _RESTORE)
                continue
            if not named.shown:
                await self.checkpoints.load(named, [])
                continue
            uses = [Use(None, [named.snapshot], 0)] if named.snapshot is not None else []
            if named.snapshot is not None and named.needed:
                await self._pinned(named, named.snapshot)
            try:
                tip = await load_tip(root.log, at=named.sequence, snapshot=named.snapshot)
            except (FormatError, NotFoundError):  # the records are gone or damaged, which the walk reports
                await self.checkpoints.load(named, uses)
                continue
            if named.snapshot in (None, tip.state.snapshot):
                await self.checkpoints.compare(named, tip.state, uses)
            else:  # a detached snapshot that a tag or a branch was created at
                await self.checkpoints.load(named, uses)

    # -- hints and leaks ----------------------------------------------------------------------------------------

    async def _hints(self) -> None:
        for info in self.inventory.small["hints/"]:
            branch = name_from_key(info.key.removeprefix("hints/"))
            root = self.refs.logs.get(branch)
            if root is None or hint_key(branch) != info.key:
                self.collector.warning(info.key, "the hint is of no branch", _HINT_REPAIR)
                continue
            try:
                hint = decode_hint(info.key, await self.storage.get(info.key))
            except FormatError as error:
                self.collector.warning(info.key, f"the hint cannot be read: {error.reason}", _HINT_REPAIR)
                continue
            except ObjectNotFoundError:
                continue  # removed since it was listed
            if hint.repository != self.repository:
                what = f"the hint is of repository {id_to_text(hint.repository)}"
                self.collector.warning(info.key, what, _HINT_REPAIR)
                continue
            self.counts["hints"] += 1
            if hint.sequence > root.last:
                # Another one may have been written since the records were listed.
                if not await root.log.exists(hint.sequence):
                    await self._hint_behind(info.key, hint, root)
                continue
            if not self.inventory.checkpoints.reach(hint.checkpoint):
                what = f"the hint names the checkpoint {id_to_text(hint.checkpoint)}, which does not exist"
                self.collector.warning(info.key, what, _HINT_REPAIR)
                continue
            self.checkpoints.name(Named(hint.checkpoint, branch, hint.sequence, info.key))

    async def _hint_behind(self, key: str, hint: Hint, root: LogRoot) -> None:
        """Report a hint to a missing record: a lost one if a checkpoint of it exists."""
        what = f"the hint names record {hint.sequence}, which does not exist"
        try:
            state = await load_checkpoint(self.storage, hint.checkpoint)
        except (FormatError, ObjectNotFoundError):
            state = None
        if state is None or (state.branch, state.sequence) != (root.log.branch, hint.sequence):
            self.collector.warning(key, what, _HINT_REPAIR)
            return
        what += f", though there is a checkpoint of it: all records from {root.last + 1} on are lost"
        remedy = f"{_RESTORE}, or run repair, which removes the hint, so that the branch is at record {root.last}"
        self.collector.error(key, what, remedy)

    def _take_leaks(self) -> None:
        for prefix, shelf in self.inventory.shelves.items():
            left = ~shelf.reached
            self.leaks[SHELVES[prefix]] = Leak(int(left.sum()), int(shelf.sizes[left].sum()))
        old = [
            size for root in self.refs.logs.values() for number, size in root.intents if number + PATIENCE < root.last
        ]
        self.leaks["intents"] = Leak(len(old), sum(old))
        left_behind = self.left_behind
        self.leaks["old_lists"] = Leak(len(left_behind), sum(info.size for info in left_behind))
        strays = [*self.inventory.strays, *self.refs.strays]
        self.leaks["unknown"] = Leak(len(strays), sum(info.size for info in strays))
