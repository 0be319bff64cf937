"""The chunk grid of an array as a picture: a cell for each chunk, or for several where there are many."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._context.context import Context
from arraystore._format.box import Box
from arraystore._format.ids import id_to_text
from arraystore._format.node import Node
from arraystore._format.types import Bools, Int64s
from arraystore._format.zarr_metadata import array_info
from arraystore._history.compare import compare
from arraystore._history.plotting.chunk_picture import cell_numbers, rows_of_line
from arraystore._log.state import SnapshotState
from arraystore._repository.repository import Repository
from arraystore.errors import NotFoundError
from arraystore.ui.views.limits import MAX_CELLS
from arraystore.ui.views.manifests import NONE, Chunks, visible_chunks
from arraystore.ui.views.slicing import check_index, choose_axes
from arraystore.ui.views.snapshots import array_at, load_session, state_of

__all__ = ["ChunkMap", "Picture", "changed_chunks", "chunk_map"]

_LONGEST_ROW, _WIDE = 48, 1.8
"""Length from which a single axis is wrapped into rows, and width of these rows over their height."""

_MIXED = 4
"""Kind of a picture cell with chunks of several kinds."""

_MOST_PACKS = 500


@dataclass(frozen=True)
class Picture:
    """Places of chunks in a picture."""

    grid: tuple[int, ...]
    axes: tuple[int, int] | None
    """Axes of the grid down and across; None if the only long axis is wrapped into rows."""
    index: tuple[int, ...]
    """Coordinate along each other axis."""
    rows: int
    columns: int
    step: tuple[int, int]
    """Chunks to a picture cell, down and across; along a wrapped axis the second."""

    @property
    def long(self) -> int:
        """The wrapped axis."""
        return max(range(len(self.grid)), key=self.grid.__getitem__, default=0)

    @property
    def box(self) -> Box | None:
        """Box of the chunks in the picture; None for an array without any."""
        if not self.grid or 0 in self.grid:
            return None
        shown = {self.long} if self.axes is None else set(self.axes)
        low = [0 if axis in shown else at for axis, at in enumerate(self.index)]
        high = [size if axis in shown else self.index[axis] + 1 for axis, size in enumerate(self.grid)]
        return Box(tuple(low), tuple(high))

    def holds(self, box: Box) -> bool:
        """Tell whether all chunks of a box are in the picture."""
        return self.box is not None and self.box.encloses(box)

    def places(self, coords: Int64s, *, whole: bool = False) -> tuple[Bools | slice, Int64s]:
        """Return which of some chunks are in the picture, all of them if `whole`, and the picture cells of these."""
        box = self.box
        inside: Bools | slice = slice(None)
        if self.grid and not whole:
            inside = np.zeros(len(coords), dtype=bool) if box is None else box.inside(coords)
        axes = self.axes or ((self.long,) if self.grid else ())
        return inside, cell_numbers(coords[inside], axes, self.step, self.columns)


@dataclass(frozen=True, eq=False)
class ChunkMap:
    """Chunks of an array in one snapshot, as columns over picture cells in row-major order."""

    snapshot: str
    path: str
    picture: Picture
    dimensions: tuple[str | None, ...] | None
    kind: npt.NDArray[np.uint8]
    """0 for no chunk, 1 in packs, 2 in manifests, 3 virtual, 4 several of these."""
    count: npt.NDArray[Any]
    """Chunks of the cell, in as few bits as they take."""
    nbytes: npt.NDArray[np.float32]
    """Encoded bytes of the chunks of the cell."""
    time: npt.NDArray[np.float64]
    """Milliseconds since 1970 when the newest chunk of the cell was written, by the writer's clock; 0 for none."""
    pack: npt.NDArray[np.int32]
    """Position in `packs` of a pack of the cell; -1 for none, -2 for one that is not listed."""
    packs: tuple[str, ...]
    changed: npt.NDArray[Any] | None
    """Chunks of the cell that the commit of this snapshot wrote or deleted; None if that is unknown."""
    chunks: int
    """Chunks in the picture."""
    total: float
    """Cells of the chunk grid in the picture."""


