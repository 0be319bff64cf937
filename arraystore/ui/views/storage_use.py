"""Use of storage: arrays of a snapshot by bytes and by age, packs by live share, and what a collection would free."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

import numpy as np

from arraystore._format.node import Node, NodeKind
from arraystore._maintenance.collection.summary import GCSummary
from arraystore._repository.repository import Repository
from arraystore._session.session import Session
from arraystore.ui.views.limits import MAX_MANIFESTS
from arraystore.ui.views.manifests import INLINE, PACK, VIRTUAL, Chunks, load_layers, visible_chunks
from arraystore.ui.views.snapshots import load_session, state_of

__all__ = ["ArrayUse", "ObjectUse", "StorageUse", "objects_in_use", "reclaimable", "storage_use"]

_MOST_ARRAYS = 1_000
_MOST_LAYERS = 20_000
_BATCH = 64
"""Arrays between two looks at the clock."""

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
    left: int
    """Arrays that are still to be measured."""


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


@dataclass(eq=False)
class _Times:
    """Encoded bytes by the millisecond at which their pack or manifest was begun."""

    totals: dict[int, float]

    def add(self, chunks: Chunks) -> int:
        """Add chunks; returns the time of the newest."""
        nbytes, counts = np.bincount(chunks.number, chunks.length), np.bincount(chunks.number)
        used = np.flatnonzero(counts)
        times: list[int] = chunks.times[used].tolist()
        for begun, total in zip(times, nbytes[used].tolist(), strict=True):
            self.totals[begun] = self.totals.get(begun, 0.0) + total
        return max(times)

    def merge(self, other: _Times) -> None:
        """Add those of others."""
        for begun, total in other.totals.items():
            self.totals[begun] = self.totals.get(begun, 0.0) + total

    def binned(self) -> tuple[float, float, tuple[float, ...]]:
        """Return start, width and totals of equal spans of time."""
        if not self.totals:
            return 0.0, 1.0, ()
        times = np.array(list(self.totals), dtype=np.int64)
        start, span = int(times.min()), int(times.max() - times.min())
        width = max(1, -(-(span + 1) // _BINS))
        totals = np.bincount((times - start) // width, list(self.totals.values()))
        return float(start), float(width), tuple(totals.tolist())


@dataclass(eq=False)
class _Measurement:
    """The arrays of a snapshot, those with most chunks first, as far as they were measured."""

    snapshot: str
    waiting: deque[Node]
    skipped: int
    times: _Times = field(default_factory=lambda: _Times({}))
    arrays: list[ArrayUse] = field(default_factory=list[ArrayUse])
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def of(cls, session: Session) -> _Measurement:
        """Return the measurement of a snapshot before it has begun."""
        nodes = [node for node in state_of(session).nodes.values() if node.kind != NodeKind.GROUP]
        taken = _few_layers(nodes)
        taken.sort(key=lambda node: -sum(layer.count for layer in node.layers))
        return cls(session.snapshot_id, deque(taken), len(nodes) - len(taken))

    async def go_on(self, repository: Repository, until: float) -> None:
        """Measure arrays until a time of `time.monotonic`, some at least."""
        while self.waiting:
            some = [self.waiting[at] for at in range(min(_BATCH, len(self.waiting)))]
            await load_layers(repository.context.manifests, [layer for node in some[1:] for layer in node.layers])
            for node in some:
                use, times = await _use_of(repository, node)
                self.arrays.append(use)  # at once, so that whoever is cancelled leaves no half of an array
                self.times.merge(times)
                self.waiting.popleft()
            if time.monotonic() >= until:
                return

    def result(self) -> StorageUse:
        """Return what was measured so far."""
        arrays = sorted(self.arrays, key=lambda each: (-each.nbytes, each.path))
        oldest, width, sizes = self.times.binned()
        return StorageUse(
            self.snapshot,
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
            self.skipped,
            len(self.waiting),
        )


_kept: WeakKeyDictionary[Session, _Measurement] = WeakKeyDictionary()


async def storage_use(repository: Repository, at: str, within: float | None = None) -> StorageUse:
    """Return the encoded bytes of a snapshot, by array and by time: every manifest of it is read.

    After so many seconds it returns the arrays measured so far, and the next call goes on.
    """
    session = await load_session(repository, at)
    measurement = _kept.get(session)
    if measurement is None:
        measurement = _kept[session] = _Measurement.of(session)
    until = math.inf if within is None else time.monotonic() + within
    async with measurement.lock:
        await measurement.go_on(repository, until)
        return measurement.result()


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


async def _use_of(repository: Repository, node: Node) -> tuple[ArrayUse, _Times]:
    chunks, newest, times = 0, 0, _Times({})
    nbytes = np.zeros(max(PACK, INLINE, VIRTUAL) + 1)
    async for some in visible_chunks(repository.context.manifests, node.layers, None):
        chunks += len(some)
        newest = max(newest, times.add(some))
        nbytes += np.bincount(some.kinds[some.number], some.length, minlength=len(nbytes))
    use = ArrayUse(
        node.path,
        chunks,
        float(nbytes[PACK]),
        float(nbytes[INLINE]),
        float(nbytes[VIRTUAL]),
        len(node.layers),
        float(newest) if chunks else None,
    )
    return use, times


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
