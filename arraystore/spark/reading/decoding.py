"""What the values of an array mean: conventions of CF and netCDF, told by its attributes."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from arraystore._format.types import Bools
from arraystore.errors import InvalidInputError
from arraystore.spark.cf_time import CFTimeCodec, cf_time_codec, microseconds_from_datetimes

__all__ = ["Decoder", "Values", "decoder_of", "filled"]

Values = npt.NDArray[Any]

_INSTANT = np.dtype("M8[us]")


@dataclass(frozen=True)
class Decoder:
    """How stored values become those of a column.

    Parameters
    ----------
    what
        Names the array in errors.
    stored
        Type of the stored values.
    fills
        Stored values that mean that there is none.
    scale, offset
        What stored values are multiplied with, and what is added then.
    time_codec
        How they count time.
    view
        Type that the bytes of stored integers are to be taken for.
    truth
        Whether they are truth values in the guise of integers.
    """

    what: str
    stored: np.dtype[Any]
    fills: tuple[Any, ...] = ()
    scale: float | None = None
    offset: float | None = None
    time_codec: CFTimeCodec | None = None
    view: np.dtype[Any] | None = None
    truth: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values that `decode` returns, in native byte order."""
        if self.time_codec is not None or self.stored.kind == "M":
            return _INSTANT
        if self.stored.kind == "m":
            return np.dtype("m8[us]")
        if self.scale is not None or self.offset is not None:
            return np.dtype(np.float64)
        if self.truth:
            return np.dtype(bool)
        kind = self.view or self.stored
        return kind if kind.kind == "T" else kind.newbyteorder("=")

    def decode(self, stored: Values) -> tuple[Values, Bools | None]:
        """Return the values of a column, and where there is none.

        Parameters
        ----------
        stored
            Values of the array, any shape.

        Returns
        -------
        ndarray
            Of `dtype`, and the same shape; what stands where there is none is of no use.
        ndarray of bool or None
            Where there is none; None if there is one everywhere.

        Raises
        ------
        InvalidInputError
            If a time cannot be told as a timestamp.
        """
        values = stored if self.view is None else stored.view(self.view.newbyteorder(stored.dtype.byteorder))
        mask = self._missing(values)
        if self.time_codec is not None:
            return self._instants(values, mask)
        if values.dtype.kind in "Mm":
            numbers, absent = microseconds_from_datetimes(self.what, values)
            return numbers.view(self.dtype), _either(mask, absent)
        if self.scale is not None or self.offset is not None:
            values = values.astype(np.float64)
            if self.scale is not None:
                values *= self.scale
            if self.offset is not None:
                values += self.offset
        return values.astype(self.dtype, copy=False), mask

    def _instants(self, values: Values, mask: Bools | None) -> tuple[Values, Bools | None]:
        assert self.time_codec is not None
        if mask is not None:
            values = np.where(mask, np.zeros((), values.dtype), values)
        if self.scale is not None or self.offset is not None:
            values = values.astype(np.float64) * (self.scale if self.scale is not None else 1.0) + (self.offset or 0.0)
        # A stand-in for what is missing need not be an instant that the calendar can tell.
        numbers, absent = self.time_codec.to_microseconds(values if mask is None else values[~mask])
        if mask is not None:
            found, missing = np.zeros(values.shape, np.int64), mask.copy()
            found[~mask] = numbers
            if absent is not None:
                missing[~mask] = absent
            numbers, absent = found, missing
        return numbers.view(_INSTANT), absent

    def _missing(self, values: Values) -> Bools | None:
        mask: Bools | None = None
        for fill in self.fills:
            is_nan = isinstance(fill, float) and math.isnan(fill)
            mask = _either(mask, np.isnan(values) if is_nan else np.asarray(values == fill, dtype=bool))
        return mask if mask is not None and mask.any() else None


def _either(first: Bools | None, second: Bools | None) -> Bools | None:
    if first is None or second is None:
        return second if first is None else first
    return first | second


def filled(values: Values, mask: Bools | None) -> Values:
    """Return values with what marks a missing one in an ndarray: NaN or not-a-time.

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
    """Return how the values of an array become those of a column.

    Parameters
    ----------
    decode
        Whether attributes count: ``_FillValue``, ``missing_value``, ``scale_factor``, ``add_offset``, ``_Unsigned``,
        ``units`` with ``calendar`` for times, and ``dtype`` for truth values.  In an array of Zarr version 2, the fill
        value is a ``_FillValue``.

    Raises
    ------
    InvalidInputError
        If an attribute cannot be understood, or has no equivalent.
    """
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
        raise InvalidInputError(f"{what} has {name} = {value!r}, which is no number; read it with decode=False")
    return float(value)


def _fills(what: str, array: zarr.Array[Any], attrs: Mapping[str, Any], view: np.dtype[Any] | None) -> tuple[Any, ...]:
    found: list[Any] = []
    if array.metadata.zarr_format == 2:
        found += _fill_of_version_2(array)
    for name in ("_FillValue", "missing_value"):
        value = attrs.get(name)
        found += value if isinstance(value, list) else [] if value is None else [value]
    kind = view or array.dtype
    return tuple(dict.fromkeys(_fill(what, value, kind, viewed=view is not None) for value in found))


def _fill_of_version_2(array: zarr.Array[Any]) -> list[Any]:
    """Return the fill value of an array of Zarr version 2, if it can mean that a value is missing."""
    if array.metadata.fill_value is None or array.dtype.kind not in "fiubUTSMm":
        return []
    value: Any = np.asarray(array.metadata.fill_value, dtype=array.dtype)[()]
    if array.dtype.kind in "Mm":
        return [] if np.isnat(value) else [value]
    return [value.item() if isinstance(value, np.generic) else value]


def _fill(what: str, value: Any, kind: np.dtype[Any], *, viewed: bool) -> Any:
    """Return a value that means that there is none, comparable to what is stored."""
    if kind.kind in "fiu" and isinstance(value, str):
        value = _number_of_text(value)
    if viewed and isinstance(value, int):  # told as stored
        value = int(np.int64(value).astype(kind))
    fits = {
        "f": int | float, "i": int | float, "u": int | float, "b": bool, "U": str, "T": str, "S": str | bytes,
        "M": np.datetime64, "m": np.timedelta64,
    }  # fmt: skip
    if kind.kind not in fits or not isinstance(value, fits[kind.kind]):
        raise InvalidInputError(
            f"{what} of type {kind} has a _FillValue or missing_value {value!r}, which none of its values can be; "
            "correct the attribute, or read it with decode=False"
        )
    return _bytes_of_text(value) if kind.kind == "S" and isinstance(value, str) else value


def _bytes_of_text(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return text.encode()


def _number_of_text(text: str) -> Any:
    """Return the number of an attribute that is text, as JSON cannot tell all: NaN, or eight bytes in base64."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        (number,) = struct.unpack("<d", base64.b64decode(text, validate=True))
    except (binascii.Error, struct.error, ValueError):
        return text
    return number
