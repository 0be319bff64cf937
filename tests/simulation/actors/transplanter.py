"""Those who undo snapshots, and repeat them on other branches."""

from __future__ import annotations

from arraystore._repository.creation import MAIN
from arraystore._repository.repository import Repository
from arraystore.errors import ConflictError, InvalidInputError, NotFoundError, RebaseFailedError, StorageError
from tests.simulation.actors.losses import LOST, REFUSALS
from tests.simulation.actors.scene import Scene
from tests.simulation.actors.script import Turn
from tests.simulation.observations import Committed, Outcome, Refused, Solver, Transplant, Unknown

__all__ = ["transplant_turn"]


async def transplant_turn(scene: Scene, process: str, repo: Repository, actor: str, turn: Turn) -> None:
    """Undo a snapshot, or repeat it: mostly one of the newest.

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
    known = scene.snapshots[-6:] if rng.random() < 0.8 else scene.snapshots
    if not known:
        return
    wanted = Transplant(rng.choice(("revert", "cherry_pick")), rng.choice(known))
    branch = rng.choice([MAIN, *(scene.branches if wanted.way == "revert" else scene.branches * 9)])
    label, now = f"{actor}.{turn.number}", scene.clock()
    noted = scene.notes.transaction(
        label,
        process=process,
        branch=branch,
        base="",
        began=now,
        opened=now,
        metadata=wanted.metadata,
        transplants=wanted,
    )
    attempt = noted.attempt(Solver("detector"), now)
    outcome = await _outcome(repo, wanted, branch, label)
    attempt.end(scene.clock(), outcome)
    if isinstance(outcome, Committed):
        scene.snapshots.append(outcome.snapshot)


async def _outcome(repo: Repository, wanted: Transplant, branch: str, label: str) -> Outcome:
    make = repo.revert_async if wanted.way == "revert" else repo.cherry_pick_async
    try:
        return Committed(await make(wanted.snapshot, branch=branch, message=label))
    except RebaseFailedError as error:
        return Refused("RebaseFailedError", tuple((each.conflict_type.name, each.path) for each in error.conflicts))
    except (ConflictError, InvalidInputError, NotFoundError, *LOST, *REFUSALS) as error:
        return Refused(type(error).__name__)
    except StorageError as error:
        return Unknown(type(error).__name__)
