"""A lost record of the repository log is rebuilt from what later ones repeat; else it is said what is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arraystore import Repository, in_memory_storage
from arraystore._format.digest import DIGEST_BYTES
from arraystore._format.repository_log import decode_repository_record, encode_repository_record
from arraystore.storage import MemoryStorage
from tests.commit.support import create_repository, delete, keys, put
from tests.keys import id_of, logged, refs_of
from tests.maintenance.verification.support import about, copied, objects_of, verified
from tests.tiers import mostly_thorough

LAST = 70


@pytest.fixture(scope="module")
def whole() -> MemoryStorage:
    """Return a repository with 70 records in its repository log."""
    storage = in_memory_storage()
    repository = create_repository(storage)
    snapshot = repository.lookup_branch("main")
    for number in range(20):
        repository.create_tag(f"v{number}", snapshot)
    for number in range(LAST - 20):
        repository.update_metadata({"number": number})
    repository.wait_for_maintenance()
    assert logged(storage, LAST) in keys(storage)
    assert logged(storage, LAST + 1) not in keys(storage)
    return storage


LOST = [[2], [5, 6, 7], [62], [63], [65], [66, 67, 68], [69], [*range(40, 63), 66]]


@pytest.mark.parametrize("lost", mostly_thorough(LOST, every=3))
def test_lost_records_that_later_ones_repeat_are_rebuilt_as_they_were(whole: MemoryStorage, lost: list[int]) -> None:
    before = objects_of(whole)
    storage = copied(whole)
    for number in lost:
        delete(storage, logged(storage, number))
    repository = Repository.open(storage)
    found = {each.key: each.repair for each in verified(repository).findings}
    assert found.keys() == {logged(storage, number) for number in lost}
    assert all(text.startswith("run repair") for text in found.values())
    planned = repository.repair(dry_run=True)
    assert {action.key for action in planned.actions} == found.keys()
    assert set(keys(storage)).isdisjoint(found)
    assert repository.repair().left == ()
    assert objects_of(storage) == before


def test_a_table_that_is_lost_is_named_with_what_can_be_read_without_it(whole: MemoryStorage) -> None:
    storage = copied(whole)
    delete(storage, logged(storage, 64))
    report = Repository.open(storage).repair()
    (left,) = [each for each in report.left if each.key == logged(storage, 64)]
    assert "cannot be rebuilt" in left.repair
    assert "tags, branches and settings are lost" in left.repair
    assert not report.ok
    assert logged(storage, 64) not in keys(storage)


def test_a_table_that_a_later_one_replaces_is_missed_by_the_log_of_operations_only(whole: MemoryStorage) -> None:
    storage = copied(whole)
    repository = Repository.open(storage)
    for number in range(60):
        repository.update_metadata({"later": number})
    delete(storage, logged(storage, 64))
    (left,) = Repository.open(storage).repair().left
    assert "but for the log of operations" in left.repair
    assert len(Repository.open(storage).list_tags()) == 20


def test_nothing_is_written_that_does_not_fit_the_next_record(whole: MemoryStorage) -> None:
    storage = copied(whole)
    key = logged(storage, 11)
    there = decode_repository_record(key, storage.get_sync(key), 11, id_of(storage))
    delete(storage, logged(storage, 10))
    delete(storage, key)
    put(storage, key, encode_repository_record(replace(there, before=bytes(DIGEST_BYTES))))
    report = Repository.open(storage).repair()
    assert logged(storage, 10) not in keys(storage)
    assert "cannot be rebuilt" in about(verified(Repository.open(storage)), logged(storage, 10))[0].repair
    assert all(not action.key.startswith(refs_of(storage)) for action in report.actions)
