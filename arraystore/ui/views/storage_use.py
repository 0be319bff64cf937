"""What takes room: arrays of a snapshot by bytes and by age, packs by live share, and what a collection would free."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

import numpy as np

from arraystore._format.node import Node, NodeKind
from arraystore._format.types import Int64s
from arraystore._maintenance.collection.summary import GCSummary
from arraystore._repository.repository import Repository
from arraystore._session.session import Session
from arraystore.ui.views.limits import MAX_MANIFESTS
from arraystore.ui.views.manifests import INLINE, PACK, VIRTUAL, load_layers, visible_chunks
from arraystore.ui.views.snapshots import load_session, state_of

__all__ = ["ArrayUse", "ObjectUse", "StorageUse", "objects_in_use", "reclaimable", "storage_use"]

_MOST_ARRAYS = 1_000
_MOST_LAYERS = 20_000
_BATCH = 512
_BINS = 60


@dataclass(frozen=True)
class ArrayUse:
    """Encoded bytes of one array."""

    path: str
    chunks: int
    packed: float
    inlined: float
    virtual: float
    layers: int
    newest: float | None
    """Milliseconds since 1970 at which its newest chunk was written; None without chunks."""

    @property
    def nbytes(self) -> float:
        """Encoded bytes, wherever they are."""
        return self.packed + self.inlined + self.virtual


@dataclass(frozen=True)
class StorageUse:
    """Encoded bytes of a snapshot."""

    snapshot: str
    arrays: tuple[ArrayUse, ...]
    """Arrays with most bytes first, at most 1,000."""
    more: int
    packed: float
    inlined: float
    virtual: float
    chunks: int
    start: float
    """Milliseconds since 1970 at which the oldest chunk was written; 0 without chunks."""
    width: float
    """Milliseconds that one of `sizes` stands for."""
    bins: int
    sizes: tuple[float, ...]
    """Encoded bytes by the time at which they were written, from `start` on."""
    skipped: int
    """Arrays that were not looked at, since their chunks are listed in too many manifests."""


@dataclass(frozen=True)
class ObjectUse:
    """Objects of a repository."""

    kinds: tuple[tuple[str, int, float], ...]
    """Kind, number and bytes."""
    packs: int
    pack_bytes: float
    live_bytes: float
    """Bytes that the newest snapshots of branches, and tags, use of the packs."""
    unused: int
    by_live_share: tuple[int, ...]
    """Packs of which up to a tenth is live, up to two tenths, and so on."""


_kept: WeakKeyDictionary[Session, StorageUse] = WeakKeyDictionary()


@dataclass(eq=False)
class _Times:
    """Encoded bytes by the millisecond at which their pack or manifest was begun."""

    totals: dict[int, float]

    def add(self, times: Int64s, nbytes: Int64s) -> None:
        """Add chunks."""
        each, which = np.unique(times, return_inverse=True)
        for time, total in zip(each.tolist(), np.bincount(which, nbytes).tolist(), strict=True):
            self.totals[time] = self.totals.get(time, 0.0) + total

    def binned(self) -> tuple[float, float, tuple[float, ...]]:
        """Return start, width and totals of equal spans of time."""
        if not self.totals:
            return 0.0, 1.0, ()
        times = np.array(list(self.totals), dtype=np.int64)
        start, span = int(times.min()), int(times.max() - times.min())
        width = max(1, -(-(span + 1) // _BINS))
        totals = np.bincount((times - start) // width, list(self.totals.values()))
        return float(start), float(width), tuple(totals.tolist())


async def storage_use(repository: Repository, at: str) -> StorageUse:
    """Return the encoded bytes of a snapshot, by array and by day: every manifest of it is read."""
    session = await load_session(repository, at)
    kept = _kept.get(session)
    if kept is None:
        kept = _kept[session] = await _measure(repository, session)
    return kept


async def _measure(repository: Repository, session: Session) -> StorageUse:
    nodes = [node for node in state_of(session).nodes.values() if node.kind != NodeKind.GROUP]
    taken = _few_layers(nodes)
    times, arrays = _Times({}), list[ArrayUse]()
    for start in range(0, len(taken), _BATCH):
        some = taken[start : start + _BATCH]
        await load_layers(repository.context.manifests, [layer for node in some for layer in node.layers])
        arrays += [await _use_of(repository, node, times) for node in some]
    arrays.sort(key=lambda each: (-each.nbytes, each.path))
    oldest, width, sizes = times.binned()
    return StorageUse(
        session.snapshot_id,
        tuple(arrays[:_MOST_ARRAYS]),
        max(0, len(arrays) - _MOST_ARRAYS),
        sum(each.packed for each in arrays),
        sum(each.inlined for each in arrays),
        sum(each.virtual for each in arrays),
        sum(each.chunks for each in arrays),
        oldest,
        width,
        len(sizes),
        sizes,
        len(nodes) - len(taken),
    )


def _few_layers(nodes: list[Node]) -> list[Node]:
    """Return the arrays whose manifests can be read, those with few first."""
    taken: list[Node] = []
    layers = 0
    for node in sorted(nodes, key=lambda each: len(each.layers)):
        layers += len(node.layers)
        if layers > _MOST_LAYERS or len(node.layers) > MAX_MANIFESTS:
            break
        taken.append(node)
    return taken


async def _use_of(repository: Repository, node: Node, times: _Times) -> ArrayUse:
    chunks, newest = 0, 0
    nbytes = dict.fromkeys((PACK, INLINE, VIRTUAL), 0.0)
    async for some in visible_chunks(repository.context.manifests, node.layers, None):
        chunks += len(some.kind)
        newest = max(newest, int(some.time.max()))
        times.add(some.time, some.length)
        for kind in nbytes:
            nbytes[kind] += float(some.length[some.kind == kind].sum())
    return ArrayUse(
        node.path,
        chunks,
        nbytes[PACK],
        nbytes[INLINE],
        nbytes[VIRTUAL],
        len(node.layers),
        float(newest) if chunks else None,
    )


async def objects_in_use(repository: Repository, branch: str) -> ObjectUse:
    """Return the objects of a repository by kind, and packs by live share: every object is listed."""
    found = await repository.statistics_async(branch=branch, limit=0)
    packs = found.packs
    return ObjectUse(
        tuple([(name, each.count, float(each.bytes)) for name, each in found.objects.items() if each.count]),
        packs.count,
        float(packs.bytes),
        float(packs.live_bytes),
        packs.unused,
        packs.by_live_fraction,
    )


async def reclaimable(repository: Repository) -> GCSummary:
    """Return what a collection that starts now would delete; nothing is deleted."""
    return await repository.garbage_collect_async(datetime.now(UTC), full=True, dry_run=True)
