"""Moves, amendments and drawings as programs that were written for Icechunk expect them."""

from __future__ import annotations

import re

import pytest
import zarr

import arraystore
import arraystore.compat.icechunk as icechunk  # noqa: PLR0402 - as the docs say


@pytest.fixture
def repo() -> icechunk.Repository:
    """A repository with the array /g/a and the group /h."""
    repo = icechunk.Repository.create(icechunk.in_memory_storage())
    with repo.transaction("main", message="nodes") as store:
        zarr.create_array(store, name="g/a", shape=2, dtype="i4")
        zarr.open_group(store, mode="r+").create_group("h")
    return repo


def moving(repo: icechunk.Repository, *moves: tuple[str, str]) -> icechunk.Session:
    session = repo.rearrange_session("main")
    for old, new in moves:
        session.move(old, new)
    return session


def moved(repo: icechunk.Repository, snapshot: str) -> list[tuple[str, str]]:
    return [(row["from"], row["to"]) for row in repo.inspect_transaction_log(snapshot)["moved_nodes"]]


def test_an_amended_snapshot_tells_what_was_moved_since_the_one_that_it_replaced(repo: icechunk.Repository) -> None:
    moving(repo, ("/g/a", "/h/a"), ("/g", "/k")).amend("once")
    assert moved(repo, repo.lookup_branch("main")) == [("/g/a", "/h/a"), ("/g", "/k")]
    twice = moving(repo, ("/h/a", "/a"), ("/k", "/g")).amend("twice")
    assert moved(repo, twice) == [("/g/a", "/a")]


def test_a_move_of_a_node_of_the_parent_is_told_once(repo: icechunk.Repository) -> None:
    session = moving(repo, ("/g/a", "/h/a"))
    zarr.open_group(session.store, mode="r+").create_group("new")
    session.commit("moved")
    again = moving(repo, ("/h/a", "/a"), ("/new", "/newer")).amend("again")
    assert moved(repo, again) == [("/g/a", "/a"), ("/new", "/newer")]


def test_moves_that_undo_each_other_are_committed(repo: icechunk.Repository) -> None:
    there_and_back = ("/g/a", "/h/a"), ("/h/a", "/g/a")
    snapshot = moving(repo, *there_and_back).commit("nothing moved")
    assert (repo.lookup_branch("main"), moved(repo, snapshot)) == (snapshot, [])
    moving(repo, *there_and_back).amend("nothing moved")
    session = moving(repo, *there_and_back)
    session.discard_changes()
    with pytest.raises(icechunk.SessionStateError, match="no changes made to the session"):
        session.commit("nothing")


@pytest.mark.parametrize(("old", "new"), [("g", "k"), ("g/a", "h/a")])
def test_a_deletion_of_what_others_moved_is_a_conflict_with_a_move(
    repo: icechunk.Repository, old: str, new: str
) -> None:
    session = repo.writable_session("main")
    del zarr.open_group(session.store, mode="r+")[old]
    moving(repo, (old, new)).commit("moved")
    with pytest.raises(icechunk.RebaseFailedError) as caught:
        session.rebase(icechunk.ConflictDetector())
    types = {one.conflict_type for one in caught.value.conflicts if one.path == f"/{old}"}
    assert types == {icechunk.ConflictType.MoveOperationCannotBeRebased}


def test_a_deletion_of_what_others_moved_and_changed_is_one_of_what_they_changed(repo: icechunk.Repository) -> None:
    session = repo.writable_session("main")
    del zarr.open_group(session.store, mode="r+")["g/a"]
    theirs = moving(repo, ("/g/a", "/h/a"))
    zarr.open_array(theirs.store, path="h/a", mode="r+")[:] = 1
    theirs.commit("moved and written")
    with pytest.raises(icechunk.RebaseFailedError) as caught:
        session.rebase(icechunk.ConflictDetector())
    assert [one.conflict_type for one in caught.value.conflicts] == [icechunk.ConflictType.DeleteOfUpdatedArray]


def test_a_graph_is_drawn_in_colours_unless_a_plain_one_is_asked_for(repo: icechunk.Repository) -> None:
    repo.create_branch("side", repo.lookup_branch("main"))
    with repo.transaction("side", message="one") as store:
        zarr.open_group(store, mode="r+").attrs["a"] = 1
    with repo.transaction("main", message="two") as store:
        zarr.open_group(store, mode="r+").attrs["a"] = 2
    coloured = str(repo.ancestry_graph())
    assert {"\x1b[32m", "\x1b[36m"} < set(re.findall(r"\x1b\[\d+m", coloured))
    uncoloured = re.sub(r"\x1b\[\d+m", "", coloured)
    core = arraystore.Repository.open(repo._core.storage)
    first = core.ancestry_graph().rows[-1].id
    assert uncoloured == str(core.ancestry_graph()).replace(first, "1CECHNKREP0F1RSTCMT0")
    assert str(repo.ancestry_graph(plain=True)) == str(core.ancestry_graph(plain=True)).replace(
        first, "1CECHNKREP0F1RSTCMT0"
    )
