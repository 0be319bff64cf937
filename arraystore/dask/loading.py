"""Arrays of a session as dask arrays: each block is a region, read without zarr."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dask.array
import dask.base
import numpy as np

from arraystore._session.base import SessionBase
from arraystore._session.regions.access import open_array
from arraystore._session.regions.layout import layout_of
from arraystore._session.regions.zarr_regions import zarr_array

if TYPE_CHECKING:
    from dask.array.core import Array as DaskArray

__all__ = ["load_dask"]

_arrays: Any = dask.array  # its functions have no types
_base: Any = dask.base


@dataclass(frozen=True)
class _Source:
    """An array of a session, of which dask reads a region for each block."""

    session: SessionBase
    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, region: tuple[slice, ...]) -> Any:
        return self.session.read(self.path, region)


def load_dask(session: SessionBase, path: str, *, chunks: Any = None) -> DaskArray:
    """Return an array of a session as a dask array, of which each block is one `Session.read`.

    Nothing is read before it is computed.  Processes that compute must be able to open the storage.  Of a writable
    session blocks in this process show what it holds when they are computed, those in others its state when they are
    sent there.

    Parameters
    ----------
    session
        A session or fork.
    path
        Path of the array.
    chunks
        Blocks, in any form that dask takes; by default the stored chunks (shards, if any).  Multiples of them are read
        with fewer requests.

    Raises
    ------
    NodeNotFoundError
        If there is no such array.
    """
    handle = open_array(session, path)
    layout = layout_of(handle)
    stored = _stored_chunks(zarr_array(session.store, path, layout))
    source = _Source(session, handle.node.path, layout.shape, layout.dtype)
    blocks = _arrays.core.normalize_chunks(
        stored if chunks is None else chunks, layout.shape, dtype=layout.dtype, previous_chunks=stored
    )
    name = f"arraystore-{_base.tokenize(session, handle.node.path, blocks)}"
    loaded: DaskArray = _arrays.from_array(
        source, blocks, name=name, asarray=True, fancy=False, meta=np.empty((0,) * source.ndim, layout.dtype)
    )
    return loaded


def _stored_chunks(array: Any) -> tuple[tuple[int, ...], ...]:
    """Return the sides of stored chunks along each dimension."""
    if hasattr(array, "write_chunk_sizes"):  # since zarr 3.2, and the only one for chunks of several sizes
        return tuple([tuple(sides) or (0,) for sides in array.write_chunk_sizes])
    sides = array.shards or array.chunks
    return tuple(
        [
            (*[side] * (length // side), *([length % side] if length % side else [])) if length else (0,)
            for side, length in zip(sides, array.shape, strict=True)
        ]
    )
