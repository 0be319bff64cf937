"""Requests that something on the way sends twice: written, and yet answered 412 or 500.

Whatever the operation, its verdict is what the log says, and nothing that a record names is deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from arraystore import (
    AlreadyExistsError,
    ConflictDetector,
    ReadOnlyError,
    RepoAvailability,
    Repository,
    RepositoryConfig,
    RepoStatus,
    Session,
    UnsupportedStorageError,
    in_memory_storage,
)
from arraystore._format.envelope import Kind
from arraystore.copying.clone import clone_repository
from arraystore.storage import Storage
from arraystore.storage.protocol import BytesLike
from arraystore.storage.wrapper import WrapperStorage
from tests.commit.sent_twice import (
    COMMITS,
    SentTwice,
    World,
    commit_row,
    copy_of,
    fill,
    put_row,
    rows_shown,
)
from tests.commit.support import keys, rewrites_in, run_alone, tip_of
from tests.seams import context_of

pytestmark = pytest.mark.usefixtures("manifests_outside")


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
    return _is_last(world, commit_row(world.repository, 20))


@_on(Kind.RECORD)
def _commit_with_solver(world: World) -> Check:
    session = world.repository.writable_session("main")
    commit_row(world.truth, 21)
    put_row(session, 20)
    world.rows |= {20, 21}
    return _is_last(world, session.commit("row 20", rebase_with=ConflictDetector()))


@_on(Kind.RECORD)
def _commits_of_many_threads(world: World) -> Check:
    repository = world.repository
    sessions = [repository.writable_session("main") for _ in range(8)]
    found: list[str] = []

    def commit(session: Session, row: int) -> None:
        put_row(session, row)
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
    put_row(session, 20)
    commit_row(world.truth, 21)
    session.rebase(ConflictDetector())
    world.rows |= {20, 21}
    return _is_last(world, session.commit("row 20", rebase_with=ConflictDetector()))


@_on(Kind.RECORD)
def _amend(world: World) -> Check:
    session = world.repository.writable_session("main")
    put_row(session, 20)
    world.rows.add(20)
    return _is_last(world, session.amend("row 20, too"))


@_on(Kind.RECORD)
def _revert(world: World) -> Check:
    world.rows.discard(3)
    return _is_last(world, world.repository.revert(world.snapshots[3]))


@_on(Kind.RECORD)
def _cherry_pick(world: World) -> Check:
    commit_row(world.truth, 20, "dev")
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
        assert rows_shown(truth, "new") == set(range(1, 7))

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
            commit_row(truth, 30)
        truth.set_status(RepoStatus(RepoAvailability.online))

    return check


@_on(Kind.REPOSITORY_LOG)
def _save_config(world: World) -> Check:
    before = context_of(world.truth).repository_log
    number = run_alone(before.table()).number
    world.repository.save_config(RepositoryConfig(inline_chunk_threshold_bytes=77))

    def check(truth: Repository) -> None:
        assert truth.config.inline_chunk_threshold_bytes == 77
        assert run_alone(context_of(truth).repository_log.table()).number == number + 1

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
    inner = copy_of(built[0])
    world = World(inner, SentTwice(inner, fault, kind), built[1])
    check = operation(world)
    assert world.faulty.hit
    check(world.truth)
    for _ in range(2):
        assert rows_shown(world.truth) == world.rows | world.faulty.rivals
        assert world.truth.verify(level="chunks").findings == ()
        world.truth.garbage_collect(datetime.now(UTC))


# -- making and mending repositories ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS[:2])
@pytest.mark.parametrize("kind", [Kind.RECORD, Kind.REPOSITORY])
@pytest.mark.parametrize("make", [Repository.create, Repository.open_or_create])
def test_a_repository_is_created(make: Callable[[Storage], Repository], kind: Kind, fault: str) -> None:
    inner = in_memory_storage()
    faulty = SentTwice(inner, fault, kind)
    fill(make(faulty))
    assert faulty.hit
    assert rows_shown(Repository.open(inner)) == {1}
    assert Repository.open(inner).verify(level="chunks").findings == ()
    with pytest.raises(AlreadyExistsError):
        Repository.create(inner)


@pytest.mark.parametrize("fault", FAULTS[:1])
@pytest.mark.parametrize("kind", [Kind.RECORD, Kind.REPOSITORY, Kind.REPOSITORY_LOG])
def test_a_repository_is_cloned(kind: Kind, fault: str, built: tuple[list[tuple[str, bytes]], list[str]]) -> None:
    source, target = copy_of(built[0]), in_memory_storage()
    faulty = SentTwice(target, fault, kind)
    clone_repository(source, faulty)
    assert faulty.hit
    clone = Repository.open(target)
    assert rows_shown(clone) == set(range(1, COMMITS + 1))
    assert clone.verify(level="chunks").findings == ()
    clone_repository(source, faulty)  # what is there counts as its own


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
    fill(repository)
    for row in range(2, 76):
        commit_row(repository, row % 40)
    repository.wait_for_maintenance()
    assert faulty.hit
    (rewrite,) = rewrites_in(inner)
    assert kind != Kind.RECORD or context_of(repository).log("main").key(rewrite) in faulty.hit
    truth = Repository.open(inner)
    assert rows_shown(truth) == set(range(40))
    assert truth.verify(level="chunks").findings == ()
    truth.garbage_collect(datetime.now(UTC))
    assert rows_shown(Repository.open(inner)) == set(range(40))
