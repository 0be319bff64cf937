"""Requests that something on the way sends twice: written, and yet answered 412 or 500.

Whatever the operation, its verdict is what the log says, and nothing that a record names is deleted.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu

from arraystore import (
    AlreadyExistsError,
    ConflictDetector,
    ReadOnlyError,
    RepoAvailability,
    Repository,
    RepositoryConfig,
    RepoStatus,
    Session,
    SessionExpiredError,
    SessionStateError,
    UnsupportedStorageError,
    in_memory_storage,
)
from arraystore.commit import prepare
from arraystore.commit.environment import ENVIRONMENT, Environment
from arraystore.commit.log import AppendUncertainError
from arraystore.copying.clone import clone_repository
from arraystore.errors import ArrayStoreError, StorageError
from arraystore.format.envelope import Kind
from arraystore.format.ids import id_to_text
from arraystore.format.record import Record
from arraystore.lease import LeaseTakenError, leased
from arraystore.maintenance import exchange
from arraystore.storage import Storage
from arraystore.storage.protocol import BytesLike, ObjectInfo
from arraystore.storage.wrapper import WrapperStorage
from tests.commit.support import commits_in, delete, keys, objects, rewrites_in, run_alone, tip_of

CHUNK = 256
COMMITS = 12
RIVAL = 900
"""Row that a rival writes."""


def _row(number: int) -> bytes:
    return np.random.default_rng(number).bytes(CHUNK * 8)


def _put(session: Session, row: int) -> None:
    session.store.set_sync(f"a/c/{row}", cpu.Buffer.from_bytes(_row(row)))


def _commit(repository: Repository, row: int, branch: str = "main") -> str:
    session = repository.writable_session(branch)
    _put(session, row)
    return session.commit(f"row {row}")


def _shown(repository: Repository, branch: str = "main") -> set[int]:
    """Return the rows of a branch, each of which is what it has to be."""
    store = repository.readonly_session(branch).store
    found = set()
    for row in [*range(40), *range(RIVAL, RIVAL + 10)]:
        data = store.get_sync(f"a/c/{row}")
        if data is not None:
            assert data.to_bytes() == _row(row)
            found.add(row)
    return found


class SentTwice(WrapperStorage):
    """Carries out conditional writes of some kinds of objects, and gives the answer to a repetition, or none.

    Parameters
    ----------
    inner
        Where they arrive.
    fault
        ``refused``: written, answered as existing; ``failed``: written, answered with an error, once for each object;
        ``down``: the same, every time;
        ``overtaken``: written, somebody else commits behind it, and only then it is answered as existing.
    kind
        Of the objects.
    """

    def __init__(self, inner: Storage, fault: str, kind: Kind) -> None:
        super().__init__(inner)
        self.fault = fault
        self.kind = kind
        self.hit: list[str] = []
        self.rivals: set[int] = set()

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        written = await super().put_if_absent(key, data)
        if bytes(data)[5] != self.kind or not written or (self.fault == "failed" and key in self.hit):
            return written
        first = key not in self.hit
        self.hit.append(key)
        if self.fault in ("failed", "down"):
            raise StorageError(f"{key}: 500, on purpose")
        if self.fault == "overtaken" and first and len(self.rivals) < 3:
            await self._rival()
        return False

    async def _rival(self) -> None:
        row = RIVAL + len(self.rivals)
        self.rivals.add(row)
        try:
            session = await (await Repository.open_async(self.inner)).writable_session_async("main")
            _put(session, row)
            await session.commit_async("rival", rebase_with=ConflictDetector())
        except ArrayStoreError:  # read-only by now, for instance
            self.rivals.discard(row)


@dataclass
class World:
    """A repository, seen through a storage that sends requests twice."""

    inner: Storage
    faulty: SentTwice
    snapshots: list[str]
    rows: set[int] = field(default_factory=lambda: set(range(1, COMMITS + 1)))

    @property
    def repository(self) -> Repository:
        """The repository through the faulty storage, opened anew."""
        return Repository.open(self.faulty)

    @property
    def truth(self) -> Repository:
        """The repository as it is."""
        return Repository.open(self.inner)


@pytest.fixture(scope="module")
def built() -> tuple[list[tuple[str, bytes]], list[str]]:
    """Return the objects of a repository of some commits, a branch and a tag, and its snapshots."""
    storage = in_memory_storage()
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    zarr.create_group(session.store).create_array(
        "a", shape=(CHUNK * 1000,), chunks=(CHUNK,), dtype="f8", compressors=None
    )
    snapshots = [session.commit("create a")]
    snapshots += [_commit(repository, row) for row in range(1, COMMITS + 1)]
    repository.create_branch("dev", snapshots[4])
    repository.create_tag("tag", snapshots[2])
    return [(info.key, bytes(storage.get_sync(info.key))) for info in objects(storage)], snapshots


@pytest.fixture(autouse=True)
def manifests_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let manifests be objects of their own, however small, so that there is something to delete."""
    for module in (exchange, prepare):
        monkeypatch.setattr(module, "MAX_MANIFEST_IN_BODY", 0)


