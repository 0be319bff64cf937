"""Storages whose listings miss what was written last: nothing is lost, everybody gets on, a collection waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import zarr

from arraystore import ConflictDetector, Repository, in_memory_storage
from arraystore._runtime import run
from arraystore.storage import Storage
from arraystore.storage.protocol import BytesLike, ObjectInfo
from arraystore.storage.wrapper import WrapperStorage


class LateListings(WrapperStorage):
    """Lists no object that was written since `settle` was called last."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.cheap_probes = False
        self._unlisted: set[str] = set()

    def settle(self) -> None:
        """Let listings show what there is."""
        self._unlisted = set()

    async def put(self, key: str, data: BytesLike) -> None:
        self._unlisted.add(key)
        await super().put(key, data)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        self._unlisted.add(key)
        return await super().put_if_absent(key, data)

    async def put_new(self, key: str, data: BytesLike) -> bool:
        return await self.put_if_absent(key, data)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        async for page in super().list(prefix, start_after):
            yield [info for info in page if info.key not in self._unlisted]


@pytest.fixture
def storage() -> LateListings:
    return LateListings(in_memory_storage())


def commit(repository: Repository, name: str) -> str:
    session = repository.writable_session("main")
    zarr.create_array(session.store, name=name, shape=(1,), dtype="i4")
    return session.commit(name, rebase_with=ConflictDetector())


def names(repository: Repository) -> set[str]:
    group = zarr.open_group(repository.readonly_session("main").store, mode="r")
    return set(group.array_keys())


def with_a_group(storage: Storage) -> Repository:
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    zarr.create_group(session.store)
    session.commit("group")
    return repository


def test_a_new_repository_is_opened_before_any_listing_shows_its_first_record(storage: LateListings) -> None:
    Repository.create(storage)
    repository = Repository.open(storage)
    session = repository.writable_session("main")
    zarr.create_group(session.store)
    session.commit("first")
    assert next(info.message for info in repository.ancestry(branch="main")) == "first"


def test_writers_get_on_and_lose_nothing_while_listings_show_nothing_new(storage: LateListings) -> None:
    with_a_group(storage)
    storage.settle()
    writers = [Repository.open(storage) for _ in range(3)]
    for number in range(30):
        commit(writers[number % 3], f"a{number}")
    storage.settle()
    assert names(Repository.open(storage)) == {f"a{number}" for number in range(30)}


def test_a_stale_tip_is_an_older_snapshot_and_a_commit_on_it_a_conflict_never_a_loss(storage: LateListings) -> None:
    ours = with_a_group(storage)
    storage.settle()
    commit(ours, "seen")
    late = Repository.open(storage)  # which no listing tells of the commit
    session = late.writable_session("main")
    zarr.create_array(session.store, name="late", shape=(1,), dtype="i4")
    session.commit("late", rebase_with=ConflictDetector())
    storage.settle()
    assert names(Repository.open(storage)) == {"seen", "late"}


def test_names_are_created_behind_records_that_no_listing_shows(storage: LateListings) -> None:
    ours = with_a_group(storage)
    storage.settle()
    theirs = Repository.open(storage)
    theirs.list_tags()
    tip = ours.lookup_branch("main")
    ours.create_tag("one", snapshot_id=tip)
    theirs.create_tag("two", snapshot_id=tip)
    ours.create_branch("three", tip)
    storage.settle()
    assert Repository.open(storage).list_tags() == {"one", "two"}
    assert Repository.open(storage).list_branches() == {"main", "three"}


@pytest.mark.parametrize("lag", [0.0, 3.0])
def test_a_collection_outwaits_listings_between_its_fence_and_its_roots(storage: LateListings, lag: float) -> None:
    storage.listing_lag = lag
    repository = with_a_group(storage)
    storage.settle()
    environment = repository.context.environment
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        storage.settle()

    waiting = replace(environment, sleep=sleep)
    repository.context.environment = waiting
    repository.context.repository_log.environment = waiting
    repository.garbage_collect(datetime.now(UTC))
    run(repository.context.idle())
    assert slept == ([2 * lag] if lag else [])
