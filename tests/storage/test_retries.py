"""How a storage on an object store meets errors, against a server that answers as it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from arraystore.errors import ObjectNotFoundError, PermissionDeniedError, StorageError
from arraystore.storage import (
    ObstoreStorage,
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
    fsspec_storage,
    s3_storage,
)

QUICK = StorageSettings(
    timeouts=StorageTimeoutSettings(connect=5, request=1, read=1),
    retries=StorageRetriesSettings(max_tries=4, initial_backoff=0.001, max_backoff=0.01, total=30),
)

Answer = tuple[int, bytes]
HANG = (0, b"")
"""Take the request, put it into effect, and never answer."""


class ScriptedServer(ThreadingHTTPServer):
    """Keeps objects in a dictionary, but first gives the answers of its script, one per request of a method."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), handler or Handler)
        self.objects: dict[str, bytes] = {}
        self.script: dict[str, list[Answer]] = {}
        self.requests: list[str] = []
        self.connections: set[int] = set()
        self.lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        server = self.server
        with server.lock:
            server.requests.append(self.command)
            server.connections.add(self.client_address[1])
            script = server.script.get(self.command, [])
            told = script.pop(0) if script else None
            status, data = told if told is not None and told != HANG else self._do(body)
        if told == HANG:
            time.sleep(1.5)  # longer than the client waits
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.send_header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("etag", '"x"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _do(self, body: bytes) -> Answer:
        objects = self.server.objects
        if self.command == "PUT":
            if self.headers.get("if-none-match") == "*" and self.path in objects:
                return 412, error("PreconditionFailed")
            objects[self.path] = body
            return 200, b""
        return (200, objects[self.path]) if self.path in objects else (404, error("NoSuchKey"))

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _answer  # noqa: N815 - the names that the base class calls

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


def error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>as told</Message></Error>".encode()


CONFLICT = (409, error("ConditionalRequestConflict"))
SLOW_DOWN = (503, error("SlowDown"))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def scripted(server: ScriptedServer) -> ObstoreStorage:
    return s3_storage(
        bucket="bucket",
        prefix="p",
        region="us-east-1",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        allow_http=True,
        access_key_id="AKIAEXAMPLE",
        secret_access_key="very-secret-text",
        settings=QUICK,
    )


async def test_a_conflict_between_two_writers_is_tried_again(server: ScriptedServer, scripted: ObstoreStorage) -> None:
    server.script["PUT"] = [CONFLICT, CONFLICT]
    assert await scripted.put_if_absent("log/1", b"ours") is True
    assert server.requests == ["PUT", "GET", "PUT", "GET", "PUT"]
    assert server.objects == {"/bucket/p/log/1": b"ours"}


async def test_a_conflict_that_the_other_writer_won_is_lost(server: ScriptedServer, scripted: ObstoreStorage) -> None:
    server.script["PUT"] = [CONFLICT]
    server.objects["/bucket/p/log/1"] = b"theirs"
    assert await scripted.put_if_absent("log/1", b"ours") is False
    assert server.requests == ["PUT", "GET"]


async def test_a_conflict_that_never_ends_is_an_error(server: ScriptedServer, scripted: ObstoreStorage) -> None:
    server.script["PUT"] = [CONFLICT] * 100
    with pytest.raises(StorageError, match="try again later"):
        await scripted.put_if_absent("log/1", b"ours")
    assert server.requests.count("PUT") == QUICK.retries.max_tries


async def test_a_lost_acknowledgement_is_found_out(server: ScriptedServer, scripted: ObstoreStorage) -> None:
    server.script["PUT"] = [HANG]
    assert await scripted.put_if_absent("log/1", b"ours") is True
    assert server.requests == ["PUT", "PUT", "GET"]


async def test_a_lost_refusal_is_found_out(server: ScriptedServer, scripted: ObstoreStorage) -> None:
    server.objects["/bucket/p/log/1"] = b"theirs"
    server.script["PUT"] = [HANG]
    assert await scripted.put_if_absent("log/1", b"ours") is False


async def test_a_refusal_of_what_is_new_is_taken_at_its_word(server: ScriptedServer, scripted: ObstoreStorage) -> None:
    server.objects["/bucket/p/log/1"] = b"theirs"
    assert await scripted.put_new("log/1", b"ours") is False
    assert server.requests == ["PUT"]
    assert await scripted.put_new("log/2", b"ours") is True
    assert server.requests == ["PUT", "PUT"]


@pytest.mark.parametrize("first", [HANG, SLOW_DOWN, CONFLICT])
async def test_what_is_new_is_compared_after_an_answer_that_was_lost(
    server: ScriptedServer, scripted: ObstoreStorage, first: tuple[int, bytes]
) -> None:
    server.script["PUT"] = [first]
    server.objects["/bucket/p/log/1"] = b"ours"
    assert await scripted.put_new("log/1", b"ours") is True
    assert server.requests.count("GET") == 1


async def test_server_errors_pass_when_they_do(server: ScriptedServer, scripted: ObstoreStorage) -> None:
    server.script = {"PUT": [SLOW_DOWN, (500, b"")], "GET": [SLOW_DOWN, SLOW_DOWN], "HEAD": [(503, b"")]}
    await scripted.put("a", b"data")
    assert bytes(await scripted.get("a")) == b"data"
    assert bytes(scripted.get_sync("a")) == b"data"
    assert (await scripted.head("a")).size == 4
    server.script = {"PUT": [SLOW_DOWN, SLOW_DOWN]}
    assert await scripted.put_if_absent("b", b"data")
    server.script = {"GET": [SLOW_DOWN, SLOW_DOWN], "PUT": [(502, b""), (429, b"")]}
    scripted.put_sync("c", b"data")
    assert bytes(scripted.get_sync("c")) == b"data"


async def test_server_errors_that_stay_are_reported(server: ScriptedServer, scripted: ObstoreStorage) -> None:
    server.script = {"GET": [SLOW_DOWN] * 100}
    with pytest.raises(StorageError, match="503") as caught:
        await scripted.get("a")
    assert server.requests.count("GET") == QUICK.retries.max_tries
    assert scripted.location in str(caught.value)
    assert "'a'" in str(caught.value)
    assert "StorageSettings" in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "remedy"),
    [
        ((403, error("SignatureDoesNotMatch")), "secret key"),
        ((403, error("AccessDenied")), "policy"),
        ((404, error("NoSuchBucket")), "create the bucket"),
        ((301, b""), "region"),
        ((400, error("AuthorizationHeaderMalformed")), "region"),
    ],
)
async def test_final_errors_come_at_once_and_say_what_to_do(
    server: ScriptedServer, scripted: ObstoreStorage, answer: Answer, remedy: str
) -> None:
    for method, call in {
        "GET": lambda: scripted.get("a"),
        "PUT": lambda: scripted.put_if_absent("a", b"data"),
    }.items():
        server.requests.clear()
        server.script = {method: [answer]}
        with pytest.raises(StorageError, match=remedy) as caught:
            await call()
        assert not isinstance(caught.value, ObjectNotFoundError)
        assert server.requests == [method]
        assert "very-secret-text" not in str(caught.value)


