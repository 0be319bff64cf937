"""Lost acknowledgements, failing storages, interrupted callers: a commit happens once, or not at all, and says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from arraystore import ConflictError, ReadOnlyError, Repository, SessionStateError, Storage, in_memory_storage
from arraystore._environment import Environment
from arraystore._format.ids import id_to_text
from arraystore._log.branch_log import AppendUncertainError
from arraystore._maintenance.fold import fold
from arraystore._session.session import Session
from arraystore.errors import StorageError
from arraystore.storage import Fault, FaultyStorage
from arraystore.storage.protocol import BytesLike
from arraystore.storage.wrapper import WrapperStorage
from tests.commit.support import (
    commit_number,
    commit_rows,
    commits_in,
    create_repository,
    keys,
    number,
    put_bytes,
    put_number,
    repository_at,
    run_alone,
    tip_of,
)
from tests.seams import context_of
from tests.tiers import mostly_thorough

RECORD = "refs/*/branch/main/*"
EVERY = 6
"""How often a record is tried before the outcome counts as unknown."""


async def _at_once(_: float) -> None:
    """Sleep for no time."""


def _open(storage: Storage) -> Repository:
    repository = Repository.open(storage)
    context_of(repository).environment = Environment(sleep=_at_once)
    return repository


def _failing(*faults: Fault) -> tuple[Storage, FaultyStorage, Session]:
    """Return a repository's storage, a failing face of it, and a session through that with row 1 written."""
    inner = in_memory_storage()
    create_repository(inner)
    storage = FaultyStorage(inner, faults)
    session = _open(storage).writable_session("main")
    put_number(session, 1, 11)
    return inner, storage, session


def _committed_once(storage: Storage, session: Session, row: int = 1, value: int = 11) -> bool:
    found = [id_to_text(snapshot) for _, snapshot in commits_in(storage)]
    reader = Repository.open(storage).readonly_session("main")
    return len(found) == 2 and found[-1] == session.snapshot_id and number(reader, row) == value


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("times", [1, 3, EVERY - 1])
def test_a_record_whose_acknowledgements_are_lost_is_committed_exactly_once(when: str, times: int) -> None:
    inner, storage, session = _failing(Fault("put_if_absent", RECORD, when=when, times=times))  # type: ignore[arg-type]
    assert session.commit("once") == session.snapshot_id
    assert len(storage.injected) == times
    assert _committed_once(inner, session)
    assert session.read_only


@pytest.mark.parametrize("when", ["before", "after"])
def test_when_the_storage_stays_down_a_second_commit_finds_out(when: str) -> None:
    inner, storage, session = _failing(Fault("put_if_absent", RECORD, when=when, times=EVERY))  # type: ignore[arg-type]
    with pytest.raises(AppendUncertainError, match="never commits twice"):
        session.commit("once")
    assert len(storage.injected) == EVERY
    assert len(commits_in(inner)) == (2 if when == "after" else 1)
    session.commit("once")
    assert _committed_once(inner, session)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_second_commit_that_cannot_ask_leaves_the_question_open_for_a_third(when: str) -> None:
    inner, _, session = _failing(
        Fault("put_if_absent", RECORD, when=when, times=EVERY),  # type: ignore[arg-type]
        Fault("get", "refs/*/branch/main/000000000002", times=2),
    )
    with pytest.raises(AppendUncertainError):
        session.commit("once")
    for _ in range(2):
        with pytest.raises(StorageError, match="on purpose"):
            session.commit("once")
    session.commit("once")
    assert _committed_once(inner, session)


def test_while_the_outcome_is_unknown_nothing_can_be_written_or_discarded() -> None:
    inner, _, session = _failing(Fault("put_if_absent", RECORD, when="after", times=EVERY))
    with pytest.raises(AppendUncertainError):
        session.commit("once")
    with pytest.raises(SessionStateError, match="call commit again"):
        put_number(session, 2, 22)
    with pytest.raises(SessionStateError, match="call commit again"):
        session.discard_changes()
    assert number(session, 1) == 11
    session.commit("once")
    assert _committed_once(inner, session)


def test_a_session_whose_commit_was_found_is_as_finished_as_any_other() -> None:
    _, _, session = _failing(Fault("put_if_absent", RECORD, when="after", times=EVERY))
    with pytest.raises(AppendUncertainError):
        session.commit("once")
    session.commit("once")
    with pytest.raises(ReadOnlyError):
        session.commit("twice")
    with pytest.raises(ReadOnlyError):
        put_number(session, 2, 22)


