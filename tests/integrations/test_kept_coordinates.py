"""Appends keep the labels of what is there: coordinates that differ are refused, before anything changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from arraystore import ConflictDetector, InvalidInputError, RebaseFailedError, Repository
from arraystore.compat import icechunk
from arraystore.compat.icechunk.xarray import to_icechunk
from arraystore.xarray import to_arraystore
from tests.integrations.datasets import ENCODING, lazy, reread, weather

pytestmark = pytest.mark.filterwarnings("ignore:.*Zarr V3 specification.*")


def first() -> xr.Dataset:
    """Return the days that are there, with coordinates of all kinds."""
    return labelled(weather(0, 4))


def labelled(dataset: xr.Dataset) -> xr.Dataset:
    plane = np.add.outer(np.arange(6.0), np.arange(8.0))
    plane[0, 0] = np.nan
    return dataset.assign_coords(
        height=2.0,
        reference=np.datetime64("2020-01-01", "ns"),
        longitude=(("y", "x"), plane),
        zone=("y", np.array([b"a", b"b", b"c", b"d", b"e", b"f"])),
        level=("y", np.arange(6, dtype="i2")),
    ).assign(y_bnds=(("y", "edge"), np.stack([dataset.y - 1, dataset.y + 1], axis=1)))


def bounded(dataset: xr.Dataset) -> xr.Dataset:
    dataset["y"].attrs["bounds"] = "y_bnds"
    return dataset


@pytest.fixture
def repo(memory_repo: Repository) -> Repository:
    session = memory_repo.writable_session("main")
    encoding = {
        **ENCODING,
        "y": {"dtype": "f4"},
        "longitude": {"dtype": "i2", "scale_factor": 0.1, "_FillValue": -1},
        "reference": {"units": "hours since 2019-01-01", "dtype": "i8"},
    }
    to_arraystore(bounded(first()), session, encoding=encoding)
    session.commit("the first days")
    return memory_repo


def swapped(dataset: xr.Dataset) -> xr.Dataset:
    return dataset.isel(y=slice(None, None, -1))


CHANGES: dict[str, Any] = {
    "y": (swapped, r"y.*reverse order"),
    "x": (lambda d: d.assign_coords(x=d.x + 0.25), r"x.*8 of 8 values.*0\.0.*0\.25"),
    "height": (lambda d: d.assign_coords(height=10.0), "height.*2.0.*10.0"),
    "reference": (lambda d: d.assign_coords(reference=np.datetime64("2021-01-01", "ns")), "2020-01-01.*2021-01-01"),
    "longitude": (lambda d: d.assign_coords(longitude=d.longitude + 1), "longitude.*47 of 48"),
    "station": (lambda d: d.assign_coords(station=d.station.roll(x=1)), "station.*station 0.*station 7"),
    "zone": (lambda d: d.assign_coords(zone=d.zone.roll(y=1)), "zone"),
    "y_bnds": (lambda d: d.assign(y_bnds=d.y_bnds + 1), "y_bnds"),
}


CASES = [
    *((name, {}, False) for name in CHANGES),
    *((name, {"mode": mode}, chunked) for name, mode, chunked in [("y", "a", True), ("y", "a-", False)]),
    *((name, {"mode": mode}, True) for name, mode in [("longitude", "a"), ("station", "a-"), ("y_bnds", "a")]),
]


@pytest.mark.parametrize(("name", "options", "chunked"), CASES)
def test_another_coordinate_than_that_of_the_array_is_refused_before_anything_changes(
    repo: Repository, name: str, options: Any, chunked: bool
) -> None:
    change, text = CHANGES[name]
    session = repo.writable_session("main")
    dataset = change(bounded(labelled(weather(4, 2))))
    with pytest.raises(InvalidInputError, match=text) as caught:
        to_arraystore(lazy(dataset) if chunked else dataset, session, append_dim="time", **options)
    message = str(caught.value)
    assert f"{name!r}" in message
    assert "time" in message
    assert "drop_vars" in message
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize("mode", ["a", "a-"])
@pytest.mark.parametrize("chunked", [False, True])
def test_coordinates_that_are_equal_once_encoded_are_not_written_again(
    repo: Repository, mode: Any, chunked: bool
) -> None:
    session = repo.writable_session("main")
    dataset = bounded(labelled(weather(4, 2))).drop_vars(["orography"])
    dataset = dataset.assign_coords(
        longitude=dataset.longitude.transpose() + 0.01,  # packed with a precision of 0.1
        station=dataset.station.astype(object),
        level=dataset.level.astype("i8"),
        y=dataset.y.astype("f4").astype("f8"),
    )
    to_arraystore(lazy(dataset) if chunked else dataset, session, append_dim="time", mode=mode)
    expected = {"/temperature", "/rain", "/time"} | ({"/y_bnds"} if chunked and mode == "a" else set())
    assert set(session.status().updated_chunks) <= expected
    session.commit("more")
    found = reread(repo)
    xr.testing.assert_equal(found.drop_vars("orography").isel(time=slice(4, None)).y, first().y.astype("f4"))
    np.testing.assert_array_equal(found.rain, np.concatenate([weather(0, 4).rain, weather(4, 2).rain]))


def test_an_append_depends_on_the_coordinates_that_it_was_compared_with(repo: Repository) -> None:
    first, second = (repo.writable_session("main", isolation="serializable") for _ in range(2))
    to_arraystore(bounded(labelled(weather(4, 2))).drop_vars("orography"), first, append_dim="time")
    second.write("y", ..., np.arange(6))
    second.commit("other labels")
    with pytest.raises(RebaseFailedError) as caught:
        first.commit("appended", rebase_with=ConflictDetector())
    assert {conflict.path for conflict in caught.value.conflicts} == {"/y"}


def test_a_coordinate_is_changed_by_writing_it_on_its_own(repo: Repository) -> None:
    session = repo.writable_session("main")
    dataset = bounded(labelled(weather(4, 2))).assign_coords(height=10.0)
    to_arraystore(dataset[["height"]].drop_vars(["reference"]), session, mode="a")
    to_arraystore(dataset, session, append_dim="time")
    session.commit("at another height")
    assert reread(repo).height == 10.0


def test_without_the_coordinate_data_are_appended_by_position(repo: Repository) -> None:
    session = repo.writable_session("main")
    dataset = swapped(bounded(labelled(weather(4, 2)))).drop_vars(["y", "y_bnds", "longitude", "zone", "level"])
    to_arraystore(dataset.drop_vars("orography"), session, append_dim="time")
    session.commit("by position")
    np.testing.assert_array_equal(reread(repo).rain[4:], dataset.rain)


def test_coordinates_that_are_not_there_yet_are_written(repo: Repository) -> None:
    session = repo.writable_session("main")
    to_arraystore(weather(4, 2).assign_coords(run=7), session, append_dim="time")
    session.commit("more")
    assert reread(repo).run == 7


def test_a_tree_is_refused_before_any_of_its_groups_changes(memory_repo: Repository) -> None:
    session = memory_repo.writable_session("main")
    tree = xr.DataTree.from_dict({"/a": weather(0, 4), "/b/c": weather(0, 4)})
    to_arraystore(tree, session)
    session.commit("a tree")
    session = memory_repo.writable_session("main")
    late = xr.DataTree.from_dict({"/a": weather(4, 2), "/b/c": swapped(weather(4, 2)), "/d": weather(4, 2)})
    with pytest.raises(InvalidInputError, match=r"'y' of group '/b/c'"):
        to_arraystore(late, session, append_dim="time")
    assert not session.has_uncommitted_changes


def test_the_compatibility_layer_overwrites_coordinates_as_icechunk_does() -> None:
    repo = icechunk.Repository.create(icechunk.in_memory_storage())
    session = repo.writable_session("main")
    to_icechunk(weather(0, 4), session)
    to_icechunk(swapped(weather(4, 2)), session, append_dim="time")
    found = zarr.open_array(session.store, path="y", mode="r")[...]
    np.testing.assert_array_equal(found, weather(0, 4).y[::-1])
