"""Regions that are read together are those that are read alone, in the requests of one."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from zarr.codecs import ZstdCodec

from arraystore import (
    ChunkDamagedError,
    CountingStorage,
    InvalidInputError,
    NodeNotFoundError,
    ReadOnlyError,
    Repository,
    RepositoryConfig,
    Session,
    in_memory_storage,
)
from arraystore._session.pipeline import blocks
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.lookup import Located, Place
from arraystore._session.regions import access, many_arrays
from arraystore.errors import SelectionError
from tests.packs import damage_pack
from tests.session.conftest import FarMemory
from tests.session.test_codec_pipeline import TINY, assert_same, layouts, outcome, values, zarr_numcodecs
from tests.session.test_regions import basic, refuse

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
]


@settings(suppress_health_check=[*settings().suppress_health_check, HealthCheck.too_slow])
@given(
    several=st.lists(layouts(), min_size=1, max_size=4),
    far=st.booleans(),
    tiny=st.booleans(),
    serializable=st.booleans(),
    singly=st.booleans(),
    data=st.data(),
)
def test_regions_of_any_arrays_are_those_that_are_read_alone(
    several: list[dict[str, Any]], far: bool, tiny: bool, serializable: bool, singly: bool, data: st.DataObject
) -> None:
    storage = FarMemory() if far else in_memory_storage()
    repo = Repository.create(storage, config=TINY if tiny else RepositoryConfig())
    session, names = repo.writable_session("main"), []
    for number, layout in enumerate(several):
        array = outcome(lambda s=session, n=number, more=layout: zarr.create_array(s.store, name=f"a{n}", **more))
        if isinstance(array, zarr.Array):
            names.append(f"a{number}")
            for _ in range(data.draw(st.integers(0, 2))):
                part = data.draw(basic(layout["shape"]))
                session.write(names[-1], part, data.draw(values(layout["dtype"], ())))
                if data.draw(st.integers(0, 3)) == 0:
                    session.commit("step", allow_empty=True)
                    session = repo.writable_session("main")
    assume(names)
    isolation: Any = "serializable" if serializable else "snapshot"
    if data.draw(st.booleans()):
        session.commit("last", allow_empty=True)
        session, alone = (repo.writable_session("main", isolation=isolation) for _ in range(2))
    else:
        alone = session
    paths = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=5))
    requests = [(path, data.draw(basic(several[int(path[1:])]["shape"]))) for path in paths]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many_arrays, "are_copied_singly", lambda *_: singly)
        together = session.read_many(requests)
    for found, (path, selection) in zip(together, requests, strict=True):
        assert_same(found, alone.read(path, selection))
    assert session.reads == alone.reads


def daily(storage: Any, arrays: int, steps: int, compressors: Any = None) -> Repository:
    """Return a repository of time steps, each of all arrays, and committed."""
    repo = Repository.create(storage, config=RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repo.writable_session("main")
    for number in range(arrays):
        zarr.create_array(
            session.store, name=f"v{number}", shape=(0, 256), chunks=(1, 256), dtype="f4", compressors=compressors,
            dimension_names=("time", "x"),
        )  # fmt: skip
    session.commit("arrays")
    for step in range(steps):
        session = repo.writable_session("main")
        session.append({f"v{n}": np.full((1, 256), 1000 * n + step + 1) for n in range(arrays)}, "time")
        session.commit("a step")
    return repo


@pytest.mark.parametrize("compressors", [None, ZstdCodec()], ids=["raw", "zstd"])
def test_a_step_of_fifty_arrays_is_read_in_one_request(compressors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = CountingStorage(FarMemory())
    daily(storage, 50, 3, compressors)
    session = Repository.open(storage).readonly_session("main")
    monkeypatch.setattr(access, "read_generally", refuse)
    session.read_many([(f"v{n}", 0) for n in range(50)])  # manifests
    storage.reset()
    found = session.read_many([(f"v{n}", -1) for n in range(50)])
    assert [row[0] for row in found] == [1000 * n + 3 for n in range(50)]
    assert storage.counts.requests == {"get_ranges": 1}


def test_manifests_of_many_arrays_are_read_once_for_each_record() -> None:
    storage = CountingStorage(FarMemory())
    daily(storage, 50, 4)
    session = Repository.open(storage).readonly_session("main")
    storage.reset()
    session.read_many([(f"v{n}", ...) for n in range(50)])
    assert sum(storage.counts.requests.values()) <= 4 + 4


def test_one_array_that_only_zarr_can_read_is_read_by_zarr_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    repo = daily(in_memory_storage(), 2, 1)
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="z", shape=4, chunks=2, dtype="i4", compressors=zarr_numcodecs.BZ2())[...] = 7
    asked: list[str] = []
    by_zarr = access.read_generally

    def ask(store: Any, path: str, *rest: Any) -> Any:
        asked.append(path)
        return by_zarr(store, path, *rest)

    monkeypatch.setattr(access, "read_generally", ask)
    found = session.read_many([("v0", (0, 0)), ("z", [1, 3]), ("z", ...), ("v1", (0, slice(2)))])
    assert [np.asarray(each).tolist() for each in found] == [1, [7, 7], [7] * 4, [1001, 1001]]
    assert asked == ["z", "z"]


def test_a_damaged_chunk_among_many_arrays_is_named() -> None:
    storage = in_memory_storage()
    daily(storage, 3, 1)
    damage_pack(storage)
    session = Repository.open(storage).readonly_session("main")
    with pytest.raises(ChunkDamagedError, match="'/v1'"):
        session.read_many([(f"v{n}", ...) for n in range(3)])


def test_requests_that_are_not_valid_are_named(session: Session) -> None:
    zarr.create_array(session.store, name="a", shape=4, dtype="i4")
    with pytest.raises(NodeNotFoundError, match="there is no array 'b'"):
        session.read_many([("a", ...), ("b", ...)])
    with pytest.raises(SelectionError, match="of array 'a'"):
        session.read_many([("a", 4)])
    with pytest.raises(InvalidInputError, match="'a' must be a pair"):
        session.read_many("a")  # type: ignore[arg-type]
    assert session.read_many([]) == []


def test_the_asynchronous_twin_reads_the_same() -> None:
    session = daily(FarMemory(), 3, 2).readonly_session("main")
    found = asyncio.run(session.read_many_async([(f"v{n}", (..., 0)) for n in range(3)]))
    assert [each.tolist() for each in found] == [[1, 2], [1001, 1002], [2001, 2002]]
    with pytest.raises(ReadOnlyError):
        session.write("v0", 0, 0)


def test_places_are_joined_by_what_they_are() -> None:
    none = np.zeros(1, dtype=np.int64)
    tiny = memoryview(b"tiny")
    parts = [
        Located(np.array([at]), none, none, places)
        for at, places in [
            (1, [Place("p", 1, 5), Place("q", 2, 6)]),
            (0, [Place("q", 2, 9)]),
            (0, [Place("q", 2, own=3)]),
            (0, [Place(data=tiny)]),
            (0, [Place(data=tiny)]),
            (-1, []),
        ]
    ]
    all_of_them = many_arrays.joined(parts)
    assert all_of_them.place.tolist() == [1, 1, 2, 3, 4, -1]
    assert [place.extent for place in all_of_them.places] == [5, 9, 0, 0, 0]


def test_a_chunk_that_many_regions_want_is_read_and_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = in_memory_storage()
    session = Repository.create(storage).writable_session("main")
    zarr.create_array(
        session.store, name="a", shape=(64, 256, 256), chunks=(16, 256, 256), dtype="i4", compressors=None
    )
    data = np.arange(64 * 256 * 256, dtype="i4").reshape(64, 256, 256)
    session.write("a", ..., data)
    session.commit("data")
    session = Repository.open(storage).readonly_session("main")
    selections = [(slice(at, at + 16), slice(at, at + 8), slice(0, 8)) for at in range(4, 32, 4)]
    verified: list[int] = []
    sound = blocks.all_sound

    def count(seed: int, start: int, data: Any, offsets: list[int], lengths: list[int]) -> bool:
        verified.extend(lengths)
        return sound(seed, start, data, offsets, lengths)

    monkeypatch.setattr(blocks, "all_sound", count)
    for found, selection in zip(session.read_many([("a", each) for each in selections]), selections, strict=True):
        np.testing.assert_array_equal(found, data[selection])
    assert verified == [16 * 256 * 256 * 4] * 3


@pytest.mark.parametrize("compressors", [None, ZstdCodec()], ids=["raw", "zstd"])
def test_a_chunk_that_many_regions_want_is_read_and_decoded_once(
    compressors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = CountingStorage(in_memory_storage())
    repo = Repository.create(storage, config=RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repo.writable_session("main")
    made = zarr.create_array(session.store, name="a", shape=(8, 8), chunks=(4, 4), dtype="i8", compressors=compressors)
    data = np.arange(64).reshape(8, 8)
    made[...] = data
    session.commit("data")
    reading = repo.readonly_session("main")
    reading.read("a", (0, 0))
    decoded: list[int] = []
    decode = ChunkCodec.decode

    def counting(codec: ChunkCodec, block: blocks.Block) -> Any:
        decoded.append(len(block.at))
        return decode(codec, block)

    monkeypatch.setattr(ChunkCodec, "decode", counting)
    storage.reset()
    crops = [(slice(i, i + 3), slice(j, j + 3)) for i in range(6) for j in range(6)]
    for found, crop in zip(reading.read_many([("a", crop) for crop in crops]), crops, strict=True):
        np.testing.assert_array_equal(found, data[crop])
    assert sum(decoded) == 4
    assert sum(storage.counts.requests.values()) == 1
