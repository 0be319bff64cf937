"""Coordinates of a dataset, which opening it reads to make indexes, read together."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from arraystore._format.node import Node
from arraystore._session.base import SessionBase
from arraystore._session.regions.layout import layout_of
from arraystore.errors import ArrayStoreError

_LARGEST, _LARGEST_TOGETHER = 1 << 20, 8 << 20
"""Bytes of a coordinate, and of all that are read together."""


class Coordinates:
    """Small arrays of one dimension that have its name, all read when the first is.

    Only of a session that reads one snapshot: another may have written to them since the first was read.
    """

    def __init__(self, session: SessionBase, paths: Iterable[str]) -> None:
        self._session = session
        self._waiting = tuple(paths)
        self._values: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._session, ())

    @classmethod
    def among(cls, session: SessionBase, arrays: Iterable[Node]) -> Self:
        """Return the coordinates among the arrays of a group."""
        paths: list[str] = []
        total = 0
        for node in arrays if session.read_only else ():
            layout = layout_of(session.hierarchy.handle(node))
            size = layout.dtype.itemsize * int(np.prod(layout.shape))
            if _dimensions(layout.metadata) == (node.path.rpartition("/")[2],) and size <= _LARGEST:
                total += size
                paths.append(node.path)
        return cls(session, paths if len(paths) > 1 and total <= _LARGEST_TOGETHER else ())

    def get(self, path: str) -> Any:
        """Return the values of a coordinate; None for an array that is none, or that must be read alone."""
        with self._lock:
            if path in self._waiting:
                waiting, self._waiting = self._waiting, ()
                try:
                    found = self._session.read_many([(each, ...) for each in waiting])
                except ArrayStoreError:
                    return None  # each is read alone, and the one that cannot be says why
                self._values = dict(zip(waiting, found, strict=True))
            return self._values.get(path)

    def drop(self, path: str) -> None:
        """Forget a coordinate, of which the caller has all values now."""
        with self._lock:
            self._values.pop(path, None)


def _dimensions(metadata: Any) -> tuple[str, ...]:
    """Return the names of dimensions of an array of Zarr v3; nothing for others, whose coordinates are read alone."""
    return tuple(getattr(metadata, "dimension_names", None) or ())
