"""The Zarr store of a session."""

from __future__ import annotations

import asyncio
import builtins
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.buffer.core import default_buffer_prototype
from zarr.core.sync import SyncMixin

from arraystore._chunks.reader import Window, whole_chunk
from arraystore._chunks.virtual_checksums import FROM_SOURCE, Checksum
from arraystore._context.context import Context
from arraystore._format.node import Node, NodeKind
from arraystore._log.loading import Tip
from arraystore._runtime import lazy_module, run, submit
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.keys import check_key, join, node_path
from arraystore._session.listing import list_dir, list_prefix, measure_prefix
from arraystore._session.pipeline.target import PipelineStore
from arraystore.errors import InvalidInputError, ObjectNotFoundError, ReadOnlyError

if TYPE_CHECKING:
    from arraystore._history import missing_objects
    from arraystore._session import dask_targets, virtual_references
    from arraystore._session.pipeline import installing
    from arraystore._session.virtual_references import VirtualChunkSpec
else:
    missing_objects = lazy_module("arraystore._history.missing_objects")
    dask_targets = lazy_module("arraystore._session.dask_targets")
    installing = lazy_module("arraystore._session.pipeline.installing")
    virtual_references = lazy_module("arraystore._session.virtual_references")

_WRITE_REFUSED = "store was opened in read-only mode and does not support writing"


@lru_cache(maxsize=4096)
def _window(byte_range: ByteRequest) -> Window:
    """Return the window of a byte request, clipped to the length of the value."""
    if isinstance(byte_range, RangeByteRequest):
        first, last = byte_range.start, byte_range.end
        return lambda length: (min(first, length), min(last, length))
    if isinstance(byte_range, OffsetByteRequest):
        offset = byte_range.offset
        return lambda length: (min(offset, length), length)
    if isinstance(byte_range, SuffixByteRequest):
        suffix = byte_range.suffix
        return lambda length: (max(0, length - suffix), length)
    raise ValueError(f"Unexpected byte_range, got {byte_range}")


def _view(value: Buffer) -> memoryview:
    """Return the bytes of a buffer in host memory, without a copy if they are there."""
    view = memoryview(value.as_numpy_array())
    return view if view.format == "B" else view.cast("B")


class StoreSession(Protocol):
    """A session, as its store needs it."""

    hierarchy: Hierarchy

    @property
    def context(self) -> Context:
        """State shared by the sessions of the repository."""
        ...

    @property
    def base_tip(self) -> Tip:
        """The record of the base."""
        ...

    @property
    def read_only(self) -> bool:
        """True if writes are refused."""
        ...

    def check_writable(self, refusal: str = ...) -> None:
        """Check that the session is writable."""
        ...

    def describe(self) -> str:
        """Return location, branch and snapshot as a short string."""
        ...

    def for_store(self) -> Any:
        """Return what is pickled with a store."""
        ...


