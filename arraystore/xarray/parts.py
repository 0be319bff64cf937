"""Datasets, data arrays and trees as what is written to each group, and where."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import xarray as xr

from arraystore.errors import InvalidInputError

Mode = Literal["w", "w-", "a", "a-", "r+"]
Region = Mapping[str, slice | Literal["auto"]] | Literal["auto"]

_NO_NAME = "__xarray_dataarray_variable__"
_NAME = "__xarray_dataarray_name__"


def mode_of(mode: Mode | None, append_dim: Hashable | None, region: Region | None) -> Mode:
    """Return the mode by the rules of `xarray.Dataset.to_zarr`."""
    if mode is None:
        return "a" if append_dim is not None else "r+" if region is not None else "w-"
    if mode not in ("w", "w-", "a", "a-", "r+"):
        raise InvalidInputError(f"mode={mode!r} must be 'w', 'w-', 'a', 'a-' or 'r+'")
    if append_dim is not None and mode not in ("a", "a-"):
        raise InvalidInputError(f"append_dim does not go with mode={mode!r}: use 'a' or 'a-', or leave mode out")
    if region is not None and mode not in ("a", "a-", "r+"):
        raise InvalidInputError(f"region does not go with mode={mode!r}: use 'a', 'a-' or 'r+', or leave mode out")
    return mode


@dataclass(frozen=True)
class Part:
    """A dataset to write to one group."""

    path: str
    """Path relative to that of the tree; empty for its root."""
    dataset: xr.Dataset
    encoding: Mapping[Any, Any]


def parts_of(
    obj: Any,
    encoding: Mapping[Any, Any],
    append_dim: Hashable | None,
    region: Region | None,
    *,
    write_inherited_coords: bool,
) -> list[Part]:
    """Return the datasets of groups, that of the root first."""
    if not isinstance(obj, xr.DataTree):
        dataset = _as_dataset(obj)
        if append_dim is not None and append_dim not in dataset.dims:
            raise InvalidInputError(
                f"append_dim={append_dim!r} must be a dimension of the dataset, which has {list(dataset.dims)}"
            )
        return [Part("", dataset if append_dim is None else _load(dataset), encoding)]
    for dim in () if append_dim is None else (append_dim,):
        if not any(dim in node.dims for node in obj.subtree):
            raise InvalidInputError(f"append_dim={dim!r} must be a dimension of a group of the tree, and is of none")
    if unknown := set(encoding) - set(obj.groups):
        raise InvalidInputError(f"encoding must be by group, and the tree has no {sorted(map(str, unknown))}")
    parts = [
        Part(
            "" if path == "." else path,
            node.to_dataset(inherit=write_inherited_coords or node is obj),
            encoding.get(node.path) or {},
        )
        for path, node in obj.subtree_with_keys
    ]
    if region is not None:  # groups without data have no part of it
        parts = [part for part in parts if part.dataset.variables]
    return parts if append_dim is None else [replace(part, dataset=_load(part.dataset)) for part in parts]


def appended(parts: list[Part], append_dim: Hashable | None, mode: Mode) -> list[Part]:
    """Return the groups that are written: with ``"a-"``, those that have the dimension."""
    several = len(parts) > 1 and append_dim is not None and mode == "a-"
    return [part for part in parts if not several or append_dim in part.dataset.dims]


def region_of(
    part: Part, region: Region | None, regions: Mapping[str, Mapping[Any, Any]]
) -> dict[Any, Any] | Literal["auto"] | None:
    """Return the region of a group, of dimensions that it has; `regions` has those of groups above it by path."""
    if region is None or not part.path:
        return dict(region) if isinstance(region, Mapping) else region
    dims = part.dataset.dims
    wanted: dict[Any, Any] = dict.fromkeys(dims, "auto")
    if isinstance(region, Mapping):
        wanted = {dim: place for dim, place in region.items() if dim in dims}
    if not wanted:
        raise InvalidInputError(
            f"the group {part.path!r} has none of the dimensions of region={region!r}: leave it out of the tree"
        )
    for dim in [dim for dim, place in wanted.items() if place == "auto" and dim not in part.dataset.coords]:
        above = part.path
        while above and dim not in regions.get(above, {}):
            above = above.rpartition("/")[0]
        wanted[dim] = regions.get(above, {}).get(dim, "auto")
    return wanted


def _load(dataset: xr.Dataset) -> xr.Dataset:
    """Load all arrays of a dataset but dask arrays into memory."""
    dataset = dataset.copy(deep=False)
    for variable in dataset.variables.values():
        if variable.chunks is None:
            variable.load()
    return dataset


def check_names(dataset: xr.Dataset) -> None:
    """Check that names of variables are strings; raises `InvalidInputError`."""
    for name in dataset.variables:
        if not isinstance(name, str) or not name:
            raise InvalidInputError(f"the variable {name!r} must have a string as its name: rename it")


def _as_dataset(obj: xr.DataArray | xr.Dataset) -> xr.Dataset:
    """Return a data array as the dataset that `xarray.DataArray.to_zarr` would write."""
    if isinstance(obj, xr.Dataset):
        return obj
    if not isinstance(obj, xr.DataArray):
        raise InvalidInputError(f"obj must be an xarray.Dataset, DataArray or DataTree, not {type(obj).__name__}")
    if obj.name is None:
        return obj.to_dataset(name=_NO_NAME)
    if obj.name in obj.coords or obj.name in obj.dims:
        dataset = obj.to_dataset(name=_NO_NAME)
        dataset.attrs[_NAME] = obj.name
        return dataset
    return obj.to_dataset()
