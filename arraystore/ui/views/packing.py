"""Numbers as CF means them: scale, offset and missing values of the attributes applied."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["unpacked"]

_UNWRITTEN = 9e36
"""NetCDF fills what nobody wrote with 9.96921e36."""


def unpacked(values: npt.NDArray[Any], attributes: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """Return values in 64 bits, unpacked and with NaN for missing ones."""
    result = np.array(values, dtype=np.float64)
    for name in ("_FillValue", "missing_value"):
        missing = _number(attributes.get(name), values.dtype)
        if missing is not None:
            result[values == missing] = np.nan
    if values.dtype.kind == "f":
        result[np.abs(result) > _UNWRITTEN] = np.nan
    scale, offset = (_number(attributes.get(name), None) for name in ("scale_factor", "add_offset"))
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
