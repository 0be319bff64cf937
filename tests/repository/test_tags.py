"""Tags that are deleted: their names are burnt, and nothing else changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from arraystore import AlreadyExistsError, RefNotFoundError, Repository, in_memory_storage
from tests.commit.support import commit_number, commit_rows, create_repository, keys, number
from tests.repository.test_refs import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_tag_that_is_deleted_is_gone_and_its_name_is_never_given_again(name: str) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    first, second = commit_rows(repository, 1, 2)
    other = Repository.open(storage)
    repository.create_tag(name, first)
    assert other.lookup_tag(name) == first
    repository.delete_tag(name)
    before = keys(storage)
    for opened in (repository, other, Repository.open(storage)):
        assert opened.list_tags() == set()
        with pytest.raises(RefNotFoundError, match="there is no tag"):
            opened.lookup_tag(name)
        with pytest.raises(RefNotFoundError, match="there is no tag"):
            opened.readonly_session(tag=name)
        with pytest.raises(RefNotFoundError, match="there is no tag"):
            opened.delete_tag(name)
        for snapshot in (first, second):
            with pytest.raises(AlreadyExistsError, match="its name is never used again"):
                opened.create_tag(name, snapshot)
    assert keys(storage) == before
    repository.create_branch(name, first)  # branches have names of their own
    assert repository.list_branches() == {"main", name}


def test_names_stay_burnt_however_many_tags_come_after() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    newest = commit_number(repository, 1, 1)
    repository.create_tag("first", newest)
    repository.delete_tag("first")
    for turn in range(140):  # past two tables
        repository.create_tag(f"t{turn}", newest)
    assert len(Repository.open(storage).list_tags()) == 140
    with pytest.raises(AlreadyExistsError, match="'first'"):
        Repository.open(storage).create_tag("first", newest)


def test_of_many_that_delete_a_tag_one_does() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    repository.create_tag("v1", commit_number(repository, 1, 1))

    def end(_: int) -> bool:
        try:
            Repository.open(storage).delete_tag("v1")
        except RefNotFoundError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(end, range(6))) == 1


def test_a_tag_that_is_deleted_takes_no_data_from_sessions_and_branches() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    repository.create_tag("v1", commit_number(repository, 1, 1))
    session = repository.readonly_session(tag="v1")
    repository.create_branch("side", repository.lookup_tag("v1"))
    repository.delete_tag("v1")
    assert number(session, 1) == number(Repository.open(storage).readonly_session("side"), 1) == 1
