"""Storage in the memory of this process, for tests and scratch data."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Sequence
from typing import Any, NoReturn

from arraystore.errors import ObjectNotFoundError, StorageError
from arraystore.storage.forking import ForkSafeLock
from arraystore.storage.keys import check_key, check_range
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo, Storage

__all__ = ["MemoryStorage", "in_memory_storage", "named_memory_storage"]

_PAGE = 1000
# Above this a view is cheaper than a copy of the bytes.
_VIEW_FROM = 32 * 1024

_alive: weakref.WeakValueDictionary[str, MemoryStorage] = weakref.WeakValueDictionary()


class MemoryStorage(Storage):
    """Objects in a dictionary, lost with the last reference to the storage.

    Instances share nothing.  Unpickling in the same process returns the same storage; in any other process, a forked
    one included, every use of what is unpickled is an error, since writes there would not be visible here.

    Parameters
    ----------
    name
        Name shown in `location`; random by default.
    """

    cheap_probes = True
    shared = False

    def __init__(self, name: str | None = None) -> None:
        self._id = uuid.uuid4().hex
        self._name = name if name is not None else self._id
        self._objects: dict[str, bytes] = {}
        self._written: dict[str, float] = {}
        # Time of modification and, once requested, the digest, for virtual chunks.
        self._states: dict[str, tuple[float, str | None]] = {}
        # Sorted keys, plus those added since: sorting two runs together is linear.  None after a delete.
        self._ordered: list[str] | None = []
        self._unordered: list[str] = []
        self._lock = ForkSafeLock()
        _alive[self._id] = self

    @property
    def location(self) -> str:
        """``memory://`` and the name; only valid within this process."""
        return f"memory://{self._name}"

    def __repr__(self) -> str:
        return f"MemoryStorage({self._name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_same_storage, (self._id, os.getpid(), self.location))

    def _object(self, key: str) -> bytes:
        data = self._objects.get(key)
        if data is None:
            check_key(key)
            raise ObjectNotFoundError(key, self.location)
        return data

    def get_sync(self, key: str) -> BytesLike:
        """Return a whole object, synchronously."""
        return self._object(key)

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        """Return one byte range, synchronously."""
        data = self._object(key)
        check_range(key, start, stop)
        if stop > len(data):
            raise StorageError(
                f"{self.location}: bytes {start}..{stop} of {key!r} are out of range, the object has {len(data)} "
                "bytes: it is not the object that the reference was written for"
            )
        return data[start:stop] if stop - start < _VIEW_FROM else memoryview(data)[start:stop]

    def put_sync(self, key: str, data: BytesLike) -> None:
        """Write an object, synchronously."""
        check_key(key)
        copy = bytes(data)
        with self._lock:
            if key not in self._objects:
                self._unordered.append(key)
            self._objects[key] = copy
            self._record_write(key)

    def _record_write(self, key: str) -> None:
        self._written[key] = time.monotonic()
        self._states[key] = time.time(), None

    def get_source_range_sync(self, key: str, start: int, stop: int) -> tuple[BytesLike, ObjectInfo]:
        """Return one byte range and the state of the object, synchronously."""
        with self._lock:
            data = self.get_range_sync(key, start, stop)
            return data, self._source_info(key)

    async def get_source_ranges(self, key: str, ranges: Sequence[ByteRange]) -> tuple[list[BytesLike], ObjectInfo]:
        """Return byte ranges of an object and its state, with a digest of the content as entity tag."""
        with self._lock:
            data = [self.get_range_sync(key, start, stop) for start, stop in ranges]
            return data, self._source_info(key)

    def _source_info(self, key: str) -> ObjectInfo:
        data = self._object(key)
        written, etag = self._states[key]
        if etag is None:
            etag = hashlib.blake2b(data, digest_size=12).hexdigest()
            self._states[key] = written, etag
        return ObjectInfo(key, len(data), written, etag)

    async def get(self, key: str) -> BytesLike:
        """Return a whole object."""
        return self._object(key)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object."""
        return [self.get_range_sync(key, start, stop) for start, stop in ranges]

    async def put(self, key: str, data: BytesLike) -> None:
        """Write a copy of `data`."""
        self.put_sync(key, data)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Write a copy of `data` unless there is an object of this key."""
        check_key(key)
        copy = bytes(data)
        with self._lock:
            existing = self._objects.get(key)
            if existing is None:
                self._objects[key] = copy
                self._record_write(key)
                self._unordered.append(key)
        return existing is None or existing == copy

    async def head(self, key: str) -> ObjectInfo:
        """Return size and state of an object."""
        return ObjectInfo(key, len(self._object(key)))

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete objects."""
        for key in keys:
            check_key(key)
        with self._lock:
            for key in keys:
                if self._objects.pop(key, None) is not None:
                    self._ordered = None
                    self._states.pop(key, None)
        return []

    def _keys(self) -> list[str]:
        """Return all keys in order; the list is never changed in place, so it can be read without the lock."""
        with self._lock:
            ordered = self._ordered
            if ordered is None:
                ordered = sorted(self._objects)
            elif self._unordered:
                ordered = sorted(ordered + sorted(self._unordered))
            self._ordered = ordered
            self._unordered = []
            return ordered

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects in order of their keys."""
        keys = self._keys()
        position = max(bisect_left(keys, prefix), bisect_right(keys, start_after))
        page: list[ObjectInfo] = []
        for index in range(position, len(keys)):
            key = keys[index]
            if not key.startswith(prefix):
                break
            data = self._objects.get(key)
            if data is not None:
                page.append(ObjectInfo(key, len(data), self._written.get(key)))
            if len(page) == _PAGE:
                yield page
                page = []
        if page:
            yield page


def in_memory_storage() -> MemoryStorage:
    """Create a storage in the memory of this process; each call creates a separate one."""
    return MemoryStorage()


_named: dict[str, MemoryStorage] = {}


def named_memory_storage(name: str) -> MemoryStorage:
    """Return the storage of a name, which lives as long as the process."""
    storage = _named.get(name)
    return storage if storage is not None else _named.setdefault(name, MemoryStorage(name))


class _UnreachableStorage(MemoryStorage):
    """Storage in the memory of another process, or one that no longer exists: every use of it is an error."""

    def __init__(self, storage_id: str, pid: int, location: str) -> None:
        self._reduced = storage_id, pid, location
        self._lock = ForkSafeLock()

    @property
    def location(self) -> str:
        """``memory://`` and the name; only valid within its process."""
        return self._reduced[2]

    def __repr__(self) -> str:
        return f"<unreachable {self.location}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _same_storage, self._reduced

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        # The objects and the keys, which no method of the storage does without.
        raise StorageError(
            f"{self.location} is in the memory of another process, or no longer exists; use local_filesystem_storage "
            "or an object store for work in several processes"
        )


def _same_storage(storage_id: str, pid: int, location: str) -> MemoryStorage:
    """Return the storage that was pickled; in another process one that fails when it is used, not here.

    Schedulers report errors of tasks, not of unpickling them.
    """
    storage = _alive.get(storage_id) if os.getpid() == pid else None
    return _UnreachableStorage(storage_id, pid, location) if storage is None else storage
