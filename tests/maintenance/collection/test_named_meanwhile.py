"""Snapshots that get a name at the moment at which they expire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import pytest
import zarr

from arraystore import (
    ConflictDetector,
    ConflictError,
    ReadOnlyError,
    RepoAvailability,
    Repository,
    RepositoryConfig,
    RepoStatus,
    Session,
    SessionExpiredError,
    SnapshotExpiredError,
    SnapshotNotFoundError,
    in_memory_storage,
)
from arraystore._format.snapshot import checkpoint_key
from arraystore.storage import Storage
from arraystore.storage.protocol import DeleteFailure
from arraystore.storage.wrapper import WrapperStorage
from tests.commit.support import copy_of, keys, run_alone, tip_of
from tests.history.worlds import commit, put, world
from tests.maintenance.collection.test_moved_and_reverted import now
from tests.maintenance.worlds import Meanwhile
from tests.seams import context_of

NAMES: dict[str, Callable[[Repository, str], None]] = {
    "tag": lambda repository, snapshot: repository.create_tag("named", snapshot),
    "branch": lambda repository, snapshot: repository.create_branch("named", snapshot),
    "reset": lambda repository, snapshot: repository.reset_branch("other", snapshot),
}


def values(session: Session) -> list[int]:
    """Return the values of an array."""
    return [int(each) for each in np.asarray(zarr.open_array(session.store, path="g/a", mode="r")[...])]


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_what_is_named_while_it_expires_is_found_by_its_id_as_well(name: Callable[[Repository, str], None]) -> None:
    storage = in_memory_storage()
    repository = world(storage)
    repository.create_branch("other", repository.lookup_branch("main"))
    snapshot = commit(repository, put("g/a", 0, 10))
    for at in range(3):
        commit(repository, put("g/a", 0, 20 + at))
    meanwhile = Meanwhile(storage, "put_if_absent", "/branch/main/", lambda: name(repository, snapshot))
    Repository.open(meanwhile).expire_snapshots(now())
    assert meanwhile.happened
    for turn in range(2):
        fresh = Repository.open(storage)
        assert values(fresh.readonly_session(snapshot_id=snapshot)) == [10, 2, 3, 4, 5, 6]
        assert fresh.lookup_snapshot(snapshot).id == snapshot
        fresh.create_tag(f"again {turn}", snapshot)
        assert values(fresh.readonly_session(tag=f"again {turn}")) == [10, 2, 3, 4, 5, 6]
        repository.garbage_collect(now())


def test_a_branch_is_not_reset_to_what_expires_from_it_meanwhile() -> None:
    storage = in_memory_storage()
    repository = world(storage)
    snapshot = commit(repository, put("g/a", 0, 10))
    newest = [commit(repository, put("g/a", 0, 20 + at)) for at in range(3)][-1]
    meanwhile = Meanwhile(
        storage, "put_if_absent", "/branch/main/", lambda: Repository.open(storage).expire_snapshots(now())
    )
    with pytest.raises(SnapshotExpiredError, match="has expired"):
        Repository.open(meanwhile).reset_branch("main", snapshot)
    assert meanwhile.happened
    assert Repository.open(storage).lookup_branch("main") == newest


def test_a_branch_is_reset_to_what_an_expiry_leaves_of_it_meanwhile() -> None:
    storage = in_memory_storage()
    repository = world(storage)
    snapshot = commit(repository, put("g/a", 0, 10))
    repository.create_tag("kept", snapshot)
    commit(repository, put("g/a", 0, 20))
    commit(repository, put("g/a", 0, 21))
    meanwhile = Meanwhile(
        storage, "put_if_absent", "/branch/main/", lambda: Repository.open(storage).expire_snapshots(now())
    )
    Repository.open(meanwhile).reset_branch("main", snapshot)
    assert meanwhile.happened
    assert Repository.open(storage).lookup_branch("main") == snapshot


def test_a_commit_to_a_branch_that_was_old_a_moment_ago_is_not_lost_with_it() -> None:
    storage = in_memory_storage()
    repository = world(storage)
    repository.create_branch("other", repository.lookup_branch("main"))
    commit(repository, put("g/a", 0, 10), branch="other")
    moment = now()
    meanwhile = Meanwhile(
        storage,
        "put_if_absent",
        "/branch/other/",
        lambda: commit(Repository.open(storage), put("g/a", 1, 20), branch="other"),
    )
    Repository.open(meanwhile).expire_snapshots(moment, delete_expired_branches=True)
    assert meanwhile.happened
    fresh = Repository.open(storage)
    assert fresh.list_branches() == {"main", "other"}
    assert values(fresh.readonly_session("other")) == [10, 20, 3, 4, 5, 6]
    fresh.garbage_collect(now(), full=True)
    assert values(Repository.open(storage).readonly_session("other")) == [10, 20, 3, 4, 5, 6]


@pytest.mark.parametrize("collected", [False, True])
def test_what_a_branch_has_begun_with_and_left_behind_is_not_brought_back_once_it_expired(collected: bool) -> None:
    repository = world()
    snapshot = commit(repository, put("g/a", 0, 10))
    repository.create_branch("other", snapshot)
    for branch in ("main", "other"):
        for at in range(3):
            commit(repository, put("g/a", 0, 20 + at), branch=branch)
    repository.expire_snapshots(now())
    if collected:
        repository.garbage_collect(now(), full=True)
    with pytest.raises(SnapshotNotFoundError):
        Repository.open(repository.storage).create_tag("again", snapshot)


def flushed(repository: Repository, change: Callable[[Session], None]) -> str:
    """Write a snapshot on no branch."""
    session = repository.writable_session("main")
    change(session)
    return session.flush("flush")


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_a_snapshot_on_no_branch_is_found_where_it_gets_a_name_while_its_only_tag_goes(
    name: Callable[[Repository, str], None],
) -> None:
    storage = in_memory_storage()
    repository = world(storage)
    repository.create_branch("other", repository.lookup_branch("main"))
    snapshot = flushed(repository, put("g/a", 0, 10))
    repository.create_tag("first", snapshot)
    commit(repository, put("g/a", 0, 11))
    moment = now()

    def tag_goes() -> None:
        fresh = Repository.open(storage)
        fresh.delete_tag("first")
        fresh.garbage_collect(moment, full=True)

    part = "/branch/other/" if name is NAMES["reset"] else "/repository/"
    meanwhile = Meanwhile(storage, "put_if_absent", part, tag_goes)
    name(Repository.open(meanwhile), snapshot)
    assert meanwhile.happened
    fresh = Repository.open(storage)
    fresh.garbage_collect(now(), full=True)
    assert values(Repository.open(storage).readonly_session(snapshot_id=snapshot)) == [10, 2, 3, 4, 5, 6]
    assert fresh.verify(level="chunks").ok


@pytest.mark.parametrize("gone", ["expired", "branch deleted"])
def test_a_snapshot_on_no_branch_is_refused_where_what_it_is_based_on_was_collected(gone: str) -> None:
    repository = world()
    repository.create_branch("other", repository.lookup_branch("main"))
    commit(repository, put("g/a", 0, 10), branch="other")
    session = repository.writable_session("other")
    if gone == "expired":
        commit(repository, put("g/a", 0, 11), branch="other")
        repository.expire_snapshots(now())
    else:
        repository.delete_branch("other")
    repository.garbage_collect(now(), full=True)
    put("g/a", 1, 20)(session)
    with pytest.raises(SessionExpiredError, match="on which this session is based"):
        session.flush("late")
    assert Repository.open(repository.storage).verify(level="chunks").ok


@pytest.mark.parametrize("full", [False, True])
def test_what_leads_through_a_branch_that_a_collection_does_not_know_yet_is_kept(full: bool) -> None:
    storage = in_memory_storage()
    repository = world(storage)
    commit(repository, put("g/a", 0, 10))
    repository.garbage_collect(now(), full=True)

    def names() -> None:
        fresh = Repository.open(storage)
        fresh.create_branch("new", fresh.lookup_branch("main"))
        fresh.reset_branch("main", commit(fresh, put("g/a", 1, 20), branch="new"))
        fresh.create_tag("newest", commit(fresh, put("g/a", 2, 30)))

    meanwhile = Meanwhile(storage, "list", "snapshots/", names)
    Repository.open(meanwhile).garbage_collect(now(), full=full)
    assert meanwhile.happened
    fresh = Repository.open(storage)
    assert values(fresh.readonly_session(tag="newest")) == [10, 20, 30, 4, 5, 6]
    assert values(fresh.readonly_session("new")) == [10, 20, 3, 4, 5, 6]
    assert fresh.verify(level="chunks").ok


@pytest.mark.parametrize("keep_last", [1, 3])
def test_an_expiry_keeps_as_many_as_asked_where_a_branch_that_it_does_not_know_yet_leads_on(keep_last: int) -> None:
    storage = in_memory_storage()
    repository = world(storage)
    old = [commit(repository, put("g/a", 0, 10 + at)) for at in range(4)]
    made: list[str] = []

    def names() -> None:
        fresh = Repository.open(storage)
        fresh.create_branch("new", old[-1])
        made.append(commit(fresh, put("g/a", 1, 20), branch="new"))
        fresh.reset_branch("main", made[0])
        made.append(commit(fresh, put("g/a", 2, 30)))

    meanwhile = Meanwhile(storage, "list", "/branch/main/", names)
    Repository.open(meanwhile).expire_snapshots(now(), keep_last=keep_last)
    assert meanwhile.happened
    fresh = Repository.open(storage)
    kept = [each.id for each in fresh.ancestry(branch="main")]
    assert kept[:-1] == [made[1], made[0], *old[:-3:-1]][: keep_last + 1]
    assert values(fresh.readonly_session("main")) == [13, 20, 30, 4, 5, 6]


class LateDeletions(WrapperStorage):
    """Answers deletions at once, and carries them out only when told to."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.late: list[str] = []

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        self.late += keys
        return []

    def arrive(self) -> None:
        asyncio.run(self.inner.delete(self.late))


