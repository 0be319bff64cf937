"""Storage on S3, Google Cloud Storage or Azure, through obstore."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from arraystore._runtime.concurrency import bounded
from arraystore.errors import ObjectNotFoundError, PermissionDeniedError, StorageError, UnsupportedStorageError
from arraystore.storage import obstore_module as native
from arraystore.storage.bucket_client import BucketClient, client_of
from arraystore.storage.forking import leak, renew_locks_after_fork
from arraystore.storage.keys import check_key, check_range, merge_ranges
from arraystore.storage.listing_order import Reorder, beyond, safe_offset
from arraystore.storage.object_attributes import Attributes
from arraystore.storage.object_state import info_of
from arraystore.storage.obstore_config import ObstoreConfig
from arraystore.storage.obstore_errors import ErrorKind, classify_error, first_line, is_refusal, remedy
from arraystore.storage.part_stream import AbandonedUploadError, PartStream
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo, Storage

__all__ = ["ObstoreStorage"]

T = TypeVar("T")

_PAGE = 1000
_DELETE_BATCH = 1000
_SINGLE_DELETES = 16
# Reading across this many unwanted bytes takes less time than another request.
_GAP = 512 * 1024

_random = random.Random()


class ObstoreStorage(Storage):
    """Objects in a bucket, below a prefix.

    The client is created at the first request, and again in a forked child.  Transient failures are retried according
    to the settings.

    Parameters
    ----------
    config
        Configuration, as built by constructor functions such as `s3_storage`.
    """

    def __init__(self, config: ObstoreConfig) -> None:
        self._config = config
        self._prefix = config.prefix + "/" if config.prefix else ""
        self._settings = config.settings
        self._attributes = Attributes(config.settings, {name: value.reveal() for name, value in config.metadata})
        self.listing_lag = config.settings.listing_lag
        self._built: BucketClient | None = None
        renew_locks_after_fork(self)

    def renew_locks(self) -> None:
        """Drop the parent's client, in a forked child."""
        if self._built is not None:
            leak(self._built)
            self._built = None

    @property
    def location(self) -> str:
        """URL of bucket and prefix, with the endpoint unless it is the provider's own."""
        return self._config.location

    @property
    def config(self) -> ObstoreConfig:
        """Configuration of the storage."""
        return self._config

    def __repr__(self) -> str:
        return f"ObstoreStorage({self.location!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (ObstoreStorage, (self._config,), {"listing_lag": self.listing_lag})

    def _client(self) -> BucketClient:
        client = self._built
        if client is None or client.generation != native.generation:
            client = self._built = client_of(self._config)
        return client

    # Attempts

    async def _attempt(
        self,
        action: str,
        key: str,
        request: Callable[[BucketClient], Awaitable[T]],
        *,
        conditional: bool = False,
        send: Callable[..., Awaitable[T]] = BucketClient.send,
    ) -> T:
        """Send a request, retry transient failures, and translate errors into those of this package."""
        client = self._client()
        retry = _RetryState(self, client, conditional)
        while True:
            try:
                return await send(client, request, again=retry.failed)
            except Exception as error:  # noqa: BLE001 - every error is classified
                delay = retry.delay_after(error, action, key)
            await asyncio.sleep(delay)

    def _attempt_sync(self, action: str, key: str, request: Callable[[BucketClient], T], *, timed: bool = True) -> T:
        client = self._client()
        retry = _RetryState(self, client)
        while True:
            try:
                return client.send_sync(request, timed=timed, again=retry.failed)
            except Exception as error:  # noqa: BLE001 - every error is classified
                delay = retry.delay_after(error, action, key)
            time.sleep(delay)

    def _path(self, key: str) -> str:
        check_key(key)
        return self._prefix + key

    # Reading

    async def get(self, key: str) -> BytesLike:
        """Return a whole object."""
        path = self._path(key)

        async def request(client: BucketClient) -> BytesLike:
            result = await client.module.get_async(client.store, path)
            return memoryview(await result.bytes_async())

        return await self._attempt("read", key, request, send=BucketClient.read)

    def get_sync(self, key: str) -> BytesLike:
        """Return a whole object, synchronously."""
        path = self._path(key)
        return self._attempt_sync("read", key, lambda client: memoryview(client.module.get(client.store, path).bytes()))

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object; the client merges neighbours into one request."""
        path = self._path(key)
        wanted = [index for index, (start, stop) in enumerate(ranges) if _is_nonempty(key, start, stop)]
        parts: list[BytesLike] = [b""] * len(ranges)
        if not wanted:
            return parts
        starts = [ranges[index][0] for index in wanted]
        ends = [ranges[index][1] for index in wanted]

        async def request(client: BucketClient) -> Any:
            if len(wanted) == 1:
                return [await client.module.get_range_async(client.store, path, start=starts[0], end=ends[0])]
            return await client.module.get_ranges_async(client.store, path, starts=starts, ends=ends)

        send = partial(BucketClient.read, size=sum(ends) - sum(starts))
        for index, data in zip(wanted, await self._attempt("read", key, request, send=send), strict=True):
            parts[index] = self._check_length(key, ranges[index], data)
        return parts

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        """Return one byte range, synchronously."""
        path = self._path(key)
        if not _is_nonempty(key, start, stop):
            return b""
        data = self._attempt_sync(
            "read", key, lambda client: client.module.get_range(client.store, path, start=start, end=stop)
        )
        return self._check_length(key, (start, stop), data)

    def _check_length(self, key: str, wanted: ByteRange, data: Any) -> BytesLike:
        view = memoryview(data)
        if len(view) != wanted[1] - wanted[0]:
            raise StorageError(
                f"{self.location}: bytes {wanted[0]}..{wanted[1]} of {key!r} are out of range, the object ends at "
                f"{wanted[0] + len(view)}: it is not the object that the reference was written for"
            )
        return view

    async def head(self, key: str) -> ObjectInfo:
        """Return size and state of an object."""
        path = self._path(key)
        meta = await self._attempt("look up", key, lambda client: client.module.head_async(client.store, path))
        return _info(key, meta)

    # Reading objects that others may change: a response has the state of the object together with its bytes

    async def get_source_ranges(self, key: str, ranges: Sequence[ByteRange]) -> tuple[list[BytesLike], ObjectInfo]:
        """Return byte ranges of an object that others may change and its state, without an extra request."""
        path = self._path(key)
        wanted = merge_ranges([span for span in ranges if _is_nonempty(key, *span)], _GAP)
        if not wanted:
            return [b""] * len(ranges), await self.head(key)

        async def read(span: ByteRange) -> tuple[memoryview, ObjectInfo]:
            async def request(client: BucketClient) -> tuple[memoryview, ObjectInfo]:
                result = await client.module.get_async(client.store, path, options={"range": span})
                info = _info(key, result.meta)
                return memoryview(await result.bytes_async()), info

            send = partial(BucketClient.read, size=span[1] - span[0])
            return await self._attempt("read", key, request, send=send)

        responses = await asyncio.gather(*[read(span) for span in wanted])
        infos = {(info.etag, info.modified, info.size): info for _, info in responses}
        if len(infos) > 1:
            raise StorageError(f"{self.location}: {key!r} was overwritten during the read; read it again")
        starts = [start for start, _ in wanted]
        parts: list[BytesLike] = []
        for start, stop in ranges:
            at = bisect_right(starts, start) - 1 if start < stop else 0
            parts.append(
                self._check_length(key, (start, stop), responses[at][0][start - starts[at] : stop - starts[at]])
            )
        return parts, responses[0][1]

    def get_source_range_sync(self, key: str, start: int, stop: int) -> tuple[BytesLike, ObjectInfo]:
        """Return one byte range and the state of the object, synchronously."""
        path = self._path(key)
        if not _is_nonempty(key, start, stop):
            meta = self._attempt_sync("look up", key, lambda client: client.module.head(client.store, path))
            return b"", _info(key, meta)

        def request(client: BucketClient) -> tuple[memoryview, ObjectInfo]:
            result = client.module.get(client.store, path, options={"range": (start, stop)})
            info = _info(key, result.meta)
            return memoryview(result.bytes()), info

        data, info = self._attempt_sync("read", key, request)
        return self._check_length(key, (start, stop), data), info

    # Writing

    @property
    def part_bytes(self) -> int:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        """Size of the parts of an upload, from the settings."""
        return self._settings.multipart_part_size

    def _in_parts(self, data: BytesLike) -> bool:
        """Return whether an object is uploaded in parts, several of them at a time."""
        return len(data) > self._settings.minimum_size_for_multipart_upload

    def _part_options(self, key: str) -> dict[str, Any]:
        return {
            **self._attributes.of(key),
            "use_multipart": True,
            "chunk_size": self._settings.multipart_part_size,
            "max_concurrency": self._settings.concurrency.max_parts,
        }

    async def put(self, key: str, data: BytesLike) -> None:
        """Write an object; durable on return."""
        path = self._path(key)

        async def in_one(client: BucketClient) -> None:
            await client.module.put_async(client.store, path, data, use_multipart=False, **self._attributes.of(key))

        async def in_parts(client: BucketClient) -> None:
            await self._upload(client, path, PartStream.of(data, self.part_bytes), self._part_options(key))

        if self._in_parts(data):
            await self._attempt("write", key, in_parts, send=partial(BucketClient.send, timed=False))
        else:
            await self._attempt("write", key, in_one)

    async def put_stream(self, key: str, parts: PartStream) -> None:
        """Write an object while its parts come; a part that fails is sent again, the whole is not."""
        path, client = self._path(key), self._client()
        try:
            await self._upload(client, path, parts, self._part_options(key))
        except AbandonedUploadError:
            raise
        except Exception as error:  # noqa: BLE001 - every error is classified
            raise _RetryState(self, client).final_error(error, "write", key) from None

    async def _upload(self, client: BucketClient, path: str, parts: PartStream, options: dict[str, Any]) -> None:
        """Upload in parts; when cancelled, abort while parts are left to send, so that the service forgets them."""
        upload = asyncio.ensure_future(client.module.put_async(client.uploads, path, parts, **options))
        try:
            await asyncio.shield(upload)
        except asyncio.CancelledError:
            parts.abandon()
            upload.add_done_callback(_retrieve_error)
            raise

    def put_sync(self, key: str, data: BytesLike) -> None:
        """Write an object, synchronously."""
        path = self._path(key)
        in_parts, options = self._in_parts(data), self._part_options(key)

        def request(client: BucketClient) -> None:
            if in_parts:
                client.module.put(client.uploads, path, data, **options)
            else:
                client.module.put(client.store, path, data, use_multipart=False, **self._attributes.of(key))

        self._attempt_sync("write", key, request, timed=not in_parts)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Write an object unless one of this key exists."""
        return await self._put_if_absent(key, data, new=False)

    async def put_new(self, key: str, data: BytesLike) -> bool:
        """Write a new object like `put_if_absent`; a refusal costs no second request."""
        return await self._put_if_absent(key, data, new=True)

    async def _put_if_absent(self, key: str, data: BytesLike, *, new: bool) -> bool:
        path = self._path(key)
        attempts = 0

        async def request(client: BucketClient) -> bool:
            nonlocal attempts
            attempts += 1
            try:
                await client.module.put_async(
                    client.store, path, data, mode="create", use_multipart=False, **self._attributes.of(key)
                )
                return True
            except client.module.exceptions.AlreadyExistsError as error:
                if new and attempts == 1 and is_refusal(error):
                    return False
                # Written by another writer, or by an attempt of ours whose response was lost; or two writers
                # collided (409), and possibly neither succeeded.
                return bool(await _read_back(client, path) == memoryview(data))

        return await self._attempt("write", key, request, conditional=True)

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete objects, in batches where the backend supports it."""
        for key in keys:
            check_key(key)
        failures: list[DeleteFailure] = []
        for position in range(0, len(keys), _DELETE_BATCH):
            failures += await self._delete_batch(keys[position : position + _DELETE_BATCH])
        return failures

    async def _delete_batch(self, keys: Sequence[str]) -> list[DeleteFailure]:
        paths = [self._prefix + key for key in keys]
        try:
            await self._attempt("delete", keys[0], lambda client: client.module.delete_async(client.store, paths))
            return []
        except (StorageError, ObjectNotFoundError):
            # The error of a batch does not tell which keys failed, nor whether one was merely missing.
            results = await bounded(self._delete_one, keys, _SINGLE_DELETES)
            return [failure for failure in results if failure is not None]

    async def _delete_one(self, key: str) -> DeleteFailure | None:
        path = self._prefix + key
        try:
            await self._attempt("delete", key, lambda client: client.module.delete_async(client.store, path))
        except ObjectNotFoundError:
            return None
        except StorageError as error:
            return DeleteFailure(key, error.message)
        return None

    # Listing

    async def _pages(self, directory: str, offset: str) -> AsyncGenerator[Sequence[ObjectInfo], None]:
        """Yield the objects below a directory page by page, in the order of the backend."""
        client = self._client()
        cut = len(self._prefix)
        path = (self._prefix + directory).rstrip("/") or None
        retry = _RetryState(self, client)
        while True:
            stream = client.module.list(
                client.store, path, offset=self._prefix + offset if offset else None, chunk_size=_PAGE
            )
            try:
                while (page := await client.send(partial(_next_page, stream), again=retry.failed)) is not None:
                    retry = _RetryState(self, client)  # each page has all its attempts
                    infos = [
                        ObjectInfo(str(meta["path"])[cut:], int(meta["size"]), meta["last_modified"].timestamp())
                        for meta in page
                    ]
                    if infos:
                        offset = infos[-1].key
                        yield infos
                return
            except Exception as error:  # noqa: BLE001 - every error is classified
                delay = retry.delay_after(error, "list", directory)
            await asyncio.sleep(delay)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects in order of their keys."""
        # The client's prefixes end with a slash: list the directory, start close to the name, stop after it.
        directory = prefix[: prefix.rfind("/") + 1]
        order = Reorder(directory)
        async with contextlib.aclosing(self._pages(directory, safe_offset(prefix, start_after))) as pages:
            async for page in pages:
                try:
                    ready = [ordered for info in page for ordered in order.add(info)]
                except ValueError as error:
                    raise self._unordered_listing(error) from error
                wanted = [info for info in ready if info.key.startswith(prefix) and info.key > start_after]
                if wanted:
                    yield wanted
                if beyond(page[-1].key, prefix):
                    break
        wanted = [info for info in order.rest() if info.key.startswith(prefix) and info.key > start_after]
        if wanted:
            yield wanted

    def _unordered_listing(self, error: ValueError) -> UnsupportedStorageError:
        return UnsupportedStorageError(
            f"{self.location}: the backend does not list keys in order ({error}), for example a directory bucket; use "
            "a general purpose bucket"
        )


