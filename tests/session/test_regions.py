"""Regions are read and written as zarr reads and writes them, whatever the array, and conflict as its writes do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from zarr.codecs import ZstdCodec
from zarr.storage import MemoryStore

from arraystore import (
    ChunkDamagedError,
    ConflictDetector,
    InvalidInputError,
    NodeNotFoundError,
    ReadOnlyError,
    RebaseFailedError,
    Repository,
    RepositoryConfig,
    Session,
    in_memory_storage,
    local_filesystem_storage,
)
from arraystore._session.pipeline import large_chunks, pipeline
from arraystore._session.regions import access, few_chunks
from arraystore.errors import SelectionError
from tests.commit.support import keys
from tests.packs import damage_pack
from tests.session.conftest import FarMemory
from tests.session.test_codec_pipeline import TINY, assert_same, layouts, make_array, outcome, selections, values

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # casts of NaN
]

COMPRESSORS: dict[str, Any] = {"raw": None, "zstd": ZstdCodec()}


@pytest.fixture(params=["one by one", "in blocks", "in runs", "in place, singly", "in place, in runs", "as usual"])
def steps(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have chunks read and written one by one, copied singly or in runs out of blocks, or as their number decides.

    In place, those that are contiguous are read as if they were large.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "as usual":
            patch.setattr(access, "are_few", lambda *_, writing: request.param == "one by one")
            patch.setattr(access, "are_copied_singly", lambda *_: request.param in ("in blocks", "in place, singly"))
        if request.param.startswith("in place"):
            patch.setattr(large_chunks, "_LARGE", 1)
            patch.setattr(large_chunks, "_PIECE", 5)
        yield


def refuse(*_: Any) -> None:
    raise AssertionError("zarr was asked")


@st.composite
def basic(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Slices of any bounds and steps, and integers of both signs."""
    bounds = [st.none() | st.integers(-side - 2, side + 2) for side in shape]
    slices = [st.builds(slice, bound, bound, st.none() | st.integers(1, 4)) for bound in bounds]
    parts = [draw(one | st.integers(-side, side - 1)) for one, side in zip(slices, shape, strict=True)]
    cut = draw(st.integers(0, len(parts)))
    return draw(st.sampled_from([tuple(parts), (*parts[:cut], ...), (..., *parts[cut:]), tuple(parts[:cut])]))


@pytest.mark.usefixtures("steps")
@settings(suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture])
@given(layout=layouts(), far=st.booleans(), tiny=st.booleans(), serializable=st.booleans(), data=st.data())
def test_any_array_and_region_gives_what_zarr_gives(
    layout: dict[str, Any], far: bool, tiny: bool, serializable: bool, data: st.DataObject
) -> None:
    storage = FarMemory() if far else in_memory_storage()
    repo, model = Repository.create(storage, config=TINY if tiny else RepositoryConfig()), MemoryStore()
    session = repo.writable_session("main", isolation="serializable" if serializable else "snapshot")
    config = layout["config"]
    created = [outcome(lambda s=s: zarr.create_array(s, name="a/b", **layout)) for s in (session.store, model)]
    assume(isinstance(created[1], zarr.Array))
    with zarr.config.set({f"array.{name}": value for name, value in config.items()}):
        theirs = zarr.open_array(model, path="a/b")  # one just created has the byte order that was asked for
        for _ in range(data.draw(st.integers(1, 5), label="steps")):
            step = data.draw(st.sampled_from(["write"] * 4 + ["read"] * 2 + ["into", "resize", "commit"]))
            if step == "commit":
                session.commit("step", allow_empty=True)
                session = repo.writable_session("main")
            elif step == "resize":
                new = tuple(data.draw(st.integers(1, 11)) for _ in theirs.shape)
                zarr.open_array(session.store, path="a/b").resize(new)
                theirs.resize(new)
            else:
                _, selection = data.draw(
                    st.tuples(st.none(), basic(theirs.shape)) | _listed(theirs.shape), label="selection"
                )
                _compare(session, theirs, step, selection, data)
            assert_same(session.read("a/b"), theirs[...])
    session.commit("last", allow_empty=True)
    with zarr.config.set({"array.order": config["order"]}):
        assert_same(Repository.open(storage).readonly_session("main").read("a/b"), theirs[...])


