"""Forks that are pickled, written to by other simulated processes, and merged by the one that took them."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from arraystore._forks.merge import OnOverlap
from arraystore._session.session import Session
from arraystore.errors import MergeConflictError, StorageError
from arraystore.simulation.world import Process
from tests.simulation.actors.hand import Hand
from tests.simulation.actors.losses import LOST
from tests.simulation.actors.scene import Scene, draw
from tests.simulation.actors.steps import steps
from tests.simulation.observations import Create, Delete, ListingRead, Missing, Operation, Transaction, ValueRead

__all__ = ["fork_out"]

_STEPS = steps()
_OPERATIONS = {"write": 8.0, "erase": 2.0, "look": 2.0, "attributes": 1.0, "create": 0.5, "delete": 0.2, "grow": 0.3}
_PATIENCE = 30.0
"""Seconds after which whoever took the forks goes on without those that were not merged."""


@dataclass
class Brought:
    """What a fork sends home, and what it noted of what it did and saw."""

    payload: bytes = b""
    operations: list[Operation] = field(default_factory=list)
    reads: list[ValueRead | ListingRead] = field(default_factory=list)


async def fork_out(hand: Hand, rng: random.Random) -> None:
    """Take forks, let other processes write, write something meanwhile, and merge what is returned."""
    on_overlap: OnOverlap = "last" if rng.random() < 0.3 else "error"
    readable = not hand.operations
    home: list[asyncio.Future[Brought | None]] = []
    for _ in range(rng.randint(1, 3)):
        fork = await hand.session.fork_async()
        home.append(_send_out(hand, pickle.dumps(await fork.parts_async()), readable, rng.getrandbits(64)))
    if rng.random() < 0.3:
        await _STEPS["write"](hand, rng)
    await asyncio.wait(home, timeout=_PATIENCE)
    brought = [one for each in home if each.done() and (one := each.result()) is not None]
    for each in home:
        each.cancel()  # who comes later comes too late
    if not brought:
        return
    merged = True
    try:
        await hand.session.merge_async([one.payload for one in brought], on_overlap=on_overlap)
    except MergeConflictError:
        merged = False
    gone: list[str] = []
    for found in brought:
        for read in found.reads:  # those of forks that are not merged decide nothing
            hand.see(read if merged else replace(read, counts=False))
        if merged:
            hand.operations.extend(_left_of(found.operations, gone))
            gone += [each.path for each in found.operations if isinstance(each, Delete)]


def _left_of(operations: Sequence[Operation], gone: Sequence[str]) -> list[Operation]:
    """Return what a fork did, without what it did to nodes that another one has deleted.

    Forks may delete the same node; what one of them did to it before leaves no trace.
    """
    kept: list[Operation] = []
    made: set[str] = set()
    for each in operations:
        path: str = getattr(each, "source", "") or getattr(each, "path", "")
        if isinstance(each, Create):
            made.add(each.path)
        elif path not in made and any(path == above or path.startswith(above + "/") for above in gone):
            continue
        kept.append(each)
    return kept


def _send_out(hand: Hand, pickled: bytes, readable: bool, seed: int) -> asyncio.Future[Brought | None]:
    """Have another process write through a fork."""
    home: asyncio.Future[Brought | None] = asyncio.get_running_loop().create_future()
    scene, noted = hand.scene, hand.noted
    hand.forked += 1

    async def worker(process: Process) -> None:
        found = await _work(scene, process, noted, pickled, readable, random.Random(seed))
        if not home.done():
            home.set_result(found)

    scene.hire(f"{noted.label}-h{hand.forked}").start(worker)
    return home


async def _work(
    scene: Scene, process: Process, noted: Transaction, pickled: bytes, readable: bool, rng: random.Random
) -> Brought | None:
    """Write through a fork; None if the storage failed."""
    brought = Brought()
    try:
        fork = await pickle.loads(pickled).open_async()
        hand = Hand(scene, process.name, cast(Session, fork), noted, brought.operations)  # no more than forks can
        hand.readable, hand.see = readable, brought.reads.append
        for _ in range(rng.randint(1, 3)):
            await asyncio.sleep(rng.expovariate(1.0) * scene.workload.think)
            await _STEPS[draw(rng, _OPERATIONS)](hand, rng)
        brought.payload = await fork.changes_async()
        return brought
    except StorageError:
        return None
    except LOST as error:
        gone = Missing(process.name, "snapshot", noted.base, type(error).__name__, noted.began, scene.clock())
        scene.notes.see(gone)
        return None
    except Exception as error:  # noqa: BLE001 - it is reported, and the others go on
        scene.errors.append((process.name, f"a fork of {noted.label}", error))
        return None
