"""Arrays that are written once all metadata is: those in memory directly, dask arrays later, through forks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from xarray.backends.common import ArrayWriter

from arraystore._session.fork import ForkSession
from arraystore._session.regions.opened_arrays import read_whole, write_like
from arraystore._session.session import Session
from arraystore.errors import SessionStateError
from arraystore.xarray.batches import batches
from arraystore.xarray.dask_arrays import is_dask
from arraystore.xarray.kept_coordinates import equal_values


@dataclass(frozen=True)
class PendingWrite:
    """Dask arrays whose metadata is in a session and whose values are not; see `to_arraystore`."""

    sources: tuple[Any, ...] = ()
    targets: tuple[Any, ...] = ()
    regions: tuple[Any, ...] = ()
    split_every: int | None = None
    session_id: bytes | None = None
    """Id that the session had, which it loses when its changes are discarded."""

    def compute(self, **kwargs: Any) -> None:
        """Compute the arrays and write them into the session, which must not have been committed since.

        Nor must it have been rebased onto appends of others, which move the places of its own.  If it fails, no value
        is written, and arrays that `to_arraystore` has let grow stay as long as they are: compute again, or discard the
        changes of the session.

        Parameters
        ----------
        **kwargs
            For `dask.compute`, ``scheduler="processes"`` for instance.
        """
        if not self.sources:
            return
        from arraystore.dask.storing import session_of, store_dask_here

        session = session_of(self.targets)
        if isinstance(session, Session) and self.session_id not in (None, session._id):
            raise SessionStateError(
                "the changes of the session were discarded, and what is to be computed with them: write it again"
            )
        store_dask_here(self.sources, self.targets, self.regions, self.split_every, **kwargs)


class DeferredWriter(ArrayWriter):
    """Defers writes of arrays until all metadata is written."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self._in_memory: list[tuple[np.ndarray[Any, Any], Any, Any]] = []

    def add(self, source: Any, target: Any, region: Any = None) -> None:
        """Take the values of an array, which xarray has made or let grow."""
        if is_dask(source):
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


def _values(
    session: Session | ForkSession, like: Mapping[str, np.ndarray[Any, Any]]
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the values of arrays, small ones read together; `like` has arrays as large by path."""
    for paths in batches(like, lambda path: like[path].nbytes):
        yield from zip(paths, map(np.asarray, read_whole(session, paths)), strict=True)
