"""Values that the data type of an array or an encoding does not hold are refused: xarray casts them to others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from arraystore.errors import InvalidInputError
from arraystore.xarray.dask_arrays import is_dask

_MISSING = ("_FillValue", "missing_value")
_NUMBERS, _TEXTS = "biufc", "SUT"


def checked(name: Any, variable: xr.Variable, stored: np.dtype[Any] | None) -> xr.Variable:
    """Return a variable whose values its data type in the store holds; raise `InvalidInputError`.

    `stored` is the data type of the array that is there.  Dask arrays are checked block by block, when computed.
    """
    wanted = _wanted(variable, stored)
    if wanted is None or variable.dtype.kind not in _NUMBERS + _TEXTS + "O":
        return variable
    limits = _Limits(name, wanted, _attributes(variable), stored is not None)
    limits.check_kind(variable.dtype)
    if not variable.size or limits.hold(variable.dtype):
        return variable
    if variable.chunks is not None and is_dask(variable.data):
        data: Any = variable.data
        blocks = data.map_blocks(limits.check, dtype=variable.dtype, meta=data._meta)
        return variable.copy(deep=False, data=blocks)
    if variable.chunks is None:
        limits.check(np.asarray(variable.data))
    return variable


def _wanted(variable: xr.Variable, stored: np.dtype[Any] | None) -> np.dtype[Any] | None:
    """Return the data type that values are cast to; None if xarray chooses one that holds them."""
    named = variable.encoding.get("dtype", stored)
    if named is None or named is str or named == "S1":  # of single characters, into which xarray splits texts
        return stored if named is str else None
    try:
        wanted: np.dtype[Any] = np.dtype(named)
    except TypeError:
        return None
    unsigned = variable.encoding.get("_Unsigned", variable.attrs.get("_Unsigned"))
    return np.dtype(f"u{wanted.itemsize}") if wanted.kind == "i" and str(unsigned).lower() == "true" else wanted


def _attributes(variable: xr.Variable) -> Mapping[str, Any]:
    """Return what says how values are packed, and whether missing ones have a mark."""
    marks = (each.get(key) for key in _MISSING for each in (variable.encoding, variable.attrs))
    packing = {key: _number(key, variable.encoding.get(key)) for key in ("scale_factor", "add_offset")}
    return {**packing, "has_mark": any(mark is not None for mark in marks)}


def _number(key: str, value: Any) -> float:
    """Return the number of an attribute; 0 if there is none."""
    try:
        return 0.0 if value is None else float(np.asarray(value).item())
    except (TypeError, ValueError):
        raise InvalidInputError(f"{key}={value!r} of an encoding must be a number") from None


@dataclass(frozen=True)
class _Limits:
    """The values that a data type holds, of a variable that may be packed."""

    name: Any
    wanted: np.dtype[Any]
    attributes: Mapping[str, Any]
    exists: bool
    """Whether the data type is that of an array which is there."""

    @property
    def _scale(self) -> float:
        return float(self.attributes["scale_factor"]) or 1.0

    @property
    def _offset(self) -> float:
        return float(self.attributes["add_offset"])

    @property
    def _packs(self) -> bool:
        return (self._scale, self._offset) != (1.0, 0.0)

    def hold(self, dtype: np.dtype[Any]) -> bool:
        """Tell whether all values of a data type are held."""
        if self.wanted.kind not in "biufSU" or (self.wanted.kind in "SU" and not self.wanted.itemsize):
            return True
        same_kind = dtype.kind in _TEXTS if self.wanted.kind in "SU" else dtype.kind in _NUMBERS
        return same_kind and dtype.kind != "T" and not self._packs and np.can_cast(dtype, self.wanted, "safe")

    def check_kind(self, dtype: np.dtype[Any]) -> None:
        """Check that numbers stay numbers, and texts texts."""
        if self.exists and dtype.kind in _NUMBERS and self.wanted.kind in _TEXTS + "O":
            self._refuse(f"numbers ({dtype})", f"texts ({self.wanted})", "convert them to texts")
        if dtype.kind == "c" and self.wanted.kind in "biuf":
            self._refuse(f"complex numbers ({dtype})", f"real ones ({self.wanted})", "take their real part")

    def _refuse(self, new: str, held: str, remedy: str) -> None:
        where = "its array holds" if self.exists else "its encoding holds"
        raise InvalidInputError(
            f"variable {self.name!r} has {new}, and {where} {held}: {remedy}, or write the array anew with another "
            "data type"
        )

    def check(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return values, which the data type must hold."""
        if values.dtype.kind in _TEXTS + "O":
            self._check_texts(values)
        elif self.wanted.kind == "b":
            self._check_truth(values)
        elif values.size and self.wanted.kind in "iuf":
            self._check_missing(values)
            self._check_ends(values)
        return values

    def _check_texts(self, values: np.ndarray[Any, Any]) -> None:
        texts = [each for each in values.ravel().tolist() if isinstance(each, str | bytes)]
        if texts and self.wanted.kind in _NUMBERS:
            self._refuse(f"texts as {texts[0]!r}", f"numbers ({self.wanted})", "convert them to numbers")
        longest = max(texts, key=len, default="")
        held = self.wanted.itemsize // (4 if self.wanted.kind == "U" else 1)
        if self.wanted.kind in "SU" and 0 < held < len(longest):
            self._refuse(f"texts of {len(longest)} characters", f"those of {held} ({self.wanted})", "shorten them")

    def _check_truth(self, values: np.ndarray[Any, Any]) -> None:
        other = values[(values != 0) & (values != 1)]
        if other.size:
            self._refuse(f"numbers as {other[0]}", f"truth values ({self.wanted})", "compare them to something")

    def _check_missing(self, values: np.ndarray[Any, Any]) -> None:
        if self.attributes["has_mark"] or self.wanted.kind == "f" or values.dtype.kind != "f":
            return
        if bool(np.isnan(values).any()):
            raise InvalidInputError(
                f"variable {self.name!r} has NaN, and its encoding, {self.wanted} without _FillValue, has no integer "
                "for it: fill it, or write the array anew with a _FillValue or as floats"
            )

    def _check_ends(self, values: np.ndarray[Any, Any]) -> None:
        """Check the least and the greatest value; infinity is one of floats."""
        if self.wanted.kind == "f" and values.dtype.kind == "f":
            values = values[np.isfinite(values)]
        if not values.size:
            return
        least, greatest = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
        if not all(self._holds(self._packed(end)) for end in (least, greatest)):
            low, high = self._unpacked()
            raise InvalidInputError(
                f"variable {self.name!r} has values from {least} to {greatest}, and its encoding, {self.wanted} with "
                f"scale_factor {self._scale} and add_offset {self._offset}, holds only those from {min(low, high)} to "
                f"{max(low, high)}: mask or clip the others, or write the array anew with another encoding"
            )

    def _packed(self, value: Any) -> float:
        """Return a value as it is stored, integers without a scale exactly."""
        if not self._packs and not isinstance(value, np.floating):
            return int(value)
        packed = (float(value) - self._offset) / self._scale
        return packed if self.wanted.kind == "f" else float(np.rint(packed))

    def _holds(self, packed: float) -> bool:
        if math.isnan(packed):
            return True
        if self.wanted.kind != "f":
            limits = np.iinfo(self.wanted)
            return bool(limits.min <= packed <= limits.max)
        with np.errstate(over="ignore"):
            return bool(np.isfinite(np.float64(packed).astype(self.wanted)))

    def _unpacked(self) -> tuple[Any, Any]:
        limits = np.finfo(self.wanted) if self.wanted.kind == "f" else np.iinfo(self.wanted)
        if not self._packs:
            return limits.min, limits.max
        return float(limits.min) * self._scale + self._offset, float(limits.max) * self._scale + self._offset
