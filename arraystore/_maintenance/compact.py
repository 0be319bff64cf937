"""Compaction: folding of layers and rewriting of packs, by rewrite records that change neither data nor history.

It folds the layers of each array, copies live chunks out of packs with little live data, and merges small packs in the
order of the grid. It keeps no state: results are no candidates any more, so the next run continues one that ended
early.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from arraystore._chunks.pack_writer import PackSettings, pack_key
from arraystore._chunks.reader import ChunkReader
from arraystore._format.ids import NodeId, PackId
from arraystore._format.node import Node
from arraystore._log.loading import Tip, refresh
from arraystore._log.status import check_open
from arraystore._maintenance.collection.summary import StageProgress, no_progress
from arraystore._maintenance.full_fold import fold_fully
from arraystore._maintenance.remote_readers import RemoteReaders
from arraystore._maintenance.remote_repacking import RemoteRepacker
from arraystore._maintenance.repacking import Repacker
from arraystore._maintenance.rewrite import Exchange, Exchanged, delete_leftovers, exchange
from arraystore._maintenance.scope import MaintenanceScope
from arraystore._maintenance.selection import Selection, select
from arraystore.errors import FormatError, ObjectNotFoundError

_ROUNDS = 6
"""Rounds of a run, each of which handles commits and collections that outdated the one before."""

_REMEDY = (
    "Compaction ends here, since it cannot tell which chunks of packs are in use; what it has done stays, and no data "
    "is touched. Run arraystore verify, which names the arrays and snapshots, and restore the object from a backup or "
    "an older version in the bucket, or write the arrays again and let the snapshots expire."
)

_ARRAYS_AT_ONCE = 64
_BYTES_AT_ONCE = 8 << 20
"""Bytes of manifests that are written before the records that name them."""


@dataclass(frozen=True)
class DamagedPack:
    """Pack that a compaction has not rewritten, since copies of its damaged chunks would get valid checksums.

    Parameters
    ----------
    object
        Key of the pack.
    reason
        Damage, as ``verify`` reports it.
    """

    object: str
    reason: str


@dataclass(frozen=True)
class CompactionSummary:
    """Summary of what a compaction did, or, as a dry run, would do.

    Parameters
    ----------
    branch
        Compacted branch.
    dry_run
        True if nothing was written.
    complete
        True if nothing is left to do; False where the budget ended the run, or concurrent commits outdated it.
    arrays
        Number of arrays with chunks.
    arrays_folded
        Number of arrays whose layers were folded.
    arrays_left
        Paths of arrays left as they are because a record cannot name all their manifests.
    layers_before, layers_after
        Layers of all arrays.
    packs_before
        Packs, and chunks that are objects of their own, that the newest snapshot referenced before.
    packs_rewritten
        Packs that it does not reference any more.
    packs_written
        Packs written to replace them.
    chunks_copied, bytes_read, bytes_written
        Chunks that moved, bytes of packs that were read for it, and bytes of packs and manifests that were written.
    dead_bytes
        Bytes in the rewritten packs that the newest snapshot did not reference: released by a garbage collection after
        all older snapshots that reference these packs have expired.
    records
        Rewrites appended to the branch's log.
    damaged
        Packs that were not rewritten since they are damaged: restore them, or write their chunks again. A dry run reads
        no chunks and finds none.
    """

    branch: str
    dry_run: bool = False
    complete: bool = False
    arrays: int = 0
    arrays_folded: int = 0
    arrays_left: tuple[str, ...] = ()
    layers_before: int = 0
    layers_after: int = 0
    packs_before: int = 0
    packs_rewritten: int = 0
    packs_written: int = 0
    chunks_copied: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    dead_bytes: int = 0
    records: int = 0
    damaged: tuple[DamagedPack, ...] = ()


@dataclass(frozen=True)
class Budget:
    """Limits of a compaction."""

    max_bytes: int | None = None
    """Bytes of packs and manifests to read and write, approximately; None for no limit."""
    deadline: int | None = None
    """Time after which nothing new begins, in microseconds of the environment's clock; None for no limit."""


