"""A clone made while its source changes holds nothing that tells of records which it does not have."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from arraystore import MemoryStorage, Repository
from arraystore.copying import clone_repository
from tests.copying.support import new_repository, objects, random_history, reopened
from tests.meanwhile import Meanwhile

_REQUESTS = 26
"""Requests of a clone before which something happens: all until it copies, and some later ones."""


def _source() -> dict[str, bytes]:
    storage = MemoryStorage()
    repo = new_repository(storage=storage)
    made = random_history(repo, 4, 2)
    repo.create_branch("dev", made[0])
    random_history(repo, 5, 1, "dev")
    repo.create_tag("v1", made[0])
    repo.wait_for_maintenance()
    return objects(storage)


def _delete(repo: Repository) -> None:
    repo.delete_branch("dev")


def _create(repo: Repository) -> None:
    random_history(repo, 6, 1)
    repo.create_branch("new", repo.lookup_branch("main"))
    random_history(repo, 7, 1, "new")
    repo.create_tag("v2", repo.lookup_branch("new"))


def _delete_and_create(repo: Repository) -> None:
    repo.delete_branch("dev")
    repo.create_branch("dev", repo.lookup_branch("main"))


def _collect(repo: Repository) -> None:
    random_history(repo, 6, 1)
    repo.garbage_collect(datetime.now(UTC))


@pytest.mark.parametrize(
    "act",
    [
        _delete,
        _create,
        pytest.param(_delete_and_create, marks=pytest.mark.thorough),
        pytest.param(_collect, marks=pytest.mark.thorough),
    ],
)
def test_nothing_in_a_clone_tells_of_a_lost_record_whatever_happens_at_the_source(
    act: Callable[[Repository], None],
) -> None:
    made = _source()
    acted = 0
    for at in range(1, _REQUESTS):
        source, target = MemoryStorage(), MemoryStorage()
        for key, data in made.items():
            source.put_sync(key, data)
        during = Meanwhile(source, at, lambda source=source: act(Repository.open(source)))  # type: ignore[misc]
        clone_repository(during, target)
        acted += during.acted
        assert reopened(target).verify().findings == (), f"request {at}"
        clone_repository(source, target)
        assert reopened(target).verify().findings == (), f"cloned again after request {at}"
        assert reopened(target).list_branches() == reopened(source).list_branches()
    assert acted > 20
