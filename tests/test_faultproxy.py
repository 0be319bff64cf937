"""The proxy that loses, doubles, delays and truncates: each fault does to a request what its name says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from arraystore import Storage, StorageError, s3_storage
from arraystore._runtime import run
from arraystore.storage.settings import StorageRetriesSettings, StorageSettings
from tests.faultproxy import FAULTS, FaultProxy, running_proxy
from tests.s3server import S3Server

ONCE = StorageSettings(retries=StorageRetriesSettings(max_tries=1))
TWICE = StorageSettings(retries=StorageRetriesSettings(max_tries=2, initial_backoff=0.01))


def _storage(server: S3Server, url: str, bucket: str, settings: StorageSettings = ONCE) -> Storage:
    told = {key: value for key, value in asdict(server).items() if key not in ("kind", "endpoint_url")}
    return s3_storage(
        bucket=bucket, endpoint_url=url, allow_http=True, force_path_style=True, settings=settings, **told
    )


@contextlib.contextmanager
def _proxied(server: S3Server, faults: list[str | None]) -> Iterator[tuple[Any, str]]:
    """Run a proxy in a thread that does to one request after the other what a list says, and nothing after its end."""
    host, _, port = server.endpoint_url.removeprefix("http://").rpartition(":")
    proxy = FaultProxy((host, int(port)), chosen=lambda method, path: faults.pop(0) if faults else None)
    proxy.longest_delay = 0.05
    ready: Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Queue()

    async def serve() -> None:
        end = asyncio.Event()
        _, url = await proxy.serve()
        ready.put((url, asyncio.get_running_loop(), end))
        await end.wait()

    thread = Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    url, loop, end = ready.get(timeout=10)
    try:
        yield proxy, url
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket("proxy")


def test_without_faults_everything_passes_through(s3_server: S3Server, bucket: str) -> None:
    with _proxied(s3_server, []) as (_, url):
        storage = _storage(s3_server, url, bucket)
        run(storage.put("a/b", b"x" * 100_000))
        assert run(storage.put_if_absent("c", b"1"))
        assert not run(storage.put_if_absent("c", b"2"))
        assert bytes(run(storage.get("a/b"))) == b"x" * 100_000
        assert [bytes(part) for part in run(storage.get_ranges("a/b", [(1, 3)]))] == [b"xx"]
        assert run(storage.head("a/b")).size == 100_000
        assert run(storage.delete(["a/b"])) == []


@pytest.mark.parametrize(
    ("fault", "there"),
    [("lose request", False), ("refuse before", False), ("lose answer", True), ("refuse after", True)],
)
def test_what_is_lost_is_lost_before_or_after_it_was_applied(
    s3_server: S3Server, bucket: str, fault: str, there: bool
) -> None:
    with _proxied(s3_server, [fault]) as (_, url):
        storage = _storage(s3_server, url, bucket)
        with pytest.raises(StorageError):
            run(storage.put_if_absent("key", b"value"))
        assert run(_keys(storage)) == (["key"] if there else [])


def test_a_put_that_is_sent_twice_is_answered_as_if_somebody_else_had_written(s3_server: S3Server, bucket: str) -> None:
    with _proxied(s3_server, ["send twice"]) as (_, url):
        answers = _raw_create(s3_server, url, bucket)
    assert answers == 412
    assert bytes(_storage(s3_server, s3_server.endpoint_url, bucket).get_sync("key")) == b"value"


def _raw_create(server: S3Server, url: str, bucket: str) -> int:
    """Create an object conditionally, with a client that neither repeats nor compares; returns the status."""
    import botocore.exceptions

    client = S3Server(server.kind, url, server.access_key_id, server.secret_access_key, server.region).client()
    try:
        client.put_object(Bucket=bucket, Key="key", Body=b"value", IfNoneMatch="*")
    except botocore.exceptions.ClientError as error:
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
    return 200


def test_a_truncated_answer_is_no_shorter_object(s3_server: S3Server, bucket: str) -> None:
    with _proxied(s3_server, [None, "truncate answer"]) as (_, url):
        storage = _storage(s3_server, url, bucket)
        run(storage.put("key", b"x" * 1000))
        with pytest.raises(StorageError):
            run(storage.get("key"))
        assert len(run(storage.get("key"))) == 1000


@pytest.mark.parametrize("fault", FAULTS)
def test_a_client_that_tries_twice_gets_over_any_fault(s3_server: S3Server, bucket: str, fault: str) -> None:
    with _proxied(s3_server, [fault, None, None, fault]) as (proxy, url):
        storage = _storage(s3_server, url, bucket, TWICE)
        assert run(storage.put_if_absent("key", b"value"))
        assert bytes(run(storage.get("key"))) == b"value"
        assert proxy.counts[fault] >= 1


def test_a_proxy_in_a_process_of_its_own_ends_with_the_block(s3_server: S3Server, bucket: str) -> None:
    with running_proxy(s3_server.endpoint_url, 1, 0.0) as proxy:
        storage = _storage(s3_server, proxy.url, bucket)
        run(storage.put("key", b"value"))
        counts = proxy.stop()
    assert set(counts) == {"passed on"}
    assert proxy.process.poll() is not None


async def _keys(storage: Storage) -> list[str]:
    return [info.key async for page in storage.list("") for info in page]