def test_a_snapshot_that_is_flushed_again_is_not_lost_with_what_a_refused_flush_takes_back() -> None:
    storage = in_memory_storage()
    repository = world(storage)
    deletions = LateDeletions(storage)
    closes = Meanwhile(
        deletions, "put", "snapshots/", lambda: repository.set_status(RepoStatus(RepoAvailability.read_only))
    )
    session = Repository.open(closes).writable_session("main")
    put("g/a", 0, 10)(session)
    with pytest.raises(ReadOnlyError):
        session.flush("refused")
    repository.set_status(RepoStatus(RepoAvailability.online))
    snapshot = session.flush("again")
    deletions.arrive()
    assert values(Repository.open(storage).readonly_session(snapshot_id=snapshot)) == [10, 2, 3, 4, 5, 6]
    repository.create_tag("kept", snapshot)
    repository.garbage_collect(now(), full=True)
    assert len(keys(storage, "snapshots/")) == 2, "of the tag and of the tagged snapshot; nothing of what was refused"


def reset_and_collected(storage: Storage) -> Callable[[], None]:
    """Return what takes away all that the first record of a branch is read from, and leaves the branch elsewhere."""

    def happens() -> None:
        fresh = Repository.open(storage)
        fresh.reset_branch("other", fresh.lookup_branch("main"))
        fresh.expire_snapshots(now())
        fresh.garbage_collect(now(), full=True)

    return happens


