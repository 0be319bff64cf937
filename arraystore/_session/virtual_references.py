"""Writing of virtual references, whose chunks are bytes of source objects."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import index
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from arraystore._chunks.chunk_table import ChunkTable
from arraystore._chunks.packed_run import SEGMENT, PackedColumn, Segment
from arraystore._chunks.virtual_checksums import Checksum, SourceState, checksum_state, read_source_states
from arraystore._chunks.virtual_containers import VirtualContainers
from arraystore._format.box import Box, bounding_box
from arraystore._format.locations import Locations, common_directory, locations_from_urls
from arraystore._format.node import Node
from arraystore._format.types import Int64s
from arraystore._format.zarr_metadata import array_info
from arraystore._session.hierarchy import Hierarchy
from arraystore.errors import InvalidInputError, VirtualReferenceError
from arraystore.storage.source_urls import all_paths_plain, object_path, url_problem

Row = TypeVar("Row", bound=Hashable)

_States: TypeAlias = SourceState | list[SourceState | None] | None
"""The state of all sources, or of each; None for states that must be looked up."""

_SAMPLE = 4096

Urls: TypeAlias = Sequence[str] | npt.NDArray[Any]
"""The URL of each chunk; an array of strings is never made into a list."""

Checksums: TypeAlias = Checksum | Mapping[str, Checksum] | list[Checksum]
"""A checksum for all chunks, by URL, or for each chunk."""


@dataclass(frozen=True)
class VirtualChunkSpec:
    """A virtual chunk: a range of bytes of a source object.

    Parameters
    ----------
    index
        Grid coordinates of the chunk.
    location
        URL of the source object.
    offset, length
        Range of its bytes.
    etag_checksum
        Entity tag that the object must have whenever it is read.
    last_updated_at_checksum
        Time after which the object must not have been modified.  Without either, the checksum of the call applies.
    """

    index: tuple[int, ...]
    location: str
    offset: int
    length: int
    etag_checksum: str | None = None
    last_updated_at_checksum: datetime | None = None


def checksum_of(spec: Any, otherwise: Checksum) -> Checksum:
    """Return the checksum of a specification, which may be one of Icechunk's, or the default."""
    etag: str | None = getattr(spec, "etag_checksum", None)
    modified: datetime | None = getattr(spec, "last_updated_at_checksum", None)
    return etag if etag is not None else otherwise if modified is None else modified


def box_of(node: Node, shape: Sequence[int], low: Sequence[int] | None) -> Box:
    """Return a box of chunks of an array by its shape and its first chunk; raise `InvalidInputError`."""
    dimensions = len(array_info(node.documents).grid)
    sides = _integers("chunk_grid_shape", shape, dimensions)
    if min(sides, default=0) < 0:
        raise InvalidInputError(f"chunk_grid_shape must be numbers of chunks, which are >= 0, and is {sides}")
    first = (0,) * dimensions if low is None else _integers("arr_offset", low, dimensions)
    return Box(first, tuple([start + side for start, side in zip(first, sides, strict=True)]))


def _integers(name: str, values: Sequence[int], dimensions: int) -> tuple[int, ...]:
    try:
        numbers = tuple(map(index, values))
    except TypeError:
        raise InvalidInputError(f"{name} must be a tuple of integers, not {values!r}") from None
    if len(numbers) != dimensions:
        raise InvalidInputError(f"{name} must have {dimensions} dimensions, as the array has, not {len(numbers)}")
    return numbers


def write_virtual_references(
    hierarchy: Hierarchy,
    containers: VirtualContainers,
    node: Node,
    cells: Int64s | Box,
    urls: Urls,
    offsets: npt.NDArray[Any],
    lengths: npt.NDArray[Any],
    validate: bool,
    checksums: Checksums,
) -> None:
    """Write references from columns, all or none; an empty URL skips its chunk."""
    grid = array_info(node.documents).grid
    _check_columns(node, grid, cells, urls, offsets, lengths)
    locations, numbers_of_urls = _locations(containers, urls, validate, checksums)
    if not len(locations):
        return
    changes = hierarchy.writable()
    with changes.lock:
        changes.check_open()
        if changes.epoch:  # writes of forks may overlap with these
            coords = cells.coords(np.arange(len(urls))) if isinstance(cells, Box) else cells
            changes.touch_many(node, coords[_joined(numbers_of_urls) >= 0])
        table = changes.array(node).table
        first = changes.put_locations(locations)
        if isinstance(cells, Box) and len(numbers_of_urls) > 1:
            table.put_segments(_segments(table, cells, first, numbers_of_urls, offsets, lengths))
        else:
            numbers = table.box_numbers(cells) if isinstance(cells, Box) else table.numbers(cells)
            values = np.empty((len(urls), 3), dtype=np.int64)
            of_urls = _joined(numbers_of_urls)
            np.add(of_urls, first, out=values[:, 0])
            values[:, 1] = offsets
            values[:, 2] = lengths
            keep = of_urls >= 0
            if keep.all():
                table.put_numbered(numbers, values)
            else:
                table.put_numbered(numbers[keep], values[keep])
        hierarchy.forget()


