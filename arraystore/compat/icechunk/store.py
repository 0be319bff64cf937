"""`IcechunkStore`: the store of arraystore, with virtual references as Icechunk takes them."""

from __future__ import annotations

import functools
import importlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

import numpy as np
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype

from arraystore._session.store import ArrayStore
from arraystore._session.virtual_references import VirtualChunkSpec
from arraystore.compat.icechunk import _chunks as chunks
from arraystore.compat.icechunk._containers import check_container, expand, has_container
from arraystore.compat.icechunk._display import html_of, lines_of
from arraystore.compat.icechunk._exceptions import ErrorKind
from arraystore.compat.icechunk._forward import refining
from arraystore.compat.icechunk._opening import Opened
from arraystore.compat.icechunk._raw_store import RawStore
from arraystore.errors import InvalidInputError, NotFoundError, VirtualReferenceError

__all__ = ["IcechunkStore"]


class Owner(Protocol):
    """A session of Icechunk's shape, as its store needs it."""

    _core: Any
    _opened: Opened

    def _rows(self) -> dict[str, Any]: ...

    def for_store(self) -> Any: ...


_Refused = list[tuple[int, ...]] | None


class IcechunkStore(ArrayStore):
    """A session as a Zarr store."""

    def __init__(self, session: Owner, *, read_only: bool = False) -> None:
        super().__init__(session._core, read_only=read_only)
        _register()
        self._owner = session
        self._is_open = True

    @property
    def _store(self) -> RawStore:
        """The inner store, under the name that Icechunk has for it."""
        return RawStore(self)

    @property
    def session(self) -> Any:  # a Session or a ForkSession, of a module above this one
        """The session of this store."""
        return self._owner

    def with_read_only(self, read_only: bool = False) -> IcechunkStore:
        """Return a store of the same session, writable or not."""
        other = type(self)(self._owner, read_only=read_only)
        other._is_open = False
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self._owner.for_store(), self._read_only)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IcechunkStore) and self._owner == other._owner and self.read_only == other.read_only

    __hash__ = None

    def _rows(self) -> dict[str, Any]:
        return {**self._owner._rows(), "read_only": self.read_only}

    def __repr__(self) -> str:
        return lines_of("icechunk.IcechunkStore", self._rows())

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return html_of("icechunk.IcechunkStore", self._rows())

    def __dask_tokenize__(self) -> Any:
        """Return what names of dask arrays are made of."""
        return self._owner._core.__dask_tokenize__()

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return a value, or a range of it; None if the key is missing."""
        with refining():
            return await super().get(key, prototype, byte_range)

    async def set(self, key: str, value: Buffer) -> None:
        """Set a value."""
        if not isinstance(value, Buffer):
            raise TypeError(
                f"IcechunkStore.set(): `value` must be a Buffer instance. Got an instance of {type(value)} instead."
            )
        with refining():
            self._check_writable()
            if key.rsplit("/", 1)[-1] == "zarr.json":
                _check_document(key, value.to_bytes())
            await super().set(key, value)

    async def getsize(self, key: str) -> int:
        """Return the length of a value; raises `NotFoundError`, which is a `KeyError`."""
        try:
            return await super().getsize(key)
        except FileNotFoundError:
            raise NotFoundError(f"there is no key {key!r}", "key-not-found") from None

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """List the keys below a path; ``/`` is all of them."""
        path = prefix.strip("/")
        async for key in super().list_prefix(path):
            if not path or key == path or key.startswith(path + "/"):
                yield key

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """List the names of keys and key prefixes directly below a path."""
        return super().list_dir(prefix.lstrip("/"))

    def sync_clear(self) -> None:
        """Delete everything."""
        self._sync(self.clear())

    def array_chunk_iterator(self, array_path: str, batch_size: int = 100_000) -> AsyncIterator[chunks.Batch]:
        """Yield the chunks of an array as columns."""
        return self._batches(array_path, batch_size)

    async def _batches(self, array_path: str, batch_size: int) -> AsyncIterator[chunks.Batch]:
        with refining():
            references = await chunks.load_references(self._owner._core, array_path)
        for batch in chunks.batches(references, batch_size):
            yield batch

    # -- virtual references ---------------------------------------------------------------------------------------

    def set_virtual_ref(  # type: ignore[override]
        self,
        key: str,
        location: str,
        *,
        offset: int,
        length: int,
        checksum: str | datetime | None = None,
        validate_container: bool = True,
    ) -> None:
        """Set a chunk to a range of bytes of an object elsewhere."""
        with refining():
            url = self._url(location, validate_container)
            _check_lengths([url], [length])
            super().set_virtual_ref(key, url, offset=offset, length=length, checksum=checksum, validate_container=False)

    async def set_virtual_ref_async(
        self,
        key: str,
        location: str,
        *,
        offset: int,
        length: int,
        checksum: str | datetime | None = None,
        validate_container: bool = True,
    ) -> None:
        """Asynchronous twin of `set_virtual_ref`."""
        self.set_virtual_ref(
            key, location, offset=offset, length=length, checksum=checksum, validate_container=validate_container
        )

    def set_virtual_refs(  # type: ignore[override]
        self, array_path: str, chunks: Sequence[Any], *, validate_containers: bool = True, checksum: Any = None
    ) -> _Refused:
        """Set chunks of an array; return the coordinates of those whose URL is in no container."""
        config = self._owner._opened.config
        urls = [_parsed(expand(config, chunk.location)) for chunk in chunks]
        allowed = [not validate_containers or has_container(config, url) for url in urls]
        specs = [
            VirtualChunkSpec(
                tuple(chunk.index),
                url,
                chunk.offset,
                chunk.length,
                chunk.etag_checksum,
                chunk.last_updated_at_checksum,
            )
            for chunk, url, fine in zip(chunks, urls, allowed, strict=True)
            if fine
        ]
        _check_lengths(urls, [chunk.length for chunk in chunks])
        with refining():
            if specs:
                super().set_virtual_refs(array_path, specs, validate_containers=False, checksum=checksum)
        refused = [tuple(chunk.index) for chunk, fine in zip(chunks, allowed, strict=True) if not fine]
        return refused or None

    async def set_virtual_refs_async(
        self, array_path: str, chunks: Sequence[Any], *, validate_containers: bool = True
    ) -> _Refused:
        """Asynchronous twin of `set_virtual_refs`."""
        return self.set_virtual_refs(array_path, chunks, validate_containers=validate_containers)

    def set_virtual_refs_arr(  # type: ignore[override]
        self,
        array_path: str,
        chunk_grid_shape: tuple[int, ...],
        locations: Sequence[str],
        offsets: Any,
        lengths: Any,
        *,
        validate_containers: bool = True,
        arr_offset: tuple[int, ...] | None = None,
        checksum: datetime | str | None = None,
    ) -> _Refused:
        """Set a box of chunks from columns; return the coordinates of those whose URL is in no container."""
        config = self._owner._opened.config
        urls = [expand(config, location) for location in locations]
        _check_lengths(urls, lengths)
        known = {url: not url or not validate_containers or has_container(config, url) for url in set(urls)}
        with refining():
            super().set_virtual_refs_arr(
                array_path,
                tuple(chunk_grid_shape),
                [url if known[url] else "" for url in urls],
                offsets,
                lengths,
                validate_containers=False,
                arr_offset=None if arr_offset is None else tuple(arr_offset),
                checksum=checksum,
            )
        rows = [row for row, url in enumerate(urls) if not known[url]]
        first = arr_offset or (0,) * len(chunk_grid_shape)
        corners = [np.unravel_index(row, chunk_grid_shape) for row in rows]
        refused = [tuple(int(low + step) for low, step in zip(first, corner, strict=True)) for corner in corners]
        return refused or None

    async def set_virtual_refs_arr_async(
        self,
        array_path: str,
        chunk_grid_shape: tuple[int, ...],
        locations: Sequence[str],
        offsets: Any,
        lengths: Any,
        *,
        validate_containers: bool = True,
        arr_offset: tuple[int, ...] | None = None,
        checksum: datetime | str | None = None,
    ) -> _Refused:
        """Asynchronous twin of `set_virtual_refs_arr`."""
        return self.set_virtual_refs_arr(
            array_path,
            chunk_grid_shape,
            locations,
            offsets,
            lengths,
            validate_containers=validate_containers,
            arr_offset=arr_offset,
            checksum=checksum,
        )

    def _url(self, location: str, validate: bool) -> str:
        """Return the URL of a location, in one of the containers of the configuration if asked to."""
        config = self._owner._opened.config
        url = _parsed(expand(config, location))
        if validate:
            check_container(config, url)
        return url


@functools.cache
def _upstream_store() -> Any:
    """Return the class of stores of the package icechunk, None where it is not installed."""
    try:
        return importlib.import_module("icechunk").IcechunkStore
    except ImportError:
        return None


def _register() -> None:
    """Let writers of VirtualiZarr take stores of this layer: they ask whether a store is one of Icechunk's class."""
    if "virtualizarr" in sys.modules and _upstream_store() is not None:
        _upstream_store().register(IcechunkStore)


