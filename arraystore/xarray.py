"""Writing Xarray objects into a session: metadata and arrays in memory directly, dask arrays through forks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import xarray as xr
from xarray.backends import ZarrStore
from xarray.backends.common import ArrayWriter

from arraystore._session.fork import ForkSession
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError, SessionStateError

try:
    from xarray.backends.writers import dump_to_store
except ImportError:  # where it was until xarray 2025.9
    from xarray.backends.api import dump_to_store  # type: ignore[attr-defined,no-redef,unused-ignore]

__all__ = ["to_arraystore", "to_icechunk"]

Mode = Literal["w", "w-", "a", "a-", "r+"]
Region = Mapping[str, slice | Literal["auto"]] | Literal["auto"]

_dump_to_store: Any = dump_to_store  # xarray declares no types for it
_NO_NAME = "__xarray_dataarray_variable__"
_NAME = "__xarray_dataarray_name__"


def to_arraystore(
    obj: xr.DataArray | xr.Dataset,
    session: Session | ForkSession,
    *,
    group: str | None = None,
    mode: Mode | None = None,
    safe_chunks: bool = True,
    align_chunks: bool = False,
    append_dim: Hashable | None = None,
    region: Region | None = None,
    encoding: Mapping[Any, Any] | None = None,
    chunkmanager_store_kwargs: Mapping[str, Any] | None = None,
    split_every: int | None = None,
) -> None:
    """Write a dataset into a session, with any dask scheduler.

    Does what `xarray.Dataset.to_zarr` does with ``session.store``, and lets processes and clusters take part: metadata
    and arrays in memory are written by the session, and dask arrays through forks of it, merged when all are computed.
    Nothing is committed.

    Parameters
    ----------
    obj
        Dataset or data array to write.
    session
        A writable session.  A `ForkSession` suffices if no array is a dask array.
    group
        Path of the group; the root by default.
    mode
        ``"w"`` replaces an existing group, ``"w-"`` refuses to, ``"a"`` overwrites variables, ``"a-"`` only
        appends those that have ``append_dim``, ``"r+"`` changes values only.  By default ``"a"`` with
        ``append_dim``, ``"r+"`` with ``region``, else ``"w-"``.
    safe_chunks
        Whether xarray checks dask chunks against Zarr chunks.  Tasks that write the same chunk are detected in any
        case.
    align_chunks
        Whether dask chunks are made to fit Zarr chunks.
    append_dim
        Dimension along which to append.  It is recorded as an append, so that sessions that append at the same time
        can both be committed.  Variables in memory that lack the dimension are written only where they differ from
        existing ones.
    region
        The part of existing arrays to write: slices by dimension, or ``"auto"`` to find it by coordinates.
    encoding
        Encodings by variable.
    chunkmanager_store_kwargs
        For `dask.compute`, ``{"scheduler": "processes"}`` for instance.
    split_every
        Count of task results that are combined at a time.

    Raises
    ------
    InvalidInputError
        If arguments do not go together, two dask chunks share a Zarr chunk, or processes of dask cannot open the
        storage.
    SessionStateError
        If dask arrays are to be written to a fork.
    ValueError
        If xarray refuses the dataset.
    """
    dataset = _as_dataset(obj)
    _check_names(dataset)
    _check_session(session, dataset, chunkmanager_store_kwargs or {})
    mode = _mode(mode, append_dim, region)
    if append_dim is not None:
        dataset = _load(dataset)
    with _growing(session, append_dim):
        store = ZarrStore.open_group(
            store=session.store,
            group=group,
            mode=mode,
            append_dim=append_dim,
            write_region=dict(region) if isinstance(region, Mapping) else region,
            safe_chunks=safe_chunks,
            align_chunks=align_chunks,
            consolidated=False,
            consolidate_on_close=False,
        )
        dataset = store._validate_and_autodetect_region(dataset)
        store._validate_encoding(encoding or {})
        writer = _Deferred()
        _dump_to_store(dataset, store, writer, encoding=encoding or {})
    writer.write(store.array_keys() if append_dim is not None else ())
    if writer.sources:
        from arraystore.dask import store_dask

        store_dask(
            sources=writer.sources,
            targets=writer.targets,
            regions=writer.regions,
            split_every=split_every,
            **(chunkmanager_store_kwargs or {}),
        )


to_icechunk = to_arraystore
"""Alias of `to_arraystore` for users of Icechunk."""


@contextlib.contextmanager
def _growing(session: Session | ForkSession, dim: Hashable | None) -> Iterator[None]:
    """Record growth as an append at the end of arrays, without a dependency on their present length."""
    if dim is None:
        yield
    elif isinstance(session, ForkSession):
        raise SessionStateError("forks do not append to arrays: do it in the session, before forking")
    else:
        with session.appending(str(dim)), session.hierarchy.untracked():
            yield


def _load(dataset: xr.Dataset) -> xr.Dataset:
    """Load all arrays of a dataset but dask arrays into memory."""
    dataset = dataset.copy(deep=False)
    for variable in dataset.variables.values():
        if variable.chunks is None:
            variable.load()
    return dataset


class _Deferred(ArrayWriter):
    """Defers writes of arrays until all metadata is written."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self._in_memory: list[tuple[np.ndarray[Any, Any], Any, Any]] = []

    def add(self, source: Any, target: Any, region: Any = None) -> None:
        if _is_dask(source):
            self.sources.append(source)
            self.targets.append(target)
            self.regions.append(region)
        else:
            self._in_memory.append((np.asarray(source), target, region))

    def write(self, existing: Collection[str]) -> None:
        """Write arrays in memory, except values that existing arrays of these names have already.

        Two appends that share coordinates would conflict otherwise.
        """
        for source, target, region in self._in_memory:
            whole = all(part == slice(None) for part in region or ())
            if not (whole and target.path.rpartition("/")[2] in existing and _same(np.asarray(target[...]), source)):
                target[region or ...] = source


