"""Writing Xarray objects into a session: metadata and arrays in memory directly, dask arrays through forks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

import numpy as np
import xarray as xr
from xarray.backends.common import ArrayWriter

from arraystore._session.fork import ForkSession
from arraystore._session.regions.like import read_whole, write_like
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError, SessionStateError
from arraystore.xarray.batches import batches
from arraystore.xarray.kept_coordinates import check_coordinates, equal_values
from arraystore.xarray.time_units import TimeCheckingStore

try:
    from xarray.backends.writers import dump_to_store
except ImportError:  # where it was until xarray 2025.9
    from xarray.backends.api import dump_to_store  # type: ignore[attr-defined,no-redef,unused-ignore]

__all__ = ["PendingWrite", "to_arraystore", "to_icechunk"]

Mode = Literal["w", "w-", "a", "a-", "r+"]
Region = Mapping[str, slice | Literal["auto"]] | Literal["auto"]

_dump_to_store: Any = dump_to_store  # xarray declares no types for it
_NO_NAME = "__xarray_dataarray_variable__"
_NAME = "__xarray_dataarray_name__"


@dataclass(frozen=True)
class PendingWrite:
    """Dask arrays whose metadata is in a session and whose values are not; see `to_arraystore`."""

    sources: tuple[Any, ...] = ()
    targets: tuple[Any, ...] = ()
    regions: tuple[Any, ...] = ()
    split_every: int | None = None

    def compute(self, **kwargs: Any) -> None:
        """Compute the arrays and write them into the session, which must not have been committed since.

        Nor must it have been rebased onto appends of others, which move the places of its own.

        Parameters
        ----------
        **kwargs
            For `dask.compute`, ``scheduler="processes"`` for instance.
        """
        if not self.sources:
            return
        from arraystore.dask.storing import store_dask_here

        store_dask_here(self.sources, self.targets, self.regions, self.split_every, **kwargs)


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
        can both be committed.  Coordinates that lack the dimension must be those that are stored, whatever the mode,
        once encoded as these are; dask arrays among them are computed to be compared.  Data variables that lack it
        overwrite stored ones with ``"a"``: those in memory where they differ, dask arrays always.  Of a tree, all
        groups that have the dimension grow.
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
        a time, a coordinate differs from that of the arrays to append to, values in memory do not fit the integers of
        an encoding, or processes of dask cannot open the storage.
    SessionStateError
        If a fork is to be appended to.
    ValueError
        If xarray refuses the dataset.
    """
    parts = _parts(obj, encoding or {}, append_dim, region, write_inherited_coords=write_inherited_coords)
    for part in parts:
        _check_names(part.dataset)
        _check_session(session, part.dataset, chunkmanager_store_kwargs or {})
    mode = _mode(mode, append_dim, region)
    writer = _Deferred()
    existing: set[str] = set()
    kept: set[str] = set()
    with _growing(session, append_dim):
        root = TimeCheckingStore.open_group(
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
        regions: dict[str, Mapping[Any, Any]] = {}
        written = _appended(parts, append_dim, mode)
        if append_dim is not None and session.records_appends:
            for part in written:
                if (store := _existing_group(root, part.path)) is not None:
                    kept |= check_coordinates(session, store, part.dataset, append_dim, chunkmanager_store_kwargs or {})
        for part in written:
            store = root.get_child_store(part.path) if part.path else root
            store._append_dim = append_dim if append_dim in part.dataset.dims else None
            store._write_region = _region_of(part, region, regions)
            dataset = store._validate_and_autodetect_region(part.dataset)
            found = store._write_region  # which xarray has worked out, where it was "auto"
            regions[part.path] = found if isinstance(found, Mapping) else {}
            store._validate_encoding(part.encoding)
            _dump_to_store(dataset, store, writer, encoding=part.encoding)
            if append_dim is not None:
                existing.update(f"{store.zarr_group.path}/{name}".strip("/") for name in store.array_keys())
    writer.write(session, existing, kept)
    pending = PendingWrite(tuple(writer.sources), tuple(writer.targets), tuple(writer.regions), split_every)
    if not compute:
        return pending
    pending.compute(**(chunkmanager_store_kwargs or {}))
    return None


to_icechunk = to_arraystore
"""Alias of `to_arraystore` for users of Icechunk."""


@contextlib.contextmanager
def _growing(session: Session | ForkSession, dim: Hashable | None) -> Iterator[None]:
    """Record growth as an append at the end of arrays, without a dependency on their present length."""
    if dim is None:
        yield
    elif isinstance(session, ForkSession):
        raise SessionStateError("forks do not append to arrays: do it in the session, before forking")
    elif not session.records_appends:
        yield
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

    def write(self, session: Session | ForkSession, existing: Collection[str], kept: Collection[str]) -> None:
        """Write arrays in memory, except values that existing arrays of these paths have already.

        Two appends that share coordinates would conflict otherwise.  Arrays of the paths `kept` are known to have them.
        """
        self._leave_out(kept)
        repeated = {
            target.path: source
            for source, target, region in self._in_memory
            if target.path.strip("/") in existing and all(part == slice(None) for part in region or ())
        }
        unchanged = {path for path, found in _values(session, repeated) if equal_values(found, repeated[path])}
        for source, target, region in self._in_memory:
            if target.path not in unchanged:
                write_like(session, target, region or ..., source)

    def _leave_out(self, kept: Collection[str]) -> None:
        self._in_memory = [each for each in self._in_memory if each[1].path.strip("/") not in kept]
        left = [at for at, target in enumerate(self.targets) if target.path.strip("/") not in kept]
        self.sources, self.targets, self.regions = (
            [each[at] for at in left] for each in (self.sources, self.targets, self.regions)
        )


def _existing_group(root: Any, path: str) -> Any:
    """Return a group of a tree; None if it does not exist, and would be made."""
    if not path:
        return root
    return root.get_child_store(path) if path in root.zarr_group else None


def _values(
    session: Session | ForkSession, like: Mapping[str, np.ndarray[Any, Any]]
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the values of arrays, small ones read together; `like` has arrays as large by path."""
    for paths in batches(like, lambda path: like[path].nbytes):
        yield from zip(paths, map(np.asarray, read_whole(session, paths)), strict=True)


def _is_dask(value: Any) -> bool:
    dask = sys.modules.get("dask")  # who has a dask array has imported it
    return dask is not None and bool(dask.is_dask_collection(value))


def _check_session(session: Session | ForkSession, dataset: xr.Dataset, compute_kwargs: Mapping[str, Any]) -> None:
    if not isinstance(session, Session | ForkSession):
        raise InvalidInputError(
            f"session must be a Session, not {type(session).__name__}: see Repository.writable_session"
        )
    session.check_writable()
    arrays = [variable.data for variable in dataset.variables.values() if variable.chunks is not None]
    arrays = [array for array in arrays if _is_dask(array)]
    if arrays:
        from arraystore.dask.storing import check_scheduler

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


@dataclass(frozen=True)
class _Part:
    """A dataset to write to one group."""

    path: str
    """Path relative to that of the tree; empty for its root."""
    dataset: xr.Dataset
    encoding: Mapping[Any, Any]


def _parts(
    obj: Any,
    encoding: Mapping[Any, Any],
    append_dim: Hashable | None,
    region: Region | None,
    *,
    write_inherited_coords: bool,
) -> list[_Part]:
    """Return the datasets of groups, that of the root first."""
    if not isinstance(obj, xr.DataTree):
        dataset = _as_dataset(obj)
        return [_Part("", dataset if append_dim is None else _load(dataset), encoding)]
    for dim in () if append_dim is None else (append_dim,):
        if not any(dim in node.dims for node in obj.subtree):
            raise InvalidInputError(f"append_dim={dim!r} must be a dimension of a group of the tree, and is of none")
    if unknown := set(encoding) - set(obj.groups):
        raise InvalidInputError(f"encoding must be by group, and the tree has no {sorted(map(str, unknown))}")
    parts = [
        _Part(
            "" if path == "." else path,
            node.to_dataset(inherit=write_inherited_coords or node is obj),
            encoding.get(node.path) or {},
        )
        for path, node in obj.subtree_with_keys
    ]
    if region is not None:  # groups without data have no part of it
        parts = [part for part in parts if part.dataset.variables]
    return parts if append_dim is None else [replace(part, dataset=_load(part.dataset)) for part in parts]


def _appended(parts: list[_Part], append_dim: Hashable | None, mode: Mode) -> list[_Part]:
    """Return the groups that are written: with ``"a-"``, those that have the dimension."""
    several = len(parts) > 1 and append_dim is not None and mode == "a-"
    return [part for part in parts if not several or append_dim in part.dataset.dims]


def _region_of(
    part: _Part, region: Region | None, regions: Mapping[str, Mapping[Any, Any]]
) -> dict[Any, Any] | Literal["auto"] | None:
    """Return the region of a group, of dimensions that it has; `regions` has those of groups above it by path."""
    if region is None or not part.path:
        return dict(region) if isinstance(region, Mapping) else region
    dims = part.dataset.dims
    wanted: dict[Any, Any] = dict.fromkeys(dims, "auto")
    if isinstance(region, Mapping):
        wanted = {dim: place for dim, place in region.items() if dim in dims}
    if not wanted:
        raise InvalidInputError(
            f"the group {part.path!r} has none of the dimensions of region={region!r}: leave it out of the tree"
        )
    for dim in [dim for dim, place in wanted.items() if place == "auto" and dim not in part.dataset.coords]:
        above = part.path
        while above and dim not in regions.get(above, {}):
            above = above.rpartition("/")[0]
        wanted[dim] = regions.get(above, {}).get(dim, "auto")
    return wanted


def _as_dataset(obj: xr.DataArray | xr.Dataset) -> xr.Dataset:
    """Return a data array as the dataset that `xarray.DataArray.to_zarr` would write."""
    if isinstance(obj, xr.Dataset):
        return obj
    if not isinstance(obj, xr.DataArray):
        raise InvalidInputError(f"obj must be an xarray.Dataset, DataArray or DataTree, not {type(obj).__name__}")
    if obj.name is None:
        return obj.to_dataset(name=_NO_NAME)
    if obj.name in obj.coords or obj.name in obj.dims:
        dataset = obj.to_dataset(name=_NO_NAME)
        dataset.attrs[_NAME] = obj.name
        return dataset
    return obj.to_dataset()
