"""Datasets come back as they went in, whoever computed them, and as xarray itself would have stored them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from arraystore import InvalidInputError, MergeConflictError, ReadOnlyError, Repository, Session
from arraystore.xarray import to_arraystore, to_icechunk
from tests.integrations.datasets import ENCODING, documents, lazy, reread, weather

pytestmark = pytest.mark.filterwarnings("ignore:.*Zarr V3 specification.*")


@pytest.fixture
def session(memory_repo: Repository) -> Session:
    return memory_repo.writable_session("main")


def test_a_dataset_comes_back_whatever_computed_it(local_repo: Repository, scheduler: dict[str, Any]) -> None:
    session = local_repo.writable_session("main")
    to_arraystore(lazy(weather(0, 6)), session, encoding=ENCODING, chunkmanager_store_kwargs=scheduler, split_every=2)
    xr.testing.assert_identical(xr.open_zarr(session.store, consolidated=False).load(), weather(0, 6))
    session.commit("weather")
    xr.testing.assert_identical(reread(local_repo), weather(0, 6))
    array = zarr.open_array(local_repo.readonly_session("main").store, path="temperature", mode="r")
    assert (array.dtype, array.chunks, array.attrs["scale_factor"]) == (np.dtype("i2"), (2, 3, 4), 0.5)


@pytest.mark.parametrize("of_dask", [False, True])
@pytest.mark.parametrize("group", [None, "some/group"])
def test_what_is_stored_is_what_xarray_stores_itself(session: Session, of_dask: bool, group: str | None) -> None:
    dataset = lazy(weather(0, 6)) if of_dask else weather(0, 6)
    to_arraystore(dataset, session, group=group, encoding=ENCODING)
    expected = zarr.storage.MemoryStore()
    dataset.to_zarr(expected, group=group, encoding=ENCODING, consolidated=False)
    found = zarr.open_group(session.store, mode="r", use_consolidated=False)
    assert documents(found) == documents(zarr.open_group(expected, mode="r", use_consolidated=False))


@pytest.mark.parametrize("name", [None, "rain", "time"])
def test_a_data_array_comes_back_with_its_name(session: Session, name: str | None) -> None:
    array = lazy(weather(0, 4))["rain"].rename(name).drop_vars("station")
    to_arraystore(array, session)
    found = xr.open_dataarray(session.store, engine="zarr", consolidated=False).load()
    xr.testing.assert_identical(found, array.load())


def test_variables_of_dask_and_of_memory_are_written_together(session: Session) -> None:
    dataset = weather(0, 4)
    dataset["rain"] = dataset["rain"].chunk({"time": 2})
    dataset = dataset.assign_coords(height=((), 2.0), lazy_height=xr.Variable((), 3.0).chunk())
    to_arraystore(dataset, session)
    xr.testing.assert_identical(xr.open_zarr(session.store, consolidated=False).load(), dataset.load())


def test_times_of_other_calendars_come_back(session: Session) -> None:
    times = xr.date_range("2000-02-28", periods=4, calendar="noleap", use_cftime=True)
    dataset = xr.Dataset({"v": ("time", np.arange(4.0))}, coords={"time": times}).chunk({"time": 2})
    to_arraystore(dataset, session)
    xr.testing.assert_identical(xr.open_zarr(session.store, consolidated=False).load(), dataset.load())


def test_w_replaces_and_nothing_else_does(session: Session) -> None:
    to_arraystore(lazy(weather(0, 4)), session)
    with pytest.raises(FileExistsError):
        to_arraystore(lazy(weather(4, 4)), session)
    to_arraystore(lazy(weather(4, 2))[["rain"]], session, mode="w")
    xr.testing.assert_identical(xr.open_zarr(session.store, consolidated=False).load(), weather(4, 2)[["rain"]])


def test_variables_are_added_and_overwritten_with_a(session: Session) -> None:
    to_arraystore(weather(0, 4)[["rain", "orography"]], session, encoding={"rain": {"chunks": (2, 6, 8)}})
    to_arraystore(lazy(weather(0, 4)[["rain", "temperature"]] + 1), session, mode="a")
    found = xr.open_zarr(session.store, consolidated=False).load()
    xr.testing.assert_equal(found[["rain", "temperature"]], weather(0, 4)[["rain", "temperature"]] + 1)
    xr.testing.assert_equal(found["orography"], weather(0, 4)["orography"])


@pytest.mark.parametrize("region", ["auto", {"time": slice(2, 4)}, {"time": "auto", "y": slice(0, 6)}])
@pytest.mark.parametrize("of_dask", [False, True])
def test_a_region_is_filled_and_the_rest_left_alone(session: Session, region: Any, of_dask: bool) -> None:
    to_arraystore(weather(0, 6)[["rain"]].drop_vars("station"), session, encoding={"rain": {"chunks": (2, 6, 8)}})
    part = (weather(2, 2)[["rain"]] + 100).drop_vars(["x", "station"] if region == "auto" else ["x", "y", "station"])
    if isinstance(region, dict) and "y" in region:
        part = part.assign_coords(time=weather(2, 2)["time"])
    elif region != "auto":
        part = part.drop_vars("time")
    to_arraystore(part.chunk({"time": 2}) if of_dask else part, session, region=region)
    expected = weather(0, 6)["rain"].values.copy()
    expected[2:4] += 100
    np.testing.assert_array_equal(zarr.open_array(session.store, path="rain", mode="r")[:], expected)


def test_dask_chunks_that_share_a_chunk_are_refused_even_where_xarray_does_not_look(session: Session) -> None:
    dataset = weather(0, 6).chunk({"time": 3})
    with pytest.raises(ValueError, match="would overlap multiple"):
        to_arraystore(dataset, session, encoding=ENCODING)
    session.discard_changes()
    with pytest.raises(InvalidInputError, match="share the stored chunk"):
        to_arraystore(dataset, session, encoding=ENCODING, safe_chunks=False)


def test_dask_chunks_are_aligned_if_that_is_asked_for(session: Session) -> None:
    to_arraystore(weather(0, 6).chunk({"time": 3}), session, encoding=ENCODING, align_chunks=True)
    xr.testing.assert_identical(xr.open_zarr(session.store, consolidated=False).load(), weather(0, 6))


@pytest.mark.parametrize("of_dask", [False, True])
def test_forks_take_regions_and_conflict_where_they_wrote_the_same(session: Session, of_dask: bool) -> None:
    to_arraystore(weather(0, 4)[["rain"]].drop_vars(["y", "x", "station"]), session)
    forks = [session.fork(), session.fork()]
    whole = (weather(0, 4)[["rain"]] + 7).drop_vars(["y", "x", "station", "time"])
    for fork in forks:
        to_arraystore(whole.chunk() if of_dask else whole, fork, region={"time": slice(0, 4)})
    session.merge(forks[0])
    found = xr.open_zarr(session.store, consolidated=False)["rain"].values
    np.testing.assert_array_equal(found, weather(0, 4)["rain"].values + 7)
    with pytest.raises(MergeConflictError):
        session.merge(forks[1])


def test_nothing_is_written_to_a_session_that_only_reads(memory_repo: Repository) -> None:
    with pytest.raises(ReadOnlyError):
        to_arraystore(weather(0, 2), memory_repo.readonly_session("main"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "r"}, "mode='r' must be"),
        ({"mode": "w", "append_dim": "time"}, "append_dim does not go with mode='w'"),
        ({"mode": "w-", "region": "auto"}, "region does not go with mode='w-'"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(session: Session, options: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        to_arraystore(weather(0, 2), session, **options)
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize("obj", [np.zeros(3), weather(0, 2)["rain"].variable, weather(0, 2).rename(rain=3)])
def test_what_is_no_dataset_with_names_is_refused(session: Session, obj: Any) -> None:
    with pytest.raises(InvalidInputError):
        to_arraystore(obj, session)


def test_a_store_in_place_of_a_session_is_refused(session: Session) -> None:
    with pytest.raises(InvalidInputError, match="not ArrayStore"):
        to_arraystore(weather(0, 2), session.store)  # type: ignore[arg-type]


def test_the_name_that_users_know_is_the_same_function() -> None:
    assert to_icechunk is to_arraystore


def test_a_group_of_the_older_format_is_written_to_as_it_is(session: Session) -> None:
    weather(0, 4)[["rain"]].drop_vars("station").to_zarr(session.store, zarr_format=2, consolidated=False)
    part = (weather(0, 4)[["rain"]] + 1).drop_vars("station").chunk({"time": 4})
    to_arraystore(part, session, mode="a")
    xr.testing.assert_equal(xr.open_zarr(session.store, consolidated=False, zarr_format=2).load(), part.load())
