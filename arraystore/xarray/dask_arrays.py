"""Dask arrays, told from others without importing dask."""

from __future__ import annotations

import sys
from typing import Any


def is_dask(value: Any) -> bool:
    """Tell whether values are a dask array."""
    dask = sys.modules.get("dask")  # who has a dask array has imported it
    return dask is not None and bool(dask.is_dask_collection(value))
