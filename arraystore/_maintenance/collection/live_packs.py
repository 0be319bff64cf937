"""Packs of the visible chunks of a state: chunks hidden by newer layers are never read again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import numpy as np

from arraystore._chunks.manifest_cache import ManifestCache
from arraystore._format.box import Box
from arraystore._format.ids import ID_BYTES
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest
from arraystore._format.types import Bools


async def visible_packs(manifests: ManifestCache, layers: Sequence[Layer]) -> AsyncIterator[bytes]:
    """Yield the concatenated ids of the packs of an array's visible chunks, a manifest at a time, from layers oldest
    first.
    """
    for at, layer in enumerate(layers):
        above = [other for other in layers[at + 1 :] if _overlap(layer.box, other.box)]
        manifest = await manifests.load(layer)
        if not manifest.pack_count:
            continue
        if not above:
            yield manifest.packs
            continue
        if any(other.dense and _within(layer.box, other.box) for other in above):
            continue
        shown = np.ones(manifest.count, dtype=bool)
        for other in above:
            _cover(shown, layer, manifest, other, await manifests.load(other))
        yield _packs_of(manifest, shown)


def _overlap(one: Box, other: Box) -> bool:
    return all(a < d and c < b for a, b, c, d in zip(one.low, one.high, other.low, other.high, strict=True))


def _within(inner: Box, outer: Box) -> bool:
    return all(c <= a and b <= d for a, b, c, d in zip(inner.low, inner.high, outer.low, outer.high, strict=True))


def _cover(shown: Bools, layer: Layer, manifest: Manifest, other: Layer, above: Manifest) -> None:
    """Mark the references of a manifest that another manifest hides."""
    coords = above.box.coords(above.numbers())
    coords = coords + np.array(other.shift or (0,) * coords.shape[1], dtype=np.int64)
    low, high = np.array(layer.box.low, dtype=np.int64), np.array(layer.box.high, dtype=np.int64)
    inside = coords[((coords >= low) & (coords < high)).all(axis=1)]
    if not len(inside):
        return
    own = inside - np.array(layer.shift or (0,) * coords.shape[1], dtype=np.int64)
    numbers = manifest.box.numbers(own)
    if manifest.index is None:
        shown[numbers] = False
        return
    at = np.searchsorted(manifest.index, numbers)
    at[at == len(manifest.index)] = 0
    shown[at[manifest.index[at] == numbers]] = False


def _packs_of(manifest: Manifest, shown: Bools) -> bytes:
    used = np.unique(manifest.source[shown])
    used = used[used < manifest.pack_count]
    packs = np.frombuffer(manifest.packs, dtype=f"S{ID_BYTES}")
    return np.ascontiguousarray(packs[used]).tobytes()
