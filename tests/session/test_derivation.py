"""What commits record of rebases and merged forks."""

from __future__ import annotations

import asyncio

import pytest
import zarr

import arraystore
from arraystore import ConflictDetector, InvalidInputError, Repository, in_memory_storage
from arraystore._format.derivation import Derivation, split_metadata
from arraystore._runtime import run


@pytest.fixture
def repo() -> Repository:
    repo = Repository.create(in_memory_storage())
    with repo.transaction("main", message="zeros") as store:
        for name in "abc":
            zarr.create_array(store, name=name, shape=4, chunks=1, dtype="i4")[...] = 0
    return repo


def _write(store: arraystore.ArrayStore, name: str) -> None:
    zarr.open_array(store, path=name)[0] = 1


def _commit(repo: Repository, name: str) -> str:
    with repo.transaction("main", message=name) as store:
        _write(store, name)
    return repo.lookup_branch("main")


def test_a_rebased_commit_names_the_snapshot_that_it_was_made_on(repo: Repository) -> None:
    base = repo.lookup_branch("main")
    session = repo.writable_session("main")
    _write(session.store, "a")
    parent = [_commit(repo, name) for name in "bc"][-1]
    made = session.commit("ours", {"by": "us"}, rebase_with=ConflictDetector())
    info = repo.lookup_snapshot(made)
    assert (info.base_id, info.parent_id, info.metadata) == (base, parent, {"by": "us"})


def test_a_rebase_of_the_session_counts_from_where_its_changes_began(repo: Repository) -> None:
    base = repo.lookup_branch("main")
    session = repo.writable_session("main")
    _write(session.store, "a")
    for name in "bc":
        _commit(repo, name)
        session.rebase(ConflictDetector())
    assert repo.lookup_snapshot(session.commit("ours")).base_id == base


def test_a_session_without_changes_begins_anew_where_it_is_rebased_to(repo: Repository) -> None:
    session = repo.writable_session("main")
    newest = _commit(repo, "b")
    session.rebase(ConflictDetector())
    _write(session.store, "a")
    info = repo.lookup_snapshot(session.commit("ours", rebase_with=ConflictDetector()))
    assert info.base_id == info.parent_id == newest


def test_discarded_changes_leave_no_trace(repo: Repository) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    _write(fork.store, "a")
    session.merge(fork)
    _commit(repo, "b")
    session.rebase(ConflictDetector())
    session.discard_changes()
    _write(session.store, "c")
    info = repo.lookup_snapshot(session.commit("ours"))
    assert (info.base_id, info.merged_forks) == (None, 0)


def test_commits_of_one_record_name_their_base(repo: Repository) -> None:
    base = repo.lookup_branch("main")
    sessions = [repo.writable_session("main") for _ in "abc"]
    for name, session in zip("abc", sessions, strict=True):
        _write(session.store, name)

    async def all_at_once() -> list[str]:
        return await asyncio.gather(*(each.commit_async("x", rebase_with=ConflictDetector()) for each in sessions))

    made = run(all_at_once())
    assert [repo.lookup_snapshot(each).base_id for each in made] == [base] * 3


def test_forks_merged_into_the_session_are_counted_and_not_those_within_a_fork(repo: Repository) -> None:
    session = repo.writable_session("main")
    first, second = session.fork(), session.fork()
    below = second.fork()
    for name, fork in zip("abc", (first, second, below), strict=True):
        _write(fork.store, name)
    second.merge(below)
    session.merge(first, second)
    assert repo.lookup_snapshot(session.commit("forks")).merged_forks == 2


def test_a_commit_without_solver_and_forks_records_nothing(repo: Repository) -> None:
    session = repo.writable_session("main")
    _write(session.store, "a")
    info = repo.lookup_snapshot(session.commit("plain"))
    assert (info.base_id, info.merged_forks, info.metadata) == (None, 0, {})


def test_the_key_is_not_for_users(repo: Repository) -> None:
    session = repo.writable_session("main")
    _write(session.store, "a")
    with pytest.raises(InvalidInputError, match="__arraystore"):
        session.commit("mine", {"__arraystore": {}})
    assert session.has_uncommitted_changes


@pytest.mark.parametrize("parts", [{"base": "../..", "forks": True}, {"base": 1, "forks": -1}, {"forks": "9"}, {}])
def test_what_others_wrote_under_the_key_is_not_believed(parts: dict[str, object]) -> None:
    assert split_metadata({"a": 1, "__arraystore": parts}) == ({"a": 1}, Derivation())
    assert split_metadata({"__arraystore": 7}) == ({"__arraystore": 7}, Derivation())
