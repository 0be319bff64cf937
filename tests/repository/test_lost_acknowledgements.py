"""An acknowledgement that is lost on the way is found out, not taken for a failure."""

from __future__ import annotations

import pytest

from arraystore import Fault, FaultyStorage, Repository, in_memory_storage


@pytest.mark.parametrize("key", ["repo", "refs/*/branch/main/000000000000"])
def test_a_repository_is_created_though_the_acknowledgement_of_an_object_is_lost(key: str) -> None:
    storage = FaultyStorage(in_memory_storage(), [Fault("put_if_absent", key=key, when="after")])
    repository = Repository.create(storage)
    assert repository.list_branches() == {"main"}
    assert len(storage.injected) == 1


def test_a_tag_is_created_though_its_acknowledgement_is_lost() -> None:
    storage = FaultyStorage(
        in_memory_storage(), [Fault("put_if_absent", key="refs/*/repository/000000000001", when="after")]
    )
    repository = Repository.create(storage)
    snapshot = repository.lookup_branch("main")
    repository.create_tag("v1", snapshot)
    assert repository.lookup_tag("v1") == snapshot
    assert len(storage.injected) == 1
