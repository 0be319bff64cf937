"""Walk over one log: the states of its records, and the layers of its retained snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from arraystore._format.history import SnapshotRow, page_span
from arraystore._format.ids import CheckpointId, NodeId, SnapshotId
from arraystore._format.layer import Layer
from arraystore._format.lifecycle import BranchLife, Deleted, Expiry, Fence, Origin, Reset
from arraystore._format.node import Node
from arraystore._format.record import Birth, Commit, Record, Rewrite, encode_note
from arraystore._format.snapshot import checkpoint_key
from arraystore._format.transaction import NodeChange, Operation
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import INITIAL_MESSAGE
from arraystore._log.state import Resolved, SnapshotState, StateBuilder, empty_state
from arraystore._maintenance.verification.checkpoints import Checkpoints, Named
from arraystore._maintenance.verification.findings import Problem, Use
from arraystore._maintenance.verification.inventory import Audit
from arraystore._maintenance.verification.layers import LayerChecker, LayerUse
from arraystore._maintenance.verification.nodes import misplaced, wrong_documents
from arraystore._maintenance.verification.pages import PageDigest, RowDigest, check_directory, compare_page
from arraystore._maintenance.verification.records import Entry, LogWindows
from arraystore.errors import FormatError

_LOOK = "look at the snapshot with zarr, and commit the documents as they should be"
_PLACE = "move the node below a group, or create the group that it lacks"


@dataclass(frozen=True)
class Shared:
    """State that the walks of all logs share."""

    audit: Audit
    checkpoints: Checkpoints
    layers: LayerChecker


@dataclass(frozen=True)
class Start:
    """Start of a walk."""

    number: int
    """Number of the first record that is read."""
    state: SnapshotState | None = None
    """State before it; None where the record is the birth of the log, or the state is lost."""


def _base_of(state: SnapshotState | None) -> tuple[int, bytes] | None:
    """Return the number of the record of a state's checkpoint, and the digest in the checkpoint."""
    at = None if state is None else state.checkpoint
    return None if at is None or at.digest is None else (at.sequence, at.digest)


@dataclass(frozen=True, eq=False)
class _Suspicion:
    """Problem that counts once a retained snapshot has it."""

    use: Use
    problem: Problem


