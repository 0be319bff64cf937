"""Dask arrays, written into forks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zarr
from zarr.storage import StorePath

from arraystore._session.regions.opened_arrays import config_of
from arraystore._session.store import ArrayStore
from arraystore.compat.icechunk.distributed import merge_sessions
from arraystore.compat.icechunk.session import ForkSession, Session
from arraystore.compat.icechunk.store import IcechunkStore
from arraystore.dask.storing import store_dask_here
from arraystore.errors import InvalidInputError

__all__ = ["session_merge_reduction", "store_dask"]


def store_dask(
    *,
    sources: Any,
    targets: Any,
    regions: Any = None,
    split_every: int | None = None,
    **store_kwargs: Any,
) -> ForkSession:
    """Write dask arrays into Zarr arrays of a fork; return it with all changes, to be merged into its session."""
    several: Sequence[Any] = targets if isinstance(targets, list | tuple) else [targets]
    owner = _owner(several)
    store_dask_here(sources, [_plain(target) for target in several], regions, split_every, **store_kwargs)
    if isinstance(owner, ForkSession):
        return owner
    return ForkSession(owner._core.fork(), owner.mode, owner._opened)


def _owner(targets: Sequence[Any]) -> Session:
    stores = [target.store for target in targets]
    if not stores or not all(isinstance(store, IcechunkStore) for store in stores):
        raise InvalidInputError("targets must be Zarr arrays of a fork: open them with fork.store")
    owner: Session = stores[0].session
    return owner


def _plain(target: Any) -> zarr.Array[Any]:
    """Return the same array over the store of arraystore."""
    place = StorePath(ArrayStore(target.store.session._core), target.path)
    return zarr.Array(zarr.AsyncArray(target.metadata, place, config_of(target)))


def session_merge_reduction(arrays: Any, *, split_every: int | None, **store_kwargs: Any) -> ForkSession:
    """Compute dask arrays of Zarr arrays, which a store has written to, and merge their forks."""
    import dask.base

    functions: Any = dask.base  # they have no types
    several = arrays if isinstance(arrays, list | tuple) else [arrays]
    for array in several:
        if not functions.is_dask_collection(array):
            raise TypeError(f"Expected a dask array, received {type(array)!r}")
    blocks = [block for array in several for block in array.to_delayed().ravel()]
    forks = [block.store.session for block in functions.compute(*blocks, **store_kwargs)]
    return merge_sessions(*{id(fork._core): fork for fork in forks}.values())
