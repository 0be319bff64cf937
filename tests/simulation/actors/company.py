"""Processes in which actors live: they open the repository, and take their actors' turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from arraystore._repository.creation import MAIN
from arraystore._repository.repository import Repository
from arraystore.errors import ConflictError, StorageError
from arraystore.simulation.world import Main, Process
from tests.simulation.actors import KINDS
from tests.simulation.actors.documents import array_document, coordinate_document, group_document
from tests.simulation.actors.hand import Hand
from tests.simulation.actors.operator import reopen
from tests.simulation.actors.reader import read_all
from tests.simulation.actors.scene import Scene
from tests.simulation.actors.script import Part
from tests.simulation.actors.steps import any_shape
from tests.simulation.actors.upkeep import collect_all
from tests.simulation.observations import Committed, Refused, Solver, Unknown

__all__ = ["company", "founder", "latecomer", "straggler"]


def founder(scene: Scene) -> Main:
    """Return what the first process does: creates the repository, and what there is in the beginning."""

    async def setup(process: Process) -> None:
        repo = await process.repository(scene.workload.config)
        for number in range(1 << 20):
            label = f"{process.name} {number}"
            try:
                if await _found(scene, process.name, repo, label):
                    return
            except StorageError:
                await asyncio.sleep(process.rng.random())

    return setup


async def _found(scene: Scene, process: str, repo: Repository, label: str) -> bool:
    began = scene.clock()
    session = await repo.writable_session_async(MAIN)
    if session.hierarchy.node("") is not None:
        return True  # an earlier attempt has arrived
    noted = scene.notes.transaction(
        label, process=process, branch=MAIN, base=session.snapshot_id, began=began, opened=scene.clock()
    )
    hand = Hand(scene, process, session, noted, noted.operations)
    await _furnish(hand, scene)
    attempt = noted.attempt(Solver(), scene.clock())
    try:
        snapshot = await session.commit_async(label)
    except StorageError as error:
        attempt.end(scene.clock(), Unknown(type(error).__name__))
        return False
    except ConflictError as error:
        attempt.end(scene.clock(), Refused(type(error).__name__))
        return False
    attempt.end(scene.clock(), Committed(snapshot))
    scene.snapshots.append(snapshot)
    return True


async def _furnish(hand: Hand, scene: Scene) -> None:
    """Write the first snapshot: some groups, some arrays, some of their chunks."""
    rng, workload = scene.random("first"), scene.workload
    await hand.create("", group_document({}))
    groups = [""]
    for number in range(workload.groups):
        path = f"{rng.choice(groups)}/g{number}".lstrip("/")
        await hand.create(path, group_document({"number": number}))
        groups.append(path)
    for number in range(workload.arrays):
        path = f"{rng.choice(groups)}/{'abcd'[number % 4]}{number // 4 or ''}".lstrip("/")
        shape = any_shape(rng, workload.chunks)
        await hand.create(path, array_document(shape, {"number": number}))
        for first in range(shape.grid[0]):
            if rng.random() < 0.6:
                coords = (first, *([0] * (len(shape.grid) - 1)))
                await hand.write(path, coords, hand.fresh(rng.choice((20, 100)), f"first {path}{list(coords)}"))
    if workload.unique:
        await hand.create("when", coordinate_document())


def company(scene: Scene, parts: Sequence[Part]) -> Main:
    """Return what a process does in which some actors live.

    What they have done before a crash stays done: each turn is begun once.
    """
    begun = {part.name: 0 for part in parts}

    async def main(process: Process) -> None:
        repo = await process.repository(scene.workload.config)
        await asyncio.gather(*(_turns(scene, process, repo, part, begun) for part in parts))

    return main


async def _turns(scene: Scene, process: Process, repo: Repository, part: Part, begun: dict[str, int]) -> None:
    take = KINDS[part.kind]
    while begun[part.name] < len(part.turns):
        turn = part.turns[begun[part.name]]
        begun[part.name] += 1
        rng = scene.random(part.name, turn.number, "pause")
        await asyncio.sleep(rng.expovariate(1.0) * scene.workload.think * 3)
        work = take(scene, process.name, repo, part.name, turn)
        await _guarded(scene, process.name, f"turn {turn.number} of {part.name}", work)


async def _guarded(scene: Scene, process: str, what: str, work: Awaitable[None]) -> None:
    """Do something; a storage that fails on purpose ends it, and any other error is reported."""
    try:
        await work
    except StorageError as error:
        if not scene.faulty() and "on purpose" not in str(error):  # a pause keeps answers back
            scene.errors.append((process, what, error))
    except Exception as error:  # noqa: BLE001 - it is reported, and the others go on
        scene.errors.append((process, what, error))


def straggler(scene: Scene) -> Main:
    """Return what a process does whose clock is behind: collects garbage, once nothing fails any more."""

    async def main(process: Process) -> None:
        await asyncio.sleep(max(0.0, scene.peace - scene.clock()))
        await _guarded(scene, process.name, "collecting garbage", _collect(scene, process))

    return main


async def _collect(scene: Scene, process: Process) -> None:
    repo = await process.repository(scene.workload.config)
    await reopen(scene, process.name, repo)
    await collect_all(scene, process.name, repo)


def latecomer(scene: Scene) -> Main:
    """Return what the last process does: reads everything, once nothing fails any more."""

    async def main(process: Process) -> None:
        await asyncio.sleep(max(0.0, scene.peace - scene.clock()))
        await _guarded(scene, process.name, "reading everything", _read(scene, process))

    return main


async def _read(scene: Scene, process: Process) -> None:
    """Read everything; clean up where anybody has deleted anything, and read everything again."""
    repo = await process.repository(scene.workload.config)
    if scene.workload.forgets:
        await reopen(scene, process.name, repo)
        await read_all(scene, process.name, repo)
        for _ in range(2):  # each as a job of its own, that remembers nothing
            repo = await process.repository(scene.workload.config)
            await collect_all(scene, process.name, repo)
        repo = await process.repository(scene.workload.config)
    await read_all(scene, process.name, repo)
