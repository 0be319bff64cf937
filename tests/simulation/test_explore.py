"""Exhaustive exploration: it misses no order that matters, repeats none, and finds what is broken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from math import comb, factorial

import pytest

from arraystore._commit import batch, rebase_request, rebase_step
from arraystore._environment import Environment
from arraystore._log import branch_log
from arraystore.errors import StorageError
from arraystore.simulation.bucket import Bucket
from arraystore.simulation.loop import SimulationError
from arraystore.simulation.world import Process
from arraystore.storage.protocol import Storage
from tests.simulation.exploration import explore as explore_module
from tests.simulation.exploration.choices import Actor, Bounds, Configuration, Execution, Footprint, independent
from tests.simulation.exploration.configurations import CONFIGURATIONS, by_name
from tests.simulation.exploration.explore import explore, replay, table


def fine(run: Execution) -> Sequence[str]:
    return [f"{name}: {error!r}" for name, error in run.results.items() if isinstance(error, Exception)]


def putting(times: int, key: str | None = None) -> Actor:
    """Write one key so many times: one that all write, or the process's own."""

    async def act(process: Process, run: Execution) -> None:
        await run.line()
        for number in range(times):
            await process.storage.put(key or process.name, b"%d" % number)

    return act


async def write_zero(process: Process, run: Execution) -> None:
    await process.storage.put("n", b"0")


async def count_badly(process: Process, run: Execution) -> None:
    """Add one, in two requests: a protocol that loses updates."""
    await run.line()
    number = int(bytes(await process.storage.get("n")))
    await process.storage.put("n", b"%d" % (number + 1))


async def count_well(process: Process, run: Execution) -> None:
    """Add one, by taking the next free number."""
    await run.line()
    number = 0
    while True:
        try:
            if await process.storage.put_if_absent(f"n/{number}", process.name.encode()):
                return
        except StorageError:
            continue  # the same again: what is there may be this one
        number += 1


def both_count(run: Execution) -> Sequence[str]:
    written = run.world.bucket.objects
    return [] if written["n"] == b"2" else [f"two have counted, and there is {written['n']!r}"]


def nobody_is_lost(run: Execution) -> Sequence[str]:
    written = run.world.bucket.keys("n/")
    alive = [each for each in run.world.processes.values() if each.alive]
    if written != [f"n/{number}" for number in range(len(written))] or len(written) < len(alive):
        return [f"{len(alive)} have counted, and there are {written}"]
    return []


# -- how many orders there are ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("processes", "steps"), [(2, 1), (2, 3), (2, 4), (3, 2), (4, 1)])
def test_dependent_steps_are_executed_in_every_order(processes: int, steps: int) -> None:
    found = explore(Configuration("dependent", (putting(steps, "k"),) * processes, fine))
    assert found.exhausted
    assert found.failures == []
    assert found.executions == factorial(processes * steps) // factorial(steps) ** processes
    assert found.longest == processes * steps


@pytest.mark.parametrize(("processes", "steps"), [(2, 3), (3, 3), (5, 4)])
def test_independent_steps_are_executed_in_one_order(processes: int, steps: int) -> None:
    found = explore(Configuration("independent", (putting(steps),) * processes, fine))
    assert (found.executions, found.cut, found.exhausted) == (1, 0, True)


def test_without_pruning_every_order_is_executed() -> None:
    found = explore(Configuration("independent", (putting(3),) * 2, fine), prune=False)
    assert found.executions == comb(6, 3)


def test_a_budget_of_time_ends_an_exploration_that_is_then_not_exhausted() -> None:
    found = explore(Configuration("dependent", (putting(6, "k"),) * 3, fine), budget=0.0)
    assert not found.exhausted
    assert found.executions == 1


class _Recording(explore_module._Search):
    """Notes of each execution which of its steps depend on which."""

    def __init__(self, configuration: Configuration, prune: bool) -> None:
        super().__init__(configuration, prune)
        self.forms: list[tuple[frozenset[object], frozenset[object]]] = []

    def _end(self, run: Execution, steps: list[explore_module._Step]) -> None:
        super()._end(run, steps)
        pairs = [
            (earlier.id, earlier.text, later.id, later.text)
            for number, later in enumerate(steps)
            for earlier in steps[:number]
            if not explore_module._commute(earlier, later)
        ]
        self.forms.append((frozenset((step.id, step.text) for step in steps), frozenset(pairs)))


def forms_of(configuration: Configuration, prune: bool) -> list[tuple[frozenset[object], frozenset[object]]]:
    search = _Recording(configuration, prune)
    assert search.run(120.0, 1).exhausted
    return search.forms


