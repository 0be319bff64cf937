"""Creating and opening: races, interrupted creations, dirty places, storages that cannot be trusted, old formats."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from arraystore import AlreadyExistsError, FormatError, InvalidInputError, Repository, in_memory_storage
from arraystore._format.envelope import FORMAT_VERSION
from arraystore.errors import RepositoryNotFoundError, StorageError, UnsupportedStorageError
from arraystore.storage import Fault, FaultyStorage
from arraystore.storage.protocol import BytesLike
from arraystore.storage.wrapper import WrapperStorage
from tests.commit.support import commit_number, commit_rows, create_repository, keys, number, put, put_bytes
from tests.keys import record
from tests.tiers import mostly_thorough


class _Careless(WrapperStorage):
    """Ignores that a write was to happen only if absent, as some gateways do."""

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        await self.put(key, data)
        return True


def test_a_new_repository_has_one_branch_with_one_empty_snapshot() -> None:
    repository = Repository.create(in_memory_storage())
    assert repository.list_branches() == {"main"}
    assert repository.list_tags() == set()
    (only,) = repository.ancestry(branch="main")
    assert (only.id, only.parent_id, only.metadata) == (repository.lookup_branch("main"), None, {})
    assert only.message == "Repository initialized"


def test_exists_tells_whether_there_is_a_repository() -> None:
    storage = in_memory_storage()
    assert not Repository.exists(storage)
    Repository.create(storage)
    assert Repository.exists(storage)


def test_opening_what_is_not_there_says_so() -> None:
    with pytest.raises(RepositoryNotFoundError, match="create one"):
        Repository.open(in_memory_storage())


def test_a_second_creation_is_refused_and_changes_nothing() -> None:
    storage = in_memory_storage()
    first = Repository.create(storage)
    with pytest.raises(AlreadyExistsError, match="open it"):
        Repository.create(storage)
    assert Repository.open(storage).id == first.id


@pytest.mark.parametrize("check", [True, False])
def test_a_repository_in_use_is_never_created_again(check: bool) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    session = repository.writable_session("main")
    put_bytes(session, 0, bytes(100_000))
    session.commit("a pack, whose key is listed before all others")
    before = keys(storage)
    with pytest.raises(AlreadyExistsError):
        Repository.create(storage, check_clean_root=check)
    assert keys(storage) == before
    assert Repository.open_or_create(storage).id == repository.id


def test_a_careless_storage_loses_no_repository_that_it_has() -> None:
    inner = in_memory_storage()
    repository = create_repository(inner)
    for check in (True, False):
        with pytest.raises(AlreadyExistsError):
            Repository.create(_Careless(inner), check_clean_root=check)
    assert Repository.open(inner).id == repository.id
    assert len(list(Repository.open(inner).ancestry(branch="main"))) == 2


def test_a_dirty_prefix_is_refused_with_what_is_there_and_left_alone() -> None:
    storage = in_memory_storage()
    put(storage, "someone/elses", b"data")
    with pytest.raises(InvalidInputError, match="someone/elses"):
        Repository.create(storage)
    assert keys(storage) == ["someone/elses"]
    assert Repository.create(storage, check_clean_root=False).list_branches() == {"main"}


def test_a_storage_that_ignores_put_if_absent_is_refused_with_the_remedy_and_left_clean() -> None:
    inner = in_memory_storage()
    with pytest.raises(UnsupportedStorageError, match="conditional writes"):
        Repository.create(_Careless(inner))
    assert keys(inner) == []


@pytest.mark.parametrize("turn", mostly_thorough([2, 1]))
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_creation_that_was_interrupted_can_be_completed(turn: int, when: str) -> None:
    inner = in_memory_storage()
    fault = Fault("put_if_absent", when=when, first=turn, times=None)  # type: ignore[arg-type]
    with pytest.raises(StorageError, match="on purpose"):
        Repository.create(FaultyStorage(inner, [fault]))
    repository = Repository.open_or_create(inner)
    assert len(list(repository.ancestry(branch="main"))) == 1
    with pytest.raises(AlreadyExistsError):
        Repository.create(inner)


def test_of_many_threads_that_create_a_repository_one_does_and_all_can_open_it() -> None:
    for _ in range(20):
        storage = in_memory_storage()

        def create(_: int, storage=storage) -> bool:  # type: ignore[no-untyped-def]
            try:
                Repository.create(storage)
            except AlreadyExistsError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(create, range(8))) == 1
            assert len(set(pool.map(lambda _, storage=storage: Repository.open(storage).id, range(8)))) == 1


def test_open_or_create_works_for_all_of_many_threads_that_commit_at_once() -> None:
    storage = in_memory_storage()
    create_repository(storage)
    with ThreadPoolExecutor(8) as pool:
        repositories = list(pool.map(lambda _: Repository.open_or_create(storage), range(8)))
    for row, repository in enumerate(repositories):
        commit_number(repository, row, row)
    session = Repository.open(storage).readonly_session("main")
    assert [number(session, row) for row in range(8)] == list(range(8))


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1, 255])
def test_another_format_version_is_refused_by_name(version: int) -> None:
    storage = in_memory_storage()
    create_repository(storage)
    data = bytearray(storage.get_sync("repo"))
    data[4] = version
    put(storage, "repo", bytes(data))
    with pytest.raises(FormatError, match="repo") as caught:
        Repository.open(storage)
    assert str(version) in str(caught.value)


@pytest.mark.parametrize("damage", [b"", b"{}", b"ARST", b"\x00" * 64])
def test_a_damaged_repository_object_is_refused_by_name(damage: bytes) -> None:
    storage = in_memory_storage()
    create_repository(storage)
    put(storage, "repo", damage)
    with pytest.raises(FormatError, match="repo"):
        Repository.open(storage)


def test_a_record_of_another_format_version_is_refused_by_name() -> None:
    storage = in_memory_storage()
    commit_rows(create_repository(storage), 1, 3)
    key = record(storage, 4)
    data = bytearray(storage.get_sync(key))
    data[4] = FORMAT_VERSION + 1
    put(storage, key, bytes(data))
    with pytest.raises(FormatError, match=key):
        Repository.open(storage).readonly_session("main")


def test_a_record_in_the_place_of_another_is_noticed() -> None:
    storage = in_memory_storage()
    commit_rows(create_repository(storage), 1, 3)
    put(storage, record(storage, 4), bytes(storage.get_sync(record(storage, 3))))
    with pytest.raises(FormatError, match="holds record 3"):
        Repository.open(storage).readonly_session("main")
