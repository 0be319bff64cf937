"""Files of a small climate model, in two formats, and repositories that refer to them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import arraystore as ars

if sys.version_info < (3, 12):  # VirtualiZarr needs it
    collect_ignore_glob = ["test_*.py"]

FORMATS = ("h5netcdf", "scipy")


@dataclass(frozen=True)
class Files:
    """Files that follow each other in time."""

    paths: list[str]
    prefix: str

    def dataset(self, *which: int) -> xr.Dataset:
        """Return some of the files as xarray joins them."""
        chosen = [self.paths[number] for number in which] or self.paths
        with xr.open_mfdataset(
            chosen, combine="nested", concat_dim="time", data_vars="minimal", coords="minimal", compat="override",
            join="override",
        ) as opened:  # fmt: skip
            return opened.load()

    def repository(self) -> ars.Repository:
        """Return a new repository that may read the files."""
        return ars.Repository.create(ars.in_memory_storage(), authorize_virtual_chunk_access={self.prefix: None})


def model(number: int, days: int = 2) -> xr.Dataset:
    """Return a dataset with packed numbers, gaps, a coordinate of two dimensions, and one of none."""
    first = number * days
    values = np.arange(days * 12, dtype="f8").reshape(days, 3, 4) + first
    values[0, 0, 0] = np.nan
    dataset = xr.Dataset(
        {"rain": (("time", "y", "x"), values), "depth": (("y", "x"), np.ones((3, 4), "f4"))},
        coords={
            "time": ("time", np.arange(first, first + days), {"units": "days since 2000-01-01"}),
            "latitude": (("y", "x"), np.arange(12.0).reshape(3, 4)),
            "height": ((), 3.5),
        },
        attrs={"title": "a small model"},
    )
    dataset.rain.encoding = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -99}
    dataset.latitude.encoding = {"_FillValue": -9999.0}
    return dataset


def write_files(directory: Path, engine: Any, count: int = 3) -> Files:
    directory.mkdir(parents=True, exist_ok=True)
    paths = [str(directory / f"model {number}.nc") for number in range(count)]
    for number, path in enumerate(paths):
        dataset = model(number)
        if engine == "h5netcdf":
            dataset.rain.encoding |= {"chunksizes": (1, 3, 4), "zlib": True, "shuffle": True}
        dataset.to_netcdf(path, engine=engine, **({"format": "NETCDF3_64BIT"} if engine == "scipy" else {}))
    return Files(paths, f"file://{directory}/")


@pytest.fixture(scope="session", params=FORMATS)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_files(tmp_path_factory.mktemp("files of 100%"), request.param)


@pytest.fixture(scope="session")
def hdf5_files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_files(tmp_path_factory.mktemp("hdf5"), "h5netcdf")


def shown(repository: ars.Repository, group: str | None = None) -> xr.Dataset:
    """Return a group as xarray shows it."""
    return xr.open_dataset(repository, engine="arraystore", group=group).load()  # type: ignore[arg-type]
