"""Those who make branches and tags, and look at them."""

from __future__ import annotations

import random

from arraystore._repository.creation import MAIN
from arraystore._repository.repository import Repository
from arraystore.errors import AlreadyExistsError, NotFoundError, RefNotFoundError, StorageError
from tests.simulation.actors.losses import REFUSALS
from tests.simulation.actors.scene import Scene
from tests.simulation.actors.script import Turn
from tests.simulation.observations import Committed, Outcome, RefCreation, RefListing, RefLook, Refused, Unknown

__all__ = ["NAMES", "create_ref", "refer_turn"]

NAMES = ("one", "two", "three")
"""Of branches and tags."""


async def refer_turn(scene: Scene, process: str, repo: Repository, actor: str, turn: Turn) -> None:
    """Create a branch or a tag, or look at those that there are.

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
    if what < 0.6:
        await create_ref(scene, process, repo, rng)
    elif what < 0.8:
        await _list(scene, process, repo, rng.choice(("branch", "tag")))
    else:
        await _look(scene, process, repo, rng.choice(NAMES))


async def create_ref(
    scene: Scene, process: str, repo: Repository, rng: random.Random, snapshot: str | None = None
) -> None:
    """Create a branch or a tag: at a snapshot, or else at the newest one or an old one."""
    kind, name = rng.choice(("branch", "tag")), rng.choice(NAMES)
    if snapshot is None:
        old = bool(scene.snapshots) and rng.random() < 0.5
        snapshot = rng.choice(scene.snapshots) if old else await repo.lookup_branch_async(MAIN)
    noted = RefCreation(process, kind, name, snapshot, scene.clock())
    scene.notes.see(noted)
    create = repo.create_branch_async if kind == "branch" else repo.create_tag_async
    outcome: Outcome = Committed(snapshot)
    try:
        await create(name, snapshot)
    except (AlreadyExistsError, NotFoundError, *REFUSALS) as error:
        outcome = Refused(type(error).__name__)
    except StorageError as error:
        outcome = Unknown(type(error).__name__)
    noted.end(scene.clock(), outcome)
    known = scene.branches if kind == "branch" else scene.tags
    if isinstance(outcome, Committed) and name not in known:
        known.append(name)


async def _list(scene: Scene, process: str, repo: Repository, kind: str) -> None:
    began = scene.clock()
    names = await (repo.list_branches_async() if kind == "branch" else repo.list_tags_async())
    scene.notes.see(RefListing(process, kind, tuple(sorted(names)), began, scene.clock()))


async def _look(scene: Scene, process: str, repo: Repository, name: str) -> None:
    began = scene.clock()
    snapshot: str | None
    try:
        snapshot = await repo.lookup_tag_async(name)
    except RefNotFoundError:
        snapshot = None
    scene.notes.see(RefLook(process, name, snapshot, began, scene.clock()))