@dataclass(eq=False)
class LogWalk:
    """Applies the records of one log in order."""

    _shared: Shared
    _log: BranchLog
    _pages: dict[tuple[int, int], PageDigest]
    _stretches: list[tuple[int, int]] | None
    """Numbers of records with retained snapshots; None if all snapshots count as retained."""
    _shown_from: int
    """Number of the oldest record whose snapshots the branch retains."""
    _live: bool
    """True if the branch is not deleted."""

    def __post_init__(self) -> None:
        self._uncompared = dict(self._pages)
        self._builder: StateBuilder | None = None
        self._life: BranchLife | None = BranchLife()
        self._kept: list[SnapshotId] = []
        self._open: dict[tuple[NodeId, Layer], Use] = {}
        self._pending: list[LayerUse] = []
        self._suspects: dict[NodeId, list[Use]] = {}
        self._suspicions: list[_Suspicion] = []
        self._failure: Problem | None = None
        self._unreadable: list[SnapshotId] = []
        self.origins: set[CheckpointId] = set()
        """Ids of the checkpoints at which the log begins or to which it is reset."""
        self.rebuilt: list[Record] = []
        """Missing records, as a repair can write them."""
        self.superseded: list[Layer] = []
        """Layers that retained records add and no retained snapshot has, since others replaced them before a commit."""
        self._retained = False
        self._rows = RowDigest()
        self._first = 0
        self._unknown: list[int] = []
        """Numbers of records whose snapshots cannot be read."""
        self._begun = False

    async def run(self, start: Start, last: int) -> None:
        """Walk to a record; pages that turn out wrong are removed from the table of pages."""
        self._first = start.number
        if start.state is not None:
            self._stand_at(start.state)
        windows = LogWindows(self._log, self._shared.audit, self._keeps, _base_of(start.state))
        async for window in windows.read(start.number, last):
            for entry in window.entries:
                await self._step(entry, windows.lost.get(entry.number))
            await self._flush(window.records)
        self.rebuilt = windows.rebuilt
        self._compare_pages(last, at_end=True)
        await self._finish()

    def _keeps(self, number: int) -> bool:
        """Tell whether the snapshots of a record are retained."""
        return self._stretches is None or any(first <= number <= last for first, last in self._stretches)

    async def _flush(self, records: dict[tuple[str, int], Record]) -> None:
        """Check the layers of retained snapshots; others wait until a retained snapshot has them."""
        needed = [item for item in self._pending if item.use.required]
        others = [item for item in self._pending if not item.use.required]
        self._pending = [item for item in others if item.use.end is None]
        self.superseded += [item.layer for item in others if item.use.end is not None and item.retained]
        await self._shared.layers.check(needed, records)

    async def _finish(self) -> None:
        if self._live and self._builder is not None:
            self._kept.append(self._builder.peek().snapshot)
        self._report_failure(at_end=True)
        await self._flush({})
        for each in self._suspicions:
            if each.use.required:
                self._shared.audit.collector.warning_of(each.problem, [each.use])

    def _compare_pages(self, number: int, *, at_end: bool = False) -> None:
        """Compare the pages up to a record that were not compared before."""
        for place, page in list(self._uncompared.items()):
            first, last = page_span(page.ref.level, page.ref.index)
            if last > number and not at_end:
                continue
            del self._uncompared[place]
            if any(first <= unknown <= last for unknown in self._unknown):
                continue
            if not compare_page(page, self._rows, self._first, self._shown_from, number, self._shared.audit.collector):
                del self._pages[place]

    # -- one record ---------------------------------------------------------------------------------------------

    async def _step(self, entry: Entry, lost: Problem | None) -> None:
        number, body = entry.number, entry.body
        self._retained = self._keeps(number)
        if lost is not None:
            self._report_lost(entry, lost)
        if body is None:
            self._unknown.append(number)
            self._life = None
            self._break(entry.problem)
        elif isinstance(body, Birth | Reset):
            await self._begin(number, body)
        elif isinstance(body, Commit):
            await self._commit(number, body, entry)
        else:
            self._change(number, body)
        await self._checkpoints(number, entry.digest)

    def _report_lost(self, entry: Entry, lost: Problem) -> None:
        made = [item.id for item in entry.body.transactions] if isinstance(entry.body, Commit) else []
        self._shared.audit.collector.error_of(lost, [Use(None, made, 0)] if made else ())

    async def _begin(self, number: int, body: Birth | Reset) -> None:
        """Continue at the snapshot that the log begins at or is reset to."""
        life = None if self._life is None else self._life.after_start(number, body.origin, body.fence, body.cause)
        self._leave()
        self._report_failure()
        self._life = life
        if life is None:
            return
        if body.origin is None:
            note = encode_note(INITIAL_MESSAGE, {})
            state = empty_state(self._log.branch, number, body.snapshot, body.parent, body.time, note)
            self._rows.add(SnapshotRow(number, body.snapshot, body.parent, body.time, note))
            self._stand_at(replace(state, life=life))
        elif self._keeps(number):
            origin = await self._origin(number, body.origin, body.snapshot)
            if origin is None:
                self._failure = Problem(
                    self._log.key(number),
                    "the snapshot that the branch begins with here cannot be read",
                    "see to the checkpoint that it begins with",
                )
                return
            here = replace(origin, branch=self._log.branch, sequence=number, pages=(), checkpoint=None, life=life)
            self._stand_at(here)
        if self._keeps(number):
            self._kept.append(body.snapshot)

    async def _origin(self, number: int, origin: Origin, snapshot: SnapshotId) -> SnapshotState | None:
        named = Named.origin(origin, self._log.key(number), snapshot)
        self._shared.checkpoints.name(named)
        self.origins.add(origin.checkpoint)
        return await self._shared.checkpoints.load(named, [Use(None, [snapshot], 0)])

    async def _commit(self, number: int, commit: Commit, entry: Entry) -> None:
        for item in commit.transactions if entry.transactions is None or self._builder is None else ():
            if self._keeps(number):
                self._unreadable.append(item.id)
        if entry.transactions is None:
            self._unknown.append(number)
            self._break(entry.problem)
            return
        last = len(entry.transactions) - 1
        for at, resolved in enumerate(entry.transactions):
            item, _, note = resolved
            self._rows.add(SnapshotRow(number, item.id, item.parent, item.time, note))
            if self._builder is not None:
                await self._apply(entry, resolved, self._builder, last=at == last)
        if not self._begun and self._keeps(number):
            self._begun = True
            if last == 0 and self._builder is not None:
                self._begin_with(self._builder.peek())

    def _begin_with(self, state: SnapshotState) -> None:
        """Require of the origin only what the first retained snapshot still has, since the rest may be collected."""
        pending, self._pending = self._pending, []
        for item in pending:
            node = item.node if item.stack is None else state.by_id(item.node.id)
            if node is not None:
                self._pending.append(item if item.stack is None else replace(item, stack=node.layers))

    async def _apply(self, entry: Entry, resolved: Resolved, builder: StateBuilder, *, last: bool) -> None:
        number, (item, log, _) = entry.number, resolved
        touched = dict.fromkeys([change.id for change in log.nodes] + [change.node for change in log.chunks])
        after = self._advance(number, touched, builder, lambda: builder.commit(number, [resolved]), rewritten=False)
        if after is None:
            if self._keeps(number):
                self._unreadable.append(item.id)
            return
        if log.nodes:
            self._inspect(number, after, log.nodes)
        if self._keeps(number):
            self._kept.append(item.id)
            self._shared.audit.counts["snapshots"] += 1
        if not last:
            for named in self._shared.checkpoints.of(self._log.branch, number):
                if named.snapshot == item.id:
                    await self._shared.checkpoints.compare(named, after, [Use(None, [item.id], 0)], entry.digest)

    def _change(self, number: int, body: Rewrite | Deleted | Fence | Expiry) -> None:
        builder = self._builder
        if not isinstance(body, Rewrite) and self._life is not None:
            self._life = self._life.after(number, body)
        if builder is None:
            return
        if not isinstance(body, Rewrite):
            builder.live(number, body)
            return
        nodes = [item.node for item in body.replacements]
        self._advance(number, nodes, builder, lambda: builder.rewrite(number, body.replacements), rewritten=True)

    def _advance(
        self,
        number: int,
        touched: Iterable[NodeId],
        builder: StateBuilder,
        change: Callable[[], None],
        *,
        rewritten: bool,
    ) -> SnapshotState | None:
        """Apply a change of some nodes, and return the state after it; None if it does not apply."""
        before = builder.peek()
        nodes = {identifier: before.by_id(identifier) for identifier in touched}
        try:
            change()
        except FormatError as error:
            repair = "reset the branch to a snapshot before it, or restore what the log is damaged by"
            self._break(Problem(self._log.key(number), f"the record does not apply: {error.reason}", repair))
            return None
        after = builder.peek()
        for identifier, node in nodes.items():
            self._relayer(identifier, node, after.by_id(identifier), rewritten=rewritten)
        return after

    async def _checkpoints(self, number: int, digest: bytes | None) -> None:
        """Compare the checkpoints of a record with its state, or continue from one where the state is lost."""
        for named in self._shared.checkpoints.of(self._log.branch, number):
            uses = [Use(None, [named.snapshot], 0)] if named.snapshot is not None else []
            if self._builder is None:
                state = await self._shared.checkpoints.load(named, uses)
                if state is not None:
                    self._report_failure()
                    self._stand_at(state)
                continue
            here = self._builder.peek()
            if named.snapshot not in (None, here.snapshot):
                continue  # of an earlier transaction of this record, or of none, which is reported at the end
            self._compare_pages(number)
            state = await self._shared.checkpoints.compare(named, here, uses, digest)
            if state is not None:
                key = checkpoint_key(named.id)
                if not check_directory(
                    key, state.pages, number, self._shown_from, self._pages, self._shared.audit.collector
                ):
                    self._shared.checkpoints.reject(named)

    # -- what is wrong ------------------------------------------------------------------------------------------

    def _break(self, problem: Problem | None) -> None:
        """Continue without a state, until a checkpoint or a reset provides one."""
        if self._failure is None:
            self._failure = problem
        self._leave()

    def _report_failure(self, *, at_end: bool = False) -> None:
        """Report why snapshots cannot be read, if any of them is retained."""
        broken = at_end and self._live and self._builder is None
        if self._failure is not None and (self._unreadable or broken):
            self._shared.audit.collector.error_of(self._failure, [Use(None, self._unreadable, 0)])
        self._failure, self._unreadable = None, []

    def _inspect(self, number: int, state: SnapshotState, changes: tuple[NodeChange, ...]) -> None:
        """Check the nodes that a transaction has changed."""
        key, first = self._log.key(number), len(self._kept)
        for change in changes:
            for use in self._suspects.pop(change.id, ()):
                use.end = first
            node = state.by_id(change.id)
            if node is None or change.operation == Operation.MOVED:
                continue
            for what in wrong_documents(node):
                use = Use(node.path, self._kept, first)
                self._suspects.setdefault(change.id, []).append(use)
                self._suspicions.append(_Suspicion(use, Problem(key, what, _LOOK)))
        if any(change.operation in _MOVING for change in changes):
            for what in misplaced(state.nodes, changes):
                use = Use(None, self._kept, first, first + 1)
                self._suspicions.append(_Suspicion(use, Problem(key, what, _PLACE)))

    # -- layers -------------------------------------------------------------------------------------------------

    def _stand_at(self, state: SnapshotState) -> None:
        """Continue from a state that the records do not make."""
        self._builder = StateBuilder(state)
        self._life = state.life
        for node in state.nodes.values():
            self._add(node, node.layers, rewritten=False, stack=node.layers)

    def _leave(self) -> None:
        """End the uses of all layers at this record."""
        self._builder = None
        for use in self._open.values():
            use.end = len(self._kept)
        self._open.clear()

    def _relayer(self, identifier: NodeId, before: Node | None, after: Node | None, *, rewritten: bool) -> None:
        """Update the layers of a node."""
        old = () if before is None else before.layers
        new = () if after is None else after.layers
        if old is new:
            return
        # Packs of chunks that a commit hid before a rewrite repeated their references may be deleted.
        stack = new if rewritten else None
        if after is not None and new[: len(old)] == old:
            self._add(after, new[len(old) :], rewritten=rewritten, stack=stack)
            return
        stay = set(new)
        for layer in old:
            if layer not in stay:
                use = self._open.pop((identifier, layer), None)
                if use is not None:
                    use.end = len(self._kept)
        if after is not None:
            had = set(old)
            self._add(after, [layer for layer in new if layer not in had], rewritten=rewritten, stack=stack)

    def _add(
        self, node: Node, layers: Iterable[Layer], *, rewritten: bool, stack: tuple[Layer, ...] | None = None
    ) -> None:
        for layer in layers:
            use = Use(node.path, self._kept, len(self._kept))
            self._open[node.id, layer] = use
            self._pending.append(LayerUse(layer, node, use, rewritten, stack, self._retained))


_MOVING = (Operation.CREATED, Operation.DELETED, Operation.MOVED)
