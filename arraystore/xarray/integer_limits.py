"""Numbers that are stored as integers: those that the integers do not hold are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from arraystore.errors import InvalidInputError

_MISSING = ("_FillValue", "missing_value")


def check_limits(name: Any, variable: xr.Variable) -> None:
    """Check values in memory that are stored as integers; raise `InvalidInputError`.

    xarray casts them, which wraps values beyond the limits, and makes the least integer of a NaN without a fill value.
    """
    wanted = variable.encoding.get("dtype")
    if wanted is None or variable.dtype.kind not in "fiu" or variable.chunks is not None or not variable.size:
        return
    kind = _stored_kind(wanted, variable.encoding.get("_Unsigned", variable.attrs.get("_Unsigned")))
    if kind is None:
        return
    values = np.asarray(variable.data)
    _check_missing(name, variable, values, kind)
    scale, offset = (float(variable.encoding.get(key) or 0) for key in ("scale_factor", "add_offset"))
    limits, scale = np.iinfo(kind), scale or 1.0
    ends = [_packed(end(values), scale, offset) for end in (_least, _greatest)]
    if not all(limits.min <= end <= limits.max for end in ends if not math.isnan(end)):
        raise InvalidInputError(
            f"variable {name!r} has values from {_least(values)} to {_greatest(values)}, and its encoding, {kind} with "
            f"scale_factor {scale} and add_offset {offset}, holds only those from "
            f"{min(_unpacked(limits, scale, offset))} to {max(_unpacked(limits, scale, offset))}: mask or clip the "
            "others, or write the array anew with another encoding"
        )


def _packed(value: Any, scale: float, offset: float) -> float | int:
    """Return a value as it is stored, integers without a scale exactly."""
    if (scale, offset) == (1.0, 0.0) and not isinstance(value, np.floating):
        return int(value)
    return float(np.rint((float(value) - offset) / scale))


def _stored_kind(wanted: Any, unsigned: Any) -> np.dtype[Any] | None:
    """Return the integers that are stored; None if they are none."""
    try:
        kind: np.dtype[Any] = np.dtype(wanted)
    except TypeError:
        return None
    if kind.kind not in "iu":
        return None
    return np.dtype(f"u{kind.itemsize}") if str(unsigned).lower() == "true" else kind


def _check_missing(name: Any, variable: xr.Variable, values: Any, kind: np.dtype[Any]) -> None:
    has_mark = any(each.get(key) is not None for key in _MISSING for each in (variable.encoding, variable.attrs))
    if not has_mark and values.dtype.kind == "f" and bool(np.isnan(values).any()):
        raise InvalidInputError(
            f"variable {name!r} has NaN, and its encoding, {kind} without _FillValue, has no integer for it: fill it, "
            "or write the array anew with a _FillValue or as floats"
        )


def _least(values: Any) -> Any:
    return np.fmin.reduce(values, axis=None)


def _greatest(values: Any) -> Any:
    return np.fmax.reduce(values, axis=None)


def _unpacked(limits: Any, scale: float, offset: float) -> tuple[float, float]:
    return limits.min * scale + offset, limits.max * scale + offset
