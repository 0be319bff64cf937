"""Uploads in parts: several at a time, while the object is written, and all or nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
import zarr

from arraystore import Repository, RepositoryConfig
from arraystore._chunks.pack_writer import PackSettings, PackWriter, pack_key
from arraystore._environment import Environment
from arraystore._runtime import submit
from arraystore.errors import ObjectNotFoundError, StorageError
from arraystore.storage import (
    CountingStorage,
    ObstoreStorage,
    StorageConcurrencySettings,
    StorageTimeoutSettings,
    in_memory_storage,
    s3_storage,
)
from arraystore.storage.part_stream import AbandonedUploadError, PartStream
from tests.s3server import S3Server
from tests.seams import client_of
from tests.storage.conftest import obstore_on
from tests.storage.test_retries import QUICK, SLOW_DOWN, Answer, Handler, ScriptedServer, error

MiB = 1 << 20
PART = 5 * MiB
IN_PARTS = replace(QUICK, minimum_size_for_multipart_upload=8 * MiB, multipart_part_size=PART)
DATA = bytes(range(256)) * (12 * MiB // 256)
DENIED = (403, error("AccessDenied"))


class MultipartHandler(Handler):
    """Handles uploads in parts, too; a part waits for the gate, which is open at first."""

    server: MultipartServer

    def _do(self, body: bytes) -> Answer:
        server, (path, _, text) = self.server, self.path.partition("?")
        query = {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}
        if "uploads" in query:
            return 200, b"<R><Bucket>b</Bucket><Key>k</Key><UploadId>U</UploadId></R>"
        if "uploadId" not in query:
            return super()._do(body)
        if self.command == "PUT":
            server.parts[int(query["partNumber"])] = body
        elif self.command == "POST":
            server.objects[path] = b"".join(server.parts[number] for number in sorted(server.parts))
        return 200, b"<R><ETag>x</ETag></R>"

    def do_PUT(self) -> None:  # noqa: N802 - the name that the base class calls
        """Answer once the gate is open."""
        self.server.arrived.release()
        assert self.server.gate.wait(20)
        self._answer()


class MultipartServer(ScriptedServer):
    """Keeps parts of uploads."""

    def __init__(self) -> None:
        super().__init__(MultipartHandler)
        self.parts: dict[int, bytes] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Semaphore(0)

    def await_requests(self, method: str, count: int = 1) -> None:
        """Wait until requests of a method have come."""
        limit = time.monotonic() + 20
        while self.requests.count(method) < count:
            assert time.monotonic() < limit, self.requests
            time.sleep(0.005)


@pytest.fixture
def server() -> Iterator[MultipartServer]:
    with MultipartServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.gate.set()
        server.shutdown()
        thread.join()


def storage_on(server: MultipartServer, max_parts: int = 8) -> ObstoreStorage:
    return s3_storage(
        bucket="b",
        region="us-east-1",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        allow_http=True,
        access_key_id="key",
        secret_access_key="secret",
        settings=replace(IN_PARTS, concurrency=StorageConcurrencySettings(max_parts=max_parts)),
    )


@pytest.fixture
def storage(server: MultipartServer) -> ObstoreStorage:
    return storage_on(server)


async def put(storage: ObstoreStorage, data: bytes) -> None:
    await storage.put("a", data)


async def put_sync(storage: ObstoreStorage, data: bytes) -> None:
    await asyncio.to_thread(storage.put_sync, "a", data)


PUTS = pytest.mark.parametrize("write", [put, put_sync])
Write = Callable[[ObstoreStorage, bytes], Any]


@PUTS
async def test_a_large_object_is_uploaded_in_parts_several_at_a_time(
    server: MultipartServer, storage: ObstoreStorage, write: Write
) -> None:
    server.gate.clear()
    upload = asyncio.ensure_future(write(storage, DATA))
    for _ in range(3):  # all parts are in flight before the first is answered
        assert await asyncio.to_thread(server.arrived.acquire, timeout=20)
    assert server.objects == {}
    server.gate.set()
    await upload
    assert server.requests == ["POST", "PUT", "PUT", "PUT", "POST"]
    assert server.objects == {"/b/a": DATA}
    assert sorted(map(len, server.parts.values())) == [2 * MiB, PART, PART]


@PUTS
async def test_an_object_up_to_the_threshold_is_one_request(
    server: MultipartServer, storage: ObstoreStorage, write: Write
) -> None:
    await write(storage, DATA[: 8 * MiB])
    assert server.requests == ["PUT"]


async def test_what_is_put_if_absent_is_one_request_however_large(
    server: MultipartServer, storage: ObstoreStorage
) -> None:
    assert await storage.put_if_absent("a", DATA)
    assert not await storage.put_new("a", DATA[1:])
    assert server.requests == ["PUT", "PUT"]


@PUTS
async def test_a_part_that_fails_in_passing_is_sent_again_by_itself(
    server: MultipartServer, storage: ObstoreStorage, write: Write
) -> None:
    server.script["PUT"] = [SLOW_DOWN, (500, b"")]
    await write(storage, DATA)
    assert server.requests.count("POST") == 2
    assert server.requests.count("PUT") == 5
    assert server.objects == {"/b/a": DATA}


@PUTS
async def test_an_upload_of_which_a_part_fails_is_aborted_and_not_seen(
    server: MultipartServer, storage: ObstoreStorage, write: Write
) -> None:
    server.script["PUT"] = [DENIED]
    with pytest.raises(StorageError, match="policy"):
        await write(storage, DATA)
    assert server.requests.count("DELETE") == 1
    assert server.objects == {}
    assert client_of(storage).limit.in_flight == 0


async def test_a_cancelled_upload_is_aborted(server: MultipartServer) -> None:
    storage = storage_on(server, max_parts=1)
    server.gate.clear()
    upload = asyncio.ensure_future(storage.put("a", DATA))
    assert await asyncio.to_thread(server.arrived.acquire, timeout=20)
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    server.gate.set()
    await asyncio.to_thread(server.await_requests, "DELETE")
    assert server.objects == {}
    assert server.requests.count("PUT") < 3
    assert client_of(storage).limit.in_flight == 0


async def test_parts_are_uploaded_before_the_object_is_complete(
    server: MultipartServer, storage: ObstoreStorage
) -> None:
    parts = PartStream()
    upload = asyncio.ensure_future(storage.put_stream("a", parts))
    parts.push(memoryview(DATA)[:PART])
    await asyncio.to_thread(server.await_requests, "PUT")
    assert server.requests == ["POST", "PUT"]
    assert server.objects == {}
    parts.push(memoryview(DATA)[PART : 2 * PART])
    parts.push(memoryview(DATA)[2 * PART :])
    parts.close()
    await upload
    assert server.objects == {"/b/a": DATA}


async def test_an_upload_that_is_given_up_is_aborted(server: MultipartServer, storage: ObstoreStorage) -> None:
    parts = PartStream()
    upload = asyncio.ensure_future(storage.put_stream("a", parts))
    parts.push(memoryview(DATA)[:PART])
    await asyncio.to_thread(server.await_requests, "PUT")
    parts.abandon()
    with pytest.raises(AbandonedUploadError):
        await upload
    assert server.requests == ["POST", "PUT", "DELETE"]
    assert server.objects == {}


async def test_the_error_of_an_upload_in_parts_names_the_object(
    server: MultipartServer, storage: ObstoreStorage
) -> None:
    server.script["POST"] = [DENIED]
    with pytest.raises(StorageError, match=r"'a'.*policy"):
        await storage.put_stream("a", PartStream.of(DATA, PART))


async def test_a_storage_without_uploads_in_parts_takes_the_parts_together() -> None:
    storage = CountingStorage(in_memory_storage())
    await storage.put_stream("a", PartStream.of(DATA, PART))
    assert bytes(await storage.get("a")) == DATA
    assert storage.counts["put"] == 1
    assert storage.part_bytes == 0


# -- packs ------------------------------------------------------------------------------------------------------------

CHUNK = MiB // 2
BIG = PackSettings(own_object=MiB, target=3 * PART)


def chunk(number: int) -> memoryview:
    return memoryview(bytes([number]) * CHUNK)


def check(storage: ObstoreStorage, writer: PackWriter, where: list[tuple[int, int, int]], numbers: list[int]) -> None:
    for (source, at, size), number in zip(where, numbers, strict=True):
        stored = storage.get_range_sync(pack_key(writer.packs[source]), at, at + size)
        assert bytes(stored) == bytes(chunk(number))


def test_a_big_pack_is_uploaded_while_it_fills(server: MultipartServer, storage: ObstoreStorage) -> None:
    writer = PackWriter(storage, Environment(), BIG)
    for number in range(11):  # a little more than a part
        writer.add(chunk(number))
    server.await_requests("PUT")
    assert server.requests == ["POST", "PUT"]
    writer.add_many([chunk(number) for number in range(11, 21)])  # and another one
    server.await_requests("PUT", 2)
    submit(writer.flush()).result(20)
    assert server.requests == ["POST", "PUT", "PUT", "PUT", "POST"]
    assert list(server.objects) == ["/b/" + pack_key(writer.packs[0])]


def test_chunks_that_were_uploaded_are_not_overwritten_in_place(
    server: MultipartServer, storage: ObstoreStorage
) -> None:
    writer = PackWriter(storage, Environment(), BIG)
    where = [writer.add(chunk(number)) for number in range(12)]
    last_sent = PART // (where[1][1] - where[0][1])  # reaches across the end of the part
    replaced = [writer.replace(source, at, size, chunk(100)) for source, at, size in where]
    assert replaced == [number > last_sent for number in range(12)]
    submit(writer.flush()).result(20)
    (stored,) = server.objects.values()
    for (_, at, size), again, number in zip(where, replaced, range(12), strict=True):
        assert stored[at : at + size] == bytes(chunk(100 if again else number))


def test_packs_of_less_than_two_parts_are_one_request_each(server: MultipartServer, storage: ObstoreStorage) -> None:
    writer = PackWriter(storage, Environment(), replace(BIG, target=8 * MiB))
    for number in range(30):
        writer.add(chunk(number))
    submit(writer.flush()).result(20)
    assert server.requests == ["PUT", "PUT"]


def test_a_pack_whose_upload_failed_while_it_filled_is_uploaded_again_by_the_next_flush(
    server: MultipartServer, storage: ObstoreStorage
) -> None:
    writer = PackWriter(storage, Environment(), BIG)
    server.script["PUT"] = [DENIED]
    for number in range(11):
        writer.add(chunk(number))
    with pytest.raises(StorageError, match="policy"):
        submit(writer.flush()).result(20)
    assert server.requests.count("DELETE") == 1  # a part on its way may come after it
    assert server.objects == {}
    submit(writer.flush()).result(20)
    (stored,) = server.objects.values()
    assert stored[:CHUNK] == bytes(chunk(0))


def test_a_writer_that_is_dropped_aborts_the_upload_of_its_open_pack(
    server: MultipartServer, storage: ObstoreStorage
) -> None:
    writer = PackWriter(storage, Environment(), BIG)
    for number in range(11):
        writer.add(chunk(number))
    server.await_requests("PUT")
    del writer
    gc.collect()
    server.await_requests("DELETE")
    assert server.objects == {}


def test_a_forked_child_uploads_the_open_pack_by_itself_and_leaves_the_upload_of_its_parent_alone(
    server: MultipartServer, storage: ObstoreStorage
) -> None:
    writer = PackWriter(storage, Environment(), BIG)
    for number in range(11):
        writer.add(chunk(number))
    server.await_requests("PUT")
    of_parent = writer._growing
    assert of_parent is not None
    writer.renew_locks()  # as in a forked child
    submit(writer.flush()).result(20)
    (stored,) = server.objects.values()
    assert stored[:CHUNK] == bytes(chunk(0))
    del writer
    gc.collect()
    assert not of_parent.done.done()
    assert "DELETE" not in server.requests
    of_parent._parts.abandon()
    with pytest.raises(AbandonedUploadError):
        of_parent.done.result(20)


# -- a real server ----------------------------------------------------------------------------------------------------


@pytest.fixture
def real(s3_server: S3Server) -> ObstoreStorage:
    return obstore_on(s3_server, settings=replace(IN_PARTS, timeouts=StorageTimeoutSettings()))


def unfinished(s3_server: S3Server, storage: ObstoreStorage) -> list[Any]:
    found = s3_server.client().list_multipart_uploads(Bucket=storage.config.bucket)
    return list(found.get("Uploads", []))


async def test_objects_in_parts_are_read_as_they_were_written(s3_server: S3Server, real: ObstoreStorage) -> None:
    await real.put("whole", DATA)
    await real.put_stream("stream", PartStream.of(DATA, PART))
    await asyncio.to_thread(real.put_sync, "sync", DATA)
    for key in ("whole", "stream", "sync"):
        assert bytes(await real.get(key)) == DATA
    assert unfinished(s3_server, real) == []


async def test_an_upload_that_is_given_up_leaves_nothing(s3_server: S3Server, real: ObstoreStorage) -> None:
    parts = PartStream()
    upload = asyncio.ensure_future(real.put_stream("a", parts))
    parts.push(memoryview(DATA)[:PART])
    while not unfinished(s3_server, real):  # noqa: ASYNC110 - nobody tells when the service has begun the upload
        await asyncio.sleep(0.02)
    parts.abandon()
    with pytest.raises(AbandonedUploadError):
        await upload
    assert unfinished(s3_server, real) == []
    with pytest.raises(ObjectNotFoundError):
        await real.head("a")


async def test_a_big_pack_is_read_as_it_was_written(real: ObstoreStorage) -> None:
    writer = PackWriter(real, Environment(), BIG)
    where = [writer.add(chunk(number)) for number in range(40)]
    await asyncio.wrap_future(submit(writer.flush()))
    await asyncio.to_thread(check, real, writer, where, list(range(40)))


def test_a_repository_of_big_packs_is_read_as_it_was_written(s3_server: S3Server, real: ObstoreStorage) -> None:
    repository = Repository.create(real, RepositoryConfig(pack_target_bytes=3 * PART))
    values = np.random.default_rng(1).integers(0, 1 << 62, (64, 80_000))
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", data=values, chunks=(1, 80_000), compressors=None)
    session.commit("40 MB in packs of 15")
    dropped = repository.writable_session("main")
    zarr.open_array(dropped.store, path="a")[:] = values[::-1]
    del dropped
    gc.collect()
    again = Repository.open(real).readonly_session("main")
    assert np.array_equal(zarr.open_array(again.store, path="a", mode="r")[:], values)
    limit = time.monotonic() + 20
    while unfinished(s3_server, real):
        assert time.monotonic() < limit
        time.sleep(0.05)
