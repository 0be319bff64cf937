"""Writers: one transaction after the other, committed as an application would."""

from __future__ import annotations

import asyncio
import random
from typing import Literal

from arraystore._repository.creation import MAIN
from arraystore._repository.repository import Repository
from arraystore.errors import ConflictError, InvalidInputError, RebaseFailedError, SessionStateError, StorageError
from tests.simulation.actors.forking import fork_out
from tests.simulation.actors.hand import Hand
from tests.simulation.actors.losses import LOST, REFUSALS, lost_branch, lost_snapshot
from tests.simulation.actors.referrer import create_ref
from tests.simulation.actors.scene import Scene, draw
from tests.simulation.actors.script import Turn
from tests.simulation.actors.solving import drawn_solver, solver_of
from tests.simulation.actors.steps import append_unique, steps
from tests.simulation.observations import Attempt, Committed, Outcome, Rebase, Refused, Solver, Unknown

__all__ = ["write_turn"]

_STEPS = steps()
_KEPT = 0.4
"""Share of snapshots on no branch of which their writers make a branch or a tag."""
_MOST_ASKED = 40
"""Commits in a row that may leave their outcome unknown, where nothing fails any more."""


class StarvedError(Exception):
    """Somebody never learns what became of a commit."""


async def write_turn(scene: Scene, process: str, repo: Repository, actor: str, turn: Turn) -> None:
    """Carry one transaction through, and again where it was refused.

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
    for again in range(1 + scene.workload.redo):
        label = f"{actor}.{turn.number}" + (f"-{again}" if again else "")
        outcome = await _transaction(scene, process, repo, actor, turn, label)
        if not isinstance(outcome, Refused) or outcome.error == "SessionStateError":
            return
        await pause(scene, scene.random(label, "again"))


async def pause(scene: Scene, rng: random.Random) -> None:
    """Think."""
    await asyncio.sleep(rng.expovariate(1.0) * scene.workload.think)


async def _transaction(
    scene: Scene, process: str, repo: Repository, actor: str, turn: Turn, label: str
) -> Outcome | None:
    rng = scene.random(actor, turn.number)
    branch = MAIN
    if scene.branches and rng.random() < scene.workload.other_branches:
        branch = rng.choice(scene.branches)
    isolation: Literal["serializable", "snapshot"]
    isolation = "serializable" if rng.random() < scene.workload.serializable else "snapshot"
    began = scene.clock()
    session = None
    with lost_branch(scene, process, branch):
        session = await repo.writable_session_async(branch, isolation=isolation)
    if session is None:
        return None
    flushes = scene.random(label, "flushes").random() < scene.workload.flushing
    noted = scene.notes.transaction(
        label,
        process=process,
        branch=branch,
        base=session.snapshot_id,
        began=began,
        opened=scene.clock(),
        isolation=isolation,
        metadata={"turn": turn.number} if rng.random() < 0.3 else None,
        amends=not flushes and scene.random(label, "amends").random() < scene.workload.amending,
        flushes=flushes,
    )
    hand = Hand(scene, process, session, noted, noted.operations)
    with lost_snapshot(scene, process, session.snapshot_id):
        for step in turn.steps:
            await pause(scene, rng)
            if scene.random(actor, turn.number, step, "unique").random() < scene.workload.unique:
                await append_unique(hand, scene.random(actor, turn.number, step))
            else:
                await _step(hand, scene.random(actor, turn.number, step))
        if scene.lingers(rng):
            await asyncio.sleep(rng.expovariate(1.0) * scene.workload.linger)
        outcome = await _commit(hand, scene.random(label, "commit"))
        if flushes and isinstance(outcome, Committed) and scene.random(label, "kept").random() < _KEPT:
            await create_ref(scene, process, repo, scene.random(label, "ref"), outcome.snapshot)
        return outcome
    return None


async def _step(hand: Hand, rng: random.Random) -> None:
    kind = draw(rng, hand.scene.workload.operations)
    if kind == "rebase":
        await _rebase(hand, rng)
    elif kind == "fork":
        await fork_out(hand, rng)
    else:
        await _STEPS[kind](hand, rng)


async def _rebase(hand: Hand, rng: random.Random) -> bool:
    """Put what there is on top of the newest snapshot; a conflict leaves the session as it was."""
    solver = drawn_solver(hand, rng, without=False)
    chosen = solver_of(solver, hand, rng)
    assert chosen is not None
    try:
        await hand.session.rebase_async(chosen)
    except (ConflictError, *REFUSALS):
        return False
    hand.operations.append(Rebase(hand.session.snapshot_id, solver))
    return True


# -- committing -------------------------------------------------------------------------------------------------------


async def _commit(hand: Hand, rng: random.Random) -> Outcome | None:
    """Commit, and do what the outcome calls for: ask again, give it to another solver, or leave it."""
    scene = hand.scene
    solver = Solver() if hand.noted.amends or hand.noted.flushes else drawn_solver(hand, rng)
    allow_empty = rng.random() < 0.1
    outcome: Outcome | None = None
    asked = 0
    while True:
        outcome = await _attempt(hand, solver, rng, allow_empty)
        if isinstance(outcome, Committed):
            scene.snapshots.append(outcome.snapshot)
            return outcome
        if isinstance(outcome, Unknown):
            asked += 1
            if asked > scene.workload.insist and (scene.faulty() or outcome.reason == "cancelled"):
                return outcome
            if asked > _MOST_ASKED:
                raise StarvedError(f"{hand.noted.label}: nothing fails, and yet {asked} commits ended in {outcome}")
            await asyncio.sleep(rng.uniform(0.0, 0.1 * 2 ** min(asked, 7)))
        elif outcome.error == "RebaseFailedError" and rng.random() < scene.workload.second_solver:
            solver = drawn_solver(hand, rng, without=False)
            if rng.random() < 0.3 and not await _rebase(hand, rng):
                return outcome
        elif outcome.error == "ConflictError" and rng.random() < scene.workload.second_solver:
            if not await _rebase(hand, rng):
                return outcome
        else:
            return outcome


async def _attempt(hand: Hand, solver: Solver, rng: random.Random, allow_empty: bool) -> Outcome:
    clock = hand.scene.clock
    attempt = hand.noted.attempt(solver, clock())
    metadata = None if hand.noted.metadata is None else dict(hand.noted.metadata)
    if hand.noted.amends:
        call = hand.session.amend_async(hand.noted.label, metadata=metadata, allow_empty=allow_empty)
    elif hand.noted.flushes:
        call = hand.session.flush_async(hand.noted.label, metadata=metadata)
    else:
        call = hand.session.commit_async(
            hand.noted.label,
            metadata,
            rebase_with=solver_of(solver, hand, rng),
            rebase_tries=rng.choice((1, 3, 1000, 1000)),
            allow_empty=allow_empty,
        )
    patience = rng.expovariate(4.0) if rng.random() < hand.scene.workload.impatient else None
    try:
        snapshot = await asyncio.wait_for(call, patience)
    except TimeoutError:
        return _ended(attempt, clock(), Unknown("cancelled"))
    except RebaseFailedError as error:
        conflicts = tuple((each.conflict_type.name, each.path) for each in error.conflicts)
        return _ended(attempt, clock(), Refused(type(error).__name__, conflicts))
    except ConflictError as error:
        return _ended(attempt, clock(), Refused(type(error).__name__))
    except REFUSALS as error:
        return _ended(attempt, clock(), Refused(type(error).__name__))
    except InvalidInputError as error:
        if not hand.noted.amends:  # the first snapshot of all is nobody's to amend
            raise
        return _ended(attempt, clock(), Refused(type(error).__name__))
    except LOST as error:
        _ended(attempt, clock(), Unknown(type(error).__name__))
        raise
    except StorageError as error:
        return _ended(attempt, clock(), Unknown(type(error).__name__))
    except SessionStateError as error:
        if hand.session.has_uncommitted_changes or (allow_empty and not hand.noted.flushes):
            raise
        return _ended(attempt, clock(), Refused(type(error).__name__))
    return _ended(attempt, clock(), Committed(snapshot))


def _ended(attempt: Attempt, at: float, outcome: Outcome) -> Outcome:
    attempt.end(at, outcome)
    return outcome
