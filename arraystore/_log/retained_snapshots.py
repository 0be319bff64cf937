"""Retained snapshots: those in the history of a branch or a tag.

A garbage collection keeps the objects that these reference, and an operation that makes an old snapshot reachable again
checks that it is among them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from arraystore._format.history import SnapshotRow
from arraystore._format.ids import CheckpointId, SnapshotId
from arraystore._format.lifecycle import Origin
from arraystore._log.ancestry import read_survivors
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import load_checkpoint
from arraystore._log.state import SnapshotState
from arraystore.errors import ObjectNotFoundError
from arraystore.storage.protocol import Storage


@dataclass(frozen=True, order=True)
class RetainedRecords:
    """Consecutive records of a log whose snapshots are retained."""

    first: int
    last: int
    bottom: CheckpointId | None
    """Checkpoint of the state before `first`, or at it for a birth or a reset; None for the empty state."""


@dataclass(eq=False)
class RetainedHistory:
    """Retained snapshots of one log."""

    newest: SnapshotState
    """Newest state of the log."""
    stretches: list[RetainedRecords] = field(default_factory=list[RetainedRecords])
    """Retained records; they may overlap."""
    survivors: dict[SnapshotId, tuple[SnapshotRow, CheckpointId]] = field(
        default_factory=dict[SnapshotId, tuple[SnapshotRow, CheckpointId]]
    )
    """Survivors, with a checkpoint of each."""
    ends: list[SnapshotState] = field(default_factory=list[SnapshotState])
    """Snapshots at which histories enter the log."""
    links: dict[SnapshotId, SnapshotId | None] = field(default_factory=dict[SnapshotId, SnapshotId | None])
    """Links of the list of survivors."""
    named: set[SnapshotId] = field(default_factory=set[SnapshotId])
    """Snapshots of tags, and of branches created there, even if their log has expired."""

    def holds(self, sequence: int, snapshot: SnapshotId) -> bool:
        """Tell whether a snapshot of the log is retained."""
        shown = any(each.first <= sequence <= each.last for each in self.stretches)
        return shown or snapshot in self.survivors or snapshot in self.named


async def load_retained(
    storage: Storage,
    logs: Mapping[str, tuple[BranchLog, SnapshotState]],
    roots: Iterable[Origin],
    announced: Iterable[Origin] = (),
) -> dict[str, RetainedHistory]:
    """Determine the retained snapshots of every log, deleted branches included, from branches, roots and announcements.

    Roots, such as tags, are retained besides the tips of branches. Announced snapshots may be about to become
    reachable; of one whose history has been deleted only itself is retained, as of the checkpoint that an expiry leaves
    of a deleted branch.
    """
    retention = _RetainedLoader(storage, logs)
    for _, state in logs.values():
        if not state.life.deleted:
            await retention.add(state)
            if state.life.origin is not None and state.life.expired < state.life.start:
                retention.named.add(state.snapshot)
    states = await asyncio.gather(*(retention.load(root) for root in roots if retention.wants(root)))
    for state in states:
        await retention.add(state)
        retention.named.add(state.snapshot)
    for root in announced:
        await retention.add_if_whole(root)
    return retention.retained


async def load_retained_by(
    storage: Storage, logs: Mapping[str, tuple[BranchLog, SnapshotState]], announced: Origin
) -> dict[str, RetainedHistory]:
    """Determine what is retained of each log for one snapshot that may be about to become reachable."""
    retention = _RetainedLoader(storage, logs)
    await retention.add_if_whole(announced)
    return {name: retained for name, retained in retention.retained.items() if retained.ends}


class _RetainedLoader:
    def __init__(self, storage: Storage, logs: Mapping[str, tuple[BranchLog, SnapshotState]]) -> None:
        self.named: set[SnapshotId] = set()
        self.retained = {name: RetainedHistory(state, named=self.named) for name, (_, state) in logs.items()}
        self._storage = storage
        self._logs = logs
        self._seen: set[CheckpointId] = set()

    def wants(self, root: Origin) -> bool:
        """Tell whether a checkpoint has not been read yet."""
        return root.checkpoint not in self._seen

    async def load(self, root: Origin) -> SnapshotState:
        """Read the checkpoint of a retained snapshot."""
        self._seen.add(root.checkpoint)
        return await load_checkpoint(self._storage, root.checkpoint)

    async def add(self, state: SnapshotState) -> None:
        """Retain a state and its history."""
        while True:
            await self._of_log(state)
            origin = state.life.origin
            if origin is None or not self.wants(origin):
                return
            state = await self.load(origin)

    async def add_if_whole(self, root: Origin) -> None:
        """Retain the history of a snapshot, unless a part of it was deleted."""
        states: list[SnapshotState] = []
        loaded: set[CheckpointId] = set()
        at: Origin | None = root
        try:
            while at is not None and self.wants(at):
                loaded.add(at.checkpoint)
                states.append(await self.load(at))
                at = states[-1].life.origin
        except ObjectNotFoundError:
            self._seen -= loaded
            return
        for state in states:
            await self._of_log(state)

    async def _of_log(self, state: SnapshotState) -> None:
        if state.branch not in self._logs:
            return  # a branch created since the logs were read, whose own commits bring in nothing older
        log, newest = self._logs[state.branch]
        retained = self.retained[state.branch]
        retained.ends.append(state)
        start, gone = state.life.start, newest.life.expired
        first = max(start, gone + 1)
        if first <= state.sequence:
            origin = state.life.origin
            below = None if origin is None else origin.checkpoint
            bottom = newest.life.base if gone >= start else below
            retained.stretches.append(RetainedRecords(first, state.sequence, bottom))
        if gone >= start:
            survivors = await read_survivors(log, newest.life)
            if survivors is not None:
                retained.links = dict(survivors.links)
                for row, checkpoint in zip(survivors.rows, survivors.checkpoints, strict=True):
                    if start <= row.sequence <= state.sequence:
                        retained.survivors[row.id] = row, checkpoint
