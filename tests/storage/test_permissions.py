"""What readers, writers and those who maintain a repository must be allowed to do, and that nothing else is needed."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import (
    ConflictDetector,
    PermissionDeniedError,
    Repository,
    Session,
    StorageError,
    in_memory_storage,
    s3_storage,
)
from arraystore._environment import ENVIRONMENT, Environment
from arraystore._log.conditional_put import Put, put_surely
from arraystore._runtime import run
from arraystore.storage import BytesLike, DeleteFailure, Storage, WrapperStorage
from tests.s3server import SHARED_BUCKET, S3Server

PAGE = (Path(__file__).parents[2] / "docs" / "permissions.md").read_text()
READER, WRITER, MAINTAINER = ("reader", "writer", "maintainer")
GET, LIST, PUT, DELETE = ("s3:GetObject", "s3:ListBucket", "s3:PutObject", "s3:DeleteObject")
RIGHTS = {READER: {GET, LIST}, WRITER: {GET, LIST, PUT}, MAINTAINER: {GET, LIST, PUT, DELETE}}


class Limited(WrapperStorage):
    """A storage whose credentials allow some actions only."""

    def __init__(self, inner: Storage, role: str) -> None:
        super().__init__(inner)
        self.allow(role)

    def allow(self, role: str) -> None:
        """Give it the rights of a role from now on."""
        self._allowed = RIGHTS[role]

    def _check(self, action: str, key: str) -> None:
        if action not in self._allowed:
            raise PermissionDeniedError(f"{key}: Access Denied: {action}")

    async def put(self, key: str, data: BytesLike) -> None:
        self._check(PUT, key)
        await super().put(key, data)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        self._check(PUT, key)
        return await super().put_if_absent(key, data)

    async def put_new(self, key: str, data: BytesLike) -> Any:
        self._check(PUT, key)
        return await super().put_new(key, data)

    async def put_stream(self, key: str, parts: AsyncIterator[BytesLike]) -> None:
        self._check(PUT, key)
        await super().put_stream(key, parts)

    def put_sync(self, key: str, data: BytesLike) -> None:
        self._check(PUT, key)
        super().put_sync(key, data)

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        if DELETE in self._allowed:
            return await super().delete(keys)
        return [DeleteFailure(key, "Access Denied") for key in keys]


def founded(storage: Storage) -> None:
    """Create a repository with an array."""
    repository = Repository.create(storage)
    with repository.transaction("main", message="create") as store:
        zarr.create_array(store, name="a", shape=(64,), chunks=(1,), dtype="i4", fill_value=0)


def write(session: Session, row: int) -> None:
    zarr.open_array(session.store, path="a")[row] = row + 1


def read_everything(storage: Storage) -> int:
    """Read in every way there is, and return the sum of the array."""
    repository = Repository.open(storage)
    session = repository.readonly_session("main")
    list(repository.ancestry(branch="main"))
    list(repository.ops_log())
    repository.list_branches(), repository.list_tags()
    assert repository.verify(level="chunks").ok
    return int(np.asarray(zarr.open_array(session.store, path="a", mode="r")[:]).sum())


def write_everything(storage: Storage) -> None:
    """Commit from many threads at once, and do all else that writers do."""

    def commit(row: int) -> None:
        session = repositories[row % 4].writable_session("main")
        write(session, row)
        session.commit(f"row {row}", rebase_with=ConflictDetector())

    repositories = [Repository.open(storage) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(commit, range(24)))
    repository = repositories[0]
    repository.create_branch("dev", repository.lookup_branch("main"))
    repository.create_tag("v1", repository.lookup_branch("main"))
    write(session := repository.writable_session("dev"), 24)
    flushed = session.flush("on no branch")
    repository.reset_branch("dev", flushed)
    repository.delete_branch("dev")
    for each in repositories:
        each.wait_for_maintenance()


def maintain(storage: Storage) -> None:
    """Expire, compact and collect."""
    repository = Repository.open(storage)
    repository.expire_snapshots(datetime.now(UTC))
    repository.compact()
    summary = repository.garbage_collect(datetime.now(UTC))
    assert summary.failures == ()


class WithoutOverwriting(Limited):
    """A storage whose credentials create objects, and replace none, as those of an objectCreator of GCS."""

    async def put(self, key: str, data: BytesLike) -> None:
        if not await self.put_if_absent(key, data):
            raise PermissionDeniedError(f"{key}: Access Denied: storage.objects.delete")


SUM = sum(range(1, 25))


def test_each_role_can_do_what_it_is_for_with_its_rights_and_no_more() -> None:
    storage = in_memory_storage()
    founded(Limited(storage, WRITER))
    assert read_everything(Limited(storage, READER)) == 0
    write_everything(Limited(storage, WRITER))
    assert read_everything(Limited(storage, READER)) == SUM
    maintain(Limited(storage, MAINTAINER))
    assert read_everything(Limited(storage, READER)) == SUM


def test_a_writer_who_may_not_replace_objects_writes_all_the_same() -> None:
    storage = in_memory_storage()
    founded(WithoutOverwriting(storage, WRITER))
    write_everything(WithoutOverwriting(storage, WRITER))
    assert read_everything(Limited(storage, READER)) == SUM


def commit_one(storage: Storage) -> None:
    """Commit once."""
    write(session := Repository.open(storage).writable_session("main"), 0)
    session.commit("one row")


@pytest.mark.parametrize("change", [commit_one, maintain, founded], ids=lambda change: change.__name__)
def test_a_reader_is_told_that_writing_is_not_allowed(change: Callable[[Storage], None]) -> None:
    storage = in_memory_storage()
    if change is not founded:
        founded(storage)
    with pytest.raises(PermissionDeniedError, match="Access Denied"):
        change(Limited(storage, READER))


def test_a_session_whose_commit_was_not_allowed_commits_once_it_is() -> None:
    storage = in_memory_storage()
    founded(storage)
    limited = Limited(storage, READER)
    session = Repository.open(limited).writable_session("main")
    write(session, 0)
    for _ in range(2):
        with pytest.raises(PermissionDeniedError):
            session.commit("one row")
    limited.allow(WRITER)
    snapshot = session.commit("one row")
    assert Repository.open(storage).lookup_branch("main") == snapshot


@pytest.mark.parametrize("discarded", [False, True], ids=["kept", "discarded"])
def test_what_is_written_after_a_commit_that_was_not_allowed_is_committed_too(discarded: bool) -> None:
    storage = in_memory_storage()
    founded(storage)
    limited = Limited(storage, READER)
    session = Repository.open(limited).writable_session("main")
    write(session, 0)
    with pytest.raises(PermissionDeniedError):
        session.commit("refused")
    limited.allow(WRITER)
    if discarded:
        session.discard_changes()
    write(session, 1)
    snapshot = session.commit("allowed")
    repository = Repository.open(storage)
    rows = zarr.open_array(repository.readonly_session("main").store, path="a", mode="r")[:2].tolist()
    assert rows == [0 if discarded else 1, 2]
    assert repository.lookup_snapshot(snapshot).message == "allowed"


class WrittenUnseen(Limited):
    """A storage that writes what it is told to, says that it was there before, and lets nobody read it."""

    async def put_new(self, key: str, data: BytesLike) -> Any:
        await super().put_new(key, data)
        return False

    async def get(self, key: str) -> BytesLike:
        raise PermissionDeniedError(f"{key}: Access Denied: s3:GetObject")


async def at_once(_: float) -> None:
    pass


@pytest.fixture
def without_pauses() -> Iterator[None]:
    """Let repositories repeat requests at once."""
    token = ENVIRONMENT.set(Environment(sleep=at_once))
    yield
    ENVIRONMENT.reset(token)


def test_a_refusal_that_may_not_be_looked_into_is_no_denial() -> None:
    storage = WrittenUnseen(in_memory_storage(), WRITER)
    assert run(put_surely(storage, Environment(sleep=at_once), "refs/a", b"data")) == Put.FOUND


class DeniedUnseen(Limited):
    """A storage that writes records, denies their repetition by an intermediary, and lets nobody read them for now."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner, WRITER)
        self.blind = False

    async def put_new(self, key: str, data: BytesLike) -> Any:
        written = await super().put_new(key, data)
        self._deny(key, PUT)
        return written

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        self._deny(key, PUT)
        return await super().put_if_absent(key, data)

    async def get(self, key: str) -> BytesLike:
        self._deny(key, GET)
        return await super().get(key)

    def _deny(self, key: str, action: str) -> None:
        if self.blind and "/branch/" in key:
            raise PermissionDeniedError(f"{key}: Access Denied: {action}")


