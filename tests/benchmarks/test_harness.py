"""The benchmarks measure what they say, tried on tiny loads."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from obstore.store import S3Store

from benchmarks import report
from benchmarks.cases.chunks import ChunkLoad, make_data, run_once
from benchmarks.cases.history import Point, extrapolated
from benchmarks.contenders import OURS, OURS_DURABLE
from benchmarks.pipelines import DEFAULT
from benchmarks.places import PlaceMaker
from benchmarks.places import S3Server as S3Place
from benchmarks.results import Bar, CaseResult, Table, at_least, at_most
from benchmarks.subject import make_references
from benchmarks.systems import FloorSystem, IcechunkSystem, System, ZarrSystem
from benchmarks.timing import Stopwatch, interleaved
from benchmarks.wire import Request, Wire, counted
from tests.s3server import S3Server

SYSTEMS: list[System] = [OURS, OURS_DURABLE, IcechunkSystem(), ZarrSystem(), FloorSystem()]


@pytest.mark.parametrize("kind", ["local", "memory"])
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_every_contender_gives_back_what_a_case_writes(system: System, kind: str, tmp_path: Path) -> None:
    load = ChunkLoad(4096, 3)
    watch = run_once(system, DEFAULT, load, make_data(load), PlaceMaker(kind, tmp_path))
    assert set(watch.parts) == {"write", "commit", "write+commit", "read"}
    assert all(seconds > 0 for seconds in watch.parts.values())
    assert list(tmp_path.iterdir()) == [], "a case clears away what it wrote"


def test_rounds_are_interleaved_and_each_starts_with_another_contender() -> None:
    order: list[str] = []

    def run(name: str) -> Stopwatch:
        order.append(name)
        return Stopwatch({"part": float(len(order))})

    found = interleaved({name: lambda name=name: run(name) for name in "abc"}, rounds=3)
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"
    assert found["a"].parts["part"] == [4.0, 9.0, 11.0]
    assert found["a"].median("part") == 9.0


def _request(started: float, ended: float) -> Request:
    return Request("GET", "/x", 200, started, ended, 0, 0)


@pytest.mark.parametrize(
    ("spans", "trips"),
    [
        ([], 0),
        ([(1, 2)], 1),
        ([(1, 2), (1.1, 2.1), (1.2, 1.9)], 1),
        ([(1, 2), (2.5, 3), (4, 5)], 3),
        ([(1, 10), (1, 2), (3, 4), (5, 6)], 3),
    ],
)
def test_round_trips_are_the_longest_chain_of_requests_of_which_none_overlap(
    spans: list[tuple[float, float]], trips: int
) -> None:
    assert Wire.round_trips([_request(*span) for span in spans]) == trips


def test_the_proxy_passes_on_what_a_client_sends_and_counts_every_request(s3_server: S3Server) -> None:
    server = S3Place(
        s3_server.endpoint_url, s3_server.new_bucket(), s3_server.access_key_id, s3_server.secret_access_key
    )
    with counted(server) as wire:
        client = S3Store(
            server.bucket,
            endpoint=wire.server.endpoint_url,
            access_key_id=server.access_key_id,
            secret_access_key=server.secret_access_key,
            region=server.region,
            client_options={"allow_http": True},
        )
        body = bytes(range(256)) * 1000
        client.put("some/key", body)
        assert bytes(client.get("some/key").bytes()) == body
        assert client.head("some/key")["size"] == len(body)
        with pytest.raises(FileNotFoundError):
            client.get("other")
        client.delete("some/key")
        seen = wire.take()
    assert [request.method for request in seen] == ["PUT", "GET", "HEAD", "GET", "POST"]
    assert [request.status for request in seen] == [200, 200, 200, 404, 200]
    assert seen[0].sent == seen[1].received == len(body)
    assert wire.take() == []


def test_the_peers_storage_is_extrapolated_by_the_square_law_that_fits_both_points() -> None:
    def size(commits: int) -> int:
        return 3 * commits**2 + 50 * commits

    points = [Point(count, size(count), 0, 0.0) for count in (500, 1000)]
    assert extrapolated(points, 10_000) == pytest.approx(size(10_000))


def test_references_of_a_file_follow_one_another_without_overlap() -> None:
    locations, offsets, lengths = make_references(12, files=3)
    assert [locations.count(name) for name in dict.fromkeys(locations)] == [4, 4, 4]
    for first in (0, 4, 8):
        assert offsets[first] == 8192
        assert (offsets[first + 1 : first + 4] == (offsets + lengths)[first : first + 3]).all()


@pytest.mark.parametrize(("ours", "met"), [(1.0, True), (2.0, True), (2.1, False)])
def test_a_bar_on_a_ratio_is_met_only_at_or_above_its_factor(ours: float, met: bool) -> None:
    bar = at_least("speed", ours, 6.0, 3.0, "s")
    assert (bar.met, bar.verdict) == (met, "met" if met else "**missed**")


@pytest.mark.parametrize(("ours", "met"), [(3, True), (4, True), (5, False)])
def test_a_bar_on_a_count_is_met_only_at_or_below_it(ours: int, met: bool) -> None:
    assert at_most("requests", ours, 4, "requests").met is met


def _result() -> CaseResult:
    return CaseResult(
        "one", "One case", [Bar("it", "1", "2", "2", "≥ 3", met=False)], [Table("T", ["a"], [["7"]])], ["Note."], "here"
    )


def test_results_survive_their_file(tmp_path: Path) -> None:
    report.save_results(tmp_path / "results.json", {"one": _result()})
    assert report.load_results(tmp_path / "results.json") == {"one": _result()}


def test_the_page_is_renewed_between_its_markers_only_and_keeps_missed_bars(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_page(page, {"one": _result()})
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| it | 1 | 2 | 2 | ≥ 3 | **missed** |" in text
    assert "| 7 |" in text
    report.write_page(page, {"one": _result()})
    assert page.read_text() == text


def test_a_page_without_markers_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here")
    with pytest.raises(SystemExit, match="markers"):
        report.write_page(page, {})
    assert page.read_text() == "nothing here"


def test_the_environment_names_versions_but_neither_host_nor_directories() -> None:
    line = report.environment_line()
    assert "zarr " in line
    assert socket.gethostname() not in line
    assert str(Path.home()) not in line
    assert str(Path(report.__file__).parent) not in line
