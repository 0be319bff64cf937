"""Storage protocol: a small set of operations on immutable objects.

All packages above access storage through :class:`Storage` only.
"""

from __future__ import annotations

import abc
import math
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arraystore._runtime import run
from arraystore.errors import InvalidInputError
from arraystore.storage.cache_usage import CacheUsage

if TYPE_CHECKING:
    from arraystore.storage.part_stream import PartStream

__all__ = ["ByteRange", "BytesLike", "DeleteFailure", "ObjectInfo", "Storage", "check_listing_lag", "holds"]

BytesLike = bytes | bytearray | memoryview
"""Payload of an object: any contiguous buffer."""

ByteRange = tuple[int, int]
"""Half-open range of bytes: first byte, and the byte after the last; both >= 0."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Size and state of an object, from a listing or :meth:`Storage.head`."""

    key: str
    size: int
    """Size in bytes."""
    modified: float | None = field(default=None, compare=False)
    """Time of modification in seconds since 1970, by the storage's clock; None if unknown."""
    etag: str | None = field(default=None, compare=False)
    """Entity tag, different whenever the content differs; None if unknown."""


@dataclass(frozen=True, slots=True)
class DeleteFailure:
    """Object that :meth:`Storage.delete` failed to delete, with the reason."""

    key: str
    reason: str