def _listed(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """Lists and masks, which zarr reads and writes."""
    return selections(shape, shape).filter(lambda drawn: drawn[0] in ("oindex", "mask"))


def _compare(session: Session, theirs: Any, step: str, selection: Any, data: st.DataObject) -> None:
    part = outcome(lambda: theirs[selection])
    if isinstance(part, type):
        with pytest.raises(part):
            session.read("a/b", selection)
    elif step == "read":
        assert_same(session.read("a/b", selection), part)
    elif step == "into":
        out = np.full(np.shape(part), 1, theirs.dtype, "F")
        assert session.read("a/b", selection, out=out) is out
        assert out.tobytes() == np.asarray(part, theirs.dtype).tobytes()
    else:
        value: Any = data.draw(values(np.asarray(part).dtype, np.shape(part)) | values(np.asarray(part).dtype, ()))
        value = value[()] if isinstance(value, np.ndarray) and value.shape == () else value
        results = [outcome(lambda: session.write("a/b", selection, value))]
        results += [outcome(lambda: theirs.__setitem__(selection, value))]
        assert results[0] is results[1]


# -- errors -----------------------------------------------------------------------------------------------------


@pytest.fixture
def arrays(session: Session) -> Session:
    make_array(session, None)[...] = np.arange(600).reshape(20, 30)
    return session


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (20, "20 must be an index of dimension 0, which has 20 items"),
        ((0, -31), "-31 must be an index of dimension 1, which has 30 items"),
        ((0, 0, 0), r"at most one ellipsis and 2 integers or slices, one for each dimension of shape \(20, 30\)"),
        ((..., ...), "at most one ellipsis"),
        (slice(None, None, -1), r"the step of slice\(None, None, -1\) must be positive"),
        (slice(None, None, 0), "must be integers: slice step cannot be zero"),
        (slice(0.5, None), "must be integers"),
        ((None, 0), "must be one that zarr accepts"),
        ([20], "must be one that zarr accepts"),
    ],
)
def test_a_selection_that_is_not_valid_is_named_with_its_array_and_changes_nothing(
    arrays: Session, selection: Any, said: str
) -> None:
    before = arrays.read("a")
    for action in (lambda: arrays.read("a", selection), lambda: arrays.write("a", selection, 1)):
        with pytest.raises(SelectionError, match=rf"selection .* of array 'a'.*{said}") as raised:
            action()
        assert isinstance(raised.value, IndexError)
    np.testing.assert_array_equal(arrays.read("a"), before)


@pytest.mark.parametrize("data", [np.ones(7), np.ones((20, 30, 1)), "x", object(), np.array(["a"])])
def test_data_that_do_not_fit_are_refused_and_change_nothing(arrays: Session, data: Any) -> None:
    before = arrays.read("a")
    with pytest.raises(InvalidInputError, match=r"broadcast to, an array of int32 and shape \(2, 30\).*array 'a'"):
        arrays.write("a", slice(0, 2), data)
    np.testing.assert_array_equal(arrays.read("a"), before)


@pytest.mark.parametrize("out", [np.empty((2, 29), "i4"), np.empty((2, 30), "f4"), [[0] * 30] * 2])
def test_an_array_to_read_into_has_the_shape_and_type_of_the_region(arrays: Session, out: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"out must be a writable numpy array of int32 and shape \(2, 30\)"):
        arrays.read("a", slice(0, 2), out=out)


def test_an_array_to_read_into_must_be_writable(arrays: Session) -> None:
    out = np.empty((2, 30), "i4")
    out.flags.writeable = False
    with pytest.raises(InvalidInputError, match="out must be a writable"):
        arrays.read("a", slice(0, 2), out=out)


def test_an_array_that_does_not_exist_is_named(arrays: Session) -> None:
    zarr.create_group(arrays.store, path="g")
    for path in ("b", "g"):
        for action in (lambda p=path: arrays.read(p), lambda p=path: arrays.write(p, ..., 1)):
            with pytest.raises(NodeNotFoundError, match=f"there is no array '{path}' in"):
                action()


def test_a_read_only_session_reads_and_does_not_write(arrays: Session) -> None:
    arrays.commit("data")
    assert arrays.read("/a", (3, 4)) == 94
    with pytest.raises(ReadOnlyError):
        arrays.write("a", ..., 1)


