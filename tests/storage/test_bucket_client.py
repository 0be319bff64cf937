"""One client for all users of a bucket in a process: one pool of connections, one limit."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from dataclasses import replace
from typing import Any

import pytest
import zarr

import arraystore
from arraystore.storage import ObstoreStorage, S3StaticCredentials, StorageSettings, s3_storage
from arraystore.storage.bucket_client import BucketClient
from tests.s3server import S3Server
from tests.seams import client_of
from tests.storage.test_retries import QUICK, ScriptedServer, server

__all__ = ["server"]


def storage(**options: Any) -> ObstoreStorage:
    return s3_storage(**{"bucket": "b", "region": "us-east-1", "anonymous": True} | options)


def fetch() -> S3StaticCredentials:
    """Return credentials, as a function of a user would."""
    return S3StaticCredentials("key", "secret")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"anonymous": None, "access_key_id": "key", "secret_access_key": "secret"},
        {"anonymous": None, "get_credentials": fetch},
        {"headers": {"x": "y"}, "settings": QUICK},
    ],
    ids=["anonymous", "keys", "function", "headers and settings"],
)
def test_storages_of_one_bucket_share_a_client_whatever_their_prefix(options: dict[str, Any]) -> None:
    first, second = storage(prefix="a", **options), storage(prefix="b/c", **options)
    assert client_of(first) is client_of(second)


@pytest.mark.parametrize(
    ("options", "others"),
    [
        ({}, {"bucket": "another"}),
        ({}, {"region": "eu-north-1"}),
        ({}, {"endpoint_url": "https://example.com"}),
        ({}, {"settings": StorageSettings(timeouts=replace(StorageSettings().timeouts, request=7.0))}),
        ({}, {"anonymous": None, "access_key_id": "key", "secret_access_key": "secret"}),
        (
            {"anonymous": None, "access_key_id": "key", "secret_access_key": "secret"},
            {"anonymous": None, "access_key_id": "key", "secret_access_key": "other"},
        ),
        ({"headers": {"x": "y"}}, {"headers": {"x": "z"}}),
    ],
)
def test_storages_that_differ_in_more_than_the_prefix_have_clients_of_their_own(
    options: dict[str, Any], others: dict[str, Any]
) -> None:
    first, second = storage(**options), storage(**options | others)
    assert client_of(first) is not client_of(second)


def test_credentials_in_the_environment_belong_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "one")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    first = storage(anonymous=None, from_env=True)
    before = client_of(first)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "two")
    assert client_of(storage(anonymous=None, from_env=True)) is not before
    assert client_of(first) is before


def test_credentials_from_what_cannot_be_hashed_get_a_client_of_their_own() -> None:
    class Fetch:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self) -> S3StaticCredentials:
            return fetch()

    one = Fetch()
    first, second = (storage(anonymous=None, get_credentials=one) for _ in range(2))
    assert client_of(first) is client_of(first)
    assert client_of(first) is not client_of(second)


@pytest.mark.thorough
def test_a_client_goes_with_the_last_storage_that_uses_it() -> None:
    first, second = storage(bucket="gone"), storage(bucket="gone")
    client = weakref.ref(client_of(first))
    assert client_of(second) is client()
    del first
    gc.collect()
    assert client() is not None
    del second
    gc.collect()
    assert client() is None


def test_threads_that_start_at_once_make_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[BucketClient] = []
    create = BucketClient.__init__

    def counted(self: BucketClient, *arguments: Any) -> None:
        made.append(self)
        create(self, *arguments)

    monkeypatch.setattr(BucketClient, "__init__", counted)
    storages = [storage(bucket="threads", prefix=str(number)) for number in range(8)]
    barrier = threading.Barrier(len(storages))

    def use(one: ObstoreStorage) -> None:
        barrier.wait(10)
        client_of(one)

    threads = [threading.Thread(target=use, args=(one,)) for one in storages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(made) == 1


def test_requests_one_after_the_other_use_one_connection_whichever_thread_loop_or_storage_sends_them(
    server: ScriptedServer,
) -> None:
    options: dict[str, Any] = {
        "endpoint_url": f"http://127.0.0.1:{server.server_port}",
        "allow_http": True,
        "settings": QUICK,
    }
    first, second = storage(prefix="p", **options), storage(prefix="q", **options)
    first.put_sync("a", b"1")
    asyncio.run(second.put("a", b"2"))
    thread = threading.Thread(target=lambda: second.get_sync("a"))
    thread.start()
    thread.join(10)
    assert bytes(asyncio.run(first.get("a"))) == b"1"
    assert server.requests == ["PUT", "PUT", "GET", "GET"]
    assert len(server.connections) == 1


def test_sessions_of_two_repositories_in_threads_share_one_client(s3_server: S3Server) -> None:
    bucket = s3_server.new_bucket()
    options: dict[str, Any] = {
        "bucket": bucket,
        "region": s3_server.region,
        "endpoint_url": s3_server.endpoint_url,
        "allow_http": True,
        "access_key_id": s3_server.access_key_id,
        "secret_access_key": s3_server.secret_access_key,
    }
    storages = [s3_storage(prefix=f"repository{number}", **options) for number in range(2)]
    repositories = [arraystore.Repository.create(one) for one in storages]

    def commit(repository: arraystore.Repository) -> None:
        session = repository.writable_session("main")
        zarr.create_group(session.store)
        session.commit("a group")

    threads = [threading.Thread(target=commit, args=(repository,)) for repository in repositories]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [len(list(one.ancestry(branch="main"))) for one in repositories] == [2, 2]
    assert client_of(storages[0]) is client_of(storages[1])
    assert client_of(storages[0]).limit.in_flight == 0
