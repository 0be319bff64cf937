"""Arguments of the wrong type are refused by name, before anything is read or written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from arraystore import InvalidInputError, Repository, in_memory_storage


@pytest.mark.parametrize("method", [Repository.create, Repository.open, Repository.open_or_create, Repository.exists])
@pytest.mark.parametrize("wrong", ["s3://bucket/prefix", None, 5])
def test_what_is_no_storage_is_refused_with_the_way_to_one(method: Callable[[Any], Any], wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="storage_from_url"):
        method(wrong)


@pytest.mark.parametrize("method", [Repository.create, Repository.open_or_create])
def test_a_configuration_of_another_type_is_refused(method: Callable[..., Any]) -> None:
    wrong: Any = {"inline_chunk_threshold_bytes": 0}
    storage = in_memory_storage()
    with pytest.raises(InvalidInputError, match="RepositoryConfig, not a dict"):
        method(storage, wrong)
    assert not Repository.exists(storage)


@pytest.mark.parametrize("wrong", [5, "text", {1: 2}, {"a": object()}])
def test_default_metadata_that_cannot_be_stored_is_refused_when_it_is_set(wrong: Any) -> None:
    repository = Repository.create(in_memory_storage())
    with pytest.raises(InvalidInputError):
        repository.set_default_commit_metadata(wrong)
    assert repository.default_commit_metadata() == {}