def test_a_record_that_arrived_is_found_behind_the_commits_of_others() -> None:
    inner, _, session = _failing(Fault("put_if_absent", RECORD, when="after", times=EVERY))
    with pytest.raises(AppendUncertainError):
        session.commit("once")
    commit_rows(Repository.open(inner), 100, 180)
    snapshot = session.commit("once")
    found = [id_to_text(identifier) for _, identifier in commits_in(inner)]
    assert found.index(snapshot) == 1
    assert found.count(snapshot) == 1
    assert (number(session, 1), number(session, 100)) == (11, None)


def test_a_record_that_did_not_arrive_conflicts_when_another_writer_has_taken_its_number() -> None:
    inner, _, session = _failing(Fault("put_if_absent", RECORD, when="before", times=EVERY))
    with pytest.raises(AppendUncertainError):
        session.commit("once")
    other = commit_number(Repository.open(inner), 2, 2)
    with pytest.raises(ConflictError) as caught:
        session.commit("once")
    assert caught.value.actual_parent == other
    assert [id_to_text(identifier) for _, identifier in commits_in(inner)][1:] == [other]
    session.discard_changes()  # the outcome is known by now
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize("when", mostly_thorough(["after", "before"]))
def test_a_record_in_doubt_is_resolved_across_a_fold(when: str) -> None:
    inner = in_memory_storage()
    repository_at(inner, 64)
    session = _open(FaultyStorage(inner, [Fault("put_if_absent", RECORD, when=when, times=EVERY)])).writable_session(  # type: ignore[arg-type]
        "main"
    )
    put_number(session, 1, 11)
    with pytest.raises(AppendUncertainError):
        session.commit("once")
    repository = Repository.open(inner)
    tip = tip_of(repository)
    run_alone(fold(context_of(repository).log("main"), tip, context_of(repository).reader))
    snapshot = session.commit("once")
    found = [(at, id_to_text(identifier)) for at, identifier in commits_in(inner)]
    assert [at for at, identifier in found if identifier == snapshot] == [65 if when == "after" else 66]
    assert number(Repository.open(inner).readonly_session("main"), 1) == 11


class _Interrupting(WrapperStorage):
    """Lets the first record through, or not, and then keeps its writer waiting forever."""

    def __init__(self, inner: Storage, arrives: bool) -> None:
        super().__init__(inner)
        self.arrives = arrives
        self.waiting = threading.Event()
        self.first = True

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        if not self.first:
            return await super().put_if_absent(key, data)
        self.first = False
        if self.arrives:
            await super().put_if_absent(key, data)
        self.waiting.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody ends this wait")