def _same(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> bool:
    gaps = {"equal_nan": True} if first.dtype.kind in "fcmM" else {}
    return first.dtype == second.dtype and bool(np.array_equal(first, second, **gaps))


def _is_dask(value: Any) -> bool:
    dask = sys.modules.get("dask")  # who has a dask array has imported it
    return dask is not None and bool(dask.is_dask_collection(value))


def _check_session(session: Session | ForkSession, dataset: xr.Dataset, compute_kwargs: Mapping[str, Any]) -> None:
    if not isinstance(session, Session | ForkSession):
        raise InvalidInputError(
            f"session must be a Session, not {type(session).__name__}: see Repository.writable_session"
        )
    session.check_writable()
    lazy = [name for name, variable in dataset.variables.items() if variable.chunks is not None]
    if lazy and isinstance(session, ForkSession):
        raise SessionStateError(
            f"dask arrays ({', '.join(map(repr, lazy[:5]))}) are not written to a fork: write them to its session, "
            "whose workers get forks of their own, or load() them first"
        )
    arrays = [dataset.variables[name].data for name in lazy if _is_dask(dataset.variables[name].data)]
    if arrays:
        from arraystore.dask import check_scheduler

        check_scheduler(session, arrays, compute_kwargs)


def _check_names(dataset: xr.Dataset) -> None:
    for name in dataset.variables:
        if not isinstance(name, str) or not name:
            raise InvalidInputError(f"the variable {name!r} must have a string as its name: rename it")


def _mode(mode: Mode | None, append_dim: Hashable | None, region: Region | None) -> Mode:
    """Return the mode by the rules of `xarray.Dataset.to_zarr`."""
    if mode is None:
        return "a" if append_dim is not None else "r+" if region is not None else "w-"
    if mode not in ("w", "w-", "a", "a-", "r+"):
        raise InvalidInputError(f"mode={mode!r} must be 'w', 'w-', 'a', 'a-' or 'r+'")
    if append_dim is not None and mode not in ("a", "a-"):
        raise InvalidInputError(f"append_dim does not go with mode={mode!r}: use 'a' or 'a-', or leave mode out")
    if region is not None and mode not in ("a", "a-", "r+"):
        raise InvalidInputError(f"region does not go with mode={mode!r}: use 'a', 'a-' or 'r+', or leave mode out")
    return mode


def _as_dataset(obj: xr.DataArray | xr.Dataset) -> xr.Dataset:
    """Return a data array as the dataset that `xarray.DataArray.to_zarr` would write."""
    if isinstance(obj, xr.Dataset):
        return obj
    if not isinstance(obj, xr.DataArray):
        raise InvalidInputError(f"obj must be an xarray.Dataset or DataArray, not {type(obj).__name__}")
    if obj.name is None:
        return obj.to_dataset(name=_NO_NAME)
    if obj.name in obj.coords or obj.name in obj.dims:
        dataset = obj.to_dataset(name=_NO_NAME)
        dataset.attrs[_NAME] = obj.name
        return dataset
    return obj.to_dataset()
