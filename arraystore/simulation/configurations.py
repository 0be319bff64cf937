"""The small configurations that are explored exhaustively, and the command that does it."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from arraystore.commit.solvers import BasicConflictSolver, ConflictDetector, ConflictSolver
from arraystore.conflicts import VersionSelection
from arraystore.errors import ConflictError, RebaseFailedError, StorageError
from arraystore.repository import MAIN, Repository
from arraystore.simulation.actors.documents import DOCUMENT, Shape, array_document, edited, group_document
from arraystore.simulation.actors.hand import Hand, session_get
from arraystore.simulation.actors.scene import Scene
from arraystore.simulation.actors.workload import Workload
from arraystore.simulation.checker import check
from arraystore.simulation.choices import Actor, Bounds, Configuration, Execution
from arraystore.simulation.explore import Exploration, explore, table
from arraystore.simulation.observations import Committed, Outcome, Refused, Solver, TipLook, Unknown, ValueRead
from arraystore.simulation.world import Process

__all__ = ["CONFIGURATIONS", "add_commands", "by_name"]

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


async def _furnish(process: Process, run: Execution) -> None:
    """Create the repository: a group ``g``, arrays ``x`` and ``g/y`` of four chunks."""
    scene = _scene(run)
    repository = await process.repository()
    session = await repository.writable_session_async(MAIN)
    noted = run.notes.transaction(
        "first", process=process.name, branch=MAIN, base=session.snapshot_id, began=0, opened=0
    )
    hand = Hand(scene, process.name, session, noted, noted.operations)
    await hand.create("", group_document({}))
    await hand.create("g", group_document({}))
    for path in ("x", "g/y"):
        await hand.create(path, array_document(_SHAPE, {}))
        await hand.write(path, (0,), hand.fresh(20, f"{path}/0"))
    attempt = noted.attempt(NO_SOLVER, 0)
    attempt.end(0, Committed(await session.commit_async("first")))


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
        Whether its process stands in line from the start, as it does after it has lost some races.
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
    committer = repository._context.committer(MAIN)  # pyright: ignore[reportPrivateUsage]
    line = committer._line  # pyright: ignore[reportPrivateUsage]
    assert line is not None
    line.busy = True


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


# -- what has to be true at the end -------------------------------------------------------------------------------


def _check(committed: tuple[int, int]) -> Callable[[Execution], Sequence[str]]:
    """Return a check by the rules, and of how many transactions are committed, at least and at most.

    With crashes or lost answers there may be fewer.
    """

    def problems(run: Execution) -> Sequence[str]:
        found = [
            f"{name} failed: {type(e).__name__}: {e}" for name, e in run.results.items() if isinstance(e, Exception)
        ]
        found += map(str, check(run.world.bucket.objects, run.notes))
        outcomes = {name: each.outcome for name, each in run.notes.transactions.items() if name != "first"}
        unknown = [name for name, outcome in outcomes.items() if isinstance(outcome, Unknown)]
        if unknown and not run.crashes:
            found.append(f"nobody ever learns what became of {unknown}")
        number = sum(isinstance(outcome, Committed) for outcome in outcomes.values())
        least = 0 if run.crashes or run.configuration.restarts else committed[0]
        if not least <= number <= committed[1]:
            found.append(f"{number} transactions were committed, and {committed} had to be: {outcomes}")
        return found

    return problems


def _configuration(
    name: str, about: str, committed: tuple[int, int], *actors: Actor, bounds: Bounds | None = None, seed: int = 0
) -> Configuration:
    return Configuration(name, actors, _check(committed), _furnish, bounds or Bounds(), about, seed)


def _one(
    *steps: Step,
    solver: Solver = DETECTOR,
    isolation: Isolation = "snapshot",
    early: bool = True,
    busy: bool = False,
) -> Actor:
    return writer(Turn(steps, solver, isolation), early=early, busy=busy)


def _pairs() -> list[Configuration]:
    """Two writers whose sessions start from the same snapshot."""
    chunk, other = write("x", 0), write("x", 1)
    return [
        _configuration("disjoint", "two chunks of one array", (2, 2), _one(chunk), _one(other)),
        _configuration("arrays", "chunks of two arrays", (2, 2), _one(chunk), _one(write("g/y", 0))),
        _configuration("same chunk", "one of two is refused", (1, 1), _one(chunk), _one(chunk)),
        _configuration("ours", "the later one wins", (2, 2), _one(chunk, solver=OURS), _one(chunk, solver=OURS)),
        _configuration(
            "no solver",
            "whoever comes second",
            (1, 1),
            _one(chunk, solver=NO_SOLVER),
            _one(write("x", 1), solver=NO_SOLVER),
        ),
        _configuration("appends", "both, one behind the other", (2, 2), _one(append("x")), _one(append("x"))),
        _configuration("append, attribute", "of one array", (2, 2), _one(append("x")), _one(label("x"))),
        _configuration("creations", "of one array", (1, 1), _one(create("g/z")), _one(create("g/z"))),
        _configuration("deletion, chunk", "of one array", (1, 1), _one(delete("x")), _one(chunk)),
        _configuration("move, chunk", "of one array", (2, 2), _one(move("x", "g/x")), _one(chunk)),
        _configuration("move, creation", "in one place", (1, 1), _one(move("x", "g/z")), _one(create("g/z"))),
        _configuration(
            "write skew",
            "serializable",
            (1, 1),
            _one(read("x", 0), write("g/y", 0), isolation="serializable"),
            _one(read("g/y", 0), write("x", 0), isolation="serializable"),
        ),
    ]


def _longer() -> list[Configuration]:
    """Two writers of two transactions, three writers, and readers."""
    first, second, third = write("x", 0), write("x", 1), write("x", 2)
    return [
        _configuration(
            "sessions", "opened while others commit", (2, 2), _one(first, early=False), _one(second, early=False)
        ),
        _configuration(
            "reader", "of two commits", (2, 2), _one(first), _one(second), reader("x/c/0", "x/c/1", times=1)
        ),
        _configuration("three", "disjoint: they stand in line", (3, 3), _one(first), _one(second), _one(third)),
        _configuration("three, same chunk", "one is committed", (1, 1), _one(first), _one(first), _one(first)),
        _configuration("three appends", "one behind the other", (3, 3), *[_one(append("x"))] * 3),
        _configuration(
            "two each",
            "two transactions each",
            (4, 4),
            *[writer(Turn((write("x", n),)), Turn((write("g/y", n),))) for n in (0, 1)],
        ),
    ]


def _lines() -> list[Configuration]:
    """Writers that stand in line from the start."""

    def busy(*steps: Step) -> Actor:
        return _one(*steps, busy=True)

    first, second, third = write("x", 0), write("x", 1), write("x", 2)
    grown = append("x")
    return [
        _configuration("line", "disjoint", (2, 2), busy(first), busy(second)),
        _configuration("line, same chunk", "one is refused", (1, 1), busy(first), busy(first)),
        _configuration("line, appends", "one behind the other", (2, 2), busy(grown), busy(grown)),
        _configuration("line, creations", "of one array", (1, 1), busy(create("g/z")), busy(create("g/z"))),
        _configuration("line, deletion, chunk", "of one array", (1, 1), busy(delete("x")), busy(first)),
        _configuration("line, other", "and one that commits by itself", (2, 2), busy(first), _one(second)),
        _configuration(
            "line, conflict", "with one that commits by itself", (1, 1), busy(first), _one(first, solver=NO_SOLVER)
        ),
        _configuration("line of three", "disjoint", (3, 3), busy(first), busy(second), busy(third)),
        _configuration("line of three, same chunk", "one is committed", (1, 1), *[busy(first)] * 3),
    ]


def _faulty(base: Configuration, kind: str) -> Configuration:
    bounds = base.bounds
    changed = {
        "crash": replace(bounds, crashes=1),
        "lost answer": replace(bounds, failures=1),
        "late": replace(bounds, naps=1),
        "crash, late": replace(bounds, crashes=1, naps=1),
    }[kind]
    return replace(base, name=f"{base.name}; {kind}", bounds=changed)


def _all() -> tuple[Configuration, ...]:
    plain = [*_pairs(), *_longer(), *_lines()]
    kinds = ("crash", "lost answer", "late", "crash, late")
    faulty = [_faulty(each, kind) for kind in kinds for each in plain]
    return (*plain, *faulty)


CONFIGURATIONS = _all()
"""Every configuration, the short ones first."""


def by_name(name: str) -> Configuration:
    """Return a configuration; raises `KeyError` for an unknown name."""
    found = {each.name: each for each in CONFIGURATIONS}
    return found[name]


# -- command line -------------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _chosen(arguments: argparse.Namespace) -> list[Configuration]:
    if arguments.config:
        return [by_name(name) for name in arguments.config]
    return [each for each in CONFIGURATIONS if each.quick or arguments.all]


def _explore(arguments: argparse.Namespace) -> int:
    logging.getLogger("arraystore").setLevel(logging.CRITICAL)  # what fails in the background fails on purpose
    found: list[Exploration] = []
    for configuration in _chosen(arguments):
        one = explore(configuration, budget=arguments.budget, prune=not arguments.unpruned)
        found.append(one)
        for failure in one.failures:
            _say(f"{configuration.name}:\n{failure}\n    again: {failure.choices}")
        if arguments.progress:
            _say(list(table([one]))[1])
    _say("\n".join(table([*found, *([_sum(found)] if len(found) > 1 else [])])))
    return 1 if any(one.failures for one in found) else 0


def _sum(found: Sequence[Exploration]) -> Exploration:
    total = Exploration("all", exhausted=all(one.exhausted for one in found))
    for one in found:
        for name in ("executions", "cut", "states", "crashed", "failed", "seconds"):
            setattr(total, name, getattr(total, name) + getattr(one, name))
        total.longest = max(total.longest, one.longest)
        total.failures += one.failures
    return total


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``explore`` to a command line."""
    command = commands.add_parser("explore", help="execute small configurations in every order that matters")
    command.add_argument(
        "--config",
        nargs="+",
        metavar="NAME",
        choices=[each.name for each in CONFIGURATIONS],
        help="which ones (default: those that take seconds): " + "; ".join(each.name for each in CONFIGURATIONS),
    )
    command.add_argument("--all", action="store_true", help="those that take long as well")
    command.add_argument("--budget", type=float, default=600.0, help="most seconds for each (default: 600)")
    command.add_argument("--unpruned", action="store_true", help="execute orders that make no difference as well")
    command.add_argument("--progress", action="store_true", help="tell of each as soon as it has ended")
    command.set_defaults(do=_explore)
