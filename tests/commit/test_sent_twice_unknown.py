"""Requests that are sent twice: what stays unknown is deleted by nobody, and the caller is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from arraystore import (
    Repository,
    SessionExpiredError,
    SessionStateError,
    in_memory_storage,
)
from arraystore._environment import ENVIRONMENT, Environment
from arraystore._format.envelope import Kind
from arraystore._format.ids import id_to_text
from arraystore._format.record import Record
from arraystore._log.branch_log import AppendUncertainError
from arraystore._maintenance.lease import LeaseTakenError, leased
from arraystore.errors import StorageError
from arraystore.storage import Storage
from arraystore.storage.protocol import BytesLike, ObjectInfo
from arraystore.storage.wrapper import WrapperStorage
from tests.commit.sent_twice import (
    COMMITS,
    SentTwice,
    check_whole,
    commit_row,
    copy_of,
    put_row,
)
from tests.commit.support import commits_in, delete, keys, run_alone
from tests.seams import context_of

pytestmark = pytest.mark.usefixtures("manifests_outside")


# -- what stays unknown -----------------------------------------------------------------------------------------------


async def _at_once(_: float) -> None:
    """Sleep for no time."""


@pytest.fixture
def impatient() -> Iterator[None]:
    """Let everything that waits before it tries again do so at once."""
    token = ENVIRONMENT.set(Environment(sleep=_at_once))
    yield
    ENVIRONMENT.reset(token)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("operation", ["compact", "rewrite"])
def test_of_layers_whose_record_may_have_arrived_nothing_is_deleted(
    operation: str, built: tuple[list[tuple[str, bytes]], list[str]]
) -> None:
    inner = copy_of(built[0])
    repository = Repository.open(SentTwice(inner, "down", Kind.RECORD))
    fold: dict[str, Callable[[], object]] = {
        "compact": repository.compact,
        "rewrite": lambda: repository.rewrite_manifests("fewer", branch="main"),
    }
    with pytest.raises(AppendUncertainError, match="look whether it has happened"):
        fold[operation]()
    check_whole(inner)
    Repository.open(inner).compact()
    check_whole(inner)


class _Hanging(WrapperStorage):
    """Lets a record through, and keeps its writer waiting for the answer, or for a look at what is there."""

    def __init__(self, inner: Storage, where: str) -> None:
        super().__init__(inner)
        self.where = where
        self.key = ""
        self.waiting = threading.Event()
        self.go = threading.Event()

    async def _wait(self, where: str, key: str) -> None:
        if key == self.key and where == self.where and not self.waiting.is_set():
            self.waiting.set()
            await asyncio.to_thread(self.go.wait, 30)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        written = await super().put_if_absent(key, data)
        if bytes(data)[5] == Kind.RECORD and not self.key:
            self.key = key
            await self._wait("put", key)
            return False
        return written

    async def get(self, key: str) -> BytesLike:
        await self._wait("look", key)
        return await super().get(key)

    async def head(self, key: str) -> ObjectInfo:
        await self._wait("look", key)
        return await super().head(key)


@pytest.mark.parametrize("where", ["put", "look"])
async def test_a_compaction_that_is_cancelled_deletes_nothing_that_its_record_names(
    where: str, built: tuple[list[tuple[str, bytes]], list[str]]
) -> None:
    inner = copy_of(built[0])
    storage = _Hanging(inner, where)
    task = asyncio.create_task((await Repository.open_async(storage)).compact_async())
    assert await asyncio.to_thread(storage.waiting.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    storage.go.set()
    await asyncio.to_thread(check_whole, inner)


@pytest.mark.parametrize("where", ["put", "look"])
async def test_a_commit_that_is_cancelled_before_it_looked_whose_record_was_there_is_found_by_the_next(
    where: str, built: tuple[list[tuple[str, bytes]], list[str]]
) -> None:
    inner = copy_of(built[0])
    storage = _Hanging(inner, where)
    session = await (await Repository.open_async(storage)).writable_session_async("main")
    put_row(session, 20)
    task = asyncio.create_task(session.commit_async("once"))
    assert await asyncio.to_thread(storage.waiting.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    storage.go.set()
    with pytest.raises(SessionStateError, match="call commit again"):
        put_row(session, 21)
    snapshot = await session.commit_async("once")
    found = await asyncio.to_thread(commits_in, inner)
    assert [id_to_text(identifier) for _, identifier in found].count(snapshot) == 1
    assert len(found) == COMMITS + 2


class _Blind(WrapperStorage):
    """Writes a record, answers that there is one, and then shows nothing for a while."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.blind = 0

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        if bytes(data)[5] != Kind.RECORD or self.blind:
            return await super().put_if_absent(key, data)
        self.blind = 8
        await super().put_if_absent(key, data)
        return False

    def _look(self, key: str) -> None:
        if self.blind > 1:
            self.blind -= 1
            raise StorageError(f"{key}: 503, on purpose")

    async def get(self, key: str) -> BytesLike:
        self._look(key)
        return await super().get(key)

    async def head(self, key: str) -> ObjectInfo:
        self._look(key)
        return await super().head(key)