@pytest.mark.parametrize(
    "name",
    ["same chunk", "same chunk; crash", "appends; crash", "no solver; late", "write skew; lost answer", "sessions"],
)
def test_pruning_leaves_out_no_order_that_makes_a_difference(name: str) -> None:
    pruned, every = forms_of(by_name(name), True), forms_of(by_name(name), False)
    assert set(pruned) == set(every)
    assert len(pruned) <= 1.2 * len(set(pruned))


def test_pruning_leaves_out_nothing_where_one_process_has_several_requests_on_its_way() -> None:
    async def ask(process: Process, run: Execution) -> None:
        await run.line()
        await asyncio.gather(process.storage.put("k", b"1"), process.storage.put("k", b"2"), process.storage.get("l"))
        await process.storage.put("l", b"")

    configuration = Configuration("several", (ask, putting(2, "l")), lambda _: ())
    pruned, every = forms_of(configuration, True), forms_of(configuration, False)
    assert set(pruned) == set(every)
    assert len(pruned) < len(every)


# -- what is found ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prune", [True, False])
def test_a_protocol_that_loses_updates_is_caught_and_the_schedule_shows_how(prune: bool) -> None:
    broken = Configuration("broken", (count_badly, count_badly), both_count, write_zero)
    found = explore(broken, prune=prune)
    assert len(found.failures) == 1
    failure = found.failures[0]
    assert failure.problems == ("two have counted, and there is b'1'",)
    assert sorted(failure.schedule) == ["a: get n", "a: put n", "b: get n", "b: put n"]
    assert "get" in failure.schedule[1]
    run = replay(broken, failure.choices)
    assert both_count(run) == list(failure.problems)
    run.close()


def test_pruning_finds_the_same_violations() -> None:
    broken = Configuration("broken", (count_badly,) * 3, lambda run: [str(run.world.bucket.objects["n"])], write_zero)
    ends = [
        {failure.problems for failure in explore(broken, prune=prune, most_failures=10_000).failures}
        for prune in (True, False)
    ]
    assert ends[0] == ends[1] == {("b'1'",), ("b'2'",), ("b'3'",)}


def test_a_sound_protocol_passes_with_crashes_and_lost_answers() -> None:
    bounds = Bounds(crashes=1, failures=1)
    found = explore(Configuration("sound", (count_well,) * 3, nobody_is_lost, bounds=bounds))
    assert found.exhausted
    assert found.failures == []
    assert min(found.crashed, found.failed) > 10


def test_a_lost_answer_that_is_taken_for_a_refusal_is_caught() -> None:
    async def count_rashly(process: Process, run: Execution) -> None:
        await run.line()
        number = 0
        while True:
            try:
                if await process.storage.put_if_absent(f"n/{number}", b"%d" % number + process.name.encode()):
                    return
            except StorageError:
                pass
            number += 1  # what was not acknowledged is there all the same

    def each_once(run: Execution) -> Sequence[str]:
        written = list(run.world.bucket.objects.values())
        twice = [name for name in "ab" if sum(value.endswith(name.encode()) for value in written) > 1]
        return [f"{twice} have counted twice"] if twice else []

    rash = Configuration("rash", (count_rashly,) * 2, each_once)
    assert explore(rash).failures == []
    assert explore(Configuration("rash", rash.actors, each_once, bounds=Bounds(failures=1))).failures


def test_an_effect_that_comes_late_is_explored() -> None:
    async def put(process: Process, run: Execution) -> None:
        await run.line()
        with pytest.raises(StorageError):
            await process.storage.put("k", b"old")
        await process.storage.put("k", b"new")

    ends: set[bytes] = set()

    def note(run: Execution) -> Sequence[str]:
        if not run.results.get("a"):
            ends.add(run.world.bucket.objects["k"])
        return []

    explore(Configuration("late", (put,), note, bounds=Bounds(failures=1)))
    assert ends == {b"old", b"new"}


def test_a_process_that_waits_for_ever_is_a_failure() -> None:
    async def wait(process: Process, run: Execution) -> None:
        await run.line()
        await run.loop.create_future()

    found = explore(Configuration("waiting", (wait, putting(1)), fine))
    assert found.failures[0].problems == ("a waits for what never comes",)


def test_a_process_that_never_ends_is_a_failure() -> None:
    async def poll(process: Process, run: Execution) -> None:
        await run.line()
        while not await process.storage.put_if_absent("k", process.name.encode()):
            await process.environment.sleep(1.0)

    found = explore(Configuration("polling", (poll, poll), fine, bounds=Bounds(steps=50)))
    assert found.failures[0].problems[0].startswith("it has not ended after 50 steps: ['b'] go on")


