"""Codecs and shards that the codec pipeline knows: served without zarr, readable by zarr, and never trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr
from numcodecs import LZ4, Blosc, GZip, Shuffle, Zlib, Zstd
from numcodecs.checksum32 import CRC32C
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec

from arraystore import ChunkDamagedError, CountingStorage, Repository, RepositoryConfig, Session, in_memory_storage
from arraystore._session.pipeline.byte_codecs import KINDS, UndecodableError, byte_codec
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.regions import access
from tests.packs import damage_pack
from tests.session.conftest import FarMemory
from tests.session.test_codec_pipeline import BATCHED_PIPELINE, SELECTIONS, Refusing, zarr_numcodecs

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
]

KNOWN: dict[str, dict[str, Any]] = {
    "blosc": {"compressors": BloscCodec()},
    "gzip": {"compressors": GzipCodec()},
    "crc32c": {"compressors": Crc32cCodec()},
    "zstd, crc32c": {"compressors": [ZstdCodec(), Crc32cCodec()]},
    "shuffle, zlib": {"compressors": [zarr_numcodecs.Shuffle(), zarr_numcodecs.Zlib()]},
    "lz4": {"compressors": zarr_numcodecs.LZ4()},
    "transposed": {"compressors": None, "filters": [TransposeCodec(order=(1, 0)), TransposeCodec(order=(1, 0))]},
    "v2 F": {"zarr_format": 2, "compressors": None, "order": "F"},
    "v2 blosc": {"zarr_format": 2, "compressors": Blosc()},
    "v2 zstd": {"zarr_format": 2, "compressors": Zstd(), "order": "F"},
    "v2 lz4": {"zarr_format": 2, "compressors": LZ4()},
    "v2 gzip": {"zarr_format": 2, "compressors": GZip()},
    "v2 shuffle, zlib": {"zarr_format": 2, "filters": [Shuffle(4)], "compressors": Zlib()},
    "v2 crc32c": {"zarr_format": 2, "filters": [CRC32C()], "compressors": None},
}
SHARDED: dict[str, dict[str, Any]] = {
    "raw": {"compressors": None},
    "zstd": {"compressors": ZstdCodec()},
    "blosc, index first": {
        "compressors": BloscCodec(),
        "shards": {"shape": (8, 14), "index_location": "start"},
    },
}


def session_in(storage: Any) -> Session:
    """Return a writable session of a new repository that inlines nothing."""
    return Repository.create(storage, config=RepositoryConfig(inline_chunk_threshold_bytes=0)).writable_session("main")


def make(session: Session, **layout: Any) -> Any:
    return zarr.create_array(
        session.store, **{"name": "a", "shape": (20, 30), "chunks": (4, 7), "dtype": "i4", **layout}
    )


def by_zarr(session: Session) -> Any:
    with zarr.config.set(BATCHED_PIPELINE):
        return zarr.open_array(session.store, path="a")


@pytest.mark.parametrize("layout", KNOWN.values(), ids=KNOWN)
def test_known_codecs_are_never_handed_to_the_general_path_and_are_those_of_zarr(
    layout: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_in(in_memory_storage())
    array, model = make(session, **layout), np.zeros((20, 30), "i4")
    array._async_array.codec_pipeline.inner = Refusing()
    monkeypatch.setattr(access, "read_generally", Refusing)
    monkeypatch.setattr(access, "write_generally", Refusing)
    for number, selection in enumerate(SELECTIONS, 1):
        array[selection] = model[selection] = number
        session.write("a", selection, model[selection])
        np.testing.assert_array_equal(array[selection], model[selection])
        np.testing.assert_array_equal(session.read("a", selection), model[selection])
    np.testing.assert_array_equal(by_zarr(session)[...], model)
    by_zarr(session)[...] = model = np.arange(600, dtype="i4").reshape(20, 30)
    np.testing.assert_array_equal(array[...], model)
    np.testing.assert_array_equal(session.read("a"), model)


def test_every_kind_of_the_table_is_tested() -> None:
    tested = " ".join(KNOWN)
    assert [kind for kind in KINDS if kind not in tested] == []


@pytest.mark.parametrize("layout", SHARDED.values(), ids=SHARDED)
def test_shards_are_read_in_whole_and_in_part_and_written_whole_without_zarr(
    layout: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_in(in_memory_storage())
    array = make(session, **{"shards": (8, 14), **layout})
    array._async_array.codec_pipeline.inner = Refusing()
    monkeypatch.setattr(access, "read_generally", Refusing)
    monkeypatch.setattr(access, "write_generally", Refusing)
    model = np.arange(600, dtype="i4").reshape(20, 30)
    model[4:8, 7:] = 0  # chunks that are left out
    array[...] = model
    for selection in (*SELECTIONS, (17, 3), (slice(0, 1), slice(29, 30)), (slice(4, 8), slice(7, 14))):
        np.testing.assert_array_equal(array[selection], model[selection])
        np.testing.assert_array_equal(session.read("a", selection), model[selection])
    session.write("a", slice(8, 20), model[8:] + 1)
    model[8:] += 1
    np.testing.assert_array_equal(session.read("a"), model)
    np.testing.assert_array_equal(by_zarr(session)[...], model)


@pytest.mark.parametrize("layout", SHARDED.values(), ids=SHARDED)
@pytest.mark.parametrize("order", ["morton", "lexicographic", "colexicographic"])
def test_shards_have_the_bytes_that_zarr_gives_them(layout: dict[str, Any], order: str) -> None:
    index: dict[str, Any] = {"index_location": "start"} if isinstance(layout.get("shards"), dict) else {}
    inner: dict[str, Any] = (
        {}
        if layout["compressors"] is None
        else {
            "codecs": [
                {"name": "bytes", "configuration": {"endian": "little"}},
                BloscCodec(typesize=4, shuffle="shuffle"),
            ]
        }
    )
    try:
        sharding = ShardingCodec(chunk_shape=(2, 3), subchunk_write_order=order, **index, **inner)
    except TypeError:
        pytest.skip("older zarr")
    shards: list[Any] = []
    for pipeline in ({}, BATCHED_PIPELINE):
        session = session_in(in_memory_storage())
        with zarr.config.set(pipeline):
            array = make(session, chunks=(20, 30), serializer=sharding, compressors=None)
            data = np.arange(600, dtype="i4").reshape(20, 30)
            data[:6] = 0
            array[...] = data
        shards.append(session.store.get_sync("a/c/0/0"))
    assert shards[0].to_bytes() == shards[1].to_bytes()


def test_a_part_of_a_large_shard_takes_its_index_once_and_the_ranges_that_are_wanted() -> None:
    storage = CountingStorage(FarMemory())
    session = session_in(storage)
    make(session, shape=(512, 512), chunks=(32, 32), shards=(512, 512), compressors=None)
    data = np.arange(512 * 512, dtype="i4").reshape(512, 512)
    session.write("a", ..., data)
    session.commit("data")
    session = Repository.open(storage).readonly_session("main")
    session.read("a", (0, 0))  # the manifest and the index
    storage.reset()
    part = (slice(320, 352), slice(320, 352))
    np.testing.assert_array_equal(session.read("a", part), data[part])
    assert storage.counts.requests == {"get_ranges": 1}
    assert storage.counts.bytes_read < 512 * 512 * 4 // 2


@pytest.mark.parametrize("at", [0.1, 0.5, 0.95, 0.99])
def test_a_damaged_shard_is_named_when_it_is_read_whole(at: float) -> None:
    storage = in_memory_storage()
    session = session_in(storage)
    make(session, shards=(20, 35), compressors=None)[...] = np.arange(600).reshape(20, 30)
    session.commit("data")
    damage_pack(storage, at)
    with pytest.raises(ChunkDamagedError, match="'/a'"):
        Repository.open(storage).readonly_session("main").read("a")


def test_a_damaged_index_of_a_shard_of_which_a_part_is_read_is_the_error_of_zarr() -> None:
    storage = in_memory_storage()
    session = session_in(storage)
    make(session, shape=(512, 512), chunks=(32, 32), shards=(512, 512), compressors=None)[...] = 1
    session.commit("data")
    damage_pack(storage, 1 - 2000 / (512 * 512 * 4))
    with pytest.raises(ValueError, match="checksum"):
        Repository.open(storage).readonly_session("main").read("a", (0, 0))


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_not_those_of_a_codec_are_refused_before_memory_is_taken(kind: str) -> None:
    codec = byte_codec(kind, {"elementsize": 4} if kind == "shuffle" else {})
    assert codec is not None
    chunk = np.zeros(1 << 16, np.uint8)
    chunk[::7] = 3
    chunks = ChunkCodec((1 << 16,), np.dtype("u1"), None, (codec,))
    encoded = np.frombuffer(chunks.encode_one(chunk), np.uint8)
    np.testing.assert_array_equal(chunks.decode_one(encoded.data), chunk)
    small = ChunkCodec((64,), np.dtype("u1"), None, (codec,))
    for data in (encoded, encoded[:-1], encoded[:3], encoded[:0]):
        with pytest.raises(UndecodableError):
            small.decode_one(data.data)
        if len(data) < len(encoded):
            with pytest.raises(UndecodableError):
                chunks.decode_one(data.data)


def test_an_unknown_configuration_is_left_to_zarr() -> None:
    assert byte_codec("bz2", {}) is None
    assert byte_codec("blosc", {"later": 1}) is None
    assert byte_codec("crc32c", {"location": "start"}) is None
    assert byte_codec("zstd", {"level": 100}) is None


# -- indices and masks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
@pytest.mark.parametrize("compressors", [None, ZstdCodec(), BloscCodec()], ids=["raw", "zstd", "blosc"])
def test_indices_and_masks_are_never_handed_to_the_general_path(compressors: Any, far: bool) -> None:
    session = session_in(FarMemory() if far else in_memory_storage())
    array = make(session, compressors=compressors)
    array._async_array.codec_pipeline.inner = Refusing()
    model = np.arange(600, dtype="i4").reshape(20, 30)
    array[...] = model
    rows, columns = np.array([1, 5, 8, 17]), np.array([29, 0, 13, 7])
    mask = model % 7 == 1
    for number, (found, selection, expected) in enumerate(
        [
            (array.vindex, (rows, columns), (rows, columns)),
            (array.vindex, mask, mask),
            (array.oindex, (rows, np.sort(columns)), np.ix_(rows, np.sort(columns))),
            (array.oindex, (rows, slice(2, 20)), (rows, slice(2, 20))),
            (array.oindex, (rows, 4), (rows, 4)),
            (array.oindex, (slice(None), np.sort(columns)), (slice(None), np.sort(columns))),
        ]
    ):
        np.testing.assert_array_equal(found[selection], model[expected])
        found[selection] = model[expected] = -model[expected]
        np.testing.assert_array_equal(array[...], model)
        found[selection] = model[expected] = number
    np.testing.assert_array_equal(by_zarr(session)[...], model)


def test_chunks_that_indices_change_are_the_reads_of_a_serializable_session() -> None:
    repo = Repository.create(in_memory_storage())
    session = repo.writable_session("main")
    make(session)[...] = 1
    session.commit("data")
    reads = []
    for pipeline in ({}, BATCHED_PIPELINE):
        with zarr.config.set(pipeline):
            session = repo.writable_session("main", isolation="serializable")
            array: Any = zarr.open_array(session.store, path="a")
            array.vindex[[1, 7, 12, 17, 19], [0, 8, 16, 24, 29]] = 2
            array.oindex[[0, 5, 9, 19], 3]
            reads.append(session.reads)
    assert reads[0] == reads[1]


def test_what_cannot_be_encoded_is_the_error_of_zarr() -> None:
    session = session_in(in_memory_storage())
    array = make(session, shape=9, chunks=1, dtype="u1", zarr_format=2, filters=[Shuffle(4)], compressors=None)
    for write in (
        lambda: session.write("a", ..., 1),
        lambda: session.write("a", 0, 1),
        lambda: array.__setitem__(..., 1),
    ):
        with pytest.raises(ValueError, match="integer multiple of elementsize"):
            write()
    assert not session.read("a").any()