def check_committed_once(storage: DeniedUnseen | RecordsUnreadable) -> None:
    """Commit while looks are denied, which is no denial of the commit, and again once they are allowed."""
    founded(storage)
    session = Repository.open(storage).writable_session("main")
    write(session, 0)
    storage.blind = True
    with pytest.raises(StorageError) as caught:
        session.commit("one row")
    assert not isinstance(caught.value, PermissionDeniedError)
    storage.blind = False
    session.commit("one row")
    assert [info.message for info in Repository.open(storage).ancestry(branch="main")][:2] == ["one row", "create"]


def test_a_denied_record_that_nobody_may_look_for_is_committed_once_at_most(without_pauses: None) -> None:
    check_committed_once(DeniedUnseen(in_memory_storage()))


class RecordsUnreadable(Limited):
    """A storage that writes records, and lets nobody look at the place after them for now."""

    blind = False
    cheap_probes = True

    async def head(self, key: str) -> Any:
        self._look(key)
        return await super().head(key)

    async def get(self, key: str) -> BytesLike:
        self._look(key)
        return await super().get(key)

    def _look(self, key: str) -> None:
        if self.blind and "/branch/" in key:
            raise PermissionDeniedError(f"{key}: Access Denied: {GET}")


def test_a_denied_look_at_what_comes_after_a_record_says_nothing_of_the_record(without_pauses: None) -> None:
    check_committed_once(RecordsUnreadable(in_memory_storage(), WRITER))


