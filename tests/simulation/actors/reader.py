"""Readers: the tip, old snapshots, history; they note everything that they see."""

from __future__ import annotations

import asyncio
import random

from arraystore._repository.creation import MAIN
from arraystore._repository.repository import Repository
from arraystore._session.session import Session
from arraystore.errors import RefNotFoundError, SourceChangedError
from tests.simulation.actors.hand import note_lost, session_get, session_list
from tests.simulation.actors.losses import lost_branch, lost_snapshot
from tests.simulation.actors.scene import Scene
from tests.simulation.actors.script import Turn
from tests.simulation.observations import Ancestry, ListingRead, RefLook, TipLook, ValueRead

__all__ = ["read_all", "read_turn"]


async def read_turn(scene: Scene, process: str, repo: Repository, actor: str, turn: Turn) -> None:
    """Look at one snapshot for a while, as far as the turn goes, or at the history.

    Parameters
    ----------
    scene
        The run.
    process
        Name of the process.
    repo
        The repository, as the process has opened it.
    actor
        Whose turn it is.
    turn
        What to do.
    """
    rng = scene.random(actor, turn.number)
    look = rng.random()
    if look < 0.15:
        tip = await _tip(scene, process, repo, _branch(scene, rng))
        if tip is not None:
            await read_history(scene, process, repo, tip)
        return
    if look < 0.4 and scene.snapshots:
        session = await _old(scene, process, repo, rng.choice(scene.snapshots))
    elif look < 0.5 and scene.tags:
        session = await _tagged(scene, process, repo, rng.choice(scene.tags))
    else:
        session = await _opened(scene, process, repo, _branch(scene, rng))
    if session is None:
        return
    with lost_snapshot(scene, process, session.snapshot_id):
        if turn.steps and scene.lingers(rng):
            await _look(scene, process, session, rng)
            await asyncio.sleep(rng.expovariate(1.0) * scene.workload.linger)
        for step in turn.steps:
            own = scene.random(actor, turn.number, step)
            await asyncio.sleep(own.expovariate(1.0) * scene.workload.think)
            await _look(scene, process, session, own)


def _branch(scene: Scene, rng: random.Random) -> str:
    return rng.choice([MAIN, MAIN, *scene.branches])


async def _opened(scene: Scene, process: str, repo: Repository, branch: str) -> Session | None:
    began = scene.clock()
    with lost_branch(scene, process, branch):
        session = await repo.readonly_session_async(branch)
        scene.notes.see(TipLook(process, branch, session.snapshot_id, began, scene.clock()))
        return session
    return None


async def _old(scene: Scene, process: str, repo: Repository, snapshot: str) -> Session | None:
    with lost_snapshot(scene, process, snapshot):
        return await repo.readonly_session_async(snapshot_id=snapshot)
    return None


async def _tip(scene: Scene, process: str, repo: Repository, branch: str) -> str | None:
    began = scene.clock()
    with lost_branch(scene, process, branch):
        snapshot = await repo.lookup_branch_async(branch)
        scene.notes.see(TipLook(process, branch, snapshot, began, scene.clock()))
        return snapshot
    return None


async def _tagged(scene: Scene, process: str, repo: Repository, tag: str) -> Session | None:
    began = scene.clock()
    session: Session | None
    try:
        session = await repo.readonly_session_async(tag=tag)
    except RefNotFoundError:
        session = None
    seen = None if session is None else session.snapshot_id
    scene.notes.see(RefLook(process, tag, seen, began, scene.clock()))
    return session


async def read_history(scene: Scene, process: str, repo: Repository, snapshot: str) -> list[str]:
    """List a snapshot and those before it; nothing if it is gone."""
    began = scene.clock()
    with lost_snapshot(scene, process, snapshot):
        found = [each async for each in repo.async_ancestry(snapshot_id=snapshot)]
        entries = [(each.id, each.parent_id, each.message) for each in found]
        scene.notes.see(Ancestry(process, snapshot, tuple(entries), began, scene.clock()))
        return [each.id for each in found]
    return []


async def _look(scene: Scene, process: str, session: Session, rng: random.Random) -> None:
    keys = await _list(scene, process, session, "", deep=True)
    if rng.random() < 0.3 and keys:
        await _list(scene, process, session, rng.choice(keys).rpartition("/")[0], deep=False)
    for key in rng.sample(keys, min(len(keys), 3)):
        await _get(scene, process, session, key)
    if keys and rng.random() < 0.3:
        await _get(scene, process, session, f"{rng.choice(keys)}-that-is-not-there")


async def _list(scene: Scene, process: str, session: Session, prefix: str, *, deep: bool) -> list[str]:
    began = scene.clock()
    names = await session_list(session, prefix, deep)
    scene.notes.see(ListingRead(process, session.snapshot_id, prefix, deep, names, began, scene.clock()))
    return list(names)


async def _get(scene: Scene, process: str, session: Session, key: str) -> None:
    began = scene.clock()
    try:
        data = await session_get(session, key)
    except SourceChangedError as error:
        note_lost(scene, process, session, key, error, began)
        return
    scene.notes.see(ValueRead(process, session.snapshot_id, key, data, began, scene.clock()))


async def read_all(scene: Scene, process: str, repo: Repository) -> None:
    """Read the whole newest snapshot of every branch, its history, and some old ones, as somebody who comes later."""
    for branch in sorted(await repo.list_branches_async()):
        session = await _opened(scene, process, repo, branch)
        if session is None:
            continue
        await _read_whole(scene, process, session, 1)
        history = await read_history(scene, process, repo, session.snapshot_id)
        for snapshot in history[1 :: max(1, len(history) // 3)]:
            old = await _old(scene, process, repo, snapshot)
            if old is not None:
                await _read_whole(scene, process, old, 3)
    for tag in sorted(await repo.list_tags_async()):
        session = await _tagged(scene, process, repo, tag)
        if session is not None:
            await _read_whole(scene, process, session, 2)


async def _read_whole(scene: Scene, process: str, session: Session, every: int) -> None:
    """Read each of so many values of a snapshot."""
    with lost_snapshot(scene, process, session.snapshot_id):
        for key in (await _list(scene, process, session, "", deep=True))[::every]:
            await _get(scene, process, session, key)
