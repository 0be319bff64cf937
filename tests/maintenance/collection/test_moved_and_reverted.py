"""What is moved, reverted or picked stays readable, whatever is expired, compacted and collected meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import zarr

from arraystore import ConflictDetector, Repository, SessionExpiredError, SnapshotNotFoundError
from arraystore._format.ids import id_from_text, id_to_text
from tests.history.worlds import commit, contents, created, deleted, put, world
from tests.maintenance.model import now


def clean_up(repository: Repository) -> None:
    """Expire all but the newest snapshot, and delete everything that nothing needs."""
    repository.expire_snapshots(now())
    repository.garbage_collect(now(), full=True)


def values(repository: Repository, path: str = "g/a", branch: str = "main") -> list[int]:
    """Return what is read with nothing cached."""
    fresh = Repository.open(repository.storage)
    found: list[int] = zarr.open_array(fresh.readonly_session(branch).store, path=path, mode="r")[...].tolist()
    return found


def test_what_a_revert_brought_back_outlives_the_snapshots_that_it_is_from() -> None:
    repository = world()
    snapshot = commit(repository, put("g/a", 2, 30))
    moment = now()
    repository.revert(snapshot)
    repository.expire_snapshots(moment)  # the log begins with a snapshot that does not show what was brought back
    repository.garbage_collect(now(), full=True)
    assert values(repository) == [1, 2, 3, 4, 5, 6]
    clean_up(repository)
    assert values(repository) == [1, 2, 3, 4, 5, 6]


def test_what_was_picked_outlives_the_branch_that_it_is_from() -> None:
    repository = world()
    repository.create_branch("other", repository.lookup_branch("main"))
    snapshot = commit(repository, created("g/c"), branch="other")
    commit(repository, deleted("g/c"), branch="other")
    repository.cherry_pick(snapshot)
    repository.delete_branch("other")
    clean_up(repository)
    assert values(repository, "g/c") == [7, 7]


@pytest.mark.parametrize("expired", [False, True])
def test_what_was_shifted_is_read_although_its_packs_were_given_up_in_between(expired: bool) -> None:
    repository = world()
    for at in range(6):
        commit(repository, put("g/a", at, 10 + at))  # each makes a small pack
    moment = now()
    session = repository.writable_session("main")
    session.shift_array("g/a", (1,))
    assert repository.compact().packs_rewritten == 6
    commit(repository, created("later"))
    commit(repository, created("even later"))
    if expired:
        repository.expire_snapshots(now())
    repository.garbage_collect(moment, full=True)
    session.commit("shifted", rebase_with=ConflictDetector())
    assert values(repository) == [0, 10, 11, 12, 13, 14]
    clean_up(repository)
    assert values(repository) == [0, 10, 11, 12, 13, 14]


def test_a_shift_that_a_collection_has_overtaken_is_refused_and_can_be_done_again() -> None:
    repository = world()
    session = repository.writable_session("main")
    session.shift_array("g/a", (1,))
    repository.garbage_collect(now())
    with pytest.raises(SessionExpiredError):
        session.commit("late")
    session = repository.writable_session("main")
    session.shift_array("g/a", (1,))
    session.commit("again")
    clean_up(repository)
    assert values(repository) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("change", [put("g/a", 2, 30), deleted("g/a"), created("g/c")], ids=["chunk", "gone", "new"])
def test_what_is_older_than_the_last_collection_can_be_brought_back(change: Callable[[Any], None]) -> None:
    repository = world()
    before = contents(repository)
    snapshot = commit(repository, change)
    repository.garbage_collect(now())
    repository.revert(snapshot)
    clean_up(repository)
    assert contents(Repository.open(repository.storage)) == before


def test_a_collection_that_begins_while_a_revert_is_prepared_only_makes_it_begin_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from arraystore._repository import revert

    repository = world()
    snapshot = commit(repository, put("g/a", 2, 30))
    announced: list[bytes] = []
    original = revert.announce

    async def overtaken(*arguments: Any) -> bytes:
        announced.append(await original(*arguments))
        if len(announced) == 1:
            other = await Repository.open_async(repository.storage)
            await other.garbage_collect_async(now())
        return announced[-1]

    monkeypatch.setattr(revert, "announce", overtaken)
    reverted = repository.revert(snapshot)
    assert len(announced) == 2
    assert id_from_text(id_to_text(announced[1])) > announced[0]
    assert repository.lookup_branch("main") == reverted
    assert values(repository) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("collected", [False, True])
def test_a_snapshot_whose_predecessor_has_expired_cannot_be_reverted_or_picked(collected: bool) -> None:
    repository = world()
    commit(repository, put("g/a", 0, 10))
    snapshot = commit(repository, put("g/a", 1, 20))
    commit(repository, put("g/a", 2, 30))
    repository.expire_snapshots(now(), keep_last=2)
    if collected:
        repository.garbage_collect(now(), full=True)
    assert snapshot in [info.id for info in repository.ancestry(branch="main")]
    fresh = Repository.open(repository.storage)
    with pytest.raises(SnapshotNotFoundError, match="cannot be reverted: its parent"):
        fresh.revert(snapshot)
    with pytest.raises(SnapshotNotFoundError, match="cannot be cherry-picked: its parent"):
        fresh.cherry_pick(snapshot)
    assert values(repository) == [10, 20, 30, 4, 5, 6]