def _check_document(key: str, document: bytes) -> None:
    """Check that a document is one of a node: any other would be a file, which zarr then cannot decode."""
    try:
        found = json.loads(document)
    except ValueError as error:
        raise InvalidInputError(f"bad metadata: {key!r} is not JSON: {error}", ErrorKind.BAD_METADATA) from None
    if not isinstance(found, dict) or "node_type" not in found:
        raise InvalidInputError(f"bad metadata: {key!r} has no 'node_type'", ErrorKind.BAD_METADATA)


def _parsed(url: str) -> str:
    if not urlsplit(url).scheme:
        raise VirtualReferenceError(f"error parsing the URL {url!r}: it must have a scheme, such as s3://")
    return url


def _check_lengths(urls: Sequence[str], lengths: Any) -> None:
    """Check that no chunk is of no bytes, which could not be decoded; without a URL there is no chunk."""
    empty = np.flatnonzero(np.asarray(lengths) == 0).tolist()
    for row in empty:
        if row < len(urls) and urls[row]:
            raise InvalidInputError(f"zero-length chunk: that of {urls[row]!r} must have bytes", "zero-length-chunk")


def _rebuilt(cls: type[IcechunkStore], session: Owner, read_only: bool) -> IcechunkStore:
    return cls(session, read_only=read_only)
