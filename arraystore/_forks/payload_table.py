"""A columnar table of the changes in several payloads of forks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from arraystore._format.box import MAX_VOLUME, Box, bounding_box
from arraystore._format.chunk_statistics import ChunkStatistics
from arraystore._format.fork_payload import ChangePayload, ForkChanges, Part
from arraystore._format.ids import ForkId, NodeId, PackId, split_ids
from arraystore._format.locations import concat_locations
from arraystore._format.manifest import Manifest
from arraystore._format.references import DELETED, INLINE, VIRTUAL, References, to_manifests
from arraystore._format.types import Bools, Int64s
from arraystore.errors import FormatError

PAYLOAD = "change payload of a fork"


@dataclass(frozen=True, eq=False)
class Writers:
    """The fork that wrote each cell."""

    ends: Int64s
    """End of the cells of each part, shape (parts,)."""
    forks: Int64s
    """Index of the fork of each part, shape (parts,)."""

    def of(self, cells: Int64s) -> Int64s:
        """Return the forks of some cells, so that no column of all cells is needed."""
        return self.forks[self.ends.searchsorted(cells, side="right")]


@dataclass(frozen=True, eq=False)
class PayloadTable:
    """Changes of many forks; the cells of all parts are numbered from 0, one part after the other."""

    forks: tuple[ForkChanges, ...]
    """The forks, in the order of the payloads."""
    arrays: tuple[tuple[NodeId, str], ...]
    """Id and path of the arrays with chunks."""
    parts: tuple[Part, ...]
    """The cells."""
    references: References
    """References in the order of the cells, without coordinates, which the parts have."""
    statistics: tuple[ChunkStatistics, ...] = ()
    """What is known of the chunks."""

    def counts(self) -> Int64s:
        """Return the count of cells of each part."""
        return np.array([part.count for part in self.parts], dtype=np.int64)

    def of_cells(self, values: Sequence[int]) -> Int64s:
        """Expand a value of each part to its cells."""
        return np.repeat(np.array(values, dtype=np.int64), self.counts())

    def numbers(self, strides: Sequence[tuple[int, ...]]) -> Int64s:
        """Return the row-major number of each cell in its array, given the strides of each array."""
        blocks: dict[tuple[int, tuple[int, ...]], Int64s] = {}
        blocks_of_parts: list[Int64s] = []
        starts: list[int] = []
        for part in self.parts:
            steps = strides[part.array]
            starts.append(sum(low * step for low, step in zip(part.box.low, steps, strict=True)))
            if part.index is None:
                key = part.array, part.box.shape
                block = blocks.get(key)
                if block is None:
                    block = blocks[key] = _block(part.box.shape, steps)
            else:
                origin = Box((0,) * len(steps), part.box.shape)
                block = origin.coords(part.index) @ np.array(steps, dtype=np.int64)
            blocks_of_parts.append(block)
        if not blocks_of_parts:
            return np.empty(0, dtype=np.int64)
        numbers = np.concatenate(blocks_of_parts)
        numbers += self.of_cells(starts)
        return numbers

    def writers(self) -> Writers:
        """Return the fork that wrote each cell."""
        return Writers(np.cumsum(self.counts()), np.array([part.fork for part in self.parts], dtype=np.int64))

    def spans(self) -> list[slice]:
        """Return the span of each array when cells are sorted by array."""
        counts = [0] * len(self.arrays)
        for part in self.parts:
            counts[part.array] += part.count
        ends = list(accumulate(counts))
        return [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]

    def take(self, keep: Bools) -> PayloadTable:
        """Return a table of only some of the cells."""
        parts: list[Part] = []
        end = 0
        for part in self.parts:
            start, end = end, end + part.count
            kept = keep[start:end]
            if bool(kept.all()):
                parts.append(part)
            elif bool(kept.any()):
                parts.append(part_of(part.fork, part.array, part.box.coords(part.numbers()[kept])))
        return replace(self, parts=tuple(parts), references=self.references.take(keep))

    def payload(self, session: bytes) -> ChangePayload:
        """Return the table as one payload."""
        refs = self.references
        order = np.lexsort((refs.offset, refs.source))
        places = np.arange(len(order), dtype=np.int64)
        flat = replace(refs.take(order), coords=places[:, np.newaxis])
        unchanged = np.array_equal(order, places)
        orders = None if unchanged else order
        manifests = tuple(to_manifests(flat))
        return ChangePayload(session, self.forks, self.arrays, self.parts, orders, manifests, self.statistics)


def part_of(fork: int, array: int, coords: Int64s) -> Part:
    """Return a part from the coordinates of its cells, in row-major order."""
    box = bounding_box(coords)
    return Part(fork, array, box, None if len(coords) == box.volume else box.numbers(coords))


def _block(shape: tuple[int, ...], strides: tuple[int, ...]) -> Int64s:
    """Return the row-major numbers of the cells of a box at the origin of a grid."""
    total = np.zeros((), dtype=np.int64)
    for side, stride in zip(shape, strides, strict=True):
        total = total[..., np.newaxis] + np.arange(side, dtype=np.int64) * stride
    return total.reshape(-1)


def gather_payloads(payloads: Sequence[ChangePayload]) -> PayloadTable:
    """Return the changes of several payloads; of several states of one fork the newest counts, at its place."""
    newest: dict[ForkId, tuple[int, int]] = {}
    for at, payload in enumerate(payloads):
        for fork in payload.forks:
            if fork.fork not in newest or newest[fork.fork][0] < fork.number:
                newest[fork.fork] = fork.number, at
    forks: list[ForkChanges] = []
    arrays: dict[tuple[NodeId, str], int] = {}
    ids: dict[NodeId, int] = {}
    parts: list[Part] = []
    for at, payload in enumerate(payloads):
        places: list[int] = []
        for fork in payload.forks:
            counts = newest[fork.fork] == (fork.number, at)
            places.append(len(forks) if counts else -1)
            if counts:
                forks.append(fork)
        names = [ids.setdefault(node, len(ids)) for node, _ in payload.arrays]
        for node, path in payload.arrays:
            if ids[node] == len(arrays):
                arrays[node, path] = ids[node]
        parts += [Part(places[part.fork], names[part.array], part.box, part.index) for part in payload.parts]
    known = tuple([table for payload in payloads for table in payload.statistics])
    table = PayloadTable(tuple(forks), tuple(arrays), tuple(parts), _references(payloads), known)
    return table.take(table.of_cells([part.fork for part in parts]) >= 0) if any(p.fork < 0 for p in parts) else table


def _references(payloads: Sequence[ChangePayload]) -> References:
    """Return the references of all payloads, in the order of their cells, with one numbering of sources."""
    manifests = [manifest for payload in payloads for manifest in payload.manifests]
    if not manifests:
        return References.none(0)
    counts = np.array([manifest.count for manifest in manifests], dtype=np.int64)
    blob = b"".join([manifest.packs for manifest in manifests])
    packs: dict[PackId, int] = {}
    renumbered = [packs.setdefault(pack, len(packs)) for pack in split_ids(blob, PackId)]
    source, offset = _sources(manifests, counts, np.array(renumbered, dtype=np.int64))
    length = _joined([manifest.length for manifest in manifests])
    cells = _cells(payloads)
    if cells is not None:
        places = np.empty_like(cells)
        places[cells] = np.arange(len(cells))
        source, offset, length = source[places], offset[places], length[places]
    locations = [manifest.locations for manifest in manifests if len(manifest.locations)]
    inline = b"".join([manifest.inline for manifest in manifests])
    no_coords = np.empty((len(source), 0), dtype=np.int64)
    return References(no_coords, source, offset, length, tuple(packs), concat_locations(locations), inline)


def _sources(manifests: Sequence[Manifest], counts: Int64s, packs: Int64s) -> tuple[Int64s, Int64s]:
    """Return sources, in the numbering of `References`, and offsets."""

    def before(sizes: list[int]) -> Int64s:
        return np.repeat(np.cumsum([0, *sizes[:-1]], dtype=np.int64), counts)

    source = _joined([manifest.source for manifest in manifests])
    offset = _joined([manifest.offset for manifest in manifests])
    native = np.repeat(np.array([manifest.pack_count for manifest in manifests], dtype=np.int64), counts)
    first = before([manifest.pack_count for manifest in manifests])
    is_native = source < native
    if bool(is_native.all()):
        return packs[source + first], offset
    inlined = np.repeat(np.array([manifest.inline_source for manifest in manifests], dtype=np.int64), counts)
    sources = source - native + VIRTUAL + before([len(manifest.locations) for manifest in manifests])
    sources[is_native] = packs[(source + first)[is_native]]
    sources[source > inlined] = DELETED
    is_inline = source == inlined
    sources[is_inline] = INLINE
    return sources, np.where(is_inline, offset + before([len(manifest.inline) for manifest in manifests]), offset)


def _joined(columns: Sequence[npt.NDArray[np.generic]]) -> Int64s:
    return np.concatenate(columns, dtype=np.int64, casting="unsafe")


def _cells(payloads: Sequence[ChangePayload]) -> Int64s | None:
    """Return the cell of each reference; None if they are in the order of the cells."""
    if all(payload.order is None for payload in payloads):
        return None
    orders: list[Int64s] = []
    end = 0
    for payload in payloads:
        count = sum(manifest.count for manifest in payload.manifests)
        orders.append(np.arange(end, end + count) if payload.order is None else payload.order + end)
        end += count
    return np.concatenate(orders)


def sorted_cells(table: PayloadTable, numbers: Int64s) -> tuple[Int64s, Int64s, Bools]:
    """Return cells sorted by array and number, the numbers, and whether the next cell is the same chunk."""
    # Sorting is stable: of cells that are the same chunk, the later one comes last.
    if len(table.arrays) > 1:
        order = np.lexsort((numbers, table.of_cells([part.array for part in table.parts])))
    else:
        order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    again = np.zeros(len(order), dtype=bool)
    np.equal(ordered[1:], ordered[:-1], out=again[:-1])
    for span in table.spans():
        if span.stop > span.start:
            again[span.stop - 1] = False  # the next one is a chunk of another array
    return order, ordered, again


def grids(table: PayloadTable) -> list[tuple[int, ...]]:
    """Return for each array a grid that holds all its cells; raises `FormatError` if there is none."""
    by_array: dict[int, tuple[int, ...]] = {}
    for part in table.parts:
        high = by_array.setdefault(part.array, part.box.high)
        if len(high) != len(part.box.high):
            raise FormatError(PAYLOAD, f"chunks of {table.arrays[part.array][1]!r} differ in dimensions")
        by_array[part.array] = tuple(map(max, high, part.box.high))
    for array, grid in by_array.items():
        if math.prod(grid) > MAX_VOLUME:
            raise FormatError(PAYLOAD, f"chunks of {table.arrays[array][1]!r} are further apart than can be numbered")
    return [by_array.get(array, ()) for array in range(len(table.arrays))]
