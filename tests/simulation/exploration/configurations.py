"""The small configurations that are explored exhaustively, and the command that does it."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.simulation.checker import check
from tests.simulation.exploration.choices import Actor, Bounds, Configuration, Execution
from tests.simulation.exploration.explore import Exploration, explore, table
from tests.simulation.observations import Committed, Unknown
from tests.simulation.runs.damaged import damaged
from tests.simulation.runs.scenarios import (
    NO_SOLVER,
    OURS,
    Step,
    Turn,
    append,
    brancher,
    create,
    delete,
    founder,
    label,
    move,
    one,
    read,
    reader,
    write,
    writer,
)

__all__ = ["CONFIGURATIONS", "add_commands", "by_name"]


# -- what has to be true at the end -------------------------------------------------------------------------------


def _check(committed: tuple[int, int]) -> Callable[[Execution], Sequence[str]]:
    """Return a check by the rules, and of how many transactions are committed, at least and at most.

    What a process that dies wanted to commit may be missing; one that starts again does it again.
    """

    def problems(run: Execution) -> Sequence[str]:
        found = [
            f"{name} failed: {type(e).__name__}: {e}" for name, e in run.results.items() if isinstance(e, Exception)
        ]
        found += map(str, check(run.world.bucket.objects, run.notes, events=run.world.trace))
        outcomes = {name: each.outcome for name, each in run.notes.transactions.items() if not name.startswith("first")}
        alive = {process.name for process in run.world.processes.values() if process.alive}
        unknown = [
            name
            for name, outcome in outcomes.items()
            if isinstance(outcome, Unknown) and run.notes.transactions[name].process in alive
        ]
        if unknown:
            found.append(f"nobody ever learns what became of {unknown}")
        number = sum(isinstance(outcome, Committed) for outcome in outcomes.values())
        restarted = run.crashes if run.configuration.restarts else 0
        missing = run.crashes * -(-committed[0] // len(run.configuration.actors))
        if not committed[0] - missing <= number <= committed[1] + restarted:
            found.append(f"{number} transactions were committed, and {committed} had to be: {outcomes}")
        return found

    return problems


def _configuration(
    name: str, about: str, committed: tuple[int, int], *actors: Actor, bounds: Bounds | None = None, commits: int = 0
) -> Configuration:
    return Configuration(name, actors, _check(committed), founder(commits), bounds or Bounds(), about)


def _pairs() -> list[Configuration]:
    """Two writers whose sessions start from the same snapshot."""
    chunk, other = write("x", 0), write("x", 1)
    return [
        _configuration("disjoint", "two chunks of one array", (2, 2), one(chunk), one(other)),
        _configuration("arrays", "chunks of two arrays", (2, 2), one(chunk), one(write("g/y", 0))),
        _configuration("same chunk", "one of two is refused", (1, 1), one(chunk), one(chunk)),
        _configuration("ours", "the later one wins", (2, 2), one(chunk, solver=OURS), one(chunk, solver=OURS)),
        _configuration(
            "no solver",
            "whoever comes second",
            (1, 1),
            one(chunk, solver=NO_SOLVER),
            one(write("x", 1), solver=NO_SOLVER),
        ),
        _configuration("appends", "both, one behind the other", (2, 2), one(append("x")), one(append("x"))),
        _configuration("append, attribute", "of one array", (2, 2), one(append("x")), one(label("x"))),
        _configuration("creations", "of one array", (1, 1), one(create("g/z")), one(create("g/z"))),
        _configuration("deletion, chunk", "of one array", (1, 1), one(delete("x")), one(chunk)),
        _configuration("move, chunk", "of one array", (2, 2), one(move("x", "g/x")), one(chunk)),
        _configuration("move, creation", "in one place", (1, 1), one(move("x", "g/z")), one(create("g/z"))),
        _configuration(
            "write skew",
            "serializable",
            (1, 1),
            one(read("x", 0), write("g/y", 0), isolation="serializable"),
            one(read("g/y", 0), write("x", 0), isolation="serializable"),
        ),
    ]


def _longer() -> list[Configuration]:
    """Two writers of two transactions, three writers, and readers."""
    first, second, third = write("x", 0), write("x", 1), write("x", 2)
    return [
        _configuration(
            "sessions", "opened while others commit", (2, 2), one(first, early=False), one(second, early=False)
        ),
        _configuration("reader", "of two commits", (2, 2), one(first), one(second), reader("x/c/0", "x/c/1", times=1)),
        _configuration("three", "disjoint", (3, 3), one(first), one(second), one(third)),
        _configuration("three, same chunk", "one is committed", (1, 1), one(first), one(first), one(first)),
        _configuration("three appends", "one behind the other", (3, 3), *[one(append("x"))] * 3),
        _configuration(
            "two each",
            "two transactions each",
            (4, 4),
            *[writer(Turn((write("x", n),)), Turn((write("g/y", n),))) for n in (0, 1)],
        ),
    ]


def _lines() -> list[Configuration]:
    """Writers that use the queue of intents from the start."""

    def busy(*steps: Step) -> Actor:
        return one(*steps, busy=True)

    first, second, third = write("x", 0), write("x", 1), write("x", 2)
    grown = append("x")
    return [
        _configuration("line", "disjoint", (2, 2), busy(first), busy(second)),
        _configuration("line, same chunk", "one is refused", (1, 1), busy(first), busy(first)),
        _configuration("line, appends", "one behind the other", (2, 2), busy(grown), busy(grown)),
        _configuration("line, creations", "of one array", (1, 1), busy(create("g/z")), busy(create("g/z"))),
        _configuration("line, deletion, chunk", "of one array", (1, 1), busy(delete("x")), busy(first)),
        _configuration("line, other", "and one that commits by itself", (2, 2), busy(first), one(second)),
        _configuration(
            "line, conflict", "with one that commits by itself", (1, 1), busy(first), one(first, solver=NO_SOLVER)
        ),
        _configuration("line of three", "disjoint", (3, 3), busy(first), busy(second), busy(third)),
        _configuration("line of three, same chunk", "one is committed", (1, 1), *[busy(first)] * 3),
    ]


def _upkeep() -> list[Configuration]:
    """What happens at a multiple of 64, and branches."""
    first, second = write("x", 0), write("x", 1)
    return [
        _configuration("checkpoint", "written by one of two", (2, 2), one(first), one(second), commits=61),
        _configuration(
            "checkpoint, reader", "while it is written", (1, 1), one(first), reader("x/c/0", times=1), commits=62
        ),
        _configuration("checkpoint, appends", "with a fold", (2, 2), *[one(append("g/y"))] * 2, commits=61),
        _configuration("branch", "of a branch that moves", (1, 1), one(first), brancher("b")),
        _configuration("branch twice", "one of one name", (0, 0), brancher("b"), brancher("b")),
    ]


_FAULTS = {
    "crash": Bounds(crashes=1),
    "lost answer": Bounds(failures=1),
    "sent twice": Bounds(repetitions=1),
    "late": Bounds(naps=1),
    "crash, late": Bounds(crashes=1, naps=1),
}

_MANY_WRITES = ("two each", "three", "three appends", "line", "line, same chunk", "line, appends", "line, creations")
"""So many writes that losing the answer to any of them, or sending it twice, makes thousands of orders."""


def _is_quick(name: str) -> bool:
    """Tell whether a configuration is exhausted within seconds."""
    plain, _, kind = name.partition("; ")
    if plain.startswith("line of three") or kind == "crash, late" or name == "line; restart":
        return False
    return not (kind in ("lost answer", "sent twice") and plain in (*_MANY_WRITES, "line, deletion, chunk"))


def _all() -> tuple[Configuration, ...]:
    plain = [*_pairs(), *_longer(), *_lines(), *_upkeep()]
    faulty = [
        replace(each, name=f"{each.name}; {kind}", bounds=bounds) for kind, bounds in _FAULTS.items() for each in plain
    ]
    again = [
        replace(each, name=f"{each.name}; restart", bounds=Bounds(crashes=1), restarts=True)
        for each in plain
        if each.name in ("disjoint", "same chunk", "appends", "line", "line, other", "checkpoint")
    ]
    return tuple(replace(each, quick=_is_quick(each.name)) for each in (*plain, *faulty, *again, *damaged()))


CONFIGURATIONS = _all()
"""Every configuration."""


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
        result = explore(configuration, budget=arguments.budget, prune=not arguments.unpruned)
        found.append(result)
        for failure in result.failures:
            _say(f"{configuration.name}:\n{failure}\n    again: {failure.choices}")
        if arguments.progress:
            _say(list(table([result]))[1])
    _say("\n".join(table([*found, *([_sum(found)] if len(found) > 1 else [])])))
    return 1 if any(each.failures for each in found) else 0


def _sum(found: Sequence[Exploration]) -> Exploration:
    total = Exploration("all", exhausted=all(each.exhausted for each in found))
    for each in found:
        for name in ("executions", "cut", "states", "crashed", "failed", "seconds"):
            setattr(total, name, getattr(total, name) + getattr(each, name))
        total.longest = max(total.longest, each.longest)
        total.failures += each.failures
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
