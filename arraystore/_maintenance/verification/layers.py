"""Verification of layers: their manifests exist, fit them, and name packs that hold their chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from arraystore._chunks.layer_lookup import visible_packs
from arraystore._chunks.manifest_cache import ManifestCache
from arraystore._format.chunk_statistics import decode_statistics, statistics_key
from arraystore._format.ids import ID_BYTES, LayerId, PackId, id_to_text, split_ids
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest, decode_manifest
from arraystore._format.node import Node
from arraystore._format.record import Record, decode_record, record_key
from arraystore._format.refs import branch_prefix
from arraystore._maintenance.verification.findings import Use
from arraystore._maintenance.verification.inventory import Audit
from arraystore._maintenance.verification.virtual import report_bad_locations
from arraystore._runtime.concurrency import bounded
from arraystore.errors import FormatError, NotFoundError, ObjectNotFoundError
from arraystore.storage.protocol import BytesLike

_PARALLEL = 32
_FEW_BYTES = 1 << 24

_REPAIR = (
    "restore the object from a backup or an older version in the bucket; if there is none, reset the branch to a "
    "snapshot that is not affected, or write the chunks of these arrays again"
)

_NO_STATISTICS = "delete the object: readers read the chunks that it might have excluded"


@dataclass(frozen=True, eq=False)
class LayerUse:
    """Layer of a node, and the snapshots that have it."""

    layer: Layer
    node: Node
    """Node as it was when it got the layer."""
    use: Use
    """Snapshots that need the layer."""
    rewritten: bool = False
    """True if a rewrite added it, which usually names the packs of older layers."""
    stack: tuple[Layer, ...] | None = None
    """All layers of the node if no commit brought the layer in but a checkpoint or a rewrite: packs with only hidden
    chunks may be deleted."""
    retained: bool = False
    """True if a retained record adds it, so that no collection deletes what it needs."""


@dataclass(frozen=True, eq=False)
class Loaded:
    """Sound manifest of a layer."""

    item: LayerUse
    manifest: Manifest
    fresh: list[bool]
    """Per pack, whether no earlier layer named it."""
    sound: list[bool]
    """Per pack, whether it exists and is large enough."""


_Shape = tuple[LayerId, tuple[int, ...] | None, bool]
"""Id of a layer, its shift, and whether all of its packs must exist."""

Consumer = Callable[[Loaded], Awaitable[None]]


@dataclass(eq=False)
class LayerChecker:
    """Checks each layer once, marks reachable objects, and passes sound manifests to `consumer`."""

    audit: Audit
    consumer: Consumer | None = None
    _done: dict[_Shape, Use] = field(default_factory=dict[_Shape, Use])
    _shown: dict[tuple[LayerId, ...], frozenset[PackId] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._room = asyncio.Semaphore(_PARALLEL)
        self._manifests = ManifestCache(self.audit.storage, self.audit.repository, _FEW_BYTES)

    async def check(self, items: Iterable[LayerUse], records: dict[tuple[str, int], Record]) -> None:
        """Check layers of retained snapshots, with `records` that are in memory together with their attachments."""
        new: list[LayerUse] = []
        for item in items:
            shape = item.layer.id, item.layer.shift, item.stack is None
            earlier = self._done.get(shape)
            if earlier is not None:
                earlier.share(item.use)
                continue
            self._done[shape] = item.use
            new.append(item)
        for at in range(0, len(new), 4 * _PARALLEL):
            await asyncio.gather(*(self._check(item, records) for item in new[at : at + 4 * _PARALLEL]))

    async def _check(self, item: LayerUse, records: dict[tuple[str, int], Record]) -> None:
        layer = item.layer
        async with self._room:
            await self._statistics(layer)
            manifest = await self._load(item, records)
            if manifest is None:
                return
            box = manifest.box
            here = box if layer.shift is None else box.shifted(layer.shift)
            if here != layer.box or manifest.count != layer.count or manifest.has_deletions > layer.deletions:
                name = self._name(layer)
                self._error(item, name, "the manifest is not the one that its layer describes", _REPAIR)
                return
            self.audit.counts["manifests"] += 1
            self.audit.counts["references"] += manifest.count
            report_bad_locations(self.audit.collector, self._name(layer), manifest.locations, item.use)
            fresh, sound = await self._packs(item, manifest)
            if self.consumer is not None:
                await self.consumer(Loaded(item, manifest, fresh, sound))

    async def reach(self, layers: Sequence[Layer]) -> None:
        """Mark what layers need that are not checked, as no snapshot has them, but that no collection deletes."""

        async def reach(layer: Layer) -> None:
            inventory = self.audit.inventory
            inventory.chunk_statistics.reach(layer.id)
            inventory.manifests.reach(layer.id)
            with suppress(FormatError, NotFoundError):  # nothing that is read
                inventory.packs.reach((await self._manifests.load(layer)).packs)

        await bounded(reach, layers, _PARALLEL)

    async def _statistics(self, layer: Layer) -> None:
        """Check what is known of the chunks, which readers do without where it is damaged."""
        if not self.audit.inventory.chunk_statistics.reach(layer.id):
            return
        key = statistics_key(layer.id)
        try:
            decode_statistics(key, await self.audit.storage.get(key))
        except ObjectNotFoundError:
            pass  # deleted with its layer since it was listed
        except FormatError as error:
            self.audit.collector.warning(key, error.reason, _NO_STATISTICS)

    async def _load(self, item: LayerUse, records: dict[tuple[str, int], Record]) -> Manifest | None:
        layer = item.layer
        name = self._name(layer)
        try:
            return decode_manifest(name, *await self._bytes(layer, records))
        except ObjectNotFoundError as error:
            self._error(item, error.key, "the manifest does not exist", _REPAIR)
        except FormatError as error:
            self._error(item, name, error.reason, _REPAIR)
        return None

    async def _bytes(self, layer: Layer, records: dict[tuple[str, int], Record]) -> tuple[BytesLike, str]:
        """Load a manifest, and its key where it is an object of its own."""
        if layer.inline is not None:
            return layer.inline, ""
        at = layer.attachment
        if at is None:
            self.audit.inventory.manifests.reach(layer.id)
            return await self.audit.storage.get(layer.key), layer.key
        record = records.get((at.branch, at.sequence))
        if record is None:
            key = record_key(branch_prefix(self.audit.repository, at.branch), at.sequence)
            try:
                record = decode_record(
                    key, await self.audit.storage.get(key), at.branch, at.sequence, self.audit.repository
                )
            except ObjectNotFoundError:
                # Before a record is trimmed, its referenced attachments become objects.
                if not self.audit.inventory.manifests.reach(layer.id):
                    raise
                return await self.audit.storage.get(layer.key), layer.key
        if at.index >= len(record.attachments):
            raise FormatError(self._name(layer), f"has no attachment {at.index}")
        return record.attachments[at.index], ""

    async def _packs(self, item: LayerUse, manifest: Manifest) -> tuple[list[bool], list[bool]]:
        """Check that the packs of a manifest exist and reach as far as its references."""
        packs = self.audit.inventory.packs
        native = manifest.source < manifest.pack_count
        inlined = manifest.source == manifest.inline_source
        virtual = (manifest.source < manifest.inline_source) & ~native
        self.audit.counts["packed_chunks"] += int(np.count_nonzero(native))
        self.audit.counts["virtual_chunks"] += int(np.count_nonzero(virtual))
        self.audit.counts["inlined_chunks"] += int(np.count_nonzero(inlined))
        if not item.rewritten:  # rewrites repeat what others brought in
            self.audit.counts["virtual_bytes"] += int(manifest.length[virtual].sum(dtype=np.int64))
            self.audit.counts["inlined_bytes"] += int(manifest.length[inlined].sum(dtype=np.int64))
        if not manifest.pack_count:
            return [], []
        places = packs.find(manifest.packs)
        there = places >= 0
        fresh = ~there
        fresh[there] = ~packs.reached[places[there]]
        packs.reached[places[there]] = True
        sizes = np.where(there, packs.sizes[places] if len(packs) else 0, -1)
        sound = sizes >= manifest.extents
        wrong = np.flatnonzero(~sound).tolist()
        shown = await self._shown_by(item.stack) if wrong and item.stack is not None else None
        for at in wrong:
            identifier = manifest.packs[at * ID_BYTES : (at + 1) * ID_BYTES]
            if shown is not None and identifier not in shown:
                continue
            key = "chunks/" + id_to_text(identifier)
            if sizes[at] < 0:
                problem = "the pack does not exist"
            else:
                problem = f"the pack is truncated: it has {sizes[at]} bytes, and chunks of it reach further"
            self._error(item, key, problem, _REPAIR)
        return fresh.tolist(), sound.tolist()

    async def _shown_by(self, stack: tuple[Layer, ...]) -> frozenset[PackId] | None:
        """Load the packs of an array's visible chunks; None if damage hides them."""
        key = tuple([layer.id for layer in stack])
        if key not in self._shown:
            visible: set[PackId] = set()
            try:
                async for packs in visible_packs(self._manifests, stack):
                    visible.update(split_ids(packs, PackId))
                self._shown[key] = frozenset(visible)
            except (FormatError, NotFoundError):  # a damaged manifest, which is reported where it is checked
                self._shown[key] = None
        return self._shown[key]

    def _error(self, item: LayerUse, key: str, problem: str, repair: str) -> None:
        self.audit.collector.error(key, problem, repair, [item.use])

    def _name(self, layer: Layer) -> str:
        at = layer.attachment
        if at is not None:
            return record_key(branch_prefix(self.audit.repository, at.branch), at.sequence)
        return layer.key if layer.inline is None else "inlined manifest " + layer.key
