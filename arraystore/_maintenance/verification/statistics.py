"""Statistics: sizes of objects and arrays, live data in packs, and growth of the repository."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from arraystore._chunks.reader import ChunkReader
from arraystore._format.history import SnapshotRow
from arraystore._format.ids import LayerId, NodeId, id_to_text
from arraystore._format.layer import Layer
from arraystore._format.node import Node, NodeKind
from arraystore._format.pack import padded_size
from arraystore._format.record import Rewrite, Transaction
from arraystore._format.references import DELETED, INLINE, VIRTUAL
from arraystore._format.refs import Hint
from arraystore._format.types import Int64s
from arraystore._log.ancestry import ancestry, rows_of_records
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip, load_tip, passed_between
from arraystore._log.state import SnapshotState, StateBuilder
from arraystore._maintenance.object_table import ObjectTable
from arraystore._maintenance.verification.inventory import SHELVES, Inventory, list_all, take_inventory
from arraystore._runtime.display import Described, View, section
from arraystore._runtime.formatting import bytes_text
from arraystore.storage.counting import CountingStorage
from arraystore.storage.protocol import Storage

_DAY_US = 86_400_000_000
_HOUR_US = 3_600_000_000
_AT_ONCE = 16
_RECORDS_AT_ONCE = 512


@dataclass(frozen=True)
class ObjectStatistics:
    """Number and total size of the objects of one kind."""

    count: int
    bytes: int


@dataclass(frozen=True)
class ArrayStatistics:
    """Statistics of an array or a file of one snapshot."""

    path: str
    chunks: int
    native_bytes: int
    """Bytes of its chunks in packs."""
    virtual_bytes: int
    """Bytes of its chunks in objects elsewhere."""
    inlined_bytes: int
    """Bytes of its chunks in manifests."""
    layers: int
    """Number of manifests that a reader consults."""
    references: int
    """Number of their references, hidden ones included."""


@dataclass(frozen=True)
class SnapshotStatistics:
    """Statistics of a snapshot."""

    id: str
    time: int
    """Microseconds since 1970, by the writer's clock."""
    unique_bytes: int
    """Bytes of packs, manifests and change log that its commit added, without those in its record."""
    shared_bytes: int
    """Bytes of chunks of older commits that its layers reference, hidden ones included."""


@dataclass(frozen=True)
class PackStatistics:
    """Number and size of packs, and their live data: chunks of the newest snapshots of branches, and of tags."""

    count: int
    bytes: int
    live_bytes: int
    unused: int
    """Packs without live data; older snapshots may reference them."""
    by_live_fraction: tuple[int, ...]
    """Number of packs with up to a tenth of live data, up to two tenths, and so on."""

    @property
    def live_fraction(self) -> float:
        """Fraction of live data in all packs; 1 where there are none."""
        return self.live_bytes / self.bytes if self.bytes else 1.0


@dataclass(frozen=True)
class CommitRate:
    """Rate of commits to a branch, by its newest snapshots."""

    snapshots: int
    """Number of examined snapshots."""
    last_hour: int
    """Number of them within that time before the newest one, as `last_day`."""
    last_day: int
    per_day: float | None
    """Snapshots a day between the oldest and the newest one; None for fewer than two, or none apart in time."""

    @property
    def text(self) -> str:
        """The rate in words; of a history that is not a day old only the number of its snapshots."""
        if self.snapshots == self.last_day > 0:
            return f"{self.snapshots:,} within a day"
        rate = self.per_day
        return "unknown rate" if rate is None else f"{rate:,.{0 if rate >= 10 else 2}f} a day"


