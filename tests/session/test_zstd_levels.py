"""Levels of zstd for arrays that leave them open: the lowest one of which the frames are as short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
import zstandard
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype

from arraystore import Repository, Session, in_memory_storage
from arraystore._format.types import Bytes
from arraystore._session.pipeline.zstd_levels import SampledLevel

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")

KiB, MiB = 1 << 10, 1 << 20


def seeded() -> np.random.Generator:
    """Return the same numbers in each test, in whatever order tests run."""
    return np.random.default_rng(7)


def noisy(count: int, size: int) -> Any:
    """Return chunks of a smooth field with noise, of which level 3 makes nothing that level 1 does not."""
    y, x = np.ogrid[: count * size // 2048, :512]
    field = 280 + 20 * np.cos(y / 85) * np.sin(x / 85) + seeded().normal(0, 0.5, (len(y), 512))
    return field.astype("f4").reshape(count, -1)


def series(count: int, size: int) -> Any:
    """Return chunks of series of noise, of which level 1 makes frames that are a fiftieth longer."""
    t, y, x = np.ogrid[: count * size // 4096, :32, :32]
    noise = seeded().integers(0, 16, (len(t), 32, 32)) / 16
    field = 280 + 10 * np.sin(t / 58) + 20 * np.cos(y / 85) * np.sin(x / 85) + noise
    return field.astype("f4").reshape(count, -1)


def rounded(count: int, size: int) -> Any:
    """Return chunks of 16 KiB of rounded values, which each lower level makes a tenth longer."""
    assert size == 16 * KiB
    return np.round(280 + seeded().normal(0, 0.5, (count, size // 4)), 1).astype("f4")


def repeated(count: int, size: int) -> Any:
    """Return chunks of noise that repeats itself beyond the window of lower levels."""
    rng = seeded()
    return np.stack([np.tile(rng.integers(0, 256, size * 3 // 8, dtype="u1"), 3)[:size] for _ in range(count)])


def frames(chunks: Any, level: int, checksum: bool = False) -> list[bytes]:
    """Return chunks compressed by the library that compresses those of their size."""
    if chunks[0].nbytes >= 256 * KiB:
        codec = numcodecs.Zstd(level, checksum)
        return [bytes(codec.encode(np.ascontiguousarray(chunk))) for chunk in chunks]
    compressor = zstandard.ZstdCompressor(level, write_checksum=checksum)
    return [compressor.compress(np.ascontiguousarray(chunk).data) for chunk in chunks]


def assert_cheapest(chunks: Any, level: int) -> None:
    """Show that a level is the lowest one whose frames are not a hundredth longer than those of level 3."""
    lengths = {level: sum(map(len, frames(chunks, level))) for level in (1, 2, 3)}
    assert level == next(level for level in (1, 2, 3) if lengths[level] <= 1.01 * lengths[3])


def at_once(session: Session, path: str, values: Any) -> None:
    session.write(path, ..., values)


def through_zarr(session: Session, path: str, values: Any) -> None:
    zarr.open_array(session.store, path=path)[...] = values


def by_chunk(session: Session, path: str, values: Any) -> None:
    array = zarr.open_array(session.store, path=path)
    for i in range(len(values)):
        array[i] = values[i]


WAYS = pytest.mark.parametrize("write", [at_once, through_zarr, by_chunk])


def new_session() -> Session:
    return Repository.create(in_memory_storage()).writable_session("main")


def make(session: Session, path: str, values: Any, **options: Any) -> None:
    zarr.create_array(
        session.store, name=path, shape=values.shape, dtype=values.dtype, fill_value=0,
        **{"chunks": (1, values.shape[1]), "compressors": ZstdCodec(), **options},
    )  # fmt: skip


def stored(session: Session, path: str, count: int, key: str = "c/{}/0") -> list[bytes]:
    async def read() -> list[bytes]:
        found = [await session.store.get(f"{path}/{key.format(i)}", default_buffer_prototype()) for i in range(count)]
        return [buffer.to_bytes() for buffer in found if buffer is not None]

    return asyncio.run(read())


def written(values: Any, write: Callable[[Session, str, Any], None] = at_once, **options: Any) -> list[bytes]:
    """Return the stored chunks of a new array with one chunk a row, which are read and compared."""
    session = new_session()
    make(session, "a", values, **options)
    write(session, "a", values)
    np.testing.assert_array_equal(session.read("a"), values)
    return stored(session, "a", len(values))


@WAYS
@pytest.mark.parametrize("size", [4 * KiB, 64 * KiB, 1 * MiB])
def test_noisy_floats_are_compressed_at_level_1(write: Callable[..., None], size: int) -> None:
    values = noisy(16, size)
    assert_cheapest(values, 1)
    first = 7 if write is by_chunk else 0
    assert written(values, write)[first:] == frames(values[first:], 1)


def test_level_2_is_taken_where_frames_of_level_1_are_longer() -> None:
    values = series(8, 2 * MiB)
    assert_cheapest(values, 2)
    assert written(values) == frames(values, 2)


@WAYS
def test_data_that_lower_levels_make_longer_stay_at_level_3(write: Callable[..., None]) -> None:
    values = rounded(16, 16 * KiB)
    assert_cheapest(values, 3)
    assert written(values, write) == frames(values, 3)


def test_repetitions_within_the_window_of_level_3_are_not_lost() -> None:
    values = repeated(4, 4 * MiB)
    assert_cheapest(values, 3)
    assert written(values) == frames(values, 3)


@pytest.mark.parametrize("level", [-3, 1, 2, 3, 9])
def test_a_level_that_metadata_state_is_kept(level: int) -> None:
    values = noisy(16, 64 * KiB)
    assert written(values, compressors=ZstdCodec(level=level)) == frames(values, level)


@pytest.mark.parametrize("count", [1, 7])
def test_small_writes_take_no_sample(count: int) -> None:
    values = noisy(count, 64 * KiB)
    assert written(values) == frames(values, 3)


def test_a_chunk_far_larger_than_its_sample_takes_one() -> None:
    values = repeated(1, 16 * MiB)
    values[0, : 8 * MiB] = 0
    values[0, 6 * MiB : 8 * MiB] = noisy(1, 2 * MiB).view("u1")
    values[0, 8 * MiB : 10 * MiB] = noisy(1, 2 * MiB).view("u1")
    assert written(values) == frames(values, 1)


def test_chunks_below_4_kib_stay_at_level_3() -> None:
    values = noisy(64, 4 * KiB)[:, :1000].copy()
    assert written(values) == frames(values, 3)


def test_each_array_has_a_level_of_its_own() -> None:
    session, values = new_session(), {"a": noisy(16, 16 * KiB), "b": rounded(16, 16 * KiB)}
    for path, chunks in values.items():
        make(session, path, chunks)
    for path, chunks in values.items():
        at_once(session, path, chunks)
    assert stored(session, "a", 16) == frames(values["a"], 1)
    assert stored(session, "b", 16) == frames(values["b"], 3)


def test_sessions_of_one_process_share_what_samples_told() -> None:
    repo, values = Repository.create(in_memory_storage()), noisy(16, 64 * KiB)
    session = repo.writable_session("main")
    make(session, "a", values)
    at_once(session, "a", values)
    session.commit("first")
    session = repo.writable_session("main")
    session.write("a", np.s_[:1], values[1:2])
    assert stored(session, "a", 1) == frames(values[1:2], 1)


def test_frames_keep_their_checksums() -> None:
    values = noisy(16, 64 * KiB)
    assert written(values, compressors=ZstdCodec(checksum=True)) == frames(values, 1, checksum=True)


def test_a_codec_behind_zstd_and_one_of_zarr_format_2_are_served_too() -> None:
    values = noisy(16, 64 * KiB)
    checked = written(values, compressors=[ZstdCodec(), Crc32cCodec()])
    assert [frame[:-4] for frame in checked] == frames(values, 1)
    session = new_session()
    make(session, "a", values, zarr_format=2, compressors=numcodecs.Zstd())
    at_once(session, "a", values)
    assert stored(session, "a", 16, "{}.0") == frames(values, 1)


@pytest.mark.parametrize("dtype", ["?", "i1", ">i2", "u8", "f2", ">f8", "c16", "M8[s]", "m8[ns]"])
@pytest.mark.parametrize("options", [{}, {"filters": [TransposeCodec(order=(1, 0))]}], ids=["C", "transposed"])
def test_values_of_any_type_and_order_are_read_as_they_were_written(dtype: str, options: dict[str, Any]) -> None:
    numbers = seeded().integers(0, 2 if dtype == "?" else 100, (256, 64)) + np.arange(64) % 2
    values = numbers.astype(dtype)
    session = new_session()
    make(session, "a", values, chunks=(128, 32), **options)
    for write in (at_once, through_zarr):
        write(session, "a", values)
        assert np.array_equal(session.read("a"), values)


def test_chunks_of_shards_are_compressed_at_the_level_of_their_array() -> None:
    values = noisy(16, 64 * KiB)
    sharding = ShardingCodec(chunk_shape=(1, values.shape[1]), codecs=[BytesCodec(), ZstdCodec()])
    session = new_session()
    make(session, "a", values, chunks=values.shape, serializer=sharding, compressors=None)
    at_once(session, "a", values)
    np.testing.assert_array_equal(session.read("a"), values)
    (shard,) = stored(session, "a", 1)
    assert all(frame in shard for frame in frames(values, 1))


# -- samples ------------------------------------------------------------------------------------------------------


class Sizes:
    """Lengths of frames at levels, and how many bytes were compressed for them."""

    def __init__(self, lengths: dict[int, int]) -> None:
        self.lengths = lengths
        self.compressed = 0

    def __call__(self, level: int, data: Bytes) -> int:
        self.compressed += data.size
        return self.lengths[level]


def test_one_byte_of_64_is_sampled_where_a_lower_level_is_taken_and_fewer_where_none_is() -> None:
    chunk = np.zeros((1, 8 * KiB), np.uint8)
    lower, stays = Sizes({1: 100, 2: 100, 3: 100}), Sizes({1: 102, 2: 102, 3: 100})
    for sizes in (lower, stays):
        level = SampledLevel()
        for _ in range(7 + 64 * 31):
            level.level(chunk, chunk.size, sizes)
    assert lower.compressed == 31 * 2 * chunk.size
    assert stays.compressed == 5 * 3 * chunk.size


def test_of_many_chunks_in_one_call_one_of_256_is_sampled() -> None:
    level, sizes, slab = SampledLevel(), Sizes({1: 100, 2: 100, 3: 100}), np.zeros((2048, 8 * KiB), np.uint8)
    level.level(slab, slab.size, sizes)
    assert sizes.compressed == 2 * slab.size // 256


def test_the_next_sample_notices_that_data_have_changed() -> None:
    level, chunk = SampledLevel(), np.zeros((1, 8 * KiB), np.uint8)
    noise, matches = Sizes({1: 101, 2: 101, 3: 100}), Sizes({1: 102, 2: 102, 3: 100})
    found = [level.level(chunk, chunk.size, matches if 30 <= i < 100 else noise) for i in range(200)]
    assert found == [3] * 7 + [1] * 64 + [3] * 64 + [1] * 65
