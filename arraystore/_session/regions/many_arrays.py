"""Regions of many arrays that are read together: one look-up of all, one pass over the packs that have them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Array
from arraystore._runtime.values import dataclass
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.pipeline.blocks import Block, UnsoundBlockError, for_each_block
from arraystore._session.pipeline.byte_codecs import UndecodableError
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.lookup import Located, Place, locate
from arraystore._session.pipeline.reading import block_reader
from arraystore._session.regions.access import Region, RegionSession, open_region
from arraystore._session.regions.manifests import Wanted, load_manifests
from arraystore._session.regions.shared import are_copied_singly, share_chunks
from arraystore.errors import ArrayStoreError, InvalidInputError


@dataclass(frozen=True)
class _Part:
    """A region that is read along with others."""

    located: Located
    use: Callable[[Block], None]
    """Decodes chunks into the array that is read into."""


def read_many(session: RegionSession, requests: Iterable[tuple[str, Any]]) -> list[Any]:
    """Read regions together; see `Session.read_many`."""
    return read_regions(session, open_regions(session, requests))


async def read_many_async(session: RegionSession, requests: Iterable[tuple[str, Any]]) -> list[Any]:
    """Asynchronous twin of `read_many`."""
    return await asyncio.to_thread(read_regions, session, open_regions(session, requests))


def open_regions(session: RegionSession, requests: Iterable[tuple[str, Any]]) -> list[Region]:
    """Return regions of pairs of path and selection."""
    return [open_region(session, *_pair(request)) for request in requests]


def _pair(request: Any) -> tuple[str, Any]:
    if not isinstance(request, tuple | list) or len(request) != 2 or not isinstance(request[0], str):
        raise InvalidInputError(f"{repr(request)[:200]} must be a pair of the path of an array and a selection")
    return request[0], request[1]


def read_regions(session: RegionSession, regions: list[Region]) -> list[Any]:
    """Read regions together."""
    targets = [None if region.selected is None else region.target(None) for region in regions]
    done = _read_together(session.hierarchy, regions, targets)
    return [
        region.result(target) if target is not None and (read or region.is_empty) else region.read(None)
        for region, target, read in zip(regions, targets, done, strict=True)
    ]


def _read_together(hierarchy: Hierarchy, regions: list[Region], targets: Sequence[Array | None]) -> list[bool]:
    """Read the regions that take no zarr in one pass; returns which of them were read."""
    done = [False] * len(regions)
    parts: list[_Part] = []
    try:
        load_manifests(hierarchy, _wanted_manifests(regions))
        for numbers in _sharing(regions):
            wanted = {at: (regions[at], target) for at in numbers if (target := targets[at]) is not None}
            parts += _parts(hierarchy, wanted, done)
        _read_parts(hierarchy, parts)
    except (UndecodableError, UnsoundBlockError, ArrayStoreError):
        return [False] * len(regions)  # each is read alone, and the one that cannot be says why
    return done


def _wanted_manifests(regions: list[Region]) -> Iterator[Wanted]:
    for region in regions:
        if region.codec is not None and region.selected is not None:
            yield region.handle, region.selected.chunk_axes(region.codec.shape)


def _sharing(regions: list[Region]) -> Iterator[list[int]]:
    """Yield the numbers of regions that can be read along with others: those that may share chunks together."""
    of_array: dict[int, list[int]] = {}
    for at, region in enumerate(regions):
        if not isinstance(region.codec, ChunkCodec) or region.selected is None:
            continue  # a shard, or one that only zarr can read
        if are_copied_singly(region.selected, region.codec):
            of_array.setdefault(id(region.handle), []).append(at)
        else:
            yield [at]
    yield from of_array.values()


def _parts(hierarchy: Hierarchy, wanted: dict[int, tuple[Region, Array]], done: list[bool]) -> Iterator[_Part]:
    """Yield parts to read for regions by their numbers, and note those as done."""
    if len(wanted) > 1:
        try:
            yield _shared_part(hierarchy, wanted, done)
        except UndecodableError:
            pass
        else:
            return
    for at, (region, target) in wanted.items():
        part = _part(hierarchy, region, target)
        if part is not None:
            done[at] = True
            yield part


def _shared_part(hierarchy: Hierarchy, wanted: dict[int, tuple[Region, Array]], done: list[bool]) -> _Part:
    """Return regions of one array as one part; raises `UndecodableError` if any cannot be read along with others."""
    numbers, regions = list(wanted), [region for region, _ in wanted.values()]
    first, codec = regions[0], regions[0].codec
    assert isinstance(codec, ChunkCodec)
    selections = [region.selected for region in regions if region.selected is not None]
    outs = [each.with_all_axes(target) for each, (_, target) in zip(selections, wanted.values(), strict=True)]
    shared = share_chunks(hierarchy, first.handle, codec, first.layout.shape, selections, outs)
    incomplete = shared.fill_missing(first.layout.fill)
    for at, number in enumerate(numbers):
        done[number] = first.accepts(at not in incomplete)
    return _Part(shared.located, shared.use)


def _part(hierarchy: Hierarchy, region: Region, target: Array) -> _Part | None:
    """Return a region as a part of its own; None for one that only zarr can read."""
    projection, codec = region.projection, region.codec
    assert projection is not None
    assert isinstance(codec, ChunkCodec)
    assert region.selected is not None
    located = locate(hierarchy, region.handle, projection.axes)
    if not region.accepts(not located.missing.any()):
        return None
    out = region.selected.with_all_axes(target)
    try:
        return _Part(located, block_reader(located, codec, projection, out, region.layout.fill))
    except UndecodableError:
        return None


def _read_parts(hierarchy: Hierarchy, parts: list[_Part]) -> None:
    """Read the chunks of all parts, those of several arrays that are neighbours in a pack by one request."""
    if not parts:
        return
    first = np.cumsum([0, *[len(part.located.place) for part in parts]])

    def use(block: Block) -> None:
        owner = first.searchsorted(block.at, "right") - 1
        for number in np.unique(owner).tolist():
            mine = owner == number
            parts[number].use(Block(block.data, block.at[mine] - first[number], block.offset[mine], block.length[mine]))

    for_each_block(hierarchy, joined([part.located for part in parts]), use)


def joined(parts: Sequence[Located]) -> Located:
    """Return the chunks of several arrays as one, with each place once."""
    places: list[Place] = []
    numbers: dict[tuple[str, int], int] = {}
    renumbered: list[npt.NDArray[np.int64]] = []
    for part in parts:
        new = np.array([_number(place, places, numbers) for place in part.places] or [0])
        renumbered.append(np.where(part.place >= 0, new[np.maximum(part.place, 0)], part.place))
    offsets, lengths = [part.offset for part in parts], [part.length for part in parts]
    return Located(np.concatenate(renumbered), np.concatenate(offsets), np.concatenate(lengths), places)


def _number(place: Place, places: list[Place], numbers: dict[tuple[str, int], int]) -> int:
    """Return the number of a place among those of all arrays."""
    key = place.key, place.own
    number = None if place.data is not None else numbers.get(key)
    if number is None:
        number = len(places)
        places.append(place)
        if place.data is None:
            numbers[key] = number
    elif places[number].extent < place.extent:
        places[number] = place
    return number
