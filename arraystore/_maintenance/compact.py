"""Compaction: few layers, full packs, neighbours next to each other; through rewrites that change no data.

It folds the layers of each array, copies what is in use out of packs that are mostly dead, and merges small packs in
the order of the grid.  There is no state to keep: what is done is no candidate any more, so a run that ends early is
continued by the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from arraystore._chunks.pack_writer import PackSettings, pack_key
from arraystore._chunks.reader import ChunkReader
from arraystore._format.node import Node
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip, refresh
from arraystore._log.status import check_open
from arraystore._maintenance.collection.summary import Progress
from arraystore._maintenance.full_fold import fold_fully
from arraystore._maintenance.repacking import Repacker
from arraystore._maintenance.rewrite import Exchange, Exchanged, delete_leftovers, exchange
from arraystore._maintenance.scope import MaintenanceScope
from arraystore._maintenance.selection import Selection, select
from arraystore.errors import ObjectNotFoundError

__all__ = ["Budget", "CompactionSummary", "DamagedPack", "compact", "fold_all"]

_ROUNDS = 6
"""Most times that a run looks whether something is left: what came in between, or what a collection has overtaken."""

_ARRAYS_AT_ONCE = 64
_BYTES_AT_ONCE = 8 << 20
"""Manifests that are written before the records that name them."""


@dataclass(frozen=True)
class DamagedPack:
    """A pack that a compaction has left as it is, since copies of damaged chunks would look sound.

    Parameters
    ----------
    object
        Its key.
    reason
        What is wrong with it, as ``verify`` says.
    """

    object: str
    reason: str


@dataclass(frozen=True)
class CompactionSummary:
    """What a compaction has done, or, as a dry run, would do.

    Parameters
    ----------
    branch
        The branch.
    dry_run
        Whether nothing was written.
    complete
        Whether nothing is left to do; False where the budget has ended the run, or other writers were faster.
    arrays
        How many arrays have chunks.
    arrays_folded
        How many of them have fewer or other layers now.
    arrays_left
        Paths of those that are scattered over so many manifests that no record can name them.
    layers_before, layers_after
        Layers of all arrays together.
    packs_before
        Packs, and chunks that are objects of their own, that the newest snapshot used before.
    packs_rewritten
        Packs that it does not use any more.
    packs_written
        Packs that took their place.
    chunks_copied, bytes_read, bytes_written
        Chunks that moved, bytes of packs that were read for it, and bytes of packs and manifests that were written.
    dead_bytes
        Bytes in the packs given up that the newest snapshot did not use: released with those packs, once all older
        snapshots have expired that use them.
    records
        Rewrites appended to the branch's log.
    damaged
        Packs that were to be rewritten, and were passed over since they are damaged: restore them, or write their
        chunks again. What a dry run would do is told without reading chunks.
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
    """How much a compaction may do.

    Parameters
    ----------
    max_bytes
        About how many bytes of packs and manifests to read and write at most; None for any number.
    deadline
        When to begin nothing new, in microseconds of the environment's clock; None for never.
    """

    max_bytes: int | None = None
    deadline: int | None = None


