"""The study of commit throughput computes what it says, tried on small cases."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev
from urllib.parse import urlsplit

import numpy as np
import pytest
from obstore.store import S3Store

from benchmarks.throughput import model, page, plots
from benchmarks.throughput.closed import Load, simulate
from benchmarks.throughput.latencies import S3, Provider, Timing
from benchmarks.throughput.model import CORRECTED, PUBLISHED, Protocol
from benchmarks.throughput.ours import latencies_of, run
from benchmarks.throughput.outcomes import Outcome, figures, mean_of, percentile
from benchmarks.throughput.proxy import delayed
from benchmarks.throughput.published import FAST_APPEND
from benchmarks.throughput.workload import Arrival, Spread, Workload
from tests.s3server import S3Server

GET, PUT = 0.010, 0.100
FIXED = Provider("fixed", "", Timing(10, 0), Timing(100, 0), Timing(100, 0), "")
EXACT = Protocol(FIXED, Timing(1, 0), metadata=0, manifest_list=0)
ATTEMPT = GET + 2 * PUT + 0.001
LOOK = 0.001


class Given(Workload):
    """A workload of transactions that are given."""

    given: tuple[Arrival, ...] = ()

    def arrivals(self, seed: int):  # type: ignore[no-untyped-def]
        return iter(self.given)


def run_model(protocol: Protocol, *arrivals: Arrival) -> list[Outcome]:
    workload = Given(1000, duration=1000, margin=0)
    object.__setattr__(workload, "given", arrivals)
    return model.run(workload, 0, protocol)


def waits(outcomes: list[Outcome]) -> list[float]:
    return [round(each.ended - each.began, 6) for each in outcomes]


def test_who_is_alone_pays_for_one_attempt() -> None:
    (only,) = run_model(EXACT, Arrival(0, 1.0, 5.0, heavy=False))
    assert only.began == pytest.approx(1.0 + LOOK + 5.0)
    assert (waits([only]), only.committed, only.retries) == ([round(ATTEMPT, 6)], True, 0)


def test_whoever_was_overtaken_while_it_ran_fails_once_and_reads_the_catalog_again() -> None:
    slow, quick = Arrival(0, 1.0, 50.0, heavy=False), Arrival(1, 2.0, 5.0, heavy=False)
    first, second = run_model(EXACT, slow, quick)
    assert [first.retries, second.retries] == [0, 1]
    assert waits([first, second]) == [round(ATTEMPT, 6), round(2 * ATTEMPT + LOOK, 6)]


def test_the_corrected_protocol_reads_metadata_in_each_attempt_and_after_each_failure() -> None:
    protocol = replace(EXACT, reads_metadata=True)
    _, second = run_model(protocol, Arrival(0, 1.0, 50.0, heavy=False), Arrival(1, 2.0, 5.0, heavy=False))
    assert waits([second]) == [round(2 * (ATTEMPT + GET) + LOOK + GET, 6)]


@pytest.mark.parametrize(("parallel", "rounds"), [(1, 3), (2, 2), (4, 1)])
def test_a_heavy_transaction_reads_a_list_for_each_snapshot_that_it_missed(parallel: int, rounds: int) -> None:
    quick = [Arrival(number, 2.0 + number, 1.0, heavy=False) for number in range(1, 4)]
    found = run_model(replace(EXACT, parallel=parallel), Arrival(0, 1.0, 50.0, heavy=True), *quick)
    assert [each.heavy for each in found] == [False, False, False, True]
    assert waits(found[3:]) == [round(2 * ATTEMPT + LOOK + rounds * GET, 6)]


def test_who_has_no_retries_left_gives_up_even_if_it_is_just_one_behind() -> None:
    found = run_model(replace(EXACT, retries=0), Arrival(0, 1.0, 50.0, heavy=False), Arrival(1, 2.0, 5.0, heavy=False))
    assert [each.committed for each in found] == [True, False]


def test_sums_of_many_requests_have_the_mean_and_the_spread_of_sums() -> None:
    rng = np.random.default_rng(1)
    one, many = PUBLISHED.validation(rng, 1), [PUBLISHED.validation(rng, 400) for _ in range(500)]
    mean, deviation = S3.get.moments(10 << 10)
    drawn = S3.get.many(rng, 10 << 10, 200_000)
    assert one > 0
    assert (mean, deviation) == pytest.approx((drawn.mean(), drawn.std()), rel=0.02)
    assert fmean(many) == pytest.approx(400 * mean, rel=0.01)
    assert pstdev(many) == pytest.approx(20 * deviation, rel=0.15)


def test_the_model_lands_on_the_published_row_in_which_retries_begin_to_run_out() -> None:
    workload = Workload(200, spread=Spread.DRAWN)
    published = next(row for row in FAST_APPEND if row.mean_ms == 200)
    found = mean_of([figures(model.run(workload, seed), workload) for seed in range(3)])
    assert found.success == pytest.approx(published.success, abs=0.005)
    assert found.throughput == pytest.approx(published.throughput, abs=0.1)
    assert (found.p50, found.p95) == pytest.approx((published.p50, published.p95), rel=0.05)
    assert found.retries == pytest.approx(published.retries, abs=0.1)
    corrected = figures(model.run(workload, 0, CORRECTED), workload)
    assert corrected.success < found.success, "two more requests an attempt make it worse"


def test_only_what_is_decided_within_the_window_counts() -> None:
    workload = Workload(1000, duration=30, margin=10)
    outcomes = [Outcome(0, ended - 1, ended, ended > 15, ended != 16, 2, 7) for ended in (5, 12, 14, 16, 18, 25)]
    found = figures(outcomes, workload)
    assert (found.transactions, found.committed, found.success, found.throughput) == (4, 3, 0.75, 0.3)
    assert (found.p50, found.retries, found.requests) == (1, 2, 7)
    assert figures(outcomes, workload, heavy=True).transactions == 2
    assert percentile([1.0, 2.0, 3.0], 0.75) == 2.5


@pytest.mark.parametrize(("spread", "apart", "ran"), [(Spread.DESCRIBED, 0.05, 3.0), (Spread.DRAWN, 0.0567, 9.25)])
def test_arrivals_are_the_same_for_a_seed_and_have_the_stated_means(spread: Spread, apart: float, ran: float) -> None:
    workload = Workload(50, 0.7, runtime=3.0, duration=900, spread=spread)
    found = list(workload.arrivals(5))
    assert found == list(workload.arrivals(5))
    assert found != list(workload.arrivals(6))
    assert 900 / len(found) == pytest.approx(apart, rel=0.03)
    assert fmean(each.runtime for each in found) == pytest.approx(ran, rel=0.1)
    assert fmean(not each.heavy for each in found) == pytest.approx(0.7, abs=0.02)


def test_our_code_commits_all_of_twenty_seconds_at_twenty_a_second() -> None:
    workload = Workload(50, 0.9, runtime=1.0, duration=20, margin=4)
    found = run(workload, 1, latencies_of(S3))
    result = figures(found.outcomes, workload)
    assert len(found.outcomes) == len(list(workload.arrivals(1)))
    assert all(each.committed for each in found.outcomes)
    assert result.p50 <= 0.8
    assert result.p99 <= 1.5
    assert sum(found.requests.values()) / found.committed <= 20


def test_what_clients_share_changes_nothing_that_they_do() -> None:
    workload = Workload(100, 0.5, runtime=1.0, duration=8, margin=1)
    shared, alone = (run(workload, 3, latencies_of(S3), share=share) for share in (True, False))
    assert shared == alone


def test_simulated_clients_commit_as_fast_as_their_requests_allow() -> None:
    quick = Provider("quick", "", Timing(10, 0), Timing(40, 0), Timing(40, 0), "")
    one, _ = simulate(Load(1, 10.0), quick, seed=1)
    slow, _ = simulate(Load(1, 10.0), quick.slower(2), seed=1)
    four, requests = simulate(Load(4, 10.0, heavy_every=2), quick, seed=1)
    assert 1.8 <= len(one) / len(slow) <= 2.2
    assert len(four) > len(one)
    assert requests >= 2 * len(four)
    assert {each.heavy for each in four} == {True, False}


def test_the_proxy_makes_requests_take_their_time_and_changes_nothing(s3_server: S3Server) -> None:
    provider = Provider("slow", "", Timing(150, 0), Timing(200, 0), Timing(250, 0), "")
    address = urlsplit(s3_server.endpoint_url)
    bucket = s3_server.new_bucket()
    with delayed(address.hostname or "", address.port or 0, provider, seed=1) as proxy:
        store = S3Store(
            bucket,
            endpoint=f"http://127.0.0.1:{proxy.port}",
            access_key_id=s3_server.access_key_id,
            secret_access_key=s3_server.secret_access_key,
            region="us-east-1",
            client_options={"allow_http": True},
            virtual_hosted_style_request=False,
        )

        async def session() -> float:
            began = asyncio.get_running_loop().time()
            await store.put_async("a/1", b"x" * 100_000)
            await store.put_async("a/2", b"yy", mode="create")
            assert bytes(await (await store.get_async("a/1")).bytes_async()) == b"x" * 100_000
            assert [info["path"] for info in await store.list("a").collect_async()] == ["a/1", "a/2"]
            return asyncio.get_running_loop().time() - began

        took = asyncio.run(session())
    assert took >= 0.2 + 0.25 + 0.15 + 0.15
    assert proxy.requests == {"put": 1, "put_if_absent": 1, "get": 1, "list": 1}


def test_the_page_shows_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "FOLDER", tmp_path)
    assert page.render() in page.PAGE.read_text(), "python -m benchmarks.throughput page renews it"
    assert {path.suffix for path in tmp_path.iterdir()} == {".svg"}
