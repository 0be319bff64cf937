"""The codec pipeline: whole selections of arrays in sessions' stores; all else goes to the pipeline before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.abc.codec import Codec, CodecPipeline
from zarr.registry import register_pipeline

from arraystore._runtime import lazy_module
from arraystore._runtime.values import dataclass
from arraystore._session.hierarchy import ArrayHandle, Hierarchy
from arraystore._session.pipeline.blocks import UnsoundBlockError
from arraystore._session.pipeline.byte_codecs import UndecodableError
from arraystore._session.pipeline.chains import chunk_codec
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.emptiness import FillValue
from arraystore._session.pipeline.projection import Batch, Projection, project
from arraystore._session.pipeline.reading import read_selection
from arraystore._session.pipeline.shards import ArrayCodec, ShardCodec
from arraystore._session.pipeline.single_chunks import SingleChunks, are_few, read_single_chunks, write_single_chunks
from arraystore._session.pipeline.target import PipelineStore
from arraystore._session.pipeline.writing import SelectionWriter
from arraystore.errors import ArrayStoreError

if TYPE_CHECKING:
    from arraystore._session.pipeline import listing, undecodable
    from arraystore._session.pipeline.listing import Listing
else:
    listing = lazy_module("arraystore._session.pipeline.listing")
    undecodable = lazy_module("arraystore._session.pipeline.undecodable")

_INLINE = 1 << 18
"""Bytes below which a local selection is done before another thread could have begun it."""

_FEWEST = 4
"""Chunks for which a selection is handled as a whole: of fewer, making it one takes longer than a step for each."""

_LARGE = 1 << 18
"""Bytes from which fewer chunks are written as a whole, too: encoding and storing them takes most of the time."""

_LISTED = 64
"""Chunks of a read up to which a copy of each costs less than finding runs of them."""

_PRESENT: Any = {"status": "present"}
_MISSING: Any = {"status": "missing"}


@dataclass(frozen=True)
class _Work:
    """A selection of one array, ready to be read or written."""

    hierarchy: Hierarchy
    handle: ArrayHandle
    codec: ArrayCodec
    selection: Projection | Listing | SingleChunks
    values: np.ndarray[Any, Any]
    """The user's array, with all axes of a product."""
    fill: FillValue

    @property
    def is_quick(self) -> bool:
        """Tell whether a thread would cost more than the work."""
        size = self.values.nbytes if isinstance(self.codec, ShardCodec) else self.selection.count * self.codec.nbytes
        return self.hierarchy.reader.storage.cheap_probes and size <= _INLINE


