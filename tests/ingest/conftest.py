"""Small sources to ingest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import arraystore
from arraystore.storage import Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """An empty place for a repository."""
    return arraystore.local_filesystem_storage(str(tmp_path / "repo"))


def climate(start: int = 0, length: int = 24, *, offset: float = 0.0) -> xr.Dataset:
    """A dataset with what real ones have: packed data, 2-D coordinates, bounds, scalars, text, and missing values."""
    y, x = 45, 50
    steps = np.arange(start, start + length)
    packed = ((steps[:, None, None] * 7 + np.arange(y * x).reshape(y, x)) % 3000).astype("i2")
    packed[0, :3, :3] = -999
    wind = (np.sin(steps)[:, None, None] * np.ones((y, x)) + offset).astype("f4")
    wind[0, 0, 0] = np.nan
    lat, lon = np.meshgrid(np.linspace(-60, 60, y), np.linspace(0, 359, x), indexing="ij")
    tas_attrs = {
        "units": "K",
        "scale_factor": 0.01,
        "add_offset": 270.0,
        "_FillValue": np.int16(-999),
        "coordinates": "lat lon height",
        "valid_range": np.array([0, 3000], "i2"),
    }
    time_attrs = {"units": "days since 2000-01-01", "calendar": "360_day", "bounds": "time_bnds"}
    return xr.Dataset(
        {
            "tas": (("time", "y", "x"), packed, tas_attrs),
            "wind": (("time", "y", "x"), wind, {"units": "m s-1", "_FillValue": np.float32(np.nan)}),
            "time_bnds": (("time", "bnds"), np.stack([steps, steps + 1], axis=1).astype("f8")),
            "crs": ((), np.int32(0), {"grid_mapping_name": "latitude_longitude"}),
            "height": ((), 2.0, {"units": "m"}),
            "mask": (("y", "x"), (lat > 0).astype("i1")),
            "lat": (("y", "x"), lat, {"units": "degrees_north"}),
            "lon": (("y", "x"), lon, {"units": "degrees_east"}),
        },
        coords={"time": ("time", steps.astype("f8"), time_attrs)},
        attrs={"title": "made for tests", "version": np.int32(3)},
    )


def write_source(dataset: xr.Dataset, path: Path, kind: str = "netcdf4") -> Path:
    """Write a dataset raw, in one of the formats."""
    dataset = dataset.drop_encoding()
    if kind == "netcdf4":
        dataset.to_netcdf(path, engine="netcdf4", format="NETCDF4", encoding=_plain(dataset))
    elif kind == "netcdf3":
        dataset.to_netcdf(path, engine="scipy", format="NETCDF3_64BIT", encoding=_plain(dataset))
    elif kind == "hdf5":
        dataset.to_netcdf(path, engine="h5netcdf", encoding=_plain(dataset))
    else:
        dataset.to_zarr(path, zarr_format=int(kind.removeprefix("zarr")), consolidated=False, encoding=_plain(dataset))
    return path


def _plain(dataset: xr.Dataset) -> dict[str, Any]:
    """Keep xarray from inventing fill values that the dataset does not have."""
    return {str(n): {"_FillValue": None} for n, v in dataset.variables.items() if "_FillValue" not in v.attrs}


Make = Callable[..., Path]


@pytest.fixture
def make_source(tmp_path: Path) -> Make:
    """Write `climate(**options)`, changed by a function if one is given, to a file."""

    def make(
        name: str = "source.nc",
        kind: str = "netcdf4",
        change: Callable[[xr.Dataset], xr.Dataset] | None = None,
        **options: Any,
    ) -> Path:
        dataset = climate(**options)
        return write_source(change(dataset) if change else dataset, tmp_path / name, kind)

    return make


def raw(path: Any, **options: Any) -> xr.Dataset:
    """Open a dataset without any decoding."""
    return xr.open_dataset(path, mask_and_scale=False, decode_times=False, decode_coords=False, **options)


def ingested(storage: Storage, group: str = "", **session: Any) -> xr.Dataset:
    """What the repository holds, raw."""
    repository = arraystore.Repository.open(storage)
    store = repository.readonly_session(**(session or {"branch": "main"})).store
    return raw(store, engine="zarr", group=group or None, consolidated=False)


def history(storage: Storage) -> list[str]:
    """Messages of the history, oldest first, without the one of the creation."""
    repository = arraystore.Repository.open(storage)
    return [snapshot.message for snapshot in repository.ancestry(branch="main")][-2::-1]