Check = Callable[[Repository], None]
Operation = Callable[[World], Check]
_operations: list[tuple[str, Operation, tuple[Kind, ...]]] = []


def _on(*kinds: Kind) -> Callable[[Operation], Operation]:
    """Note an operation, and which kinds of objects it creates only if absent."""

    def note(operation: Operation) -> Operation:
        _operations.append((operation.__name__.strip("_"), operation, kinds))
        return operation

    return note


def _is_last(world: World, snapshot: str) -> Check:
    """Return the check that a snapshot was committed once, and is the newest but for those of rivals."""

    def check(truth: Repository) -> None:
        history = [info.id for info in truth.ancestry(branch="main")]
        assert history.count(snapshot) == 1
        assert history.index(snapshot) <= len(world.faulty.rivals)

    return check


@_on(Kind.RECORD)
def _commit_without_solver(world: World) -> Check:
    world.rows.add(20)
    return _is_last(world, _commit(world.repository, 20))


@_on(Kind.RECORD)
def _commit_with_solver(world: World) -> Check:
    session = world.repository.writable_session("main")
    _commit(world.truth, 21)
    _put(session, 20)
    world.rows |= {20, 21}
    return _is_last(world, session.commit("row 20", rebase_with=ConflictDetector()))


@_on(Kind.RECORD)
def _commits_of_many_threads(world: World) -> Check:
    repository = world.repository
    sessions = [repository.writable_session("main") for _ in range(8)]
    found: list[str] = []

    def commit(session: Session, row: int) -> None:
        _put(session, row)
        found.append(session.commit(f"row {row}", rebase_with=ConflictDetector()))

    threads = [threading.Thread(target=commit, args=(session, 20 + i)) for i, session in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world.rows |= set(range(20, 28))

    def check(truth: Repository) -> None:
        history = [info.id for info in truth.ancestry(branch="main")]
        assert len(found) == 8
        assert all(history.count(snapshot) == 1 for snapshot in found)

    return check


@_on(Kind.RECORD)
def _rebase_and_commit(world: World) -> Check:
    session = world.repository.writable_session("main")
    _put(session, 20)
    _commit(world.truth, 21)
    session.rebase(ConflictDetector())
    world.rows |= {20, 21}
    return _is_last(world, session.commit("row 20", rebase_with=ConflictDetector()))


@_on(Kind.RECORD)
def _amend(world: World) -> Check:
    session = world.repository.writable_session("main")
    _put(session, 20)
    world.rows.add(20)
    return _is_last(world, session.amend("row 20, too"))


@_on(Kind.RECORD)
def _revert(world: World) -> Check:
    world.rows.discard(3)
    return _is_last(world, world.repository.revert(world.snapshots[3]))


@_on(Kind.RECORD)
def _cherry_pick(world: World) -> Check:
    _commit(world.truth, 20, "dev")
    world.rows.add(20)
    picked = world.truth.lookup_branch("dev")
    return _is_last(world, world.repository.cherry_pick(picked))


@_on(Kind.RECORD)
def _compact(world: World) -> Check:
    summary = world.repository.compact()
    assert summary.records
    assert summary.packs_written
    return lambda truth: _has_layers(truth, 1 + len(world.faulty.rivals))


@_on(Kind.RECORD)
def _rewrite_manifests(world: World) -> Check:
    check = _is_last(world, world.repository.rewrite_manifests("fewer manifests", branch="main"))

    def checks(truth: Repository) -> None:
        check(truth)
        _has_layers(truth, 1 + len(world.faulty.rivals))

    return checks


@_on(Kind.REPOSITORY_LOG, Kind.RECORD)
def _create_branch(world: World) -> Check:
    world.repository.create_branch("new", world.snapshots[6])

    def check(truth: Repository) -> None:
        assert truth.lookup_branch("new") == world.snapshots[6]
        assert _shown(truth, "new") == set(range(1, 7))

    return check


@_on(Kind.REPOSITORY_LOG, Kind.RECORD)
def _delete_branch(world: World) -> Check:
    world.repository.delete_branch("dev")
    return lambda truth: _same(truth.list_branches(), {"main"})


@_on(Kind.RECORD)
def _reset_branch(world: World) -> Check:
    world.repository.reset_branch("main", world.snapshots[8])
    world.rows = set(range(1, 9))
    return lambda truth: _same(world.snapshots[8] in {info.id for info in truth.ancestry(branch="main")}, True)


@_on(Kind.REPOSITORY_LOG)
def _create_tag(world: World) -> Check:
    world.repository.create_tag("new", world.snapshots[5])
    return lambda truth: _same(truth.lookup_tag("new"), world.snapshots[5])


@_on(Kind.REPOSITORY_LOG)
def _delete_tag(world: World) -> Check:
    world.repository.delete_tag("tag")
    return lambda truth: _same(truth.list_tags(), set())


@_on(Kind.RECORD, Kind.REPOSITORY_LOG)
def _expire_snapshots(world: World) -> Check:
    gone = world.repository.expire_snapshots(datetime.now(UTC))
    kept = {world.snapshots[2], world.snapshots[4], world.snapshots[12]}
    assert gone >= set(world.snapshots) - kept

    def check(truth: Repository) -> None:
        assert not gone & {info.id for info in truth.ancestry(branch="main")}

    return check


@_on(Kind.RECORD, Kind.REPOSITORY_LOG)
def _garbage_collect(world: World) -> Check:
    orphan = "chunks/" + "0" * 20
    world.inner.put_sync(orphan, b"nobody names this")
    assert world.repository.garbage_collect(datetime.now(UTC)).chunks_deleted == 1
    return lambda _: _same(orphan in keys(world.inner, "chunks/"), False)


@_on(Kind.RECORD, Kind.REPOSITORY_LOG)
def _set_status(world: World) -> Check:
    world.repository.set_status(RepoStatus(RepoAvailability.read_only))

    def check(truth: Repository) -> None:
        with pytest.raises(ReadOnlyError):
            _commit(truth, 30)
        truth.set_status(RepoStatus(RepoAvailability.online))

    return check


@_on(Kind.REPOSITORY_LOG)
def _save_config(world: World) -> Check:
    before = world.truth._context.repository_log
    number = run_alone(before.table()).number
    world.repository.save_config(RepositoryConfig(inline_chunk_threshold_bytes=77))

    def check(truth: Repository) -> None:
        assert truth.config.inline_chunk_threshold_bytes == 77
        assert run_alone(truth._context.repository_log.table()).number == number + 1

    return check


@_on(Kind.REPOSITORY_LOG)
def _update_metadata(world: World) -> Check:
    assert world.repository.update_metadata({"owner": "us"}) == {"owner": "us"}
    return lambda truth: _same(truth.get_metadata(), {"owner": "us"})


def _same(found: object, wanted: object) -> None:
    assert found == wanted


def _has_layers(repository: Repository, most: int) -> None:
    assert len(tip_of(repository).state.nodes["a"].layers) <= most


FAULTS = ("refused", "failed", "overtaken")
_CASES = [
    pytest.param(operation, kind, fault, id=f"{name}-{kind.name.lower()}-{fault}")
    for name, operation, kinds in _operations
    for kind in kinds
    for fault in FAULTS
]


@pytest.mark.parametrize(("operation", "kind", "fault"), _CASES)
def test_the_verdict_is_what_the_log_says_and_everything_stays_readable(
    operation: Operation, kind: Kind, fault: str, built: tuple[list[tuple[str, bytes]], list[str]]
) -> None:
    inner = _copy_of(built[0])
    world = World(inner, SentTwice(inner, fault, kind), built[1])
    check = operation(world)
    assert world.faulty.hit
    check(world.truth)
    for _ in range(2):
        assert _shown(world.truth) == world.rows | world.faulty.rivals
        assert world.truth.verify(level="chunks").findings == ()
        world.truth.garbage_collect(datetime.now(UTC))


# -- making and mending repositories ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS[:2])
@pytest.mark.parametrize("kind", [Kind.RECORD, Kind.REPOSITORY])
@pytest.mark.parametrize("make", [Repository.create, Repository.open_or_create])
def test_a_repository_is_created(make: Callable[[Storage], Repository], kind: Kind, fault: str) -> None:
    inner = in_memory_storage()
    faulty = SentTwice(inner, fault, kind)
    _fill(make(faulty))
    assert faulty.hit
    assert _shown(Repository.open(inner)) == {1}
    assert Repository.open(inner).verify(level="chunks").findings == ()
    with pytest.raises(AlreadyExistsError):
        Repository.create(inner)


def _fill(repository: Repository) -> None:
    session = repository.writable_session("main")
    zarr.create_group(session.store).create_array(
        "a", shape=(CHUNK * 1000,), chunks=(CHUNK,), dtype="f8", compressors=None
    )
    _put(session, 1)
    session.commit("row 1")


@pytest.mark.parametrize("fault", FAULTS[:1])
@pytest.mark.parametrize("kind", [Kind.RECORD, Kind.REPOSITORY, Kind.REPOSITORY_LOG])
def test_a_repository_is_cloned(kind: Kind, fault: str, built: tuple[list[tuple[str, bytes]], list[str]]) -> None:
    source, target = _copy_of(built[0]), in_memory_storage()
    faulty = SentTwice(target, fault, kind)
    clone_repository(source, faulty)
    assert faulty.hit
    clone = Repository.open(target)
    assert _shown(clone) == set(range(1, COMMITS + 1))
    assert clone.verify(level="chunks").findings == ()
    clone_repository(source, faulty)  # what is there counts as its own


def _copy_of(objects_: list[tuple[str, bytes]]) -> Storage:
    storage = in_memory_storage()
    for key, data in objects_:
        storage.put_sync(key, data)
    return storage


class _Overwriting(WrapperStorage):
    """Overwrites what was to be created only if absent; meanwhile somebody else may have put something there."""

    def __init__(self, inner: Storage, meanwhile: Callable[[], None] = lambda: None) -> None:
        super().__init__(inner)
        self.meanwhile = meanwhile
        self.seen: set[str] = set()

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        await self.inner.put(key, data)
        if key in self.seen:
            self.meanwhile()
        self.seen.add(key)
        return True


def test_a_creation_that_refuses_its_storage_deletes_what_it_has_written_itself() -> None:
    inner = in_memory_storage()
    with pytest.raises(UnsupportedStorageError):
        Repository.create(_Overwriting(inner))
    assert keys(inner) == []


def test_a_creation_that_refuses_its_storage_leaves_what_somebody_else_has_put_there_meanwhile() -> None:
    inner, theirs = in_memory_storage(), in_memory_storage()
    Repository.create(theirs)
    other = {key: bytes(theirs.get_sync(key)) for key in keys(theirs)}

    def meanwhile() -> None:
        for key, data in other.items():
            inner.put_sync(key, data)

    with pytest.raises(UnsupportedStorageError):
        Repository.create(_Overwriting(inner, meanwhile))
    assert {key: bytes(inner.get_sync(key)) for key in keys(inner)} == other


# -- in the background ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["refused", "failed"])
@pytest.mark.parametrize("kind", [Kind.RECORD, Kind.HISTORY])
def test_folding_in_the_background_deletes_nothing_that_its_record_names(kind: Kind, fault: str) -> None:
    inner = in_memory_storage()
    faulty = SentTwice(inner, fault, kind)
    repository = Repository.create(faulty)
    _fill(repository)
    for row in range(2, 76):
        _commit(repository, row % 40)
    repository.wait_for_maintenance()
    assert faulty.hit
    (rewrite,) = rewrites_in(inner)
    assert kind != Kind.RECORD or repository._context.log("main").key(rewrite) in faulty.hit
    truth = Repository.open(inner)
    assert _shown(truth) == set(range(40))
    assert truth.verify(level="chunks").findings == ()
    truth.garbage_collect(datetime.now(UTC))
    assert _shown(Repository.open(inner)) == set(range(40))


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
    inner = _copy_of(built[0])
    repository = Repository.open(SentTwice(inner, "down", Kind.RECORD))
    fold: dict[str, Callable[[], object]] = {
        "compact": repository.compact,
        "rewrite": lambda: repository.rewrite_manifests("fewer", branch="main"),
    }
    with pytest.raises(AppendUncertainError, match="look whether it has happened"):
        fold[operation]()
    _is_whole(inner)
    Repository.open(inner).compact()
    _is_whole(inner)


def _is_whole(inner: Storage) -> None:
    truth = Repository.open(inner)
    assert _shown(truth) == set(range(1, COMMITS + 1))
    assert truth.verify(level="chunks").findings == ()


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
    inner = _copy_of(built[0])
    storage = _Hanging(inner, where)
    task = asyncio.create_task((await Repository.open_async(storage)).compact_async())
    assert await asyncio.to_thread(storage.waiting.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    storage.go.set()
    await asyncio.to_thread(_is_whole, inner)


@pytest.mark.parametrize("where", ["put", "look"])
async def test_a_commit_that_is_cancelled_before_it_looked_whose_record_was_there_is_found_by_the_next(
    where: str, built: tuple[list[tuple[str, bytes]], list[str]]
) -> None:
    inner = _copy_of(built[0])
    storage = _Hanging(inner, where)
    session = await (await Repository.open_async(storage)).writable_session_async("main")
    _put(session, 20)
    task = asyncio.create_task(session.commit_async("once"))
    assert await asyncio.to_thread(storage.waiting.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    storage.go.set()
    with pytest.raises(SessionStateError, match="call commit again"):
        _put(session, 21)
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
    inner = _copy_of(built[0])
    session = Repository.open(_Blind(inner)).writable_session("main")
    _put(session, 20)
    with pytest.raises(AppendUncertainError, match="whether it is this one"):
        session.commit("once")
    for _ in range(6):
        with pytest.raises(SessionStateError, match="call commit again"):
            _put(session, 21)
        with pytest.raises(StorageError, match="503"):
            session.commit("once")
    snapshot = session.commit("once")
    assert [id_to_text(identifier) for _, identifier in commits_in(inner)].count(snapshot) == 1
    assert len(commits_in(inner)) == COMMITS + 2


@pytest.mark.parametrize("fault", ["refused", "failed"])
def test_a_repair_puts_everything_in_its_place(fault: str, built: tuple[list[tuple[str, bytes]], list[str]]) -> None:
    inner = _copy_of(built[0])
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
    _is_whole(inner)


# -- a record whose number has expired --------------------------------------------------------------------------------


def _expired(built: list[tuple[str, bytes]], *, collected: bool) -> Storage:
    """Return a repository whose records up to the newest snapshot have expired, and, if so wanted, are gone."""
    storage = _copy_of(built)
    repository = Repository.open(storage)
    for row in range(20, 30):
        _commit(repository, row)
    repository.expire_snapshots(datetime.now(UTC))
    if collected:
        repository.garbage_collect(datetime.now(UTC), record_grace=timedelta(0), nobody_writes=True)
    return storage


def _after_hours(storage: Storage, record: Record) -> bool:
    """Append a record, hours after its writer looked at the log."""
    return bool(run_alone(Repository.open(storage)._context.log("main").append(record)))


def _record(storage: Storage, sequence: int) -> Record:
    found: Record = run_alone(Repository.open(storage)._context.log("main").read(sequence))
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
    log = Repository.open(storage)._context.log("main")
    assert run_alone(storage.delete([log.key(24)])) == []  # which carries it
    with pytest.raises(SessionExpiredError, match="nothing tells whether"):
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
    inner = _copy_of(built[0])
    report = Repository.open(_NeverAdmits(inner)).maintain()
    assert report.status == "done"
    _is_whole(inner)
