"""What a collection deletes, what it leaves, what it costs, and what becomes of one that dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import zarr
from zarr.core.buffer.core import default_buffer_prototype

from arraystore import (
    ArrayStoreError,
    CountingStorage,
    DeleteFailure,
    Repository,
    SnapshotExpiredError,
    in_memory_storage,
)
from arraystore._environment import ENVIRONMENT, Environment
from arraystore._history import missing_objects
from arraystore._history.missing_objects import check_not_expired
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError, ObjectNotFoundError, StorageError
from arraystore.storage import Storage
from arraystore.storage.protocol import BytesLike
from arraystore.storage.wrapper import WrapperStorage
from tests.commit.support import DistantStorage, commit_rows, copy_of, create_repository, keys
from tests.maintenance.model import CONFIG, now

NO_GRACE = timedelta(0)
CHUNK = 100


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    async def no_sleep(_seconds: float) -> None:
        await asyncio.sleep(0)

    token = ENVIRONMENT.set(Environment(sleep=no_sleep))
    yield
    ENVIRONMENT.reset(token)


def _write(session: Session, chunk: int, value: float) -> None:
    zarr.open_array(session.store, path="a", mode="r+")[chunk * CHUNK : (chunk + 1) * CHUNK] = value


def _values(session: Session) -> list[float]:
    array = zarr.open_array(session.store, path="a", mode="r")
    found = np.asarray(array[:]).reshape(-1, CHUNK)
    assert (found == found[:, :1]).all()
    return [float(value) for value in found[:, 0]]


def _with_garbage(storage: Storage | None = None) -> tuple[Storage, dict[str, list[float]]]:
    """Make a repository with a tag, a branch, expired snapshots, and what nobody committed; returns what is kept."""
    storage = storage or in_memory_storage()
    repository = Repository.create(storage, config=CONFIG)
    session = repository.writable_session("main")
    zarr.create_array(
        session.store, name="a", shape=(10 * CHUNK,), chunks=(CHUNK,), dtype="f8", compressors=None, fill_value=-1
    )
    ids = [session.commit("create")]
    held = {ids[0]: [-1.0] * 10}
    for number in range(24):
        session = repository.writable_session("main")
        first = number % 8
        for chunk in range(first, first + 3):
            _write(session, chunk, number)
        ids.append(session.commit(f"{number}"))
        held[ids[-1]] = [float(number) if first <= c < first + 3 else v for c, v in enumerate(held[ids[-2]])]
    repository.create_tag("kept", ids[10])
    repository.create_branch("dev", ids[12])
    session = repository.writable_session("dev")
    _write(session, 9, 99)
    own = session.commit("on dev")
    held[own] = [*held[ids[12]][:9], 99.0]
    abandoned = repository.writable_session("main")
    for chunk in range(10):
        _write(abandoned, chunk, 1000)
    abandoned.flush("abandoned")
    repository.create_branch("gone", ids[11])
    repository.delete_branch("gone")
    kept = [ids[10], own, *ids[-3:]]
    repository.expire_snapshots(repository.lookup_snapshot(ids[-3]).written_at)
    repository.wait_for_maintenance()
    return storage, {snapshot: held[snapshot] for snapshot in kept}


def _check(storage: Storage, kept: dict[str, list[float]]) -> None:
    repository = Repository.open(storage)
    for snapshot, values in kept.items():
        assert _values(repository.readonly_session(snapshot_id=snapshot)) == values
    assert _values(repository.readonly_session(tag="kept")) == next(iter(kept.values()))


def test_a_collection_leaves_what_is_kept_and_nothing_else() -> None:
    storage, kept = _with_garbage()
    before = set(keys(storage, "chunks/"))
    summary = Repository.open(storage).garbage_collect(now(), record_grace=NO_GRACE, nobody_writes=True)
    _check(storage, kept)
    counting = CountingStorage(storage)
    repository = Repository.open(counting)
    for snapshot in kept:
        _values(repository.readonly_session(snapshot_id=snapshot))
    assert set(keys(storage, "chunks/")) == {key for _, key in counting.log if key.startswith("chunks/")}
    assert summary.chunks_deleted == len(before) - len(keys(storage, "chunks/")) > 0
    assert summary.records_deleted > 0
    assert not summary.failures


def test_a_dry_run_tells_what_would_go_and_writes_nothing() -> None:
    storage, _ = _with_garbage()
    before = set(keys(storage))
    foreseen = Repository.open(storage).garbage_collect(now(), dry_run=True)
    assert set(keys(storage)) == before
    done = Repository.open(storage).garbage_collect(now())
    assert foreseen.dry_run
    assert foreseen.chunks_deleted == done.chunks_deleted > 0
    assert foreseen.manifests_deleted == done.manifests_deleted


class _Mortal(WrapperStorage):
    """Fails from some write or deletion on, which takes effect or not; what only reads makes no difference."""

    def __init__(self, inner: Storage, lives: int, *, lost: bool) -> None:
        super().__init__(inner)
        self.left = lives
        self._lost = lost

    def _step(self) -> bool:
        self.left -= 1
        if self.left < (-1 if self._lost else 0):
            raise StorageError("it is dead")
        return self.left < 0

    async def put(self, key: str, data: BytesLike) -> None:
        dies = self._step()
        await super().put(key, data)
        if dies:
            raise StorageError("it died")

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        dies = self._step()
        done = await super().put_if_absent(key, data)
        if dies:
            raise StorageError("it died")
        return done

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        dies = self._step()
        failures = await super().delete(keys[: len(keys) // 2] if dies else keys)
        if dies:
            raise StorageError("it died")
        return failures


@pytest.mark.parametrize("lost", [False, True], ids=["before", "after"])
def test_a_collection_that_dies_at_any_request_is_completed_by_the_next(lost: bool) -> None:
    original, kept = _with_garbage()
    cut_off = now()
    whole = copy_of(original)
    Repository.open(whole).garbage_collect(cut_off, full=True, record_grace=NO_GRACE, nobody_writes=True)
    expected, died = set(keys(whole, "chunks/")), 0
    for lives in range(100):
        storage = copy_of(original)
        mortal = _Mortal(storage, lives, lost=lost)
        try:
            Repository.open(mortal).garbage_collect(cut_off, record_grace=NO_GRACE, nobody_writes=True)
        except StorageError:
            died += 1
        _check(storage, kept)
        Repository.open(storage).garbage_collect(cut_off, full=True, record_grace=NO_GRACE, nobody_writes=True)
        _check(storage, kept)
        assert set(keys(storage, "chunks/")) == expected, lives
        if mortal.left >= 0:
            break
    assert mortal.left >= 0
    assert died > 5


class _Stubborn(WrapperStorage):
    """Refuses to delete packs."""

    async def delete(self, keys):  # type: ignore[no-untyped-def]
        refused = [key for key in keys if key.startswith("chunks/")]
        failures = await super().delete([key for key in keys if not key.startswith("chunks/")])
        return [*failures, *(DeleteFailure(key, "access denied") for key in refused)]


def test_what_cannot_be_deleted_is_told_and_tried_again_by_the_next_full_collection() -> None:
    storage, kept = _with_garbage()
    summary = Repository.open(_Stubborn(storage)).garbage_collect(now())
    assert summary.chunks_deleted == 0
    assert summary.manifests_deleted + summary.snapshots_deleted > 0
    assert {failure.reason for failure in summary.failures} == {"access denied"}
    again = Repository.open(storage).garbage_collect(now(), full=True)
    assert again.chunks_deleted == len(summary.failures)
    assert not again.failures
    _check(storage, kept)


def test_a_reader_of_what_has_expired_gets_an_error_that_says_so_and_never_fill_values() -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage, config=CONFIG)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(CHUNK,), chunks=(CHUNK,), dtype="f8", compressors=None)
    session.commit("create")
    for value in (1, 2):
        _write(session := repository.writable_session("main"), 0, value)
        last = session.commit(f"{value}")
        if value == 1:
            reader = Repository.open(storage).readonly_session("main")
    repository.expire_snapshots(repository.lookup_snapshot(last).written_at)
    assert _values(Repository.open(storage).readonly_session("main")) == [2.0]
    repository.garbage_collect(now())
    with pytest.raises(SnapshotExpiredError, match=f"(?s){reader.snapshot_id}.*expired"):
        zarr.open_array(reader.store, path="a", mode="r")[:]


def test_readers_of_what_has_expired_find_that_out_once() -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage, config=CONFIG)
    for _ in range(3):
        session = repository.writable_session("main")
        zarr.create_array(session.store, name="a", shape=(20 * CHUNK,), chunks=(CHUNK,), dtype="f8",
                          compressors=None, overwrite=True)[:] = np.arange(20 * CHUNK)  # fmt: skip
        last = session.commit("again")
    counting = CountingStorage(storage)
    parent = repository.lookup_snapshot(last).parent_id
    reader = Repository.open(counting).readonly_session(snapshot_id=parent)
    repository.expire_snapshots(repository.lookup_snapshot(last).written_at)
    repository.garbage_collect(now(), full=True)

    async def read(chunks: range) -> set[type]:
        calls = [reader.store.get(f"a/c/{chunk}", default_buffer_prototype()) for chunk in chunks]
        return {type(each) for each in await asyncio.gather(*calls, return_exceptions=True)}

    assert asyncio.run(read(range(1))) == {SnapshotExpiredError}
    counting.reset()
    assert asyncio.run(read(range(20))) == {SnapshotExpiredError}
    assert counting.counts.total <= 20


def test_readers_that_miss_something_at_a_time_look_twice_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    session = create_repository().readonly_session("main")
    began = 0

    async def check_kept(*_: object) -> None:
        nonlocal began
        began += 1
        await asyncio.sleep(0.01)

    async def miss_all() -> None:
        missing = ObjectNotFoundError("chunks/gone", "gone")
        await asyncio.gather(
            *(check_not_expired(session.context, session.base_tip.state, None, missing) for _ in range(20))
        )

    monkeypatch.setattr(missing_objects, "check_kept", check_kept)
    asyncio.run(miss_all())
    assert began == 2
    assert not session.context.checks


def test_a_moment_to_come_is_refused_and_one_without_a_zone() -> None:
    repository = create_repository()
    with pytest.raises(InvalidInputError, match="must be <= now"):
        repository.garbage_collect(datetime.now(UTC) + timedelta(minutes=1))
    with pytest.raises(ArrayStoreError):
        repository.garbage_collect(datetime.now())  # noqa: DTZ005 - that is the point


@pytest.mark.parametrize("live", [100, 400])
def test_a_collection_with_nothing_to_do_costs_some_twenty_requests_whatever_is_there(live: int) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commit_rows(repository, 0, live)
    repository.wait_for_maintenance()
    repository.garbage_collect(now(), full=True)
    for _ in range(2):
        counting = CountingStorage(DistantStorage(storage))
        opened = Repository.open(counting)
        counting.reset()
        summary = opened.garbage_collect(now())
        assert not summary.full
        assert not summary.objects_deleted
        counted = [(operation, key) for operation, key in counting.log if operation != "sync"]
        assert len(counted) <= 21, counted


def test_a_full_collection_finds_no_more_than_incremental_ones_have() -> None:
    storage, kept = _with_garbage()
    for number in range(5):
        repository = Repository.open(storage)
        repository.garbage_collect(now(), record_grace=NO_GRACE, nobody_writes=True)
        _write(session := repository.writable_session("main"), 1, number)
        made = session.commit("more")
        kept[made] = _values(repository.readonly_session("main"))
        _write(lost := repository.writable_session("main"), 2, number)
        lost.flush("lost")
    Repository.open(storage).garbage_collect(cut_off := now(), record_grace=NO_GRACE, nobody_writes=True)
    assert (
        Repository.open(storage)
        .garbage_collect(cut_off, full=True, record_grace=NO_GRACE, nobody_writes=True)
        .objects_deleted
        == 0
    )
    _check(storage, kept)


@pytest.mark.parametrize("full", [False, True])
def test_what_a_history_leads_through_is_kept_whole_though_no_branch_ever_committed_it(full: bool) -> None:
    """A flushed snapshot that a branch went on from is listed by its history, whatever expired since."""
    storage, _ = _with_garbage()
    repository = Repository.open(storage)
    _write(session := repository.writable_session("main"), 1, 77)
    flushed = session.flush("on no branch")
    expected = _values(repository.readonly_session(snapshot_id=flushed))
    repository.create_branch("side", flushed)
    for number in range(3):
        _write(session := repository.writable_session("side"), 1, number)
        newest = session.commit(f"covers the chunk {number}")
    repository.garbage_collect(now(), record_grace=NO_GRACE, nobody_writes=True)
    repository.expire_snapshots(repository.lookup_snapshot(newest).written_at)
    for _ in range(2):
        again = Repository.open(storage)
        again.garbage_collect(now(), full=full, record_grace=NO_GRACE, nobody_writes=True)
    assert flushed in [each.id for each in again.ancestry(branch="side")]
    assert _values(again.readonly_session(snapshot_id=flushed)) == expected
