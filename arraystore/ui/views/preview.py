"""A look at the values of an array: a plane, a line or a table, thinned out to what a page shows."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.node import Node
from arraystore._repository.repository import Repository
from arraystore._session.regions.access import open_array
from arraystore._session.regions.layout import ArrayLayout, layout_of
from arraystore._session.session import Session
from arraystore.errors import ArrayStoreError
from arraystore.ui.views.bounded_reading import read_bounded
from arraystore.ui.views.chunk_sides import largest_chunk
from arraystore.ui.views.coordinates import Axis, axis_of, load_coordinate, text_of
from arraystore.ui.views.hierarchy import attributes_of, dimension_names, document_of, inner_chunk_shape
from arraystore.ui.views.item_texts import digits_of, table_of, texts_of
from arraystore.ui.views.limits import (
    MAX_CHUNK_BYTES,
    MAX_CHUNKS_READ,
    MAX_REGION_BYTES,
    MAX_SIDE,
    MAX_TABLE,
    TooLargeError,
    UnreadableMetadataError,
)
from arraystore.ui.views.packing import PACKING, for_page, is_packed, packing_of, unpacked
from arraystore.ui.views.slicing import check_index, choose_axes
from arraystore.ui.views.snapshots import array_at, load_session

__all__ = ["Plane", "Preview", "Summary", "preview", "read_plane", "readable_layout", "summary_of"]

_LINE = 2_000
"""Points of a line."""


@dataclass(frozen=True)
class Summary:
    """Values that are drawn, in numbers."""

    minimum: float | None
    maximum: float | None
    mean: float | None
    missing: int
    """Items without a value: NaN, or a fill value of CF."""
    infinite: int
    count: int


@dataclass(frozen=True, eq=False)
class Plane:
    """Values of a part of an array, and where they are."""

    kind: str
    """``image``, ``line``, ``scalar`` or ``table``."""
    values: npt.NDArray[Any]
    """Numbers in 64 bits, NaN where there is none; or text."""
    stored: npt.NDArray[Any]
    """The same items as they are in the array."""
    whole: npt.NDArray[Any]
    """All items of the part as they are in the array, its axes in the order of the dimensions."""
    packing: Mapping[str, Any]
    """What the attributes say about numbers that mean others than are stored."""
    axes: tuple[Axis, ...]
    """The axes of `values`."""
    others: tuple[Axis, ...]
    """The other dimensions, each with the one index that is shown."""
    clipped: bool
    """Whether only a window of the axes is shown, since the whole would take too many bytes."""

    @property
    def integers(self) -> npt.NDArray[Any] | None:
        """The items where they are integers of 64 bits, not all of which `values` tells apart; None elsewhere."""
        wide = self.stored.dtype.kind in "iu" and self.stored.dtype.itemsize > 4
        return self.stored if wide and not is_packed(self.packing) else None


@dataclass(frozen=True, eq=False)
class Preview:
    """A look at an array."""

    snapshot: str
    path: str
    kind: str
    values: npt.NDArray[np.floating[Any]] | None
    """Numbers for an image or a line; None for a table."""
    table: tuple[tuple[str, ...], ...] | None
    """Text of items, at most 2,000."""
    axes: tuple[Axis, ...]
    others: tuple[Axis, ...]
    clipped: bool
    summary: Summary | None
    title: str | None
    units: str | None


@dataclass(frozen=True)
class _Window:
    """Part of one axis: start, stop and step."""

    start: int
    stop: int
    step: int

    @property
    def triple(self) -> tuple[int, int, int]:
        return self.start, self.stop, self.step


async def preview(
    repository: Repository,
    at: str,
    path: str,
    axes: Sequence[int] | None = None,
    index: Sequence[int] | None = None,
) -> Preview:
    """Return a look at an array, along two axes (by default the last two), of a window that begins at an index.

    Raises `TooLargeError` if a single chunk is larger than a page may read.
    """
    session = await load_session(repository, at)
    found = array_at(session, path)
    plane = await read_plane(session, found, axes, index)
    attributes = attributes_of(found)
    numeric = plane.values.dtype.kind == "f"
    return Preview(
        session.snapshot_id,
        found.path,
        plane.kind,
        for_page(plane.values) if numeric else None,
        table_of(plane.values if plane.integers is None else plane.integers, digits_of(plane.stored.dtype)),
        plane.axes,
        plane.others,
        plane.clipped,
        summary_of(plane.values) if numeric else None,
        text_of(attributes, "long_name", "standard_name"),
        text_of(attributes, "units"),
    )


async def read_plane(
    session: Session,
    found: Node,
    axes: Sequence[int] | None,
    index: Sequence[int] | None,
    among: Sequence[int] | None = None,
) -> Plane:
    """Read a part of an array that is small enough; it is thinned out as one of the shape `among` is."""
    layout = readable_layout(session, found)
    sizes, dtype = layout.shape, layout.dtype
    at = check_index(index, sizes)
    shown = () if not sizes else choose_axes(sizes, axes) if len(sizes) > 1 else (0,)
    numeric = dtype.kind in "biuf"
    document = document_of(found)
    chunk = inner_chunk_shape(document) or largest_chunk(document, sizes) or sizes
    windows, clipped = _windows(found, sizes, chunk, at, shown, dtype.itemsize, among or sizes, numeric=numeric)
    names = dimension_names(found) or (None,) * len(sizes)
    labels = [load_coordinate(session, found, name, size) for name, size in zip(names, sizes, strict=False)]
    whole, coordinates = await asyncio.gather(
        _read_windows(session, found, layout.dtype, sizes, at, windows), asyncio.gather(*labels)
    )
    steps: list[Any] = [slice(None, None, windows[axis].step) for axis in sorted(windows)]
    values = np.asarray(whole[(*steps, ...)])  # with the ellipsis an array, also of no dimension
    if len(shown) == 2 and shown[0] > shown[1]:
        values = values.T
    packing = {name: value for name, value in packing_of(found).items() if name in PACKING}
    described = [
        axis_of(name, axis, sizes[axis], windows[axis].triple if axis in windows else (at[axis], at[axis] + 1, 1), each)
        for axis, (name, each) in enumerate(zip(names, coordinates, strict=False))
    ]
    return Plane(
        _kind(len(shown), numeric=numeric),
        unpacked(values, packing) if numeric else texts_of(values),
        values,
        whole,
        packing,
        tuple([described[axis] for axis in shown]),
        tuple([each for axis, each in enumerate(described) if axis not in windows]),
        clipped,
    )


def readable_layout(session: Session, found: Node) -> ArrayLayout:
    """Return the layout of an array; raises `UnreadableMetadataError` where zarr refuses its metadata."""
    try:
        return layout_of(open_array(session, found.path))
    except ArrayStoreError:
        raise
    except Exception as error:  # zarr raises errors of many kinds for what anybody may have written
        raise UnreadableMetadataError(
            f"zarr cannot read the metadata of array '/{found.path}': {type(error).__name__}: {error}"
        ) from error


async def _read_windows(
    session: Session,
    found: Node,
    dtype: np.dtype[Any],
    sizes: Sequence[int],
    at: Sequence[int],
    windows: Mapping[int, _Window],
) -> npt.NDArray[Any]:
    """Read the windows of the axes that are shown; nothing of an array without items, which has no index to read at."""
    if 0 in sizes:
        return np.empty((0,) * len(windows), dtype=dtype)
    selection = [
        slice(windows[axis].start, windows[axis].stop) if axis in windows else at[axis] for axis in range(len(sizes))
    ]
    return await read_bounded(session, found, tuple(selection))


def _kind(dimensions: int, *, numeric: bool) -> str:
    return "table" if not numeric else ("scalar", "line", "image")[dimensions]


def _windows(
    found: Node,
    sizes: Sequence[int],
    chunk: Sequence[int],
    at: Sequence[int],
    shown: Sequence[int],
    itemsize: int,
    among: Sequence[int],
    *,
    numeric: bool,
) -> tuple[dict[int, _Window], bool]:
    """Choose the part of each axis that is read: all of it, unless that is too much."""
    if any(size <= 0 for size in chunk) and 0 not in sizes:
        raise TooLargeError(f"array '/{found.path}' has chunks of shape {tuple(chunk)}, which hold nothing")
    chunk_bytes = math.prod(chunk) * max(itemsize, 1)
    if chunk_bytes > MAX_CHUNK_BYTES:
        raise TooLargeError(
            f"a chunk of array '/{found.path}' has {chunk_bytes:,} bytes, and a page decodes at most "
            f"{MAX_CHUNK_BYTES:,} at once: read it with a session"
        )
    most = min(MAX_CHUNKS_READ, MAX_CHUNK_BYTES // max(chunk_bytes, 1))
    lengths = {axis: sizes[axis] for axis in shown}
    if not numeric:
        side = MAX_TABLE if len(shown) == 1 else math.isqrt(MAX_TABLE)
        lengths = {axis: min(length, side) for axis, length in lengths.items()}
    while lengths and _too_much(lengths, chunk, most, itemsize):
        longest = max(lengths, key=lambda axis: lengths[axis] / chunk[axis])
        if lengths[longest] <= 1:
            break
        halved = lengths[longest] // 2
        lengths[longest] = max(1, halved // chunk[longest] * chunk[longest] or halved)
    windows = {
        axis: _window(at[axis], length, sizes[axis], len(shown), among[axis]) for axis, length in lengths.items()
    }
    return windows, any(length < sizes[axis] for axis, length in lengths.items())


def _too_much(lengths: Mapping[int, int], chunk: Sequence[int], most: int, itemsize: int) -> bool:
    # a window may begin within a chunk
    chunks = math.prod([length // chunk[axis] + 2 if chunk[axis] else 0 for axis, length in lengths.items()])
    return (chunks > most and chunks > 4) or math.prod(lengths.values()) * itemsize > MAX_REGION_BYTES


def _window(start: int, length: int, size: int, dimensions: int, among: int) -> _Window:
    whole = length == size
    start = 0 if whole else max(0, min(start, size - length))
    step = max(1, -(-(among if whole else length) // (MAX_SIDE if dimensions > 1 else _LINE)))
    return _Window(start, start + length, step)


def summary_of(values: npt.NDArray[Any]) -> Summary:
    """Return minimum, maximum and mean of the finite items."""
    finite, missing = values[np.isfinite(values)], int(np.isnan(values).sum())
    infinite = int(values.size - finite.size - missing)
    if not finite.size:
        return Summary(None, None, None, missing, infinite, int(values.size))
    mean = float((finite / finite.size).sum())  # a sum of all may be more than there are numbers
    return Summary(float(finite.min()), float(finite.max()), mean, missing, infinite, int(values.size))
