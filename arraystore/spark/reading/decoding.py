"""Decoding of values by the CF and netCDF conventions in an array's attributes."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import zarr

from arraystore._format.types import Array, Bools
from arraystore.errors import InvalidInputError
from arraystore.spark.cf_time import CFTimeCodec, cf_time_codec, has_fixed_unit, microseconds_from_datetimes
from arraystore.transforms.decoding import number_of_text

_INSTANT = np.dtype("M8[us]")


class Column(NamedTuple):
    """Decoded values, and the mask of missing ones."""

    values: Array
    missing: Bools | None
    """None if no value is missing."""

    def map(self, function: Callable[[Array], Array]) -> Column:
        """Return the column with a function of arrays applied to its values and its mask."""
        return Column(function(self.values), None if self.missing is None else function(self.missing))


@dataclass(frozen=True)
class Decoder:
    """Conversion of stored values to those of a column."""

    what: str
    """Names the array in errors."""
    stored: np.dtype[Any]
    """Type of the stored values."""
    fills: tuple[Any, ...] = ()
    """Stored values that mean a missing value."""
    scale: float | None = None
    offset: float | None = None
    """Linear scaling: stored values are multiplied by `scale`, then `offset` is added."""
    time_codec: CFTimeCodec | None = None
    """Codec of times, if the array counts time."""
    view: np.dtype[Any] | None = None
    """Integer type in which stored integers are reinterpreted."""
    truth: bool = False
    """Whether integers are truth values."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values that `decode` returns, in native byte order."""
        if self.time_codec is not None or self.stored.kind == "M":
            return _INSTANT
        if has_fixed_unit(self.stored):
            return np.dtype("m8[us]")
        if self.scale is not None or self.offset is not None:
            return np.dtype(np.float64)
        if self.truth:
            return np.dtype(bool)
        kind = self.view or self.stored
        return kind if kind.kind == "T" else kind.newbyteorder("=")

    def decode(self, stored: Array) -> Column:
        """Return decoded values."""
        values = stored if self.view is None else stored.view(self.view.newbyteorder(stored.dtype.byteorder))
        mask = self._missing(values)
        if self.time_codec is not None:
            return self._instants(values, mask)
        if values.dtype.kind == "M" or has_fixed_unit(values.dtype):
            numbers, absent = microseconds_from_datetimes(self.what, values)
            return Column(numbers.view(self.dtype), _either(mask, absent))
        if self.scale is not None or self.offset is not None:
            values = values.astype(np.float64)
            if self.scale is not None:
                values *= self.scale
            if self.offset is not None:
                values += self.offset
        return Column(values.astype(self.dtype, copy=False), mask)

    def _instants(self, values: Array, mask: Bools | None) -> Column:
        assert self.time_codec is not None
        if mask is not None:
            values = np.where(mask, np.zeros((), values.dtype), values)
        if self.scale is not None or self.offset is not None:
            values = values.astype(np.float64) * (self.scale if self.scale is not None else 1.0) + (self.offset or 0.0)
        # A fill value need not be an instant of the calendar.
        numbers, absent = self.time_codec.to_microseconds(values if mask is None else values[~mask])
        if mask is not None:
            instants, missing = np.zeros(values.shape, np.int64), mask.copy()
            instants[~mask] = numbers
            if absent is not None:
                missing[~mask] = absent
            numbers, absent = instants, missing
        return Column(numbers.view(_INSTANT), absent)

    def _missing(self, values: Array) -> Bools | None:
        mask: Bools | None = None
        for fill in self.fills:
            is_nan = isinstance(fill, float) and math.isnan(fill)
            mask = _either(mask, np.isnan(values) if is_nan else np.asarray(values == fill, dtype=bool))
        return mask if mask is not None and mask.any() else None


def _either(first: Bools | None, second: Bools | None) -> Bools | None:
    if first is None or second is None:
        return second if first is None else first
    return first | second