@dataclass(eq=False)
class _Columns:
    """The columns of a map, while chunks are added."""

    picture: Picture
    kind: npt.NDArray[np.uint8] = field(init=False)
    count: npt.NDArray[np.int32] = field(init=False)
    nbytes: npt.NDArray[np.float64] = field(init=False)
    time: npt.NDArray[np.float64] = field(init=False)
    pack: npt.NDArray[np.int32] = field(init=False)
    packs: dict[bytes, int] = field(default_factory=dict[bytes, int])

    def __post_init__(self) -> None:
        size = self.picture.rows * self.picture.columns
        self.kind = np.full(size, NONE, dtype=np.uint8)
        self.count = np.zeros(size, dtype=np.int32)
        self.nbytes = np.zeros(size)
        self.time = np.zeros(size)
        self.pack = np.full(size, -1, dtype=np.int32)

    def add(self, chunks: Chunks) -> None:
        """Add chunks, each of which is added once."""
        inside, cells = self.picture.places(chunks.coords, whole=self.picture.holds(chunks.layer.box))
        number = chunks.number[inside]
        self.count += np.bincount(cells, minlength=len(self.count)).astype(np.int32)
        self.nbytes += np.bincount(cells, chunks.length[inside], minlength=len(self.count))
        self._add_kinds(cells, chunks.kinds[number])
        self._add_times(cells, chunks.times[number])
        if chunks.packs:
            numbers = np.array([*map(self._number, chunks.packs)], dtype=np.int32)
            packed = number < len(numbers)
            self.pack[cells[packed]] = numbers[number[packed]]

    def _add_times(self, cells: Int64s, times: Int64s) -> None:
        order = slice(None) if (times[1:] >= times[:-1]).all() else np.argsort(times, kind="stable")
        newest = np.zeros_like(self.time)
        newest[cells[order]] = times[order]  # of several chunks in a cell the last one stays
        np.maximum(self.time, newest, out=self.time)

    def _add_kinds(self, cells: Int64s, kinds: npt.NDArray[np.uint8]) -> None:
        for each in np.flatnonzero(np.bincount(kinds)):
            there = cells[kinds == each]
            self.kind[there] = np.where((self.kind[there] == NONE) | (self.kind[there] == each), each, _MIXED)

    def _number(self, pack: bytes) -> int:
        if pack not in self.packs and len(self.packs) >= _MOST_PACKS:
            return -2
        return self.packs.setdefault(pack, len(self.packs))


async def chunk_map(
    repository: Repository, at: str, path: str, axes: Sequence[int] | None = None, index: Sequence[int] | None = None
) -> ChunkMap:
    """Return the chunk map of an array along two axes (by default the longest), at an index along the others."""
    session = await load_session(repository, at)
    found = array_at(session, path)
    picture = make_picture(array_info(found.documents).grid, axes, index)
    columns, changed = await asyncio.gather(
        _fill(repository.context, found, picture), _changed_in_commit(repository, state_of(session), found, picture)
    )
    from arraystore.ui.views.hierarchy import dimension_names

    box = picture.box
    return ChunkMap(
        session.snapshot_id,
        found.path,
        picture,
        dimension_names(found),
        columns.kind,
        few_bits(columns.count),
        columns.nbytes.astype(np.float32),
        columns.time,
        columns.pack,
        tuple(map(id_to_text, columns.packs)),
        None if changed is None else few_bits(changed),
        int(columns.count.sum()),
        float(0 if box is None and picture.grid else 1 if box is None else box.volume),
    )


def make_picture(grid: tuple[int, ...], axes: Sequence[int] | None, index: Sequence[int] | None) -> Picture:
    """Choose the places of the chunks of a grid."""
    at = check_index(index, grid)
    long = [axis for axis, size in enumerate(grid) if size > 1]
    if axes is None and len(long) < 2:
        rows, columns, step = rows_of_line(max(grid, default=1), MAX_CELLS, _LONGEST_ROW, _WIDE)
        return Picture(grid, None, at, rows, columns, (1, step))
    down, across = choose_axes(grid, axes)
    most = math.isqrt(MAX_CELLS)
    steps = tuple([max(1, -(-grid[axis] // most)) for axis in (down, across)])
    rows, columns = (-(-grid[axis] // step) for axis, step in zip((down, across), steps, strict=True))
    return Picture(grid, (down, across), at, rows, columns, (steps[0], steps[1]))


def few_bits(counts: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
    """Return counts as the narrowest integers that hold them."""
    most = int(counts.max(initial=0))
    return counts.astype(np.uint8 if most < 1 << 8 else np.uint16 if most < 1 << 16 else np.int32)


async def _fill(context: Context, found: Node, picture: Picture) -> _Columns:
    columns = _Columns(picture)
    if picture.box is not None or not picture.grid:
        async for chunks in visible_chunks(context.manifests, found.layers, picture.box):
            columns.add(chunks)
    return columns


async def _changed_in_commit(
    repository: Repository, state: SnapshotState, found: Node, picture: Picture
) -> npt.NDArray[np.int32] | None:
    if state.parent is None:
        return None
    try:
        before = state_of(await load_session(repository, id_to_text(state.parent)))
    except NotFoundError:  # it has expired
        return None
    return count_in(picture, await changed_chunks(repository.context, before, state, found))


def count_in(picture: Picture, coords: Int64s) -> npt.NDArray[np.int32]:
    """Count chunks by picture cell."""
    _, cells = picture.places(coords)
    return np.bincount(cells, minlength=picture.rows * picture.columns).astype(np.int32)


async def changed_chunks(context: Context, before: SnapshotState, after: SnapshotState, found: Node) -> Int64s:
    """Return the chunks of one array of `after` that differ in two snapshots, shape (n, d)."""
    comparison = await compare(
        _only(before, found), _only(after, found), context.manifests, context.log, whole=(before, after)
    )
    for _, coords in comparison.chunks:
        return coords
    return np.empty((0, len(array_info(found.documents).grid)), dtype=np.int64)


def _only(state: SnapshotState, found: Node) -> SnapshotState:
    """Return a snapshot with one node, by its id."""
    there: Any = state.by_id(found.id)
    nodes = {} if there is None else {there.key: there}
    return replace(state, nodes=nodes, keys={node.id: key for key, node in nodes.items()})
