"""Storage on any filesystem that fsspec supports."""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import random
import threading
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, NoReturn
from urllib.parse import parse_qs

from arraystore._runtime.concurrency import bounded
from arraystore.errors import ObjectNotFoundError, PermissionDeniedError, StorageError, UnsupportedStorageError
from arraystore.storage.forking import leak, renew_locks_after_fork
from arraystore.storage.keys import check_key, check_range, merge_ranges
from arraystore.storage.object_state import info_of
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo, Storage, check_listing_lag
from arraystore.storage.settings import StorageRetriesSettings

__all__ = ["FsspecStorage", "holds_credentials", "is_signed"]

_PAGE = 1000
# Reading across this many unwanted bytes takes less time than another request.
_GAP = 512 * 1024
_DELETES = 16
_MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
# Two writers collided, or the service asks to retry.
_TRANSIENT = frozenset({errno.EBUSY, errno.EAGAIN, errno.ETIMEDOUT})
_SECRET_NAMES = ("secret", "password", "passwd", "token", "key", "credential", "sas", "connection_string", "auth")
_NOT_SECRET = frozenset({"keyfile", "key_filename", "known_hosts", "anon", "default_block_size"})

# In one process every MemoryFileSystem is the same dictionary.
_memory_lock = threading.Lock()


def _renew_memory_lock() -> None:
    global _memory_lock
    _memory_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_memory_lock)
_random = random.Random()


