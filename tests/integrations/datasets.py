"""Datasets that the tests of this directory write, and a way to look at what came of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr
import zarr

from arraystore import Repository

START = np.datetime64("2024-01-01", "ns")
ENCODING: dict[str, Any] = {
    "temperature": {"chunks": (2, 3, 4), "dtype": "i2", "scale_factor": 0.5, "add_offset": 280.0, "_FillValue": -9999},
    "rain": {"chunks": (2, 3, 4)},
    "time": {"chunks": (2,), "units": "hours since 2023-12-31", "calendar": "standard", "dtype": "i4"},
}


def weather(first: int, count: int) -> xr.Dataset:
    """Return days of weather, each different, with coordinates, attributes, texts and gaps."""
    days = np.arange(first, first + count)
    temperature = 280.0 + days[:, None, None] + np.arange(6)[:, None] / 2 + np.arange(8)
    temperature[:, 0, 0] = np.nan
    rain = (days[:, None, None] * 48 + np.arange(48).reshape(6, 8)).astype("i4")
    return xr.Dataset(
        {
            "temperature": (("time", "y", "x"), temperature, {"units": "K"}),
            "rain": (("time", "y", "x"), rain),
            "orography": (("y", "x"), np.arange(48.0).reshape(6, 8)),
        },
        coords={
            "time": START + days * np.timedelta64(1, "D"),
            "y": np.linspace(50, 60, 6),
            "x": np.linspace(0, 14, 8),
            "station": ("x", [f"station {i} ü" for i in range(8)]),
        },
        attrs={"title": "weather", "levels": [1, 2, 3]},
    )


def lazy(dataset: xr.Dataset) -> xr.Dataset:
    """Return it with dask arrays whose blocks fit the chunks of `ENCODING`."""
    return dataset.chunk({"time": 2, "y": 6, "x": 8})


def reread(repo: Repository, **options: Any) -> xr.Dataset:
    """Return the dataset at the tip of main, loaded."""
    return xr.open_zarr(repo.readonly_session("main").store, consolidated=False, chunks=None, **options).load()


def documents(group: zarr.Group) -> dict[str, Any]:
    """Return metadata and values of all nodes, in a form that compares."""
    found: dict[str, Any] = {"": group.attrs.asdict()}
    for path, node in group.members(max_depth=None):
        found[path] = json.loads(json.dumps(node.metadata.to_dict(), default=str))
        if isinstance(node, zarr.Array):
            found[path]["values"] = np.asarray(node[...]).tolist()
    return found
