"""One simulated run, from a seed to a report.

>>> report = simulate(7, profile="calm")
>>> report.violations
()
"""

from __future__ import annotations

import logging
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from arraystore.errors import UnmergedForksWarning
from arraystore.simulation.faults import Faults
from arraystore.simulation.loop import SimulationError
from arraystore.simulation.trace import Trace
from arraystore.simulation.world import Main, Process, World
from tests.simulation.actors.company import company, founder, latecomer, straggler
from tests.simulation.actors.scene import Scene
from tests.simulation.actors.script import Part, Script, script_of
from tests.simulation.actors.sources import Sources
from tests.simulation.actors.workload import Workload
from tests.simulation.checker import check
from tests.simulation.checker.violations import Violation
from tests.simulation.observations import Committed, Observations, Refused, Unfinished
from tests.simulation.runs.profiles import PROFILES

__all__ = ["Plan", "Report", "plan_of", "simulate"]

_GRACE = 7200.0
"""Virtual seconds after the last fault by which everybody has to have ended."""

_MOST_STEPS = 20_000_000


@dataclass(frozen=True)
class Plan:
    """All that a run depends on.

    Parameters
    ----------
    seed
        Of all random numbers.
    workload
        What actors do.
    faults
        What goes wrong.
    script
        Which of it takes place; all that the seed makes of the workload, unless parts were left out.
    """

    seed: int
    workload: Workload
    faults: Faults
    script: Script


@dataclass(frozen=True)
class Report:
    """What came of a run.

    Parameters
    ----------
    plan
        What was run.
    digest
        A hash of everything that happened: the same seed gives the same.
    commits, refusals, unknown
        Outcomes of transactions: acknowledged, refused, and those that nobody was told of.
    requests
        Of all processes.
    events
        In the trace.
    virtual
        Seconds that passed in the simulation.
    seconds
        Seconds of the processor that it took, of which `checking` for the checks.
    checking
        See `seconds`.
    violations
        What must never be.
    trace, notes
        What happened, and what actors noted.
    """

    plan: Plan
    digest: str
    commits: int
    refusals: int
    unknown: int
    requests: int
    events: int
    virtual: float
    seconds: float
    checking: float
    violations: tuple[Violation, ...]
    trace: Trace
    notes: Observations

    @property
    def ok(self) -> bool:
        """Whether nothing was violated."""
        return not self.violations


def plan_of(seed: int, profile: str = "mixed") -> Plan:
    """Return what a seed makes of a profile; raises `KeyError` for an unknown one."""
    workload, faults = PROFILES[profile].drawn(seed)
    return Plan(seed, workload, faults, script_of(seed, workload))


def simulate(
    seed: int,
    workload: Workload | None = None,
    faults: Faults | None = None,
    *,
    profile: str = "mixed",
    plan: Plan | None = None,
) -> Report:
    """Run everything that a seed stands for, and check what came of it.

    Parameters
    ----------
    seed
        Of all random numbers.
    workload, faults
        What is done and what goes wrong; those of the profile by default.
    profile
        A name of `tests.simulation.runs.profiles.PROFILES`.
    plan
        What to run, in place of all this.
    """
    if plan is None:
        plan = plan_of(seed, profile)
        if workload is not None:
            plan = Plan(seed, workload, plan.faults, script_of(seed, workload))
        if faults is not None:
            plan = Plan(seed, plan.workload, faults, plan.script)
    began = time.process_time()
    sources = Sources if plan.workload.overwriters else None
    with World(plan.seed, faults=plan.faults, sources=sources) as world, _undisturbed():
        scene = _scene(world, plan)
        _run(world, scene, plan)
        ran = time.process_time()
        lag = plan.faults.late_listings
        versions = world.sources.versions if isinstance(world.sources, Sources) else ()
        found = check(world.bucket.objects, scene.notes, versions, events=world.trace, gone=world.bucket.gone, lag=lag)
        violations = (*_unexpected(scene), *found)
        checked = time.process_time()
        outcomes = [each.outcome for each in scene.notes.transactions.values()]
        commits = sum(isinstance(each, Committed) for each in outcomes)
        refusals = sum(isinstance(each, Refused) for each in outcomes)
        return Report(
            plan,
            world.trace.digest(),
            commits,
            refusals,
            len(outcomes) - commits - refusals,
            sum(world.counts.requests.values()),
            len(world.trace),
            world.loop.time(),
            checked - began,
            checked - ran,
            violations,
            world.trace,
            scene.notes,
        )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Warn of nothing that is meant to happen: forks that return too late, maintenance that fails."""
    logger = logging.getLogger("arraystore")

    def silent(record: logging.LogRecord) -> bool:
        return record.levelno > logging.WARNING

    logger.addFilter(silent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnmergedForksWarning)
            yield
    finally:
        logger.removeFilter(silent)


def _scene(world: World, plan: Plan) -> Scene:
    faults = plan.faults
    peace = faults.until + faults.lateness + faults.timeout if faults.of_requests else 0.0
    return Scene(plan.seed, plan.workload, world.loop.time, world.process, peace)


def _run(world: World, scene: Scene, plan: Plan) -> None:
    """Let everybody do what they are to do."""
    world.process("founder").start(founder(scene))
    if not _ended(world, scene, "founding the repository"):
        return
    by_process: dict[str, list[Part]] = {}
    for part in plan.script.parts:
        by_process.setdefault(part.process, []).append(part)
    for name, parts in by_process.items():
        world.process(name).start(company(scene, parts))
    if _ended(world, scene, "the turns of all actors") and _collected_late(world, scene, plan):
        # As far ahead as any other's: whatever was made is in its past.
        world.process("latecomer").start(_by_clock(plan.faults.skew, latecomer(scene)))
        _ended(world, scene, "reading everything")


def _collected_late(world: World, scene: Scene, plan: Plan) -> bool:
    """Let somebody collect garbage whose clock is behind all others: what they left is no hindrance."""
    if not (plan.faults.skew and scene.workload.forgets):
        return True
    world.process("straggler").start(_by_clock(-plan.faults.skew, straggler(scene)))
    return _ended(world, scene, "collecting garbage by a slow clock")


def _by_clock(ahead: float, work: Main) -> Main:
    """Let every life of a process have this clock: one that starts again after a crash would draw another."""

    async def main(process: Process) -> None:
        process.set_clock(ahead)
        await work(process)

    return main


def _ended(world: World, scene: Scene, what: str) -> bool:
    """Run until all have ended; notes it if they do not."""
    began = world.loop.time()
    ends = world.faults.until if world.faults.until < float("inf") else 0.0
    try:
        world.run(until=max(ends, world.loop.time()) + _grace(scene.workload, world.faults), most_steps=_MOST_STEPS)
        world.drain(_grace(scene.workload, world.faults))
    except SimulationError as error:
        scene.notes.see(Unfinished("world", f"{type(error).__name__} in {what}: {error}", began))
        return False
    return True


def _grace(workload: Workload, faults: Faults) -> float:
    """Return how many seconds everybody has to come to an end: thinking, lingering and long pauses count."""
    lingering = workload.linger * 50 if workload.lingering else 0.0
    return _GRACE + workload.think * 500 + lingering + (faults.pause.median * 100 if faults.pauses else 0.0)


def _unexpected(scene: Scene) -> list[Violation]:
    return [
        Violation(
            "liveness", f"{type(error).__name__} in {what}\n{''.join(traceback.format_exception(error))}", process
        )
        for process, what, error in scene.errors
    ]
