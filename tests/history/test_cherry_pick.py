"""Cherry-picking: what a snapshot changed, on another branch."""

from __future__ import annotations

from typing import Any

import pytest

from arraystore import InvalidInputError, RebaseFailedError, SnapshotExpiredError
from arraystore._conflicts import ConflictType
from tests.history.test_revert import CHANGES
from tests.history.worlds import attributes, both, commit, contents, created, deleted, grouped, moved, put, world


@pytest.mark.parametrize("inline", [0, 512], ids=["in packs", "inlined"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_branch_gets_what_one_snapshot_of_another_changed(change: Any, inline: int) -> None:
    repository = world(inline=inline)
    repository.create_branch("other", repository.lookup_branch("main"))
    commit(repository, created("first", 1))
    snapshot = commit(repository, change, "the change")
    commit(repository, created("last", 1))
    expected = contents(repository)
    del expected["first"], expected["last"]
    picked = repository.cherry_pick(snapshot, branch="other")
    assert contents(repository, "other") == expected
    (info, *_) = repository.ancestry(branch="other")
    assert (info.id, info.message, info.metadata) == (picked, "the change", {"cherry_picked_from": snapshot})


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_a_branch_has_is_not_picked_again(change: Any) -> None:
    repository = world()
    repository.create_branch("other", repository.lookup_branch("main"))
    snapshot = commit(repository, change)
    newest = repository.cherry_pick(snapshot, branch="other")
    for branch in ("main", "other"):
        with pytest.raises(InvalidInputError, match="has already all that snapshot"):
            repository.cherry_pick(snapshot, branch=branch)
    assert repository.lookup_branch("other") == newest


def test_several_snapshots_of_an_array_are_picked_one_after_the_other() -> None:
    repository = world()
    repository.create_branch("other", repository.lookup_branch("main"))
    steps = [created("c"), put("c", 0, 1), attributes("c", units="K"), moved("c", "d"), put("d", 1, 2), deleted("d")]
    snapshots = [commit(repository, step) for step in steps]
    for snapshot in snapshots[:2]:
        repository.cherry_pick(snapshot, branch="other")
    assert contents(repository, "other")["c"] == ({}, [1, 7])
    for snapshot in snapshots[2:4]:
        repository.cherry_pick(snapshot, branch="other")
    assert contents(repository, "other")["d"] == ({"units": "K"}, [1, 7])


def test_what_the_branch_has_changed_itself_is_a_conflict() -> None:
    repository = world()
    repository.create_branch("other", repository.lookup_branch("main"))
    snapshot = commit(repository, put("g/a", 0, 10))
    commit(repository, put("g/a", 0, 11), branch="other")
    with pytest.raises(RebaseFailedError) as caught:
        repository.cherry_pick(snapshot, branch="other")
    (conflict,) = caught.value.conflicts
    assert (conflict.conflict_type, conflict.path) == (ConflictType.ChunkDoubleUpdate, "/g/a")
    assert contents(repository, "other")["g/a"] == ({}, [11, 2, 3, 4, 5, 6])


def test_an_array_of_the_same_name_that_is_another_one_is_a_conflict() -> None:
    repository = world()
    repository.create_branch("other", repository.lookup_branch("main"))
    commit(repository, created("c", 1))
    snapshot = commit(repository, put("c", 0, 2))
    commit(repository, created("c", 3), branch="other")
    with pytest.raises(RebaseFailedError) as caught:
        repository.cherry_pick(snapshot, branch="other")
    assert [c.conflict_type for c in caught.value.conflicts] == [ConflictType.ChunkDoubleUpdate]


def test_an_array_of_the_same_name_and_values_takes_the_place_of_the_other_one() -> None:
    repository = world()
    repository.create_branch("other", repository.lookup_branch("main"))
    commit(repository, created("c", 1))
    snapshot = commit(repository, put("c", 0, 2))
    commit(repository, created("c", 1), branch="other")
    repository.cherry_pick(snapshot, branch="other")
    assert contents(repository, "other") == contents(repository)


def test_what_has_expired_while_it_was_picked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from arraystore._history import pinning

    repository = world()
    repository.create_branch("other", repository.lookup_branch("main"))
    snapshot = commit(repository, put("g/a", 0, 10))

    async def gone(context: Any, state: Any) -> None:
        raise SnapshotExpiredError("gone")

    monkeypatch.setattr(pinning, "check_kept", gone)
    newest = repository.lookup_branch("other")
    with pytest.raises(SnapshotExpiredError):
        repository.cherry_pick(snapshot, branch="other")
    assert repository.lookup_branch("other") == newest


def test_what_a_move_would_bring_to_the_place_of_a_new_node_is_a_conflict() -> None:
    repository = world()
    commit(repository, created("a"))
    repository.create_branch("other", repository.lookup_branch("main"))
    snapshot = commit(repository, both(moved("g", "h"), created("h/c")))
    newest = commit(repository, moved("a", "g/c"), branch="other")
    with pytest.raises(RebaseFailedError) as caught:
        repository.cherry_pick(snapshot, branch="other")
    conflicts = [(c.conflict_type, c.path) for c in caught.value.conflicts]
    assert conflicts == [(ConflictType.NewNodeConflictsWithExistingNode, "/h/c")]
    assert repository.lookup_branch("other") == newest


def test_what_a_move_takes_away_does_not_stand_in_the_way_of_a_new_node() -> None:
    repository = world()
    commit(repository, created("a"))
    repository.create_branch("other", repository.lookup_branch("main"))
    snapshot = commit(repository, both(moved("g", "h"), grouped("g"), created("g/c")))
    commit(repository, moved("a", "g/c"), branch="other")
    repository.cherry_pick(snapshot, branch="other")
    assert set(contents(repository, "other")) == {"", "g", "g/c", "h", "h/a", "h/b", "h/c"}
