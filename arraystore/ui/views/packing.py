"""Numbers as CF means them: scale, offset and missing values of the attributes applied."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.node import Node
from arraystore.ui.views.hierarchy import attributes_of, document_of

__all__ = ["PACKING", "for_page", "is_packed", "packing_of", "unpacked"]

_UNWRITTEN = 9.969209968386869e36
"""What NetCDF fills in for floating-point numbers that nobody wrote."""

_SHADES = 4_096
"""Parts of the range of values that are told apart in 32 bits, many more than there are colours."""

_MISSING = ("_FillValue", "missing_value")
_SCALE = ("scale_factor", "add_offset")
PACKING = (*_MISSING, *_SCALE)
"""Attributes that change what numbers mean."""


def packing_of(node: Node) -> dict[str, Any]:
    """Return the attributes of an array; of Zarr v2 with the fill value, which xarray takes for a missing value."""
    attributes, document = attributes_of(node), document_of(node)
    if document.get("zarr_format") == 2 and "_ARRAY_DIMENSIONS" in attributes and "_FillValue" not in attributes:
        return {**attributes, "_FillValue": document.get("fill_value")}
    return attributes


def is_packed(attributes: Mapping[str, Any]) -> bool:
    """Tell whether values are not those that are stored, by their attributes."""
    return any(attributes.get(name) is not None for name in PACKING)


def for_page(values: npt.NDArray[np.float64]) -> npt.NDArray[np.floating[Any]]:
    """Return the values of a plane in 32 bits; of a line, and of numbers that 32 bits do not tell apart, in 64."""
    if values.ndim < 2:
        return values
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        narrow = values.astype(np.float32)
        finite = np.isfinite(values)
        kept = (np.isfinite(narrow) == finite) & ((narrow == 0) == (values == 0))
    return narrow if kept.all() and _is_fine(narrow[finite], values[finite]) else values


def _is_fine(narrow: npt.NDArray[np.float32], values: npt.NDArray[np.float64]) -> bool:
    """Tell whether rounding moves numbers by far less than they differ: seconds since 1970 in 32 bits are minutes."""
    if not values.size:
        return True
    return float(np.abs(narrow - values).max()) <= float(values.max() / _SHADES - values.min() / _SHADES)


def unpacked(values: npt.NDArray[Any], attributes: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """Return values in 64 bits, unpacked and with NaN for missing ones."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _unpacked(values, attributes)


def _unpacked(values: npt.NDArray[Any], attributes: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    result = np.array(values, dtype=np.float64)
    for name in _MISSING:
        missing = _number(attributes.get(name), values.dtype)
        if missing is not None:
            result[values == missing] = np.nan
    if values.dtype.kind == "f":
        result[result == _UNWRITTEN] = np.nan
    scale, offset = (_number(attributes.get(name), None) for name in _SCALE)
    if scale is not None:
        result *= scale
    if offset is not None:
        result += offset
    return result


def _number(value: Any, dtype: np.dtype[Any] | None) -> float | None:
    """Return the number in an attribute, which xarray writes for Zarr v3 as base64 of its bytes."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str) and dtype is not None:
        try:
            value = np.frombuffer(base64.b64decode(value, validate=True), dtype="<f8" if dtype.kind == "f" else "<i8")
        except (binascii.Error, ValueError):
            return None
        value = value[0].item() if len(value) == 1 else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
        return number if dtype is None or dtype.kind != "f" else float(dtype.type(number))
    except (OverflowError, ValueError):
        return None
