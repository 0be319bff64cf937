"""What a storage has to offer: a small set of operations on immutable objects.

Everything above this floor reaches the world through :class:`Storage` only.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from arraystore._runtime import run

__all__ = ["ByteRange", "BytesLike", "DeleteFailure", "ObjectInfo", "Storage"]

BytesLike = bytes | bytearray | memoryview
"""What a storage takes and gives: any contiguous run of bytes."""

ByteRange = tuple[int, int]
"""First byte, and the byte after the last: half open, both not negative."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing or :meth:`Storage.head` tells about an object."""

    key: str
    size: int
    """Bytes."""
    modified: float | None = field(default=None, compare=False)
    """When it was written, in seconds, by the storage's own clock; None where that is not known."""
    etag: str | None = field(default=None, compare=False)
    """Entity tag: another one whenever the content is another one; None where that is not known."""


@dataclass(frozen=True, slots=True)
class DeleteFailure:
    """An object that :meth:`Storage.delete` could not delete, and why."""

    key: str
    reason: str


class Storage(abc.ABC):
    """Objects under string keys, each written once.

    Keys are relative to the storage's own prefix, with ``/`` between their parts and no part empty, ``.`` or ``..``.
    Every method may be called from any thread and any event loop.  The asynchronous methods are the full interface;
    those that end in ``_sync`` serve the path of chunk data, where an event loop would cost more than the request.

    Raises
    ------
    StorageError
        By every method, when the backend fails for good after the retries that its settings allow.
    """

    cheap_probes: bool = False
    """Whether asking for a missing key costs next to nothing (memory, local directory), so that searching by
    probing beats a listing."""

    shared: bool = True
    """Whether another process that unpickles it finds the same objects, unlike in memory."""

    listing_lag: float = 0.0
    """Most seconds for which a listing may miss what was written; 0 where it never does, as of S3, GCS and Azure."""

    @property
    @abc.abstractmethod
    def location(self) -> str:
        """Where this is, as a URL without secrets; equal locations hold the same objects."""

    @abc.abstractmethod
    async def get(self, key: str) -> BytesLike:
        """Return a whole object.

        Raises
        ------
        ObjectNotFoundError
            If there is none.
        """

    @abc.abstractmethod
    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object, in the order asked for; neighbours travel in one request.

        A range that reaches past the end of the object is a `StorageError`: references are exact.
        """

    async def get_source_ranges(self, key: str, ranges: Sequence[ByteRange]) -> tuple[list[BytesLike], ObjectInfo]:
        """Return byte ranges of an object that others may change, and the state of the object that they are of.

        Where the answer to the request does not tell the state, it is looked up after the bytes were read: what is
        the expected state then was so before.  Without ranges the state alone is looked up.
        """
        data = await self.get_ranges(key, ranges) if ranges else []
        return data, await self.head(key)

    @abc.abstractmethod
    async def put(self, key: str, data: BytesLike) -> None:
        """Write an object, atomically: seen whole or not at all.

        It is visible on return, and durable after the next `sync`.  The caller may reuse `data` after return.
        """

    async def put_parts(self, key: str, parts: Sequence[BytesLike]) -> None:
        """Like `put`, for an object that consists of several runs of bytes, one after the other."""
        await self.put(key, b"".join(parts))

    @abc.abstractmethod
    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Write an object unless one of this key exists; atomic among all processes and machines.

        Visible and durable on return.

        Returns
        -------
        bool
            True if this call wrote it.  After a lost acknowledgement a retry may find the caller's own object:
            where the bytes there equal `data`, the answer is True too.  False says that there is an object.  A storage
            that sees its own requests only cannot know more: a proxy may have sent one twice, and given the answer to
            the second.  Whoever depends on it compares (`arraystore.storage.comparing`).
        """

    async def put_new(self, key: str, data: BytesLike) -> bool:
        """Like `put_if_absent`, for bytes that this caller has not sent before.

        Whatever is there is somebody else's in all likelihood, so that a storage need not read it.  False says only
        that there is an object, not whose it is: the caller compares before it depends on that.
        """
        return await self.put_if_absent(key, data)

    @abc.abstractmethod
    async def head(self, key: str) -> ObjectInfo:
        """Tell about one object without reading it.

        Raises
        ------
        ObjectNotFoundError
            If there is none.
        """

    @abc.abstractmethod
    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete objects, in batches where the backend can; a key that does not exist is no failure."""

    @abc.abstractmethod
    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects in ascending (code point) order of their keys, page by page.

        Parameters
        ----------
        prefix
            Listed are keys that start with this text; it need not end at a ``/``.
        start_after
            Only keys greater than this one.
        """

    async def sync(self) -> None:  # noqa: B027 - object stores are durable as they are
        """Return once every earlier `put` through this object, in this process, is durable."""

    # The path of chunk data, without an event loop of the caller's.

    def get_sync(self, key: str) -> BytesLike:
        """Like `get`."""
        return run(_whole(self, key))

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        """One range, like `get_ranges`."""
        return run(self.get_ranges(key, [(start, stop)]))[0]

    def get_source_range_sync(self, key: str, start: int, stop: int) -> tuple[BytesLike, ObjectInfo]:
        """One range, like `get_source_ranges`."""
        (data,), info = run(self.get_source_ranges(key, [(start, stop)]))
        return data, info

    def put_sync(self, key: str, data: BytesLike) -> None:
        """Like `put`."""
        run(self.put(key, data))

    def put_parts_sync(self, key: str, parts: Sequence[BytesLike]) -> None:
        """Like `put_parts`."""
        self.put_sync(key, b"".join(parts))


async def _whole(storage: Storage, key: str) -> BytesLike:
    return await storage.get(key)
