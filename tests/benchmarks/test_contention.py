"""The contention benchmarks measure what they say, tried on tiny loads."""

from __future__ import annotations

from pathlib import Path

import pytest
import zarr

from benchmarks import orphans
from benchmarks.__main__ import _chosen
from benchmarks.bank import (
    ACCOUNTS,
    OPENING,
    Shift,
    Tally,
    check_bank,
    open_bank,
    run_processes,
    run_threads,
)
from benchmarks.cases import CASES, NEED_LOCAL, NEED_SERVER, ON_REQUEST
from benchmarks.cases.contention import figures
from benchmarks.cases.rebasing import find_conflicts, make_logs, requests_of_rebase
from benchmarks.contenders import OURS
from benchmarks.places import Place, PlaceMaker
from benchmarks.places import S3Server as S3Place
from benchmarks.systems import IcechunkSystem, System
from tests.s3server import S3Server


def test_processes_move_money_and_every_acknowledged_commit_is_in_history(tmp_path: Path) -> None:
    with PlaceMaker("local", tmp_path).fresh() as place:
        handle = open_bank(OURS, place)
        tallies = run_processes(OURS, place, 2, Shift(60, most=3))
        assert [len(tally.latencies) for tally in tallies] == [3, 3]
        assert [tally.errors for tally in tallies] == [[], []]
        assert check_bank(OURS, place, handle) == (6, ACCOUNTS * OPENING)


def test_a_worker_that_breaks_down_is_noticed_at_once(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="2 of 2 workers broke down"):
        run_processes(OURS, Place("local", path=tmp_path / "nothing"), 2, Shift(60, most=1))


@pytest.mark.parametrize("system", [OURS, IcechunkSystem()], ids=lambda system: system.name)
def test_threads_with_chunks_of_their_own_do_nothing_twice(system: System, tmp_path: Path) -> None:
    with PlaceMaker("memory", tmp_path).fresh() as place:
        handle = open_bank(system, place)
        tallies = run_threads(system, handle, 3, Shift(60, most=2, rule="own"))
        assert [(len(tally.latencies), tally.collisions) for tally in tallies] == [(2, 0)] * 3
        assert check_bank(system, place, handle) == (6, ACCOUNTS * OPENING + 6)


def test_rates_latencies_and_fairness_are_taken_from_all_workers() -> None:
    quick = Tally(latencies=[0.1] * 19, wall=2.0)
    slow = Tally(latencies=[1.0], collisions=3, errors=["once"], wall=4.0)
    parts = figures([quick, slow], 19).parts
    assert parts["rate"] == 20 / 4.0
    assert parts["p50"] == 0.1
    assert parts["p95"] == pytest.approx(0.145)
    assert parts["fairness"] == pytest.approx(1 / 19)
    assert (parts["again"], parts["acknowledged"], parts["history"]) == (4, 20, 19)


@pytest.mark.parametrize("shared", [0, 7, 100])
def test_detection_finds_exactly_the_chunks_that_both_changed(shared: int) -> None:
    found = find_conflicts(make_logs(100, shared))
    assert (
        sum(len(conflict.conflicted_chunks) for conflict in found if conflict.conflicted_chunks is not None) == shared
    )


def test_what_nothing_leads_to_is_found_and_nothing_else(tmp_path: Path) -> None:
    place = Place("local", path=tmp_path / "repository")
    repository = open_bank(OURS, place)
    for number in range(70):  # past the first checkpoint and history page
        with repository.transaction("main", message=str(number)) as store:
            zarr.open_array(store, path="accounts", mode="r+")[number % ACCOUNTS] = number
    repository.wait_for_maintenance()
    storage = OURS.storage(place)
    assert {path.name for path in place.directory.iterdir()} >= {"refs", "snapshots", "history", "hints"}
    assert orphans.ours(storage) == set()
    stray = place.directory / "snapshots" / ("0" * 20)
    stray.write_bytes(b"left behind")
    assert orphans.ours(storage) == {f"snapshots/{'0' * 20}"}


def test_requests_of_a_rebase_are_counted_on_the_wire(s3_server: S3Server) -> None:
    server = S3Place(
        s3_server.endpoint_url, s3_server.new_bucket(), s3_server.access_key_id, s3_server.secret_access_key
    )
    mine = requests_of_rebase(OURS, server, 2)
    assert mine.puts == 2
    assert 2 <= mine.reads <= 3
    assert f"{mine.puts} PUT" in mine.text
    peer = requests_of_rebase(IcechunkSystem(), server, 2)
    assert peer.puts + peer.reads > mine.puts + mine.reads


def test_cases_that_need_a_server_or_a_directory_are_known_as_such() -> None:
    assert {"contention", "rebasing"} <= NEED_SERVER <= CASES.keys()
    assert "processes" in NEED_LOCAL <= CASES.keys()


def test_cases_that_take_long_run_only_if_they_are_named() -> None:
    assert ON_REQUEST
    for name in ON_REQUEST:
        assert name not in _chosen(None, "all")
        assert _chosen([name], "all") == [name]
