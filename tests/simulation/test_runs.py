"""Seeded runs: nothing is violated, a seed is a run, and what goes wrong is noticed, shrunk and printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arraystore._commit import conflict_detection
from arraystore._repository.repository import Repository
from arraystore.errors import StorageError
from arraystore.simulation.faults import Faults
from tests.simulation.__main__ import main
from tests.simulation.actors import reader
from tests.simulation.actors.script import Script, script_of
from tests.simulation.actors.workload import OPERATIONS, Workload
from tests.simulation.observations import Append, Committed, Refused, Repeated, Unknown
from tests.simulation.runs.profiles import PROFILES
from tests.simulation.runs.run import Report, plan_of, simulate
from tests.simulation.runs.schedule import schedule
from tests.simulation.runs.shrink import kinds_of, shrink

ROOT = Path(__file__).parents[2]
SEEDS = {"long": 2, "busy": 12, "crowd": 20, "mixed": 32}
"""Runs of a profile; 20 of any other."""


def _runs(profile: str) -> list[Any]:
    """Split the seeds of a profile into one or a few for the fast tier, and the rest."""
    seeds = range(SEEDS.get(profile, 20))
    few = max(1, len(seeds) // 10)
    return [
        pytest.param(profile, seeds[:few], id=f"{profile}-first"),
        pytest.param(profile, seeds[few:], id=f"{profile}-rest", marks=pytest.mark.thorough),
    ]


@pytest.mark.parametrize(("profile", "seeds"), [runs for profile in PROFILES for runs in _runs(profile)])
def test_nothing_is_violated(profile: str, seeds: range) -> None:
    for seed in seeds:
        report = simulate(seed, profile=profile)
        if not report.ok:
            told = "\n".join(map(str, report.violations))
            pytest.fail(f"python -m tests.simulation replay {seed} --profile {profile}\n{told}")
        assert report.commits, "a run without commits shows nothing"


FAILED_ONCE = {
    "mixed": [101715, 102357, 103649, 204495, 206293, 207055, 209043, 8100007],
    "lifecycle": [400177, 400705, 7000062, 7000138, 9500021],
    "hours": [10261, 9400064],
    "clocks": [6, 40],
}


@pytest.mark.parametrize(("profile", "seed"), [(each, seed) for each, seeds in FAILED_ONCE.items() for seed in seeds])
def test_what_once_failed_does_not(profile: str, seed: int) -> None:
    """Runs that found a bug, or where the checker was wrong; bugs themselves have tests of their own.

    They are those of before anything was flushed, undone or repeated, event for event.
    """
    plain = replace(PROFILES[profile], besides=0.0).drawn(seed)
    assert simulate(seed, *plain).violations == ()


FAILED_SINCE = {
    "hours": [4000817, 4001401, 9000425, 16000115],
    "clocks": [9000259],
    "lifecycle": [42, 5002, 300012, 3001048, 3001053, 5000306, 9000424, 10000609, 10000823],
    "mixed": [1795363261, 9000445, 10000754, 14001419],
    "proxied": [4000533, 5000131, 7000759, 10000567, 16000268],
    "amends": [300009, 300017, 12000178],
    "virtual": [1325],
}


@pytest.mark.parametrize(("profile", "seed"), [(each, seed) for each, seeds in FAILED_SINCE.items() for seed in seeds])
def test_what_once_failed_does_not_with_all_that_actors_do_now(profile: str, seed: int) -> None:
    assert simulate(seed, profile=profile).violations == ()


# -- a seed is a run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["mixed", "busy", "crashes", "forks"])
def test_the_same_seed_is_the_same_run_event_for_event(profile: str) -> None:
    first, again = simulate(3, profile=profile), simulate(3, profile=profile)
    assert list(first.trace) == list(again.trace)
    assert first.notes == again.notes
    assert first.digest != simulate(4, profile=profile).digest


ANYWHERE = {"mixed": [5], "lifecycle": [300050, 300249], "amends": [300009], "hours": [300005]}
"""Runs that once were others in another interpreter, where somebody went through a set of ids or names; and others."""


def test_the_same_seed_is_the_same_run_in_another_interpreter() -> None:
    code = "from tests.simulation.runs.run import simulate\n"
    code += f"print(*(simulate(seed, profile=each).digest for each, seeds in {ANYWHERE}.items() for seed in seeds))"
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": number, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout.split()
        for number in ("1", "3")
    ]
    assert found[0] == found[1] == [simulate(seed, profile=p).digest for p, seeds in ANYWHERE.items() for seed in seeds]


def test_leaving_out_an_actor_leaves_what_the_others_do() -> None:
    plan = plan_of(7, "calm")
    kept = Script(plan.script.parts[1:])
    whole, rest = simulate(7, plan=plan), simulate(7, plan=replace(plan, script=kept))
    names = {part.name for part in kept.parts if part.kind == "writer"}
    first = {f"{name}.0" for name in names}  # later ones may meet another snapshot
    assert first
    assert (
        first
        <= rest.notes.transactions.keys()
        <= whole.notes.transactions.keys()
        | {f"{name}.{turn}-{again}" for name in names for turn in range(9) for again in range(9)}
    )
    assert {len(part.turns) for part in kept.parts} == {len(p.turns) for p in script_of(7, plan.workload).parts[1:]}


# -- what runs consist of ---------------------------------------------------------------------------------------------


ONE_PROCESS = pytest.mark.xdist_group("what runs consist of")
"""Tests of the same runs, which take longer than all tests of them."""


@pytest.fixture(scope="module")
def some() -> list[Report]:
    return [simulate(seed, profile=profile) for seed in range(6) for profile in ("mixed", "forks", "busy", "hierarchy")]


@ONE_PROCESS
def test_writers_do_everything_that_they_can(some: list[Report]) -> None:
    done = Counter(type(o).__name__ for r in some for t in r.notes.transactions.values() for o in t.operations)
    assert done.keys() == {"Create", "Update", "Delete", "Move", "WriteChunk", "WriteFile", "Append", "Rebase"}
    assert min(done.values()) > 5


@pytest.fixture(scope="module")
def besides() -> list[Report]:
    more = {"transplanters": 2, "flushing": 0.3, "unique": 0.4, "referrers": 1, "writers": 6, "think": 0.0}
    plans = [(seed, replace(plan_of(seed, "calm").workload, **more)) for seed in range(8)]
    return [simulate(seed, workload, Faults.none()) for seed, workload in plans]


@ONE_PROCESS
def test_snapshots_are_flushed_undone_and_repeated_and_refused_for_reasons(besides: list[Report]) -> None:
    assert [each for report in besides for each in report.violations] == []
    transactions = [t for report in besides for t in report.notes.transactions.values()]
    for way in ("revert", "cherry_pick"):
        outcomes = [t.outcome for t in transactions if t.transplants is not None and t.transplants.way == way]
        errors = {outcome.error for outcome in outcomes if isinstance(outcome, Refused)}
        assert {type(outcome) for outcome in outcomes} == {Committed, Refused}
        assert {"InvalidInputError", "RebaseFailedError"} <= errors
    flushed = {t.outcome.snapshot for t in transactions if t.flushes and isinstance(t.outcome, Committed)}
    assert len(flushed) > 5
    assert any(t.base in flushed and isinstance(t.outcome, Committed) for t in transactions)


@pytest.mark.thorough
@ONE_PROCESS
def test_values_that_must_not_repeat_are_appended_and_refused_at_once_and_by_a_commit(besides: list[Report]) -> None:
    transactions = [t for report in besides for t in report.notes.transactions.values()]
    unique = [t for t in transactions if any(isinstance(o, Append) and o.unique for o in t.operations)]
    assert sum(isinstance(t.outcome, Committed) for t in unique) > 20
    attempts = [a.outcome for t in unique for a in t.attempts if isinstance(a.outcome, Refused)]
    assert any(kind == "DuplicateAppend" for outcome in attempts for kind, _ in outcome.conflicts)
    assert any(isinstance(seen, Repeated) for report in besides for seen in report.notes.seen)


@ONE_PROCESS
def test_all_solvers_isolations_and_outcomes_occur(some: list[Report]) -> None:
    transactions = [t for report in some for t in report.notes.transactions.values()]
    assert {t.isolation for t in transactions} == {"snapshot", "serializable"}
    solvers = [a.solver for t in transactions for a in t.attempts]
    assert {solver.kind for solver in solvers} == {"none", "detector", "basic", "custom"}
    assert {solver.on_chunk_conflict for solver in solvers} == {"ours", "theirs", "fail"}
    outcomes = [a.outcome for t in transactions for a in t.attempts if a.outcome is not None]
    assert {type(outcome) for outcome in outcomes} == {Committed, Refused, Unknown}
    errors = {outcome.error for outcome in outcomes if isinstance(outcome, Refused)}
    assert {"ConflictError", "RebaseFailedError"} <= errors
    assert any(t.merges for t in transactions)
    assert any(len(t.attempts) > 1 and isinstance(t.outcome, Committed) for t in transactions)


@ONE_PROCESS
def test_conflicts_of_many_kinds_occur(some: list[Report]) -> None:
    found = {
        kind
        for report in some
        for t in report.notes.transactions.values()
        for a in t.attempts
        if isinstance(a.outcome, Refused)
        for kind, _ in a.outcome.conflicts
    }
    assert len(found) >= 9, found


@pytest.mark.thorough
@ONE_PROCESS
def test_readers_see_everything_that_there_is_to_see(some: list[Report]) -> None:
    seen = Counter(type(each).__name__ for report in some for each in report.notes.seen)
    expected = {"ValueRead", "ListingRead", "TipLook", "Ancestry", "RefCreation", "RefLook", "RefListing"}
    assert seen.keys() >= expected


@ONE_PROCESS
def test_every_chunk_is_written_with_bytes_of_its_own(some: list[Report]) -> None:
    for report in some:
        data = [
            o.data
            for t in report.notes.transactions.values()
            for o in t.operations
            if type(o).__name__ == "WriteChunk" and o.data is not None
        ]
        assert len(data) == len(set(data))


def test_packs_and_inlined_chunks_and_objects_of_their_own_occur() -> None:
    operations = {"write": 1.0}
    report = simulate(0, replace(Workload(), operations=operations, writers=3, readers=0), Faults.none())
    packs = {e.key for e in report.trace if e.operation == "put" and e.key.startswith("chunks/")}
    writes = [o for t in report.notes.transactions.values() for o in t.operations if type(o).__name__ == "WriteChunk"]
    assert 0 < len(packs) < len(writes)


# -- what goes wrong is noticed ---------------------------------------------------------------------------------------


def _blind(*_: Any, **__: Any) -> list[Any]:
    return []


def test_a_planted_bug_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflict_detection, "_chunks", _blind)  # two may write the same chunk
    found = next(report for seed in range(40) if not (report := simulate(seed, profile="busy")).ok)
    assert "isolation" in {violation.rule for violation in found.violations}
    shrunk = shrink(found.plan, most_runs=250)
    assert kinds_of(shrunk.report) & kinds_of(found)
    assert shrunk.report.events < found.events / 3
    assert shrunk.report.plan.script.size <= 12
    again = shrink(found.plan, most_runs=250)
    assert again.report.digest == shrunk.report.digest
    text = schedule(shrunk.report)
    assert "violated: [isolation]" in text
    assert re.search("put_if_absent  refs/~[0-9A-Z]{6}/branch/main/000000000001  -> written", text)
    monkeypatch.undo()
    assert simulate(0, plan=shrunk.report.plan).ok


def test_nothing_is_shrunk_where_nothing_is_wrong() -> None:
    with pytest.raises(ValueError, match="violates nothing"):
        shrink(plan_of(0, "calm"))


def test_an_actor_that_fails_is_reported_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(reader, "read_history", broken)
    report = simulate(0, profile="calm")
    assert {violation.rule for violation in report.violations} == {"liveness"}
    assert "RuntimeError in reading everything" in report.violations[0].what
    assert report.commits > 5


def test_an_error_of_the_storage_that_nobody_caused_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise StorageError("bytes 0..9 were asked for, but the object has 5")

    monkeypatch.setattr(Repository, "list_tags_async", broken)
    assert any("StorageError" in violation.what for violation in simulate(0, profile="calm").violations)


def test_who_never_ends_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stuck(*_: Any, **__: Any) -> None:
        await Never()

    monkeypatch.setattr(Repository, "list_branches_async", stuck)
    report = simulate(0, profile="calm")
    assert any(v.rule == "liveness" and "DeadlockError in reading everything" in v.what for v in report.violations)


class Never:
    """Waits forever."""

    def __await__(self) -> Any:
        import asyncio

        return asyncio.get_running_loop().create_future().__await__()


# -- the command line -------------------------------------------------------------------------------------------------


def test_runs_of_the_command_line_end_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--seeds", "2", "--start", "3", "--profile", "calm", "pauses"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["profile", "calm", "pauses", "all"]
    assert lines[-1].split()[1] == "4"


@pytest.mark.thorough
def test_processes_share_the_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--seeds", "3", "--profile", "calm"]) == 0
    alone = capsys.readouterr().out.splitlines()[-1].split()[:6]
    assert main(["run", "--seeds", "3", "--profile", "calm", "--jobs", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:6] == alone


def test_a_failure_is_told_with_how_to_see_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflict_detection, "_chunks", _blind)
    assert main(["run", "--seeds", "2", "--profile", "busy"]) == 1
    out = capsys.readouterr().out
    (again,) = {line.split("again: ")[1] for line in out.splitlines() if "again: " in line and "replay 0 " in line}
    assert again == "python -m tests.simulation replay 0 --profile busy"
    assert main(["replay", "0", "--profile", "busy"]) == 1
    assert "violated: [isolation]" in capsys.readouterr().out


def test_the_endless_mode_stops_at_a_failure_or_when_its_time_is_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.simulation.runs import commands

    monkeypatch.setattr(commands, "_BATCH", 3)
    assert main(["loop", "--profile", "calm", "--minutes", "0.00001", "--start", "0"]) == 0
    assert "seeds up to 2" in capsys.readouterr().out
    monkeypatch.setattr(conflict_detection, "_chunks", _blind)
    assert main(["loop", "--profile", "busy", "--start", "0"]) == 1


def test_a_replay_prints_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "2", "--profile", "calm", "--short"]) == 0
    out = capsys.readouterr().out
    assert "w0.0 opens main at ~" in out
    assert f"trace {simulate(2, profile='calm').digest}" in out


def test_the_weights_of_a_workload_name_steps_that_exist() -> None:
    for profile in PROFILES.values():
        for seed in range(5):
            assert profile.drawn(seed)[0].operations.keys() <= OPERATIONS.keys()
