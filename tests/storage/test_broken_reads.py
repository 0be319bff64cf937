"""Reads that a storage cannot serve, or serves in part: a typed error or the whole truth, and never fewer bytes."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from arraystore import fsspec_storage
from arraystore.errors import StorageError
from arraystore.storage import LocalStorage, ObstoreStorage, Storage
from tests.storage.test_retries import Answer, ScriptedServer, scripted, server

__all__ = ["scripted", "server"]

DATA = bytes(range(256)) * 4
Read = Callable[[Storage], Awaitable[bytes]]


async def whole(storage: Storage) -> bytes:
    return bytes(await storage.get("a/b"))


async def whole_sync(storage: Storage) -> bytes:
    return bytes(storage.get_sync("a/b"))


async def ranges(storage: Storage) -> bytes:
    parts = await storage.get_ranges("a/b", [(0, 600), (600, len(DATA))])
    return b"".join(map(bytes, parts))


async def one_range(storage: Storage) -> bytes:
    return bytes((await storage.get_ranges("a/b", [(0, len(DATA))]))[0])


async def range_sync(storage: Storage) -> bytes:
    return bytes(storage.get_range_sync("a/b", 0, len(DATA)))


READS: list[Read] = [whole, whole_sync, ranges, one_range, range_sync]


# -- a local directory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", [False, True], ids=["first read", "file open already"])
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("call", ["open", "fstat", "pread"])
async def test_an_input_output_error_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, read: Read, opened: bool
) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put("a/b", DATA)
    if opened:
        assert await range_sync(storage) == DATA
    original = getattr(os, call)

    def fail(target: Any, *arguments: Any) -> Any:
        if isinstance(target, str) and not target.startswith(storage.path):
            return original(target, *arguments)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fail)
    if call == "open" and opened and read in (ranges, one_range, range_sync):
        assert await read(storage) == DATA  # through the file that is open
        return
    with pytest.raises(StorageError, match="Input/output error") as caught:
        await read(storage)
    assert storage.location in str(caught.value)
    assert "'a/b'" in str(caught.value)
    monkeypatch.undo()
    assert await read(storage) == DATA


async def test_an_input_output_error_of_a_listing_or_a_look_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put("a/b", DATA)
    scandir, opens = os.scandir, os.open

    def fail(path: Any, original: Any, *arguments: Any) -> Any:
        if str(path).startswith(storage.path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return original(path, *arguments)

    monkeypatch.setattr(os, "scandir", lambda path: fail(path, scandir))
    monkeypatch.setattr(os, "open", lambda path, *arguments: fail(path, opens, *arguments))
    with pytest.raises(StorageError, match="Input/output error"):
        [page async for page in storage.list("a/")]
    with pytest.raises(StorageError, match="Input/output error"):
        await storage.head("a/b")


@pytest.mark.parametrize("read", READS)
async def test_what_the_system_reads_in_pieces_is_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put("a/b", DATA)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, count, at: pread(fd, min(count, 100), at))
    assert await read(storage) == DATA


@pytest.mark.parametrize("read", READS)
async def test_a_file_that_is_cut_off_under_a_read_is_never_returned_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put("a/b", DATA)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, count, at: pread(fd, count, at)[: max(0, 700 - at)])
    with pytest.raises(StorageError, match="truncated"):
        await read(storage)


# -- object stores ----------------------------------------------------------------------------------------------------


class Cut(bytes):
    """An answer of which the connection breaks off before the end."""


def answers(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, cut: list[bool]) -> None:
    """Serve the object and its ranges; break an answer off where the next of `cut` says so."""
    handler: Any = server.RequestHandlerClass

    def get(self: Any) -> None:
        path = self.path.partition("?")[0]
        with server.lock:
            server.requests.append("GET")
            broken = cut.pop(0) if cut else False
        data = server.objects.get(path)
        status, part = (404, b"") if data is None else (200, data)
        wanted = self.headers.get("range")
        headers = {"last-modified": "Thu, 01 Jan 2026 00:00:00 GMT", "etag": '"x"'}
        if data is not None and wanted is not None:
            first, last = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
            status, part = 206, data[first : last + 1]
            headers["content-range"] = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(part)))
        self.end_headers()
        self.wfile.write(part[: len(part) // 2] if broken else part)
        self.close_connection = broken

    monkeypatch.setattr(handler, "do_GET", get)


@pytest.mark.parametrize("read", READS)
async def test_an_answer_that_breaks_off_is_asked_for_again(
    server: ScriptedServer, scripted: ObstoreStorage, monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    server.objects["/bucket/p/a/b"] = DATA
    answers(server, monkeypatch, [True])
    assert await read(scripted) == DATA
    assert len(server.requests) >= 2


@pytest.mark.parametrize("read", READS)
async def test_answers_that_always_break_off_are_a_storage_error(
    server: ScriptedServer, scripted: ObstoreStorage, monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    server.objects["/bucket/p/a/b"] = DATA
    answers(server, monkeypatch, [True] * 1000)
    with pytest.raises(StorageError) as caught:
        await read(scripted)
    assert "'a/b'" in str(caught.value)


@pytest.mark.parametrize("read", [ranges, one_range, range_sync])
async def test_a_range_of_an_object_that_became_shorter_is_a_storage_error(
    server: ScriptedServer, scripted: ObstoreStorage, monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    server.objects["/bucket/p/a/b"] = DATA[:700]
    answers(server, monkeypatch, [])
    with pytest.raises(StorageError):
        await read(scripted)


@pytest.mark.parametrize("read", [ranges, one_range, range_sync])
async def test_ranges_that_a_filesystem_returns_short_are_a_storage_error(
    monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    storage = fsspec_storage("memory://broken-reads")
    await storage.put("a/b", DATA)
    cat_file = MemoryFileSystem.cat_file

    def short(self: Any, *arguments: Any, **options: Any) -> bytes:
        return bytes(cat_file(self, *arguments, **options))[:-1]

    monkeypatch.setattr(MemoryFileSystem, "cat_file", short)
    with pytest.raises(StorageError, match="ends at"):
        await read(storage)


SCRIPTED_ERROR: Answer = (500, b"<Error><Code>InternalError</Code></Error>")


@pytest.mark.parametrize("read", READS)
async def test_an_internal_error_that_passes_is_asked_again(
    server: ScriptedServer, scripted: ObstoreStorage, read: Read
) -> None:
    server.objects["/bucket/p/a/b"] = DATA
    server.script["GET"] = [SCRIPTED_ERROR]
    if read is whole or read is whole_sync:  # the scripted server knows no ranges
        assert await read(scripted) == DATA
    else:
        server.script["GET"] = [SCRIPTED_ERROR] * 100
        with pytest.raises(StorageError):
            await read(scripted)