@dataclass(eq=False)
class _Run:
    """One compaction."""

    scope: MaintenanceScope
    log: BranchLog
    tip: Tip
    reader: ChunkReader
    settings: PackSettings
    budget: Budget
    min_live: float
    summary: CompactionSummary
    progress: Progress
    changed: bool = False
    exhausted: bool = False
    folded: set[bytes] = field(default_factory=set[bytes])
    left: set[str] = field(default_factory=set[str])
    packs_before: int | None = None
    refused: dict[bytes, str] = field(default_factory=dict[bytes, str])

    async def look(self) -> None:
        """Catch up with the branch; what is written from now on is above the watermark of any collection seen."""
        self.tip = await refresh(self.log, self.tip)
        self.log.environment.after(self.tip.state.life.fence)

    async def round(self) -> None:
        """Do once what is to be done."""
        begin = self.tip.sequence - self.summary.records
        try:
            await self.fold()
            await self.repack()
        except ObjectNotFoundError:  # others may have replaced it, and a collection has deleted it since
            await self.look()
            if self.tip.sequence - self.summary.records == begin:
                raise
            self.changed = True

    # -- budget -------------------------------------------------------------------------------------------------

    def goes_on(self) -> bool:
        """Tell whether there are time and bytes left; once they are not, they never are."""
        if self.budget.deadline is not None and self.log.environment.now_us() >= self.budget.deadline:
            self.exhausted = True
        if self.bytes_left() == 0:
            self.exhausted = True
        return not self.exhausted

    def bytes_left(self) -> int | None:
        """Return how many bytes may still be read and written; None for any number."""
        if self.budget.max_bytes is None:
            return None
        return max(0, self.budget.max_bytes - self.summary.bytes_read - self.summary.bytes_written)

    def add(self, **more: int) -> None:
        """Add to the numbers of the summary."""
        self.summary = replace(self.summary, **{name: getattr(self.summary, name) + n for name, n in more.items()})

    # -- folding ------------------------------------------------------------------------------------------------

    async def fold(self) -> None:
        """Fold all arrays."""
        waiting: list[Exchange] = []
        size = 0
        nodes = _with_layers(self.tip)
        for done, node in enumerate(nodes):
            if not self.goes_on():
                break
            self.progress("folding arrays", done, len(nodes))
            plan = await fold_fully(self.reader, self.log.environment, node, write=not self.summary.dry_run)
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
        """Put exchanges into effect."""
        if self.summary.dry_run:
            self.add(layers_after=sum(len(item.added) - len(item.replaced) for item in items))
            self.folded.update(item.node for item in items)
            return Exchanged(self.tip)
        result = await exchange(self.log, self.tip, items)
        self.tip = result.tip
        self.changed = self.changed or bool(items)
        self.folded.update(item.node for item in result.done if not item.packs)
        self.add(records=result.records)
        return result

    # -- packs --------------------------------------------------------------------------------------------------

    async def repack(self) -> None:
        """Write anew the packs that are worth it."""
        if not self.goes_on():
            return
        found = await select(self.scope, self.tip.state, self.reader, self.settings, self.min_live, self.refused)
        if self.packs_before is None:
            self.packs_before = found.packs
        most = self.bytes_left()
        chosen = found if most is None else found.within(most // 2)  # each byte is read, and written
        if len(chosen):
            await self._take(chosen)
        self.exhausted = self.exhausted or len(chosen) < len(found)

    async def _take(self, chosen: Selection) -> None:
        if self.summary.dry_run:
            used = int(chosen.used.sum())
            packs = -(-used // self.settings.target)
            self.add(packs_rewritten=len(chosen), packs_written=packs, bytes_read=used, bytes_written=used)
            self.add(dead_bytes=int(chosen.sizes.sum()) - used)
        else:
            await self._repack(chosen)

    async def _repack(self, chosen: Selection) -> None:
        repacker = Repacker(self.reader, self.log.environment, self.settings, self.goes_on)
        named: set[bytes] = set()
        unsettled: set[bytes] = set()
        given_up = False
        missing: ObjectNotFoundError | None = None
        try:
            async for items in repacker.run(self.tip.state, chosen.ids):
                unsettled = {pack for item in items for pack in item.packs}
                result = await self.commit(items)
                named.update(pack for item in result.done for pack in item.packs)
                unsettled = set()
                given_up = given_up or bool(result.lost or result.fenced)
                self.progress("copying bytes", repacker.bytes_read, int(chosen.used.sum()))
        except ObjectNotFoundError as error:
            missing = error
        kept = named | unsettled  # of what failed half-way nobody has looked whether a record names it
        await delete_leftovers(self.log.storage, [pack_key(pack) for pack in repacker.packs if pack not in kept])
        self.refused |= repacker.refused
        if missing is not None:
            raise missing
        self.add(
            bytes_read=repacker.bytes_read,
            bytes_written=repacker.bytes_written,
            chunks_copied=repacker.chunks_copied,
            packs_written=len(named),
        )
        if not (repacker.interrupted or given_up):
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
    progress: Progress | None,
) -> tuple[CompactionSummary, Tip]:
    """Compact a branch; see `Repository.compact`."""
    run = _begin(scope, tip, reader, settings, budget, min_live, dry_run, progress)
    for _ in range(1 if dry_run else _ROUNDS):
        run.changed = False
        await run.round()
        if run.exhausted or not run.changed:
            break
        await run.look()
    return _end(run), run.tip


async def fold_all(scope: MaintenanceScope, tip: Tip, reader: ChunkReader) -> Tip:
    """Fold the layers of all arrays of a branch, and nothing else."""
    run = _begin(scope, tip, reader, PackSettings(), Budget(), 0.0, False, None)
    for _ in range(_ROUNDS):
        run.changed = False
        await run.fold()
        if not run.changed:
            break
        await run.look()
    return run.tip


def _begin(
    scope: MaintenanceScope,
    tip: Tip,
    reader: ChunkReader,
    settings: PackSettings,
    budget: Budget,
    min_live: float,
    dry_run: bool,
    progress: Progress | None,
) -> _Run:
    closed = check_open(tip.state)
    if closed is not None and not (dry_run and tip.state.life.read_only):
        raise closed
    log = scope.log(tip.state.branch)
    nodes = _with_layers(tip)
    layers = sum(len(node.layers) for node in nodes)
    summary = CompactionSummary(
        log.branch, dry_run, arrays=len(nodes), layers_before=layers, layers_after=layers if dry_run else 0
    )
    return _Run(scope, log, tip, reader, settings, budget, min_live, summary, progress or _silent)


def _end(run: _Run) -> CompactionSummary:
    summary = run.summary
    foreseen = summary.dry_run and bool(run.folded or summary.packs_rewritten)
    layers = summary.layers_after if summary.dry_run else sum(len(node.layers) for node in _with_layers(run.tip))
    return replace(
        summary,
        complete=not (run.exhausted or run.changed or foreseen),
        arrays_folded=len(run.folded),
        arrays_left=tuple(sorted(run.left)),
        layers_after=layers,
        packs_before=run.packs_before or 0,
        damaged=tuple([DamagedPack(pack_key(pack), reason) for pack, reason in sorted(run.refused.items())]),
    )


def _with_layers(tip: Tip) -> list[Node]:
    return [node for node in tip.state.nodes.values() if node.layers]


def _silent(_what: str, _done: int, _total: int | None) -> None:
    """Tell nobody."""
