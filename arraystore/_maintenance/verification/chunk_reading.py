"""Reading and checking of chunks: those in packs are compared with their checksums, virtual ones decoded with their
array's codecs.

Inlined chunks are covered by the checksum of the manifest or record that holds them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._chunks.checksums import checked
from arraystore._chunks.reader import ChunkReader
from arraystore._format.ids import id_to_text
from arraystore._format.manifest import Manifest
from arraystore._format.node import NodeKind
from arraystore._format.pack import CHECKSUM_BYTES
from arraystore._format.types import Int64s
from arraystore._maintenance.verification.decoding import Decoder, open_decoder
from arraystore._maintenance.verification.findings import Collector
from arraystore._maintenance.verification.layers import Loaded
from arraystore._maintenance.verification.packs_at_hand import are_sound_chunks
from arraystore._maintenance.verification.virtual import SourceReader
from arraystore._runtime.concurrency import for_each
from arraystore.errors import ChunkDamagedError, NotFoundError, StorageError
from arraystore.storage.protocol import BytesLike, Storage

_BATCH_BYTES = 16 << 20
_BATCH_CHUNKS = 256
_BATCHES_AT_ONCE = 4
_REPAIR = (
    "restore the object from a backup or an older version in the bucket; if there is none, reset the branch to a "
    "snapshot that is not affected, or write these chunks again"
)


@dataclass(frozen=True, eq=False)
class _Part:
    """References of one manifest to chunks in one object."""

    loaded: Loaded
    source: int
    at: Int64s

    @property
    def is_packed(self) -> bool:
        """Tell whether the object is a pack, which has a checksum behind each chunk."""
        return self.source < self.loaded.manifest.pack_count

    @property
    def framed_lengths(self) -> Int64s:
        """Bytes of each chunk of a pack, with its checksum."""
        return self.loaded.manifest.length[self.at].astype(np.int64) + CHECKSUM_BYTES


@dataclass(eq=False)
class ChunkVerifier:
    """Reads chunks in this process."""

    _reader: ChunkReader
    _collector: Collector
    _counts: Counter[str]

    def __post_init__(self) -> None:
        self._sources = SourceReader(self._reader, self._collector)

    @property
    def unread(self) -> Mapping[str, int]:
        """Virtual chunks that this process could not read, by place and reason."""
        return self._sources.unread.counts

    async def check(self, loaded: Loaded, at: Int64s) -> None:
        """Read some chunks of a manifest, and report what is wrong with them."""
        if not len(at):
            return
        decoder = await self._decoder(loaded, at)

        async def check(part: _Part) -> None:
            await self._check(part, decoder)

        await for_each(await self._checked_at_hand(_parts(loaded, at)), check, _BATCHES_AT_ONCE)

    async def finish(self) -> None:
        """Do nothing: all chunks are checked when `check` returns."""

    async def _check(self, part: _Part, decoder: Decoder | None) -> None:
        data = await self._read(part)
        if data is None:
            return
        self._counts["chunks_read"] += len(data)
        self._counts["bytes_read"] += sum(map(len, data))
        if part.is_packed:
            self._compare(part, data)
        elif decoder is not None and part.source < part.loaded.manifest.inline_source:
            await self._decode(part, data, decoder)

    async def _checked_at_hand(self, parts: Sequence[_Part]) -> list[_Part]:
        """Check chunks in packs that are at hand, and return the parts that are left for the general path.

        These include the unsound ones, which are read again there to say what is wrong.
        """
        storage = self._reader.storage.origin
        if not storage.cheap_probes:
            return list(parts)
        left = [part for part in parts if not part.is_packed]

        async def check(batch: list[_Part]) -> None:
            sound = await asyncio.to_thread(lambda: [_is_sound(storage, part) for part in batch])
            left.extend(part for part, fine in zip(batch, sound, strict=True) if not fine)
            for framed in (part.framed_lengths for part, fine in zip(batch, sound, strict=True) if fine):
                self._counts["chunks_read"] += len(framed)
                self._counts["bytes_read"] += int(framed.sum())

        await for_each(_batches([part for part in parts if part.is_packed]), check, _BATCHES_AT_ONCE)
        return left

    async def _decoder(self, loaded: Loaded, at: Int64s) -> Decoder | None:
        """Return the decoder of virtual chunks; None where there are none, or where it cannot be opened."""
        node, manifest = loaded.item.node, loaded.manifest
        source = manifest.source[at]
        virtual = int(np.count_nonzero((source >= manifest.pack_count) & (source < manifest.inline_source)))
        if node.kind != NodeKind.ARRAY or not virtual:
            return None
        decoder = await open_decoder(node.documents)
        if isinstance(decoder, str):
            self._counts["chunks_not_decoded"] += virtual
            what = (
                f"zarr cannot open the array {'/' + node.path!r} here, so its virtual chunks are not decoded: {decoder}"
            )
            self._collector.warning(
                loaded.item.layer.key, what, "verify where the codecs of the array are installed", [loaded.item.use]
            )
            return None
        return decoder

    def _compare(self, part: _Part, framed: Sequence[BytesLike]) -> None:
        """Compare chunks of a pack with the checksums read with them."""
        manifest = part.loaded.manifest
        key, seed = manifest.pack_keys[part.source], manifest.pack_seeds[part.source]
        offsets = manifest.offset[part.at].tolist()
        for place, offset, data in zip(_coords(part.loaded, part.at), offsets, framed, strict=True):
            try:
                checked(key, seed, offset, data)
            except ChunkDamagedError as error:
                error = error.of_chunk(part.loaded.item.node.path, place)
                self._collector.error(key, error.reason, _REPAIR, [part.loaded.item.use])

    async def _read(self, part: _Part) -> list[BytesLike] | None:
        manifest = part.loaded.manifest
        start = manifest.offset[part.at].astype(np.int64)
        stop = start + manifest.length[part.at].astype(np.int64)
        if part.source < manifest.pack_count:
            stop += CHECKSUM_BYTES
        ranges = list(zip(start.tolist(), stop.tolist(), strict=True))
        if part.source == manifest.inline_source:
            return [memoryview(manifest.inline)[first:end] for first, end in ranges]
        if part.source >= manifest.pack_count:
            use = part.loaded.item.use
            return await self._sources.read(manifest.locations, part.source - manifest.pack_count, ranges, use)
        key = manifest.pack_keys[part.source]
        try:
            return await self._reader.storage.origin.get_ranges(key, ranges)
        except (StorageError, NotFoundError) as error:
            self._collector.error(key, f"chunks cannot be read: {error}", _REPAIR, [part.loaded.item.use])
            return None

    async def _decode(self, part: _Part, data: Sequence[BytesLike], decoder: Decoder) -> None:
        coords = _coords(part.loaded, part.at)
        for place, raw in zip(coords, data, strict=True):
            why = await decoder.problem(place, raw)
            if why is not None:
                path = part.loaded.item.node.path
                what = f"chunk {place} of {'/' + path!r} cannot be decoded: {why}"
                self._collector.error(self._where(part), what, _REPAIR, [part.loaded.item.use])

    def _where(self, part: _Part) -> str:
        manifest = part.loaded.manifest
        if part.source < manifest.pack_count:
            return "chunks/" + id_to_text(manifest.pack_id(part.source))
        if part.source < manifest.inline_source:
            return manifest.locations.url(part.source - manifest.pack_count)
        return part.loaded.item.layer.key


def _is_sound(storage: Storage, part: _Part) -> bool:
    """Tell whether chunks of a pack can be read and match their checksums."""
    manifest = part.loaded.manifest
    key, seed = manifest.pack_keys[part.source], manifest.pack_seeds[part.source]
    try:
        return are_sound_chunks(
            storage, key, seed, manifest.offset[part.at].tolist(), manifest.length[part.at].tolist()
        )
    except (StorageError, NotFoundError):
        return False


def _batches(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Yield parts in batches that are worth handing over to a thread: chunks may be objects of their own."""
    batch: list[_Part] = []
    size = 0
    for part in parts:
        batch.append(part)
        size += int(part.framed_lengths.sum())
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _parts(loaded: Loaded, at: Int64s) -> list[_Part]:
    """Cut references into batches of one object each, in the order of their bytes in it."""
    manifest = loaded.manifest
    source = manifest.source[at].astype(np.int64)
    order = np.lexsort((manifest.offset[at], source))
    at, source = at[order], source[order]
    sizes = np.cumsum(manifest.length[at].astype(np.int64))
    parts: list[_Part] = []
    start = 0
    while start < len(at):
        before = int(sizes[start - 1]) if start else 0
        same = int(np.searchsorted(source, source[start], side="right"))
        full = int(np.searchsorted(sizes, before + _BATCH_BYTES, side="right"))
        end = max(start + 1, min(same, full, start + _BATCH_CHUNKS))
        parts.append(_Part(loaded, int(source[start]), at[start:end]))
        start = end
    return parts


def _coords(loaded: Loaded, at: Int64s) -> list[tuple[int, ...]]:
    manifest: Manifest = loaded.manifest
    numbers = at if manifest.index is None else manifest.index[at]
    coords: npt.NDArray[Any] = manifest.box.coords(numbers)
    shift = loaded.item.layer.shift
    if shift is not None:
        coords = coords + np.array(shift, dtype=np.int64)
    return [tuple(row) for row in coords.tolist()]
