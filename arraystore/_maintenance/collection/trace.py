"""Tracing of the objects that retained snapshots reference, in logs and in states at which stretches begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from arraystore._chunks.layer_lookup import visible_packs
from arraystore._chunks.manifest_cache import ManifestCache
from arraystore._format.collection import Collection
from arraystore._format.history import page_span
from arraystore._format.ids import CheckpointId, LayerId
from arraystore._format.layer import Layer
from arraystore._format.lifecycle import BranchLife, Origin, Reset
from arraystore._format.node import Node
from arraystore._format.record import Birth, Commit, Rewrite
from arraystore._format.refs import Hint
from arraystore._format.snapshot import PageRef
from arraystore._format.transaction import TransactionLog
from arraystore._log.ancestry import read_page
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import load_checkpoint, load_tip
from arraystore._log.retained_snapshots import RetainedHistory, RetainedRecords
from arraystore._log.state import SnapshotState
from arraystore._maintenance.scope import MaintenanceScope
from arraystore._runtime.concurrency import bounded
from arraystore.errors import FormatError, ObjectNotFoundError

Report = Callable[[str, bytes], None]
"""Called with a kind of objects (the first part of their keys) and concatenated referenced ids."""

_AT_ONCE = 16
_BLOCK = 512
_FEW_BYTES = 1 << 23
_LARGE = 1 << 17
"""References of a manifest that is loaded alone; arraystore writes smaller ones, of which many fit into memory."""


@dataclass(eq=False)
class Trace:
    """Reports the objects that retained snapshots and roots reference, less those of the previous collection."""

    _scope: MaintenanceScope
    _retained: dict[str, RetainedHistory]
    _roots: Sequence[Origin]
    _previous: Collection | None
    _report: Report

    def __post_init__(self) -> None:
        self._manifests = _cache_of(self._scope)
        self._loads = asyncio.Semaphore(_AT_ONCE)
        self._large_loads = asyncio.Semaphore(1)
        self._traced: set[CheckpointId] = set()
        self._stacks: set[tuple[LayerId, ...]] = set()
        self.attached: dict[LayerId, Layer] = {}
        """Referenced layers whose manifests are attached to expired records."""

    async def run(self) -> None:
        """Trace all logs and roots."""
        for name, retained in self._retained.items():
            await self._of_log(self._scope.log(name), retained)
        self._report("snapshots", b"".join(root.checkpoint for root in self._roots))
        if self._previous is not None:
            self._report_everywhere(self._previous.early)
        seen = set(() if self._previous is None else self._previous.tags)
        await self._states(root.checkpoint for root in self._roots if root.checkpoint not in seen)
        self._forget_manifests()

    async def announced(self, origin: Origin, retained: dict[str, RetainedHistory]) -> None:
        """Trace an announced snapshot, which a writer may be about to make reachable, as far as its objects exist.

        Where one is missing, an earlier collection without knowledge of the announcement has deleted it; the
        announcement then came after its fences, which refuse the writer.
        """
        self._report("snapshots", origin.checkpoint)
        with suppress(ObjectNotFoundError):
            await self._states([origin.checkpoint])
        for name, part in retained.items():
            with suppress(ObjectNotFoundError):
                await self._of_log(self._scope.log(name), part)
        self._forget_manifests()

    def _forget_manifests(self) -> None:
        """Drop manifests from memory, which the deletion does not need."""
        self._manifests = _cache_of(self._scope)

    def _report_everywhere(self, ids: bytes) -> None:
        for kind in ("snapshots", "manifests", "transactions", "chunks"):
            self._report(kind, ids)

    # -- logs -----------------------------------------------------------------------------------------------------

    async def _of_log(self, log: BranchLog, retained: RetainedHistory) -> None:
        life = retained.newest.life
        checkpoints = [life.base, None if life.origin is None else life.origin.checkpoint]
        newest = retained.newest.checkpoint
        if newest is not None and newest.sequence > life.expired:  # else readers start from the base
            checkpoints.append(newest.id)
        hint = log.hinted or await log.hint()
        if hint is not None:
            checkpoints.append(hint.checkpoint)
        checkpoints += [None if end.life.origin is None else end.life.origin.checkpoint for end in retained.ends]
        checkpoints += [CheckpointId(end.snapshot) for end in retained.ends]  # which is that of one on no branch
        self._report("snapshots", b"".join(each for each in checkpoints if each is not None))
        seen = -1 if self._previous is None else _sequence_seen(self._previous, log.branch)
        await self._pages(log, await self._newest_pages(log, retained.newest, hint), max(life.expired, seen))
        for first, last in _merged((each.first, each.last) for each in retained.stretches):
            await self._records(log, max(first, seen + 1), last)
        self._report("snapshots", b"".join(each.bottom for each in retained.stretches if each.bottom is not None))
        self._report("snapshots", b"".join(checkpoint for _, checkpoint in retained.survivors.values()))
        await self._detached(retained)
        begun = [each for each in retained.stretches if self._previous is None or each.first > seen]
        for each in begun:
            await self._bottom(log, each, life)
        left = [
            checkpoint
            for row, checkpoint in retained.survivors.values()
            if self._previous is None or row.sequence > seen
        ]
        await self._states(left)

    async def _detached(self, retained: RetainedHistory) -> None:
        """Trace snapshots that no record of a branch makes but that histories lead through."""
        for end in retained.ends:
            checkpoint = CheckpointId(end.snapshot)
            if end is retained.newest or checkpoint in self._traced:
                continue
            self._traced.add(checkpoint)
            with suppress(ObjectNotFoundError, FormatError):
                state = await load_checkpoint(self._scope.storage, checkpoint)
                if state.snapshot == end.snapshot:
                    await self._state(state)

    async def _bottom(self, log: BranchLog, stretch: RetainedRecords, life: BranchLife) -> None:
        """Trace what the oldest retained snapshots of a log take from before.

        After an expiry no snapshot equals the base: chunks that the first retained commit deletes or hides are
        unreferenced, and only manifests of the base are retained, for readers that start from it.
        """
        if stretch.bottom is None:
            return
        first = None
        if stretch.bottom == life.base and stretch.bottom not in self._traced:
            first = await _first_commit(log, stretch)
        if first is None:
            await self._states([stretch.bottom])
            return
        self._traced.add(stretch.bottom)
        hint = Hint(life.expired, stretch.bottom)
        self._manifests_of(await load_checkpoint(self._scope.storage, stretch.bottom))
        await self._state((await load_tip(log, hint, at=first)).state)

    async def _newest_pages(self, log: BranchLog, state: SnapshotState, hint: Hint | None) -> Sequence[PageRef]:
        """Load the directory of history pages, which in a tip loaded long ago is as old as its checkpoint."""
        checkpoint = state.checkpoint
        if hint is None or (checkpoint is not None and hint.sequence <= checkpoint.sequence):
            return state.pages
        try:
            state_of_hint = await load_checkpoint(log.storage, hint.checkpoint)
        except (ObjectNotFoundError, FormatError):
            return state.pages  # the hint is stale, or is being overwritten
        return state_of_hint.pages if state_of_hint.branch == log.branch else state.pages

    async def _pages(self, log: BranchLog, pages: Sequence[PageRef], seen: int) -> None:
        """Trace the checkpoints that history pages name as short cuts to old snapshots."""
        wanted = [ref for ref in pages if page_span(ref.level, ref.index)[1] > seen]
        for page in await bounded(partial(read_page, log), wanted):
            self._report("snapshots", b"".join(identifier for _, identifier in page.checkpoints))

    async def _records(self, log: BranchLog, first: int, last: int) -> None:
        """Trace the objects that entries of neighbouring records add."""
        while first <= last:
            end = min(last, (first // _BLOCK + 1) * _BLOCK)
            span = await log.span(first, end)
            unresolved: list[tuple[int, Commit]] = []
            unread: list[Layer] = []
            layers: list[LayerId] = []
            packs: list[bytes] = []
            for number, body in span.bodies.items():
                entry = log.decode(number, body)
                if isinstance(entry, Rewrite):
                    added = [layer for item in entry.replacements for layer in item.added]
                    layers += [layer.id for layer in added]
                    if entry.packs is None:
                        unread += added
                    else:
                        packs.append(entry.packs)
                elif isinstance(entry, Commit):
                    for item in entry.transactions:
                        if isinstance(item.log, TransactionLog) and item.packs is not None:
                            layers += [change.layer.id for change in item.log.chunks]
                            packs.append(item.packs)
                        else:
                            unresolved.append((number, entry))
                elif isinstance(entry, Birth | Reset) and entry.origin is not None:
                    self._report("snapshots", entry.origin.checkpoint)
            self._report("manifests", b"".join(layers))
            self._report("chunks", b"".join(packs))
            await bounded(self._packs_of, unread)
            await bounded(partial(self._of_commit, log), dict(unresolved).items())
            first = end + 1

    async def _of_commit(self, log: BranchLog, numbered: tuple[int, Commit]) -> None:
        """Trace the objects of a commit that its body does not name."""
        number, entry = numbered
        for item, changes, _ in await log.resolve(number, entry):
            if isinstance(item.log, bytes):
                self._report("transactions", item.log)
            self._report("manifests", b"".join(change.layer.id for change in changes.chunks))
            if item.packs is not None:
                self._report("chunks", item.packs)
            else:
                await bounded(self._packs_of, [change.layer for change in changes.chunks])

    # -- states ---------------------------------------------------------------------------------------------------

    async def _states(self, checkpoints: Iterable[CheckpointId]) -> None:
        for identifier in checkpoints:
            if identifier not in self._traced:
                self._traced.add(identifier)
                await self._state(await load_checkpoint(self._scope.storage, identifier))

    async def _state(self, state: SnapshotState) -> None:
        self._manifests_of(state)
        await bounded(self._shown_by, [node for node in state.nodes.values() if node.layers])

    def _manifests_of(self, state: SnapshotState) -> None:
        layers = [layer for node in state.nodes.values() for layer in node.layers]
        self._report("manifests", b"".join(layer.id for layer in layers))
        for layer in layers:
            at = layer.attachment
            retained = None if at is None else self._retained.get(at.branch)
            if at is not None and retained is not None and at.sequence <= retained.newest.life.expired:
                self.attached[layer.id] = layer

    async def _shown_by(self, node: Node) -> None:
        stack = tuple([layer.id for layer in node.layers])
        if stack in self._stacks:
            return  # traced in another state
        self._stacks.add(stack)
        async with self._gate(node.layers):
            async for packs in visible_packs(self._manifests, node.layers):
                self._report("chunks", packs)

    async def _packs_of(self, layer: Layer) -> None:
        async with self._gate([layer]):
            self._report("chunks", (await self._manifests.load(layer)).packs)

    def _gate(self, layers: Sequence[Layer]) -> asyncio.Semaphore:
        """Return the semaphore that bounds the manifests in memory, across commits."""
        return self._large_loads if any(layer.count > _LARGE for layer in layers) else self._loads


def _sequence_seen(previous: Collection, branch: str) -> int:
    """Return the newest record whose objects the last collection has traced: its fence, which none can be without.

    What it read behind the fence is traced again, since the newest records of a log may have been lost meanwhile.
    """
    seen = previous.logs.get(branch)
    return -1 if seen is None else seen.life.fenced


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge overlapping spans."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged


async def _first_commit(log: BranchLog, stretch: RetainedRecords) -> int | None:
    """Find the number of the first commit of a stretch; None if it is far, or has several transactions.

    The earlier snapshots of a commit with several transactions are retained, too.
    """
    last = min(stretch.last, (stretch.first // _BLOCK + 1) * _BLOCK)
    span = await log.span(stretch.first, last)
    for number, body in span.bodies.items():
        entry = log.decode(number, body)
        if isinstance(entry, Commit):
            return number if len(entry.transactions) == 1 else None
    return None


def _cache_of(scope: MaintenanceScope) -> ManifestCache:
    return ManifestCache(scope.storage, scope.repository_log.repository, _FEW_BYTES)