def test_patience_may_end_before_or_after_what_is_waited_for() -> None:
    async def patient(process: Process, run: Execution) -> str:
        await run.line()
        began = process.environment.now_us()
        while not [page async for page in process.storage.list("k")]:
            if process.environment.now_us() - began > 60_000_000:
                return "gave up"
            await process.environment.sleep(5.0)
        return "found"

    seen: set[str] = set()

    def note(run: Execution) -> Sequence[str]:
        seen.add(run.results["a"])
        return []

    assert explore(Configuration("patience", (patient, putting(1, "k")), note, bounds=Bounds(naps=1))).exhausted
    assert seen == {"found", "gave up"}


def test_a_process_that_dies_may_start_again() -> None:
    async def live(process: Process, run: Execution) -> None:
        await run.line()
        await process.storage.put(f"{process.name}", b"")

    lives: set[tuple[str, ...]] = set()

    def note(run: Execution) -> Sequence[str]:
        lives.add(tuple(run.world.bucket.keys()))
        return []

    explore(Configuration("restarts", (live,), note, bounds=Bounds(crashes=1), restarts=True))
    assert lives == {("a",), ("a.1",)}


def test_executions_that_depend_on_more_than_their_choices_are_noticed() -> None:
    count = iter(range(1, 100))

    async def act(process: Process, run: Execution) -> None:
        await run.line()
        await process.storage.put("k", b"%d" % next(count))
        await process.storage.put(f"k/{next(count)}", b"")

    with pytest.raises(SimulationError, match="something in it depends on more than its seed"):
        explore(Configuration("unsteady", (act, putting(1, "k"), putting(1, "k")), fine))


def test_footprints_that_touch_depend_on_each_other() -> None:
    put, get = Footprint("a", written=("k/1",)), Footprint("b", read=("k/1",))
    assert not independent(put, get)
    assert independent(get, Footprint("c", read=("k/1",)))
    assert independent(put, Footprint("b", read=("k/2",)))
    assert not independent(put, Footprint("b", listed=("k/", "")))
    assert independent(put, Footprint("b", listed=("k/", "k/1")))
    assert independent(put, Footprint("b", listed=("l/", "")))
    assert not independent(Footprint("a", dies=True), Footprint("a"))
    assert independent(Footprint("a", dies=True), Footprint("b", written=("k",)))


# -- arraystore ---------------------------------------------------------------------------------------------------

QUICK = [each for each in CONFIGURATIONS if each.quick]


@pytest.mark.parametrize("configuration", QUICK, ids=lambda each: each.name)
def test_commits_keep_their_rules_in_every_order(
    configuration: Configuration, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "arraystore")
    found = explore(configuration, budget=150.0)
    assert not found.failures, str(found.failures[0])
    assert found.exhausted
    assert found.executions >= min(2, len(configuration.actors))


def test_a_storage_that_overwrites_records_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def overwrite(bucket: Bucket, key: str, data: bytes) -> str:
        if "/branch/" in key:
            return bucket.put(key, data)
        return honest(bucket, key, data)

    honest = Bucket.put_if_absent
    monkeypatch.setattr(Bucket, "put_if_absent", overwrite)
    assert explore(by_name("disjoint")).failures


@pytest.mark.parametrize("name", ["same chunk", "line, same chunk", "creations", "write skew"])
def test_commits_that_are_not_checked_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebase_step, "find_conflicts", lambda *_: [])
    assert explore(by_name(name)).failures


def test_writers_that_do_not_look_for_their_own_commit_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def put_rashly(storage: Storage, environment: Environment, key: str, data: bytes, *_: object) -> bool:
        try:
            return await storage.put_new(key, data)
        except StorageError:
            return False  # taken for a lost race, which does no harm as long as the log is asked

    monkeypatch.setattr(branch_log, "put_surely", put_rashly)
    assert not explore(by_name("disjoint; lost answer")).failures
    monkeypatch.setattr(rebase_request, "find_own", lambda *_: None)
    monkeypatch.setattr(batch.Batch, "found_in", lambda *_: None)
    assert explore(by_name("disjoint; lost answer")).failures


def test_the_table_names_each_configuration_and_how_it_ended() -> None:
    lines = list(table([explore(by_name("same chunk")), explore(by_name("sessions"), budget=0.0)]))
    assert [line.split("  ")[0] for line in lines] == ["configuration", "same chunk", "sessions"]
    assert lines[1].endswith("exhausted")
    assert lines[2].endswith("out of time")
