"""Writing of dask arrays into a session: each task writes through a fork of its own, and all changes are merged."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import dask.array
import dask.base
import numpy as np
import zarr
from zarr.storage import StorePath

from arraystore._format.node import NodeKind
from arraystore._format.types import Int64s, Region
from arraystore._format.zarr_metadata import array_info
from arraystore._session.base import SessionBase
from arraystore._session.dask_targets import has_processes
from arraystore._session.fork import ForkSession
from arraystore._session.regions.opened_arrays import config_of, write_like
from arraystore._session.session import Session
from arraystore.distributed import extract_session, merge_sessions
from arraystore.errors import InvalidInputError, MergeConflictError, SessionStateError
from arraystore.storage.sharing import check_shared

if TYPE_CHECKING:
    from dask.array.core import Array as DaskArray

__all__ = ["check_scheduler", "session_of", "store_dask"]

_SHOWN = 100
_dask: Any = dask.base  # its functions have no types
_arrays: Any = dask.array
_REFUSED = ("compute", "return_stored", "load_stored", "lock", "flush")


def store_dask(
    *,
    sources: DaskArray | Sequence[DaskArray],
    targets: zarr.Array[Any] | Sequence[zarr.Array[Any]],
    regions: Region | Sequence[Region | None] | None = None,
    split_every: int | None = None,
    **compute_kwargs: Any,
) -> bytes:
    """Write dask arrays into Zarr arrays of a fork or of a session, on any scheduler.

    Everything is computed at once.  Each task writes one block through a fork of its own and returns its changes, which
    further tasks combine as a tree.

    Parameters
    ----------
    sources
        Dask arrays to write.
    targets
        The Zarr array that each source goes into.  All are of one `ForkSession`, or all of one `Session`.
    regions
        The part of its target that each source fills: a slice for each dimension; None for all of it.
    split_every
        Count of task results that are combined at a time.
    **compute_kwargs
        For `dask.compute`: ``scheduler``, ``num_workers``, …

    Returns
    -------
    bytes
        All changes, for `Session.merge`.  For targets of a session they have been merged into it already.

    Raises
    ------
    InvalidInputError
        If two blocks of a source share a stored chunk, a source does not fit its region, or the scheduler has
        processes that cannot open the storage.  Nothing was computed.
    MergeConflictError
        If two sources write the same chunk.  Nothing was computed.
    SessionStateError
        If the fork of the targets has been written to, or a target was resized since it was opened.

    Examples
    --------
    >>> fork = session.fork()
    >>> target = zarr.open_array(fork.store, path="temperature")
    >>> session.merge(store_dask(sources=[source], targets=[target]))
    """
    for name in _REFUSED:
        if name in compute_kwargs:
            raise InvalidInputError(f"store_dask computes at once and needs no lock: omit {name}=")
    session, parts = _checked(sources, targets, regions, compute_kwargs)
    if isinstance(session, ForkSession):
        return _compute(session, parts, split_every, compute_kwargs)
    return _compute_and_merge(session, parts, split_every, compute_kwargs)


def store_dask_here(
    sources: DaskArray | Sequence[DaskArray],
    targets: zarr.Array[Any] | Sequence[zarr.Array[Any]],
    regions: Region | Sequence[Region | None] | None = None,
    split_every: int | None = None,
    **compute_kwargs: Any,
) -> None:
    """Write dask arrays into Zarr arrays of a session or fork, which has all changes then; see `store_dask`."""
    session, parts = _checked(sources, targets, regions, compute_kwargs)
    _compute_and_merge(session, parts, split_every, compute_kwargs)


def _checked(
    sources: Any, targets: Any, regions: Any, compute_kwargs: Mapping[str, Any]
) -> tuple[Session | ForkSession, list[_Part]]:
    """Return the session of the targets, and the place of each source."""
    all_sources, all_targets = _several(sources), _several(targets)
    session = session_of(all_targets)
    _check_lengths(session, all_targets)
    parts = _placed(all_sources, all_targets, _regions(regions, len(all_targets)))
    _check_blocks(parts)
    _check_sources(parts)
    check_scheduler(session, all_sources, compute_kwargs)
    return session, parts


def _compute_and_merge(
    session: Session | ForkSession,
    parts: Sequence[_Part],
    split_every: int | None,
    compute_kwargs: Mapping[str, Any],
) -> bytes:
    fork = session.fork()
    try:
        payload = _compute(fork, parts, split_every, compute_kwargs)
        session.merge(payload)
    except BaseException:
        session.abandon(fork)  # nobody else has it, so no commit needs to warn of it
        raise
    return payload


@dataclass(frozen=True)
class _Part:
    """A source and its place in a target."""

    source: DaskArray
    target: zarr.Array[Any]
    region: tuple[range, ...]
    """Positions in the target, along each dimension."""

    def touched(self, axis: int) -> Int64s:
        """Return the first and last stored chunk that each block touches along an axis, shape (blocks, 2)."""
        stop = np.cumsum(np.array(self.source.chunks[axis], dtype=np.int64))
        span = np.stack([np.concatenate([[0], stop[:-1]]), stop - 1], axis=1)[np.diff(stop, prepend=0) > 0]
        place = self.region[axis]
        return np.searchsorted(_chunk_ends(self.target, axis), place.start + place.step * span, side="right")


@dataclass(frozen=True)
class _Writer:
    """The task that writes a block through a copy of the fork and returns its changes."""

    fork: ForkSession
    path: str
    metadata: Any
    config: Any
    first: tuple[int, ...]
    step: tuple[int, ...]

    def __call__(self, block: Any, block_info: Any = None) -> bytes:
        fork = copy.copy(self.fork)  # a fork of its own: the merge detects chunks that two tasks wrote
        if block.size:
            location = block_info[0]["array-location"]
            selection = tuple(
                slice(first + start * step, first + (stop - 1) * step + 1, step)
                for first, step, (start, stop) in zip(self.first, self.step, location, strict=True)
            )
            place = StorePath(fork.store, self.path)
            write_like(fork, zarr.Array(zarr.AsyncArray(self.metadata, place, self.config)), selection, block)
        return fork.changes()


def _compute(
    fork: ForkSession, parts: Sequence[_Part], split_every: int | None, compute_kwargs: Mapping[str, Any]
) -> bytes:
    if fork.has_uncommitted_changes:
        raise SessionStateError(
            "the fork of the targets has been written to, so workers would not see what is in it: create arrays in "
            "the session, before session.fork()"
        )
    payloads = _dask.compute(*(_reduced(_written(fork, part), split_every) for part in parts), **compute_kwargs)
    return merge_sessions(payloads)


def _written(fork: ForkSession, part: _Part) -> DaskArray:
    target = part.target
    steps = tuple(place.step for place in part.region)
    writer = _Writer(
        fork, target.path, target.metadata, config_of(target), tuple(place.start for place in part.region), steps
    )
    name = f"arraystore-write-{fork.context.environment.new_id().hex()}"  # dask must not deduplicate equal writes
    meta = np.empty((0,) * part.source.ndim, dtype=object)
    written: DaskArray = _arrays.map_blocks(writer, part.source, name=name, dtype=object, meta=meta)
    return written


def _reduced(written: DaskArray, split_every: int | None) -> DaskArray:
    reduced: DaskArray = _arrays.reduction(
        written,
        chunk=_kept,
        combine=_joined,
        aggregate=_joined,
        split_every=split_every,
        concatenate=False,
        keepdims=False,
        dtype=object,
        meta=np.empty((), dtype=object),
    )
    return reduced


def _kept(payload: Any, axis: Any = None, keepdims: Any = None, computing_meta: bool = False) -> Any:
    return payload


def _joined(payloads: Any, axis: Any = None, keepdims: Any = None, computing_meta: bool = False) -> Any:
    return np.empty((), dtype=object) if computing_meta else merge_sessions(payloads)


# -- schedulers ----------------------------------------------------------------------------------------


def check_scheduler(session: SessionBase, collections: Sequence[Any], compute_kwargs: Mapping[str, Any]) -> None:
    """Check that the processes of a scheduler can open a session's storage; raises `InvalidInputError`."""
    # Workers of a cluster that cannot unpickle a task would be restarted forever.
    get = _dask.get_scheduler(scheduler=compute_kwargs.get("scheduler"), collections=list(collections))
    if has_processes(get):
        pickler: Any = importlib.import_module("cloudpickle")  # the fallback of dask's schedulers
        check_shared(session.context.storage, "processes of dask", pickler.dumps)


