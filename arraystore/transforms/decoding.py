"""Stored values as numbers: scaled ones unpacked, missing ones told apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Bools
from arraystore.errors import InvalidInputError

PACKING = ("scale_factor", "add_offset")
MISSING = ("_FillValue", "missing_value")


@dataclass(frozen=True)
class NumberDecoder:
    """How the stored values of an array become numbers, by the attributes that the CF conventions define."""

    dtype: np.dtype[Any]
    """Data type that is stored."""
    missing: tuple[Any, ...] = ()
    """Stored values that stand for missing ones."""
    scale: float = 1.0
    offset: float = 0.0

    @property
    def is_packed(self) -> bool:
        """Whether stored values are scaled."""
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
        numbers = values * self.scale + self.offset if self.is_packed else values
        return numbers, valid


def number_decoder(path: str, dtype: np.dtype[Any], attributes: dict[str, Any]) -> NumberDecoder:
    """Return how the stored values of an array become numbers; raise `InvalidInputError` if they cannot."""
    if dtype.kind not in "biuf":
        raise InvalidInputError(f"array {path!r} holds {dtype}, and reductions need integers, floats or booleans")
    try:
        scale, offset = (float(attributes.get(name, default)) for name, default in zip(PACKING, (1, 0), strict=True))
        marks = [value for name in MISSING if name in attributes for value in np.atleast_1d(attributes[name]).tolist()]
        missing = tuple(dtype.type(mark) for mark in marks if not (isinstance(mark, float) and math.isnan(mark)))
    except (TypeError, ValueError, OverflowError) as error:
        names = ", ".join(name for name in (*PACKING, *MISSING) if name in attributes)
        raise InvalidInputError(f"attributes {names} of array {path!r} are not numbers of its type: {error}") from error
    return NumberDecoder(dtype, missing, scale, offset)


def numeric_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes without those that say how values are stored."""
    return {name: value for name, value in attributes.items() if name not in (*PACKING, *MISSING)}
