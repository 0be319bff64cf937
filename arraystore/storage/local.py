"""Storage in a directory of a local or network filesystem, safe for concurrent commits by many processes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from arraystore.errors import (
    InvalidInputError,
    ObjectNotFoundError,
    PermissionDeniedError,
    StorageError,
    UnsupportedStorageError,
)
from arraystore.storage.forking import ForkSafeLock
from arraystore.storage.keys import check_key, check_range
from arraystore.storage.local_files import (
    fsync_entries,
    fsync_path,
    link_exclusively,
    remove_leftovers,
    walk,
    write_file,
)
from arraystore.storage.local_fsyncs import fsync_each, is_write_back_error
from arraystore.storage.local_handles import Handle, HandleCache
from arraystore.storage.local_sources import check_below, file_info, is_same_file
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo, Storage, check_listing_lag

__all__ = ["LocalStorage", "local_filesystem_storage"]

_PAGE = 1000
_TEMPORARY = ".tmp"
_OPEN_FILES = 64
# Up to here a read or a write that is not fsynced takes less time than a hop to a thread and back.
_INLINE_BYTES = 256 * 1024
_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

_REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of the quota",
    errno.EACCES: "check the permissions of the directory",
    errno.EPERM: "check the permissions of the directory",
    errno.EROFS: "mount the filesystem for writing, or open the repository for reading only",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files",
    errno.ENAMETOOLONG: "use shorter names",
    errno.EXDEV: "keep the whole directory on one filesystem",
    errno.ENOTDIR: "a file exists where a directory is needed: use another name or another directory",
    errno.EISDIR: "a directory exists where a file is needed: use another name or another directory",
}


class LocalStorage(Storage):
    """Objects as files below a directory, the key being the relative path.

    Files appear atomically, by a rename or, in `put_if_absent`, by a hard link, which fails if the name exists.
    Temporary files are in ``.tmp`` below the directory and are never listed.

    Parameters
    ----------
    path
        Directory, created when the first object is written.
    fsync
        Whether `put_if_absent` and `sync` wait until the data has reached the disk.  With False everything is still
        atomic, but a power failure can undo or truncate acknowledged writes.
    follow_symlinks
        Whether to read virtual chunks through symbolic links that lead out of the directory.  The repository's own
        objects are read through them in any case.
    listing_lag
        Maximum time in seconds for which a listing may miss new objects, as on clients of a network filesystem.
    """

    cheap_probes = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        fsync: bool = True,
        follow_symlinks: bool = False,
        listing_lag: float = 0.0,
    ) -> None:
        self.listing_lag = check_listing_lag(listing_lag)
        if not hasattr(os, "pread"):
            raise UnsupportedStorageError("local storage needs a POSIX system; use an object store on this one")
        try:
            os.fsencode(path)
            # The real path, so that the same directory has the same location.
            self._root = os.path.realpath(os.fspath(path))
            self._location = Path(self._root).as_uri()
        except ValueError as error:
            raise InvalidInputError(f"{os.fspath(path)!r} is not a valid path of a directory: {error}") from None
        self._fsync = fsync
        self._follow_symlinks = follow_symlinks
        self._temporary = f"{self._root}/{_TEMPORARY}"
        self._handles = HandleCache(_OPEN_FILES)
        self._handle = self._handles.get
        self._unsynced: dict[str, None] = {}
        self._lost: set[str] = set()
        # Directories whose own entries, all the way up, are known to be durable.
        self._durable_directories: set[str] = set()
        self._swept = False
        self._lock = ForkSafeLock()
        self._sync_lock = ForkSafeLock()

    @property
    def location(self) -> str:
        """The directory as a ``file://`` URL."""
        return self._location

    @property
    def path(self) -> str:
        """The directory, absolute and without symbolic links."""
        return self._root

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r}{'' if self._fsync else ', fsync=False'})"

    def __reduce__(self) -> tuple[Any, ...]:
        options: dict[str, Any] = {"follow_symlinks": self._follow_symlinks, "listing_lag": self.listing_lag}
        return (partial(LocalStorage, fsync=self._fsync, **options), (self._root,))

    # Reading

    def get_sync(self, key: str) -> BytesLike:
        """Return a whole object, synchronously."""
        handle, size = self._open(key)
        return self._read(handle, key, 0, size)

    def get_range_into(self, key: str, start: int, buffer: memoryview) -> BytesLike:
        """Return the byte range that fills a buffer, in the buffer."""
        try:
            handle = self._current(key)
            if start >= 0 and os.preadv(handle.fd, [buffer], start) == len(buffer):
                return buffer
        except ObjectNotFoundError:
            raise
        except OSError as error:
            self._fail("read", key, error)
        return self.get_range_sync(key, start, start + len(buffer))

    def _current(self, key: str) -> Handle:
        """Return the open file of a key, opened again if it has no link: it was deleted or replaced."""
        handle = self._handle(key)
        if handle is None or not os.fstat(handle.fd).st_nlink:
            handle = self._open_to_keep(key)
        handle.used = True
        return handle

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        """Return one byte range, synchronously."""
        try:
            handle = self._current(key)
            if 0 <= start < stop:
                data = os.pread(handle.fd, stop - start, start)
                if len(data) == stop - start:
                    return data
        except ObjectNotFoundError:
            raise
        except OSError as error:
            self._fail("read", key, error)
        check_range(key, start, stop)
        return self._read(handle, key, start, stop)

    async def get(self, key: str) -> BytesLike:
        """Return a whole object."""
        handle, size = self._open(key)
        if size <= _INLINE_BYTES:
            return self._read(handle, key, 0, size)
        return await asyncio.to_thread(self._read, handle, key, 0, size)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object."""
        if sum(stop - start for start, stop in ranges) <= _INLINE_BYTES:
            return self._ranges(key, ranges)
        return await asyncio.to_thread(self._ranges, key, ranges)

    def _ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        return [self.get_range_sync(key, start, stop) for start, stop in ranges]

    def _open(self, key: str) -> tuple[Handle, int]:
        check_key(key)
        try:
            # without blocking on a named pipe
            flags = os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
            handle = Handle(os.open(f"{self._root}/{key}", flags))
            status = os.fstat(handle.fd)
        except _MISSING:
            raise ObjectNotFoundError(key, self.location) from None
        except OSError as error:
            self._fail("read", key, error)
        if status.st_mode & 0o170000 == 0o040000:
            raise ObjectNotFoundError(key, self.location)
        return handle, status.st_size

    def _open_to_keep(self, key: str) -> Handle:
        self._handles.drop(key)
        handle, _ = self._open(key)
        self._handles.add(key, handle)
        return handle

    def _read(self, handle: Handle, key: str, start: int, stop: int) -> BytesLike:
        """Read exactly these bytes; one system call returns 2 GiB at most."""
        parts: list[bytes] = []
        position = start
        while position < stop:
            try:
                part = os.pread(handle.fd, stop - position, position)
            except OSError as error:
                self._fail("read", key, error)
            if not part:
                raise StorageError(
                    f"{self.location}: bytes {start}..{stop} of {key!r} are out of range, the object has {position} "
                    "bytes: it is not the object that the reference was written for, or it was truncated"
                    if position > start
                    else f"{self.location}: bytes {start}..{stop} of {key!r} are beyond the end of the object: "
                    "it is not the object that the reference was written for, or it was truncated"
                )
            parts.append(part)
            position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # Reading objects that others may change

    def get_source_range_sync(self, key: str, start: int, stop: int) -> tuple[BytesLike, ObjectInfo]:
        """Return one byte range and the state of the object, synchronously."""
        data, info = self._source_ranges(key, [(start, stop)])
        return data[0], info

    async def get_source_ranges(self, key: str, ranges: Sequence[ByteRange]) -> tuple[list[BytesLike], ObjectInfo]:
        """Return byte ranges of a file that others may change, and its state after that."""
        if sum(stop - start for start, stop in ranges) <= _INLINE_BYTES:
            return self._source_ranges(key, ranges)
        return await asyncio.to_thread(self._source_ranges, key, ranges)

    def _source_ranges(self, key: str, ranges: Sequence[ByteRange]) -> tuple[list[BytesLike], ObjectInfo]:
        handle = self._source(key)
        for start, stop in ranges:
            check_range(key, start, stop)
        data = [self._read(handle, key, start, stop) for start, stop in ranges]
        return data, file_info(key, os.fstat(handle.fd))

    def _source(self, key: str) -> Handle:
        """Return the file that a path currently leads to; raises unless it may be read."""
        path = f"{self._root}/{key}"
        handle = self._handle(key)
        if handle is None or not is_same_file(handle.fd, path):
            handle = self._open_to_keep(key)
        if not (handle.below or self._follow_symlinks):
            check_below(handle.fd, path, self._root)
            handle.below = True
        handle.used = True
        return handle

    # Writing

    def put_sync(self, key: str, data: BytesLike) -> None:
        """Write an object, synchronously."""
        self.put_parts_sync(key, (data,))

    def put_parts_sync(self, key: str, parts: Iterable[BytesLike]) -> None:
        """Write an object of several parts, synchronously."""
        self._check_writable(key)
        path = f"{self._root}/{key}"
        try:
            temporary = self._write(parts, fsync=False)
            try:
                self._move_into_place(os.rename, temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            self._fail("write", key, error)
        self._handles.drop(key)
        if self._fsync:
            with self._lock:
                self._unsynced[path] = None
                self._lost.discard(path)

    async def put(self, key: str, data: BytesLike) -> None:
        """Write an object, atomically; durable after the next `sync`."""
        await self.put_parts(key, (data,))

    async def put_parts(self, key: str, parts: Sequence[BytesLike]) -> None:
        """Write an object of several parts, none of which is copied."""
        if sum(map(len, parts)) <= _INLINE_BYTES:
            self.put_parts_sync(key, parts)
        else:
            await asyncio.to_thread(self.put_parts_sync, key, parts)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Write an object unless one of this key exists; durable on return."""
        if self._fsync or len(data) > _INLINE_BYTES:
            return await asyncio.to_thread(self._put_if_absent, key, data)
        return self._put_if_absent(key, data)

    def _put_if_absent(self, key: str, data: BytesLike) -> bool:
        self._check_writable(key)
        path = f"{self._root}/{key}"
        try:
            written = self._link(path, data)
            while not written:
                existing = self._read_existing(key, path)
                if existing is not None:
                    written = existing == data
                    break
                written = self._link(path, data)  # the existing object was deleted meanwhile
            if self._fsync:
                self._make_entry_durable(path)
        except OSError as error:
            self._fail("write", key, error, certain=not os.path.lexists(path))
        except PermissionDeniedError as error:  # of reading what exists, which may be this object
            raise StorageError(error.message) from error
        return written

    def _link(self, path: str, data: BytesLike) -> bool:
        if os.path.lexists(path):
            return False
        temporary = self._write((data,), fsync=self._fsync)
        try:
            self._move_into_place(link_exclusively, temporary, path)
            return True
        except FileExistsError:
            return False
        finally:
            _unlink_if_there(temporary)

    def _read_existing(self, key: str, path: str) -> BytesLike | None:
        try:
            return self.get_sync(key)
        except ObjectNotFoundError:
            if os.path.isdir(path):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path) from None
            return None

    def _write(self, parts: Iterable[BytesLike], *, fsync: bool) -> str:
        if not self._swept:
            self._swept = True
            remove_leftovers(self._temporary)
        return write_file(self._temporary, parts, fsync=fsync)

    def _move_into_place(self, move: Callable[[str, str], None], temporary: str, path: str) -> None:
        try:
            move(temporary, path)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            move(temporary, path)

    def _check_writable(self, key: str) -> None:
        check_key(key)
        if key.partition("/")[0] == _TEMPORARY:
            raise StorageError(f"{self.location}: the object key {key!r} starts with {_TEMPORARY!r}, which is reserved")

    # Durability

    async def sync(self) -> None:
        """Return once every earlier `put` through this object, in this process, is on disk."""
        if self._fsync:
            await asyncio.to_thread(self._sync)

    def _sync(self) -> None:
        with self._sync_lock:  # also waits for a sync in progress
            with self._lock:
                paths = list(self._unsynced)
                self._unsynced = {}
            try:
                fsync_each(self._sync_file, paths)
                fsync_each(self._make_entry_durable, _one_per_directory(paths))
            except BaseException as error:  # no thread could be started, for instance
                self._keep_unsynced(paths, error)
                if isinstance(error, OSError):
                    self._fail("sync", str(error.filename or ""), error)
                raise
            if self._lost:
                lost = os.path.relpath(min(self._lost), self._root)
                raise StorageError(
                    f"{self.location}: {len(self._lost)} objects, {lost!r} among them, were not made durable by an "
                    "earlier sync; check the disk and write them again"
                )

    def _keep_unsynced(self, paths: Sequence[str], error: BaseException) -> None:
        """Record for later syncs that these files are not durable."""
        with self._lock:
            if is_write_back_error(error):
                # The kernel reports a failed write-back once, so a lost file must not count as durable later.
                self._lost.update(paths)
            else:
                self._unsynced.update(dict.fromkeys(paths))

    def _sync_file(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
            fsync_path(path)

    def _make_entry_durable(self, path: str) -> None:
        """Fsync the directory of a file, and once per directory its parents, which may be new too."""
        directory = os.path.dirname(path)
        fsync_entries(directory, ancestors=directory not in self._durable_directories)
        self._durable_directories.add(directory)

    # Listing and deleting

    async def head(self, key: str) -> ObjectInfo:
        """Return size and state of an object."""
        _, size = self._open(key)
        return ObjectInfo(key, size)

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete files; directories stay."""
        for key in keys:
            check_key(key)
        return await asyncio.to_thread(self._delete, keys)

    def _delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        failures: list[DeleteFailure] = []
        for key in keys:
            self._handles.drop(key)
            try:
                os.unlink(f"{self._root}/{key}")
            except _MISSING:
                continue
            except OSError as error:
                failures.append(DeleteFailure(key, str(error)))
        return failures

    def _next_page(self, infos: Iterator[ObjectInfo], prefix: str) -> list[ObjectInfo]:
        try:
            return list(itertools.islice(infos, _PAGE))
        except OSError as error:
            self._fail("list", prefix, error)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects in order of their keys."""
        infos = walk(self._root, prefix, start_after, _TEMPORARY)
        while page := await asyncio.to_thread(self._next_page, infos, prefix):
            yield page

    def _fail(self, action: str, key: str, error: OSError, *, certain: bool = True) -> NoReturn:
        """Translate an error; a denial counts as one only if it is `certain` that nothing was written."""
        remedy = _REMEDIES.get(error.errno or 0, "check the disk and the filesystem")
        kind = PermissionDeniedError if certain and isinstance(error, PermissionError) else StorageError
        raise kind(f"{self.location}: cannot {action} {key!r}: {error.strerror or error}; {remedy}") from error


def local_filesystem_storage(
    path: str | os.PathLike[str], *, fsync: bool = True, follow_symlinks: bool = False, listing_lag: float = 0.0
) -> LocalStorage:
    """Create a storage in a directory; safe for concurrent commits by many processes.

    Parameters
    ----------
    path
        Directory, created when the first object is written.
    fsync
        Whether an acknowledged commit survives a power failure.  False is for scratch data.
    follow_symlinks
        For a container of virtual chunks: whether to read through symbolic links that lead out of the directory.
    listing_lag
        Most seconds for which a listing may miss what was written, as by clients of a network filesystem.
    """
    return LocalStorage(path, fsync=fsync, follow_symlinks=follow_symlinks, listing_lag=listing_lag)


def _unlink_if_there(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # it was renamed to its final name
        os.unlink(path)


def _one_per_directory(paths: Sequence[str]) -> list[str]:
    return list({os.path.dirname(path): path for path in paths}.values())
