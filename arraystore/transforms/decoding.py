"""Stored values as numbers: scaled ones unpacked, missing ones told apart."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from arraystore._format.types import Bools
from arraystore.errors import InvalidInputError

PACKING = ("scale_factor", "add_offset")
MISSING = ("_FillValue", "missing_value")


@dataclass(frozen=True)
class NumberDecoder:
    """Conversion of the stored values of an array to numbers, by the attributes that the CF conventions define."""

    dtype: np.dtype[Any]
    """Data type that is stored."""
    missing: tuple[Any, ...] = ()
    """Stored values that stand for missing ones."""
    scale: float = 1.0
    offset: float = 0.0

    @property
    def is_packed(self) -> bool:
        """Tell whether stored values are scaled."""
        return (self.scale, self.offset) != (1.0, 0.0)

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """Data type of the numbers."""
        return np.dtype("f8") if self.is_packed else self.dtype

    def decode(self, values: npt.NDArray[Any], *, skipna: bool) -> tuple[npt.NDArray[Any], Bools | None]:
        """Return numbers, and which of them are not missing; None if all are there."""
        valid: Bools | None = None
        for each in self.missing:
            there = values != each
            valid = there if valid is None else valid & there
        if skipna and values.dtype.kind == "f":
            there = ~np.isnan(values)
            valid = there if valid is None else valid & there
        if valid is not None and bool(valid.all()):
            valid = None
        return self._unpacked(values) if self.is_packed else values, valid

    def _unpacked(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        # Narrow floats would stay narrow: 16 bits of 273.15 more than some degrees are quarters of a degree.
        return values.astype(self.result_dtype) * self.scale + self.offset


def mask_of(array: zarr.Array[Any]) -> Any:
    """Return the fill value of an array of Zarr v2 that xarray has written, for which it is the missing value."""
    written = array.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in array.attrs and array.dtype.kind in "iuf"
    return array.metadata.fill_value if written else None


def number_decoder(path: str, dtype: np.dtype[Any], attributes: dict[str, Any], mask: Any = None) -> NumberDecoder:
    """Return how the stored values of an array become numbers; raise `InvalidInputError` if they cannot.

    `mask` is a missing value in place of ``_FillValue``, as xarray takes the fill value of Zarr v2.
    """
    if dtype.kind not in "biuf":
        raise InvalidInputError(f"array {path!r} holds {dtype}, and reductions need integers, floats or booleans")
    if str(attributes.get("_Unsigned", "")).lower() == {"i": "true", "u": "false"}.get(dtype.kind):
        raise InvalidInputError(
            f"array {path!r} has integers of the other sign than {dtype}, by the attribute _Unsigned: write them to an "
            "array of their type first, by transform_chunks for instance"
        )
    try:
        scale, offset = (float(attributes.get(name, default)) for name, default in zip(PACKING, (1, 0), strict=True))
        marks = [] if mask is None else [mask.item() if isinstance(mask, np.generic) else mask]
        names = MISSING if mask is None else ("missing_value",)
        marks += [value for name in names if name in attributes for value in np.atleast_1d(attributes[name]).tolist()]
        marks = [number_of_text(mark) if isinstance(mark, str) and dtype.kind == "f" else mark for mark in marks]
        missing = tuple(_stored(mark, dtype) for mark in marks if not (isinstance(mark, float) and math.isnan(mark)))
    except (TypeError, ValueError, OverflowError) as error:
        given = ", ".join(name for name in (*PACKING, *MISSING) if name in attributes)
        raise InvalidInputError(f"attributes {given} of array {path!r} are not numbers of its type: {error}") from error
    return NumberDecoder(dtype, missing, scale, offset)


def _stored(mark: Any, dtype: np.dtype[Any]) -> Any:
    """Return a missing value as it is stored; floats are rounded, and integers must not be."""
    stored = dtype.type(mark)
    if dtype.kind != "f" and stored != mark:
        raise ValueError(f"{mark} is not one of {dtype}")
    return stored


def number_of_text(text: str) -> Any:
    """Return the number in a string attribute: NaN or infinity, or eight bytes in base64, as xarray writes it."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        (number,) = struct.unpack("<d", base64.b64decode(text, validate=True))
    except (binascii.Error, struct.error, ValueError):
        return text
    return number


def text_of_number(number: float) -> str:
    """Return a number as xarray writes it into a string attribute."""
    return base64.standard_b64encode(struct.pack("<d", number)).decode()


def numeric_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes without those that say how values are stored."""
    return {name: value for name, value in attributes.items() if name not in (*PACKING, *MISSING)}
