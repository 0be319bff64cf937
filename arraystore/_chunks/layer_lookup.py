"""Look-up of many cells in the layers of an array, of which newer ones hide older ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import numpy as np

from arraystore._chunks.manifest_cache import ManifestCache
from arraystore._format.ids import ids_of
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest
from arraystore._format.references import References, overlay
from arraystore._format.types import Bools, Int64s


async def references_at(
    manifests: ManifestCache, layers: Sequence[Layer], coords: Int64s, gate: asyncio.Semaphore
) -> References:
    """Load the references of cells in row-major order; those without a chunk are returned as deleted.

    Layers that cannot have any of the cells, or below newer ones that are sure to have them, are not read.
    """
    needed: list[Layer] = []
    unsure = np.ones(len(coords), dtype=bool)
    for layer in reversed(layers):
        asked = unsure & layer.box.inside(coords)
        if asked.any():
            needed.append(layer)
            if layer.dense:
                unsure &= ~asked

    async def read(layer: Layer) -> References:
        async with gate:
            references = References.from_manifest(await manifests.load(layer), layer.shift)
        wanted = layer.box.numbers(coords[layer.box.inside(coords)])
        return references.take(np.isin(layer.box.numbers(references.coords), wanted))

    parts = await asyncio.gather(*map(read, reversed(needed)))
    return overlay([References.deletions(coords), *parts], keep_deleted=True)


async def visible_packs(manifests: ManifestCache, layers: Sequence[Layer]) -> AsyncIterator[bytes]:
    """Yield the concatenated ids of the packs of an array's visible chunks, a manifest at a time, from layers oldest
    first.
    """
    for at, layer in enumerate(layers):
        manifest = await manifests.load(layer)
        if not manifest.pack_count:
            continue
        used = np.unique(manifest.source[await find_visible(manifests, layer, manifest, layers[at + 1 :])])
        packs = ids_of(manifest.packs)[used[used < manifest.pack_count]]
        if len(packs):
            yield np.ascontiguousarray(packs).tobytes()


async def find_visible(manifests: ManifestCache, layer: Layer, manifest: Manifest, above: Sequence[Layer]) -> Bools:
    """Tell which references of a layer no newer layer hides."""
    hiding = [other for other in above if other.box.intersects(layer.box)]
    if any(other.dense and other.box.encloses(layer.box) for other in hiding):
        return np.zeros(manifest.count, dtype=bool)
    shown = np.ones(manifest.count, dtype=bool)
    own: Int64s | None = None
    for other in hiding:
        if other.dense:
            own = _coords(layer, manifest) if own is None else own
            shown &= ~other.box.inside(own)
        else:
            _hide(shown, layer, manifest, _coords(other, await manifests.load(other)))
    return shown


def _coords(layer: Layer, manifest: Manifest) -> Int64s:
    """Return the cells for which a layer has references."""
    return manifest.box.coords(manifest.numbers()) + np.array(layer.shift or 0, dtype=np.int64)


def _hide(shown: Bools, layer: Layer, manifest: Manifest, coords: Int64s) -> None:
    """Mark the references of a layer to some cells as hidden."""
    numbers = layer.box.numbers(coords[layer.box.inside(coords)])  # a shift moves box and cells alike
    if manifest.index is None:
        shown[numbers] = False
    elif len(numbers):
        at = np.minimum(np.searchsorted(manifest.index, numbers), len(manifest.index) - 1)
        shown[at[manifest.index[at] == numbers]] = False
