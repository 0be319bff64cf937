"""The calculator of costs: each figure is what a storage counts, and the bill is the sum that one can do by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import ConflictDetector, Repository, RepositoryConfig, in_memory_storage
from arraystore._maintenance.verification.statistics import CommitRate, PackStatistics, RepositoryStatistics
from arraystore.cli.cost import requests as figures
from arraystore.cli.cost.command import _KNOWN
from arraystore.cli.cost.estimate import DAYS, estimate
from arraystore.cli.cost.prices import Prices, known_prices
from arraystore.cli.cost.requests import Requests
from arraystore.cli.cost.workload import Workload, observed
from arraystore.errors import InvalidInputError
from arraystore.storage import CountingStorage, Counts
from tests.cli import cost_page
from tests.cli.conftest import Cli, Made
from tests.commit.support import (
    DistantStorage,
    commit_number,
    create_repository,
    put_number,
    repository_at,
    without_maintenance,
)

CHUNK = 64 << 10


def distant() -> CountingStorage:
    return CountingStorage(DistantStorage(in_memory_storage()))


def by_kind(counts: Counts) -> Requests:
    """Count as services charge: put-if-absent is a PUT, a HEAD is a GET."""
    kinds = {"put": ("put", "put_if_absent"), "get": ("get", "get_ranges", "head"), "list": ("list",)}
    sums: Mapping[str, int] = {kind: sum(counts[each] for each in operations) for kind, operations in kinds.items()}
    return Requests(**sums, delete=counts["delete"])


def no_more(counted: Requests, figure: Requests) -> bool:
    return all(getattr(counted, kind.name) <= getattr(figure, kind.name) for kind in fields(Requests))


def created(storage: CountingStorage, chunks: int = 64) -> Repository:
    repository = without_maintenance(Repository.create(storage))
    with repository.transaction("main", message="an array") as store:
        shape = (chunks * CHUNK,)
        zarr.create_array(store, name="a", shape=shape, chunks=(CHUNK,), dtype="u1", compressors=None)
    return repository


def noise(chunks: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(1, 256, chunks * CHUNK, dtype="u1")


@pytest.mark.parametrize("sequence", [1, 63, 64, 100])
def test_opening_takes_no_more_than_its_figure_and_once_all_of_it(sequence: int) -> None:
    inner = CountingStorage(in_memory_storage())
    repository_at(inner, sequence)
    storage = CountingStorage(DistantStorage(inner.inner))
    Repository.open(storage).readonly_session("main")
    assert no_more(by_kind(storage.counts), figures.OPEN)
    assert by_kind(storage.counts).total >= figures.OPEN.total - 2


def test_the_next_session_and_a_commit_take_their_figures() -> None:
    storage = distant()
    repository = created(storage)
    storage.reset()
    session = repository.writable_session("main")
    assert by_kind(storage.counts) == figures.REOPEN
    put_number(session, 0, 1)
    storage.reset()
    session.commit("one number")
    assert by_kind(storage.counts) + Requests(list=1) == figures.COMMIT  # the session is young


def test_a_lost_race_takes_no_more_than_its_figure() -> None:
    storage = distant()
    repository = created(storage)
    loser = repository.writable_session("main")
    put_number(loser, 0, 1)
    commit_number(without_maintenance(Repository.open(storage)), 5, 5)
    storage.reset()
    loser.commit("later", rebase_with=ConflictDetector())
    assert no_more(by_kind(storage.counts), figures.COMMIT + figures.LOST_RACE)


def test_what_every_64th_commit_does_in_the_background_takes_its_figure_on_average() -> None:
    storage = distant()
    repository = create_repository(storage)
    rounds = 4
    before = by_kind(storage.counts)
    for row in range(rounds * figures.RECORDS_BETWEEN_UPKEEP):
        commit_number(repository, row, row)
        if row % figures.RECORDS_BETWEEN_UPKEEP == 0:
            repository.wait_for_maintenance()
    repository.wait_for_maintenance()
    commits = (figures.REOPEN + Requests(put=1)) * (rounds * figures.RECORDS_BETWEEN_UPKEEP)
    counted = by_kind(storage.counts)
    for kind in ("put", "get", "list"):
        each = (getattr(counted, kind) - getattr(before, kind) - getattr(commits, kind)) / rounds
        assert 0 <= each <= getattr(figures.UPKEEP, kind), kind


@pytest.mark.parametrize("objects", [0, 1_500])
def test_maintenance_with_nothing_to_do_takes_no_more_than_is_charged(objects: int) -> None:
    storage = distant()
    config = RepositoryConfig(own_object_threshold_bytes=1000)
    repository = without_maintenance(Repository.create(storage, config))
    with repository.transaction("main", message="an array") as store:
        zarr.create_array(store, name="a", shape=(1500, 1000), chunks=(1, 1000), dtype="u1", compressors=None)
        store.session.write("a", slice(0, objects), 1 + np.zeros((objects, 1000), dtype="u1"))
    repository.maintain()
    storage.reset()
    Repository.open(storage).maintain()
    counted = by_kind(storage.counts)
    load = Workload(size=objects * 1000, chunk_size=1000, commits_per_day=0, maintain_per_day=1 / DAYS)
    charged = estimate(load, Prices(), config).total.requests
    assert no_more(counted, charged), (counted, charged)
    assert counted.total >= 0.75 * charged.total


@pytest.mark.parametrize(
    ("chunks", "chunk_size", "packs"), [(3, 64, 0), (16, CHUNK, 1), (300, CHUNK, 3), (3, 1 << 20, 3)]
)
def test_a_commit_uploads_the_packs_that_are_charged(chunks: int, chunk_size: int, packs: int) -> None:
    storage = distant()
    repository = without_maintenance(Repository.create(storage))
    with repository.transaction("main", message="an array") as store:
        shape = (chunks * chunk_size,)
        zarr.create_array(store, name="a", shape=shape, chunks=(chunk_size,), dtype="u1", compressors=None)
    storage.reset()
    session = repository.writable_session("main")
    session.write("a", (), np.random.default_rng(0).integers(1, 256, shape, dtype="u1"))
    session.commit("write")
    assert sum(key.startswith("chunks/") for _, key in storage.log) == packs
    load = Workload(chunk_size=chunk_size, chunks_per_commit=chunks, commits_per_day=1 / DAYS, maintain_per_day=0)
    uploads = {item.what: item for item in estimate(load, Prices()).items}["chunks written"]
    assert uploads.requests == Requests(put=pytest.approx(packs))


@pytest.mark.parametrize("contiguous", [True, False])
def test_a_reader_sends_no_more_requests_than_are_charged(contiguous: bool) -> None:
    storage = distant()
    repository = created(storage, chunks := 96)
    session = repository.writable_session("main")
    session.write("a", (), noise(chunks))
    session.commit("write")
    storage.reset()
    session = Repository.open(storage).readonly_session("main")
    if contiguous:
        session.read("a", ())
        read = chunks
    else:
        read = 4
        for chunk in np.random.default_rng(1).permutation(chunks)[:read]:
            session.read("a", slice(chunk * CHUNK, (chunk + 1) * CHUNK))
    load = Workload(
        size=chunks * CHUNK, chunk_size=CHUNK, chunks_per_read=read, reads_per_day=1 / DAYS, contiguous=contiguous,
        commits_per_day=0, maintain_per_day=0,
    )  # fmt: skip
    charged = estimate(load, Prices()).total.requests
    counted = by_kind(storage.counts)
    assert no_more(counted, charged), (counted, charged)
    assert counted.total >= charged.total / 3


def test_a_workload_that_is_run_takes_what_is_estimated() -> None:
    storage = distant()
    days, reads, chunks = 70, 2, 8
    created(storage, days * chunks).maintain()
    before = by_kind(storage.counts)
    for day in range(days):  # a job that appends, and readers of a day, each in a process of its own
        repository = Repository.open(storage)
        session = repository.writable_session("main")
        part = slice(day * chunks * CHUNK, (day + 1) * chunks * CHUNK)
        session.write("a", part, noise(chunks))
        session.commit("a day")
        repository.wait_for_maintenance()
        for _ in range(reads):
            Repository.open(storage).readonly_session("main").read("a", part)
    counted = by_kind(storage.counts)
    load = Workload(
        size=days * chunks * CHUNK / 2, chunk_size=CHUNK, commits_per_day=days / DAYS, chunks_per_commit=chunks,
        reads_per_day=days * reads / DAYS, chunks_per_read=chunks, contiguous=True, maintain_per_day=0,
    )  # fmt: skip
    charged = estimate(load, Prices()).total.requests
    for kind in ("put", "get", "list"):
        taken = getattr(counted, kind) - getattr(before, kind)
        assert 0.5 * getattr(charged, kind) <= taken <= 1.05 * getattr(charged, kind), (kind, taken, charged)


def test_the_bill_is_the_sum_of_storage_requests_and_transfer() -> None:
    prices = Prices(
        storage_gb_month=1, put_1000=10, get_1000=2, list_1000=30, delete_1000=4, retrieval_gb=5, transfer_gb=6
    )
    load = Workload(
        size=3 * (1 << 30), chunk_size=1 << 30, commits_per_day=0, reads_per_day=2, chunks_per_read=4, outside=0.5,
        maintain_per_day=0,
    )  # fmt: skip
    bill = estimate(load, prices)
    reads = 2 * DAYS
    by_hand = 3 + 5 * 4 * reads + 6 * 2 * reads
    by_hand += reads * (2 / 1000 * (figures.OPEN.get + figures.OPEN_ARRAY.get + 4) + 30 / 1000 * figures.OPEN.list)
    assert bill.total.dollars == pytest.approx(by_hand)
    assert bill.total.dollars == pytest.approx(sum(item.dollars for item in bill.items))
    assert bill.growth_bytes == 0


def test_what_is_replaced_is_kept_for_the_retention_and_the_rest_is_growth() -> None:
    prices = Prices(storage_gb_month=1, gb_bytes=1)
    load = Workload(chunk_size=1e6, commits_per_day=2, chunks_per_commit=10, overwrite=0.25, retention_days=8)
    bill = estimate(load, prices)
    assert {item.what: item.stored_bytes for item in bill.items}["replaced chunks"] == 0.25 * 2e7 * 8
    assert bill.growth_bytes == pytest.approx(DAYS * (0.75 * 2e7 + 2 * figures.RECORD_BYTES))
    assert bill.growth_dollars == pytest.approx(bill.growth_bytes)


def test_small_objects_are_charged_by_the_least_size_of_the_class() -> None:
    load = Workload(commits_per_day=1, chunks_per_commit=0)
    assert estimate(load, known_prices()["s3-standard-ia"]).growth_bytes == DAYS * 131072


def test_prices_have_a_date_and_a_source_and_the_help_names_them() -> None:
    assert set(known_prices()) == set(_KNOWN.split(", "))
    for prices in known_prices().values():
        assert date.fromisoformat(prices.as_of) <= date.today()  # noqa: DTZ011 - a date without time
        assert prices.source.startswith("https://")
        assert min(prices.storage_gb_month, prices.put_1000, prices.get_1000, prices.list_1000) > 0


def test_the_command_needs_no_repository_and_prints_what_it_computes(cli: Cli) -> None:
    load = ("--size", "10TiB", "--commits-per-day", 24, "--reads-per-day", 100)
    found = cli("cost", *load, "--json").json
    workload = Workload(size=10 << 40, commits_per_day=24, reads_per_day=100)
    expected = estimate(workload, known_prices()["s3-standard"])
    assert found["total"]["dollars"] == expected.total.dollars
    assert found["workload"]["size"] == 10 << 40
    shown = cli("cost", *load).out
    assert "Amazon S3 Standard, us-east-1: prices of 2024-03-06, https://aws.amazon.com/s3/pricing/" in shown
    assert f"${expected.total.dollars:,.2f}" in shown


def test_workload_and_prices_come_from_files_and_options_change_them(cli: Cli, tmp_path: Path) -> None:
    load, prices = tmp_path / "load.json", tmp_path / "prices.json"
    load.write_text(json.dumps({"size": "1GiB", "commits_per_day": 0, "maintain_per_day": 0}))
    prices.write_text(json.dumps({"service": "MinIO", "storage_gb_month": 7}))
    files = ("--workload", load, "--prices", prices, "--json")
    assert cli("cost", *files).json["total"]["dollars"] == 7
    assert cli("cost", *files, "--size", "2GiB").json["total"]["dollars"] == 14
    assert cli("cost", *files, "--price", "storage_gb_month=0.5").json["total"]["dollars"] == 0.5
    again = tmp_path / "again.json"
    again.write_text(json.dumps(cli("cost", *files).json["workload"]))
    assert cli("cost", "--workload", again, "--prices", prices, "--json").json == cli("cost", *files).json


def test_a_repository_tells_its_own_workload(cli: Cli, made: Made) -> None:
    statistics = made.open().statistics()
    found = cli("cost", made.url, "--json").json["workload"]
    assert found["size"] == statistics.total_bytes
    assert found["commits_per_day"] == len(made.snapshots)  # made within seconds, which is no rate of a day
    stored = sum(each.native_bytes + each.inlined_bytes for each in statistics.arrays)
    assert found["chunk_size"] == stored / sum(each.chunks for each in statistics.arrays)
    assert cli("cost", made.url, "--commits-per-day", 5, "--json").json["workload"]["commits_per_day"] == 5
    before = made.files()
    cli("cost", made.url)
    assert made.files() == before


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (CommitRate(5, 5, 5, 9_000.0), 5),
        (CommitRate(5, 1, 2, 0.5), 0.5),
        (CommitRate(256, 256, 256, 9_000.0), 9_000),
        (CommitRate(1, 1, 1, None), 1),
    ],
)
def test_a_history_of_less_than_a_day_is_not_extrapolated(rate: CommitRate, expected: float) -> None:
    packs = PackStatistics(0, 0, 0, 0, ())
    assert observed(RepositoryStatistics("main", {}, (), (), packs, rate)).commits_per_day == expected


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--size", "ten"), "size 'ten' is not a valid size"),
        (("--size", "1TiB", "--commits-per-day", -1), "workload commits_per_day=-1.0 must be a number >= 0"),
        (("--size", "1TiB", "--commits-per-day", "nan"), "workload commits_per_day=nan must be a number >= 0"),
        (("--size", "1TiB", "--overwrite", 2), "workload overwrite=2.0 must be a fraction from 0 to 1"),
        (("--size", "1TiB", "--workers", 0), "workload workers=0.0 must be >= 1"),
        (("--size", "1TiB", "--chunk-size", "0"), "workload chunk_size=0 must be >= 1"),
        (("--size", "1TiB", "--prices", "cheap"), "'cheap' is neither a .json file nor one of s3-standard"),
        (("--size", "1TiB", "--price", "put=1"), "unknown price put: choose from"),
        (("--size", "1TiB", "--price", "put_1000"), "must be NAME=VALUE"),
        (("--size", "1TiB", "--price", "put_1000=x"), "'x' is not a number"),
        (("--size", "1TiB", "--price", "put_1000=-1"), "price put_1000=-1.0 must be a number >= 0"),
        (("--size", "1TiB", "--price", "gb_bytes=0"), "price gb_bytes=0.0 must be >= 1"),
        (("--workload", "missing.json"), "No such file or directory 'missing.json'"),
    ],
)
def test_bad_input_is_an_error_that_names_it(cli: Cli, arguments: tuple[object, ...], told: str) -> None:
    assert told in cli("cost", *arguments, code=1).err


@pytest.mark.parametrize(
    ("content", "told"),
    [("[]", "must hold a workload as a JSON object, not as list"), ("{", "does not hold a workload as JSON"),
     ('{"sise": 1}', "unknown workload sise: choose from"), ('{"size": null}', "workload size=None must be a number"),
     ('{"contiguous": 1}', "workload contiguous=1 must be true or false"), ("[" * 100_000, "as JSON")],
    ids=["a list", "no JSON", "unknown", "null", "a number", "deep"],
)  # fmt: skip
def test_a_bad_file_is_an_error_that_names_it(cli: Cli, tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "load.json"
    path.write_text(content)
    assert told in cli("cost", "--workload", path, code=1).err


def test_without_repository_and_size_the_command_says_what_it_needs(cli: Cli) -> None:
    assert "give a repository (URL), or a workload: --size" in cli("cost", code=2).err


@pytest.mark.parametrize("content", [{"service": 5}, {"put_1000": "1"}, {"put_1000": True}, {"gb_bytes": 0}])
def test_prices_of_wrong_types_are_refused(content: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="price "):
        Prices(**content)


@pytest.mark.parametrize("name", cost_page.tables())
def test_the_page_shows_the_prices_and_figures_of_the_calculator(name: str) -> None:
    # run `python -m tests.cli.cost_page` to write it anew
    assert cost_page.part(cost_page.PAGE.read_text(encoding="utf-8"), name) == cost_page.tables()[name]


def test_the_page_shows_what_its_first_command_prints(cli: Cli) -> None:
    page = cost_page.PAGE.read_text(encoding="utf-8")
    command = re.search(r"```bash\narraystore (cost .*)\n```", page.replace("\\\n", ""))
    shown = re.search(r"```text\n(.*?)```", page, re.DOTALL)
    assert command is not None
    assert shown is not None
    lines = [line.rstrip() for line in cli(*command[1].split()).out.splitlines()]
    assert lines == shown[1].splitlines()
