"""Names of types that many modules share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
Region = tuple[slice, ...]
Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Float64s = npt.NDArray[np.float64]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
IdColumn = npt.NDArray[np.bytes_]
"""Ids of twelve bytes each; numpy strips trailing zeros of single items."""
