"""Writing of datasets and trees into a session: metadata and arrays in memory directly, dask arrays through forks."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import xarray as xr

from arraystore._session.arguments import check_writable_session
from arraystore._session.fork import ForkSession
from arraystore._session.session import Session
from arraystore.xarray.checking_store import CheckingStore
from arraystore.xarray.dask_arrays import is_dask
from arraystore.xarray.deferred import DeferredWriter, PendingWrite
from arraystore.xarray.growing import all_parts_or_none, check_parts_grow, growing
from arraystore.xarray.kept_coordinates import check_coordinates
from arraystore.xarray.parts import Mode, Part, Region, appended, check_names, region_of

try:
    from xarray.backends.writers import dump_to_store
except ImportError:  # where it was until xarray 2025.9
    from xarray.backends.api import dump_to_store  # type: ignore[attr-defined,no-redef,unused-ignore]

_dump_to_store: Any = dump_to_store  # xarray declares no types for it


@dataclass(frozen=True)
class DatasetWriter:
    """Target and choices of a write of datasets; see `arraystore.xarray.to_arraystore`."""

    session: Session | ForkSession
    group: str | None
    mode: Mode
    append_dim: Hashable | None = None
    region: Region | None = None
    safe_chunks: bool = True
    align_chunks: bool = False
    compute_kwargs: Mapping[str, Any] = field(default_factory=dict)
    split_every: int | None = None
    elsewhere: Collection[str] = ()
    """Variables of the group that the caller appends itself."""

    def write(self, parts: list[Part], *, compute: bool = True) -> PendingWrite:
        """Write the datasets of some groups, and return dask arrays to compute; none if `compute`."""
        for part in parts:
            check_names(part.dataset)
            _check_session(self.session, part.dataset, self.compute_kwargs)
        self._check_growth(parts)
        with all_parts_or_none(self.session, self._path, parts, self.append_dim, self.mode):
            pending = self._write(parts)
            if not compute:
                return pending
            pending.compute(**self.compute_kwargs)
            return PendingWrite()

    @property
    def _path(self) -> str:
        """Path of the group, as zarr reads it."""
        return "/".join(part for part in (self.group or "").replace("\\", "/").split("/") if part)

    @property
    def _appends(self) -> bool:
        return self.append_dim is not None and self.session.records_appends

    def _check_growth(self, parts: Iterable[Part]) -> None:
        if self._appends and isinstance(self.session, Session):
            with self.session.hierarchy.untracked():
                dim, indexes = str(self.append_dim), self.region is None
                check_parts_grow(self.session.hierarchy, self._path, parts, dim, self.elsewhere, indexes)

    def _write(self, parts: list[Part]) -> PendingWrite:
        """Write metadata and arrays in memory."""
        writer = DeferredWriter()
        existing: set[str] = set()
        with growing(self.session, self.append_dim):
            root = self._open()
            written = appended(parts, self.append_dim, self.mode)
            kept = self._check_coordinates(root, written)
            regions: dict[str, Mapping[Any, Any]] = {}
            for part in written:
                store = self._store(root, part, regions)
                _dump_to_store(self._dataset(store, part, regions), store, writer, encoding=part.encoding)
                if self.append_dim is not None:
                    existing.update(f"{store.zarr_group.path}/{name}".strip("/") for name in store.array_keys())
        writer.write(self.session, existing, kept)
        return PendingWrite(
            tuple(writer.sources), tuple(writer.targets), tuple(writer.regions), self.split_every, self.session._id
        )

    def _open(self) -> Any:
        return CheckingStore.open_group(
            store=self.session.store,
            group=self.group,
            mode=self.mode,
            append_dim=self.append_dim,
            write_region=dict(self.region) if isinstance(self.region, Mapping) else self.region,
            safe_chunks=self.safe_chunks,
            align_chunks=self.align_chunks,
            consolidated=False,
            consolidate_on_close=False,
        )

    def _check_coordinates(self, root: Any, parts: Iterable[Part]) -> set[str]:
        """Check coordinates that do not grow, and return the paths of those that need not be written."""
        kept: set[str] = set()
        for part in parts if self._appends else ():
            if (store := _existing_group(root, part.path)) is not None:
                kept |= check_coordinates(self.session, store, part.dataset, self.append_dim, self.compute_kwargs)
        return kept

    def _store(self, root: Any, part: Part, regions: Mapping[str, Mapping[Any, Any]]) -> Any:
        """Return the group of a part, with what xarray is to do there."""
        store = root.get_child_store(part.path) if part.path else root
        store._append_dim = self.append_dim if self.append_dim in part.dataset.dims else None
        store._write_region = region_of(part, self.region, regions)
        return store

    def _dataset(self, store: Any, part: Part, regions: dict[str, Mapping[Any, Any]]) -> xr.Dataset:
        """Return what is written of a part, and note its region."""
        dataset: xr.Dataset = store._validate_and_autodetect_region(part.dataset)
        found = store._write_region  # which xarray has worked out, where it was "auto"
        regions[part.path] = found if isinstance(found, Mapping) else {}
        store._validate_encoding(part.encoding)
        return dataset


def _existing_group(root: Any, path: str) -> Any:
    """Return a group of a tree; None if it does not exist, and would be made."""
    if not path:
        return root
    return root.get_child_store(path) if path in root.zarr_group else None


def _check_session(session: Session | ForkSession, dataset: xr.Dataset, compute_kwargs: Mapping[str, Any]) -> None:
    check_writable_session(session)
    arrays = [variable.data for variable in dataset.variables.values() if variable.chunks is not None]
    arrays = [array for array in arrays if is_dask(array)]
    if arrays:
        from arraystore.dask.storing import check_scheduler

        check_scheduler(session, arrays, compute_kwargs)