def _segments(
    table: ChunkTable,
    cells: Box,
    first: int,
    numbers_of_urls: list[PackedColumn],
    offsets: npt.NDArray[Any],
    lengths: npt.NDArray[Any],
) -> Iterator[Segment]:
    """Pack the references of a box, stretch by stretch: a hundred million take no memory besides the packed ones."""
    for start, column in zip(range(0, cells.volume, SEGMENT), numbers_of_urls, strict=True):
        stop = min(start + SEGMENT, cells.volume)
        of_urls = column.take(np.arange(stop - start, dtype=np.int64))
        columns = [
            table.stretch_numbers(cells, start, stop),
            of_urls + first,
            offsets[start:stop].astype(np.int64),
            lengths[start:stop].astype(np.int64),
        ]
        keep = of_urls >= 0
        if not keep.all():
            columns = [values[keep] for values in columns]
        if len(columns[0]):
            yield Segment.of(columns[0], columns[1:])


def _joined(numbers: list[PackedColumn]) -> Int64s:
    """Return the numbers of all rows."""
    return np.concatenate([column.values() for column in numbers])


def _locations(
    containers: VirtualContainers, urls: Urls, validate: bool, checksums: Checksums
) -> tuple[Locations, list[PackedColumn]]:
    """Return distinct URLs and checksums, and the number of the one of each chunk; -1 for an empty URL."""
    if isinstance(checksums, list):
        pairs, numbers = _numbered(
            [(url, checksum_state(c)) if url else None for url, c in zip(urls, checksums, strict=True)]
        )
        distinct_urls: Sequence[str] = [url for url, _ in pairs]
        states: _States = [state for _, state in pairs]
    else:
        if isinstance(urls, np.ndarray):
            distinct_urls, numbers = _numbered_runs(urls)
        else:
            distinct_urls, numbers = _numbered(urls if isinstance(urls, list) else list(urls))
        states = _stated_of(distinct_urls, checksums) if isinstance(checksums, Mapping) else checksum_state(checksums)
    shared = common_directory(distinct_urls)
    try:
        _check_urls(containers, distinct_urls, shared, validate)
        etags, modified = _columns(containers, distinct_urls, states)
        distinct = len(distinct_urls) < len(urls) and not isinstance(states, list)  # else uniqueness was not checked
        return locations_from_urls(distinct_urls, etags, modified, prefix=shared, distinct=distinct), numbers
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"the URL {error.object[:80]!r} is not valid Unicode") from None


def _numbered(rows: Sequence[Row | None]) -> tuple[Sequence[Row], list[PackedColumn]]:
    """Return distinct rows and the number of each row's own, packed by stretches; -1 for None and empty strings."""
    # Where rows hardly repeat, all are returned: manifests keep each of them once, anyway.
    sample = rows[:_SAMPLE]
    stretches = range(0, len(rows), SEGMENT)
    if len(rows) > _SAMPLE and 2 * len(set(sample)) > len(sample) and None not in rows and "" not in rows:
        counts = [min(SEGMENT, len(rows) - start) for start in stretches]
        return cast("Sequence[Row]", rows), [
            PackedColumn(count, start, 1, None) for start, count in zip(stretches, counts, strict=True)
        ]
    # `map` over a dictionary's own method makes no step of Python for a row: 40 ns in place of 120
    numbers: defaultdict[Any, int] = defaultdict(itertools.count().__next__, {None: -1, "": -1})
    columns = [
        PackedColumn.of(np.fromiter(map(numbers.__getitem__, some), np.int64, len(some)))
        for some in (rows[start : start + SEGMENT] for start in stretches)
    ]
    del numbers[None], numbers[""]
    return cast("list[Row]", list(numbers)), columns


