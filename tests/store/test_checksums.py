"""Chunks that are not what was written are an error: never a value, whoever reads them and however."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr
from zarr.core.buffer.core import default_buffer_prototype

from arraystore import Repository, RepositoryConfig, in_memory_storage, local_filesystem_storage
from arraystore.errors import ChunkDamagedError, StorageError
from arraystore.runtime import run
from arraystore.storage import Storage
from tests.commit.support import DistantStorage, keys

KiB = 1024
CONFIG = RepositoryConfig(
    inline_chunk_threshold_bytes=16, own_object_threshold_bytes=64 * KiB, pack_target_bytes=64 * KiB
)

PLACES = ("memory", "local", "far")
ARRAYS = {"small": (8, 1 * KiB), "large": (2, 128 * KiB)}
"""Number and size of chunks: in one pack, and objects of their own."""


def place(name: str, path: Path) -> Storage:
    if name == "local":
        return local_filesystem_storage(path)
    return DistantStorage(in_memory_storage()) if name == "far" else in_memory_storage()


def filled(storage: Storage, compressed: bool, seed: int = 0) -> dict[str, npt.NDArray[Any]]:
    """Create a repository with two arrays."""
    repository = Repository.create(storage, CONFIG)
    rng = np.random.default_rng(seed)
    held: dict[str, npt.NDArray[Any]] = {}
    for name, (count, size) in ARRAYS.items():
        with repository.transaction("main", message=name) as store:
            compressors = "auto" if compressed else None
            array = zarr.create_array(
                store, name=name, shape=(count * size,), chunks=(size,), dtype="u1", compressors=compressors
            )
            held[name] = rng.integers(0, 256, count * size, dtype=np.uint8)
            array[:] = held[name]
    return held


def flipped(data: bytes, other: bytes) -> bytes:
    return bytes([data[0] ^ 16]) + data[1:]


def flipped_at_the_end(data: bytes, other: bytes) -> bytes:
    at = len(data) - 12
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def zeroed(data: bytes, other: bytes) -> bytes:
    return bytes(500) + data[500:]


def all_zeros(data: bytes, other: bytes) -> bytes:
    return bytes(len(data))


def truncated(data: bytes, other: bytes) -> bytes:
    return data[: len(data) // 2]


def shifted(data: bytes, other: bytes) -> bytes:
    return data[8:] + data[:8]


def chunks_swapped(data: bytes, other: bytes) -> bytes:
    half = len(data) // 2 // 8 * 8
    return data[half:] + data[:half]


def foreign(data: bytes, other: bytes) -> bytes:
    return other


DAMAGES = (flipped, flipped_at_the_end, zeroed, all_zeros, truncated, shifted, chunks_swapped, foreign)


def damage(storage: Storage, change: Callable[[bytes, bytes], bytes], foreign: Storage) -> None:
    """Damage every pack; `foreign` has packs of about the same size."""
    theirs = keys(foreign, "chunks/")
    for at, key in enumerate(keys(storage, "chunks/")):
        other = bytes(foreign.get_sync(theirs[at]))
        storage.put_sync(key, change(bytes(storage.get_sync(key)), other))


def read_sync(repository: Repository, name: str, number: int) -> bytes:
    found = repository.readonly_session("main").store.get_sync(f"{name}/c/{number}")
    assert found is not None
    return found.to_bytes()


def read_async(repository: Repository, name: str, number: int) -> bytes:
    store = repository.readonly_session("main").store
    found = run(store.get(f"{name}/c/{number}", default_buffer_prototype()))
    assert found is not None
    return found.to_bytes()


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("change", DAMAGES, ids=lambda change: change.__name__)
def test_no_value_is_read_from_a_damaged_pack(
    where: str, compressed: bool, change: Callable[[bytes, bytes], bytes], tmp_path: Path
) -> None:
    storage, other = place(where, tmp_path), in_memory_storage()
    held = filled(storage, compressed)
    filled(other, compressed, seed=1)
    damage(storage, change, other)
    repository = Repository.open(storage)
    wrong = errors = 0
    for name, (count, size) in ARRAYS.items():
        array = zarr.open_array(repository.readonly_session("main").store, path=name, mode="r")
        spans = [(n * size, (n + 1) * size) for n in range(count)]
        for start, stop in [*spans, (0, count * size), (size // 2, size + size // 2)]:
            try:
                wrong += not np.array_equal(array[start:stop], held[name][start:stop])
            except (ChunkDamagedError, StorageError):
                errors += 1
    assert wrong == 0
    assert errors >= 6


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("read", [read_sync, read_async])
@pytest.mark.parametrize("name", ARRAYS)
def test_the_error_names_array_chunk_object_offset_and_what_to_do(
    where: str, read: Callable[[Repository, str, int], bytes], name: str, tmp_path: Path
) -> None:
    storage = place(where, tmp_path)
    filled(storage, compressed=False)
    size = ARRAYS[name][1]
    offset = 1032 if name == "small" else 0
    for key in keys(storage, "chunks/"):
        data = bytearray(storage.get_sync(key))
        data[min(offset, len(data) - 100) + 50] ^= 1
        storage.put_sync(key, bytes(data))
    said = f"chunk \\(1,\\) of '/{name}'.*backup.*verify --level chunks"
    with pytest.raises(ChunkDamagedError, match=said) as caught:
        read(Repository.open(storage), name, 1)
    error = caught.value
    assert error.object_name in keys(storage, "chunks/")
    assert (error.path, error.chunk, error.offset, error.length) == (name, (1,), offset, size)


def test_chunks_of_one_shape_stand_at_one_stride_and_are_aligned() -> None:
    storage = in_memory_storage()
    held = filled(storage, compressed=False)
    pack = next(data for key in keys(storage, "chunks/") if len(data := bytes(storage.get_sync(key))) == 8 * 1032)
    strided = np.frombuffer(pack, np.uint8).reshape(8, 1032)[:, :KiB]
    assert np.array_equal(strided.reshape(-1), held["small"])


def test_a_pack_that_is_restored_is_read_again_though_it_was_read_damaged() -> None:
    storage = DistantStorage(in_memory_storage())
    filled(storage, compressed=False)
    repository = Repository.open(storage)
    store = repository.readonly_session("main").store
    whole = {key: bytes(storage.get_sync(key)) for key in keys(storage, "chunks/")}
    damage(storage, zeroed, storage)
    with pytest.raises(ChunkDamagedError):
        store.get_sync("small/c/0")
    for key, data in whole.items():
        storage.put_sync(key, data)
    assert store.get_sync("small/c/0") is not None


def test_a_chunk_that_is_overwritten_in_the_open_pack_gets_a_checksum_of_its_own() -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage, CONFIG)
    session = repository.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(4096,), chunks=(1024,), dtype="u1", compressors=None)
    for value in range(5):
        array[:] = value
    session.commit("fives")
    (key,) = keys(storage, "chunks/")
    assert len(storage.get_sync(key)) == 4 * 1032
    assert (zarr.open_array(Repository.open(storage).readonly_session("main").store, path="a")[:] == 4).all()


def test_a_session_checks_what_it_reads_back_of_its_own_uploaded_packs() -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage, CONFIG)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(2 * 65536,), chunks=(65536,), dtype="u1", compressors=None)[:] = 1
    for key in keys(storage, "chunks/"):
        storage.put_sync(key, bytes(len(storage.get_sync(key))))
    with pytest.raises(ChunkDamagedError, match="chunk \\(0,\\) of '/a'"):
        session.store.get_sync("a/c/0")
    with pytest.raises(ChunkDamagedError):
        asyncio.run(session.store.get("a/c/1"))