class Storage(abc.ABC):
    """Objects under string keys, each written once.

    Keys are relative to the storage's own prefix, with ``/`` between their parts and no part empty, ``.`` or ``..``.
    All methods are thread-safe and may be called from any event loop.  The asynchronous methods are the full interface;
    those that end in ``_sync`` serve the chunk data path, where an event loop would cost more than the request.

    Raises
    ------
    StorageError
        By every method, when a request fails after all retries.
    """

    cheap_probes: bool = False
    """True if a request for a missing key costs next to nothing (memory, local directory), so that probing is
    cheaper than a listing."""

    shared: bool = True
    """True if a process that unpickles the storage sees the same objects, unlike with storage in memory."""

    listing_lag: float = 0.0
    """Maximum time in seconds for which a listing may miss new objects; 0 for consistent listings, as of S3, GCS and
    Azure."""

    part_bytes: int = 0
    """Size of the parts in which objects can be uploaded while they are written, by `put_stream`; 0 if they cannot."""

    @property
    @abc.abstractmethod
    def location(self) -> str:
        """URL of the storage, without secrets; equal locations hold the same objects."""

    def _repr_html_(self) -> str:
        from arraystore._runtime.display import View, view_or_reason
        from arraystore._runtime.redaction import redact

        def view() -> View:
            facts = ("location", redact(self.location)), ("shared by processes", "yes" if self.shared else "no")
            return View(type(self).__name__, facts)

        return view_or_reason(type(self).__name__, view).to_html()

    @abc.abstractmethod
    async def get(self, key: str) -> BytesLike:
        """Return a whole object.

        Raises
        ------
        ObjectNotFoundError
            If the object does not exist.
        """

    @abc.abstractmethod
    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object, in the requested order; nearby ranges share a request.

        A range that extends past the end of the object raises `StorageError`: references are exact.
        """

    async def get_source_ranges(self, key: str, ranges: Sequence[ByteRange]) -> tuple[list[BytesLike], ObjectInfo]:
        """Return byte ranges of an object that others may change, and the state of the object that they belong to.

        If the response does not include the state, it is looked up after the bytes were read: if it is the expected
        state then, it was the expected state before.  Without ranges only the state is looked up.
        """
        data = await self.get_ranges(key, ranges) if ranges else []
        return data, await self.head(key)

    @abc.abstractmethod
    async def put(self, key: str, data: BytesLike) -> None:
        """Write an object atomically.

        It is visible on return, and durable after the next `sync`.  The caller may reuse `data` after return.
        """

    async def put_parts(self, key: str, parts: Sequence[BytesLike]) -> None:
        """Write an object that consists of several parts, one after the other, like `put`."""
        await self.put(key, b"".join(parts))

    async def put_stream(self, key: str, parts: PartStream) -> None:
        """Write an object while its parts come, each but the last one of `part_bytes`; atomic like `put`.

        Nobody sees the object before its last part; if it is abandoned before, nobody ever does.  A failure is not
        repeated as a whole, since the parts are gone.
        """
        await self.put(key, b"".join([part async for part in parts]))

    @abc.abstractmethod
    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Write an object unless one of this key exists; atomic across all processes and machines.

        Visible and durable on return.

        Returns
        -------
        bool
            True if this call wrote the object, or if after a lost acknowledgement the existing bytes equal `data`.
            False only means that an object exists: it may be the caller's own, as a proxy may have sent the request
            twice and passed on the response to the second.  Callers that depend on it compare the bytes
            (`holds`).

        Raises
        ------
        PermissionDeniedError
            If the write was denied, so that nothing was written.
        StorageError
            If anything else failed, reading an existing object included: the object may have been written.
        """

    async def put_new(self, key: str, data: BytesLike) -> bool:
        """Write an object like `put_if_absent`, with bytes that this caller has not sent before.

        An existing object is then most likely another writer's, so that a storage need not read it.  False only
        means that an object exists, not whose it is: callers that depend on it compare the bytes.
        """
        return await self.put_if_absent(key, data)

    @abc.abstractmethod
    async def head(self, key: str) -> ObjectInfo:
        """Return size and state of an object without reading it.

        Raises
        ------
        ObjectNotFoundError
            If the object does not exist.
        """

    @abc.abstractmethod
    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete objects, in batches where the backend supports it; a missing key is not a failure."""

    @abc.abstractmethod
    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects in ascending (code point) order of their keys, page by page.

        Parameters
        ----------
        prefix
            Start of the keys to list; it need not end with ``/``.
        start_after
            Key after which to start.
        """

    async def sync(self) -> None:  # noqa: B027 - object stores are durable as they are
        """Return once every earlier `put` through this object, in this process, is durable."""

    # Caches in front of a storage.

    @property
    def origin(self) -> Storage:
        """The storage past caches, for whoever has to see what is really there."""
        return self

    @property
    def disk_usage(self) -> CacheUsage:
        """Return what a cache on disk holds, and how often it helped; all 0 without one."""
        return CacheUsage()

    def forget(self, key: str) -> None:  # noqa: B027 - most storages cache nothing
        """Drop what is cached of an object, which turned out to be damaged."""

    # The chunk data path, without an event loop of the caller.

    def get_sync(self, key: str) -> BytesLike:
        """Return a whole object, synchronously."""
        return run(self.get(key))

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        """Return one byte range, synchronously."""
        return run(self.get_ranges(key, [(start, stop)]))[0]

    def get_range_into(self, key: str, start: int, buffer: memoryview) -> BytesLike:
        """Return the byte range that fills a buffer, in the buffer or, without a copy, in other memory."""
        return self.get_range_sync(key, start, start + len(buffer))

    def get_source_range_sync(self, key: str, start: int, stop: int) -> tuple[BytesLike, ObjectInfo]:
        """Return one byte range and the state of the object, synchronously."""
        (data,), info = run(self.get_source_ranges(key, [(start, stop)]))
        return data, info

    def put_sync(self, key: str, data: BytesLike) -> None:
        """Write an object, synchronously."""
        run(self.put(key, data))

    def put_parts_sync(self, key: str, parts: Iterable[BytesLike]) -> None:
        """Write an object of several parts, synchronously."""
        self.put_sync(key, b"".join(parts))


async def holds(storage: Storage, key: str, data: BytesLike) -> bool:
    """Return whether the object of a key has exactly these bytes; raises `ObjectNotFoundError` without an object.

    A refused put-if-absent only means that an object exists.  It may be the caller's own: an intermediary may have
    sent the request twice, and passed on the response to the second.
    """
    return memoryview(await storage.get(key)) == memoryview(data)


def check_listing_lag(seconds: float) -> float:
    """Return a listing lag as a float; raises `InvalidInputError` unless it is a finite number >= 0."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise InvalidInputError(f"storage setting listing_lag={seconds!r} must be a number of seconds >= 0")
    return float(seconds)
