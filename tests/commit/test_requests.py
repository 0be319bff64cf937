"""How many requests everything takes, exactly, and how many of them wait for one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import zarr

from arraystore import Repository, in_memory_storage
from arraystore._maintenance.fold import fold
from arraystore.storage import CountingStorage, Storage
from tests.commit.long_history import GROUP, ten_thousand_commits
from tests.commit.support import (
    DistantStorage,
    commit_number,
    copy_of,
    create_repository,
    number,
    paths,
    put_bytes,
    put_number,
    repository_at,
    requests,
    run_alone,
    tip_of,
    without_maintenance,
)
from tests.seams import context_of
from tests.tiers import mostly_thorough


def _near() -> CountingStorage:
    return CountingStorage(in_memory_storage())


def _distant() -> CountingStorage:
    return CountingStorage(DistantStorage(in_memory_storage()))


def _dear(storage: CountingStorage) -> list[str]:
    """Return the operations since the last reset; without looks at what costs nothing where probes are cheap.

    There, each commit looks whether the repository is still there, and whether a record stands behind its own.
    """
    free = [("get", "repo")] if storage.cheap_probes else []
    found = [(operation, key) for operation, key in storage.log if operation != "sync" and (operation, key) not in free]
    storage.reset()
    return [operation for operation, _ in found if operation != "head" or not storage.cheap_probes]


both = pytest.mark.parametrize("make", [_near, _distant])
Make = Callable[[], CountingStorage]


def _seen_from_afar(storage: CountingStorage) -> tuple[CountingStorage, DistantStorage]:
    distant = DistantStorage(storage.inner)
    return CountingStorage(distant), distant


@both
def test_creating_takes_four_requests_one_of_them_to_try_the_storage(make: Make) -> None:
    storage = make()
    Repository.create(storage)
    assert requests(storage) == {"list": 1, "put_if_absent": 3}


@pytest.mark.parametrize("sequence", [0, 1, 2, 64, 65, 71, 127, 128, 130, 191])
def test_a_cold_reader_takes_at_most_six_requests_in_three_rounds(sequence: int) -> None:
    storage = _near()
    repository_at(storage, sequence)
    counting, distant = _seen_from_afar(storage)
    session = Repository.open(counting).readonly_session("main")
    assert session.base_tip.sequence == sequence
    assert sum(requests(counting).values()) <= 6
    assert distant.rounds <= 3


def test_a_change_log_too_large_for_a_body_brings_a_checkpoint_so_that_readers_need_not_fetch_it() -> None:
    storage = _near()
    repository = create_repository(storage)
    session = repository.writable_session("main")
    group = zarr.open_group(session.store)
    for i in range(12):
        group.create_array(f"array{i}", shape=(10,), chunks=(5,), dtype="f8", attributes={"name": f"{i}" * 100})
    session.commit("an attached change log")
    repository.wait_for_maintenance()
    for i in range(62):
        commit_number(repository, i, i)
    counting, distant = _seen_from_afar(storage)
    assert "array7" in zarr.open_group(Repository.open(counting).readonly_session("main").store, mode="r")
    assert sum(requests(counting).values()) <= 6
    assert distant.rounds <= 3


@pytest.mark.parametrize("sequence", [0, 1, 63, 64, 65, 130])
def test_where_probes_are_cheap_a_cold_reader_lists_nothing_and_reads_no_more(sequence: int) -> None:
    storage = _near()
    repository_at(storage, sequence)
    storage.reset()
    Repository.open(storage).readonly_session("main")
    counted = requests(storage)
    assert counted["get"] <= 6
    assert counted["head"] <= 2 * 7 + 21  # the last ones ask for lost records, and for what was found
    assert counted.keys() == {"get", "head"}


def test_a_cold_reader_of_a_thousand_arrays_takes_at_most_six_requests_in_three_rounds() -> None:
    storage = _near()
    repository = create_repository(storage)
    session = repository.writable_session("main")
    group = zarr.open_group(session.store)
    for i in range(1000):
        group.create_array(f"array{i}", shape=(10,), chunks=(5,), dtype="f8", attributes={"long_name": f"array {i}"})
    session.commit("a thousand arrays")
    repository.wait_for_maintenance()
    commit_number(repository, 1, 1)
    counting, distant = _seen_from_afar(storage)
    cold = Repository.open(counting).readonly_session("main")
    assert len(paths(cold)) == 1001
    assert sum(requests(counting).values()) <= 6
    assert distant.rounds <= 3


@both
def test_a_warm_session_takes_one_request(make: Make) -> None:
    storage = make()
    repository = create_repository(storage)
    storage.reset()
    repository.writable_session("main")
    assert _dear(storage) == ["get"]
    repository.readonly_session("main")
    assert _dear(storage) == ["get"]


def test_a_branch_that_is_one_record_further_is_opened_without_a_listing() -> None:
    storage = _distant()
    repository = create_repository(storage)
    other = Repository.open(storage).writable_session("main")
    put_number(other, 1, 1)
    other.commit("one more")
    storage.reset()
    repository.writable_session("main")
    assert _dear(storage) == ["get", "get"]


@both
@pytest.mark.parametrize("first", mostly_thorough([1, 6, 7, 8, 62, 63, 64, 126, 127], every=3))
def test_committing_a_tiny_chunk_is_one_conditional_put_and_nothing_else(make: Make, first: int) -> None:
    """Whatever the record has to carry, and in sessions that found the log or just wrote it.

    With one exception: who writes a multiple of 64, and has not followed the branch from the last multiple of 512 on,
    reads one record for what that has to carry.
    """
    storage = make()
    without_maintenance(repository_at(storage, first))
    for turn, opened in enumerate((Repository.open(storage), Repository.open(storage))):
        without_maintenance(opened)
        for row in (1, 2):
            number = first + 2 * turn + row
            session = opened.writable_session("main")
            put_number(session, row, row)
            storage.reset()
            session.commit("tiny")
            found = _dear(storage)
            lacks_some = number % 64 == 0 and number > 64
            assert found == (["get", "put_if_absent"] if lacks_some else ["put_if_absent"])


@both
def test_creating_a_group_an_array_and_small_data_is_one_put(make: Make) -> None:
    storage = make()
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    storage.reset()
    group = zarr.create_group(session.store, attributes={"title": "small"})
    group.create_array("x", data=np.arange(100), chunks=(10,))
    session.commit("small data")
    assert _dear(storage) == ["put_if_absent"]


@both
def test_a_race_lost_to_a_fold_costs_two_reads_and_another_put(make: Make) -> None:
    storage = make()
    repository = repository_at(storage, 64)
    session = repository.writable_session("main")
    put_number(session, 1, 1)
    other = Repository.open(storage)
    run_alone(fold(context_of(other).log("main"), tip_of(other), context_of(other).reader))
    assert tip_of(other).sequence == 65
    without_maintenance(repository)
    storage.reset()
    session.commit("after the fold")
    counted = Counter(_dear(storage))
    assert counted["put_if_absent"] == 2
    assert counted.get("put", 0) == 0
    assert sum(counted.values()) <= 6
    assert number(Repository.open(storage).readonly_session("main"), 1) == 1


def _with_references(storage: Storage, count: int) -> Repository:
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    array = zarr.create_group(session.store).create_array(
        "v", shape=(count * 4,), chunks=(4,), dtype="i4", compressors=None
    )
    offsets = np.arange(count) * 16
    session.store.set_virtual_refs_arr(
        array.path,
        (count,),
        ["s3://elsewhere/file"] * count,
        offsets,
        np.full(count, 16),
        validate_containers=False,
        checksum=None,
    )
    session.commit("references")
    repository.wait_for_maintenance()
    return repository


def test_a_chunk_written_among_a_million_references_costs_no_more_than_among_ten() -> None:
    written = []
    for count in (10, 1_000_000):
        storage = _distant()
        repository = without_maintenance(_with_references(storage, count))
        session = repository.writable_session("main")
        chunk = np.random.default_rng(0).bytes(1 << 20)
        storage.reset()
        put_bytes(session, 5, chunk, "v")
        session.commit("one large chunk")
        operations = [operation for operation, _ in storage.log if operation != "sync"]
        assert operations.count("put") + operations.count("put_if_absent") <= 3
        assert set(operations) <= {"put", "put_if_absent"}
        written.append(storage.counts.bytes_written)
    assert written[1] < written[0] + 64


def test_any_snapshot_opens_by_its_id_in_a_handful_of_requests() -> None:
    storage = _near()
    repository_at(storage, 200)
    ids = [info.id for info in Repository.open(storage).ancestry(branch="main")][::-1]
    for at in (0, 1, 2, 63, 64, 65, 100, 128, 150, 199, 200):
        counting, _ = _seen_from_afar(storage)
        session = Repository.open(counting).readonly_session(snapshot_id=ids[at])
        assert session.base_tip.sequence == at
        assert sum(requests(counting).values()) <= 10
        if at > 2:
            assert (number(session, at), number(session, at + 1)) == (at, None)


def test_listing_a_history_takes_a_request_for_64_snapshots() -> None:
    storage = _near()
    repository_at(storage, 300)
    counting, _ = _seen_from_afar(storage)
    assert len(list(Repository.open(counting).ancestry(branch="main"))) == 301
    assert sum(requests(counting).values()) <= 300 // 64 + 8


def test_listing_the_newest_snapshots_reads_no_page_of_old_ones() -> None:
    storage = _near()
    repository_at(storage, 300)
    counting, _ = _seen_from_afar(storage)
    newest = Repository.open(counting).ancestry(branch="main")
    assert [next(newest).message for _ in range(3)] == ["row 300", "row 299", "row 298"]
    assert not [key for _, key in counting.log if key.startswith("history/")]
    assert sum(requests(counting).values()) <= 6


@pytest.mark.xdist_group(GROUP)
def test_after_ten_thousand_commits_everything_costs_what_it_did_after_a_hundred() -> None:
    storage = CountingStorage(copy_of(ten_thousand_commits()))
    counting, distant = _seen_from_afar(storage)
    cold = Repository.open(counting)
    session = cold.writable_session("main")
    assert sum(requests(counting).values()) <= 6
    assert distant.rounds <= 3
    put_number(session, 0, 0)
    session.commit("one more")
    assert requests(counting) == {"put_if_absent": 1}
    counting, _ = _seen_from_afar(storage)
    history = list(Repository.open(counting).ancestry(branch="main"))
    assert sum(requests(counting).values()) <= len(history) // 64
    for at in (len(history) - 3, 5000, 100):
        counting, _ = _seen_from_afar(storage)
        old = Repository.open(counting).readonly_session(snapshot_id=history[at].id)
        assert sum(requests(counting).values()) <= 10
        row = int(history[at].message.removeprefix("row "))
        assert number(old, row) == row
        assert number(old, row + 1) is None


def test_an_idle_session_of_an_old_snapshot_asks_for_nothing() -> None:
    storage = _near()
    repository = repository_at(storage, 10)
    session = repository.readonly_session("main")
    assert number(session, 5) == 5
    storage.reset()
    assert (number(session, 5), number(session, 6), tip_of(repository).sequence) == (5, 6, 10)
    assert _dear(storage) == ["get"]