def filled(values: Array, mask: Bools | None) -> Array:
    """Return values with missing ones as NaN or not-a-time.

    Integers and truth values become float64 where one is missing, strings become objects with None.
    """
    if mask is None:
        return values
    if values.dtype.kind in "Mm":
        missing: Any = np.array("NaT", values.dtype)
    elif values.dtype.kind in "iub":
        values, missing = values.astype(np.float64), np.nan
    elif values.dtype.kind == "f":
        missing = np.array(np.nan, values.dtype)
    else:
        values, missing = values.astype(object), None
    return np.where(mask, missing, values)


def decoder_of(array: zarr.Array[Any], *, decode: bool) -> Decoder:
    """Return the decoder of an array, which obeys attributes if `decode` is set."""
    what, stored = f"array {array.path!r}", array.dtype
    if not decode:
        return Decoder(what, stored)
    attrs: Mapping[str, Any] = array.attrs.asdict()
    view = _view(stored, attrs)
    numbers = stored.kind in "iuf"
    return Decoder(
        what,
        stored,
        _fills(what, array, attrs, view),
        _number(what, attrs, "scale_factor") if numbers else None,
        _number(what, attrs, "add_offset") if numbers else None,
        cf_time_codec(what, attrs) if numbers else None,
        view,
        truth=attrs.get("dtype") == "bool" and stored.kind in "iu",
    )


def _view(stored: np.dtype[Any], attrs: Mapping[str, Any]) -> np.dtype[Any] | None:
    wanted = {"true": "u", "false": "i"}.get(str(attrs.get("_Unsigned", "")).lower())
    if wanted is None or stored.kind not in "iu" or stored.kind == wanted:
        return None
    return np.dtype(f"{wanted}{stored.itemsize}")


def _number(what: str, attrs: Mapping[str, Any], name: str) -> float | None:
    value = attrs.get(name)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInputError(f"{what} has {name} = {value!r}, which is not a number; read it with decode=False")
    return float(value)


def _fills(what: str, array: zarr.Array[Any], attrs: Mapping[str, Any], view: np.dtype[Any] | None) -> tuple[Any, ...]:
    values: list[Any] = []
    if array.metadata.zarr_format == 2:
        values += _fill_of_version_2(array)
    for name in ("_FillValue", "missing_value"):
        value = attrs.get(name)
        values += value if isinstance(value, list) else [] if value is None else [value]
    kind = view or array.dtype
    return tuple(dict.fromkeys(_fill(what, value, kind, viewed=view is not None) for value in values))


def _fill_of_version_2(array: zarr.Array[Any]) -> list[Any]:
    """Return the fill value of an array of Zarr version 2, if it can mark missing values."""
    if array.metadata.fill_value is None or array.dtype.kind not in "fiubUTSMm":
        return []
    value: Any = np.asarray(array.metadata.fill_value, dtype=array.dtype)[()]
    if array.dtype.kind in "Mm":
        return [] if np.isnat(value) else [value]
    return [value.item() if isinstance(value, np.generic) else value]


def _fill(what: str, value: Any, kind: np.dtype[Any], *, viewed: bool) -> Any:
    """Return a fill value in a form that compares equal to stored values."""
    if kind.kind in "fiu" and isinstance(value, str):
        value = number_of_text(value)
    if viewed and isinstance(value, int):
        value = _reinterpreted(value, kind)
    fits = {
        "f": int | float, "i": int | float, "u": int | float, "b": bool, "U": str, "T": str, "S": str | bytes,
        "M": np.datetime64, "m": np.timedelta64,
    }  # fmt: skip
    if kind.kind not in fits or not isinstance(value, fits[kind.kind]):
        raise InvalidInputError(
            f"{what} of type {kind} has a _FillValue or missing_value {value!r}, which none of its values can equal; "
            "correct the attribute, or read it with decode=False"
        )
    return _bytes_of_text(value) if kind.kind == "S" and isinstance(value, str) else value


def _reinterpreted(value: int, kind: np.dtype[Any]) -> int:
    """Return an integer of the stored type in the type that it is shown in; one that neither has stays as it is."""
    values = 1 << 8 * kind.itemsize
    if not -values // 2 <= value < values:
        return value
    return value % values - (values if kind.kind == "i" and value % values >= values // 2 else 0)


def _bytes_of_text(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return text.encode()