@pytest.mark.parametrize("use", ["opened", "expired"])
def test_a_branch_that_moves_on_and_is_collected_while_its_newest_record_is_read_is_read_again(use: str) -> None:
    storage = in_memory_storage()
    repository = world(storage)
    repository.create_branch("other", commit(repository, put("g/a", 0, 10)))
    commit(repository, put("g/a", 0, 11))
    meanwhile = Meanwhile(storage, "get", "/branch/other/000000000000", reset_and_collected(storage))
    outdated = Repository.open(meanwhile)
    if use == "expired":
        outdated.expire_snapshots(now())
    else:
        assert values(outdated.readonly_session("other")) == [11, 2, 3, 4, 5, 6]
    assert meanwhile.happened
    assert values(Repository.open(storage).readonly_session("other")) == [11, 2, 3, 4, 5, 6]


def origin_of(storage: Storage, branch: str) -> str:
    """Return the checkpoint that a branch begins with."""
    origin = tip_of(Repository.open(storage), branch).state.life.origin
    assert origin is not None
    return checkpoint_key(origin.checkpoint)


def test_a_branch_that_is_reset_once_more_and_collected_while_its_reset_is_read_is_read_again() -> None:
    storage = in_memory_storage()
    repository = world(storage)
    repository.create_branch("other", repository.lookup_branch("main"))
    known = 1  # checkpoints that are read for the branch as it begins
    meanwhile = Meanwhile(storage, "get", "snapshots/", reset_and_collected(storage), known)
    outdated = Repository.open(meanwhile)
    outdated.lookup_branch("other")
    repository.reset_branch("other", commit(repository, put("g/a", 0, 10)))
    newest = commit(repository, put("g/a", 0, 11))
    assert outdated.lookup_branch("other") == newest
    assert meanwhile.happened