@dataclass(eq=False)
class _Run:
    """One compaction."""

    scope: MaintenanceScope
    tip: Tip
    reader: ChunkReader
    settings: PackSettings
    budget: Budget
    min_live: float
    dry_run: bool
    progress: StageProgress
    remote: RemoteReaders | None = None
    changed: bool = False
    exhausted: bool = False
    folded: set[NodeId] = field(default_factory=set[NodeId])
    left: set[str] = field(default_factory=set[str])
    packs_before: int | None = None
    refused: dict[PackId, str] = field(default_factory=dict[PackId, str])

    def __post_init__(self) -> None:
        state = self.tip.state
        closed = check_open(state)
        if closed is not None and not (self.dry_run and state.life.read_only):
            raise closed
        self.log = self.scope.log(state.branch)
        nodes = _with_layers(self.tip)
        layers = sum(len(node.layers) for node in nodes)
        after = layers if self.dry_run else 0
        self.summary = CompactionSummary(
            state.branch, self.dry_run, arrays=len(nodes), layers_before=layers, layers_after=after
        )

    async def rounds(self, step: Callable[[], Awaitable[None]], most: int = _ROUNDS) -> None:
        """Repeat a step until it changes nothing, or the budget ends."""
        for _ in range(most):
            self.changed = False
            await step()
            if self.exhausted or not self.changed:
                break
            await self.refresh()

    async def refresh(self) -> None:
        """Load the newest record; ids made from then on are above the watermark of its fence."""
        self.tip = await refresh(self.log, self.tip)
        self.log.environment.after(self.tip.state.life.fence)

    async def round(self) -> None:
        """Fold and repack once."""
        begin = self.tip.sequence - self.summary.records
        try:
            await self.fold()
            await self.repack()
        except ObjectNotFoundError as error:  # replaced by others and deleted by a collection since
            await self.refresh()
            if self.tip.sequence - self.summary.records == begin:
                error.add_note(_REMEDY)
                raise
            self.changed = True
        except FormatError as error:
            error.add_note(_REMEDY)
            raise

    # -- budget ---------------------------------------------------------------------------------------------------

    def has_budget(self) -> bool:
        """Tell whether time and bytes are left; once they are not, they never are."""
        if self.budget.deadline is not None and self.log.environment.now_us() >= self.budget.deadline:
            self.exhausted = True
        if self.bytes_left() == 0:
            self.exhausted = True
        return not self.exhausted

    def bytes_left(self) -> int | None:
        """Return the bytes that may still be read and written; None for no limit."""
        if self.budget.max_bytes is None:
            return None
        return max(0, self.budget.max_bytes - self.summary.bytes_read - self.summary.bytes_written)

    def add(self, **more: int) -> None:
        """Add to the counts of the summary."""
        self.summary = replace(self.summary, **{name: getattr(self.summary, name) + n for name, n in more.items()})

    # -- folding --------------------------------------------------------------------------------------------------

    async def fold(self) -> None:
        """Fold all arrays."""
        waiting: list[Exchange] = []
        size = 0
        nodes = _with_layers(self.tip)
        for done, node in enumerate(nodes):
            if not self.has_budget():
                break
            self.progress("folding arrays", done, len(nodes))
            plan = await fold_fully(self.reader, self.log.environment, node, write=not self.dry_run)
            if plan.scattered:
                self.left.add(node.path)
            self.add(bytes_written=plan.bytes_written)
            waiting += plan.exchanges
            size += plan.bytes_written
            if len(waiting) >= _ARRAYS_AT_ONCE or size > _BYTES_AT_ONCE:
                await self.commit(waiting)
                waiting, size = [], 0
        await self.commit(waiting)

    async def commit(self, items: list[Exchange]) -> Exchanged:
        """Commit exchanges."""
        if self.dry_run:
            self.add(layers_after=sum(len(item.added) - len(item.replaced) for item in items))
            self.folded.update(item.node for item in items)
            return Exchanged(self.tip)
        result = await exchange(self.log, self.tip, items)
        self.tip = result.tip
        self.changed = self.changed or bool(items)
        self.folded.update(item.node for item in result.done if not item.packs)
        self.add(records=result.records)
        return result

    # -- packs ----------------------------------------------------------------------------------------------------

    async def repack(self) -> None:
        """Rewrite the packs that are worth it."""
        if not self.has_budget():
            return
        candidates = await select(self.scope, self.tip.state, self.reader, self.settings, self.min_live, self.refused)
        if self.packs_before is None:
            self.packs_before = candidates.packs
        most = self.bytes_left()
        chosen = candidates if most is None else candidates.within(most // 2)  # each byte is read and written
        if len(chosen):
            await self._take(chosen)
        self.exhausted = self.exhausted or len(chosen) < len(candidates)

    async def _take(self, chosen: Selection) -> None:
        if self.dry_run:
            used = int(chosen.used.sum())
            packs = -(-used // self.settings.target)
            self.add(packs_rewritten=len(chosen), packs_written=packs, bytes_read=used, bytes_written=used)
            self.add(dead_bytes=int(chosen.sizes.sum()) - used)
        else:
            await self._repack(chosen)

    def _repacker(self) -> Repacker:
        parts = self.reader, self.log.environment, self.settings, self.has_budget
        return Repacker(*parts) if self.remote is None else RemoteRepacker(*parts, remote=self.remote)

    async def _repack(self, chosen: Selection) -> None:
        repacker = self._repacker()
        named: set[PackId] = set()
        unsettled: set[PackId] = set()
        incomplete = False
        missing: ObjectNotFoundError | None = None
        try:
            async for items in repacker.run(self.tip.state, chosen.ids):
                unsettled = {pack for item in items for pack in item.packs}
                result = await self.commit(items)
                named.update(pack for item in result.done for pack in item.packs)
                unsettled = set()
                incomplete = incomplete or bool(result.discarded)
                self.progress("copying bytes", repacker.bytes_read, int(chosen.used.sum()))
        except ObjectNotFoundError as error:
            missing = error
        kept = named | unsettled  # a record may name the packs of exchanges that failed half-way
        await delete_leftovers(self.log.storage, [pack_key(pack) for pack in repacker.deletable(kept)])
        self.refused |= repacker.refused
        if missing is not None:
            raise missing
        self.add(
            bytes_read=repacker.bytes_read,
            bytes_written=repacker.bytes_written,
            chunks_copied=repacker.chunks_copied,
            packs_written=len(named),
        )
        if not (repacker.interrupted or incomplete):
            chosen = chosen.without(repacker.refused)
            self.add(packs_rewritten=len(chosen), dead_bytes=int((chosen.sizes - chosen.used).sum()))


async def compact(
    scope: MaintenanceScope,
    tip: Tip,
    reader: ChunkReader,
    settings: PackSettings,
    *,
    budget: Budget,
    min_live: float,
    dry_run: bool,
    progress: StageProgress | None,
    remote: RemoteReaders | None = None,
) -> tuple[CompactionSummary, Tip]:
    """Compact a branch; see `Repository.compact`."""
    run = _Run(scope, tip, reader, settings, budget, min_live, dry_run, progress or no_progress, remote)
    await run.rounds(run.round, 1 if dry_run else _ROUNDS)
    summary = run.summary
    foreseen = dry_run and bool(run.folded or summary.packs_rewritten)
    layers = summary.layers_after if dry_run else sum(len(node.layers) for node in _with_layers(run.tip))
    summary = replace(
        summary,
        complete=not (run.exhausted or run.changed or foreseen),
        arrays_folded=len(run.folded),
        arrays_left=tuple(sorted(run.left)),
        layers_after=layers,
        packs_before=run.packs_before or 0,
        damaged=tuple([DamagedPack(pack_key(pack), reason) for pack, reason in sorted(run.refused.items())]),
    )
    return summary, run.tip


async def fold_all(scope: MaintenanceScope, tip: Tip, reader: ChunkReader) -> Tip:
    """Fold the layers of all arrays of a branch."""
    run = _Run(scope, tip, reader, PackSettings(), Budget(), 0.0, False, no_progress)
    await run.rounds(run.fold)
    return run.tip


def _with_layers(tip: Tip) -> list[Node]:
    return [node for node in tip.state.nodes.values() if node.layers]
