"""Cache of manifests: each is loaded once and kept as long as there is room."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Sequence

from arraystore._chunks import cache_budget
from arraystore._chunks.cells import inlined_manifest
from arraystore._chunks.single_flight import AbandonedError, SharedLoad
from arraystore._format.ids import LayerId
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest, decode_manifest
from arraystore._format.record import decode_record, record_key
from arraystore._format.refs import branch_prefix
from arraystore.errors import FormatError, ObjectNotFoundError
from arraystore.storage.cache_usage import CacheUsage
from arraystore.storage.protocol import Storage

MiB = 1 << 20

_OVERHEAD, _PER_PACK = 2048, 128
"""Bytes that the Python objects of a manifest take, and those of each of its packs: most manifests are small."""


class ManifestCache:
    """Cache of at most `room` bytes of manifests, Python objects included; concurrent loads of one are shared."""

    def __init__(self, storage: Storage, repository: bytes, room: int = 256 * MiB) -> None:
        self.storage = storage
        self.repository = repository
        self.room = room
        self._lock = threading.Lock()
        self._kept: OrderedDict[LayerId, Manifest] = OrderedDict()
        self.account = cache_budget.PROCESS.open(self)
        self._hits = self._misses = self._evictions = 0
        self._loading: dict[LayerId, SharedLoad[Manifest]] = {}
        cache_budget.PROCESS.join(self)

    def get(self, layer: Layer) -> Manifest | None:
        """Return a manifest that needs no request; None for any other."""
        manifest = self._kept.get(layer.id)
        if manifest is not None:
            self._hits += 1
            with contextlib.suppress(KeyError):  # evicted meanwhile
                self._kept.move_to_end(layer.id)
            return manifest
        self._misses += 1
        if layer.inline is not None:
            return self._keep(layer, inlined_manifest(self._name(layer), layer.inline))
        return None

    @property
    def usage(self) -> CacheUsage:
        """Return what it holds, and how often it helped."""
        return CacheUsage(len(self._kept), self.account.bytes, self.room, self._hits, self._misses, self._evictions)

    def load_sync(self, layer: Layer) -> Manifest:
        """Return a manifest, loading it if it is not in the cache."""
        while True:
            manifest = self.get(layer)
            if manifest is not None:
                return manifest
            load, mine = self._claim(layer, in_thread=True)
            if mine:
                try:
                    manifest = self._fetch_sync(layer)
                except BaseException as error:
                    self._release(layer)
                    load.fail(error)
                    if not isinstance(error, FormatError):  # its frames hold what was decoded: raised anew below
                        raise
                else:
                    self._release(layer)
                    load.succeed(manifest)
            elif load.may_block:
                return self._fetch_sync(layer)
            try:
                return load.result()
            except AbandonedError:
                continue

    async def load(self, layer: Layer) -> Manifest:
        """Return a manifest, loading it if it is not in the cache."""
        while True:
            manifest = self.get(layer)
            if manifest is not None:
                return manifest
            load, mine = self._claim(layer, in_thread=False)
            if mine:
                try:
                    manifest = await self._fetch(layer)
                except BaseException as error:
                    self._release(layer)
                    load.fail(error)
                    if not isinstance(error, FormatError):  # its frames hold what was decoded: raised anew below
                        raise
                else:
                    self._release(layer)
                    load.succeed(manifest)
            try:
                return await load.wait()
            except AbandonedError:
                continue

    async def load_attached(self, layers: Sequence[Layer]) -> None:
        """Load manifests that are attached to one record, which is read once for all of them."""
        missing = [layer for layer in layers if self.get(layer) is None]
        if missing:
            try:
                data = await self.storage.get(self._where(missing[0]))
            except ObjectNotFoundError:
                return  # the record was deleted: each manifest has an object of its own
            with contextlib.suppress(ObjectNotFoundError):  # it is not that record any more
                for layer in missing:
                    self._decode(layer, data)

    def _claim(self, layer: Layer, *, in_thread: bool) -> tuple[SharedLoad[Manifest], bool]:
        """Return the load of a manifest, and whether the caller has to carry it out."""
        with self._lock:
            load = self._loading.get(layer.id)
            if load is not None:
                return load, False
            load = self._loading[layer.id] = SharedLoad(in_thread=in_thread)
            return load, True

    def _release(self, layer: Layer) -> None:
        with self._lock:
            del self._loading[layer.id]

    def _fetch_sync(self, layer: Layer) -> Manifest:
        try:
            return self._decode(layer, self.storage.get_sync(self._where(layer)))
        except ObjectNotFoundError:
            if layer.attachment is None:
                raise
            return self._decode_object(layer, self.storage.get_sync(layer.key))

    async def _fetch(self, layer: Layer) -> Manifest:
        try:
            return self._decode(layer, await self.storage.get(self._where(layer)))
        except ObjectNotFoundError:
            if layer.attachment is None:
                raise
            return self._decode_object(layer, await self.storage.get(layer.key))

    def _decode_object(self, layer: Layer, data: bytes | bytearray | memoryview) -> Manifest:
        """Decode the object of a manifest that was attached to a record now deleted."""
        return self._keep(layer, decode_manifest(layer.key, data, layer.key))

    def _decode(self, layer: Layer, data: bytes | bytearray | memoryview) -> Manifest:
        at = layer.attachment
        if at is not None:
            record = decode_record(self._where(layer), data, at.branch, at.sequence, self.repository)
            if not any(bytes(layer.id) in part for part in (record.body, *record.attachments)):
                # written late, after the record of the layer had expired: the manifest has an object of its own
                raise ObjectNotFoundError(self._where(layer), self.storage.location)
            if at.index >= len(record.attachments):
                raise FormatError(self._where(layer), f"has no attachment {at.index}")
            data = record.attachments[at.index]
        return self._keep(layer, decode_manifest(self._name(layer), data, layer.key if at is None else ""))

    def forget_inlined(self, layers: Sequence[Layer]) -> None:
        """Drop manifests that take no request to decode again, of layers that the newest snapshot no longer has."""
        with self._lock:
            for layer in layers:
                if layer.inline is not None and (dropped := self._kept.pop(layer.id, None)) is not None:
                    self.account.add(-_weight(dropped))

    def _keep(self, layer: Layer, manifest: Manifest) -> Manifest:
        box = manifest.box
        here = box if layer.shift is None or len(layer.shift) != len(box.low) else box.shifted(layer.shift)
        if here != layer.box or manifest.count != layer.count:
            raise FormatError(self._name(layer), "the manifest is not the one that its layer describes")
        with self._lock:
            if layer.id not in self._kept:
                self._kept[layer.id] = manifest
                self.account.add(_weight(manifest))
                self._evict(self.account.bytes - self.room)
        self.account.settle()
        return manifest

    def evict(self, excess: int) -> int:
        """Drop the manifests used least recently until `excess` bytes are free or one is left; returns their count."""
        with self._lock:
            return self._evict(excess)

    def _evict(self, excess: int) -> int:
        before = self._evictions
        while excess > 0 and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._evictions += 1
            self.account.add(-_weight(dropped))
            excess -= _weight(dropped)
        return self._evictions - before

    def _where(self, layer: Layer) -> str:
        at = layer.attachment
        return layer.key if at is None else record_key(branch_prefix(self.repository, at.branch), at.sequence)

    def _name(self, layer: Layer) -> str:
        return self._where(layer) if layer.inline is None else "inlined manifest " + layer.key


def _weight(manifest: Manifest) -> int:
    """Estimate the bytes that a manifest takes in memory once it is in use."""
    return _OVERHEAD + manifest.nbytes + _PER_PACK * manifest.pack_count
