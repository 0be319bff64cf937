"""Reads of chunks: from the reference of a cell to its bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from arraystore._chunks.block_cache import BlockCache
from arraystore._chunks.checksums import checked, read_whole, sound_part
from arraystore._chunks.chunk_table import ChunkReference
from arraystore._chunks.manifest_cache import ManifestCache
from arraystore._chunks.read_memory import ReadMemory
from arraystore._format.box import Box
from arraystore._format.layer import Layer
from arraystore._format.locations import NO_LOCATIONS, Locations
from arraystore._format.manifest import Manifest
from arraystore._format.pack import CHECKSUM_BYTES
from arraystore._format.references import INLINE, VIRTUAL, References, overlay
from arraystore._runtime import lazy_module
from arraystore.errors import ChunkDamagedError
from arraystore.storage.forking import renew_locks_after_fork
from arraystore.storage.protocol import BytesLike, Storage

if TYPE_CHECKING:
    from arraystore._chunks import virtual_source
    from arraystore._chunks.virtual_source import VirtualSource
else:
    virtual_source = lazy_module("arraystore._chunks.virtual_source")

Window = Callable[[int], tuple[int, int]]
"""From the length of a chunk to the first byte wanted and the byte after the last."""

_READ_INLINE = 1 << 18
"""Bytes below which a local read is done before another thread could have begun it."""

ReferencePosition = tuple[Manifest, int]
"""A manifest and the position of a reference in it."""


VerifyChunks = bool | Literal["config"]
"""Whether a session verifies the chunks that it reads, or leaves that to the configuration, as None does, too."""


def sole_reference(
    source: int, offset: int, length: int, pack: bytes = b"", locations: Locations = NO_LOCATIONS
) -> ReferencePosition:
    """Return the position of a chunk that no manifest has yet, by the number of its pack or location."""
    sources, offsets, lengths = [np.array([value], dtype=np.int64) for value in (source, offset, length)]
    return Manifest(Box((), ()), None, sources, offsets, lengths, pack, locations), 0


def reference_at(manifest: Manifest, at: int) -> ChunkReference:
    """Return the reference at a position, with its source as references outside of manifests have it."""
    source = manifest.source.item(at)
    if source == manifest.inline_source:
        source = INLINE
    elif source >= manifest.pack_count:
        source += VIRTUAL - manifest.pack_count
    return ChunkReference(source, manifest.offset.item(at), manifest.length.item(at))


def whole_chunk(length: int) -> tuple[int, int]:
    """Return the window of a whole chunk."""
    return 0, length


class ChunkReader:
    """Looks up and reads committed chunks; `virtual` returns the storage and the key for a URL, or raises."""

    def __init__(
        self,
        storage: Storage,
        manifests: ManifestCache,
        virtual: Callable[[str], tuple[Storage, str]],
        verify: bool = True,
        room: int = 64 << 20,
        statistics: bool = False,
    ) -> None:
        self.storage = storage
        self.manifests = manifests
        self.blocks = BlockCache(storage, room)
        self.verify = verify
        self.statistics = statistics
        """Whether what replaces layers takes over the statistics of their chunks."""
        self._virtual = virtual
        renew_locks_after_fork(self)

    def checking(self, verify: VerifyChunks) -> ChunkReader:
        """Return a reader that shares the caches of this one and verifies chunks, or does not."""
        if verify in ("config", None, self.verify):
            return self
        reader = ChunkReader(
            self.storage, self.manifests, self._virtual, bool(verify), self.blocks.room, self.statistics
        )
        reader.blocks = self.blocks
        return reader

    def renew_locks(self) -> None:
        """Start with empty caches in a forked child: it has none of the threads that were filling its parent's."""
        self.manifests = ManifestCache(self.manifests.storage, self.manifests.repository, self.manifests.room)
        self.blocks = BlockCache(self.storage, self.blocks.room)

    # -- look-up --------------------------------------------------------------------------------------------

    def find_cached(self, layers: Sequence[Layer], coords: tuple[int, ...]) -> ReferencePosition | Layer | None:
        """Look a cell up without a request; None if it has no chunk, a layer if its manifest has to be loaded first."""
        for layer in reversed(layers):
            if layer.box.contains(coords):
                manifest = self.manifests.get(layer)
                if manifest is None:
                    return layer
                at = manifest.find(coords if layer.shift is None else _unshifted(coords, layer.shift))
                if at >= 0:
                    return None if manifest.source[at] == manifest.deleted_source else (manifest, at)
        return None

    def find_sync(self, layers: Sequence[Layer], coords: tuple[int, ...]) -> ReferencePosition | None:
        """Look a cell up."""
        while isinstance(position := self.find_cached(layers, coords), Layer):
            self.manifests.load_sync(position)
        return position

    async def find(self, layers: Sequence[Layer], coords: tuple[int, ...]) -> ReferencePosition | None:
        """Look a cell up."""
        while isinstance(position := self.find_cached(layers, coords), Layer):
            await self.manifests.load(position)
        return position

    async def references(self, layers: Sequence[Layer]) -> list[References]:
        """Return the references of layers, oldest first."""
        return [References.from_manifest(await self.manifests.load(layer), layer.shift) for layer in layers]

    async def present(self, layers: Sequence[Layer]) -> References | None:
        """Return the references of layers that are not hidden or deleted; None if there are none."""
        parts = await self.references(layers)
        return overlay(parts, keep_deleted=False) if parts else None

    # -- bytes ----------------------------------------------------------------------------------------------

    @staticmethod
    def is_virtual(position: ReferencePosition) -> bool:
        """Tell whether a chunk is in an object of another storage."""
        manifest, at = position
        source: int = manifest.source.item(at)
        return source >= manifest.pack_count and source != manifest.inline_source

    def read_sync(self, position: ReferencePosition, window: Window, memory: ReadMemory | None = None) -> BytesLike:
        """Read a chunk, or a part of it; into memory for files if there is some, which the next range overwrites."""
        manifest, at = position
        source = manifest.source.item(at)
        offset = manifest.offset.item(at)
        length = manifest.length.item(at)
        start, stop = window(length)
        if start >= stop:
            return b""
        if source < manifest.pack_count:
            return self._native_sync(manifest, source, offset, length, start, stop, memory)
        if source == manifest.inline_source:
            return memoryview(manifest.inline)[offset + start : offset + stop]
        return self.virtual_source(manifest.locations, source - manifest.pack_count).read_sync(
            offset + start, offset + stop
        )

    async def read(self, position: ReferencePosition, window: Window) -> BytesLike:
        """Read a chunk, or a part of it."""
        manifest, at = position
        source = manifest.source.item(at)
        offset = manifest.offset.item(at)
        length = manifest.length.item(at)
        start, stop = window(length)
        if start >= stop:
            return b""
        if source < manifest.pack_count:
            return await self._native(manifest, source, offset, length, start, stop)
        if source == manifest.inline_source:
            return memoryview(manifest.inline)[offset + start : offset + stop]
        virtual = self.virtual_source(manifest.locations, source - manifest.pack_count)
        return (await virtual.read([(offset + start, offset + stop)]))[0]

    def _native_sync(
        self,
        manifest: Manifest,
        source: int,
        offset: int,
        length: int,
        start: int,
        stop: int,
        memory: ReadMemory | None = None,
    ) -> BytesLike:
        """Read a part of a chunk of a pack; a small chunk, or most of one, is read whole and verified."""
        unsent = self._unsent_bytes(manifest.pack_keys[source], offset + start, offset + stop)
        if unsent is not None:
            return unsent
        if not (self.verify and read_whole(length, start, stop)):
            return self._range_sync(manifest, source, offset + start, offset + stop, memory)
        framed = self._range_sync(manifest, source, offset, offset + length + CHECKSUM_BYTES, memory)
        part = sound_part(manifest.pack_seeds[source], offset, framed, start, stop)
        if part is not None:
            return part
        self.blocks.forget(manifest.pack_keys[source])  # it may have been damaged in transit only
        framed = self._range_sync(manifest, source, offset, offset + length + CHECKSUM_BYTES)
        return self._again(manifest, source, offset, framed)[start:stop]

    async def _native(
        self, manifest: Manifest, source: int, offset: int, length: int, start: int, stop: int
    ) -> BytesLike:
        if self.storage.cheap_probes:
            if stop - start <= _READ_INLINE:
                return self._native_sync(manifest, source, offset, length, start, stop)
            return await asyncio.to_thread(self._native_sync, manifest, source, offset, length, start, stop)
        key, extent = manifest.pack_keys[source], int(manifest.extents[source])
        unsent = self._unsent_bytes(key, offset + start, offset + stop)
        if unsent is not None:
            return unsent
        if not (self.verify and read_whole(length, start, stop)):
            return await self.blocks.read(key, offset + start, offset + stop, extent)
        framed = await self.blocks.read(key, offset, offset + length + CHECKSUM_BYTES, extent)
        part = sound_part(manifest.pack_seeds[source], offset, framed, start, stop)
        if part is not None:
            return part
        self.blocks.forget(key)
        framed = await self.blocks.read(key, offset, offset + length + CHECKSUM_BYTES, extent)
        return self._again(manifest, source, offset, framed)[start:stop]

    def _unsent_bytes(self, key: str, start: int, stop: int) -> BytesLike | None:
        """Return bytes of a pack that is in memory, before it is uploaded; None for any other pack."""
        return None

    def _again(self, manifest: Manifest, source: int, offset: int, framed: BytesLike) -> memoryview:
        """Verify what was read a second time; bytes damaged in the storage are not kept, since they may be restored."""
        key = manifest.pack_keys[source]
        try:
            return checked(key, manifest.pack_seeds[source], offset, framed)
        except ChunkDamagedError:
            self.blocks.forget(key)
            raise

    def _range_sync(
        self, manifest: Manifest, source: int, start: int, stop: int, memory: ReadMemory | None = None
    ) -> BytesLike:
        key = manifest.pack_keys[source]
        if self.storage.cheap_probes:
            if memory is None or not memory.pays_for(stop - start):
                return self.storage.get_range_sync(key, start, stop)
            return self.storage.get_range_into(key, start, memory.at(stop - start, start).data)
        return self.blocks.read_sync(key, start, stop, int(manifest.extents[source]))

    def virtual_source(self, table: Locations, location: int) -> VirtualSource:
        """Return the source object of a virtual chunk; raises `VirtualReferenceError` where it may not be read."""
        url = table.url(location)
        state = table.etag(location), table.not_modified_after(location)
        return virtual_source.VirtualSource(url, *self._virtual(url), *state)


def _unshifted(coords: tuple[int, ...], shift: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([c - s for c, s in zip(coords, shift, strict=True)])
