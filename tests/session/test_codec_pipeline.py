"""The codec pipeline gives what zarr's own gives, for whatever arrays and selections, and is used where it can be."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as npst
import numpy as np
import numpy.typing as npt
import pytest
import zarr
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numcodecs import LZ4, Adler32, Blosc, Shuffle, Zlib, Zstd
from numcodecs.checksum32 import CRC32C
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from arraystore import ChunkDamagedError, ReadOnlyError, Repository, RepositoryConfig, Session, in_memory_storage
from arraystore._chunks import read_memory
from arraystore._runtime import run
from arraystore._session.pipeline import byte_codecs, large_chunks, pipeline, single_chunks, writing
from arraystore._session.pipeline.pipeline import ArrayStoreCodecPipeline
from arraystore.storage import local_filesystem_storage
from arraystore.storage.protocol import Storage
from arraystore.storage.wrapper import WrapperStorage
from tests.packs import damage_pack, delete_packs, packs
from tests.session.conftest import FarMemory
from tests.tiers import mostly_thorough

try:
    import zarr.codecs.numcodecs as zarr_numcodecs
except ImportError:  # older releases of zarr
    import numcodecs.zarr3 as zarr_numcodecs

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # casts of NaN
]

TINY = RepositoryConfig(inline_chunk_threshold_bytes=8, own_object_threshold_bytes=96, pack_target_bytes=128)
BATCHED_PIPELINE = {"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}
DTYPES = ["bool", "i1", "u2", "<i4", ">i4", "u8", "f2", "f4", ">f8", "c8", "M8[s]", "m8[ns]", "S3", "U2"]
FILLS: dict[str, list[Any]] = {
    "f": [0.0, -0.0, np.nan, 1.5],
    "c": [0, complex(np.nan, 1), 2 + 1j],
    "b": [False, True],
    "M": [np.datetime64("NaT", "s"), np.datetime64(1, "s")],
    "m": [np.timedelta64("NaT", "ns"), np.timedelta64(1, "ns")],
    "S": [b"", b"ab"],
    "U": ["", "ü"],
}


COMPRESSORS_V3: list[Any] = [
    None,
    None,
    ZstdCodec(),
    ZstdCodec(),
    ZstdCodec(level=5, checksum=True),
    BloscCodec(),
    BloscCodec(cname="lz4", clevel=1, shuffle="noshuffle"),
    GzipCodec(),
    Crc32cCodec(),
    [ZstdCodec(), Crc32cCodec()],
    [zarr_numcodecs.Shuffle(), zarr_numcodecs.Zlib(), Crc32cCodec()],
    [zarr_numcodecs.LZ4(), zarr_numcodecs.Blosc()],
    zarr_numcodecs.BZ2(),
]


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, Any]:
    """Any array that zarr can make of these data types."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple))
    chunks = tuple(draw(st.integers(1, 5)) for _ in shape)
    fill = draw(st.sampled_from(FILLS.get(dtype.kind, [0, 1])))
    layout: dict[str, Any] = {"shape": shape, "chunks": chunks, "dtype": dtype, "fill_value": fill}
    layout["config"] = {"write_empty_chunks": draw(st.booleans()), "order": draw(st.sampled_from("CF"))}
    if draw(st.integers(0, 3)) == 0:
        return {**layout, **draw(_formats_v2(dtype))}
    return {**layout, **draw(_codecs_v3(len(shape), chunks))}


@st.composite
def _formats_v2(draw: st.DrawFn, dtype: np.dtype[Any]) -> dict[str, Any]:
    compressors = draw(
        st.sampled_from([None, Zstd(level=1), Blosc(), Blosc("zstd", 1, Blosc.BITSHUFFLE), Zlib(), LZ4()])
    )
    shuffle = Shuffle(elementsize=dtype.itemsize)
    filters = draw(st.sampled_from([None, None, [shuffle], [shuffle, CRC32C()], [Adler32()]]))
    layout = {"zarr_format": 2, "compressors": compressors, "filters": filters}
    return {**layout, "order": draw(st.sampled_from("CF"))}