@dataclass(frozen=True, repr=False)
class RepositoryStatistics(Described):
    """Statistics of a repository.

    Parameters
    ----------
    branch
        Branch of arrays, snapshots and rate.
    objects
        Objects by kind.
    arrays
        Arrays of the newest snapshot of the branch, in order of paths.
    snapshots
        Newest snapshots of the branch, newest first.
    packs
        Packs of the repository.
    rate
        Rate of commits to the branch.
    requests
        Requests to the storage so far, by operation, where it counts them; else None.
    """

    branch: str
    objects: Mapping[str, ObjectStatistics]
    arrays: tuple[ArrayStatistics, ...]
    snapshots: tuple[SnapshotStatistics, ...]
    packs: PackStatistics
    rate: CommitRate
    requests: Mapping[str, int] | None = field(default=None)

    @property
    def total_bytes(self) -> int:
        """Total size of all objects."""
        return sum(each.bytes for each in self.objects.values())

    def _view(self) -> View:
        packs = self.packs
        live = f"{packs.live_fraction:.0%} of {bytes_text(packs.bytes)} is live"
        facts = (
            ("total", bytes_text(self.total_bytes)),
            ("packs", f"{packs.count:,}: {live}, {packs.unused:,} without live data" if packs.count else "none"),
            ("commits", self.rate.text),
        )
        objects = [(kind, each) for kind, each in self.objects.items() if each.count]
        sections = (
            *section("Objects", ("kind", "count", "size"), objects, _object_row, right=("count", "size")),
            *section("Arrays", ("array", *_ARRAY_NUMBERS), self.arrays, _array_row, right=_ARRAY_NUMBERS),
            *section("Snapshots", ("snapshot", *_SIZES), self.snapshots, _snapshot_row, right=_SIZES, limit=10),
        )
        return View(f"Statistics of branch {self.branch!r}", facts, sections)

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON."""
        packs = {**vars(self.packs), "live_fraction": self.packs.live_fraction}
        return {
            "branch": self.branch,
            "total_bytes": self.total_bytes,
            "objects": {kind: vars(each) for kind, each in self.objects.items()},
            "arrays": [vars(each) for each in self.arrays],
            "snapshots": [vars(each) for each in self.snapshots],
            "packs": {**packs, "by_live_fraction": list(self.packs.by_live_fraction)},
            "rate": vars(self.rate),
            "requests": None if self.requests is None else dict(self.requests),
        }


_ARRAY_NUMBERS = ("chunks", "in packs", "in manifests", "elsewhere", "layers")
_SIZES = ("unique", "shared")


def _object_row(item: tuple[str, ObjectStatistics]) -> tuple[str, ...]:
    kind, each = item
    return kind.replace("_", " "), f"{each.count:,}", bytes_text(each.bytes)


def _array_row(each: ArrayStatistics) -> tuple[str, ...]:
    sizes = map(bytes_text, (each.native_bytes, each.inlined_bytes, each.virtual_bytes))
    return f"/{each.path.lstrip('/')}", f"{each.chunks:,}", *sizes, f"{each.layers:,}"


def _snapshot_row(each: SnapshotStatistics) -> tuple[str, ...]:
    return each.id, bytes_text(each.unique_bytes), bytes_text(each.shared_bytes)


async def gather_statistics(
    storage: Storage, reader: ChunkReader, log: BranchLog, tip: Tip, others: Sequence[SnapshotState], limit: int
) -> RepositoryStatistics:
    """Gather statistics from one listing, the manifests of newest snapshots, and the newest records of one branch.

    `others` are the newest snapshots of all other branches and those of tags; `limit` is the number of newest snapshots
    of the branch to examine.
    """
    requests = dict(storage.counts.requests) if isinstance(storage, CountingStorage) else None
    inventory = await take_inventory(storage)
    refs = await list_all(storage, "refs/")
    nodes = sorted(tip.state.nodes.values(), key=lambda node: node.path)
    arrays = [await _array(node, reader) for node in nodes if node.kind != NodeKind.GROUP]
    packs = await _packs(inventory, [tip.state, *others], reader)
    rows = await _newest_rows(log, tip, limit)
    return RepositoryStatistics(
        log.branch,
        _objects(inventory, sum(info.size for info in refs), len(refs)),
        tuple(arrays),
        tuple(await _Snapshots(log, reader, inventory).of(tip, rows)),
        packs,
        _rate(rows),
        requests,
    )


def _objects(inventory: Inventory, ref_bytes: int, ref_count: int) -> dict[str, ObjectStatistics]:
    objects = {
        SHELVES[prefix]: ObjectStatistics(len(shelf), int(shelf.sizes.sum()))
        for prefix, shelf in inventory.shelves.items()
    }
    objects["records"] = ObjectStatistics(ref_count, ref_bytes)
    for prefix, infos in inventory.small.items():
        objects[prefix[:-1]] = ObjectStatistics(len(infos), sum(info.size for info in infos))
    strays = inventory.strays
    objects["other"] = ObjectStatistics(len(strays), sum(info.size for info in strays))
    return objects


async def _array(node: Node, reader: ChunkReader) -> ArrayStatistics:
    present = await reader.present(node.layers)
    references = sum(layer.count for layer in node.layers)
    if present is None:
        return ArrayStatistics(node.path, 0, 0, 0, 0, len(node.layers), references)
    source, length = present.source, present.length
    native = (source >= 0) & (source < VIRTUAL)
    return ArrayStatistics(
        node.path,
        int((source != DELETED).sum()),
        int(length[native].sum()),
        int(length[source >= VIRTUAL].sum()),
        int(length[source == INLINE].sum()),
        len(node.layers),
        references,
    )


# -- packs ----------------------------------------------------------------------------------------------------------


async def _packs(inventory: Inventory, states: Sequence[SnapshotState], reader: ChunkReader) -> PackStatistics:
    """Sum the live bytes of each pack, one array at a time, counting chunks shared by several states once."""
    shelf = inventory.packs
    live = np.zeros(len(shelf), dtype=np.int64)
    versions: dict[NodeId, dict[tuple[LayerId, ...], Node]] = {}
    for state in states:
        for node in state.nodes.values():
            if node.layers:
                versions.setdefault(node.id, {})[tuple([layer.id for layer in node.layers])] = node
    for nodes in versions.values():
        tables = [await _native(inventory, node, reader) for node in nodes.values()]
        rows = np.unique(np.concatenate(tables), axis=0)
        np.add.at(live, rows[:, 0], rows[:, 2])
    live = np.minimum(live, shelf.sizes)  # arrays may have chunks in common, and a pack its size at most
    used = live > 0
    tenths = np.ceil(10 * live[used] / shelf.sizes[used]).astype(np.int64).clip(1, 10)
    counts = np.bincount(tenths, minlength=11)[1:]
    return PackStatistics(
        len(shelf), int(shelf.sizes.sum()), int(live.sum()), int((~used).sum()), tuple(counts.tolist())
    )


async def _native(inventory: Inventory, node: Node, reader: ChunkReader) -> Int64s:
    """Load pack, offset and size with checksum of an array's chunks in packs, one row each."""
    present = await reader.present(node.layers)
    if present is None or not present.packs:
        return np.empty((0, 3), dtype=np.int64)
    native = (present.source >= 0) & (present.source < VIRTUAL)
    places = inventory.packs.find(b"".join(present.packs))[present.source[native]]
    columns: Int64s = np.stack((places, present.offset[native], padded_size(present.length[native])), axis=1)
    kept: Int64s = columns[places >= 0]
    return kept


