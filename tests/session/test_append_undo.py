"""An append to several arrays changes all of them or none, and blocks of appends end when the last one does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import (
    ConflictDetector,
    ForkSession,
    MergeConflictError,
    RebaseFailedError,
    Repository,
    RepositoryConfig,
    Session,
    SessionStateError,
    StorageError,
    in_memory_storage,
)
from arraystore._session.append_undo import all_or_none
from arraystore._session.regions import access
from arraystore.storage import Fault, FaultyStorage
from tests.tiers import mostly_thorough

NAMES = ("a", "b", "c")


class InterruptError(BaseException):
    """An interrupt."""


def create(session: Session, length: int, **options: Any) -> None:
    v2 = options.get("zarr_format") == 2
    names: dict[str, Any] = {"attributes": {"_ARRAY_DIMENSIONS": ["t", "x"]}} if v2 else {"dimension_names": ("t", "x")}
    for name in NAMES:
        zarr.create_array(session.store, name=name, shape=(length, 6), dtype="i4", **names, **options)[...] = 1


def more(value: int, count: int = 3) -> dict[str, Any]:
    return {name: np.full((count, 6), value) for name in NAMES}


def fail_at(monkeypatch: pytest.MonkeyPatch, path: str, *, after: bool) -> None:
    """Let the write to an array fail, before or after it was done."""
    write = access.write

    def failing(session: Any, at: str, selection: Any, data: Any) -> None:
        if at != path or after:
            write(session, at, selection, data)
        if at == path:
            raise InterruptError

    monkeypatch.setattr(access, "write", failing)


LAYOUTS: dict[str, dict[str, Any]] = {
    "inlined": {"chunks": (4, 3)},
    "packed": {"chunks": (400, 3)},
    "raw": {"chunks": (400, 3), "compressors": None},
    "raw in small chunks": {"chunks": (4, 3), "compressors": None},
    "shards": {"chunks": (2, 3), "shards": (4, 6)},
    "zarr 2": {"chunks": (4, 3), "zarr_format": 2},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("length", mostly_thorough([4, 0, 6]))
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_an_append_that_fails_between_two_arrays_leaves_all_as_they_were(
    session: Session, monkeypatch: pytest.MonkeyPatch, layout: str, length: int, after: bool
) -> None:
    create(session, length, **LAYOUTS[layout])
    session.commit("arrays")
    session = Repository.open(session.context.storage).writable_session("main")
    for earlier in (None, 2, 3):  # nothing appended yet; an append of the session; one whose chunks are in packs
        if earlier is not None:
            session.append(more(earlier), "t")
        before = {name: session.read(name) for name in NAMES}
        status = str(session.status())
        with monkeypatch.context() as patch:
            fail_at(patch, "b", after=after)
            with pytest.raises(InterruptError):
                session.append(more(9), "t")
        assert str(session.status()) == status
        assert session.has_uncommitted_changes == (earlier is not None)
        for name in NAMES:
            np.testing.assert_array_equal(session.read(name), before[name])
            np.testing.assert_array_equal(zarr.open_array(session.store, path=name, mode="r")[...], before[name])
    session.append(more(4), "t")
    session.commit("after all")
    expected = np.repeat([1, 2, 3, 4], [length, 3, 3, 3])
    for name in NAMES:
        np.testing.assert_array_equal(session.read(name), np.repeat(expected[:, None], 6, axis=1))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_nothing_of_a_failed_append_appears_when_an_array_grows_later(
    session: Session, monkeypatch: pytest.MonkeyPatch, layout: str, committed: bool
) -> None:
    create(session, 6, **LAYOUTS[layout])
    if committed:
        session.commit("arrays")
        session = Repository.open(session.context.storage).writable_session("main")
    session.append(more(2), "t")
    with monkeypatch.context() as patch:
        fail_at(patch, "c", after=True)
        with pytest.raises(InterruptError):
            session.append(more(9), "t")
    for name in NAMES:
        zarr.open_array(session.store, path=name).resize((15, 6))
        assert session.read(name, (..., 0)).tolist() == [1] * 6 + [2] * 3 + [0] * 6


def test_a_failed_append_leaves_no_mark_that_a_later_growth_would_become_an_append_by(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(session, 4, chunks=(4, 3))
    session.commit("arrays")
    repo = Repository.open(session.context.storage)
    mine, other = repo.writable_session("main"), repo.writable_session("main")
    with monkeypatch.context() as patch:
        fail_at(patch, "c", after=True)
        with pytest.raises(InterruptError):
            mine.append(more(2, 4), "t")
    for name in NAMES:
        zarr.open_array(mine.store, path=name).resize((8, 6))
    other.append(more(3, 4), "t")
    other.commit("appended")
    with pytest.raises(RebaseFailedError):
        mine.commit("resized", rebase_with=ConflictDetector())


def fail_after(session: Session, dim: str | None, work: Callable[[], None]) -> None:
    """Do something in a block that fails then."""
    with all_or_none(session.hierarchy, NAMES, dim):
        work()
        raise InterruptError


def extend(session: Session | ForkSession, count: int, names: Iterable[str] = NAMES) -> None:
    """Append to arrays through zarr."""
    for name in names:
        zarr.open_array(session.store, path=name).append(np.full((count, 6), 9))


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("dim", ["t", None])
def test_a_failed_write_collides_with_no_fork_that_was_taken_before(
    session: Session, dim: str | None, before: bool
) -> None:
    create(session, 6, chunks=(4, 3))
    session.commit("arrays")
    session = Repository.open(session.context.storage).writable_session("main")
    if before:
        session.fork()
        session.append(more(2), "t")
    grown, written = session.fork(), session.fork()
    extend(grown, 3, ["a"])
    written.write("b", (slice(4, 6), slice(None)), 4)
    with pytest.raises(InterruptError):
        fail_after(session, dim, lambda: extend(session, 5))
    session.merge(grown, written)
    assert session.read("a", (..., 0)).tolist() == [1] * 6 + [2] * 3 * before + [9] * 3
    assert session.read("b", (..., 0)).tolist() == [1] * 4 + [4] * 2 + [2] * 3 * before


@pytest.mark.parametrize("dim", ["t", None])
@pytest.mark.parametrize("change", ["write", "resize", "grow"])
def test_what_a_session_changed_before_a_failed_write_collides_as_before(
    session: Session, dim: str | None, change: str
) -> None:
    create(session, 6, chunks=(4, 3))
    session.commit("arrays")
    session = Repository.open(session.context.storage).writable_session("main")
    fork = session.fork()
    array = zarr.open_array(session.store, path="a")
    if change == "write":
        array[4:6] = 5
        fork.write("a", (slice(4, 6), slice(None)), 6)
    elif change == "resize":
        array.resize((4, 6))
        array.resize((6, 6))
        fork.write("a", (slice(4, 6), slice(None)), 6)
    else:
        array.resize((7, 6))
        zarr.open_array(fork.store, path="a").resize((8, 6))
    with pytest.raises(InterruptError):
        fail_after(session, dim, lambda: extend(session, 3))
    with pytest.raises(MergeConflictError):
        session.merge(fork)


def test_a_fork_taken_within_a_write_that_fails_collides_with_what_it_undoes(session: Session) -> None:
    create(session, 6, chunks=(4, 3))
    session.commit("arrays")
    session = Repository.open(session.context.storage).writable_session("main")
    forks = [session.fork()]

    def work() -> None:
        extend(session, 3)
        forks.append(session.fork())
        extend(session, 3)

    with pytest.raises(InterruptError):
        fail_after(session, "t", work)
    forks[1].write("a", (slice(8, 9), slice(None)), 6)
    with pytest.raises(MergeConflictError):
        session.merge(forks[1])


def test_an_append_before_a_failed_write_stays_one(session: Session) -> None:
    create(session, 4, chunks=(4, 3))
    session.commit("arrays")
    repo = Repository.open(session.context.storage)
    mine, other = repo.writable_session("main"), repo.writable_session("main")
    mine.append(more(2, 4), "t")

    def work() -> None:
        zarr.create_array(mine.store, name="a", shape=(1,), dtype="i4", overwrite=True)

    with pytest.raises(InterruptError):
        fail_after(mine, None, work)
    other.append(more(3, 4), "t")
    other.commit("appended")
    mine.commit("appended, too", rebase_with=ConflictDetector())
    assert repo.readonly_session("main").read("a", (..., 0)).tolist() == [1] * 4 + [3] * 4 + [2] * 4


def test_an_append_whose_last_chunk_cannot_be_read_changes_nothing_and_can_be_repeated() -> None:
    storage = in_memory_storage()
    repo = Repository.create(storage, config=RepositoryConfig(inline_chunk_threshold_bytes=0))
    for name in NAMES:  # each in a pack of its own
        session = repo.writable_session("main")
        zarr.create_array(
            session.store, name=name, shape=(6, 6), chunks=(4, 6), dtype="i4", dimension_names=("t", "x")
        )[...] = np.random.default_rng(0).integers(0, 1 << 30, (6, 6))
        session.commit(name)
    faulty = FaultyStorage(storage, [Fault("*", "chunks/*", first=2, times=None)])
    session = Repository.open(faulty).writable_session("main")
    with pytest.raises(StorageError, match="on purpose"):
        session.append(more(2), "t")
    assert not session.has_uncommitted_changes
    assert {operation for operation, *_ in faulty.injected} <= {"get", "get_ranges"}
    faulty._faults = ()
    session.append(more(2), "t")
    session.commit("appended")
    assert [session.read(name, (slice(6, None), 0)).tolist() for name in NAMES] == [[2, 2, 2]] * 3


@pytest.mark.parametrize("nested", [False, True])
def test_blocks_of_appends_end_when_the_last_one_does(session: Session, nested: bool) -> None:
    create(session, 4, chunks=(4, 3))
    session.commit("arrays")
    session = Repository.open(session.context.storage).writable_session("main")
    mode = session.hierarchy.writable().append_mode
    first, second = session.appending("t"), session.appending("t")
    first.__enter__()
    second.__enter__()
    (second if nested else first).__exit__(None, None, None)
    assert mode.dimension == "t"
    with pytest.raises(SessionStateError, match="appending along 't' already"), session.appending("x"):
        pass
    assert mode.dimension == "t"
    (first if nested else second).__exit__(None, None, None)
    assert mode.dimension is None
    with session.appending("x"):
        assert mode.dimension == "x"


def test_blocks_of_many_threads_leave_nothing_behind(session: Session) -> None:
    mode = session.hierarchy.writable().append_mode
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for _ in range(200):
            with session.appending("t"):
                assert mode.dimension == "t"

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mode.dimension is None


def rebase(session: Session) -> None:
    session.rebase(ConflictDetector())


@pytest.mark.parametrize("change", [Session.discard_changes, rebase])
def test_a_block_goes_on_after_the_changes_were_replaced(session: Session, change: Callable[[Session], None]) -> None:
    create(session, 4, chunks=(4, 3))
    session.commit("arrays")
    repo = Repository.open(session.context.storage)
    mine, other, last = (repo.writable_session("main") for _ in range(3))
    other.append(more(2, 4), "t")
    other.commit("appended")
    with mine.appending("t") as store:
        zarr.create_group(store, path="g")
        change(mine)
        for name in NAMES:
            array = zarr.open_array(mine.store, path=name)
            length = array.shape[0]
            array.resize((length + 4, 6))
            array[length:] = 3
    assert mine.hierarchy.writable().append_mode.dimension is None
    last.append(more(4, 4), "t")
    last.commit("appended", rebase_with=ConflictDetector())
    mine.commit("in a block", rebase_with=ConflictDetector())
    assert repo.readonly_session("main").read("a", (slice(None), 0)).tolist()[::4] == [1, 2, 4, 3]


def test_a_commit_amid_an_append_is_refused_and_later_has_all_of_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(session, 4, chunks=(4, 3))
    write, refused = access.write, []

    def committing(*args: Any) -> None:
        write(*args)
        with pytest.raises(SessionStateError, match="written to in another thread") as caught:
            session.commit("half of it")
        refused.append(caught)

    with monkeypatch.context() as patch:
        patch.setattr(access, "write", committing)
        session.append(more(2), "t")
    assert len(refused) == len(NAMES)
    session.commit("all of it")
    assert [session.read(name).shape for name in NAMES] == [(7, 6)] * 3