class _RetryState:
    """Failed attempts of one request, and the delay before the next attempt."""

    def __init__(self, storage: ObstoreStorage, client: BucketClient, conditional: bool = False) -> None:
        self._conditional = conditional
        self._location = storage.location
        self._retries = storage.config.settings.retries
        self._exceptions = client.module.exceptions
        self._first_failure = 0.0
        self._failures = 0

    @property
    def failed(self) -> bool:
        """True once an attempt has failed."""
        return self._failures > 0

    def _pause(self) -> float | None:
        if not self._failures:  # what was waited for a slot before counts for nothing
            self._first_failure = time.monotonic()
        self._failures += 1
        return self._retries.pause(self._failures, time.monotonic() - self._first_failure, _random)

    def delay_after(self, error: Exception, action: str, key: str) -> float:
        """Return the seconds to wait before the next attempt, or raise the final error."""
        kind = classify_error(error, self._exceptions)
        if kind is ErrorKind.MISSING and self._conditional:
            return self._delay_after_conflict(key)
        if kind is ErrorKind.MISSING and action != "write":
            raise ObjectNotFoundError(key, self._location) from None
        if kind is ErrorKind.TRANSIENT:
            delay = self._pause()
            if delay is not None:
                return delay
        # Without the client's error as the cause: its message contains whole URLs, signatures included.
        raise self.final_error(error, action, key) from None

    def final_error(self, error: Exception, action: str, key: str) -> StorageError:
        """Return the error to raise when nothing is tried any more."""
        # An earlier attempt may still arrive, so a denial says for certain only of the first that nothing was written.
        denied = isinstance(error, self._exceptions.PermissionDeniedError) and not self.failed
        return (PermissionDeniedError if denied else StorageError)(
            f"{self._location}: cannot {action} {key!r}{self._attempts()}: {first_line(error)}; "
            f"{remedy(error, self._exceptions)}"
        )

    def _attempts(self) -> str:
        return f" after {self._failures} attempts" if self._failures > 1 else ""

    def _delay_after_conflict(self, key: str) -> float:
        """Return the seconds to wait after a conditional write was refused although no object exists."""
        delay = self._pause()
        if delay is None:
            raise StorageError(
                f"{self._location}: cannot write {key!r}: it was reported to exist {self._failures} times, but is "
                "missing; try again later"
            ) from None
        return delay


async def _read_back(client: BucketClient, path: str) -> memoryview:
    """Read an object that was reported to exist; a denial says nothing of the write, which may have succeeded."""
    try:
        result = await client.module.get_async(client.store, path)
        return memoryview(await result.bytes_async())
    except client.module.exceptions.PermissionDeniedError as error:
        raise OSError(f"it exists, and reading it back is denied: {first_line(error)}") from None


def _retrieve_error(upload: asyncio.Future[Any]) -> None:
    """Keep asyncio from reporting the error of an upload that nobody waits for any more."""
    if not upload.cancelled():
        upload.exception()


async def _next_page(stream: AsyncIterator[Sequence[Any]], _: BucketClient) -> Sequence[Any] | None:
    """Return the next page of a listing, None after the last one."""
    return await anext(stream, None)


def _info(key: str, meta: Any) -> ObjectInfo:
    size, etag = int(meta["size"]), meta["e_tag"]
    modified = meta["last_modified"].timestamp() or None  # 1970 means that the server reported none
    return info_of(key, size, modified, etag)


def _is_nonempty(key: str, start: int, stop: int) -> bool:
    check_range(key, start, stop)
    return start < stop