# -- snapshots ------------------------------------------------------------------------------------------------------


async def _newest_rows(log: BranchLog, tip: Tip, limit: int) -> list[SnapshotRow]:
    rows: list[SnapshotRow] = []
    if limit:
        async for page in ancestry(log, tip):
            rows += page
            if len(rows) >= limit:
                break
    return rows[:limit]


def _rate(rows: Sequence[SnapshotRow]) -> CommitRate:
    times = [row.time for row in rows]
    newest, oldest = max(times, default=0), min(times, default=0)
    return CommitRate(
        len(rows),
        sum(time >= newest - _HOUR_US for time in times),
        sum(time >= newest - _DAY_US for time in times),
        (len(rows) - 1) * _DAY_US / (newest - oldest) if newest > oldest else None,
    )


class _Snapshots:
    """Computes the sizes of the newest snapshots of a log, with the layers of one state at a time."""

    def __init__(self, log: BranchLog, reader: ChunkReader, inventory: Inventory) -> None:
        self._log = log
        self._reader = reader
        self._inventory = inventory
        self._bytes: dict[LayerId, int] = {}

    async def of(self, tip: Tip, rows: Sequence[SnapshotRow]) -> list[SnapshotStatistics]:
        """Return statistics of snapshots, newest first, without those of other logs and expired ones."""
        life = tip.state.life
        begin = max(life.start, life.expired) + 1
        # An amended snapshot is in the log, too; that one is not listed.
        wanted = {row.id: row for row in rows if begin <= row.sequence <= tip.state.sequence}
        if not wanted:
            return []
        first = await self._record_of(min(wanted.values(), key=lambda row: row.sequence), begin)
        checkpoint = tip.state.checkpoint
        hint = None if checkpoint is None or checkpoint.sequence >= first else Hint(checkpoint.sequence, checkpoint.id)
        state = (await load_tip(self._log, hint, at=first - 1)).state
        builder = StateBuilder(state)
        total = await self._bytes_of([layer for node in state.nodes.values() for layer in node.layers])
        snapshots: list[SnapshotStatistics] = []
        for at in range(first, tip.state.sequence + 1, _RECORDS_AT_ONCE):
            last = min(at + _RECORDS_AT_ONCE - 1, tip.state.sequence)
            for passed in await passed_between(self._log, at - 1, last):
                if isinstance(passed.entry, Rewrite):
                    nodes = [item.node for item in passed.entry.replacements]
                    before = await self._of_nodes(builder, nodes)
                    builder.rewrite(passed.sequence, passed.entry.replacements)
                    total += await self._of_nodes(builder, nodes) - before
                for resolved in passed.transactions:
                    item, log, _ = resolved
                    nodes = [change.id for change in log.nodes] + [change.node for change in log.chunks]
                    before = await self._of_nodes(builder, nodes)
                    builder.commit(passed.sequence, [resolved])
                    total += await self._of_nodes(builder, nodes) - before
                    if item.id in wanted:
                        layers = [change.layer for change in log.chunks]
                        shared = max(total - await self._bytes_of(layers), 0)
                        unique = await self._unique(item, layers)
                        snapshots.append(SnapshotStatistics(id_to_text(item.id), item.time, unique, shared))
        return snapshots[::-1]

    async def _record_of(self, row: SnapshotRow, begin: int) -> int:
        """Return a record at or before the commit of a snapshot: the row of a tip may have that of a later fence."""
        first, end, step = row.sequence, row.sequence, 8
        while first > begin and all(each.id != row.id for each in await rows_of_records(self._log, first, end)):
            first, end, step = max(begin, first - step), first - 1, 8 * step
        return first

    async def _of_nodes(self, builder: StateBuilder, identifiers: Iterable[NodeId]) -> int:
        """Return the bytes of chunks that the layers of some nodes reference."""
        state = builder.peek()
        nodes = [state.by_id(identifier) for identifier in dict.fromkeys(identifiers)]
        return await self._bytes_of([layer for node in nodes if node is not None for layer in node.layers])

    async def _bytes_of(self, layers: Sequence[Layer]) -> int:
        new = list({layer.id: layer for layer in layers if layer.id not in self._bytes}.values())
        for at in range(0, len(new), _AT_ONCE):
            part = new[at : at + _AT_ONCE]
            manifests = await asyncio.gather(*map(self._reader.manifests.load, part))
            for layer, manifest in zip(part, manifests, strict=True):
                native = manifest.source < manifest.pack_count
                self._bytes[layer.id] = int(manifest.length[native].sum(dtype=np.int64))
        return sum(self._bytes[layer.id] for layer in layers)

    async def _unique(self, item: Transaction, layers: Sequence[Layer]) -> int:
        shelves = self._inventory
        packs = item.packs
        if packs is None:  # they are too many for the record: the manifests name them
            manifests = [await self._reader.manifests.load(layer) for layer in layers]
            packs = b"".join(manifest.packs for manifest in manifests)
        objects = b"".join(layer.id for layer in layers if layer.inline is None and layer.attachment is None)
        total = _sizes(shelves.packs, packs) + _sizes(shelves.manifests, objects)
        total += sum(len(layer.inline or b"") for layer in layers)
        return total + (_sizes(shelves.transactions, item.log) if isinstance(item.log, bytes) else 0)


def _sizes(shelf: ObjectTable, ids: bytes) -> int:
    places = np.unique(shelf.find(ids))
    return int(shelf.sizes[places[places >= 0]].sum())