@pytest.mark.parametrize("arrives", [False, True])
async def test_a_commit_that_is_cancelled_is_resolved_by_the_next_one(arrives: bool) -> None:
    inner = in_memory_storage()
    await asyncio.to_thread(create_repository, inner)
    storage = _Interrupting(inner, arrives)
    repository = await Repository.open_async(storage)
    session = await repository.writable_session_async("main")
    put_number(session, 1, 11)
    task = asyncio.create_task(session.commit_async("once"))
    assert await asyncio.to_thread(storage.waiting.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await session.commit_async("once")
    assert await asyncio.to_thread(_committed_once, inner, session)


# -- before the record --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100_000, 2_000_000])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_pack_that_cannot_be_uploaded_leaves_nothing_visible_and_the_commit_can_be_repeated(
    size: int, when: str
) -> None:
    inner = in_memory_storage()
    create_repository(inner)
    storage = FaultyStorage(inner, [Fault("put", "chunks/*", when=when, times=2)])  # type: ignore[arg-type]
    storage.cheap_probes = False  # so that large chunks are uploaded in the background too
    session = _open(storage).writable_session("main")
    data = bytes(range(256)) * (size // 256)
    put_bytes(session, 1, data)
    failures = 0
    while not session.read_only:
        try:
            session.commit("with a pack")
        except StorageError:
            failures += 1
            assert len(commits_in(inner)) == 1
            assert Repository.open(inner).readonly_session("main").store.get_sync("a/c/1") is None
            assert session.has_uncommitted_changes
    assert 1 <= failures <= 2
    found = Repository.open(inner).readonly_session("main").store.get_sync("a/c/1")
    assert found is not None
    assert found.to_bytes() == data
    assert len(commits_in(inner)) == 2


@pytest.mark.parametrize("fault", [Fault("put", "manifests/*"), Fault("sync")])
def test_a_manifest_that_cannot_be_made_durable_leaves_nothing_visible(fault: Fault) -> None:
    inner = in_memory_storage()
    create_repository(inner)
    session = _open(FaultyStorage(inner, [fault])).writable_session("main")
    random = np.random.default_rng(0)
    for row in range(0, 80_000, 2):  # more than can be attached to a record
        session.hierarchy.set_sync(f"a/c/{row}", memoryview(row.to_bytes(4, "little") + random.bytes(8)))
    with pytest.raises(StorageError, match="on purpose"):
        session.commit("many rows")
    assert len(commits_in(inner)) == 1
    put_number(session, 1, 11)  # may still be written to
    session.commit("many rows")
    reader = Repository.open(inner).readonly_session("main")
    assert (number(reader, 1), number(reader, 3)) == (11, None)
    assert [number_prefix(reader, row) for row in (0, 2, 79_998)] == [0, 2, 79_998]
    assert keys(inner, "manifests/")


def test_a_storage_that_contradicts_itself_is_an_error_and_no_endless_loop() -> None:
    class _Never(WrapperStorage):
        async def put_if_absent(self, key: str, data: BytesLike) -> bool:
            return False

    inner = in_memory_storage()
    create_repository(inner)
    session = _open(_Never(inner)).writable_session("main")
    put_number(session, 1, 11)
    with pytest.raises(StorageError, match="contradicts itself"):
        session.commit("never")
    assert len(commits_in(inner)) == 1


# -- one commit at a time -----------------------------------------------------------------------------------------


class _Held(WrapperStorage):
    """Holds every record until it is let go."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.held = threading.Event()
        self.go = threading.Event()

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        self.held.set()
        assert await asyncio.to_thread(self.go.wait, 30)
        return await super().put_if_absent(key, data)


async def test_while_a_commit_is_in_progress_the_session_takes_neither_writes_nor_a_second_commit() -> None:
    inner = in_memory_storage()
    await asyncio.to_thread(create_repository, inner)
    storage = _Held(inner)
    session = await (await Repository.open_async(storage)).writable_session_async("main")
    put_number(session, 1, 11)
    task = asyncio.create_task(session.commit_async("slow"))
    assert await asyncio.to_thread(storage.held.wait, 30)
    for attempt in (
        lambda: put_number(session, 2, 22),
        session.discard_changes,
    ):
        with pytest.raises(SessionStateError, match="being committed"):
            attempt()
    with pytest.raises(SessionStateError, match="being committed"):
        await session.commit_async("second")
    storage.go.set()
    await task
    assert await asyncio.to_thread(_committed_once, inner, session)


def test_of_many_threads_that_commit_one_session_exactly_one_does() -> None:
    inner = in_memory_storage()
    repository = create_repository(inner)
    session = repository.writable_session("main")
    put_number(session, 1, 11)

    def attempt(_: int) -> bool:
        try:
            session.commit("once")
        except (SessionStateError, ReadOnlyError):
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 1
    assert _committed_once(inner, session)


def _faults(seed: int) -> Sequence[Fault]:
    return [
        Fault(operation, key, when=when, times=None, probability=0.15)  # type: ignore[arg-type]
        for operation, key in (("put", "*"), ("put_if_absent", RECORD), ("get", RECORD))
        for when in ("before", "after")
    ] + [Fault("list", times=seed % 3, probability=0.5)]


@pytest.mark.parametrize("seed", range(12))
def test_under_random_failures_what_is_acknowledged_is_there_once_and_nothing_else_is(seed: int) -> None:
    inner = in_memory_storage()
    create_repository(inner)
    storage = FaultyStorage(inner, _faults(seed), seed=seed)
    repository = _until_it_works(lambda: _open(storage))
    acknowledged = []
    for row in range(30):
        session = _until_it_works(lambda: repository.writable_session("main"))
        put_bytes(session, row, row.to_bytes(4, "little") * (200 if row % 3 else 1))
        snapshot = _until_it_works(lambda session=session, row=row: session.commit(f"row {row}"))  # type: ignore[misc]
        acknowledged.append(snapshot)
    assert storage.injected
    assert [id_to_text(identifier) for _, identifier in commits_in(inner)][1:] == acknowledged
    reader = Repository.open(inner).readonly_session("main")
    for row in range(30):
        assert number_prefix(reader, row) == row


def number_prefix(session: Session, row: int) -> int:
    found = session.store.get_sync(f"a/c/{row}")
    assert found is not None
    return int.from_bytes(found.to_bytes()[:4], "little")


def _until_it_works(action):  # type: ignore[no-untyped-def]
    for _ in range(200):
        try:
            return action()
        except StorageError:
            continue
    raise AssertionError("it never worked")