def _numbered_runs(rows: npt.NDArray[Any]) -> tuple[Sequence[str], list[PackedColumn]]:
    """Return what `_numbered` does, of an array of strings: a step of Python for a run of equal ones."""
    numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__, {"": -1})
    columns = []
    for start in range(0, len(rows), SEGMENT):
        some = rows[start : start + SEGMENT]
        first = np.flatnonzero(np.concatenate([[True], some[1:] != some[:-1]]))
        of_runs = np.fromiter(map(numbers.__getitem__, some[first].tolist()), np.int64, len(first))
        columns.append(PackedColumn.of(np.repeat(of_runs, np.diff(first, append=len(some)))))
    del numbers[""]
    return list(numbers), columns


def _stated_of(urls: Sequence[str], checksums: Mapping[str, Checksum]) -> list[SourceState | None]:
    try:
        return [checksum_state(checksums[url]) for url in urls]
    except KeyError as error:
        raise InvalidInputError(f"checksum has no entry for {error.args[0]!r}; pass one for each location") from None


def _check_urls(containers: VirtualContainers, urls: Sequence[str], shared: str, validate: bool) -> None:
    """Refuse URLs that could lead out of their container or, if `validate`, are in none."""
    prefix = containers.prefix_of(shared) if validate else None
    head = object_path(shared) if not validate else None if prefix is None else shared[len(prefix) :]
    skip = len(shared)
    if head is not None and all_paths_plain([head + "x"]) and all_paths_plain([url[skip:] for url in urls]):
        return
    for url in urls:
        problem = url_problem(url)
        if problem is not None:
            raise VirtualReferenceError(
                f"the virtual reference to {url[:200]!r} is not written, nor is any other of this call: {problem}. "
                f"The containers of this repository are: {containers.enumeration}"
            )
        if validate:
            containers.check_contained(url)


def _columns(
    containers: VirtualContainers, urls: Sequence[str], states: _States
) -> tuple[Sequence[str | None] | None, Int64s | None]:
    """Return columns of entity tags and times, None for an empty one; unstated states are looked up."""
    if isinstance(states, tuple):
        etag, time = states
        return [etag] * len(urls) if etag else None, np.full(len(urls), time, dtype=np.int64) if time else None
    each = _look_up_states(containers, urls, states or [None] * len(urls))
    etags = [etag for etag, _ in each]
    modified = np.fromiter((time for _, time in each), np.int64, len(each))
    return etags if any(etags) else None, modified if modified.any() else None


def _look_up_states(
    containers: VirtualContainers, urls: Sequence[str], states: list[SourceState | None]
) -> list[SourceState]:
    """Return all states, with unstated ones looked up once per source."""
    unsaid = dict.fromkeys(url for url, state in zip(urls, states, strict=True) if state is None)
    states_of_urls = dict(zip(unsaid, read_source_states(containers, unsaid), strict=True)) if unsaid else {}
    return [states_of_urls[url] if state is None else state for url, state in zip(urls, states, strict=True)]


def _check_columns(
    node: Node,
    grid: tuple[int, ...],
    cells: Int64s | Box,
    urls: Urls,
    offsets: npt.NDArray[Any],
    lengths: npt.NDArray[Any],
) -> None:
    count = cells.volume if isinstance(cells, Box) else len(cells)
    ndim = len(cells.low) if isinstance(cells, Box) else cells.shape[1]
    if not len(urls) == len(offsets) == len(lengths) == count or ndim != len(grid):
        raise InvalidInputError(
            "locations, offsets, lengths and chunks must be equal in number, with coordinates for each dimension"
        )
    if not count:
        return
    if offsets.dtype.kind not in "iu" or lengths.dtype.kind not in "iu":
        raise InvalidInputError("offsets and lengths must be integers")
    largest = (1 << 62) - 1
    if min(offsets.min(), lengths.min()) < 0 or max(offsets.max(), lengths.max()) > largest:
        raise InvalidInputError(f"offsets and lengths must be in 0..{largest}")
    box = cells if isinstance(cells, Box) else bounding_box(cells)
    if any(low < 0 or high > side for low, high, side in zip(box.low, box.high, grid, strict=True)):
        raise InvalidInputError(f"a chunk is outside of the grid {grid} of array {node.path!r}")