@pytest.mark.parametrize(("before", "certain"), [([], True), ([(500, b"")], False)])
async def test_a_denial_is_certain_only_where_no_earlier_attempt_may_still_arrive(
    server: ScriptedServer, scripted: ObstoreStorage, before: list[Answer], certain: bool
) -> None:
    server.script["PUT"] = [*before, (403, b"")]
    with pytest.raises(StorageError) as caught:
        await scripted.put_new("a", b"data")
    assert isinstance(caught.value, PermissionDeniedError) == certain


@pytest.mark.parametrize("refusal", [(409, error("ConditionalRequestConflict")), (412, error("PreconditionFailed"))])
async def test_a_denied_look_at_a_refused_object_leaves_open_whose_it_is(
    server: ScriptedServer, scripted: ObstoreStorage, refusal: Answer
) -> None:
    server.script = {"PUT": [refusal], "GET": [(403, error("AccessDenied"))]}
    with pytest.raises(StorageError, match="reading it back is denied") as caught:
        await scripted.put_if_absent("a", b"data")
    assert not isinstance(caught.value, PermissionDeniedError)
    assert server.requests == ["PUT", "GET"]


async def test_a_denied_look_through_fsspec_leaves_open_whose_an_object_is(server: ScriptedServer) -> None:
    options = {"endpoint_url": f"http://127.0.0.1:{server.server_port}", "region_name": "us-east-1"}
    storage = fsspec_storage("s3://bucket/p", anon=True, client_kwargs=options)
    server.script = {"PUT": [(412, error("PreconditionFailed"))], "GET": [(403, error("AccessDenied"))]}
    with pytest.raises(StorageError, match="cannot read 'a': PermissionError") as caught:
        await storage.put_if_absent("a", b"data")
    assert not isinstance(caught.value, PermissionDeniedError)