# -- targets and regions ----------------------------------------------------------------------------------------


def _several(one_or_more: Any) -> list[Any]:
    return list(one_or_more) if isinstance(one_or_more, list | tuple) else [one_or_more]


def _regions(regions: Any, count: int) -> list[Region | None]:
    if regions is None:
        return [None] * count
    one = isinstance(regions, tuple) and all(isinstance(part, slice) for part in regions) and bool(regions)
    return [regions] * count if one else list(regions)


def _placed(
    sources: Sequence[DaskArray], targets: Sequence[zarr.Array[Any]], regions: Sequence[Region | None]
) -> list[_Part]:
    if not sources or len({len(sources), len(targets), len(regions)}) != 1:
        raise InvalidInputError(
            f"{len(sources)} sources, {len(targets)} targets and {len(regions)} regions: pass a target for each source "
            "and, if any, a region"
        )
    for source in sources:
        if not _dask.is_dask_collection(source) or not hasattr(source, "chunks"):
            raise InvalidInputError(
                f"a source must be a dask array, not {type(source).__name__}: write others directly"
            )
        if any(np.isnan(side) for sides in source.chunks for side in sides):
            raise InvalidInputError("a source has blocks of unknown size: call its compute_chunk_sizes() first")
    return [
        _Part(source, target, _positions(source, target, region))
        for source, target, region in zip(sources, targets, regions, strict=True)
    ]


