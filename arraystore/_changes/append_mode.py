"""The dimension along which the arrays of a session are appended to, for as long as any block says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from arraystore.errors import SessionStateError


class AppendMode:
    """The dimension of the blocks that are open, which may be nested, or overlap in several threads."""

    def __init__(self) -> None:
        self.dimension: str | None = None
        """Name of the dimension; None if no block is open."""
        self._blocks = 0
        self._lock = threading.Lock()

    @contextmanager
    def along(self, dimension: str) -> Iterator[None]:
        """Mark arrays that grow along a dimension as appended to, until the last block has ended.

        Raises `SessionStateError` if a block of another dimension is open.
        """
        self._begin(dimension)
        try:
            yield
        finally:
            self._end()

    def _begin(self, dimension: str) -> None:
        with self._lock:
            if self.dimension not in (None, dimension):
                raise SessionStateError(
                    f"the session is appending along {self.dimension!r} already: end that block first"
                )
            self.dimension = dimension
            self._blocks += 1

    def _end(self) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks:
                self.dimension = None
