"""Writing of Xarray objects into a session."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Literal, overload

import xarray as xr

from arraystore._session.fork import ForkSession
from arraystore._session.session import Session
from arraystore.xarray.dataset_writer import DatasetWriter
from arraystore.xarray.deferred import PendingWrite
from arraystore.xarray.parts import Mode, Region, mode_of, parts_of

__all__ = ["PendingWrite", "to_arraystore", "to_icechunk"]


@overload
def to_arraystore(
    obj: xr.DataArray | xr.Dataset | xr.DataTree,
    session: Session | ForkSession,
    *,
    group: str | None = None,
    mode: Mode | None = None,
    safe_chunks: bool = True,
    align_chunks: bool = False,
    append_dim: Hashable | None = None,
    region: Region | None = None,
    encoding: Mapping[Any, Any] | None = None,
    compute: Literal[True] = True,
    chunkmanager_store_kwargs: Mapping[str, Any] | None = None,
    split_every: int | None = None,
    write_inherited_coords: bool = False,
) -> None: ...


@overload
def to_arraystore(
    obj: xr.DataArray | xr.Dataset | xr.DataTree,
    session: Session | ForkSession,
    *,
    group: str | None = None,
    mode: Mode | None = None,
    safe_chunks: bool = True,
    align_chunks: bool = False,
    append_dim: Hashable | None = None,
    region: Region | None = None,
    encoding: Mapping[Any, Any] | None = None,
    compute: Literal[False],
    chunkmanager_store_kwargs: Mapping[str, Any] | None = None,
    split_every: int | None = None,
    write_inherited_coords: bool = False,
) -> PendingWrite: ...


def to_arraystore(
    obj: xr.DataArray | xr.Dataset | xr.DataTree,
    session: Session | ForkSession,
    *,
    group: str | None = None,
    mode: Mode | None = None,
    safe_chunks: bool = True,
    align_chunks: bool = False,
    append_dim: Hashable | None = None,
    region: Region | None = None,
    encoding: Mapping[Any, Any] | None = None,
    compute: bool = True,
    chunkmanager_store_kwargs: Mapping[str, Any] | None = None,
    split_every: int | None = None,
    write_inherited_coords: bool = False,
) -> PendingWrite | None:
    """Write a dataset, or a tree of them, into a session, with any dask scheduler.

    Does what `xarray.Dataset.to_zarr` does with ``session.store``, and lets processes and clusters take part: metadata
    and arrays in memory are written by the session, and dask arrays through forks of it, merged when all are computed.
    Nothing is committed.

    Parameters
    ----------
    obj
        Dataset, data array or tree to write.
    session
        A writable session, or a fork, which then has all changes.
    group
        Path of the group; the root by default.
    mode
        ``"w"`` replaces an existing group, which stays if this fails, ``"w-"`` refuses to, and leaves nothing if it
        fails, ``"a"`` overwrites variables, ``"a-"`` only appends those that have ``append_dim``, ``"r+"`` changes
        values only.  By default ``"a"`` with ``append_dim``, ``"r+"`` with ``region``, else ``"w-"``.
    safe_chunks
        Whether xarray checks dask chunks against Zarr chunks.  Tasks that write the same chunk are detected in any
        case.
    align_chunks
        Whether dask chunks are made to fit Zarr chunks.
    append_dim
        Dimension along which to append.  It is recorded as an append, so that sessions that append at the same time
        can both be committed.  Coordinates that lack the dimension must be those that are stored, whatever the mode,
        once encoded as these are; dask arrays among them are computed to be compared.  Data variables that lack it
        overwrite stored ones with ``"a"``: those in memory where they differ, dask arrays always.  All arrays of a
        group that have the dimension must grow together, and no new one may have it; of a tree, those of all its
        groups.  If an append fails, the session is as it was; with ``compute=False``, until this function has returned.
    region
        The part of existing arrays to write: slices by dimension, or ``"auto"`` to find it by coordinates.  Of a tree,
        the part of each group that has one of the dimensions; groups find it by coordinates that they inherit, too.
    encoding
        Encodings by variable; of a tree by the paths of its groups, and by variable.
    compute
        Whether dask arrays are computed now.  If not, metadata and arrays in memory are written, and what is returned
        computes the others.
    chunkmanager_store_kwargs
        For `dask.compute`, ``{"scheduler": "processes"}`` for instance.
    split_every
        Count of task results that are combined at a time.
    write_inherited_coords
        Whether groups of a tree repeat the coordinates that they inherit.

    Returns
    -------
    PendingWrite or None
        With ``compute=False``, the dask arrays that are left to compute.

    Raises
    ------
    InvalidInputError
        If arguments do not go together, two dask chunks share a Zarr chunk, the units of an existing array do not hold
        a time, a coordinate differs from that of the arrays to append to, `obj` lacks an array of a group that has
        `append_dim` or has a new one, an encoding or an existing array does not hold the values, or processes of dask
        cannot open the storage.
    SessionStateError
        If a fork is to be appended to.
    ValueError
        If xarray refuses the dataset.
    """
    writer = DatasetWriter(
        session,
        group,
        mode_of(mode, append_dim, region),
        append_dim,
        region,
        safe_chunks,
        align_chunks,
        chunkmanager_store_kwargs or {},
        split_every,
    )
    parts = parts_of(obj, encoding or {}, append_dim, region, write_inherited_coords=write_inherited_coords)
    pending = writer.write(parts, compute=compute)
    return None if compute else pending


to_icechunk = to_arraystore
"""Alias of `to_arraystore` for users of Icechunk."""