class ArrayStore(PipelineStore, Store, SyncMixin):
    """A session as a Zarr store.

    Pass it to `zarr.open`, xarray or dask.  It stores Zarr v3 and v2 hierarchies, and implements zarr's synchronous
    path (`get_sync`, `set_sync`, `delete_sync`), which the fused codec pipeline uses.  The first store of a process
    installs a codec pipeline of this library in zarr's configuration; see `use_pipeline`.

    Parameters
    ----------
    session
        The session, or fork, to read and write.
    read_only
        Whether to refuse writes; those of a read-only session are refused in any case.
    """

    def __init__(self, session: StoreSession, *, read_only: bool = False) -> None:
        super().__init__(read_only=read_only or session.read_only)
        self._session: StoreSession = session
        self._is_open = False
        installing.install_pipeline()
        if "dask" in sys.modules:
            dask_targets.register_tokens()

    # -- identity -------------------------------------------------------------------------------------------

    @property
    def session(self) -> Any:  # a Session or a ForkSession, of modules above this one
        """The session or fork of this store."""
        return self._session

    @property
    def read_only(self) -> bool:
        """True if writes are refused."""
        return self._read_only or self._session.read_only

    def with_read_only(self, read_only: bool = False) -> ArrayStore:
        """Return a store of the same session, writable or not.

        Raises
        ------
        ReadOnlyError
            If the session is read-only.
        """
        if not read_only and self._session.read_only:
            raise ReadOnlyError("the session is read-only: open a writable session for a writable store")
        return type(self)(self._session, read_only=read_only)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayStore) and self._session == other._session and self.read_only == other.read_only

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ArrayStore({self._session!s}{', read_only=True' if self.read_only else ''})"

    def __str__(self) -> str:
        return f"arraystore://{self._session.describe()}"

    def __dask_tokenize__(self) -> Any:
        """Return what names of dask arrays are made of: pickling would send what is uncommitted."""
        return self.session.__dask_tokenize__()

    def __reduce__(self) -> tuple[Any, ...]:
        if "dask" in sys.modules:  # it was imported since, and asks for a name: for the next one it need not pickle
            dask_targets.register_tokens()
        return _rebuild, (type(self), self._session.for_store(), self._read_only)

    def _check_writable(self) -> None:
        self._session.check_writable(_WRITE_REFUSED)
        if self._read_only:
            raise ReadOnlyError(_WRITE_REFUSED)

    @property
    def supports_writes(self) -> bool:
        """True: values can be set."""
        return True

    @property
    def supports_deletes(self) -> bool:
        """True: values can be deleted."""
        return True

    @property
    def supports_listing(self) -> bool:
        """True: keys can be listed."""
        return True

    @property
    def supports_consolidated_metadata(self) -> Literal[False]:
        """False: a snapshot has all metadata, and a consolidated copy could become stale."""
        return False

    @property
    def supports_partial_writes(self) -> Literal[False]:
        """False: values are set as a whole."""
        return False

    async def _check_not_expired(self, error: ObjectNotFoundError) -> None:
        """Raise the error of an expired snapshot or session, if that is why an object is missing."""
        session = self._session
        await missing_objects.check_not_expired(
            session.context, session.base_tip.state, session.hierarchy.changes, error
        )

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[None]:
        """Raise the error of an expired snapshot or session for an object missing within the block."""
        try:
            yield
        except ObjectNotFoundError as error:
            await self._tell_expired(error)
            raise

    async def _tell_expired(self, error: ObjectNotFoundError) -> None:
        await asyncio.wrap_future(submit(self._check_not_expired(error)))

    def _pipeline_hierarchy(self, *, writing: bool) -> Hierarchy:
        """Return the hierarchy, for the codec pipeline; raises `ReadOnlyError` if it must not be written to."""
        if writing:
            self._check_writable()
        self._is_open = True
        return self._session.hierarchy

    # -- synchronous path -----------------------------------------------------------------------------------

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return a value, or a range of it; None if the key is missing."""
        self._is_open = True
        try:
            data = self._session.hierarchy.get_sync(key, whole_chunk if byte_range is None else _checked(byte_range))
        except ObjectNotFoundError as error:
            run(self._check_not_expired(error))
            raise
        if data is None:
            return None
        return (prototype or default_buffer_prototype()).buffer.from_bytes(data)

    def set_sync(self, key: str, value: Buffer) -> None:
        """Set a value."""
        self._check_writable()
        self._is_open = True
        self._session.hierarchy.set_sync(key, _view(_buffer(value)))

    def delete_sync(self, key: str) -> None:
        """Delete a value, if there is one."""
        self._check_writable()
        self._is_open = True
        self._session.hierarchy.delete(key)

    # -- asynchronous path ----------------------------------------------------------------------------------

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return a value, or a range of it; None if the key is missing."""
        self._is_open = True
        try:
            data = await self._session.hierarchy.get(key, whole_chunk if byte_range is None else _checked(byte_range))
        except ObjectNotFoundError as error:
            await asyncio.wrap_future(submit(self._check_not_expired(error)))
            raise
        if data is None:
            return None
        return (prototype or default_buffer_prototype()).buffer.from_bytes(data)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> builtins.list[Buffer | None]:
        """Return values or ranges of values, in the order of the requests."""
        return builtins.list(await asyncio.gather(*(self.get(key, prototype, wanted) for key, wanted in key_ranges)))

    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None], None]:
        wanted = builtins.list(requests)
        values = await asyncio.gather(*(self.get(*request) for request in wanted))
        for (key, _, _), value in zip(wanted, values, strict=True):
            yield key, value

    async def exists(self, key: str) -> bool:
        """Tell whether the key has a value."""
        async with self._reading():
            return await self._session.hierarchy.length(key) is not None

    async def set(self, key: str, value: Buffer) -> None:
        """Set a value."""
        self._check_writable()
        self._is_open = True
        await self._session.hierarchy.set(key, _view(_buffer(value)))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Set a value unless the key has one."""
        self._check_writable()
        if not await self.exists(key):
            self._session.hierarchy.set_if_untouched(key, _view(_buffer(value)))

    async def set_partial_values(self, key_start_values: Iterable[tuple[str, int, Any]]) -> None:
        """Refuse to set parts of values, which zarr 3.1.0 still has in its interface and never asks for."""
        self._check_writable()
        raise NotImplementedError("values are set as a whole: supports_partial_writes is False")

    async def delete(self, key: str) -> None:
        """Delete a value, if there is one."""
        self.delete_sync(key)

    async def delete_dir(self, prefix: str) -> None:
        """Delete all values at or below a path."""
        self._check_writable()
        hierarchy = self._session.hierarchy
        above = hierarchy.delete_prefix(prefix)
        below = prefix.strip("/") + "/"
        for node in above:
            async for key in list_prefix(hierarchy, join(node.path, "")):
                if key.startswith(below):
                    hierarchy.delete(key)

    async def clear(self) -> None:
        """Delete all values."""
        await self.delete_dir("")

    # -- listing --------------------------------------------------------------------------------------------

    async def list(self) -> AsyncIterator[str]:
        """List all keys."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """List all keys with a prefix."""
        try:  # a context manager would be closed before this generator, where an event loop ends first
            async for key in list_prefix(self._session.hierarchy, prefix):
                yield key
        except ObjectNotFoundError as error:
            await self._tell_expired(error)
            raise

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """List the names of keys and key prefixes directly below a path."""
        async with self._reading():
            names = await list_dir(self._session.hierarchy, prefix)
        for name in names:
            yield name

    async def getsize(self, key: str) -> int:
        """Return the length of a value in bytes, without reading it.

        Raises
        ------
        FileNotFoundError
            If the key is missing.
        """
        async with self._reading():
            length = await self._session.hierarchy.length(key)
        if length is None:
            raise FileNotFoundError(key)
        return length

    async def getsize_prefix(self, prefix: str) -> int:
        """Return the total length in bytes of all values below a path, without reading them."""
        async with self._reading():
            return await measure_prefix(self._session.hierarchy, prefix)

    # -- virtual references ---------------------------------------------------------------------------------

    def set_virtual_ref(
        self,
        key: str,
        location: str,
        *,
        offset: int,
        length: int,
        checksum: Checksum = FROM_SOURCE,
        validate_container: bool = True,
    ) -> None:
        """Set a chunk to a virtual reference to bytes of a source object.

        For many chunks, `set_virtual_refs` and `set_virtual_refs_arr` look up each source object only once.

        Parameters
        ----------
        key
            Key of the chunk.
        location
            URL of the source object.
        offset, length
            Range of its bytes.
        checksum
            State that the object must have whenever it is read, else `SourceChangedError` is raised: its entity tag, or
            a time after which it must not have been modified (a datetime with a time zone, a numpy.datetime64, or
            seconds since 1970).  By default the current state of the object is looked up.  None for a reference that is
            never checked.
        validate_container
            Whether the URL must be in a container opened to the repository.

        Raises
        ------
        VirtualReferenceError
            If the URL is in no container, or could lead out of it, or if the state of its object must be looked up and
            it does not exist.
        """
        check_key(key)
        target = self._session.hierarchy.chunk(key)
        if target is None or target[0].info is None:
            raise InvalidInputError(f"{key!r} is not a valid chunk key: it must be that of a chunk of an array")
        handle, coords = target
        specs = [virtual_references.VirtualChunkSpec(coords, location, offset, length)]
        self.set_virtual_refs(handle.node.path, specs, validate_containers=validate_container, checksum=checksum)

    def set_virtual_refs(
        self,
        array_path: str,
        chunks: Sequence[VirtualChunkSpec],
        *,
        validate_containers: bool = True,
        checksum: Checksum = FROM_SOURCE,
    ) -> None:
        """Set many chunks of an array to virtual references: all of them, or none if one is refused.

        Parameters
        ----------
        array_path
            Path of the array.
        chunks
            Chunks and their references.
        validate_containers
            Whether URLs must be in a container opened to the repository.
        checksum
            As for `set_virtual_ref`, for the chunks without a checksum of their own; each source is looked up once.

        Raises
        ------
        VirtualReferenceError
            As for `set_virtual_ref`.
        """
        node = self._array(array_path)
        coords = np.array([chunk.index for chunk in chunks], dtype=np.int64)
        virtual_references.write_virtual_references(
            self._session.hierarchy,
            self._session.context.containers,
            node,
            coords.reshape(len(chunks), -1),
            [chunk.location for chunk in chunks],
            np.array([chunk.offset for chunk in chunks], dtype=np.int64),
            np.array([chunk.length for chunk in chunks], dtype=np.int64),
            validate_containers,
            [virtual_references.checksum_of(chunk, checksum) for chunk in chunks],
        )

    def set_virtual_refs_arr(
        self,
        array_path: str,
        chunk_grid_shape: tuple[int, ...],
        locations: Sequence[str] | npt.NDArray[Any],
        offsets: npt.ArrayLike,
        lengths: npt.ArrayLike,
        *,
        validate_containers: bool = True,
        arr_offset: tuple[int, ...] | None = None,
        checksum: Checksum | Mapping[str, Checksum] = FROM_SOURCE,
    ) -> None:
        """Set a box of chunks to virtual references, from columns in row-major order: all of them, or none.

        Parameters
        ----------
        array_path
            Path of the array.
        chunk_grid_shape
            Count of chunks along each dimension of the box.
        locations
            URL of each chunk, as strings or an array of them; an empty one leaves the chunk as it is.
        offsets, lengths
            Range of bytes of the source object, per chunk.
        validate_containers
            Whether URLs must be in a container opened to the repository.
        arr_offset
            Coordinates of the first chunk of the box; the origin by default.
        checksum
            As for `set_virtual_ref`: one for all chunks, or a mapping by URL.

        Raises
        ------
        VirtualReferenceError
            As for `set_virtual_ref`.
        """
        node = self._array(array_path)
        box = virtual_references.box_of(node, chunk_grid_shape, arr_offset)
        if len(locations) != box.volume:
            raise InvalidInputError(
                f"{len(locations)} locations do not fill a box of {chunk_grid_shape} chunks of array {array_path!r}: "
                "pass one for each chunk"
            )
        virtual_references.write_virtual_references(
            self._session.hierarchy,
            self._session.context.containers,
            node,
            box,
            locations,
            np.asarray(offsets),
            np.asarray(lengths),
            validate_containers,
            checksum,
        )

    def _array(self, path: str) -> Node:
        self._check_writable()
        node = self._session.hierarchy.node(node_path(path))
        if node is None or node.kind != NodeKind.ARRAY:
            raise InvalidInputError(f"there is no array {path!r}")
        return node


def _checked(byte_range: Any) -> Window:
    if not isinstance(byte_range, RangeByteRequest | OffsetByteRequest | SuffixByteRequest):
        raise ValueError(f"Unexpected byte_range, got {byte_range}")  # not TypeError: what zarr's own stores raise
    try:
        return _window(byte_range)
    except TypeError:  # requests of zarr 3.1.0 cannot be hashed
        return _window.__wrapped__(byte_range)


def _buffer(value: Any) -> Buffer:
    if not isinstance(value, Buffer):
        raise TypeError(f"ArrayStore.set(): `value` must be a Buffer instance, not {type(value)}")
    return value


def _rebuild(cls: type[ArrayStore], session: StoreSession, read_only: bool) -> ArrayStore:
    return cls(session, read_only=read_only)