@st.composite
def _codecs_v3(draw: st.DrawFn, dimensions: int, chunks: tuple[int, ...]) -> dict[str, Any]:
    compressors = draw(st.sampled_from(COMPRESSORS_V3))
    encoding = {"name": draw(st.sampled_from(["default", "v2"])), "separator": draw(st.sampled_from("./"))}
    layout: dict[str, Any] = {"compressors": compressors, "chunk_key_encoding": encoding, "zarr_format": 3}
    layout["serializer"] = draw(st.sampled_from(["auto", BytesCodec(endian="big")]))
    if draw(st.integers(0, 3)) == 0:
        orders = [draw(st.permutations(range(dimensions))) for _ in range(draw(st.integers(1, 2)))]
        layout["filters"] = [TransposeCodec(order=order) for order in orders]
    elif draw(st.integers(0, 4)) == 0:
        layout["shards"] = {
            "shape": tuple(side * draw(st.integers(1, 3)) for side in chunks),
            "index_location": draw(st.sampled_from(["end", "start"])),
        }
    return layout


def values(dtype: np.dtype[Any], shape: tuple[int, ...]) -> st.SearchStrategy[npt.NDArray[Any]]:
    """Arrays with many equal items, zeros of both signs and NaN among them."""
    pool: dict[str, list[Any]] = {**FILLS, "f": [0.0, -0.0, np.nan, 1.5], "c": [0, complex(np.nan, 1), 3j]}
    some = np.array(pool.get(dtype.kind, [0, 1]), dtype=dtype)
    picks = npst.arrays(np.intp, shape, elements=st.integers(0, len(some) - 1), fill=st.just(0))
    return picks.map(lambda at: some[at])


@st.composite
def selections(draw: st.DrawFn, shape: tuple[int, ...], grid: tuple[int, ...]) -> tuple[str, Any]:
    """A way of selecting, and what is selected."""
    kind = draw(st.sampled_from(["basic"] * 4 + ["oindex", "vindex", "mask", "blocks"]))
    if kind == "basic":
        basic = npst.basic_indices(shape, allow_newaxis=False)
        return kind, draw(basic.filter(_steps_are_positive))
    if kind == "blocks":
        sides = [st.integers(0, side - 1).map(lambda at: slice(at, at + 2)) | st.integers(0, side - 1) for side in grid]
        return kind, tuple(draw(side) for side in sides)
    if kind == "mask":
        return kind, draw(npst.arrays(bool, shape))
    count = draw(st.integers(1, 4))
    indices = [draw(st.lists(st.integers(0, side - 1), min_size=count, max_size=count)) for side in shape]
    return kind, tuple(np.array(index if kind == "vindex" else sorted(set(index))) for index in indices)


def _steps_are_positive(selection: Any) -> bool:
    parts = selection if isinstance(selection, tuple) else (selection,)
    return all(not isinstance(part, slice) or part.step is None or part.step > 0 for part in parts)


def _indexed(array: Any, kind: str) -> Any:
    return {"basic": array, "oindex": array.oindex, "vindex": array.vindex, "mask": array.vindex}.get(
        kind, array.blocks
    )


def outcome(action: Callable[[], Any]) -> Any:
    """Return what an action gives, or the type of its error."""
    try:
        return action()
    except Exception as error:  # noqa: BLE001  # whichever zarr raises
        return type(error)


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert found.tobytes() == expected.tobytes()
    else:
        assert (
            np.asarray(found).tobytes() == np.asarray(expected).tobytes()
            if not isinstance(expected, type)
            else found is expected
        )


async def _keys(store: Any) -> set[str]:
    return {key async for key in store.list() if not key.endswith((".json", ".zarray", ".zattrs", ".zgroup"))}


