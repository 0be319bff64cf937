"""Which snapshots are kept: those that the history of a branch or a tag shows.

A collection keeps what these need, and whoever makes an old snapshot reachable anew checks that it is among them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from arraystore._format.history import SnapshotRow
from arraystore._format.lifecycle import Origin
from arraystore._log.ancestry import read_survivors
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import load_checkpoint
from arraystore._log.state import State
from arraystore.errors import ObjectNotFoundError
from arraystore.storage.protocol import Storage

__all__ = ["Kept", "Stretch", "kept_by", "kept_snapshots"]


@dataclass(frozen=True, order=True)
class Stretch:
    """Neighbouring records of a log whose snapshots are kept.

    Parameters
    ----------
    first, last
        Numbers of the records.
    bottom
        Id of a checkpoint of the state before `first`, or at it where that is a birth or a reset; None for the empty
        state.
    """

    first: int
    last: int
    bottom: bytes | None


@dataclass(eq=False)
class Kept:
    """What is kept of one log.

    Parameters
    ----------
    newest
        Its newest state.
    stretches
        Kept records; they may overlap.
    survivors
        Kept snapshots of what has expired, with a checkpoint of each.
    ends
        The snapshots at which histories enter the log.
    links
        As the list of survivors has them.
    named
        Snapshots that tags name, and at which branches stand that have begun there; whatever has expired of their log.
    """

    newest: State
    stretches: list[Stretch] = field(default_factory=list[Stretch])
    survivors: dict[bytes, tuple[SnapshotRow, bytes]] = field(default_factory=dict[bytes, tuple[SnapshotRow, bytes]])
    ends: list[State] = field(default_factory=list[State])
    links: dict[bytes, bytes | None] = field(default_factory=dict[bytes, bytes | None])
    named: set[bytes] = field(default_factory=set[bytes])

    def holds(self, sequence: int, snapshot: bytes) -> bool:
        """Tell whether a snapshot of the log is kept."""
        shown = any(each.first <= sequence <= each.last for each in self.stretches)
        return shown or snapshot in self.survivors or snapshot in self.named


async def kept_snapshots(
    storage: Storage,
    logs: Mapping[str, tuple[BranchLog, State]],
    roots: Iterable[Origin],
    announced: Iterable[Origin] = (),
) -> dict[str, Kept]:
    """Work out what is kept.

    Parameters
    ----------
    storage
        Where checkpoints are.
    logs
        Every log, deleted branches included, and its newest state.
    roots
        Snapshots that are kept besides those of branches that exist: those of tags, for instance.
    announced
        Snapshots that somebody may be about to make reachable; of one whose history is gone already nothing but itself
        is kept, as of the checkpoint that an expiry leaves of a deleted branch.
    """
    found = _Finding(storage, logs)
    for _, state in logs.values():
        if not state.life.deleted:
            await found.add(state)
            if state.life.origin is not None and state.life.expired < state.life.start:
                found.named.add(state.snapshot)
    states = await asyncio.gather(*(found.load(root) for root in roots if found.wants(root)))
    for state in states:
        await found.add(state)
        found.named.add(state.snapshot)
    for root in announced:
        await found.add_if_whole(root)
    return found.kept


async def kept_by(storage: Storage, logs: Mapping[str, tuple[BranchLog, State]], announced: Origin) -> dict[str, Kept]:
    """Return what is kept of each log for one snapshot that somebody may be about to make reachable."""
    found = _Finding(storage, logs)
    await found.add_if_whole(announced)
    return {name: kept for name, kept in found.kept.items() if kept.ends}


class _Finding:
    def __init__(self, storage: Storage, logs: Mapping[str, tuple[BranchLog, State]]) -> None:
        self.named: set[bytes] = set()
        self.kept = {name: Kept(state, named=self.named) for name, (_, state) in logs.items()}
        self._storage = storage
        self._logs = logs
        self._seen: set[bytes] = set()

    def wants(self, root: Origin) -> bool:
        """Tell whether a checkpoint has not been looked at yet."""
        return root.checkpoint not in self._seen

    async def load(self, root: Origin) -> State:
        """Read the checkpoint of a snapshot that is kept."""
        self._seen.add(root.checkpoint)
        return await load_checkpoint(self._storage, root.checkpoint)

    async def add(self, state: State) -> None:
        """Keep a state, and what its history shows."""
        while True:
            await self._of_log(state)
            origin = state.life.origin
            if origin is None or not self.wants(origin):
                return
            state = await self.load(origin)

    async def add_if_whole(self, root: Origin) -> None:
        """Keep what a snapshot's history shows, unless a part of it is gone."""
        states: list[State] = []
        loaded: set[bytes] = set()
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

    async def _of_log(self, state: State) -> None:
        log, newest = self._logs[state.branch]
        kept = self.kept[state.branch]
        kept.ends.append(state)
        start, gone = state.life.start, newest.life.expired
        first = max(start, gone + 1)
        if first <= state.sequence:
            origin = state.life.origin
            below = None if origin is None else origin.checkpoint
            bottom = newest.life.base if gone >= start else below
            kept.stretches.append(Stretch(first, state.sequence, bottom))
        if gone >= start:
            survivors = await read_survivors(log, newest.life)
            if survivors is not None:
                kept.links = dict(survivors.links)
                for row, checkpoint in zip(survivors.rows, survivors.checkpoints, strict=True):
                    if start <= row.sequence <= state.sequence:
                        kept.survivors[row.id] = row, checkpoint
