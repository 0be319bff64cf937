"""The target group: reading its metadata, and preparing it before tasks write into it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import zarr
import zarr.errors
from xarray.backends.zarr import FillValueCoder
from zarr.abc.store import Store
from zarr.core.dtype import VariableLengthUTF8  # pyright: ignore[reportPrivateImportUsage]

from arraystore.errors import InvalidInputError
from arraystore.ingest.model import ArrayPlan, GroupInfo, VariableInfo
from arraystore.ingest.source import plain_dtype

_DIMENSIONS_V2 = "_ARRAY_DIMENSIONS"
_FILL = "_FillValue"


def normal_group(path: str) -> str:
    """Return the path of a group without slashes around it; the root is the empty path."""
    path = path.strip().strip("/")
    if path and any(part in ("", ".", "..") for part in path.split("/")):
        raise InvalidInputError(f"group {path!r} is not a valid path; write it like ocean/daily")
    return path


def read_group(store: Store, path: str) -> GroupInfo:
    """Read the metadata of a group and its arrays; empty if there is no such group."""
    try:
        group = zarr.open_group(store, path=path, mode="r")
    except (FileNotFoundError, KeyError):
        return GroupInfo(f"/{path}", False)
    except zarr.errors.ContainsArrayError as error:
        raise InvalidInputError(
            f"{path!r} is an array of the repository, not a group; choose another group (--group)"
        ) from error
    return GroupInfo(
        f"/{path}",
        True,
        {name: describe_array(name, array) for name, array in group.arrays()},
        group.metadata.zarr_format,
    )


def describe_array(name: str, array: Any) -> VariableInfo:
    """Return the metadata of an array of the group in the form of a source's variable."""
    attrs = dict(array.attrs)
    dtype = plain_dtype(array.dtype) if np.dtype(array.dtype).kind in "TO" else np.dtype(array.dtype).newbyteorder("=")
    names = attrs.pop(_DIMENSIONS_V2, None) or getattr(array.metadata, "dimension_names", None)
    dims = tuple(str(n) if n is not None else f"dim_{i}" for i, n in enumerate(names or (None,) * array.ndim))
    if array.metadata.zarr_format == 2:
        if array.fill_value is not None:
            attrs.setdefault(_FILL, array.fill_value)
    elif _FILL in attrs:
        attrs[_FILL] = _decoded_fill(attrs[_FILL], dtype)
    return VariableInfo(name, dims, tuple(array.shape), dtype, attrs, tuple(array.shards or array.chunks))


def _decoded_fill(value: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "O":
        return value
    decoded = FillValueCoder.decode(value, "bytes" if dtype.kind == "S" else dtype)
    return np.array(decoded, dtype)[()]


def _attributes(variable: VariableInfo) -> dict[str, Any]:
    """Return attributes as JSON values; the fill value in the form that xarray expects in Zarr v3."""
    attrs = {key: json_value(value) for key, value in variable.attrs.items() if key != _FILL}
    fill = _fill_value(variable)
    if fill is not None:
        attrs[_FILL] = fill if isinstance(fill, str) else FillValueCoder.encode(fill.item(), variable.dtype)
    return attrs


def _fill_value(variable: VariableInfo) -> Any:
    """Return the fill value of an array in its type; None if it has none."""
    value = variable.attrs.get(_FILL)
    if value is None:
        return None
    first = np.asarray(value).ravel()[0]
    return str(first) if variable.dtype.kind == "O" else np.asarray(first).astype(variable.dtype)[()]


def json_value(value: Any) -> Any:
    """Return an attribute's value as a JSON value."""
    if isinstance(value, np.ndarray):
        return [json_value(item) for item in value.tolist()]
    if isinstance(value, np.generic):
        return json_value(value.item())
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Mapping):
        return {str(k): json_value(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def require_group(store: Store, path: str, attrs: Mapping[str, Any]) -> zarr.Group:
    """Open the group, creating it and its parents if missing, and add attributes that it lacks."""
    parts = [part for part in path.split("/") if part]
    group = _existing_or_new(store, "")
    for depth in range(len(parts)):
        group = _existing_or_new(store, "/".join(parts[: depth + 1]))
    missing = {key: json_value(value) for key, value in attrs.items() if key not in group.attrs}
    if missing:
        group.update_attributes(missing)
    return group


def _existing_or_new(store: Store, path: str) -> zarr.Group:
    """Open a group of any format, or create one of Zarr v3."""
    try:
        return zarr.open_group(store, path=path, mode="r+")
    except FileNotFoundError:
        return zarr.create_group(store, path=path, zarr_format=3)


def array_path(group: str, name: str) -> str:
    """Return the path of an array of the group."""
    return f"{group.strip('/')}/{name}"


def make_array(group: zarr.Group, plan: ArrayPlan) -> None:
    """Create the array of a plan, without values."""
    variable = plan.variable
    fill = _fill_value(variable)
    options: dict[str, Any] = {} if fill is None else {"fill_value": fill}
    dtype: Any = VariableLengthUTF8() if variable.dtype.kind == "O" else variable.dtype
    with warnings.catch_warnings():
        # zarr warns that fixed-length bytes have no specification yet; they keep the values of a source unchanged.
        warnings.simplefilter("ignore", zarr.errors.UnstableSpecificationWarning)
        group.create_array(
            variable.name,
            shape=variable.shape,
            chunks=tuple(max(1, size) for size in plan.chunks),
            dtype=dtype,
            attributes=_attributes(variable),
            dimension_names=variable.dims,
            **options,
        )


def resize_array(group: zarr.Group, plan: ArrayPlan) -> None:
    """Grow an existing array to the shape of its plan."""
    array: Any = group[plan.name]
    array.resize(plan.variable.shape)