class ArrayStoreCodecPipeline(CodecPipeline):
    """Codec pipeline of sessions' stores, with a codec for many chunks where the chain of codecs is known.

    What it does not know (codecs, data types, selections, virtual chunks, errors) goes to the pipeline that
    `make_inner` returns when it is first needed: who lists a thousand arrays needs none of theirs.
    """

    def __init__(self, make_inner: Callable[[], CodecPipeline], codec: ArrayCodec | None) -> None:
        self._make_inner = make_inner
        self.codec = codec

    @cached_property
    def inner(self) -> CodecPipeline:
        """Pipeline for what this one does not know."""
        return self._make_inner()

    # -- construction -------------------------------------------------------------------------------------------

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec], **options: Any) -> Any:
        """Return the pipeline configured before: inner codecs of shards, and arrays in other stores, have no other."""
        return _previous().from_codecs(codecs, **options)

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: Any, store: Any) -> Any:
        """Return a pipeline for an array in a session's store; for any other, the pipeline configured before."""
        if not isinstance(store, PipelineStore):
            return _previous().from_array_metadata_and_store(array_metadata=array_metadata, store=store)
        codec = chunk_codec(array_metadata)
        make = partial(_inner, _previous(), array_metadata, store)
        if codec is None:
            return cls(partial(_as_it_is, make()), None)
        return cls(make, codec)

    def evolve_from_array_spec(self, array_spec: Any) -> ArrayStoreCodecPipeline:
        """Return the pipeline for a specification of chunks."""
        return type(self)(partial(_as_it_is, self.inner.evolve_from_array_spec(array_spec)), self.codec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayStoreCodecPipeline) and (self.inner, self.codec) == (other.inner, other.codec)

    __hash__ = None  # type: ignore[assignment]

    # -- what only the inner pipeline does ----------------------------------------------------------------------

    def __iter__(self) -> Iterator[Codec]:
        return iter(self.inner)  # type: ignore[call-overload, no-any-return]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("inner", "codec", "_make_inner"):  # while it is being unpickled
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def supports_partial_decode(self) -> bool:
        """Tell whether the inner pipeline decodes parts of chunks."""
        return self.inner.supports_partial_decode

    @property
    def supports_partial_encode(self) -> bool:
        """Tell whether the inner pipeline encodes parts of chunks."""
        return self.inner.supports_partial_encode

    def validate(self, **array: Any) -> None:
        """Check that the codecs suit an array."""
        self.inner.validate(**array)

    def compute_encoded_size(self, byte_length: int, array_spec: Any) -> int:
        """Return the size of an encoded chunk, if it is fixed."""
        return self.inner.compute_encoded_size(byte_length, array_spec)

    async def decode(self, chunk_bytes_and_specs: Any) -> Any:
        """Decode chunks."""
        return await self.inner.decode(chunk_bytes_and_specs)

    async def encode(self, chunk_arrays_and_specs: Any) -> Any:
        """Encode chunks."""
        return await self.inner.encode(chunk_arrays_and_specs)

    # -- selections ---------------------------------------------------------------------------------------------

    async def read(self, batch_info: Iterable[Any], out: Any, drop_axes: tuple[int, ...] = ()) -> Any:
        """Read the chunks of a selection into an array."""
        batch = list(batch_info)
        work = self._work(batch, out, drop_axes, writing=False)
        if work is not None:
            missing = _read(work) if work.is_quick else await asyncio.to_thread(_read, work)
            if missing is not None:
                return _statuses(missing)
        try:
            return await self.inner.read(batch, out, drop_axes)
        except ArrayStoreError:
            raise
        except Exception as error:  # of any codec
            await undecodable.note_chunk(error, batch, self.codec)
            raise

    async def write(self, batch_info: Iterable[Any], value: Any, drop_axes: tuple[int, ...] = ()) -> None:
        """Write values to the chunks of a selection."""
        batch = list(batch_info)
        work = self._work(batch, value, drop_axes, writing=True)
        if work is not None and (_write(work) if work.is_quick else await asyncio.to_thread(_write, work)):
            return
        await self.inner.write(batch, value, drop_axes)

    def _work(self, batch: Batch, values: Any, drop_axes: tuple[int, ...], *, writing: bool) -> _Work | None:
        """Return the work of a batch; None if it is not one that is known."""
        codec, array = self.codec, values.as_ndarray_like()
        if codec is None or not batch or not isinstance(array, np.ndarray):
            return None
        path, spec = batch[0][0], batch[0][1]
        store = getattr(path, "store", None)
        if not isinstance(store, PipelineStore) or spec.shape != codec.shape:
            return None
        hierarchy = store._pipeline_hierarchy(writing=writing)
        measured = writing and hierarchy.writable().packs.settings.statistics
        singly = isinstance(codec, ChunkCodec) and not measured and are_few(hierarchy, batch, codec, writing=writing)
        if len(batch) < _fewest(codec, writing=writing) and not (singly or measured):
            return None
        handle = _handle(hierarchy, path.path, len(codec.shape))
        native = spec.dtype.to_native_dtype()
        if handle is None or array.dtype.newbyteorder("=") != native.newbyteorder("="):
            return None
        selected: tuple[Projection | Listing | SingleChunks, np.ndarray[Any, Any]] | None = None
        if singly:
            selected = SingleChunks(batch, drop_axes), array
        elif not drop_axes and (writing or isinstance(codec, ShardCodec) or len(batch) > _LISTED):
            selected = _product(batch, handle, array, writing=writing)
        if selected is None and isinstance(codec, ChunkCodec):
            selected = _list(batch, drop_axes, handle, array)
        if selected is None:
            return None
        value = spec.dtype.default_scalar() if spec.fill_value is None else spec.fill_value
        fill = FillValue(value, spec.config.write_empty_chunks, spec.prototype.nd_buffer)
        return _Work(hierarchy, handle, codec, *selected, fill)


register_pipeline(ArrayStoreCodecPipeline)


