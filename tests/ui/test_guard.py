"""Who may open the page, and what the page may do: nothing but read, and only from this machine."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import arraystore
from arraystore.errors import InvalidInputError, ReadOnlyError
from arraystore.storage import MemoryStorage, ReadOnlyStorage, WrapperStorage
from arraystore.ui.opening import open_to_look
from arraystore.ui.server.answers import VIEWS
from arraystore.ui.server.run import prepare
from tests.ui.conftest import HOST, TOKEN, Client, World, build

POLICY = {
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
    "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
    "trusted-types 'none'",
}  # fmt: skip
STATIC = Path(arraystore.__file__).parent / "ui" / "static"


@pytest.mark.parametrize(
    "path", ["/", "/index.html", "/wrong/", "/secre/", "/secret", "/secrets/api/overview", "//", "/%00/"]
)
def test_nothing_is_answered_without_the_token(client: Client, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1", "127.0.0.1:9000", "[::1]:8000", ""])
def test_another_host_is_refused_with_the_token_as_well(client: Client, host: str) -> None:
    assert client.get(f"/{TOKEN}/", headers={"Host": host}).status_code == 421
    assert client.get(f"/{TOKEN}/api/overview", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", [HOST, "localhost:8000", "LOCALHOST:8000"])
def test_the_names_of_this_machine_are_answered(client: Client, host: str) -> None:
    assert client.get(f"/{TOKEN}/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reads_are_answered(client: Client, method: str) -> None:
    refused = client.request(method, f"/{TOKEN}/api/overview")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path", [f"/{TOKEN}/", f"/{TOKEN}/app.js", f"/{TOKEN}/api/overview", f"/{TOKEN}/none", "/none"]
)
def test_every_answer_keeps_the_page_to_itself(client: Client, path: str) -> None:
    headers = client.get(path).headers
    assert {each.strip() for each in headers["content-security-policy"].split(";")} == POLICY
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "name", ["../answers.py", "..%2fanswers.py", "%2e%2e/answers.py", "/etc/passwd", "api/", "static/app.js"]
)
def test_no_file_but_those_of_the_page_is_served(client: Client, name: str) -> None:
    assert client.get(f"/{TOKEN}/{name}").status_code == 404


def test_all_files_of_the_page_are_served_with_their_types(client: Client) -> None:
    types = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
    for path in STATIC.iterdir():
        found = client.get(f"/{TOKEN}/{path.name}")
        assert (found.status_code, found.content) == (200, path.read_bytes())
        assert found.headers["content-type"].startswith(types[path.suffix])


def test_the_page_names_no_other_place_and_never_makes_markup_of_text() -> None:
    for path in STATIC.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not [word for word in ("http:", "https:", "//cdn") if word in text], path
        for way in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "srcdoc",
        ):
            assert way not in text, (path, way)
    page = (STATIC / "index.html").read_text()
    assert not [word for word in ("<style", " style=", " onclick=") if word in page]
    modules = {path.name for path in STATIC.glob("*.js")} - {"app.js"}
    assert set(re.findall(r'<link rel="modulepreload" href="([a-z]+.js)">', page)) == modules
    assert page.count("<script") == page.count('<script type="module" src="app.js"></script>') == 1


def test_no_view_writes(world: World) -> None:
    assert isinstance(world.storage, MemoryStorage)
    before = keys(world.storage)
    storage = ReadOnlyStorage(world.storage)
    for work in (
        storage.put("x", b""),
        storage.put_if_absent("x", b""),
        storage.delete(["repo"]),
        storage.put_new("x", b""),
    ):
        with pytest.raises(ReadOnlyError, match="ReadOnlyStorage"):
            asyncio.run(work)
    with pytest.raises(ReadOnlyError):
        storage.put_sync("x", b"")
    with pytest.raises(ReadOnlyError):
        storage.put_parts_sync("x", [b"", b""])
    look = open_to_look(world.storage)
    with pytest.raises(ReadOnlyError):
        look.create_branch("other", world.ids["first"])
    with pytest.raises(ReadOnlyError):
        look.writable_session("main").commit("nothing", allow_empty=True)
    assert keys(world.storage) == before


def keys(storage: MemoryStorage) -> set[str]:
    async def gather() -> set[str]:
        return {info.key async for page in storage.list("") for info in page}

    return asyncio.run(gather())


def test_the_whole_page_leaves_the_repository_as_it_was(world: World, client: Client) -> None:
    assert isinstance(world.storage, MemoryStorage)
    before = keys(world.storage)
    first, second = world.ids["first"], world.ids["second"]
    values = {
        "id": first, "at": second, "path": "air/temp", "from": first, "to": second, "branch": "main", "ours": second,
        "onto": "branch:dev",
    }  # fmt: skip
    for name in VIEWS:
        found = client.get(f"/{TOKEN}/api/{name}", params=values)
        assert found.status_code == 200, (name, found.text)
        assert found.json()["cost"].keys() == {"requests", "bytes", "seconds"}
    assert keys(world.storage) == before


def test_the_server_listens_on_the_loopback_interface_only() -> None:
    storage = arraystore.in_memory_storage()
    build(storage)
    server = prepare(storage)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        assert server.url.startswith("http://127.0.0.1:")
        assert len(server.url.split("/")[3]) >= 32
        found = get(server.url + "api/overview")
        assert [ref["name"] for ref in found.json()["result"]["branches"]] == ["main", "dev"]
        other = server.url.rsplit("/", 2)[0]
        assert httpx.get(other + "/", timeout=5).status_code == 404
        port = int(other.rsplit(":", 1)[1])
        with pytest.raises(InvalidInputError, match=f"port {port} of 127.0.0.1 cannot be opened"):
            prepare(storage, port=port)
        with socket.socket() as elsewhere:
            assert elsewhere.connect_ex(("127.0.0.2", port)) != 0
    finally:
        server.stop()
        thread.join(10)
    assert not thread.is_alive()


@contextmanager
def serving(storage: arraystore.Storage) -> Iterator[str]:
    server = prepare(storage)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        get(server.url)
        yield server.url
    finally:
        server.stop()
        thread.join(10)
    assert not thread.is_alive()


@pytest.mark.thorough
def test_many_requests_at_once_and_slow_clients_are_answered(world: World) -> None:
    second = world.ids["second"]
    views = [f"chunks?at={second}&path=air/temp", f"preview?at={second}&path=air/temp", f"tree?at={second}", "history",
             f"storage?at={second}&within=0"]  # fmt: skip
    with serving(world.storage) as url, ExitStack() as stack:
        host, port = "127.0.0.1", int(url.split("/")[2].rpartition(":")[2])
        for beginning in (b"", b"GET ", f"GET {url} HTTP/1.1\r\nHost: x".encode()) * 10:
            stack.enter_context(socket.create_connection((host, port))).sendall(beginning)
        with ThreadPoolExecutor(24) as pool, httpx.Client(timeout=60) as client:
            found = list(pool.map(lambda at: client.get(f"{url}api/{views[at % 5]}"), range(120)))
    assert [each.status_code for each in found] == [200] * 120


class WaitingStorage(WrapperStorage):
    """Storage whose listings and reads wait for an event, if there is one, and that tells when one of them ends."""

    waiting: threading.Event | None = None
    given_up = 0

    async def get(self, key: str) -> Any:
        while self.waiting is not None and not self.waiting.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                self.given_up += 1
                raise
        return await super().get(key)


@pytest.mark.thorough
def test_what_nobody_waits_for_any_more_is_given_up(world: World) -> None:
    storage = WaitingStorage(world.storage)
    with serving(storage) as url:
        storage.waiting = threading.Event()
        for _ in range(9):  # more than are computed at a time
            with pytest.raises(httpx.ReadTimeout):
                httpx.get(f"{url}api/tree?at={world.ids['second']}", timeout=0.2)
        for _ in range(200):
            if storage.given_up:
                break
            time.sleep(0.02)
        assert storage.given_up > 0
        storage.waiting.set()
        assert httpx.get(f"{url}api/tree?at={world.ids['second']}", timeout=10).status_code == 200


def get(url: str) -> httpx.Response:
    for _ in range(100):
        try:
            return httpx.get(url, timeout=5)
        except httpx.ConnectError:
            time.sleep(0.05)
    raise AssertionError("the server does not answer")


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    storage = arraystore.in_memory_storage()
    arraystore.Repository.create(storage)
    with pytest.raises(InvalidInputError, match="port="):
        prepare(storage, port=port)
