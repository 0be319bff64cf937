"""The visible references of an array, a manifest at a time, so that memory does not follow the number of chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from arraystore._chunks.layer_lookup import find_visible
from arraystore._chunks.manifest_cache import ManifestCache
from arraystore._format.box import Box
from arraystore._format.ids import id_time
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest
from arraystore._format.types import Bools, Int64s
from arraystore._runtime.concurrency import bounded
from arraystore.ui.views.limits import MAX_MANIFESTS, TooLargeError

__all__ = ["INLINE", "NONE", "PACK", "VIRTUAL", "Chunks", "visible_chunks"]

NONE, PACK, INLINE, VIRTUAL = 0, 1, 2, 3
"""Kinds of chunks: without a reference, in a pack, in a manifest, in an object elsewhere."""

_AHEAD = 32
"""Manifests that are loaded at a time."""


@dataclass(frozen=True, eq=False)
class Chunks:
    """Some chunks of an array, of one manifest: what they have in common by the number of their source."""

    layer: Layer
    manifest: Manifest
    at: Int64s | slice
    """Places in the manifest."""
    number: Int64s
    """Number of the source of each chunk."""
    length: Int64s
    """Encoded bytes of each chunk."""
    kinds: npt.NDArray[np.uint8]
    """`PACK`, `INLINE` or `VIRTUAL`, by source."""
    times: Int64s
    """Milliseconds since 1970 at which the pack, or the manifest of any other chunk, was begun, by source."""
    packs: tuple[bytes, ...]
    """Ids of packs, which are the first sources."""

    def __len__(self) -> int:
        return len(self.number)

    @cached_property
    def coords(self) -> Int64s:
        """Chunk-grid coordinates, shape (n, d)."""
        coords = self.manifest.box.coords(self.manifest.numbers()[self.at])
        return coords if self.layer.shift is None else coords + np.array(self.layer.shift, dtype=np.int64)


async def visible_chunks(manifests: ManifestCache, layers: Sequence[Layer], box: Box | None) -> AsyncIterator[Chunks]:
    """Yield the chunks of an array within a box, one for each cell; raises `TooLargeError` for too many manifests."""
    wanted = [layer for layer in layers if box is None or layer.box.intersects(box)]
    if len(wanted) > MAX_MANIFESTS:
        raise TooLargeError(
            f"the chunks are listed in {len(wanted):,} manifests, and a page reads at most {MAX_MANIFESTS:,}: "
            "`arraystore compact` folds them"
        )
    for start in range(0, len(wanted), _AHEAD):
        await load_layers(manifests, wanted[start : start + _AHEAD])
        for at in range(start, min(start + _AHEAD, len(wanted))):
            layer = wanted[at]
            manifest = await manifests.load(layer)
            chunks = _chunks(layer, manifest, await find_visible(manifests, layer, manifest, wanted[at + 1 :]))
            if len(chunks):
                yield chunks


async def load_layers(manifests: ManifestCache, layers: Iterable[Layer]) -> None:
    """Load manifests side by side, those attached to one record by one request."""
    missing = [layer for layer in layers if manifests.get(layer) is None]
    if not missing:
        return
    records: dict[tuple[str, int], list[Layer]] = {}
    for layer in missing:
        if layer.attachment is not None:
            records.setdefault((layer.attachment.branch, layer.attachment.sequence), []).append(layer)
    await bounded(manifests.load_attached, [each for each in records.values() if len(each) > 1], _AHEAD)
    await bounded(manifests.load, missing, _AHEAD)


def _chunks(layer: Layer, manifest: Manifest, shown: Bools) -> Chunks:
    there = shown & (manifest.source != manifest.deleted_source)
    at: Int64s | slice = slice(None) if there.all() else np.flatnonzero(there)
    packs = tuple([bytes(manifest.pack_id(i)) for i in range(manifest.pack_count)])
    sources = int(manifest.deleted_source)
    kinds = np.full(sources, VIRTUAL, dtype=np.uint8)
    kinds[: len(packs)] = PACK
    kinds[int(manifest.inline_source)] = INLINE
    times = np.full(sources, id_time(layer.id), dtype=np.int64)
    times[: len(packs)] = [id_time(pack) for pack in packs]
    number = manifest.source[at].astype(np.int64)
    return Chunks(layer, manifest, at, number, manifest.length[at].astype(np.int64), kinds, times, packs)
