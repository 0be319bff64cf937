"""Sources are told apart by what they contain, described raw, and refused with a reason."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

from arraystore.ingest import SourceFormatError, SourceNotFoundError, describe_source
from arraystore.ingest.source import format_of
from tests.ingest.conftest import Make, climate, write_source


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("netcdf3", "NetCDF-3"), ("netcdf4", "HDF5"), ("hdf5", "HDF5"), ("zarr2", "Zarr"), ("zarr3", "Zarr")],
)
def test_the_format_is_told_by_content_not_by_name(make_source: Make, kind: str, expected: str) -> None:
    assert format_of(str(make_source("misleading.txt", kind))) == expected


@pytest.mark.parametrize("kind", ["netcdf3", "netcdf4", "hdf5", "zarr2", "zarr3"])
def test_every_format_is_described_alike(make_source: Make, kind: str) -> None:
    variables = describe_source(str(make_source("s", kind))).variables
    assert set(variables) == set(climate().variables)
    tas = variables["tas"]
    assert (tas.dims, tas.shape, tas.dtype) == (("time", "y", "x"), (24, 45, 50), np.dtype("i2"))
    assert tas.attrs["_FillValue"] == -999
    assert tas.attrs["scale_factor"] == 0.01
    assert tas.attrs["coordinates"] == "lat lon height"
    assert variables["time"].attrs["units"] == "days since 2000-01-01"


def test_plain_hdf5_without_dimensions_gets_names_for_them(tmp_path: Path) -> None:
    path = tmp_path / "plain.h5"
    with h5py.File(path, "w") as file:
        file["data"] = np.arange(12).reshape(3, 4)
    data = describe_source(str(path)).variables["data"]
    assert data.shape == (3, 4)
    assert len(set(data.dims)) == 2


def test_hdf5_behind_a_user_block_is_recognized(tmp_path: Path) -> None:
    path = tmp_path / "block.h5"
    with h5py.File(path, "w", userblock_size=1024) as file:
        file["data"] = np.arange(3)
    assert format_of(str(path)) == "HDF5"


def test_a_missing_file_is_named() -> None:
    with pytest.raises(SourceNotFoundError, match=r"/no/such\.nc"):
        describe_source("/no/such.nc")


@pytest.mark.parametrize("content", [b"", b"hello, world", b"CDF", b"PK\x03\x04"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.nc"
    path.write_bytes(content)
    with pytest.raises(SourceFormatError, match="neither NetCDF-3"):
        describe_source(str(path))


@pytest.mark.parametrize("length", [60, 500, 3000, 20_000])
@pytest.mark.parametrize("kind", ["netcdf3", "netcdf4"])
def test_a_truncated_file_is_refused(make_source: Make, kind: str, length: int) -> None:
    path = make_source("cut.nc", kind)
    os.truncate(path, length)
    with pytest.raises(SourceFormatError, match=r"cut\.nc.*(cannot be read|is truncated)"):
        describe_source(str(path))


@pytest.mark.parametrize("form", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
@pytest.mark.parametrize("record_variables", [0, 1, 2])
def test_a_classic_file_may_not_lack_its_last_value(tmp_path: Path, form: str, record_variables: int) -> None:
    path = tmp_path / "classic.nc"
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.title = "odd lengths need padding"
        file.createDimension("t", None)
        file.createDimension("x", 3)
        file.createVariable("fixed", "i2", ("x",))[:] = [1, 2, 3]
        for number in range(record_variables):
            file.createVariable(f"record{number}", "i2", ("t", "x"))[:] = np.arange(15).reshape(5, 3)
    assert describe_source(str(path)).variables["fixed"].shape == (3,)
    os.truncate(path, path.stat().st_size - 4)
    with pytest.raises(SourceFormatError, match="is truncated"):
        describe_source(str(path))


def test_a_directory_without_a_zarr_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceFormatError, match="without a Zarr group"):
        describe_source(str(tmp_path))


def test_a_file_with_its_variables_in_a_group_says_how_to_name_it(tmp_path: Path) -> None:
    path = tmp_path / "grouped.nc"
    xr.Dataset({"a": ("x", [1, 2])}).to_netcdf(path, group="deep", engine="netcdf4")
    with pytest.raises(SourceFormatError, match="--source-group"):
        describe_source(str(path))
    assert set(describe_source(str(path), "deep").variables) == {"a"}


def test_a_type_that_no_array_can_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "compound.h5"
    with h5py.File(path, "w") as file:
        file["pairs"] = np.zeros(3, [("a", "i4"), ("b", "f8")])
        file["fine"] = np.zeros(3)
    with pytest.raises(SourceFormatError, match=r"pairs.*--skip pairs|cannot be read"):
        describe_source(str(path))


def test_big_endian_numbers_are_described_in_native_order(tmp_path: Path) -> None:
    dataset = xr.Dataset({"a": ("x", np.arange(3, dtype=">i4"))})
    assert describe_source(str(write_source(dataset, tmp_path / "b.nc", "netcdf3"))).variables["a"].dtype == np.dtype(
        "i4"
    )


def test_the_name_of_a_source_holds_no_query() -> None:
    from arraystore.ingest.model import SourceInfo

    assert SourceInfo("https://user:pw@host/data/air.zarr/?token=secret", "zarr", None, {}, {}).name == "air.zarr"