async def test_a_batch_is_deleted_again_as_a_whole_when_the_service_throttles(
    server: ScriptedServer, scripted: ObstoreStorage
) -> None:
    deleted = b"".join(b"<Deleted><Key>p/%s</Key></Deleted>" % key for key in (b"a", b"b"))
    server.script = {"POST": [SLOW_DOWN, (200, b"<DeleteResult>" + deleted + b"</DeleteResult>")]}
    assert await scripted.delete(["a", "b"]) == []
    assert server.requests == ["POST", "POST"]


async def test_a_listing_goes_on_when_the_service_throttles(server: ScriptedServer, scripted: ObstoreStorage) -> None:
    page = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
    server.script = {"GET": [SLOW_DOWN, (500, b""), (200, page)]}
    assert [info async for page in scripted.list("a") for info in page] == []
    assert server.requests == ["GET"] * 3


def page_of(first: int, last: bool) -> Answer:
    keys = b"".join(
        b"<Contents><Key>p/%08d</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
        % number
        for number in range(first, first + 1000)
    )
    more = b"" if last else b"<NextContinuationToken>%d</NextContinuationToken>" % first
    return 200, b"<ListBucketResult>" + keys + more + b"</ListBucketResult>"


async def test_each_page_of_a_listing_has_all_its_attempts(server: ScriptedServer, scripted: ObstoreStorage) -> None:
    failures = [SLOW_DOWN] * (QUICK.retries.max_tries - 1)
    pages = [page_of(1000 * number, last=number == 3) for number in range(4)]
    server.script["GET"] = [answer for page in pages for answer in (*failures, page)]
    keys = [info.key async for page in scripted.list("") for info in page]
    assert keys == [f"{number:08}" for number in range(4000)]
    assert len(server.requests) == 4 * QUICK.retries.max_tries
    server.script["GET"] = [*failures, SLOW_DOWN, page_of(0, last=True)]
    with pytest.raises(StorageError, match="503"):
        await anext(aiter(scripted.list("")))


async def test_a_batch_with_a_missing_key_is_deleted_key_by_key(
    server: ScriptedServer, scripted: ObstoreStorage
) -> None:
    server.script = {"POST": [(404, error("NoSuchKey"))] * 3}
    assert await scripted.delete(["a", "b"]) == []
    assert server.requests == ["POST"] * 3


async def test_what_could_not_be_deleted_is_named(server: ScriptedServer, scripted: ObstoreStorage) -> None:
    server.script = {"POST": [(403, error("AccessDenied"))] * 100}
    failures = await scripted.delete(["a", "b"])
    assert [failure.key for failure in failures] == ["a", "b"]
    assert all("delete" in failure.reason for failure in failures)


async def test_an_unreachable_endpoint_is_reported(server: ScriptedServer) -> None:
    storage = s3_storage(
        bucket="b",
        region="us-east-1",
        endpoint_url="http://127.0.0.1:1",
        allow_http=True,
        anonymous=True,
        settings=QUICK,
    )
    with pytest.raises(StorageError, match="check the endpoint"):
        await storage.put_if_absent("a", b"")


def test_pauses_grow_within_their_bounds_and_end() -> None:
    import random

    settings = StorageRetriesSettings(max_tries=8, initial_backoff=0.1, max_backoff=1.0, total=60)
    rng = random.Random(1)
    pauses = [settings.pause(failures, 0.0, rng) for failures in range(1, 8)]
    bounds = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert all(pause is not None and bound / 10 <= pause <= bound for pause, bound in zip(pauses, bounds, strict=True))
    assert settings.pause(8, 0.0, rng) is None
    assert settings.pause(1, 60.0, rng) is None
