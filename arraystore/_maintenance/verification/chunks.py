"""Selection of the chunks that a verification reads: all of them, or a sample drawn at random."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from arraystore._format.references import References, to_manifests
from arraystore._format.types import Int64s
from arraystore._maintenance.verification.layers import Loaded


class Verifier(Protocol):
    """Reads chunks and reports what is wrong with them, in this process or elsewhere."""

    @property
    def unread(self) -> Mapping[str, int]:
        """Virtual chunks that could not be read, by place and reason."""
        ...

    async def check(self, loaded: Loaded, at: Int64s) -> None:
        """Check some chunks of a manifest, now or later."""
        ...

    async def finish(self) -> None:
        """Check all that are left."""
        ...


@dataclass(eq=False)
class ChunkChecker:
    """Selects the chunks of sound manifests to read: all, or a sample of the given size drawn at random."""

    _verifier: Verifier
    _sample: int | None
    _random: Callable[[], float]

    def __post_init__(self) -> None:
        self._generator = np.random.default_rng(int(self._random() * (1 << 53)))
        self._drawn: list[tuple[float, int, Loaded]] = []
        self._least = 1.0
        self._turn = asyncio.Lock()

    @property
    def unread(self) -> Mapping[str, int]:
        """Virtual chunks that could not be read, by place and reason."""
        return dict(self._verifier.unread)

    async def take(self, loaded: Loaded) -> None:
        """Check the chunks of a manifest, or draw some of them into the sample."""
        at = _to_read(loaded)
        if self._sample is None:
            async with self._turn:  # one manifest at a time, so that memory stays bounded
                await self._verifier.check(loaded, at)
        elif len(at) and self._sample:
            self._draw(loaded, at, self._sample)

    def _draw(self, loaded: Loaded, at: Int64s, sample: int) -> None:
        """Assign each chunk a random number, of which the smallest make the sample."""
        numbers = self._generator.random(len(at))
        best = np.flatnonzero(numbers < self._least)
        if len(best) > sample:
            best = best[np.argpartition(numbers[best], sample - 1)[:sample]]
        if not len(best):
            return
        best.sort()
        drawn = iter(numbers[best].tolist())
        for small in _only(loaded, at[best]):
            self._drawn += [(next(drawn), place, small) for place in range(small.manifest.count)]
        if len(self._drawn) > 4 * sample:
            self._cut(sample)
            self._least = self._drawn[-1][0]

    def _cut(self, sample: int) -> None:
        self._drawn = sorted(self._drawn, key=lambda item: item[0])[:sample]

    async def finish(self) -> None:
        """Read the sample, and what is left to read."""
        if self._sample is not None:
            await self._read_sample(self._sample)
        await self._verifier.finish()

    async def _read_sample(self, sample: int) -> None:
        self._cut(sample)
        chosen: dict[int, tuple[Loaded, list[int]]] = {}
        for _, place, loaded in self._drawn:
            chosen.setdefault(id(loaded), (loaded, []))[1].append(place)
        for loaded, places in chosen.values():
            await self._verifier.check(loaded, np.array(sorted(places), dtype=np.int64))


def _to_read(loaded: Loaded) -> Int64s:
    """Return the positions of the references to read.

    Those that a rewrite adds were read for the layers that it replaced, except in packs of its own.
    """
    manifest = loaded.manifest
    source = manifest.source.astype(np.int64)
    wanted = source != manifest.deleted_source
    if manifest.pack_count:
        use = np.array(loaded.sound, dtype=bool)
        if loaded.item.rewritten:
            use &= np.array(loaded.fresh, dtype=bool)
        native = source < manifest.pack_count
        wanted[native] &= use[source[native]]
    if loaded.item.rewritten:
        wanted &= source < manifest.pack_count
    places: Int64s = np.flatnonzero(wanted).astype(np.int64)
    return places


def _only(loaded: Loaded, at: Int64s) -> list[Loaded]:
    """Return a subset of the references of a manifest, in order and in minimal memory."""
    item = loaded.item
    layer = replace(item.layer, shift=None)
    some = References.from_manifest(loaded.manifest, item.layer.shift).take(at)
    return [Loaded(replace(item, layer=layer), manifest, [], []) for manifest in to_manifests(some)]