@pytest.fixture(
    params=[
        (1, 0, writing._LARGE, 0),
        (pipeline._FEWEST, pipeline._LISTED, 1, 0),
        (pipeline._FEWEST, pipeline._LISTED, writing._LARGE, single_chunks._MOST),
    ],
    ids=["any", "many, as if they were large", "few one by one"],
)
def fewest(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have selections of any number of chunks handled as a whole, or of as many as usual, each by itself or few so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "_FEWEST", request.param[0])
        patch.setattr(pipeline, "_LISTED", request.param[1])
        patch.setattr(writing, "_LARGE", request.param[2])
        patch.setattr(large_chunks, "_LARGE", request.param[2])
        patch.setattr(byte_codecs, "_LARGE", request.param[2])
        patch.setattr(byte_codecs, "_COPIED_FROM_CACHE", 8 * (request.param[2] - 1))
        patch.setattr(large_chunks, "_PIECE", 3 * request.param[2])
        patch.setattr(single_chunks, "_MOST", request.param[3])
        if request.param[2] == 1:  # through memory of ours, as where the kernel copies slowly into the user's
            patch.setattr(read_memory, "_SLOW_AHEAD", read_memory._PAGE)
            patch.setattr(read_memory, "_is_amd", lambda: True)
        yield


@pytest.mark.usefixtures("fewest")
@settings(
    max_examples=settings().max_examples * 2,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(layout=layouts(), far=st.booleans(), tiny=st.booleans(), serializable=st.booleans(), data=st.data())
def test_any_array_and_selection_gives_what_the_memory_store_gives(
    layout: dict[str, Any], far: bool, tiny: bool, serializable: bool, data: st.DataObject
) -> None:
    storage = FarMemory() if far else in_memory_storage()
    repo, model = Repository.create(storage, config=TINY if tiny else RepositoryConfig()), MemoryStore()
    session = repo.writable_session("main", isolation="serializable" if serializable else "snapshot")
    arrays = [outcome(lambda s=s: zarr.create_array(s, name="a/b", **layout)) for s in (session.store, model)]
    assume(isinstance(arrays[1], zarr.Array))
    ours, theirs = arrays
    assert isinstance(ours._async_array.codec_pipeline, ArrayStoreCodecPipeline)
    for _ in range(data.draw(st.integers(1, 5), label="steps")):
        step = data.draw(st.sampled_from(["write"] * 4 + ["read"] * 2 + ["resize", "append", "commit"]))
        shape, config = theirs.shape, layout["config"]
        if step == "commit":
            session.commit("step", allow_empty=True)
            session = repo.writable_session("main")
            with zarr.config.set(data.draw(st.sampled_from([{}, BATCHED_PIPELINE]), label="pipeline")):
                ours = zarr.open_array(session.store, path="a/b").with_config(config)
            theirs = zarr.open_array(model, path="a/b").with_config(config)
        elif step == "resize":
            new = tuple(data.draw(st.integers(1, 11)) for _ in shape)
            assert outcome(lambda: ours.resize(new)) == outcome(lambda: theirs.resize(new))  # noqa: B023
        elif step == "append":
            new = (2, *shape[1:])
            more = data.draw(values(layout["dtype"], new))
            for array in (ours, theirs):
                array.append(more)
        else:
            grid = tuple(-(-side // chunk) for side, chunk in zip(shape, theirs.shards or theirs.chunks, strict=True))
            kind, selection = data.draw(selections(shape, grid))
            if step == "write":
                part = outcome(lambda: _indexed(theirs, kind)[selection])  # noqa: B023
                size = () if isinstance(part, type) else np.shape(part)
                value: Any = data.draw(values(layout["dtype"], data.draw(st.sampled_from([size, size, ()]))))
                value = value[()] if isinstance(value, np.ndarray) and value.shape == () else value
                results = [outcome(lambda a=a: _indexed(a, kind).__setitem__(selection, value)) for a in (ours, theirs)]  # noqa: B023
            else:
                results = [outcome(lambda a=a: _indexed(a, kind)[selection]) for a in (ours, theirs)]  # noqa: B023
            assert_same(*results)
        assert_same(ours[...], theirs[...])
    assert sync(_keys(session.store)) == sync(_keys(model))
    session.commit("last", allow_empty=True)
    store = Repository.open(storage).readonly_session("main").store
    expected = zarr.open_array(model, path="a/b", mode="r")[...]
    assert_same(zarr.open_array(store, path="a/b", mode="r")[...], expected)
    with zarr.config.set(BATCHED_PIPELINE):  # which decodes what was encoded here
        assert_same(zarr.open_array(store, path="a/b", mode="r")[...], expected)


# -- where it is used -------------------------------------------------------------------------------------------

REGULAR: dict[str, Any] = {"raw": None, "zstd": ZstdCodec()}
SELECTIONS = (..., slice(3, 17), (5, slice(None)), (slice(1, 19, 3), slice(2, None)), (slice(None), 4))


def make_array(session: Session, compressors: Any, **more: Any) -> Any:
    layout: dict[str, Any] = {"shape": (20, 30), "chunks": (4, 7), "dtype": "i4", **more}
    return zarr.create_array(session.store, name="a", compressors=compressors, **layout)


class Refusing:
    """A pipeline that must not be asked for anything."""

    async def read(self, *_: Any) -> None:
        raise AssertionError("the general path was asked to read")

    async def write(self, *_: Any) -> None:
        raise AssertionError("the general path was asked to write")


@pytest.mark.parametrize("compressors", REGULAR.values(), ids=REGULAR)
def test_basic_selections_are_never_handed_to_the_general_path(compressors: Any) -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    array = make_array(session, compressors)
    array._async_array.codec_pipeline.inner = Refusing()
    model = np.zeros(array.shape, array.dtype)
    for number, selection in enumerate(SELECTIONS, 1):
        array[selection] = model[selection] = number
        np.testing.assert_array_equal(array[selection], model[selection])
    np.testing.assert_array_equal(array[...], model)


@pytest.mark.parametrize("compressors", REGULAR.values(), ids=REGULAR)
def test_few_chunks_that_are_near_are_never_handed_to_the_general_path(compressors: Any) -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    array = make_array(session, compressors)
    array[...] = model = np.arange(600).reshape(20, 30)
    array._async_array.codec_pipeline.inner = Refusing()
    for selection in ((5, 6), (slice(3, 5), 6), (slice(3, 5), slice(5, 8)), ([3, 4], 6), ([3, 4], [6, 7])):
        expected = model[np.ix_(*selection)] if selection == ([3, 4], [6, 7]) else model[selection]
        np.testing.assert_array_equal(array.oindex[selection], expected)
        array.oindex[selection] = 7
        model[np.ix_(*selection) if selection == ([3, 4], [6, 7]) else selection] = 7
        np.testing.assert_array_equal(array[...], model)


@pytest.mark.parametrize("compressors", REGULAR.values(), ids=REGULAR)
def test_few_chunks_that_are_far_away_are_handed_to_the_general_path_which_asks_for_them_at_once(
    compressors: Any,
) -> None:
    session = Repository.create(FarMemory()).writable_session("main")
    array = make_array(session, compressors)
    array[...] = 1
    array._async_array.codec_pipeline.inner = Refusing()
    with pytest.raises(AssertionError, match="the general path was asked to read"):
        array[3:5, 6]
    with pytest.raises(AssertionError, match="the general path was asked to write"):
        array[3:5, 6] = 1


@pytest.mark.parametrize("offset", [0, 1, 16, 4095, 5000])
def test_memory_for_a_range_of_a_file_is_where_the_kernel_copies_fast(
    offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_memory, "_is_amd", lambda: True)
    memory = read_memory.ReadMemory()
    for size in (10, 100_000, 10, 200_000):
        part = memory.at(size, offset)
        assert len(part) == size
        assert not read_memory.is_filled_slowly(part, offset)
        assert read_memory.is_filled_slowly(part, offset + 48)
    held = memory.nbytes
    memory.at(200_000, offset + 4000)
    assert memory.nbytes == held


class Busy(WrapperStorage):
    """Storage that counts how many reads are made at once."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.now = self.most = 0

    async def get_source_ranges(self, key: str, ranges: Any) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        return await super().get_source_ranges(key, ranges)


@pytest.mark.parametrize("through_zarr", [False, True], ids=["session.read", "zarr"])
def test_a_few_virtual_chunks_are_asked_for_at_once(through_zarr: bool) -> None:
    files = Busy(in_memory_storage())
    for name in "xyz":
        run(files.put(name, bytes(4)))
    repo = Repository.create(in_memory_storage(), authorize_virtual_chunk_access={"s3://bucket/": files})
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(16,), chunks=(4,), dtype="u1", compressors=None)
    array[12:] = 9
    session.store.set_virtual_refs_arr("a", (3,), [f"s3://bucket/{name}" for name in "xyz"], [0] * 3, [4] * 3)
    session.commit("data")
    for reader in (session, repo.readonly_session("main")):
        files.most = 0
        array = zarr.open_array(reader.store, path="a", mode="r")
        found = array[...] if through_zarr else reader.read("a")
        assert found.tolist() == [0] * 12 + [9] * 4
        assert files.most == 3


_NEWER = pytest.mark.skipif(not hasattr(zarr.core.codec_pipeline, "FusedCodecPipeline"), reason="older zarr")


@pytest.mark.parametrize("selection", [slice(2, 8), pytest.param([2, 3, 5, 7], marks=_NEWER)], ids=["slice", "indices"])
def test_a_grid_of_more_chunks_than_can_be_numbered_is_read(selection: Any) -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    array = make_array(session, None, shape=(1 << 40, 1 << 40), chunks=(1, 1), fill_value=3)
    assert (array.oindex[selection, :2] == 3).all()


@pytest.mark.parametrize("compressors", REGULAR.values(), ids=REGULAR)
def test_a_serializable_session_has_read_the_same_chunks_whatever_the_pipeline(compressors: Any) -> None:
    repo = Repository.create(in_memory_storage())
    session = repo.writable_session("main")
    make_array(session, compressors)[:12] = 1
    session.commit("data")
    reads = []
    for path in ("zarr.core.codec_pipeline.BatchedCodecPipeline", zarr.config.get("codec_pipeline.path")):
        with zarr.config.set({"codec_pipeline.path": path}):
            session = repo.writable_session("main", isolation="serializable")
            array = zarr.open_array(session.store, path="a")
            array[0, :5] = 3  # of a chunk that is kept in part
            array[8:12] = 4
            for selection in ((slice(5, 9), slice(0, 9)), (15, slice(None)), (slice(0, 2), slice(0, 3))):
                array[selection]
            reads.append(session.reads)
    assert reads[0] == reads[1]


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
@pytest.mark.parametrize("compressors", REGULAR.values(), ids=REGULAR)
def test_a_damaged_chunk_is_named_and_none_of_its_bytes_is_returned(compressors: Any, far: bool) -> None:
    storage = FarMemory() if far else in_memory_storage()
    repo = Repository.create(storage, config=RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repo.writable_session("main")
    make_array(session, compressors)[...] = np.arange(600).reshape(20, 30)
    session.commit("data")
    damage_pack(storage)
    array = zarr.open_array(Repository.open(storage).readonly_session("main").store, path="a", mode="r")
    with pytest.raises(ChunkDamagedError, match="'/a'"):
        array[...]


def test_a_missing_pack_is_the_error_of_the_general_path() -> None:
    storage = in_memory_storage()
    repo = Repository.create(storage, config=RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repo.writable_session("main")
    make_array(session, None)[...] = 1
    session.commit("data")
    delete_packs(storage)
    array = zarr.open_array(Repository.open(storage).readonly_session("main").store, path="a", mode="r")
    ours = outcome(lambda: array[...])
    with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}):
        array = zarr.open_array(Repository.open(storage).readonly_session("main").store, path="a", mode="r")
    assert ours is outcome(lambda: array[...]) is not np.ndarray


def test_a_read_only_store_refuses_before_anything_is_written() -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    make_array(session, None)
    array = zarr.open_array(session.store.with_read_only(True), path="a", mode="r")
    with pytest.raises((ReadOnlyError, ValueError)):
        array[...] = 1
    assert not len(session.chunk_coordinates("a"))


def test_chunks_overwritten_again_and_again_take_the_room_of_one_write() -> None:
    storage = in_memory_storage()
    session = Repository.create(storage).writable_session("main")
    array = make_array(session, None, shape=(64, 64), chunks=(16, 16))
    for number in range(1, 40):
        array[...] = number
        array[3, 5:40] = number + 1
    session.commit("data")
    assert sum(pack.size for pack in packs(storage)) <= 2 * 64 * 64 * 4


def test_a_selection_of_many_packs_far_away_is_read_in_few_requests() -> None:
    storage = FarMemory()
    session = Repository.create(storage).writable_session("main")
    make_array(session, None, shape=(512, 512), chunks=(16, 16))[...] = 1
    session.commit("data")
    ranges: list[str] = []
    read = storage.get_ranges

    async def count(key: str, wanted: Any) -> Any:
        ranges.append(key)
        return await read(key, wanted)

    storage.get_ranges = count  # type: ignore[method-assign]
    array = zarr.open_array(Repository.open(storage).readonly_session("main").store, path="a", mode="r")
    assert array[...].min() == 1
    assert len([key for key in ranges if key.startswith("chunks/")]) <= 2


def test_a_pickled_array_reads_through_the_pipeline(tmp_path: Path) -> None:
    repo = Repository.create(local_filesystem_storage(tmp_path, fsync=False))
    session = repo.writable_session("main")
    make_array(session, ZstdCodec())[...] = 7
    session.commit("data")
    array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    copy = pickle.loads(pickle.dumps(array))
    copy._async_array.codec_pipeline.inner = Refusing()
    assert copy[...].min() == 7


def test_many_threads_read_and_write_one_session_at_once() -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    array = make_array(session, ZstdCodec(), shape=(64, 256), chunks=(4, 4))

    async def work() -> None:
        async def one(row: int) -> None:
            await array._async_array.setitem((slice(row, row + 4), slice(None)), np.full((4, 256), row + 1, "i4"))
            assert (np.asarray(await array._async_array.getitem(slice(row, row + 4))) == row + 1).all()

        await asyncio.gather(*[one(row) for row in range(0, 64, 4)])

    sync(work())
    np.testing.assert_array_equal(array[:, 0], np.arange(64) // 4 * 4 + 1)


# -- when it is installed ---------------------------------------------------------------------------------------

PROGRAM = """
import zarr, arraystore
from zarr.storage import MemoryStore
before = zarr.config.get("codec_pipeline.path")
session = arraystore.Repository.create(arraystore.in_memory_storage()).writable_session("main")
{prepare}
ours = type(zarr.create_array(session.store, shape=4, dtype="i4", name="a")._async_array.codec_pipeline).__name__
theirs = type(zarr.create_array(MemoryStore(), shape=4, dtype="i4")._async_array.codec_pipeline).__name__
print(ours, theirs, zarr.config.get("codec_pipeline.path") == before)
"""
BATCHED = "BatchedCodecPipeline"
FUSED = "zarr.core.codec_pipeline.FusedCodecPipeline"
OURS = ArrayStoreCodecPipeline.__name__


@pytest.mark.parametrize(
    ("prepare", "environment", "printed"),
    mostly_thorough(
        [
            ("", "", f"{OURS} {BATCHED} False"),
            ("", "0", f"{BATCHED} {BATCHED} True"),
            ("", "off", f"{BATCHED} {BATCHED} True"),
            ("arraystore.use_pipeline(False)", "", f"{BATCHED} {BATCHED} True"),
            ("session.store; arraystore.use_pipeline(False)", "", f"{BATCHED} {BATCHED} True"),
            ("arraystore.use_pipeline()", "0", f"{OURS} {BATCHED} False"),
            pytest.param(
                f"zarr.config.set({{'codec_pipeline.path': '{FUSED}'}})",
                "",
                f"{OURS} FusedCodecPipeline False",
                marks=_NEWER,
            ),
            pytest.param(
                f"session.store; zarr.config.set({{'codec_pipeline.path': '{FUSED}'}})",
                "",
                "FusedCodecPipeline FusedCodecPipeline False",
                marks=_NEWER,
            ),
        ],
        every=3,
    ),
)
def test_it_is_installed_by_the_first_store_unless_it_is_turned_off(
    prepare: str, environment: str, printed: str
) -> None:
    program = PROGRAM.format(prepare=prepare)
    variables = {**os.environ, "ARRAYSTORE_PIPELINE": environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == printed, done.stderr