def test_a_collection_without_the_right_to_delete_names_what_it_could_not() -> None:
    storage = in_memory_storage()
    founded(storage)
    write_everything(storage)
    repository = Repository.open(Limited(storage, WRITER))
    repository.expire_snapshots(datetime.now(UTC))
    repository.compact()
    summary = repository.garbage_collect(datetime.now(UTC))
    assert {failure.reason for failure in summary.failures} == {"Access Denied"}
    assert read_everything(storage) == SUM


def test_the_page_gives_each_role_these_actions() -> None:
    policies = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    told = [{action for each in one["Statement"] for action in each["Action"]} for one in policies[:3]]
    assert [actions - {"s3:AbortMultipartUpload"} for actions in told] == list(RIGHTS.values())


@pytest.mark.thorough
def test_a_server_that_enforces_rights_lets_each_role_do_its_part(s3_server: S3Server) -> None:
    def storage(role: str) -> Storage:
        server = s3_server.role(role) if role else s3_server
        return s3_storage(
            bucket=SHARED_BUCKET, prefix="some/repository", region=server.region, endpoint_url=server.endpoint_url,
            allow_http=True, force_path_style=True, access_key_id=server.access_key_id,
            secret_access_key=server.secret_access_key,
        )  # fmt: skip

    with contextlib.suppress(s3_server.client().exceptions.BucketAlreadyExists):
        s3_server.client().create_bucket(Bucket=SHARED_BUCKET)
    founded(storage(WRITER))
    assert read_everything(storage(READER)) == 0
    with pytest.raises(PermissionDeniedError, match="bucket's policy"):
        commit_one(storage(READER))
    write_everything(storage(WRITER))
    maintain(storage(WRITER))  # which may delete, here
    assert read_everything(storage(READER)) == SUM
