"""What processes do in the small configurations that are explored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from arraystore._commit.solvers import BasicConflictSolver, ConflictDetector, ConflictSolver
from arraystore._conflicts import VersionSelection
from arraystore._repository.creation import MAIN
from arraystore._repository.repository import Repository
from arraystore.errors import AlreadyExistsError, ConflictError, RebaseFailedError, StorageError
from arraystore.simulation.world import Process
from tests.seams import context_of
from tests.simulation.actors.documents import DOCUMENT, Shape, array_document, edited, group_document
from tests.simulation.actors.hand import Hand, session_get
from tests.simulation.actors.scene import Scene
from tests.simulation.actors.workload import Workload
from tests.simulation.exploration.choices import Actor, Execution
from tests.simulation.observations import (
    Committed,
    Outcome,
    RefCreation,
    Refused,
    Solver,
    TipLook,
    Unknown,
    ValueRead,
)

__all__ = [
    "DETECTOR",
    "NO_SOLVER",
    "OURS",
    "Isolation",
    "Step",
    "Turn",
    "append",
    "brancher",
    "create",
    "delete",
    "founder",
    "label",
    "move",
    "one",
    "opened",
    "read",
    "reader",
    "write",
    "writer",
]

_SHAPE = Shape((4,), (1,), ("t",))
_MOST_ASKED = 8

Step = Callable[[Hand], Awaitable[None]]
Isolation = Literal["snapshot", "serializable"]

DETECTOR = Solver("detector")
OURS = Solver("basic", on_chunk_conflict="ours")
NO_SOLVER = Solver()


# -- steps --------------------------------------------------------------------------------------------------------


def write(path: str, index: int) -> Step:
    """Write a chunk."""

    async def step(hand: Hand) -> None:
        await hand.write(path, (index,), hand.fresh(20, f"{path}/{index}"))

    return step


def read(path: str, index: int) -> Step:
    """Read a chunk."""

    async def step(hand: Hand) -> None:
        await hand.get(f"{path}/c/{index}")

    return step


def append(path: str) -> Step:
    """Append one chunk."""

    async def step(hand: Hand) -> None:
        document = await session_get(hand.session, f"{path}/{DOCUMENT}")
        assert document is not None
        items = hand.arrays()[path].items[0]
        with hand.appending("t"):
            grown = edited(document, items=(items + 1,))
            await hand.append(path, 0, grown, 1, {(items,): hand.fresh(20, f"{path}/{items}")})

    return step


def create(path: str) -> Step:
    """Create an array."""

    async def step(hand: Hand) -> None:
        await hand.create(path, array_document(_SHAPE, {"by": hand.noted.label}))

    return step


def delete(path: str) -> Step:
    """Delete a node."""

    async def step(hand: Hand) -> None:
        await hand.delete(path)

    return step


def move(source: str, target: str) -> Step:
    """Move a node."""

    async def step(hand: Hand) -> None:
        hand.move(source, target)

    return step


def label(path: str) -> Step:
    """Set an attribute."""

    async def step(hand: Hand) -> None:
        document = await session_get(hand.session, f"{path}/{DOCUMENT}")
        assert document is not None
        await hand.update(path, edited(document, attributes={"by": hand.noted.label}))

    return step


# -- actors -------------------------------------------------------------------------------------------------------


def _scene(run: Execution) -> Scene:
    """Return what hands want to know of a run; steps are the time, as nothing else passes."""
    return Scene(run.configuration.seed, Workload(), lambda: float(run.steps), run.world.process, 0.0, run.notes)


def _solver(solver: Solver) -> ConflictSolver | None:
    if solver.kind == "basic":
        return BasicConflictSolver(on_chunk_conflict=VersionSelection.UseOurs)
    return ConflictDetector() if solver.kind == "detector" else None


def founder(commits: int = 0) -> Actor:
    """Return what is done before: a repository with a group ``g``, arrays ``x`` and ``g/y`` of four chunks.

    Parameters
    ----------
    commits
        How many more transactions there are, each of one chunk.
    """

    async def act(process: Process, run: Execution) -> None:
        repository = await process.repository()
        await _found(process, run, repository, "first", _furnish)
        for number in range(commits):
            await _found(process, run, repository, f"first {number}", write("g/y", number % 4))

    return act


async def _found(process: Process, run: Execution, repository: Repository, name: str, step: Step) -> None:
    hand = await opened(process, run, repository, name)
    await step(hand)
    hand.noted.attempt(NO_SOLVER, 0).end(0, Committed(await hand.session.commit_async(name)))


async def opened(process: Process, run: Execution, repository: Repository, name: str) -> Hand:
    """Open a session before the exploration begins, and note that; returns what works in it."""
    session = await repository.writable_session_async(MAIN)
    base = session.snapshot_id
    noted = run.notes.transaction(name, process=process.name, branch=MAIN, base=base, began=0, opened=0)
    return Hand(_scene(run), process.name, session, noted, noted.operations)


async def _furnish(hand: Hand) -> None:
    await hand.create("", group_document({}))
    await hand.create("g", group_document({}))
    for path in ("x", "g/y"):
        await hand.create(path, array_document(_SHAPE, {}))
        await hand.write(path, (0,), hand.fresh(20, f"{path}/0"))


@dataclass(frozen=True)
class Turn:
    """One transaction.

    Parameters
    ----------
    steps
        What it does.
    solver, isolation
        How it is committed.
    """

    steps: tuple[Step, ...]
    solver: Solver = DETECTOR
    isolation: Isolation = "snapshot"


def writer(*turns: Turn, early: bool = True, busy: bool = False) -> Actor:
    """Return an actor that commits some transactions.

    Parameters
    ----------
    turns
        The transactions.
    early
        Whether the first session is opened before the exploration begins.
    busy
        Whether its process queues intents from the start, as it does after it has lost some races.
    """

    async def act(process: Process, run: Execution) -> None:
        scene = _scene(run)
        repository = await process.repository()
        if busy:
            _know_to_be_busy(repository)
        if not early:
            await run.line()
        for number, turn in enumerate(turns):
            began = scene.clock()
            session = await repository.writable_session_async(MAIN, isolation=turn.isolation)
            noted = run.notes.transaction(
                f"{process.name} {number}",
                process=process.name,
                branch=MAIN,
                base=session.snapshot_id,
                began=began,
                opened=scene.clock(),
                isolation=turn.isolation,
            )
            hand = Hand(scene, process.name, session, noted, noted.operations)
            for step in turn.steps:
                await step(hand)
            await run.line()
            await _commit(hand, turn.solver)

    return act


def _know_to_be_busy(repository: Repository) -> None:
    committer = context_of(repository).committer(MAIN)
    assert committer.intents is not None
    committer.intents.busy = True


async def _commit(hand: Hand, solver: Solver) -> None:
    """Commit, and ask again while it is unknown what came of it."""
    clock, noted = hand.scene.clock, hand.noted
    for _ in range(_MOST_ASKED):
        attempt = noted.attempt(solver, clock())
        outcome: Outcome
        try:
            outcome = Committed(await hand.session.commit_async(noted.label, rebase_with=_solver(solver)))
        except RebaseFailedError as error:
            conflicts = tuple((each.conflict_type.name, each.path) for each in error.conflicts)
            outcome = Refused(type(error).__name__, conflicts)
        except ConflictError as error:
            outcome = Refused(type(error).__name__)
        except StorageError as error:
            outcome = Unknown(str(error))
        attempt.end(clock(), outcome)
        if not isinstance(outcome, Unknown):
            return


def reader(*keys: str, times: int = 2) -> Actor:
    """Return an actor that looks at the tip of the branch, and reads there."""

    async def act(process: Process, run: Execution) -> None:
        repository = await process.repository()
        await run.line()
        for _ in range(times):
            began = float(run.steps)
            session = await repository.readonly_session_async(MAIN)
            run.notes.see(TipLook(process.name, MAIN, session.snapshot_id, began, float(run.steps)))
            for key in keys:
                began = float(run.steps)
                data = await session_get(session, key)
                seen = ValueRead(process.name, session.snapshot_id, key, data, began, float(run.steps))
                run.notes.see(seen)

    return act


def brancher(name: str) -> Actor:
    """Return an actor that makes a branch of the newest snapshot."""

    async def act(process: Process, run: Execution) -> None:
        repository = await process.repository()
        await run.line()
        snapshot = await repository.lookup_branch_async(MAIN)
        noted = RefCreation(process.name, "branch", name, snapshot, float(run.steps))
        run.notes.see(noted)
        outcome: Outcome = Committed(snapshot)
        try:
            await repository.create_branch_async(name, snapshot)
        except AlreadyExistsError as error:
            outcome = Refused(type(error).__name__)
        except StorageError as error:
            outcome = Unknown(str(error))
        noted.end(float(run.steps), outcome)

    return act


def one(
    *steps: Step,
    solver: Solver = DETECTOR,
    isolation: Isolation = "snapshot",
    early: bool = True,
    busy: bool = False,
) -> Actor:
    """Return an actor that commits one transaction."""
    return writer(Turn(steps, solver, isolation), early=early, busy=busy)
