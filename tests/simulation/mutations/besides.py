"""Wrong ways to flush, to undo and repeat snapshots, and to append values that must not repeat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from arraystore._commit.prepared import Prepared
from arraystore._context.context import Context
from arraystore._format.ids import CheckpointId, NodeId
from arraystore._format.transaction import TransactionLog
from arraystore._format.types import Bools, Int64s
from arraystore._history import detached_snapshots, pinning, three_way_merge
from arraystore._history.detached_snapshots import write_detached
from arraystore._log.loading import Tip
from arraystore._log.state import SnapshotState
from arraystore._maintenance.collection.collect import _Run  # pyright: ignore[reportPrivateUsage]
from arraystore._maintenance.collection.trace import Trace
from arraystore._session import rebase
from tests.simulation.actors.workload import Workload
from tests.simulation.mutations.patching import Mutation

__all__ = ["MUTATIONS"]


def _flushing(workload: Workload) -> Workload:
    """Have snapshots flushed, and branches and tags made of them."""
    return replace(workload, flushing=0.4, referrers=1)


def _forgetting(workload: Workload) -> Workload:
    """Have branches go on from what was flushed, and all of it expire."""
    return replace(
        workload,
        flushing=0.4,
        writers=2,
        readers=0,
        turns=(6, 9),
        operations={"write": 10.0},
        arrays=1,
        operators=0,
        expirers=1,
        collectors=1,
        compactors=0,
        transplanters=0,
        unique=0.0,
        lingering=0.0,
        other_branches=0.8,
    )


def _transplanting(workload: Workload) -> Workload:
    """Have much undone and repeated."""
    return replace(workload, transplanters=3, writers=3, referrers=1, arrays=1, groups=0)


def _unique(workload: Workload) -> Workload:
    """Have all append values that must not repeat, at the same time."""
    return replace(workload, unique=1.0, writers=6, think=0.0, solvers={"detector": 1.0})


def _naming(workload: Workload) -> Workload:
    """Have tags of what was flushed come and go, while garbage is collected."""
    few = replace(workload, flushing=0.9, writers=3, readers=0, turns=(6, 9), arrays=1, operations={"write": 10.0})
    return replace(few, referrers=1, operators=5, transplanters=0, expirers=0, collectors=3, compactors=0, think=0.5)


async def _slow(context: Context, state: SnapshotState) -> CheckpointId:
    identifier = await _announce(context, state)
    await context.environment.sleep(4.0 * context.environment.random())
    return identifier


_announce = pinning.announce


async def _without_changes(context: Context, base: Tip, prepared: Prepared) -> Tip:
    return await write_detached(context, base, replace(prepared, log=TransactionLog((), ())))


async def _nothing(*_: Any) -> None:
    return None


async def _always(*_: Any) -> bool:
    return True


async def _no_conflicts(*_: Any) -> list[Any]:
    return []


def _none_of_them(self: three_way_merge._Merge, identifier: NodeId) -> Int64s:
    return self._cells[identifier][:0]


def _all_free(self: Any, identifier: bytes, coords: Int64s) -> Bools:
    return np.zeros(len(coords), dtype=bool)


MUTATIONS = (
    Mutation(
        "a flush forgets its changes",
        "what is written as a snapshot on no branch is its base",
        lambda: [(detached_snapshots, "write_detached", _without_changes)],
        ("calm",),
        tuned=_flushing,
        runs=(("calm", 0), ("calm", 1)),
        breaks="content",
    ),
    Mutation(
        "what was flushed is no root",
        "a collection does not look at snapshots on no branch that histories lead through",
        lambda: [(Trace, "_detached", _nothing)],
        ("lifecycle",),
        tuned=_forgetting,
        runs=(("lifecycle", 4),),
        breaks="retention",
    ),
    Mutation(
        "a record makes all snapshots",
        "a collection does not keep what is announced of a snapshot on no branch whose base is shown",
        lambda: [(_Run, "_is_made_by_record", _always)],
        ("lifecycle",),
        settings=lambda: [(pinning, "announce", _slow)],
        tuned=_naming,
        runs=(("lifecycle", 2),),
        breaks="retention",
    ),
    Mutation(
        "an undoing overwrites",
        "chunks that others have written since are undone with those that are to be",
        lambda: [(three_way_merge._Merge, "_collisions", _none_of_them), (three_way_merge._Merge, "_taken", _all_free)],
        ("calm",),
        tuned=_transplanting,
        runs=(("calm", 0), ("calm", 2)),
        breaks="content",
    ),
    Mutation(
        "repeated values pass",
        "who appends values that must not repeat does not look at what others appended meanwhile",
        lambda: [(rebase, "_find_repeated", _no_conflicts)],
        ("calm",),
        tuned=_unique,
        runs=(("calm", 0), ("calm", 1)),
        breaks="repeats",
    ),
)
"""Wrong ways to do what is done besides commits."""