@pytest.mark.usefixtures("impatient")
def test_a_commit_that_cannot_look_whose_record_is_there_leaves_the_question_open(
    built: tuple[list[tuple[str, bytes]], list[str]],
) -> None:
    inner = copy_of(built[0])
    session = Repository.open(_Blind(inner)).writable_session("main")
    put_row(session, 20)
    with pytest.raises(AppendUncertainError, match="whether it is this one"):
        session.commit("once")
    for _ in range(6):
        with pytest.raises(SessionStateError, match="call commit again"):
            put_row(session, 21)
        with pytest.raises(StorageError, match="503"):
            session.commit("once")
    snapshot = session.commit("once")
    assert [id_to_text(identifier) for _, identifier in commits_in(inner)].count(snapshot) == 1
    assert len(commits_in(inner)) == COMMITS + 2


@pytest.mark.parametrize("fault", ["refused", "failed"])
def test_a_repair_puts_everything_in_its_place(fault: str, built: tuple[list[tuple[str, bytes]], list[str]]) -> None:
    inner = copy_of(built[0])
    delete(inner, "snapshots/")
    faulty = SentTwice(inner, fault, Kind.CHECKPOINT)
    for _ in range(8):
        try:
            Repository.open(faulty).repair()
            break
        except StorageError:  # written all the same
            assert fault == "failed"
    Repository.open(inner).repair()
    assert faulty.hit
    check_whole(inner)


# -- a record whose number has expired --------------------------------------------------------------------------------


def _expired(built: list[tuple[str, bytes]], *, collected: bool) -> Storage:
    """Return a repository whose records up to the newest snapshot have expired, and, if so wanted, are gone."""
    storage = copy_of(built)
    repository = Repository.open(storage)
    for row in range(20, 30):
        commit_row(repository, row)
    repository.expire_snapshots(datetime.now(UTC))
    if collected:
        repository.garbage_collect(datetime.now(UTC), record_grace=timedelta(0), nobody_writes=True)
    return storage


def _after_hours(storage: Storage, record: Record) -> bool:
    """Append a record, hours after its writer looked at the log."""
    return bool(run_alone(context_of(Repository.open(storage)).log("main").append(record)))


def _record(storage: Storage, sequence: int) -> Record:
    found: Record = run_alone(context_of(Repository.open(storage)).log("main").read(sequence))
    return found


def test_a_record_that_was_in_the_log_when_it_expired_is_not_deleted_when_its_answer_comes(
    built: tuple[list[tuple[str, bytes]], list[str]],
) -> None:
    storage = _expired(built[0], collected=False)
    record = _record(storage, 3)
    assert _after_hours(storage, record)
    assert _record(storage, 3) == record


def test_a_record_at_a_number_that_was_forgotten_is_deleted_as_another_one_was_there(
    built: tuple[list[tuple[str, bytes]], list[str]],
) -> None:
    record = _record(_expired(built[0], collected=False), 4)
    storage = _expired(built[0], collected=True)
    before = keys(storage)
    with pytest.raises(SessionExpiredError, match="Nothing was committed"):
        _after_hours(storage, replace(record, sequence=3))
    assert keys(storage) == before


@pytest.mark.parametrize("fault", ["refused", "failed"])
def test_a_record_of_which_nothing_tells_whether_it_was_there_is_left(
    fault: str, built: tuple[list[tuple[str, bytes]], list[str]]
) -> None:
    storage = _expired(built[0], collected=True)
    record = _record(_expired(built[0], collected=False), 3)
    log = context_of(Repository.open(storage)).log("main")
    assert run_alone(storage.delete([log.key(24)])) == []  # which carries it
    with pytest.raises(SessionExpiredError, match="it is unknown whether"):
        _after_hours(SentTwice(storage, fault, Kind.RECORD), record)
    assert log.key(3) in keys(storage)


class _NeverAdmits(WrapperStorage):
    """Writes, and says that something was there."""

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        await super().put_if_absent(key, data)
        return False


async def test_a_lease_is_taken_and_given_back_by_whoever_wrote_it() -> None:
    storage = _NeverAdmits(in_memory_storage())
    for number in range(2):
        async with leased(storage, Environment(), 60.0) as lease:
            assert lease.number == number
            with pytest.raises(LeaseTakenError):
                await _take_once(storage)


async def _take_once(storage: Storage) -> None:
    async with leased(storage, Environment(), 60.0):
        raise AssertionError("two have it")


def test_maintenance_with_a_lease_does_all_of_it(built: tuple[list[tuple[str, bytes]], list[str]]) -> None:
    inner = copy_of(built[0])
    report = Repository.open(_NeverAdmits(inner)).maintain()
    assert report.status == "done"
    check_whole(inner)