def test_who_commits_to_a_branch_that_is_reset_once_more_and_collected_is_told_that_it_was_reset() -> None:
    storage = in_memory_storage()
    repository = world(storage)
    repository.create_branch("other", repository.lookup_branch("main"))
    known = 1  # checkpoints that are read for the branch as it begins
    meanwhile = Meanwhile(storage, "get", "snapshots/", reset_and_collected(storage), known)
    outdated = Repository.open(meanwhile, RepositoryConfig(branches_in_memory=1))
    session = outdated.writable_session("other")
    put("g/a", 0, 20)(session)
    repository.reset_branch("other", commit(repository, put("g/a", 0, 10)))
    commit(repository, put("g/a", 0, 11))
    outdated.lookup_branch("main")  # and "other" is forgotten
    with pytest.raises(ConflictError, match="was reset"):
        session.commit("too late", rebase_with=ConflictDetector())
    assert meanwhile.happened


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_who_names_a_snapshot_while_a_branch_elsewhere_is_reset_and_collected_looks_again(
    name: Callable[[Repository, str], None],
) -> None:
    storage = in_memory_storage()
    repository = world(storage)
    snapshot = commit(repository, put("g/a", 0, 10))
    repository.create_tag("kept", snapshot)
    commit(repository, put("g/a", 0, 11))
    repository.create_branch("other", commit(repository, put("g/a", 0, 12)))
    commit(repository, put("g/a", 0, 13))
    repository.expire_snapshots(now())
    known = 1  # as the record of the branch is read
    meanwhile = Meanwhile(storage, "get", origin_of(storage, "other"), reset_and_collected(storage), known)
    name(Repository.open(meanwhile), snapshot)
    assert meanwhile.happened
    repository.garbage_collect(now(), full=True)
    assert values(Repository.open(storage).readonly_session(snapshot_id=snapshot)) == [10, 2, 3, 4, 5, 6]


LETTING_GO: dict[str, Callable[[Repository, str], None]] = {
    "tag": lambda repository, _: repository.delete_tag("named"),
    "branch": lambda repository, newest: repository.reset_branch("named", newest),
}


