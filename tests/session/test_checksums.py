"""Chunks that are not what was written are an error: never a value, whoever reads them and however."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer.core import default_buffer_prototype

from arraystore import Repository, RepositoryConfig, in_memory_storage, local_filesystem_storage
from arraystore._runtime import run
from arraystore.copying import copy_branch, export_zarr
from arraystore.errors import ChunkDamagedError, InvalidInputError, StorageError
from arraystore.storage import CountingStorage, Storage
from arraystore.storage.protocol import ByteRange, BytesLike
from arraystore.storage.wrapper import WrapperStorage
from arraystore.xarray import to_arraystore
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


def damaged(where: str, path: Path) -> Storage:
    """Return a repository of which every chunk has a flipped bit."""
    storage = place(where, path)
    filled(storage, compressed=False)
    for key in keys(storage, "chunks/"):
        data = bytearray(storage.get_sync(key))
        data[:: 1 * KiB] = bytes(b ^ 1 for b in data[:: 1 * KiB])
        storage.put_sync(key, bytes(data))
    return storage


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("read", [read_sync, read_async])
@pytest.mark.parametrize("name", ARRAYS)
def test_checks_can_be_turned_off_by_the_configuration_and_on_again_by_a_session(
    where: str, read: Callable[[Repository, str, int], bytes], name: str, tmp_path: Path
) -> None:
    storage = damaged(where, tmp_path)
    unchecked = Repository.open(storage, CONFIG.merge(verify_chunks=False))
    assert len(read(unchecked, name, 0)) == ARRAYS[name][1]
    for as_configured in ("config", None):
        session = unchecked.readonly_session("main", verify_chunks=as_configured)  # type: ignore[arg-type]
        assert session.store.get_sync(f"{name}/c/0") is not None
    strict = unchecked.readonly_session("main", verify_chunks=True)
    with pytest.raises(ChunkDamagedError):
        strict.store.get_sync(f"{name}/c/0")
    with pytest.raises(ChunkDamagedError):
        read(Repository.open(storage), name, 0)


@pytest.mark.parametrize("branch", [None, "main"])
def test_a_session_that_does_not_check_stays_so_in_other_processes_and_in_forks(branch: str | None) -> None:
    repository = Repository.open(damaged("memory", Path()))
    if branch is None:
        sessions = [repository.readonly_session("main", verify_chunks=False)]
    else:
        sessions = [repository.writable_session(branch, verify_chunks=False)]
        sessions += [sessions[0].fork(), pickle.loads(pickle.dumps(sessions[0].fork()))]
    sessions.append(pickle.loads(pickle.dumps(sessions[0])))
    for session in sessions:
        assert session.store.get_sync("small/c/0") is not None
    with pytest.raises(ChunkDamagedError):
        repository.readonly_session("main").store.get_sync("small/c/0")


def test_the_configuration_is_kept_and_refuses_what_is_neither_true_nor_false() -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage, CONFIG)
    assert repository.config.verify_chunks
    repository.save_config(CONFIG.merge(verify_chunks=False))
    assert not Repository.open(storage).config.verify_chunks
    with pytest.raises(InvalidInputError, match="verify_chunks=1 must be true or false"):
        RepositoryConfig(verify_chunks=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("where", PLACES)
def test_a_part_of_a_small_chunk_and_most_of_a_large_one_is_checked(where: str, tmp_path: Path) -> None:
    store = Repository.open(damaged(where, tmp_path)).readonly_session("main").store
    size = ARRAYS["large"][1]
    for key, wanted in (
        ("small/c/3", RangeByteRequest(100, 101)),
        ("small/c/3", SuffixByteRequest(8)),
        ("large/c/1", OffsetByteRequest(size // 2)),
        ("large/c/1", RangeByteRequest(1, size // 2 + 1)),
    ):
        with pytest.raises(ChunkDamagedError):
            store.get_sync(key, byte_range=wanted)
        with pytest.raises(ChunkDamagedError):
            run(store.get(key, default_buffer_prototype(), wanted))


def test_a_small_part_of_a_large_chunk_is_read_alone() -> None:
    storage = CountingStorage(in_memory_storage())
    held = filled(storage, compressed=False)
    store = Repository.open(storage).readonly_session("main").store
    store.get_sync("large/c/0", byte_range=RangeByteRequest(0, 1))
    before = storage.counts.bytes_read
    found = store.get_sync("large/c/1", byte_range=RangeByteRequest(1000, 3000))
    assert found is not None
    assert storage.counts.bytes_read - before == 2000
    assert found.to_bytes() == held["large"][128 * KiB + 1000 : 128 * KiB + 3000].tobytes()


def test_a_checked_read_takes_no_request_more() -> None:
    def requests(verify: bool) -> int:
        storage = CountingStorage(DistantStorage(in_memory_storage()))
        filled(storage, compressed=False)
        storage.cheap_probes = False
        store = Repository.open(storage).readonly_session("main", verify_chunks=verify).store
        storage.reset()
        for name, (count, _) in ARRAYS.items():
            for number in range(count):
                store.get_sync(f"{name}/c/{number}")
        return sum(key.startswith("chunks/") for _, key in storage.log)

    assert requests(True) == requests(False)


def test_datasets_of_xarray_raise_it_too(tmp_path: Path) -> None:
    storage = local_filesystem_storage(tmp_path)
    repository = Repository.create(storage, CONFIG)
    session = repository.writable_session("main")
    to_arraystore(xr.Dataset({"t": (("x",), np.arange(4096.0))}), session, encoding={"t": {"compressors": None}})
    session.commit("dataset")
    for key in keys(storage, "chunks/"):
        data = bytearray(storage.get_sync(key))
        data[100] ^= 1
        storage.put_sync(key, bytes(data))
    store = Repository.open(storage).readonly_session("main").store
    dataset = xr.open_zarr(store, consolidated=False, chunks=None)
    with pytest.raises(ChunkDamagedError, match="of '/t'"):
        dataset["t"].load()


def test_compaction_copies_no_damaged_chunk() -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage, CONFIG)
    with repository.transaction("main", message="array") as store:
        zarr.create_array(store, name="a", shape=(8, 512), chunks=(1, 512), dtype="u1", compressors=None)
    for number in range(8):
        with repository.transaction("main", message="row") as store:
            zarr.open_array(store, path="a", mode="r+")[number] = number + 1
    key = keys(storage, "chunks/")[3]
    data = bytes(storage.get_sync(key))
    storage.put_sync(key, data[:50] + b"\7" + data[51:])
    before = set(keys(storage, "chunks/"))
    summary = repository.compact(min_live=1.0)
    assert [each.object for each in summary.damaged] == [key]
    assert summary.packs_rewritten == 7
    with pytest.raises(ChunkDamagedError, match=key):
        zarr.open_array(Repository.open(storage).readonly_session("main").store, path="a")[:]
    storage.put_sync(key, data)
    assert set(keys(storage, "chunks/")) - before
    found = zarr.open_array(Repository.open(storage).readonly_session("main").store, path="a")[:]
    assert (found == np.arange(1, 9)[:, None]).all()
    assert repository.verify("chunks").ok


def test_copies_and_exports_refuse_damaged_chunks(tmp_path: Path) -> None:
    storage = damaged("memory", tmp_path)
    source = Repository.open(storage)
    target = Repository.create(in_memory_storage())
    with pytest.raises(ChunkDamagedError, match=r"chunk \(\d,\) of '/(small|large)'"):
        copy_branch(source, target, branch="main", to_branch="copy")
    with pytest.raises(ChunkDamagedError):
        export_zarr(source, tmp_path / "out.zarr", branch="main")


def test_verify_names_each_damaged_chunk_of_a_pack_and_needs_no_codec() -> None:
    storage = damaged("memory", Path())
    with mock.patch("arraystore._maintenance.verification.chunk_reading.open_decoder", side_effect=AssertionError):
        report = Repository.open(storage).verify("chunks")
    assert not report.ok
    said = [finding.problem for finding in report.findings]
    assert sum("of '/small'" in text for text in said) == 8
    assert sum("of '/large'" in text for text in said) == 2


@pytest.mark.parametrize("at", [0, 1 << 20, (5 << 19) - 1])
def test_verify_reads_a_large_chunk_of_a_file_to_its_end(at: int, tmp_path: Path) -> None:
    repository = Repository.create(local_filesystem_storage(tmp_path, fsync=False))
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", data=np.ones(5 << 19, "u1"), chunks=(5 << 19,), compressors=None)
    session.commit("one chunk of 2.5 MiB")
    assert repository.verify("chunks").counts["bytes_read"] == (5 << 19) + 4
    (key,) = keys(repository.storage, "chunks/")
    data = bytearray(repository.storage.get_sync(key))
    data[at] ^= 1
    repository.storage.put_sync(key, bytes(data))
    (finding,) = repository.verify("chunks").findings
    assert "chunk (0,) of '/a'" in finding.problem
    assert finding.key == key


def test_the_error_travels_between_processes() -> None:
    error = ChunkDamagedError("chunks/X", 8, 100).of_chunk("a/b", (1, 2))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert (again.path, again.chunk, again.offset, again.length) == ("a/b", (1, 2), 8, 100)


class FlippingOnce(WrapperStorage):
    """Flips a bit in the first answer of each pack."""

    def __init__(self, inner: Storage, cheap: bool) -> None:
        super().__init__(inner)
        self.cheap_probes = cheap
        self.asked: set[str] = set()

    def _flipped(self, key: str, data: BytesLike) -> BytesLike:
        if key in self.asked or not key.startswith("chunks/"):
            return data
        self.asked.add(key)
        return flipped(bytes(data), b"")

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        return [self._flipped(key, data) for data in await super().get_ranges(key, ranges)]

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        return self._flipped(key, super().get_range_sync(key, start, stop))


@pytest.mark.parametrize("cheap", [True, False])
@pytest.mark.parametrize("read", [read_sync, read_async])
@pytest.mark.parametrize("name", ARRAYS)
def test_what_is_damaged_on_its_way_only_is_read_again(
    cheap: bool, read: Callable[[Repository, str, int], bytes], name: str
) -> None:
    inner = in_memory_storage()
    held = filled(inner, compressed=False)
    storage = FlippingOnce(inner, cheap)
    size = ARRAYS[name][1]
    assert read(Repository.open(storage), name, 0) == held[name][:size].tobytes()
    assert storage.asked


@pytest.mark.parametrize("where", PLACES)
def test_a_fork_reads_no_damaged_chunk_of_its_session(where: str, tmp_path: Path) -> None:
    storage = place(where, tmp_path)
    session = Repository.create(storage, CONFIG).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(8192,), chunks=(1024,), dtype="u1", compressors=None)[:] = 1
    fork = pickle.loads(pickle.dumps(session.fork()))
    for key in keys(storage, "chunks/"):
        storage.put_sync(key, bytes(len(storage.get_sync(key))))
    with pytest.raises(ChunkDamagedError, match="of '/a'"):
        fork.store.get_sync("a/c/2")


class ChangingMeanwhile(WrapperStorage):
    """Changes an array of somebody else whenever a piece of a pack is about to be written."""

    def __init__(self, inner: Storage, array: npt.NDArray[Any]) -> None:
        super().__init__(inner)
        self.array = array

    def _changing(self, parts: Iterable[BytesLike]) -> Iterator[BytesLike]:
        for part in parts:
            self.array += 1
            yield part

    def put_parts_sync(self, key: str, parts: Iterable[BytesLike]) -> None:
        self.inner.put_parts_sync(key, self._changing(parts))

    async def put_parts(self, key: str, parts: Sequence[BytesLike]) -> None:
        self.array += 1
        await self.inner.put_parts(key, parts)


@pytest.mark.parametrize("way", ["session.write", "zarr", "the store"])
@pytest.mark.parametrize("where", ["local", "distant"])
def test_a_large_chunk_is_sound_whoever_changes_the_callers_array_while_it_is_written(
    where: str, way: str, tmp_path: Path
) -> None:
    inner = (
        DistantStorage(in_memory_storage()) if where == "distant" else local_filesystem_storage(tmp_path, fsync=False)
    )
    values = np.ones(3 << 18, "i4")
    session = Repository.create(ChangingMeanwhile(inner, values)).writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=len(values), chunks=1 << 18, dtype="i4", compressors=None)
    if way == "session.write":
        session.write("a", ..., values)
    elif way == "zarr":
        array[...] = values
    else:
        run(session.store.set("a/c/0", default_buffer_prototype().buffer.from_array_like(values[: 1 << 18].view("u1"))))
    session.commit("chunks of 1 MiB")
    found = Repository.open(inner).readonly_session("main").read("a")
    assert found[: 1 << 18].min() >= 1
    assert found.max() <= values.max()
