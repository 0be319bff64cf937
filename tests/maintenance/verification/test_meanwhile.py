"""Verification while snapshots expire and are collected: what is deleted then is no error, and damage still is."""

from __future__ import annotations

import pytest

from arraystore import CountingStorage, Repository
from tests.commit.support import delete, keys
from tests.maintenance.model import now
from tests.maintenance.verification.support import commit_all, small_repository, verified
from tests.maintenance.worlds import Meanwhile


def _let_go(repository: Repository) -> None:
    """Let everything go that may, from another process."""
    other = Repository.open(repository.storage)
    other.delete_tag("release")
    other.delete_branch("side")
    other.expire_snapshots(now())
    other.garbage_collect(now(), full=True)


@pytest.mark.parametrize(
    ("operation", "part"),
    [("list", "chunks/"), ("list", "snapshots/"), ("get", "snapshots/"), ("get_ranges", "chunks/")],
)
def test_snapshots_that_expire_and_are_collected_meanwhile_are_not_missed(operation: str, part: str) -> None:
    repository = small_repository()
    storage = Meanwhile(repository.storage, operation, part, lambda: _let_go(repository))
    assert verified(Repository.open(storage), "chunks").errors == ()
    assert storage.happened


def test_what_is_damaged_is_told_though_snapshots_expire_meanwhile() -> None:
    repository = small_repository()
    damaged: list[str] = []

    def damage() -> None:
        _let_go(repository)
        damaged.append(keys(repository.storage, "chunks/")[-1])
        delete(repository.storage, damaged[0])

    storage = Meanwhile(repository.storage, "list", "chunks/", damage)
    assert [finding.key for finding in verified(Repository.open(storage)).errors] == damaged != []


def test_commits_meanwhile_let_no_verification_begin_again() -> None:
    repository = small_repository()
    newest = keys(repository.storage, "chunks/")[-1]
    delete(repository.storage, newest)
    storage = CountingStorage(Meanwhile(repository.storage, "get", "repo", lambda: commit_all(repository, 50)))
    assert [finding.key for finding in verified(Repository.open(storage)).errors] == [newest]
    assert storage.log.count(("list", "chunks/")) == 1
