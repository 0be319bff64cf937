"""A log belongs to one repository, and each record to the one before it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from arraystore import Repository, in_memory_storage, local_filesystem_storage
from arraystore._log.loading import load_tip
from arraystore._runtime import run
from arraystore._session.session import Session
from arraystore.errors import (
    AlreadyExistsError,
    ArrayStoreError,
    FormatError,
    LogForkError,
    LogHoleError,
    ObjectNotFoundError,
    RepositoryGoneError,
)
from arraystore.storage import MemoryStorage, Storage
from tests.commit.support import (
    DistantStorage,
    commit_number,
    commit_rows,
    create_repository,
    delete,
    keys,
    number,
    put,
    put_number,
)
from tests.keys import id_of, log_of, logged, record
from tests.maintenance.verification.support import about, copied, verified
from tests.seams import context_of
from tests.tiers import mostly_thorough

LAST = 70


@pytest.fixture(params=["memory", "local", "distant"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return local_filesystem_storage(tmp_path / "repository", fsync=False)
    return in_memory_storage() if request.param == "memory" else DistantStorage(in_memory_storage())


def emptied(storage: Storage) -> None:
    """Delete everything."""
    delete(storage, "")


def written(session: Session) -> Session:
    put_number(session, 1, 11)
    return session


# -- a session that outlives its repository ------------------------------------------------------------------


LATE: dict[str, Callable[[Repository, Session], object]] = {
    "commit": lambda repository, session: session.commit("late"),
    "tag": lambda repository, session: repository.create_tag("late", session.snapshot_id),
    "branch": lambda repository, session: repository.create_branch("late", session.snapshot_id),
    "compact": lambda repository, session: repository.compact(),
    "metadata": lambda repository, session: repository.update_metadata({"late": 1}),
}


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
def test_whatever_a_late_session_does_a_new_repository_stays_as_it_is(storage: Storage, late: str, again: bool) -> None:
    repository = create_repository(storage)
    commit_rows(repository, 1, 3)
    session = written(repository.writable_session("main"))
    repository.wait_for_maintenance()
    emptied(storage)
    if again:
        commit_number(create_repository(storage), 5, 55)
    before = {key: bytes(storage.get_sync(key)) for key in keys(storage)}
    try:
        LATE[late](repository, session)
    except ArrayStoreError:
        refused = True
    else:
        refused = False
    assert refused or not storage.cheap_probes
    repository.wait_for_maintenance()
    assert {key: bytes(storage.get_sync(key)) for key in before} == before
    if not again:
        emptied(storage)
        commit_number(create_repository(storage), 5, 55)
    fresh = Repository.open(storage)
    assert number(fresh.readonly_session("main"), 5) == 55
    assert (fresh.list_tags(), fresh.list_branches()) == (set(), {"main"})
    commit_number(fresh, 6, 66)
    assert verified(fresh).ok


def test_a_late_commit_is_refused_where_asking_costs_nothing() -> None:
    storage = in_memory_storage()
    session = written(create_repository(storage).writable_session("main"))
    emptied(storage)
    with pytest.raises(RepositoryGoneError, match="was deleted since"):
        session.commit("late")
    assert not [key for key in keys(storage) if key.startswith("refs/")]
    create_repository(storage)
    with pytest.raises(RepositoryGoneError, match="in its place"):
        session.commit("late")
    assert all(key.startswith(f"refs/{log_of(storage).split('/')[1]}/") for key in keys(storage, "refs/"))


def test_a_record_that_a_late_session_wrote_is_reported_and_never_read() -> None:
    storage = in_memory_storage()
    stranger = DistantStorage(storage)
    session = written(create_repository(stranger).writable_session("main"))
    emptied(storage)
    commit_number(create_repository(storage), 5, 55)
    old = session.commit("late")
    fresh = Repository.open(storage)
    assert old not in {info.id for info in fresh.ancestry(branch="main")}
    (finding,) = [each for each in verified(fresh).findings if "another repository" in each.problem]
    assert "delete" in finding.repair


def test_creating_where_strays_of_another_repository_lie_works_if_asked_for() -> None:
    storage = in_memory_storage()
    session = written(create_repository(DistantStorage(storage)).writable_session("main"))
    emptied(storage)
    session.commit("late")
    with pytest.raises(ArrayStoreError, match="not empty"):
        Repository.create(storage)
    repository = Repository.create(storage, check_clean_root=False)
    assert [info.message for info in repository.ancestry(branch="main")] == ["Repository initialized"]


def test_whoever_loses_the_creation_takes_its_first_record_back() -> None:
    storage = in_memory_storage()
    create_repository(storage)
    before = keys(storage)
    with pytest.raises(AlreadyExistsError):
        Repository.create(storage)
    assert keys(storage) == before


# -- records that are lost -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole() -> Storage:
    """Return a repository whose record n writes n into row n - 1."""
    made = in_memory_storage()
    repository = create_repository(made)
    commit_rows(repository, 1, LAST - 1)
    repository.wait_for_maintenance()
    return made


@pytest.mark.parametrize("hint", [True, False], ids=["hint", "no hint"])
@pytest.mark.parametrize("place", mostly_thorough(["probing", "listing", "local"]))
def test_a_lost_record_is_never_an_older_state_without_a_word(
    whole: Storage, place: str, hint: bool, tmp_path: Path
) -> None:
    tip = max(int(key[-12:]) for key in keys(whole, log_of(whole)))
    for lost in range(tip):
        storage: Storage = copied(whole)
        if place == "local":
            storage = local_filesystem_storage(tmp_path / str(lost), fsync=False)
            for key in keys(whole):
                storage.put_sync(key, bytes(whole.get_sync(key)))
        delete(storage, record(storage, lost))
        if not hint:
            delete(storage, "hints/")
        try:
            session = Repository.open(DistantStorage(storage) if place == "listing" else storage).readonly_session(
                "main"
            )
        except (LogHoleError, ObjectNotFoundError):
            continue
        assert number(session, LAST - 1) == LAST - 1, lost


def test_a_writer_does_not_put_a_record_into_a_hole(whole: Storage) -> None:
    storage = copied(whole)
    commit_number(Repository.open(storage), 1000, 1)
    repository = Repository.open(storage)
    session = written(repository.writable_session("main"))
    commit_number(Repository.open(storage), 1001, 1)
    commit_number(Repository.open(storage), 1002, 1)
    numbers = sorted(int(key[-12:]) for key in keys(storage, log_of(storage)))
    delete(storage, record(storage, numbers[-2]))
    with pytest.raises((LogHoleError, LogForkError)):
        session.commit("into the hole")


def test_a_follower_notices_a_record_lost_behind_the_one_it_knows(whole: Storage) -> None:
    storage = copied(whole)
    follower = Repository.open(storage)
    follower.readonly_session("main")
    other = Repository.open(storage)
    commit_rows(other, 1001, 1003)
    tip = max(int(key[-12:]) for key in keys(storage, log_of(storage)))
    delete(storage, record(storage, tip - 2))
    with pytest.raises(LogHoleError, match=f"{tip - 2:012d}"):
        follower.readonly_session("main")


@pytest.mark.parametrize("hint", [True, False], ids=["hint", "no hint"])
@pytest.mark.parametrize("lost", [3, 7])
def test_up_to_seven_lost_records_never_hide_newer_ones(whole: Storage, lost: int, hint: bool) -> None:
    for first in range(0, _tip(whole) - lost + 1, 3):
        assert _is_noticed(_with_hole(whole, range(first, first + lost), hint=hint)), first


@pytest.mark.parametrize("lost", [8, 33])
def test_more_lost_records_hide_nothing_where_as_many_are_behind_them(whole: Storage, lost: int) -> None:
    for first in range(0, _tip(whole) - 2 * lost + 2, 3):
        assert _is_noticed(_with_hole(whole, range(first, first + lost), hint=False)), first


def _tip(storage: Storage) -> int:
    return max(int(key[-12:]) for key in keys(storage, log_of(storage)))


def _with_hole(whole: Storage, lost: range, *, hint: bool) -> Storage:
    storage = copied(whole)
    for each in lost:
        delete(storage, record(storage, each))
    if not hint:
        delete(storage, "hints/")
    return storage


def _is_noticed(storage: Storage) -> bool:
    """Tell whether a new reader gets an error, or what the newest record says."""
    try:
        session = Repository.open(storage).readonly_session("main")
    except (LogHoleError, ObjectNotFoundError):
        return True
    return number(session, LAST - 1) == LAST - 1


def test_a_follower_notices_many_records_lost_behind_the_one_it_knows(whole: Storage) -> None:
    storage = copied(whole)
    follower = Repository.open(storage)
    follower.readonly_session("main")
    known = _tip(storage)
    commit_rows(Repository.open(storage), 1001, 1010)
    for lost in range(1, 7):
        delete(storage, record(storage, known + lost))
    for _ in range(2):  # as long as nobody has mended it
        with pytest.raises(LogHoleError, match=f"{known + 1:012d}"):
            follower.readonly_session("main")


@pytest.mark.parametrize("place", ["memory", "distant"])
@pytest.mark.parametrize("lost", [1, 5])
def test_who_has_seen_the_newest_records_notices_that_they_are_lost(whole: Storage, place: str, lost: int) -> None:
    inner = copied(whole)
    storage: Storage = inner if place == "memory" else DistantStorage(inner)
    follower = Repository.open(storage)
    commit_number(follower, 1001, 1)
    tip = _tip(inner)
    taken = {key: bytes(inner.get_sync(key)) for key in (record(inner, tip - back) for back in range(lost))}
    for key in taken:
        delete(inner, key)
    log = context_of(follower).log("main")
    with pytest.raises(LogHoleError, match=f"{tip - lost + 1:012d}.*has seen record {tip}"):
        run(load_tip(log, run(log.hint())))
    for key, data in taken.items():
        put(inner, key, data)
    assert run(load_tip(log, run(log.hint()))).sequence == tip


@pytest.mark.parametrize("place", ["memory", "distant"])
def test_a_checkpoint_of_a_lost_record_to_which_a_hint_leads_is_noticed_until_a_repair(
    whole: Storage, place: str
) -> None:
    inner = copied(whole)
    for lost in range(64, _tip(inner) + 1):
        delete(inner, record(inner, lost))
    storage: Storage = inner if place == "memory" else DistantStorage(inner)
    with pytest.raises(LogHoleError, match=r"000000000064.*there is a checkpoint of record 64"):
        Repository.open(storage).readonly_session("main")
    repository = Repository.open(storage)
    (finding,) = about(verified(repository), "hints/main")
    assert finding.severity == "error"
    assert "all records from 64 on are lost" in finding.problem
    assert repository.repair().ok
    assert verified(repository).ok
    assert number(Repository.open(storage).readonly_session("main"), 62) == 62


def _half_lost() -> tuple[MemoryStorage, dict[str, bytes], range]:
    """Return a repository of 128 records of which all but the first sixty and the last are lost, and what it was."""
    storage = in_memory_storage()
    repository = create_repository(storage)
    rows = 0
    while _tip(storage) < 128:
        commit_number(repository, rows, rows)
        rows += 1
    repository.wait_for_maintenance()
    delete(storage, "hints/")
    while _tip(storage) > 128:
        delete(storage, record(storage, _tip(storage)))
    before = {key: bytes(storage.get_sync(key)) for key in keys(storage)}
    lost = range(70, 128)
    for each in lost:
        delete(storage, record(storage, each))
    return storage, before, lost


def test_a_hole_that_no_reader_comes_upon_is_named_by_verify_and_mended_by_repair(tmp_path: Path) -> None:
    inner, before, lost = _half_lost()
    storage = local_filesystem_storage(tmp_path / "repository", fsync=False)
    for key in keys(inner):
        storage.put_sync(key, bytes(inner.get_sync(key)))
    assert Repository.open(storage).readonly_session("main").base_tip.sequence == 69  # nothing tells
    missing = {each.key for each in verified(Repository.open(storage)).errors if "does not exist" in each.problem}
    assert missing == {record(storage, each) for each in lost}
    assert Repository.open(storage).repair().ok
    assert {key: bytes(storage.get_sync(key)) for key in before} == before


MAINTENANCE: dict[str, Callable[[Repository], object]] = {
    "expire": lambda repository: repository.expire_snapshots(datetime.now(UTC)),
    "collect": lambda repository: repository.garbage_collect(datetime.now(UTC)),
}


@pytest.mark.parametrize("what", MAINTENANCE)
def test_maintenance_takes_nothing_below_a_hole_for_the_tip(what: str) -> None:
    storage, _, lost = _half_lost()
    before = {key: bytes(storage.get_sync(key)) for key in keys(storage)}
    for _ in range(2):
        with pytest.raises(LogHoleError, match=f"{lost[0]:012d}"):
            MAINTENANCE[what](Repository.open(storage))
    assert {key: data for key, data in before.items() if not key.startswith("refs/")} == {
        key: bytes(storage.get_sync(key)) for key in keys(storage) if not key.startswith("refs/")
    }
    assert Repository.open(storage).repair().ok
    MAINTENANCE[what](Repository.open(storage))


# -- records of others ---------------------------------------------------------------------------------------


def test_a_record_of_another_repository_in_the_place_of_one_names_both() -> None:
    one, two = in_memory_storage(), in_memory_storage()
    for each in (one, two):
        commit_rows(create_repository(each), 1, 3)
    put(one, record(one, 4), bytes(two.get_sync(record(two, 4))))
    with pytest.raises(FormatError, match="belongs to repository") as caught:
        Repository.open(one).readonly_session("main")
    for each in (one, two):
        assert log_of(each).split("/")[1] in str(caught.value)


def test_a_record_of_another_repository_s_log_of_tags_is_refused() -> None:
    one, two = in_memory_storage(), in_memory_storage()
    for each in (one, two):
        repository = create_repository(each)
        repository.create_tag("v1", repository.lookup_branch("main"))
    put(one, logged(one, 1), bytes(two.get_sync(logged(two, 1))))
    with pytest.raises(FormatError, match="belongs to repository"):
        Repository.open(one).list_tags()


def test_a_record_that_was_written_on_top_of_another_one_is_a_fork() -> None:
    storage = in_memory_storage()
    commit_rows(create_repository(storage), 1, 6)
    other = copied(storage)
    assert id_of(other) == id_of(storage)
    for each, row in ((storage, 100), (other, 200)):
        commit_rows(Repository.open(each), row, row + 2)  # records 8 to 10
    put(storage, record(storage, 10), bytes(other.get_sync(record(other, 10))))
    with pytest.raises(LogForkError, match="goes on from another record"):
        Repository.open(storage).readonly_session("main")
    assert any("goes on from another record" in each.problem for each in verified(Repository.open(storage)).errors)


def test_a_known_tip_is_not_followed_into_a_fork() -> None:
    storage = in_memory_storage()
    commit_rows(create_repository(storage), 1, 2)
    other = copied(storage)
    follower = Repository.open(storage)
    commit_number(follower, 10, 10)  # record 4 here
    commit_rows(Repository.open(other), 20, 21)  # records 4 and 5 there
    put(storage, record(storage, 5), bytes(other.get_sync(record(other, 5))))
    with pytest.raises(LogForkError):
        follower.readonly_session("main")


def test_an_entry_of_the_repository_log_on_top_of_another_one_is_a_fork() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    snapshot = repository.lookup_branch("main")
    other = copied(storage)
    for each, name in ((storage, "here"), (other, "there")):
        opened = Repository.open(each)
        opened.create_tag(name, snapshot)
        opened.create_tag(f"{name} again", snapshot)
    watcher = Repository.open(copied(storage))
    assert watcher.list_tags() == {"here", "here again"}
    Repository.open(other).create_tag("there for good", snapshot)
    put(watcher.storage, logged(other, 3), bytes(other.get_sync(logged(other, 3))))
    with pytest.raises(LogForkError, match="goes on from another record"):
        watcher.list_tags()
