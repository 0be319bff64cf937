"""Those who delete branches and tags, reset branches, and close the repository for a while."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from contextlib import suppress

from arraystore._log.status import RepoAvailability, RepoStatus
from arraystore._repository.creation import MAIN
from arraystore._repository.repository import Repository
from arraystore.errors import ConflictError, NotFoundError, RefNotFoundError, StorageError
from tests.simulation.actors.losses import LOST, REFUSALS
from tests.simulation.actors.referrer import NAMES, create_ref
from tests.simulation.actors.scene import Scene
from tests.simulation.actors.script import Turn
from tests.simulation.observations import Committed, Outcome, RefChange, Refused, Unknown, Upkeep

__all__ = ["operate_turn", "reopen"]

_TRIES = 50


async def operate_turn(scene: Scene, process: str, repo: Repository, actor: str, turn: Turn) -> None:
    """Delete or reset a branch, delete a tag, create one, or let nobody commit for a moment.

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
    what = rng.random()
    if what < 0.35:
        await create_ref(scene, process, repo, rng)
    elif what < 0.6:
        await _delete(scene, process, repo, rng)
    elif what < 0.8:
        await _reset(scene, process, repo, rng)
    elif what < 0.92:
        name = rng.choice(scene.tags or list(NAMES))
        await _change(scene, RefChange(process, "tag", name, None, scene.clock()), repo.delete_tag_async(name))
    else:
        await _close(scene, process, repo, rng)


async def _delete(scene: Scene, process: str, repo: Repository, rng: random.Random) -> None:
    """Delete a branch, now and then only if it stands where it stood a while ago."""
    name, expected = rng.choice(scene.branches or list(NAMES)), None
    if rng.random() < 0.4:
        with suppress(StorageError, *LOST, RefNotFoundError):
            expected = await repo.lookup_branch_async(name)
        if expected is None:
            return
        await asyncio.sleep(rng.expovariate(1.0) * scene.workload.think * 5)
    noted = RefChange(process, "branch", name, None, scene.clock(), expected=expected)
    await _change(scene, noted, repo.delete_branch_async(name, from_snapshot_id=expected))


async def _reset(scene: Scene, process: str, repo: Repository, rng: random.Random) -> None:
    name = rng.choice([MAIN, *(scene.branches * 3 or NAMES)])
    known = scene.snapshots[-12:]
    if not known:
        return
    snapshot, expected = rng.choice(known), rng.choice(known) if rng.random() < 0.1 else None
    noted = RefChange(process, "branch", name, snapshot, scene.clock())
    await _change(scene, noted, repo.reset_branch_async(name, snapshot, from_snapshot_id=expected))


async def _change(scene: Scene, noted: RefChange, work: Awaitable[None]) -> None:
    scene.notes.see(noted)
    outcome: Outcome = Committed(noted.snapshot or "")
    try:
        await work
    except StorageError as error:
        outcome = Unknown(type(error).__name__)
    except (ConflictError, NotFoundError, *REFUSALS) as error:
        outcome = Refused(type(error).__name__)
    noted.end(scene.clock(), outcome)


async def _close(scene: Scene, process: str, repo: Repository, rng: random.Random) -> None:
    """Make the repository read-only, and open it again after a while."""
    closing = Upkeep(process, "read only", scene.clock())
    scene.notes.see(closing)
    outcome = await _status(repo, RepoAvailability.read_only)
    closing.end(scene.clock(), outcome)
    await asyncio.sleep(rng.expovariate(2.0))
    await reopen(scene, process, repo)


async def reopen(scene: Scene, process: str, repo: Repository) -> None:
    """Let everybody commit again; again and again while the storage fails."""
    for _ in range(_TRIES):
        opening = Upkeep(process, "online", scene.clock())
        scene.notes.see(opening)
        outcome = await _status(repo, RepoAvailability.online)
        opening.end(scene.clock(), outcome)
        if isinstance(outcome, Committed):
            return
        await asyncio.sleep(0.2)


async def _status(repo: Repository, availability: RepoAvailability) -> Outcome:
    try:
        await repo.set_status_async(RepoStatus(availability))
    except StorageError as error:
        return Unknown(type(error).__name__)
    return Committed("")