def _positions(source: DaskArray, target: zarr.Array[Any], region: Region | None) -> tuple[range, ...]:
    slices = tuple(region or ())
    if len(slices) > target.ndim or not all(isinstance(part, slice) and (part.step or 1) > 0 for part in slices):
        raise InvalidInputError(
            f"{region!r} is not a valid region of {target.path!r}: pass a slice with step > 0 for each dimension"
        )
    slices += (slice(None),) * (target.ndim - len(slices))
    places = tuple(range(*part.indices(side)) for part, side in zip(slices, target.shape, strict=True))
    if tuple(map(len, places)) != source.shape:
        raise InvalidInputError(
            f"a source of shape {source.shape} does not fill its region of {target.path!r}, which has shape "
            f"{tuple(map(len, places))}: resize the array first, or pass the region that it fills"
        )
    return places


def session_of(targets: Sequence[zarr.Array[Any]]) -> Session | ForkSession:
    """Return the one session or fork of all targets."""
    sessions: list[Session | ForkSession] = []
    for target in targets:
        if not isinstance(target, zarr.Array):
            raise InvalidInputError(
                f"a target must be a zarr.Array opened on session.store or fork.store, not {type(target).__name__}"
            )
        session = extract_session(target)
        if all(session is not other for other in sessions):
            sessions.append(session)
    if len(sessions) != 1:
        raise InvalidInputError(
            f"the targets are of {len(sessions)} sessions or forks: open all of them on one fork.store or session.store"
        )
    sessions[0].check_writable()
    return sessions[0]


def _check_lengths(session: Session | ForkSession, targets: Iterable[zarr.Array[Any]]) -> None:
    """Check that targets have the shapes that they were opened with: a rebase moves appends behind those of others."""
    for target in targets:
        node = session.hierarchy.node(target.path)
        shape = None if node is None or node.kind != NodeKind.ARRAY else array_info(node.documents).shape
        if shape is not None and shape != target.shape:
            raise SessionStateError(
                f"array {target.path!r} has shape {shape}, and had {target.shape} when it was opened: it was resized, "
                "or the session was rebased onto appends of others, so that places in it are other ones now; open it "
                "again, or begin anew with another session"
            )


def _chunk_ends(target: zarr.Array[Any], axis: int) -> Int64s:
    """Return the ends of stored chunks (shards, if any) along an axis."""
    if hasattr(target, "write_chunk_sizes"):  # since zarr 3.2, and the only one for chunks of several sizes
        return np.cumsum(np.array(target.write_chunk_sizes[axis], dtype=np.int64))
    side = (target.shards or target.chunks)[axis]
    return np.arange(1, -(-target.shape[axis] // side) + 1, dtype=np.int64) * side


# -- collisions of blocks ---------------------------------------------------------------------------------


def _check_blocks(parts: Iterable[_Part]) -> None:
    """Check that no two blocks of a source write to one stored chunk."""
    for part in parts:
        for axis in range(part.source.ndim):
            touched = part.touched(axis)
            shared = np.flatnonzero(touched[:-1, 1] >= touched[1:, 0])
            if len(shared):
                raise InvalidInputError(
                    f"two blocks of the source for {part.target.path!r} share the stored chunk "
                    f"{touched[shared[0], 1]} along dimension {axis}, and each would lose what the other writes: "
                    + _advice(part, axis)
                )


def _advice(part: _Part, axis: int) -> str:
    place = part.region[axis]
    ends = _chunk_ends(part.target, axis)
    sides = np.unique(np.diff(ends[:-1], prepend=0))
    if place.step == 1 and len(sides) == 1:
        side = int(sides[0])
        block = max(side, max(part.source.chunks[axis]) // side * side)
        lead = -place.start % side
        if not lead:
            return f"use source.rechunk({{{axis}: {block}}})"
        rest = len(place) - lead
        blocks = (lead, *[block] * (rest // block), *([rest % block] if rest % block else []))
        if len(blocks) <= 8:
            return f"use source.rechunk({{{axis}: {blocks}}})"
        return f"rechunk the source to a first block of {lead}, and then multiples of {side}"
    return "rechunk the source so that its blocks end where stored chunks end (see the array's write_chunk_sizes)"


def _check_sources(parts: Sequence[_Part]) -> None:
    """Check that no two sources write to one stored chunk."""
    by_path: dict[str, list[list[Int64s]]] = {}
    for part in parts:
        chunks = [_covered(part.touched(axis)) for axis in range(part.source.ndim)]
        for other in by_path.setdefault(part.target.path, []):
            shared = [np.intersect1d(mine, theirs) for mine, theirs in zip(chunks, other, strict=True)]
            count = int(np.prod([len(along) for along in shared], dtype=object))
            if count:
                shown = tuple(islice(product(*(along[:_SHOWN].tolist() for along in shared)), _SHOWN))
                raise MergeConflictError(
                    f"{count} chunks of {part.target.path!r} would be written by two sources, the first at "
                    f"{shown[0]}: give every source whole chunks of its own",
                    part.target.path,
                    shown,
                )
        by_path[part.target.path].append(chunks)


def _covered(touched: Int64s) -> Int64s:
    """Return all chunks between the first and the last of each block."""
    spans = [np.arange(first, last + 1) for first, last in touched.tolist()]
    return np.unique(np.concatenate(spans)) if spans else np.empty(0, dtype=np.int64)
