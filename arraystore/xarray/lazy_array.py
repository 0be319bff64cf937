"""Arrays of a session for xarray, of which each selection is one read of regions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing

from arraystore._session.base import SessionBase
from arraystore.xarray.coordinates import Coordinates
from arraystore.xarray.picking import pick_outer, pick_points


class LazyArray(BackendArray):
    """An array that is read when it is indexed."""

    __slots__ = ("_coordinates", "_path", "_session", "dtype", "shape")

    def __init__(
        self,
        session: SessionBase,
        path: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        coordinates: Coordinates,
    ) -> None:
        self._session = session
        self._path = path
        self.shape = shape
        self.dtype = dtype
        self._coordinates = coordinates

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """Read a selection."""
        support = indexing.IndexingSupport.VECTORIZED
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._reader(key))

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Read a selection in another thread."""
        return await asyncio.to_thread(self.__getitem__, key)

    def _reader(self, key: indexing.ExplicitIndexer) -> Callable[[tuple[Any, ...]], Any]:
        if isinstance(key, indexing.VectorizedIndexer):
            return self._points
        return self._outer if isinstance(key, indexing.OuterIndexer) else self._basic

    def _basic(self, key: tuple[Any, ...]) -> Any:
        kept = self._coordinates.get(self._path) if len(self.shape) == 1 else None
        if kept is None:
            return self._typed(self._session.read(self._path, key))
        found = kept[key]
        if isinstance(found, np.ndarray):
            if found.shape == kept.shape:
                self._coordinates.drop(self._path)
            else:
                found = found.copy()
        return self._typed(found)

    def _outer(self, key: tuple[Any, ...]) -> Any:
        return self._typed(pick_outer(self._session, self._path, key))

    def _points(self, key: tuple[Any, ...]) -> Any:
        return self._typed(pick_points(self._session, self._path, key))

    def _typed(self, value: Any) -> Any:
        """Return a string of numpy's type for strings as an array, as xarray expects it."""
        return np.asarray(value, dtype=self.dtype) if self.dtype.kind == "T" and isinstance(value, str) else value
