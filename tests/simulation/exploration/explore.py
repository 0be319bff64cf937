"""Exhaustive exploration: every order of effects that makes a difference, of small configurations.

Executions are replayed from their start, one for each order (stateless model checking).  Orders that differ only in
neighbours that commute are executed once: *dynamic partial-order reduction* looks, in each execution, for pairs of
effects that touch the same key and that nothing else puts in order, and has each pair tried the other way round;
*sleep sets* leave out what was tried from the same state before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from arraystore.simulation.loop import SimulationError
from tests.simulation.exploration.choices import (
    BARRIER,
    CRASH,
    EFFECT,
    Choice,
    Configuration,
    Execution,
    Footprint,
    Pending,
    Start,
    independent,
)

__all__ = ["Exploration", "Failure", "explore", "table"]


@dataclass(frozen=True)
class Failure:
    """An execution that ended badly.

    Parameters
    ----------
    problems
        What is wrong.
    choices
        What leads there; `replay` takes them.
    schedule
        The same for people.
    """

    problems: tuple[str, ...]
    choices: tuple[Choice, ...]
    schedule: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*self.problems, "after:", *(f"  {line}" for line in self.schedule)])


@dataclass
class Exploration:
    """What an exploration has found.

    Parameters
    ----------
    name
        Of the configuration.
    executions
        Complete ones, each of another order.
    cut
        Executions that were left in the middle, since the rest had been seen.
    states
        Points at which there was a choice to make or to follow for the first time.
    longest
        Most steps of an execution.
    crashed, failed
        Executions with a crash, and with a lost answer.
    exhausted
        Whether there is no other order.
    failures
        Executions that ended badly.
    seconds
        How long it took.
    """

    name: str
    executions: int = 0
    cut: int = 0
    states: int = 0
    longest: int = 0
    crashed: int = 0
    failed: int = 0
    exhausted: bool = False
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class _Step:
    """A step that was made."""

    id: str
    process: str
    footprint: Footprint | None
    before: int
    """The steps that happened before it, as bits."""
    text: str


@dataclass
class _Node:
    """A point at which something is chosen."""

    pending: dict[str, Pending]
    asleep: dict[str, Footprint]
    wanted: list[str]
    """Requests to try here, in this order."""
    tried: int = 0
    """How many of them are done with."""
    outcomes: list[str] = field(default_factory=list)
    """Of the one that is tried now, those that are left; the first one is on."""
    died: set[str] = field(default_factory=set)
    """Processes whose death was tried here."""

    @property
    def choice(self) -> Choice:
        return self.wanted[self.tried], self.outcomes[0]

    def want(self, identifiers: Iterable[str]) -> None:
        self.wanted += [one for one in identifiers if one not in self.wanted]

    def open(self) -> bool:
        """Take up the next request to try, if there is one that was not tried from an equal state."""
        while self.tried < len(self.wanted):
            identifier = self.wanted[self.tried]
            if identifier == BARRIER:
                self.outcomes = [EFFECT]
                return True
            if identifier not in self.asleep:
                pending = self.pending[identifier]
                self.outcomes = [o for o in pending.outcomes if o != CRASH or pending.process not in self.died]
                if CRASH in self.outcomes:
                    self.died.add(pending.process)
                return True
            self.tried += 1
        return False

    def next(self) -> bool:
        """Go on to the next choice; False if all were tried."""
        self.outcomes.pop(0)
        if self.outcomes:
            return True
        done = self.wanted[self.tried]
        if done in self.pending:
            self.asleep[done] = self.pending[done].footprint
        self.tried += 1
        return self.open()


class _Search:
    """Depth-first search of the orders of a configuration."""

    def __init__(self, configuration: Configuration, prune: bool) -> None:
        self.configuration = configuration
        self.prune = prune
        self.start = Start.of(configuration)
        self.stack: list[_Node] = []
        self.found = Exploration(configuration.name)

    def run(self, budget: float, most_failures: int) -> Exploration:
        began = time.monotonic()
        found = self.found
        while True:
            self._execute()
            found.seconds = time.monotonic() - began
            while self.stack and not self.stack[-1].next():
                self.stack.pop()
            if not self.stack:
                found.exhausted = True
                return found
            if found.seconds > budget or len(found.failures) >= most_failures:
                return found

    # -- one execution ------------------------------------------------------------------------------------------

    def _execute(self) -> None:
        run = Execution(self.configuration, self.start)
        steps: list[_Step] = []
        try:
            self._follow(run, steps)
        finally:
            run.close()

    def _follow(self, run: Execution, steps: list[_Step]) -> None:
        known = len(self.stack)
        while True:
            pending = run.settle()
            if not pending and run.over:
                self._end(run, steps)
                return
            if len(steps) >= run.bounds.steps:
                self._fail(steps, [f"it has not ended after {len(steps)} steps: {run.unfinished} go on"])
                return
            node = self._node(len(steps), pending, steps)
            if node is None:
                self.found.cut += 1
                return
            choice = node.choice
            step = self._step(node, choice, steps)
            step.footprint = run.perform(choice)
            if step.footprint is not None and len(steps) >= known - 1:
                self._note_races(step, node, steps)
            self._order(step, steps)
            steps.append(step)

    def _node(self, depth: int, pending: list[Pending], steps: list[_Step]) -> _Node | None:
        """Return the node at some depth, made now if nobody was here yet; None if all of it was seen before."""
        here = {each.id: each for each in pending}
        if depth < len(self.stack):
            node = self.stack[depth]
            before, now = ([each.text for each in found.values()] for found in (node.pending, here))
            if before != now:
                raise SimulationError(
                    f"{self.configuration.name}: the same choices led to {now} and, before, to {before}: something in "
                    "it depends on more than its seed"
                )
            return node
        self.found.states += 1
        node = _Node(here, self._asleep(depth, steps), [])
        if not here:
            node.want([BARRIER])
        elif self.prune:
            awake = [identifier for identifier in here if identifier not in node.asleep]
            if not awake:
                return None
            node.want(awake[:1])
        else:
            node.want(here)
        opened = node.open()
        assert opened
        self.stack.append(node)
        return node

    def _asleep(self, depth: int, steps: list[_Step]) -> dict[str, Footprint]:
        """Return what was tried already from a state that equals this one but for the order of two neighbours."""
        if not depth or not self.prune:
            return {}
        made = steps[-1].footprint
        if made is None:
            return {}
        parent = self.stack[depth - 1]
        return {i: f for i, f in parent.asleep.items() if i != steps[-1].id and independent(f, made)}

    def _step(self, node: _Node, choice: Choice, steps: list[_Step]) -> _Step:
        identifier, outcome = choice
        if identifier == BARRIER:
            return _Step(identifier, "", None, (1 << len(steps)) - 1, BARRIER)
        pending = node.pending[identifier]
        before = 0
        for number, step in enumerate(steps[: pending.birth]):
            if step.process == pending.process or step.footprint is None:  # what its process knew when it was sent
                before |= step.before | 1 << number
        text = pending.text + (f" ({outcome})" if outcome else "")
        return _Step(identifier, pending.footprint.thread, None, before, text)

    def _note_races(self, step: _Step, node: _Node, steps: list[_Step]) -> None:
        """Have every effect that this one races with tried after it."""
        if not self.prune or step.footprint is None:
            return
        before = step.before
        for number in range(len(steps) - 1, -1, -1):
            earlier = steps[number]
            if before >> number & 1 or _commute(earlier, step):
                continue
            if earlier.footprint is not None:
                self.stack[number].want(self._reversing(number, step, before, steps))
            before |= earlier.before | 1 << number

    def _reversing(self, number: int, step: _Step, before: int, steps: list[_Step]) -> list[str]:
        """Return what to try at a node so that a later step comes before the one that was made there."""
        pending = self.stack[number].pending
        if step.id in pending:
            return [step.id]
        for later in range(number + 1, len(steps)):
            if before >> later & 1 and steps[later].id in pending:
                return [steps[later].id]
        return list(pending)

    def _order(self, step: _Step, steps: list[_Step]) -> None:
        """Work out what happened before a step."""
        for number in range(len(steps) - 1, -1, -1):
            if not step.before >> number & 1 and not _commute(steps[number], step):
                step.before |= steps[number].before | 1 << number

    # -- its end ------------------------------------------------------------------------------------------------

    def _end(self, run: Execution, steps: list[_Step]) -> None:
        found = self.found
        found.executions += 1
        found.longest = max(found.longest, len(steps))
        found.crashed += bool(run.crashes)
        found.failed += bool(run.failures)
        problems = [f"{name} waits for what never comes" for name in run.unfinished]
        problems += run.configuration.check(run)
        if problems:
            self._fail(steps, problems)

    def _fail(self, steps: list[_Step], problems: Sequence[str]) -> None:
        choices = tuple(node.choice for node in self.stack[: len(steps)])
        self.found.failures.append(Failure(tuple(problems), choices, tuple(step.text for step in steps)))


def _commute(earlier: _Step, step: _Step) -> bool:
    if earlier.footprint is None or step.footprint is None:
        return False
    return independent(earlier.footprint, step.footprint)


def explore(
    configuration: Configuration, *, budget: float = float("inf"), prune: bool = True, most_failures: int = 1
) -> Exploration:
    """Execute a configuration in every order that makes a difference.

    Parameters
    ----------
    configuration
        What to execute.
    budget
        Seconds after which to stop.
    prune
        Whether to leave out orders that differ in commuting neighbours only.
    most_failures
        How many executions may end badly before it stops.
    """
    return _Search(configuration, prune).run(budget, most_failures)


def replay(configuration: Configuration, choices: Sequence[Choice]) -> Execution:
    """Execute a configuration once, with given choices, and return how it ended; close it when done."""
    run = Execution(configuration, Start.of(configuration))
    for choice in choices:
        run.settle()
        run.perform(choice)
    run.settle()
    return run


def table(found: Iterable[Exploration]) -> Iterator[str]:
    """Show explorations as a table, line by line."""
    rows: list[tuple[str, ...]] = [
        ("configuration", "orders", "cut", "states", "longest", "with crash", "with lost answer", "s", "result")
    ]
    for each in found:
        result = f"{len(each.failures)} bad" if each.failures else "exhausted" if each.exhausted else "out of time"
        numbers = (each.executions, each.cut, each.states, each.longest, each.crashed, each.failed)
        rows.append((each.name, *(f"{number:,}" for number in numbers), f"{each.seconds:.1f}", result))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(w) if i in (0, 8) else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
