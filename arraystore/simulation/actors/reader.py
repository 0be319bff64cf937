"""Readers: the tip, old snapshots, history; they note everything that they see."""

from __future__ import annotations

import asyncio
import random

from arraystore.repository import MAIN, Repository
from arraystore.session import Session
from arraystore.simulation.actors.hand import session_get, session_list
from arraystore.simulation.actors.scene import Scene
from arraystore.simulation.actors.script import Turn
from arraystore.simulation.observations import Ancestry, ListingRead, RefLook, TipLook, ValueRead

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
        await read_history(scene, process, repo, await _tip(scene, process, repo, _branch(scene, rng)))
        return
    if look < 0.4 and scene.snapshots:
        session = await repo.readonly_session_async(snapshot_id=rng.choice(scene.snapshots))
    elif look < 0.5 and scene.tags:
        session = await _tagged(scene, process, repo, rng.choice(scene.tags))
    else:
        session = await _opened(scene, process, repo, _branch(scene, rng))
    for step in turn.steps:
        own = scene.random(actor, turn.number, step)
        await asyncio.sleep(own.expovariate(1.0) * scene.workload.think)
        await _look(scene, process, session, own)


def _branch(scene: Scene, rng: random.Random) -> str:
    return rng.choice([MAIN, MAIN, *scene.branches])


async def _opened(scene: Scene, process: str, repo: Repository, branch: str) -> Session:
    began = scene.clock()
    session = await repo.readonly_session_async(branch)
    scene.notes.see(TipLook(process, branch, session.snapshot_id, began, scene.clock()))
    return session


async def _tip(scene: Scene, process: str, repo: Repository, branch: str) -> str:
    began = scene.clock()
    snapshot = await repo.lookup_branch_async(branch)
    scene.notes.see(TipLook(process, branch, snapshot, began, scene.clock()))
    return snapshot


async def _tagged(scene: Scene, process: str, repo: Repository, tag: str) -> Session:
    began = scene.clock()
    session = await repo.readonly_session_async(tag=tag)
    scene.notes.see(RefLook(process, tag, session.snapshot_id, began, scene.clock()))
    return session


async def read_history(scene: Scene, process: str, repo: Repository, snapshot: str) -> list[str]:
    """List a snapshot and those before it."""
    began = scene.clock()
    entries = [(found.id, found.parent_id, found.message) async for found in repo.async_ancestry(snapshot_id=snapshot)]
    scene.notes.see(Ancestry(process, snapshot, tuple(entries), began, scene.clock()))
    return [found for found, _, _ in entries]


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
    data = await session_get(session, key)
    scene.notes.see(ValueRead(process, session.snapshot_id, key, data, began, scene.clock()))


async def read_all(scene: Scene, process: str, repo: Repository) -> None:
    """Read the whole newest snapshot of every branch, its history, and some old ones, as somebody who comes later."""
    for branch in sorted(await repo.list_branches_async()):
        session = await _opened(scene, process, repo, branch)
        for key in await _list(scene, process, session, "", deep=True):
            await _get(scene, process, session, key)
        history = await read_history(scene, process, repo, session.snapshot_id)
        for snapshot in history[1 :: max(1, len(history) // 3)]:
            old = await repo.readonly_session_async(snapshot_id=snapshot)
            for key in (await _list(scene, process, old, "", deep=True))[::3]:
                await _get(scene, process, old, key)
    for tag in sorted(await repo.list_tags_async()):
        session = await _tagged(scene, process, repo, tag)
        await _list(scene, process, session, "", deep=True)
