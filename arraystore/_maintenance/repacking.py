"""Repacking: copying chunks into new packs, in grid order, and rewriting the layers that reference them.

Chunks are read, checked and written some tens of megabytes at a time, each pack in few ranged requests; neighbours in
the grid become neighbours in a pack. Inlined and virtual chunks are not copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import numpy as np

from arraystore._chunks.checksums import checked
from arraystore._chunks.pack_writer import PackSettings, pack_key
from arraystore._chunks.reader import ChunkReader
from arraystore._chunks.statistics_objects import load_statistics
from arraystore._commit.prepare import upload
from arraystore._environment import Environment
from arraystore._format.chunk_statistics import ChunkStatistics
from arraystore._format.ids import NodeId, PackId, find_ids, ids_of
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest
from arraystore._format.node import Node
from arraystore._format.pack import CHECKSUM_BYTES, pack_seed, padded_size, trailer
from arraystore._format.references import REFERENCES_PER_MANIFEST, References, to_manifests
from arraystore._format.types import IdColumn, Int64s
from arraystore._log.state import SnapshotState
from arraystore._maintenance.rewrite import Exchange, place
from arraystore.errors import ChunkDamagedError, StorageError
from arraystore.storage.keys import merge_ranges
from arraystore.storage.protocol import ByteRange, BytesLike, Storage

MiB = 1 << 20

_GAP = 64 * 1024
"""Bytes between two chunks below which reading them is cheaper than another request."""

_REQUESTS_AT_ONCE = 16
_MANIFESTS_AT_ONCE = 64
_LARGEST_BATCH = 32 * MiB


@dataclass(eq=False)
class RepackJob:
    """Layer of which some chunks are copied."""

    node: NodeId
    layer: Layer
    references: References
    """References of the layer, in grid order."""
    at: Int64s
    """Positions of the chunks to copy."""
    pack: Int64s
    """Numbers of the new packs, -1 for chunks not copied yet."""
    offset: Int64s
    """Offsets in the new packs."""
    copied: int = 0

    @classmethod
    def of(cls, node: NodeId, layer: Layer, manifest: Manifest, wanted: IdColumn) -> RepackJob | None:
        """Return the job for a layer; None if it references none of the packs."""
        named = find_ids(wanted, ids_of(manifest.packs)) >= 0
        if not bool(named.any()):
            return None
        native = np.flatnonzero(manifest.source < manifest.pack_count)
        at = native[named[manifest.source[native]]]
        return cls.copying(node, layer, References.from_manifest(manifest, layer.shift), at)

    @classmethod
    def copying(cls, node: NodeId, layer: Layer, references: References, at: Int64s) -> RepackJob:
        """Return the job for some references of a layer."""
        return cls(node, layer, references, at, np.full(len(at), -1, dtype=np.int64), np.zeros(len(at), dtype=np.int64))

    def complete_in(self, sealed: int) -> bool:
        """Tell whether all chunks are copied, into packs with smaller numbers than `sealed`."""
        return self.copied == len(self.at) and int(self.pack.max()) < sealed

    @property
    def moved(self) -> bool:
        """True if any chunk was copied: not where all are in damaged packs."""
        return bool((self.pack >= 0).any())

    def pointed(self, ids: Sequence[PackId]) -> tuple[References, tuple[PackId, ...]]:
        """Return the references to the copies, and the packs that they name in addition."""
        moved = self.pack >= 0
        numbers, which = np.unique(self.pack[moved], return_inverse=True)
        packs = tuple([ids[number] for number in numbers.tolist()])
        source, offset = self.references.source.copy(), self.references.offset.copy()
        source[self.at[moved]] = len(self.references.packs) + which
        offset[self.at[moved]] = self.offset[moved]
        return replace(self.references, source=source, offset=offset, packs=self.references.packs + packs), packs


@dataclass(frozen=True, eq=False)
class RepackSlice:
    """Neighbouring chunks of one job."""

    job: RepackJob
    rows: Int64s
    """Positions among the chunks to copy."""
    stop: int
    """Position after the last one."""

    @property
    def at(self) -> Int64s:
        return self.job.at[self.rows]

    def without(self, packs: Collection[PackId]) -> RepackSlice:
        """Return the slice without the chunks of some packs."""
        references = self.job.references
        named = np.array([pack in packs for pack in references.packs], dtype=np.bool_)
        return RepackSlice(self.job, self.rows[~named[references.source[self.at]]], self.stop)


@dataclass(frozen=True, eq=False)
class _SoundChunks:
    """Chunks that were read, each followed by room for its checksum."""

    slices: list[RepackSlice]
    lengths: Int64s
    data: memoryview


class _Packs:
    """Cuts a stream of chunks into packs and uploads them."""

    def __init__(self, storage: Storage, environment: Environment, target: int) -> None:
        self.storage = storage
        self.ids: list[PackId] = []
        self.sealed = 0
        self.bytes_written = 0
        self._environment = environment
        self._target = target
        self._open: list[BytesLike] = []
        self._used = 0

    async def add(self, data: memoryview, lengths: Int64s) -> tuple[Int64s, Int64s]:
        """Add chunks, each followed by room for its checksum, which is filled in; returns the pack number and offset of
        each.
        """
        padded = padded_size(lengths)
        ends = np.cumsum(padded)
        pack = np.empty(len(lengths), dtype=np.int64)
        offset = ends - padded
        full: list[tuple[str, BytesLike]] = []
        first = 0
        while first < len(lengths):
            if not self._open:
                self.ids.append(PackId(self._environment.new_id()))
            begin = int(offset[first])
            room = max(self._target - self._used, 0 if self._open else int(padded[first]))
            stop = int(np.searchsorted(ends, begin + room, side="right"))
            if stop > first:
                pack[first:stop] = len(self.ids) - 1
                end = int(ends[stop - 1])
                offset[first:stop] += self._used - begin
                _mark(data[begin:end], pack_seed(self.ids[-1]), offset[first:stop], lengths[first:stop])
                self._open.append(data[begin:end])
                self._used += end - begin
                first = stop
            if first < len(lengths):
                full.append(self._closed())
        await self._put(full)
        self._open = [bytes(part) for part in self._open]  # so that the caller's buffer can be freed
        return pack, offset

    def adopt(self, ids: Sequence[PackId], size: int) -> int:
        """Add packs that others have uploaded, of some bytes together; returns the number of the first."""
        first = len(self.ids)
        self.ids += ids
        self.sealed = len(self.ids)
        self.bytes_written += size
        return first

    async def flush(self) -> None:
        """Upload the last pack."""
        if self._open:
            await self._put([self._closed()])

    def _closed(self) -> tuple[str, BytesLike]:
        data = b"".join(self._open)
        self._open, self._used = [], 0
        return pack_key(self.ids[-1]), data

    async def _put(self, packs: list[tuple[str, BytesLike]]) -> None:
        await asyncio.gather(*(self.storage.put(key, data) for key, data in packs))
        self.sealed += len(packs)
        self.bytes_written += sum(len(data) for _, data in packs)


def _mark(data: memoryview, seed: int, offset: Int64s, length: Int64s) -> None:
    """Fill in the checksums of consecutive chunks, each behind its chunk."""
    begin = int(offset[0])
    for start, size in zip(offset.tolist(), length.tolist(), strict=True):
        at = start - begin
        behind = trailer(seed, start, data[at : at + size])
        data[at + size : at + size + len(behind)] = behind


@dataclass(eq=False)
class Repacker:
    """Copies chunks and prepares the exchanges of layers that reference the copies."""

    reader: ChunkReader
    environment: Environment
    settings: PackSettings
    has_budget: Callable[[], bool]
    """Tells whether there is time to copy more."""
    bytes_read: int = 0
    chunks_copied: int = 0
    manifest_bytes: int = 0
    interrupted: bool = False
    refused: dict[PackId, str] = field(default_factory=dict[PackId, str])
    """Reasons by damaged pack, whose chunks are not copied, since the copies would get valid checksums."""
    _done: list[RepackJob] = field(default_factory=list[RepackJob])

    def __post_init__(self) -> None:
        self._packs = _Packs(self.reader.storage, self.environment, self.settings.target)
        self._room = asyncio.Semaphore(_REQUESTS_AT_ONCE)
        self._batch_bytes = min(max(self.settings.in_flight // 2, self.settings.target), _LARGEST_BATCH)

    @property
    def bytes_written(self) -> int:
        """Bytes of packs and manifests written so far."""
        return self._packs.bytes_written + self.manifest_bytes

    def deletable(self, named: Collection[PackId]) -> list[PackId]:
        """Return the packs of this process that no record names or will ever name, given those that one may name."""
        return [pack for pack in self._packs.ids if pack not in named]

    async def run(self, state: SnapshotState, wanted: IdColumn) -> AsyncIterator[list[Exchange]]:
        """Copy the chunks that a snapshot references of packs with ascending ids; yields durable exchanges."""
        async with aclosing(self._copied(self._batches(self._jobs(state, wanted)))) as batches:
            async for batch in batches:
                self._finish(batch)
                ready = self._take_ready()
                if ready:
                    yield await self._exchanges(ready)
        ready = self._take_ready(all_begun=True)
        if ready:
            yield await self._exchanges(ready)

    async def copy(self, jobs: Sequence[RepackJob]) -> None:
        """Copy the chunks of jobs into packs."""

        async def each() -> AsyncIterator[RepackJob]:
            for job in jobs:
                yield job

        async for _ in self._copied(self._batches(each())):
            pass

    async def _copied(self, batches: AsyncIterator[list[RepackSlice]]) -> AsyncGenerator[list[RepackSlice], None]:
        """Copy batches, and yield them, as long as the budget lasts."""
        async for batch in batches:
            if not self.has_budget():
                self.interrupted = True
                break
            await self._copy(batch)
            yield batch
        await self._packs.flush()

    # -- jobs -----------------------------------------------------------------------------------------------------

    async def _batches(self, jobs: AsyncIterator[RepackJob]) -> AsyncIterator[list[RepackSlice]]:
        """Yield chunks in the order of arrays and of their grids, in batches that fit into memory."""
        batch: list[RepackSlice] = []
        size = 0
        async for job in jobs:
            for piece in _pieces(job, self._batch_bytes):
                batch.append(piece)
                size += int(job.references.length[piece.at].sum())
                if size >= self._batch_bytes:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    async def _jobs(self, state: SnapshotState, wanted: IdColumn) -> AsyncIterator[RepackJob]:
        layers = [
            (node.id, layer)
            for node in sorted(state.nodes.values(), key=lambda node: node.key)
            for layer in _in_grid_order(node)
        ]
        for start in range(0, len(layers), _MANIFESTS_AT_ONCE):
            some = layers[start : start + _MANIFESTS_AT_ONCE]
            manifests = await asyncio.gather(*(self.reader.manifests.load(layer) for _, layer in some))
            for (node, layer), manifest in zip(some, manifests, strict=True):
                job = RepackJob.of(node, layer, manifest, wanted)
                if job is not None:
                    yield job

    # -- copying --------------------------------------------------------------------------------------------------

    async def _copy(self, batch: Sequence[RepackSlice]) -> None:
        read = await self._read_sound(batch)
        pack, offset = await self._packs.add(read.data, read.lengths)
        first = 0
        for piece in read.slices:
            count = len(piece.rows)
            piece.job.pack[piece.rows] = pack[first : first + count]
            piece.job.offset[piece.rows] = offset[first : first + count]
            piece.job.copied = piece.stop
            first += count
        self.chunks_copied += len(read.lengths)

    async def _read_sound(self, batch: Sequence[RepackSlice]) -> _SoundChunks:
        """Read chunks, without those of packs that turn out to be damaged."""
        while True:
            refused = len(self.refused)
            sound = [piece.without(self.refused) for piece in batch] if refused else list(batch)
            lengths = np.concatenate([piece.job.references.length[piece.at] for piece in sound])
            data = memoryview(np.empty(int(padded_size(lengths).sum()), dtype=np.uint8))
            if len(lengths):
                await self._read(sound, lengths, data)
            if len(self.refused) == refused:
                return _SoundChunks(sound, lengths, data)

    async def _read(self, batch: Sequence[RepackSlice], lengths: Int64s, data: memoryview) -> None:
        """Read chunks into one buffer, in their order, each followed by room for its checksum."""
        numbers: dict[PackId, int] = {}
        sources: list[Int64s] = []
        for piece in batch:
            references = piece.job.references
            table = np.array([numbers.setdefault(pack, len(numbers)) for pack in references.packs], dtype=np.int64)
            sources.append(table[references.source[piece.at]])
        source = np.concatenate(sources)
        offset = np.concatenate([piece.job.references.offset[piece.at] for piece in batch])
        padded = padded_size(lengths)
        place = np.cumsum(padded) - padded
        order = np.lexsort((offset, source))
        cuts = (np.flatnonzero(np.diff(source[order])) + 1).tolist()
        ids = list(numbers)
        await asyncio.gather(
            *(
                self._read_pack(ids[int(source[chosen[0]])], offset[chosen], lengths[chosen], place[chosen], data)
                for chosen in np.split(order, cuts)
            )
        )

    async def _read_pack(self, pack: PackId, offset: Int64s, length: Int64s, place: Int64s, data: memoryview) -> None:
        """Read chunks of one pack by offset, check each and copy it to its place."""
        starts, stops = offset.tolist(), (offset + length + CHECKSUM_BYTES).tolist()
        ranges = merge_ranges(list(zip(starts, stops, strict=True)), _GAP)
        async with self._room:
            parts = await self._ranges_of(pack, ranges)
        if parts is None:
            return
        self.bytes_read += sum(len(part) for part in parts)
        firsts = np.array([start for start, _ in ranges], dtype=np.int64)
        which = (np.searchsorted(firsts, offset, side="right") - 1).tolist()
        views = [memoryview(part) for part in parts]
        key, seed = pack_key(pack), pack_seed(pack)
        for start, stop, at, part in zip(starts, stops, place.tolist(), which, strict=True):
            begin = ranges[part][0]
            try:
                chunk = checked(key, seed, start, views[part][start - begin : stop - begin])
            except ChunkDamagedError as error:
                self.refused[pack] = error.reason
                return
            data[at : at + len(chunk)] = chunk

    async def _ranges_of(self, pack: PackId, ranges: Sequence[ByteRange]) -> list[BytesLike] | None:
        """Read ranges of a pack; None if it is too short for them."""
        key, storage = pack_key(pack), self.reader.storage
        try:
            return await storage.get_ranges(key, ranges)
        except StorageError:
            size = (await storage.head(key)).size
            end = max(stop for _, stop in ranges)
            if size >= end:
                raise
            self.refused[pack] = f"has {size} bytes, and chunks in it end at {end}: it was cut off"
            return None

    # -- exchanges ------------------------------------------------------------------------------------------------

    def _finish(self, batch: Sequence[RepackSlice]) -> None:
        begun = {id(job): job for job in self._done}
        begun.update((id(piece.job), piece.job) for piece in batch)
        self._done = list(begun.values())

    def _take_ready(self, *, all_begun: bool = False) -> list[RepackJob]:
        """Return the jobs whose chunks are all copied and whose packs are uploaded; at the end, all jobs begun."""
        ready = [job for job in self._done if all_begun or job.complete_in(self._packs.sealed)]
        self._done = [job for job in self._done if job not in ready]
        return ready

    async def _exchanges(self, jobs: Iterable[RepackJob]) -> list[Exchange]:
        """Write manifests of references to the copies, and make them and the packs durable."""
        exchanges: list[Exchange] = []
        objects: list[tuple[str, bytes]] = []
        for job in [job for job in jobs if job.moved]:
            references, packs = job.pointed(self._packs.ids)
            manifests = to_manifests(references, max(len(references), REFERENCES_PER_MANIFEST))
            added = place(self.environment, manifests, objects, await self._known(job, references))
            exchanges.append(Exchange(job.node, (job.layer,), tuple(added), packs))
        await upload(self.reader.storage, objects)
        self.manifest_bytes += sum(len(data) for _, data in objects)
        return exchanges

    async def _known(self, job: RepackJob, copies: References) -> ChunkStatistics | None:
        """Load the statistics of a layer's chunks, bound to their copies."""
        if not self.reader.statistics:
            return None
        tables = await load_statistics(self.reader.storage, [job.layer])
        return tables[0].moved(job.references, copies) if tables else None


def _in_grid_order(node: Node) -> list[Layer]:
    return sorted(node.layers, key=lambda layer: (layer.box.low, layer.id))


def _pieces(job: RepackJob, most: int) -> Iterator[RepackSlice]:
    """Cut a job into slices of at most `most` bytes, or of one chunk."""
    ends = np.cumsum(job.references.length[job.at])
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield RepackSlice(job, np.arange(start, stop), stop)
        start = stop
