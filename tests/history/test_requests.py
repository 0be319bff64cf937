"""What diffs and long histories cost, in requests to a distant storage."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import zarr

from arraystore import CountingStorage, Repository, SnapshotInfo, Storage, in_memory_storage
from arraystore._history import compare
from arraystore._session.session import Session
from tests.commit.long_history import GROUP, ten_thousand_commits
from tests.commit.support import (
    DistantStorage,
    commit_number,
    create_repository,
    put_bytes,
    put_number,
    requests,
    tip_of,
)


def _opened(storage: Storage) -> tuple[Repository, CountingStorage, DistantStorage]:
    """Open a repository as if from afar, and count from here on."""
    distant = DistantStorage(storage)
    counting = CountingStorage(distant)
    repository = Repository.open(counting)
    counting.reset()
    distant.start()
    return repository, counting, distant


def _apart(change, count: int = 1000) -> tuple[Storage, str, str]:  # type: ignore[no-untyped-def]
    """Make a repository with two snapshots that are some commits apart."""
    storage = in_memory_storage()
    repository = create_repository(storage)
    for row in range(30):
        first = commit_number(repository, row, row)
    last = first
    for at in range(count):
        session = repository.writable_session("main")
        change(session, at)
        last = session.commit(f"{at}")
        if at % 64 == 0:
            repository.wait_for_maintenance()
    repository.wait_for_maintenance()
    return storage, first, last


def _tiny(session: Session, at: int) -> None:
    put_number(session, 100 + at * 7 % 1000, at)


def _large(session: Session, at: int) -> None:
    put_bytes(session, 100 + at * 7 % 1000, np.full(300, at, dtype="<i4").tobytes())


def _appended(session: Session, at: int) -> None:
    if not at:
        zarr.create_array(
            session.store, name="grown", shape=(5,), chunks=(1,), dtype="i4", compressors=None, dimension_names=["time"]
        )
        return
    session.append({"grown": np.array([at], dtype="i4")}, "time")


@pytest.mark.parametrize("change", [_tiny, _large])
def test_a_diff_over_a_thousand_commits_of_a_chunk_takes_at_most_twenty_requests(change) -> None:  # type: ignore[no-untyped-def]
    storage, first, last = _apart(change)
    for one, other in ((first, last), (last, first)):
        repository, counting, _ = _opened(storage)
        diff = repository.diff(from_snapshot_id=one, to_snapshot_id=other)
        counted = requests(counting)
        assert sum(counted.values()) <= 20, counted
        assert set(counted) <= {"get", "list"}
        assert sorted(diff.updated_chunks) == ["/a"]
        assert diff.updated_chunks["/a"][:, 0].tolist() == list(range(100, 1100))


def test_a_diff_over_a_thousand_appends_takes_at_most_twenty_requests() -> None:
    storage, first, last = _apart(_appended)
    repository, counting, _ = _opened(storage)
    diff = repository.diff(from_snapshot_id=first, to_snapshot_id=last)
    assert sum(requests(counting).values()) <= 20
    assert diff.updated_chunks["/grown"][:, 0].tolist() == list(range(5, 1004))
    assert diff.new_arrays == {"/grown"}


def test_chunks_much_younger_than_all_that_two_snapshots_share_are_not_looked_for_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    session = repository.writable_session("main")
    for row in range(300):
        put_number(session, row, row)
    first = session.commit("what both share")
    base = {layer.key for layer in tip_of(repository).state.nodes["a"].layers}
    for row in range(2):
        session = repository.writable_session("main")
        put_bytes(session, row, bytes(1000))
        last = session.commit("young")
    for most, read in ((compare._CLOCKS_DIFFER, True), (-3_600_000, False)):
        monkeypatch.setattr(compare, "_CLOCKS_DIFFER", most)
        opened, _, _ = _opened(storage)
        loaded: set[str] = set()
        load = opened.context.manifests.load

        async def noted(layer, load=load, loaded=loaded):  # type: ignore[no-untyped-def]
            loaded.add(layer.key)
            return await load(layer)

        monkeypatch.setattr(opened.context.manifests, "load", noted)
        diff = opened.diff(from_snapshot_id=first, to_snapshot_id=last)
        assert diff.updated_chunks["/a"].tolist() == [[0], [1]]
        assert (base <= loaded) == read


def test_a_diff_of_neighbours_reads_nothing_of_what_both_share() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    session = repository.writable_session("main")
    store = session.store
    zarr.create_array(store, name="v", shape=(4_000_000,), chunks=(4,), dtype="i4", compressors=None)
    offsets = np.arange(1_000_000) * 16
    urls = ["s3://elsewhere/file"] * len(offsets)
    store.set_virtual_refs_arr(
        "v", (len(offsets),), urls, offsets, np.full(len(offsets), 16), validate_containers=False, checksum=None
    )
    first = session.commit("a million references")
    repository.wait_for_maintenance()
    session = repository.writable_session("main")
    put_number(session, 500_000, 7, "v")
    last = session.commit("one of them written")
    opened, counting, _ = _opened(storage)
    diff = opened.diff(from_snapshot_id=first, to_snapshot_id=last)
    assert diff.updated_chunks["/v"].tolist() == [[500_000]]
    assert len([key for operation, key in counting.log if key.startswith("manifests/")]) <= 1
    assert sum(requests(counting).values()) <= 20


def test_manifests_that_travel_in_one_record_are_read_with_one_request() -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    for i in range(12):
        zarr.create_array(session.store, name=f"a{i}", shape=(2000,), chunks=(100,), dtype="i4", compressors=None)
    first = session.commit("arrays")
    session = repository.writable_session("main")
    for i in range(12):
        zarr.open_array(session.store, path=f"a{i}")[:] = np.random.default_rng(i).integers(1 << 31, size=2000)
    last = session.commit("values")
    assert all(tip_of(repository).state.nodes[f"a{i}"].layers[0].attachment is not None for i in range(12))
    repository.wait_for_maintenance()
    opened, counting, _ = _opened(storage)
    diff = opened.diff(from_snapshot_id=first, to_snapshot_id=last)
    assert [len(coords) for coords in diff.updated_chunks.values()] == [20] * 12
    assert sum(requests(counting).values()) <= 14


@pytest.fixture(scope="module")
def long_ago() -> tuple[Storage, list[SnapshotInfo]]:
    """A repository of more than 10,000 commits, and its history."""
    storage = ten_thousand_commits()
    return storage, list(Repository.open(storage).ancestry(branch="main"))


@pytest.mark.xdist_group(GROUP)
def test_a_history_of_ten_thousand_commits_is_listed_in_sixty_requests_the_first_page_of_it_in_three(
    long_ago: tuple[Storage, list[SnapshotInfo]],
) -> None:
    storage, _ = long_ago
    repository, counting, distant = _opened(storage)
    assert len(list(islice(repository.ancestry(branch="main"), 10))) == 10
    assert sum(requests(counting).values()) <= 3
    assert distant.rounds <= 3

    repository, counting, _ = _opened(storage)
    history = list(repository.ancestry(branch="main"))
    assert len(history) > 10_000
    assert sum(requests(counting).values()) <= 60
    assert [info.parent_id for info in history] == [info.id for info in history[1:]] + [None]

    repository, counting, _ = _opened(storage)
    assert str(repository.ancestry_graph(limit=30)).count("●") == 30
    assert sum(requests(counting).values()) <= 8


@pytest.mark.xdist_group(GROUP)
def test_a_look_at_ten_thousand_commits_takes_a_handful_of_requests_and_a_page(
    long_ago: tuple[Storage, list[SnapshotInfo]],
) -> None:
    storage, history = long_ago
    for most in (20_000, 30_000):
        repository, counting, _ = _opened(storage)
        shown = repository if most == 20_000 else repository.ancestry(branch="main")
        assert len(shown._repr_html_()) <= most
        assert sum(requests(counting).values()) <= 8
    repository, counting, _ = _opened(storage)
    assert history[0].id in repr(repository.ancestry(branch="main"))
    assert sum(requests(counting).values()) <= 3


@pytest.mark.xdist_group(GROUP)
def test_a_session_of_any_moment_among_ten_thousand_commits_takes_a_handful_of_requests(
    long_ago: tuple[Storage, list[SnapshotInfo]],
) -> None:
    storage, history = long_ago
    for at in (0, 20, 70, 200, 2000, 6000, 9000, len(history) - 1):
        repository, counting, _ = _opened(storage)
        session = repository.readonly_session("main", as_of=history[at].written_at)
        assert session.snapshot_id == next(info.id for info in history if info.written_at <= history[at].written_at)
        assert sum(requests(counting).values()) <= 16