@pytest.mark.parametrize("kind", LETTING_GO)
def test_who_looks_for_what_was_named_as_it_expired_while_the_name_goes_is_told_that_it_has_expired(kind: str) -> None:
    storage = in_memory_storage()
    repository = world(storage)
    snapshot, newest = commit(repository, put("g/a", 0, 10)), commit(repository, put("g/a", 0, 20))
    naming = Meanwhile(storage, "put_if_absent", "/branch/main/", lambda: NAMES[kind](repository, snapshot))
    Repository.open(naming).expire_snapshots(now())
    tags = run_alone(context_of(repository).repository_log.table()).tags
    key = checkpoint_key(tags["named"].origin.checkpoint) if tags else origin_of(storage, "named")

    def goes() -> None:
        LETTING_GO[kind](repository, newest)
        repository.garbage_collect(now(), full=True)

    meanwhile = Meanwhile(storage, "get", key, goes)
    with pytest.raises(SnapshotExpiredError):
        Repository.open(meanwhile).readonly_session(snapshot_id=snapshot)
    assert meanwhile.happened


LOOKS: dict[str, Callable[[Repository, str], bool]] = {
    "by id": lambda repository, snapshot: repository.lookup_snapshot(snapshot).id == snapshot,
    "reading": lambda repository, snapshot: values(repository.readonly_session(snapshot_id=snapshot))[0] == 10,
    "history": lambda repository, snapshot: snapshot in {each.id for each in repository.ancestry(branch="main")},
    "its history": lambda repository, snapshot: next(iter(repository.ancestry(snapshot_id=snapshot))).id == snapshot,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_who_looks_while_what_an_expiry_left_is_listed_anew_and_the_old_list_collected_finds_it(
    look: Callable[[Repository, str], bool],
) -> None:
    storage = in_memory_storage()
    repository = world(storage)
    snapshot = commit(repository, put("g/a", 0, 10))
    repository.create_tag("kept", snapshot)
    for at in range(3):
        commit(repository, put("g/a", 0, 20 + at))
    Repository.open(storage).expire_snapshots(now())

    def list_anew() -> None:
        other = Repository.open(storage)
        commit(other, put("g/a", 0, 30))
        other.expire_snapshots(now())
        other.garbage_collect(now(), full=True)

    meanwhile = Meanwhile(storage, "get", "/kept/", list_anew)
    assert look(Repository.open(meanwhile), snapshot)
    assert meanwhile.happened


READS: dict[str, Callable[[Repository], object]] = {
    "statistics": lambda repository: repository.statistics(branch="other").branch,
    "history": lambda repository: list(repository.ancestry(branch="other")),
    "as of": lambda repository: repository.readonly_session("other", as_of=now()).snapshot_id,
    "reset": lambda repository: repository.reset_branch("other", repository.lookup_branch("main")),
}


@pytest.mark.parametrize("read", READS)
def test_who_reads_a_branch_that_is_reset_and_collected_meanwhile_reads_it_again_or_is_told_so(read: str) -> None:
    made = in_memory_storage()
    repository = world(made)
    repository.create_branch("other", repository.lookup_branch("main"))
    repository.reset_branch("other", commit(repository, put("g/a", 0, 10)))
    commit(repository, put("g/b", 0, 10), branch="other")
    commit(repository, put("g/a", 0, 11))
    passed, happened = 0, True
    while happened:  # before each of its requests for snapshots
        storage = copy_of(made)
        meanwhile = Meanwhile(storage, "get", "snapshots/", reset_and_collected(storage), passed)
        with suppress(SnapshotExpiredError):
            assert READS[read](Repository.open(meanwhile)) != []
        happened, passed = meanwhile.happened, passed + 1
        newest = Repository.open(storage).lookup_branch("main")
        assert not happened or Repository.open(storage).lookup_branch("other") == newest
    assert passed > 2
