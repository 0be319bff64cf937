"""Comparing a group of a repository with the files that it came from, by two ways of reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import xarray as xr
import zarr
from zarr.abc.store import Store


@dataclass
class Comparison:
    """What was compared, and what differed."""

    group: str
    variables: int = 0
    values: int = 0
    attributes: int = 0
    differences: list[str] = field(default_factory=list)


def compare(store: Store, group: str, paths: Sequence[Path], dim: str | None) -> Comparison:
    """Compare a group with its sources, which follow each other along `dim`."""
    found = Comparison(group)
    _compare_raw(found, store, paths, dim)
    _compare_decoded(found, store, paths, dim)
    return found


def _compare_raw(found: Comparison, store: Store, paths: Sequence[Path], dim: str | None) -> None:
    """zarr against netCDF4: the numbers as they are stored, bit for bit, and the attributes."""
    arrays = zarr.open_group(store, path=found.group, mode="r")
    files = [netCDF4.Dataset(path) for path in paths]
    for file in files:
        file.set_auto_maskandscale(False)
    if set(arrays.array_keys()) != set(files[0].variables):
        found.differences.append(f"zarr: /{found.group} has other variables than {paths[0].name}")
    for name, variable in files[0].variables.items():
        expected = np.asarray(variable[...])
        if dim in variable.dimensions:
            expected = np.concatenate([np.asarray(file[name][...]) for file in files], variable.dimensions.index(dim))
        actual = np.asarray(arrays[name][...])
        found.variables += 1
        found.values += expected.size
        if actual.dtype != expected.dtype or actual.tobytes() != expected.tobytes():
            found.differences.append(f"zarr: the values of /{found.group}/{name}")
        _compare_attributes(found, name, variable, arrays[name].attrs)
    for file in files:
        file.close()


def _compare_attributes(found: Comparison, name: str, variable: Any, stored: Mapping[str, Any]) -> None:
    for key in variable.ncattrs():
        found.attributes += 1
        # The fill value is kept in an encoded form: xarray's comparison below covers it.
        if key not in stored or (key != "_FillValue" and np.any(np.asarray(stored[key]) != variable.getncattr(key))):
            found.differences.append(f"zarr: attribute {key} of /{found.group}/{name}")


def _compare_decoded(found: Comparison, store: Store, paths: Sequence[Path], dim: str | None) -> None:
    """xarray against xarray: decoded times, masked values, coordinates and attributes, as a reader sees them."""
    options: dict[str, Any] = {"decode_times": xr.coders.CFDatetimeCoder(use_cftime=True)}
    sources = [xr.open_dataset(path, **options) for path in paths]
    expected = sources[0]
    if dim is not None:
        expected = xr.concat(
            sources,
            dim,
            data_vars="minimal",
            coords="minimal",
            compat="override",
            join="override",
            combine_attrs="override",
        )
    actual = xr.open_dataset(store, engine="zarr", group=found.group, **options)
    try:
        xr.testing.assert_identical(actual.load(), expected.load())
    except AssertionError as error:
        found.differences.append(f"xarray: /{found.group}: {error}")
    for source in sources:
        source.close()