def _fewest(codec: ArrayCodec, *, writing: bool) -> int:
    if isinstance(codec, ShardCodec):
        return 1
    return min(_FEWEST, -(-_LARGE // codec.nbytes)) if writing else _FEWEST


def _handle(hierarchy: Hierarchy, key: str, dimensions: int) -> ArrayHandle | None:
    """Return the array of a chunk key; None for one whose keys must be looked up one by one."""
    target = None if hierarchy.has_files else hierarchy.chunk(key)
    if target is None or not target[0].separator or len(target[0].grid) != dimensions:
        return None
    return target[0]


def _product(
    batch: Batch, handle: ArrayHandle, array: np.ndarray[Any, Any], *, writing: bool
) -> tuple[Projection, np.ndarray[Any, Any]] | None:
    """Return a selection as a product, and the user's array with all axes; None if it is not one."""
    selection = project(batch, handle.prefix, handle.separator, len(handle.grid))
    if selection is None or any(int(a[-1]) >= b for a, b in zip(selection.axes, handle.grid, strict=True)):
        return None
    if writing and array.shape == ():
        array = np.broadcast_to(array, selection.kept_shape)
    with_axes = selection.with_all_axes(array)
    return None if with_axes is None else (selection, with_axes)


def _list(
    batch: Batch, drop_axes: tuple[int, ...], handle: ArrayHandle, array: np.ndarray[Any, Any]
) -> tuple[Listing, np.ndarray[Any, Any]] | None:
    """Return a selection as a list of chunks, and the user's array; None if it is not one."""
    chosen = listing.list_chunks(batch, drop_axes, handle.prefix, handle.separator, handle.grid)
    return None if chosen is None else (chosen, array)


def _read(work: _Work) -> np.ndarray[Any, Any] | None:
    """Read a selection; None if the general path has to."""
    array = work.hierarchy, work.handle
    try:
        if isinstance(work.selection, Projection):
            return read_selection(*array, work.codec, work.selection, work.values, work.fill.value)
        assert isinstance(work.codec, ChunkCodec)
        if isinstance(work.selection, SingleChunks):
            return read_single_chunks(*array, work.codec, work.selection, work.values, work.fill.value)
        return listing.read_listing(*array, work.codec, work.selection, work.values, work.fill.value)
    except (UndecodableError, UnsoundBlockError, ArrayStoreError):
        return None


def _write(work: _Work) -> bool:
    """Write a selection; False if the general path has to, for it cannot read the chunks that it changes."""
    array = work.hierarchy, work.handle, work.codec, work.fill
    try:
        if isinstance(work.selection, Projection):
            SelectionWriter(*array).write(work.selection, work.values)
        elif isinstance(work.selection, SingleChunks):
            assert isinstance(work.codec, ChunkCodec)
            write_single_chunks(work.hierarchy, work.handle, work.codec, work.selection, work.values, work.fill)
        else:
            listing.ListingWriter(*array).write_listing(work.selection, work.values)
    except (UndecodableError, UnsoundBlockError):
        return False
    return True


def _statuses(missing: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    if not missing.any():
        return (_PRESENT,) * len(missing)
    return tuple([_MISSING if absent else _PRESENT for absent in missing.tolist()])


# -- the pipeline before this one -------------------------------------------------------------------------------

_before: list[type[CodecPipeline]] = []


def _previous() -> type[CodecPipeline]:
    """Return the class of the pipeline configured before, or zarr's default."""
    if _before:
        return _before[-1]
    from zarr.core.codec_pipeline import BatchedCodecPipeline

    return BatchedCodecPipeline


def remember_previous(previous: type[CodecPipeline]) -> None:
    """Hand what this pipeline does not know to another one from now on."""
    _before[:] = [previous]


def _as_it_is(inner: CodecPipeline) -> CodecPipeline:
    """Return a pipeline that is made already."""
    return inner


def _inner(previous: type[CodecPipeline], metadata: Any, store: Any) -> CodecPipeline:
    """Return the pipeline configured before, for an array."""
    from zarr.core.array import create_codec_pipeline

    try:
        return previous.from_array_metadata_and_store(array_metadata=metadata, store=store)
    except NotImplementedError:
        return create_codec_pipeline(metadata)  # through `from_codecs`
