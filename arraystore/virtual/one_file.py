"""Registry of the one file that a parser reads, whose name is taken as it is.

Names of files and keys of objects are not encoded in the locations of virtual chunks.  VirtualiZarr parses locations as
URLs, which end at ``#``, ``?`` or ``;``: it would read another file.
"""

from __future__ import annotations

from typing import Any

from obspec_utils.registry import ObjectStoreRegistry

__all__ = ["OneFileRegistry"]


class OneFileRegistry(ObjectStoreRegistry[Any]):
    """Registry that resolves all URLs to one file of a store."""

    def __init__(self, root: str, store: Any, path: str) -> None:
        super().__init__({root: store})
        self._root = root
        self._store = store
        self._file = path

    def resolve(self, url: str) -> tuple[Any, str]:
        """Return the store and the path of the file."""
        return self._store, self._file

    def for_values(self) -> OneFileRegistry:
        """Return the same for readers of values, which make paths of URLs by themselves."""
        return OneFileRegistry(self._root, _OneFile(self._store, self._file), self._file)


class _OneFile:
    """Store whose only object has any path."""

    def __init__(self, store: Any, path: str) -> None:
        self._store = store
        self._path = path

    async def get_range_async(self, path: str, **span: int) -> Any:
        """Return a range of bytes of the file."""
        return await self._store.get_range_async(self._path, **span)
