"""Errors of chunks hold no bytes, and are freed as soon as nobody has them: a read of thousands may raise as many."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import pytest
from zarr.core.buffer.core import default_buffer_prototype

from arraystore import Repository
from arraystore._commit import prepare
from arraystore.errors import ArrayStoreError
from arraystore.storage import Storage
from tests.commit.support import keys
from tests.session.test_checksums import ARRAYS, PLACES, KiB, filled, place

Change = Callable[[Storage, str], None]
Look = Callable[[ArrayStoreError], None]
Read = Callable[[Repository, str, Look], None]


def _flip(storage: Storage, key: str) -> None:
    data = bytearray(storage.get_sync(key))
    data[::512] = bytes(b ^ 1 for b in data[::512])
    storage.put_sync(key, bytes(data))


def _truncate(storage: Storage, key: str) -> None:
    storage.put_sync(key, bytes(storage.get_sync(key))[:20])


def _delete(storage: Storage, key: str) -> None:
    assert not asyncio.run(storage.delete([key]))


def _refused_sync(repository: Repository, key: str, look: Look) -> None:
    try:
        repository.readonly_session("main").store.get_sync(key)
    except ArrayStoreError as error:
        return look(error)
    raise AssertionError(f"{key} was read")


def _refused(repository: Repository, key: str, look: Look) -> None:
    async def read() -> None:
        try:
            await repository.readonly_session("main").store.get(key, default_buffer_prototype())
        except ArrayStoreError as error:
            return look(error)
        raise AssertionError(f"{key} was read")

    asyncio.run(read())


@pytest.fixture
def nothing_attached(manifests_outside: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing go with a record, so that each manifest is an object."""
    monkeypatch.setattr(prepare, "MAX_ATTACHED", 0)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Let nothing be freed but what nobody refers to."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector", "nothing_attached")
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("folder", ["chunks/", "manifests/"])
@pytest.mark.parametrize("change", [_flip, _truncate, _delete])
@pytest.mark.parametrize("read", [_refused_sync, _refused])
def test_the_error_of_a_chunk_is_in_no_cycle(
    where: str, folder: str, change: Change, read: Read, tmp_path: Path
) -> None:
    storage = place(where, tmp_path)
    filled(storage, compressed=False)
    damaged = keys(storage, folder)
    assert len(damaged) >= len(ARRAYS)
    for key in damaged:
        change(storage, key)
    repository = Repository.open(storage)
    for name in ARRAYS:
        errors: list[weakref.ref[ArrayStoreError]] = []
        read(repository, f"{name}/c/1", lambda error, errors=errors: errors.append(weakref.ref(error)))
        assert errors[0]() is None, f"the error of a chunk of {name} is freed by the collector of cycles only"


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("read", [_refused_sync, _refused])
def test_the_error_of_a_damaged_chunk_holds_none_of_its_bytes(where: str, read: Read, tmp_path: Path) -> None:
    storage = place(where, tmp_path)
    filled(storage, compressed=False)
    for key in keys(storage, "chunks/"):
        _flip(storage, key)
    repository = Repository.open(storage)
    for name in ARRAYS:
        read(repository, f"{name}/c/1", _check_small)


def _check_small(error: ArrayStoreError) -> None:
    assert error.__context__ is None
    held = [value for frame in _frames(error.__traceback__) for value in frame.values()]
    assert not [value for value in held if isinstance(value, (bytes, memoryview)) and len(value) >= KiB]


def _frames(traceback: TracebackType | None) -> Iterator[dict[str, object]]:
    while traceback is not None:
        yield traceback.tb_frame.f_locals
        traceback = traceback.tb_next