@pytest.mark.parametrize("compressors", COMPRESSORS.values(), ids=COMPRESSORS)
def test_a_damaged_chunk_of_a_region_is_named(compressors: Any) -> None:
    storage = in_memory_storage()
    repo = Repository.create(storage, config=RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repo.writable_session("main")
    make_array(session, compressors)[...] = np.arange(600).reshape(20, 30)
    session.commit("data")
    damage_pack(storage)
    reader, writer = Repository.open(storage).readonly_session("main"), repo.writable_session("main")
    with pytest.raises(ChunkDamagedError, match="'/a'"):
        reader.read("a")
    with pytest.raises(ChunkDamagedError, match="'/a'"):
        writer.write("a", (slice(1, 19), slice(1, 29)), 0)
    ones = [(slice(4 * at, 4 * at + 2), slice(7 * to, 7 * to + 2)) for at in range(5) for to in range(5)]
    assert [outcome(lambda one=one: reader.read("a", one)) is ChunkDamagedError for one in ones].count(True) == 1
    assert [outcome(lambda one=one: writer.write("a", one, 0)) is ChunkDamagedError for one in ones].count(True) == 1


@pytest.mark.skipif("read_missing_chunks" not in zarr.config.get("array"), reason="this zarr reads all chunks")
def test_a_chunk_that_must_not_be_missing_is_the_error_of_zarr(session: Session) -> None:
    make_array(session, None)
    with zarr.config.set({"array.read_missing_chunks": False}), pytest.raises(Exception, match="not found in store"):
        session.read("a")
    assert not session.read("a").any()


# -- where zarr is not asked ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("compressors", COMPRESSORS.values(), ids=COMPRESSORS)
def test_basic_regions_are_read_and_written_without_zarr(
    session: Session, compressors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_array(session, compressors)
    monkeypatch.setattr(access, "read_generally", refuse)
    monkeypatch.setattr(access, "write_generally", refuse)
    model = np.zeros((20, 30), "i4")
    for number, selection in enumerate([..., 3, (4, 5), slice(2, 19, 3), (..., -1), (slice(6, 3), 1)], 1):
        model[selection] = number
        session.write("a", selection, number)
        np.testing.assert_array_equal(session.read("a", selection), model[selection])
    np.testing.assert_array_equal(session.read("a"), model)


@pytest.mark.parametrize("through_zarr", [True, False])
@pytest.mark.parametrize("listed", [0, 64])
@pytest.mark.parametrize("compressors", COMPRESSORS.values(), ids=COMPRESSORS)
@pytest.mark.parametrize("verify", [True, False])
def test_large_chunks_are_read_straight_into_the_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through_zarr: bool, listed: int, compressors: Any, verify: bool
) -> None:
    repo = Repository.create(local_filesystem_storage(tmp_path, fsync=False))
    session, values = repo.writable_session("main"), np.arange(12 * 65536, dtype="i4").reshape(6, 2, 256, 256)
    zarr.create_array(session.store, name="a", data=values, chunks=(1, 1, 256, 256), compressors=compressors)
    session.commit("twelve chunks of 256 KiB")
    monkeypatch.setattr(pipeline, "_LISTED", listed)
    monkeypatch.setattr(access, "are_copied_singly", lambda *_: listed > 0)
    monkeypatch.setattr("arraystore._session.pipeline.blocks._LocalReader.__call__", refuse)
    monkeypatch.setattr(access, "read_generally", refuse)
    reading = repo.readonly_session("main", verify_chunks=verify)
    array = zarr.open_array(reading.store, path="a")
    for selection in (slice(1, None), (slice(None), 1)):
        found = array[selection] if through_zarr else reading.read("a", selection)
        np.testing.assert_array_equal(found, values[selection])


@pytest.mark.parametrize("order", ["C", "F"])
def test_chunks_of_megabytes_are_decompressed_into_any_array(session: Session, order: Any) -> None:
    values = np.arange(4 << 20, dtype="i4").reshape(4, 1024, 1024) // 1000
    zarr.create_array(session.store, name="a", data=values, chunks=(1, 1024, 1024), compressors=ZstdCodec())
    session.commit("four chunks of 4 MiB")
    out = np.empty(values.shape, "i4", order)
    np.testing.assert_array_equal(session.read("a", out=out), values)
    array = zarr.open_array(session.store, path="a", mode="r", config={"order": order})
    np.testing.assert_array_equal(array[...], values)


@pytest.mark.parametrize("through_zarr", [True, False])
@pytest.mark.parametrize("compressors", COMPRESSORS.values(), ids=COMPRESSORS)
def test_a_damaged_chunk_that_is_read_into_the_array_is_named(
    tmp_path: Path, through_zarr: bool, compressors: Any
) -> None:
    storage = local_filesystem_storage(tmp_path, fsync=False)
    session = Repository.create(storage).writable_session("main")
    zarr.create_array(
        session.store, name="a", data=np.ones((6, 256, 256), "i4"), chunks=(1, 256, 256), compressors=None
    )
    session.commit("six chunks of 256 KiB")
    (key,) = keys(storage, "chunks/")
    data = bytearray(storage.get_sync(key))
    data[2 * len(data) // 3] ^= 1
    storage.put_sync(key, bytes(data))
    reading = Repository.open(storage).readonly_session("main")
    with pytest.raises(ChunkDamagedError, match=r"chunk \(4, 0, 0\) of '/a'"):
        zarr.open_array(reading.store, path="a")[...] if through_zarr else reading.read("a")


@pytest.mark.parametrize(
    ("selection", "compressors", "far", "expected"),
    [
        ((3, 4), None, True, True),
        (slice(0, 4), None, False, True),
        (slice(0, 4), None, True, False),
        (slice(0, 5), None, False, False),
        (..., None, False, False),
        ((slice(0, 8), slice(0, 28)), None, False, True),
    ],
)
def test_few_chunks_are_read_one_by_one_where_requests_cost_nothing(
    selection: Any, compressors: Any, far: bool, expected: bool
) -> None:
    session = Repository.create(FarMemory() if far else in_memory_storage()).writable_session("main")
    make_array(session, compressors)
    region = access.open_region(session, "a", selection)
    assert region.selected is not None
    assert region.codec is not None
    assert few_chunks.are_few(region.hierarchy, region.selected, region.codec, writing=False) is expected


@pytest.mark.parametrize(
    ("selection", "writing", "expected"),
    [
        ((slice(10, 600), slice(500, 600)), False, True),  # a crop: parts of four chunks of 1 MiB
        ((slice(10, 600), slice(500, 600)), True, False),
        ((slice(0, 1024), slice(0, 512)), False, False),  # two whole ones, which two threads read
    ],
)
def test_parts_of_a_few_large_chunks_are_read_one_by_one_and_whole_ones_by_several_threads(
    selection: Any, writing: bool, expected: bool
) -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(1024, 1024), chunks=(512, 512), dtype="f4", compressors=None)
    region = access.open_region(session, "a", selection)
    assert region.selected is not None
    assert region.codec is not None
    assert few_chunks.are_few(region.hierarchy, region.selected, region.codec, writing=writing) is expected


@pytest.mark.parametrize("compressors", COMPRESSORS.values(), ids=COMPRESSORS)
def test_regions_keep_their_values_while_their_threads_read_other_chunks_into_the_same_memory(
    tmp_path: Path, compressors: Any
) -> None:
    repo = Repository.create(local_filesystem_storage(tmp_path))
    writing = repo.writable_session("main")
    numbers = np.arange(512 * 512, dtype="f4").reshape(512, 512)
    shape = {"shape": numbers.shape, "chunks": (128, 128), "dtype": "f4"}  # chunks of 64 KiB
    zarr.create_array(writing.store, name="a", compressors=compressors, **shape)[...] = numbers
    writing.commit("numbers")
    reading = repo.readonly_session("main")
    array = zarr.open_array(reading.store, path="a", mode="r")
    places = [(slice(low, low + 100), slice(high, high + 100)) for low in range(0, 400, 50) for high in (0, 60, 128)]
    with ThreadPoolExecutor(4) as threads:
        regions = list(threads.map(lambda place: reading.read("a", place), places))
        through_zarr = list(threads.map(array.__getitem__, places))
    for place, region, same in zip(places, regions, through_zarr, strict=True):
        np.testing.assert_array_equal(region, numbers[place])
        np.testing.assert_array_equal(same, numbers[place])


def test_a_region_is_seen_through_zarr_and_after_the_array_has_grown(arrays: Session) -> None:
    array = zarr.open_array(arrays.store, path="a")
    arrays.write("a", (slice(2), slice(2)), [[1, 2], [3, 4]])
    assert array[:2, :2].tolist() == [[1, 2], [3, 4]]
    array.resize((25, 30))
    arrays.write("a", 24, 7)
    assert arrays.read("a", (slice(None, None, 4), 0)).tolist() == [1, 120, 240, 360, 480, 0, 7]


def test_the_same_region_is_read_by_forks_and_their_writes_are_merged(arrays: Session) -> None:
    one, two = arrays.fork(), arrays.fork()
    one.write("a", slice(0, 4), 1)
    two.write("a", slice(4, 8), 2)
    assert one.read("a", (slice(3, 5), 0)).tolist() == [1, 120]
    arrays.merge(one, two.changes())
    assert arrays.read("a", (slice(2, 10, 2), 3)).tolist() == [1, 2, 2, 243]


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
def test_asynchronous_twins_do_the_same(far: bool) -> None:
    repo = Repository.create(FarMemory() if far else in_memory_storage())
    session = repo.writable_session("main")
    make_array(session, None)

    async def work() -> Any:
        await session.write_async("a", slice(1, 20), np.arange(30))
        await session.commit_async("data")
        out = np.empty((20, 30), "i4")
        assert await session.read_async("a", out=out) is out
        return out[:, 5]

    assert asyncio.run(work()).tolist() == [0] + [5] * 19


# -- conflicts --------------------------------------------------------------------------------------------------


def by_zarr(session: Session, selection: Any, value: Any) -> None:
    zarr.open_array(session.store, path="a")[selection] = value


def by_region(session: Session, selection: Any, value: Any) -> None:
    session.write("a", selection, value)


def read_by_zarr(session: Session, selection: Any) -> None:
    zarr.open_array(session.store, path="a")[selection]


def read_by_region(session: Session, selection: Any) -> None:
    session.read("a", selection)


def verdict(session: Session) -> Any:
    try:
        session.commit("mine", rebase_with=ConflictDetector())
    except RebaseFailedError as failed:
        return sorted(map(str, failed.conflicts))
    return "committed"


def race(
    compressors: Any, isolation: Any, steps: list[Any], write: Callable[..., None], read: Callable[..., None]
) -> tuple[Any, ...]:
    """Return what a session has read and changed, and what its commit says after somebody else's."""
    repo = Repository.create(in_memory_storage())
    session = repo.writable_session("main")
    make_array(session, compressors)[:14] = np.arange(420).reshape(14, 30)
    session.commit("data")
    mine, theirs = repo.writable_session("main", isolation=isolation), repo.writable_session("main")
    for who, selection, value in steps:
        if who == "read":
            read(mine, selection)
        else:
            write(mine if who == "mine" else theirs, selection, value)
    theirs.commit("theirs", allow_empty=True)
    changed, reads = str(mine.status()), mine.reads
    return reads, changed, verdict(mine) if mine.has_uncommitted_changes else None


@pytest.mark.parametrize("steps", ["one by one", "in blocks", "in runs", "as usual"], indirect=True)
@pytest.mark.usefixtures("steps")
@settings(suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture])
@given(
    compressors=st.sampled_from([None, ZstdCodec()]),
    isolation=st.sampled_from(["snapshot", "serializable"]),
    steps=st.lists(st.tuples(st.sampled_from(["read", "mine", "theirs"]), basic((20, 30)), st.integers(0, 3))),
)
def test_regions_conflict_exactly_as_the_same_selections_of_zarr(
    compressors: Any, isolation: Any, steps: list[Any]
) -> None:
    outcomes = [
        race(compressors, isolation, steps, write, read)
        for write in (by_zarr, by_region)
        for read in (read_by_zarr, read_by_region)
    ]
    assert all(each == outcomes[0] for each in outcomes)


def test_a_region_of_an_array_that_others_replace_is_a_conflict(arrays: Session) -> None:
    arrays.commit("data")
    repo = Repository.open(arrays.context.storage)
    mine, theirs = repo.writable_session("main"), repo.writable_session("main")
    mine.write("a", slice(0, 4), 1)
    zarr.create_array(theirs.store, name="a", shape=3, dtype="i4", overwrite=True)
    theirs.commit("another array")
    assert verdict(mine) != "committed"


@pytest.mark.parametrize("side", [2, 1 << 10])
def test_regions_of_a_grid_of_more_cells_than_can_be_numbered_are_read(side: int) -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(1 << 62, 1 << 61), chunks=(side, side), dtype="i4", fill_value=7)
    far = (1 << 61) - 4 * side
    for selection in ((slice(far, far + 4), slice(0, 2 * side)), (slice(0, 4), slice(far, far + 2 * side))):
        assert session.read("a", selection).sum() == 7 * 4 * 2 * side
        assert session.read_many([("a", selection)])[0].sum() == 7 * 4 * 2 * side
