"""xarray and dask on top of a session's store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask
import dask.array
import numpy as np
import pytest
import xarray as xr
import zarr

from arraystore import ArrayStore, ForkSession, Repository, Session

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore:.*Zarr V3 specification.*"),
    pytest.mark.filterwarnings("ignore:.*[Cc]onsolidated metadata.*"),
]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with dask.config.set(scheduler="threads", num_workers=4):
        yield


def weather(start: int, count: int, seed: int = 0) -> xr.Dataset:
    """A small dataset with coordinates, attributes, texts and gaps."""
    rng = np.random.default_rng(seed + start)
    temperature = rng.normal(280, 10, (count, 6, 8)).astype("f4")
    temperature[0, 0, 0] = np.nan
    return xr.Dataset(
        {
            "temperature": (("time", "y", "x"), temperature, {"units": "K"}),
            "rain": (("time", "y", "x"), rng.integers(0, 50, (count, 6, 8)).astype("i2")),
            "orography": (("y", "x"), rng.normal(0, 100, (6, 8))),
        },
        coords={
            "time": np.datetime64("2024-01-01", "ns") + np.arange(start, start + count) * np.timedelta64(1, "D"),
            "y": np.linspace(50, 60, 6),
            "x": np.linspace(0, 14, 8),
            "station": ("x", [f"station {i} ü" for i in range(8)]),
        },
        attrs={"title": "weather", "levels": [1, 2, 3]},
    )


ENCODING = {name: {"chunks": (2, 3, 4)} for name in ("temperature", "rain")}
FORMATS = pytest.mark.parametrize("zarr_format", [3, 2])
CONSOLIDATED = pytest.mark.parametrize("consolidated", [False, True])


def reread(repo: Repository, consolidated: bool, **options: Any) -> xr.Dataset:
    store = Repository.open(repo.storage).readonly_session("main").store
    return xr.open_zarr(store, consolidated=consolidated, chunks=None, **options).load()


@FORMATS
@CONSOLIDATED
def test_a_dataset_comes_back_as_it_was(
    memory_repo: Repository, pipeline: str, zarr_format: Any, consolidated: bool
) -> None:
    session, dataset = memory_repo.writable_session("main"), weather(0, 5)
    dataset.to_zarr(session.store, encoding=ENCODING, zarr_format=zarr_format, consolidated=consolidated)
    xr.testing.assert_identical(xr.open_zarr(session.store, consolidated=consolidated).load(), dataset)
    session.commit("weather")
    found = reread(memory_repo, consolidated)
    xr.testing.assert_identical(found, dataset)
    assert found.temperature.encoding["chunks"] == (2, 3, 4)


@FORMATS
@CONSOLIDATED
def test_appended_days_follow_each_other(memory_repo: Repository, zarr_format: Any, consolidated: bool) -> None:
    session = memory_repo.writable_session("main")
    weather(0, 4).to_zarr(session.store, encoding=ENCODING, zarr_format=zarr_format, consolidated=consolidated)
    session.commit("first")
    parts = [weather(0, 4)]
    for start in (4, 8):
        session = memory_repo.writable_session("main")
        parts.append(weather(start, 4).drop_vars("orography"))
        parts[-1].to_zarr(session.store, append_dim="time", consolidated=consolidated)
        session.commit("more")
    expected = xr.concat(parts, "time", data_vars="minimal", coords="minimal", compat="override", join="override")
    xr.testing.assert_equal(reread(memory_repo, consolidated), expected)


@FORMATS
def test_regions_are_written_in_place(memory_repo: Repository, zarr_format: Any) -> None:
    whole = weather(0, 8)
    session = memory_repo.writable_session("main")
    options: dict[str, Any] = {"consolidated": False, "zarr_format": zarr_format}
    whole.chunk(time=2).to_zarr(session.store, encoding=ENCODING, compute=False, **options)
    session.commit("metadata")
    for start in range(0, 8, 2):
        session = memory_repo.writable_session("main")
        part = whole.isel(time=slice(start, start + 2)).drop_vars(["orography", "x", "y", "station"])
        part.to_zarr(session.store, region={"time": slice(start, start + 2)}, consolidated=False)
        session.commit(f"days from {start}")
    session = memory_repo.writable_session("main")
    whole[["orography"]].drop_vars(["x", "y"]).to_zarr(session.store, region="auto", consolidated=False)
    session.commit("ground")
    xr.testing.assert_identical(reread(memory_repo, False), whole)


@FORMATS
def test_overwriting_leaves_nothing_of_the_old(memory_repo: Repository, zarr_format: Any) -> None:
    for number, mode in enumerate(["w-", "w", "w"]):
        session = memory_repo.writable_session("main")
        dataset = weather(10 * number, 5 - number).rename(rain=f"rain{number}")
        dataset.to_zarr(session.store, mode=mode, zarr_format=zarr_format, consolidated=True)
        session.commit(mode)
        xr.testing.assert_identical(reread(memory_repo, True), dataset)


def test_groups_hold_datasets_of_their_own(memory_repo: Repository) -> None:
    session = memory_repo.writable_session("main")
    tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs={"a": 1}), "/x": weather(0, 2), "/z/deep": weather(5, 3)})
    tree.to_zarr(session.store, consolidated=False, zarr_format=3)
    session.commit("tree")
    store = memory_repo.readonly_session("main").store
    with xr.open_datatree(store, engine="zarr", consolidated=False) as found:
        xr.testing.assert_identical(found.load(), tree)


@FORMATS
def test_dask_writes_through_a_store_shared_by_threads(
    memory_repo: Repository, pipeline: str, zarr_format: Any
) -> None:
    session, dataset = memory_repo.writable_session("main"), weather(0, 40)
    chunked = dataset.chunk(time=2, y=3, x=4)
    chunked.to_zarr(session.store, zarr_format=zarr_format, consolidated=False)
    session.commit("dask")
    xr.testing.assert_identical(reread(memory_repo, False), dataset)
    lazy = xr.open_zarr(memory_repo.readonly_session("main").store, consolidated=False)
    assert lazy.temperature.chunksizes["time"] == (2,) * 20
    np.testing.assert_allclose(lazy.temperature.mean("time"), dataset.temperature.mean("time"), rtol=1e-5)


def _write_block(block: Any, fork: ForkSession, block_info: Any = None) -> Any:
    if block_info:
        (rows, columns) = block_info[0]["array-location"]
        zarr.open_array(fork.store, path="a", mode="r+")[slice(*rows), slice(*columns)] = block
        payload = np.empty((1, 1), dtype=object)
        payload[0, 0] = fork.changes()
        return payload
    return np.empty((1, 1), dtype=object)


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_every_dask_block_writes_through_a_fork_of_its_own(local_repo: Repository, scheduler: str) -> None:
    session = local_repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(60, 40), chunks=(10, 10), dtype="f8")
    values = np.random.default_rng(0).normal(size=(60, 40))
    source = dask.array.from_array(values, chunks=(20, 20))
    writes = []
    for row, column in np.ndindex(*source.numblocks):
        place = ((20 * row, 20 * row + 20), (20 * column, 20 * column + 20))
        info = {0: {"array-location": place}}
        writes.append(dask.delayed(_write_block)(source.blocks[row, column], session.fork(), block_info=info))
    with dask.config.set(scheduler=scheduler, num_workers=2):
        payloads = dask.compute(*writes)
    session.merge(*(payload[0, 0] for payload in payloads))
    session.commit("blocks")
    np.testing.assert_array_equal(zarr.open_array(session.store, path="a", mode="r")[:], values)


@pytest.mark.thorough
def test_dask_processes_read_a_store_that_is_pickled_to_them(local_repo: Repository) -> None:
    session = local_repo.writable_session("main")
    values = np.arange(400).reshape(20, 20)
    zarr.create_array(session.store, name="a", shape=(20, 20), chunks=(5, 5), dtype="i8")[:] = values
    with dask.config.set(scheduler="processes", num_workers=1):
        uncommitted = dask.array.from_zarr(zarr.open_array(session.store, path="a", mode="r")).sum().compute()
        session.commit("numbers")
        committed = dask.array.from_zarr(zarr.open_array(session.store, path="a", mode="r")).sum().compute()
    assert uncommitted == committed == values.sum()


def test_a_dask_array_is_stored_directly(session: Session) -> None:
    values = np.arange(100.0).reshape(10, 10)
    target = zarr.create_array(session.store, name="a", shape=(10, 10), chunks=(3, 3), dtype="f8")
    dask.array.from_array(values, chunks=(3, 3)).store(target, lock=False)
    session.commit("stored")
    assert isinstance(session.store, ArrayStore)
    np.testing.assert_array_equal(zarr.open_array(session.store, path="a", mode="r")[:], values)