def holds_credentials(options: Mapping[str, Any]) -> bool:
    """Return whether options for a filesystem contain anything that looks like a secret."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            if holds_credentials(value):
                return True
        elif (
            isinstance(value, str | bytes)
            and name.lower() not in _NOT_SECRET
            and any(part in name.lower() for part in _SECRET_NAMES)
        ):
            return True
    return False


def is_signed(url: str) -> bool:
    """Return whether the query of a URL contains anything that looks like a secret, such as a signature."""
    names = parse_qs(url.partition("?")[2], keep_blank_values=True)
    return holds_credentials(dict.fromkeys(names, "")) or any("sig" in name.lower() for name in names)


class FsspecStorage(Storage):
    """Objects as files of an fsspec filesystem, below a path.

    Any filesystem can be read.  Commits need an atomic put-if-absent, offered by s3fs, gcsfs, adlfs and fsspec's
    memory filesystem only; elsewhere `put_if_absent` raises `UnsupportedStorageError`.

    Parameters
    ----------
    protocol
        fsspec's name of the filesystem.
    path
        Root of all keys, in the filesystem's own form.
    options
        Arguments of the filesystem's constructor.
    location
        URL without secrets.
    pickle_credentials
        Whether pickles may contain options that look like secrets.
    retries
        Retries of conditional writes that collide; all other requests are retried by the filesystem itself.
    listing_lag
        Maximum time in seconds for which a listing may miss new objects.
    """

    def __init__(
        self,
        protocol: str,
        path: str,
        options: Mapping[str, Any],
        location: str,
        *,
        pickle_credentials: bool = False,
        retries: StorageRetriesSettings | None = None,
        listing_lag: float = 0.0,
    ) -> None:
        self.listing_lag = check_listing_lag(listing_lag)
        self._protocol = protocol
        self.shared = protocol != "memory"
        self._root = path.rstrip("/")
        self._options = dict(options)
        self._location = location
        self._pickle_credentials = pickle_credentials
        self._retries = retries or StorageRetriesSettings()
        self._instance: tuple[int, Any] | None = None
        self._lock = threading.Lock()
        renew_locks_after_fork(self)

    def renew_locks(self) -> None:
        """Replace the lock and drop the parent's filesystem, in a forked child."""
        self._lock = threading.Lock()
        if self._instance is not None:
            leak(self._instance)
            self._instance = None

    @property
    def location(self) -> str:
        """The filesystem's URL, without secrets."""
        return self._location

    def __repr__(self) -> str:
        return f"FsspecStorage({self._location!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._pickle_credentials and (holds_credentials(self._options) or is_signed(self._root)):
            raise StorageError(
                f"pickle_credentials=True was not passed when the storage on {self._location} was created, so its "
                "credentials do not go to other processes: pass it to send them along, or configure the filesystem "
                "through the environment of each process"
            )
        create = partial(
            FsspecStorage,
            pickle_credentials=self._pickle_credentials,
            retries=self._retries,
            listing_lag=self.listing_lag,
        )
        return (create, (self._protocol, self._root, self._options, self._location))

    @property
    def _fs(self) -> Any:
        """Filesystem instance of this process; a forked child creates its own, as event loops do not survive a fork."""
        instance, pid = self._instance, os.getpid()
        if instance is not None and instance[0] == pid:
            return instance[1]
        with self._lock:
            if self._instance is None or self._instance[0] != pid:
                try:
                    import fsspec

                    # A cached listing would hide what other processes write.
                    options = {"use_listings_cache": False, "skip_instance_cache": True} | self._options
                    fs = fsspec.filesystem(self._protocol, **options)
                except (ImportError, ValueError, TypeError) as error:
                    raise StorageError(
                        f"{self._location}: the filesystem {self._protocol!r} cannot be created: {error}; install "
                        "the package that provides it, and check the options"
                    ) from error
                self._instance = (pid, fs)
            return self._instance[1]

    def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the filesystem and wait for its result."""
        fs = self._fs
        if not fs.async_impl:
            return getattr(fs, name)(*arguments, **options)
        call = getattr(fs, f"_{name}")(*arguments, **options)
        return asyncio.run_coroutine_threadsafe(call, fs.loop).result()

    async def _call_async(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the filesystem from any event loop; asynchronous filesystems run on a loop of their own."""
        fs = self._fs
        if not fs.async_impl:
            return await asyncio.to_thread(getattr(fs, name), *arguments, **options)
        call = getattr(fs, f"_{name}")(*arguments, **options)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, fs.loop))

    def _path(self, key: str) -> str:
        check_key(key)
        return f"{self._root}/{key}"

    @contextmanager
    def _translate(self, action: str, key: str) -> Iterator[None]:
        """Translate any error of a filesystem, which raises what it likes."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - translated
            self._fail(action, key, error)

    def _fail(self, action: str, key: str, error: Exception) -> NoReturn:
        if isinstance(error, _MISSING) and action in ("read", "look up", "delete"):
            raise ObjectNotFoundError(key, self._location) from None
        detail = str(error).partition("?")[0]  # a query can hold a signature
        # A filesystem repeats requests by itself, so a denied write may follow one that still arrives.
        denied = isinstance(error, PermissionError) and action != "write"
        kind = PermissionDeniedError if denied else StorageError
        raise kind(
            f"{self._location}: cannot {action} {key!r}: {type(error).__name__}: {detail}; check the credentials, the "
            "path and the options of the filesystem"
        ) from None

    # Reading

    async def get(self, key: str) -> BytesLike:
        """Return a whole object."""
        path = self._path(key)
        with self._translate("read", key):
            return _bytes(await self._call_async("cat_file", path))

    def get_sync(self, key: str) -> BytesLike:
        """Return a whole object, synchronously."""
        path = self._path(key)
        with self._translate("read", key):
            return _bytes(self._call("cat_file", path))

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object; neighbours travel in one request."""
        path = self._path(key)
        for start, stop in ranges:
            check_range(key, start, stop)
        merged = merge_ranges(ranges, _GAP)
        with self._translate("read", key):
            parts = await asyncio.gather(
                *[self._call_async("cat_file", path, start=start, end=stop) for start, stop in merged]
            )
        starts = [start for start, _ in merged]
        views: list[BytesLike] = []
        for start, stop in ranges:
            index = bisect_right(starts, start) - 1
            if start < stop:
                self._check_partial(key, merged[index], parts[index])
            views.append(self._cut(key, start, stop, parts[index], starts[index]) if start < stop else b"")
        return views

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        """Return one byte range, synchronously."""
        path = self._path(key)
        check_range(key, start, stop)
        if start == stop:
            return b""
        with self._translate("read", key):
            part = self._call("cat_file", path, start=start, end=stop)
        self._check_partial(key, (start, stop), part)
        return self._cut(key, start, stop, part, start)

    def _check_partial(self, key: str, wanted: ByteRange, part: Any) -> None:
        """Refuse a response with more bytes than the range has."""
        if len(part) > wanted[1] - wanted[0]:
            raise StorageError(
                f"{self._location}: the response to a request for bytes {wanted[0]}..{wanted[1]} of {key!r} has "
                f"{len(part)} bytes: the server does not support range requests; use one that does, or a copy of the "
                "object"
            )

    def _cut(self, key: str, start: int, stop: int, part: Any, offset: int) -> BytesLike:
        view = memoryview(part)[start - offset : stop - offset]
        if len(view) != stop - start:
            raise StorageError(
                f"{self._location}: bytes {start}..{stop} of {key!r} are out of range, the object ends at "
                f"{offset + len(part)}: it is not the object that the reference was written for"
            )
        return view

    async def head(self, key: str) -> ObjectInfo:
        """Return size and state of an object."""
        path = self._path(key)
        with self._translate("look up", key):
            info = await self._call_async("info", path)
        if info["type"] != "file":
            raise ObjectNotFoundError(key, self._location)
        size = int(info.get("size") or 0)  # optional in HTTP
        modified = _modified(info)
        etag = next((str(info[name]) for name in ("ETag", "etag") if info.get(name)), None)
        return info_of(key, size, modified, etag)

    # Writing

    async def put(self, key: str, data: BytesLike) -> None:
        """Write an object; atomicity and durability are those of the filesystem."""
        path = self._path(key)
        with self._translate("write", key):
            await self._call_async("pipe_file", path, bytes(data))

    def put_sync(self, key: str, data: BytesLike) -> None:
        """Write an object, synchronously."""
        path = self._path(key)
        with self._translate("write", key):
            self._call("pipe_file", path, bytes(data))

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Write an object unless one of this key exists.

        Raises
        ------
        UnsupportedStorageError
            If the filesystem has no atomic put-if-absent.
        """
        path = self._path(key)
        payload = bytes(data)
        if self._packages() == {"fsspec.implementations.memory"}:
            return self._put_in_memory(path, payload)
        option = self._exclusive_option()
        failures, started = 0, time.monotonic()
        while True:
            try:
                await self._call_async("pipe_file", path, payload, **option)
                return True
            except Exception as error:  # noqa: BLE001 - each filesystem has its own for "exists"; the object decides
                existing = await self._read_back(key)
                if existing is not None:
                    return existing == payload
                failures += 1
                delay = self._retries.pause(failures, time.monotonic() - started, _random)
                if delay is None or not _is_transient(error):
                    self._fail("write", key, error)
            await asyncio.sleep(delay)

    async def _read_back(self, key: str) -> BytesLike | None:
        """Read an object that may exist; a denial says nothing of the write, which may have succeeded."""
        try:
            return await self.get(key)
        except ObjectNotFoundError:
            return None
        except PermissionDeniedError as error:
            raise StorageError(error.message) from None

    def _put_in_memory(self, path: str, payload: bytes) -> bool:
        fs = self._fs
        with _memory_lock:
            try:
                existing = fs.cat_file(path)
            except FileNotFoundError:
                fs.pipe_file(path, payload)
                return True
        return bool(existing == payload)

    def _packages(self) -> set[str]:
        """Return the modules of the filesystem's classes, without fsspec's base classes."""
        general = ("fsspec.spec", "fsspec.asyn", "builtins")
        return {cls.__module__ for cls in type(self._fs).__mro__ if cls.__module__ not in general}

    def _exclusive_option(self) -> dict[str, Any]:
        """Return the option that makes `pipe_file` a conditional request, decided by the service."""
        fs = self._fs
        packages = {module.partition(".")[0] for module in self._packages()}
        if packages & {"s3fs", "gcsfs"} and "mode" in inspect.signature(fs._pipe_file).parameters:
            return {"mode": "create"}
        if "adlfs" in packages and "overwrite" in inspect.signature(fs._pipe_file).parameters:
            return {"overwrite": False}
        raise UnsupportedStorageError(
            f"{self._location}: the filesystem {type(fs).__name__} has no atomic put-if-absent, so commits would not "
            "be safe on it; use s3_storage, gcs_storage, azure_storage or local_filesystem_storage, or with fsspec a "
            "recent s3fs, gcsfs or adlfs"
        )

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete files, one by one."""
        for key in keys:
            check_key(key)
        results = await bounded(self._delete_one, keys, _DELETES)
        return [failure for failure in results if failure is not None]

    async def _delete_one(self, key: str) -> DeleteFailure | None:
        try:
            await self._call_async("rm_file", self._path(key))
        except _MISSING:
            return None
        except Exception as error:  # noqa: BLE001 - returned to the caller
            return DeleteFailure(key, f"{type(error).__name__}: {str(error).partition('?')[0]}")
        return None

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects in order of their keys; the filesystem lists the whole directory first."""
        directory = prefix.rpartition("/")[0]
        path = f"{self._root}/{directory}" if directory else self._root
        try:
            entries = await self._call_async("find", path, detail=True)
        except FileNotFoundError:
            return
        except Exception as error:  # noqa: BLE001 - filesystems raise what they like
            self._fail("list", prefix, error)
        cut = len(self._fs._strip_protocol(self._root).rstrip("/")) + 1
        infos_by_key = {
            name[cut:]: ObjectInfo(name[cut:], int(info["size"]), _modified(info))
            for name, info in entries.items()
            if info["type"] == "file" and name.startswith(prefix, cut) and name[cut:] > start_after
        }
        infos = [infos_by_key[key] for key in sorted(infos_by_key)]
        for position in range(0, len(infos), _PAGE):
            yield infos[position : position + _PAGE]


def _is_transient(error: Exception) -> bool:
    if isinstance(error, FileExistsError | TimeoutError | ConnectionError):
        return True
    return type(error).__name__ == "ResourceExistsError" or getattr(error, "errno", None) in _TRANSIENT


def _bytes(data: Any) -> BytesLike:
    return data if isinstance(data, bytes | bytearray | memoryview) else bytes(data)


def _http_time(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text)
    except ValueError:
        return None


def _modified(info: dict[str, Any]) -> float | None:
    """Return the time of modification that a filesystem reports, None if it reports none."""
    for name in ("LastModified", "last_modified", "Last-Modified", "mtime", "updated", "created"):
        value = info.get(name)
        if isinstance(value, str) and name == "Last-Modified":  # of a web server
            value = _http_time(value)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return None
