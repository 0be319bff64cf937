"""Storage that refuses every write, for programs that only look."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Never

from arraystore.errors import ReadOnlyError
from arraystore.storage.protocol import BytesLike
from arraystore.storage.wrapper import StorageRequest, WrapperStorage

__all__ = ["ReadOnlyStorage"]

_READS = frozenset({"get", "get_ranges", "head"})


class ReadOnlyStorage(WrapperStorage):
    """Storage that reads from another one and refuses to write or delete, before any request is sent.

    Parameters
    ----------
    inner
        Storage that handles the reads.

    Raises
    ------
    ReadOnlyError
        By every method that would change an object.
    """

    def around(self, request: StorageRequest) -> Generator[float, Any, None]:
        """Refuse every request but a read."""
        if request.operation not in _READS:
            self._refuse(request.operation, request.keys)
        yield 0.0
        yield 0.0

    async def sync(self) -> None:
        """Return at once: nothing was written."""

    def put_sync(self, key: str, data: BytesLike) -> None:
        """Refuse to write an object."""
        self._refuse("put", (key,))

    def _refuse(self, operation: str, keys: tuple[str, ...]) -> Never:
        named = keys[0] if keys else ""
        raise ReadOnlyError(
            f"{operation} of {named!r} was refused: {self.location} was opened through ReadOnlyStorage; "
            "open it without to write"
        )
