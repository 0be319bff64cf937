"""Writing virtual references: chunks that are bytes of objects elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from arraystore.errors import InvalidInputError
from arraystore.format.box import Box, bounding_box
from arraystore.format.locations import common_directory, locations_from_urls
from arraystore.format.node import Node
from arraystore.format.zarr_metadata import array_info

if TYPE_CHECKING:
    from arraystore.session import Session

__all__ = ["VirtualChunkSpec", "write_virtual_references"]

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class VirtualChunkSpec:
    """A chunk that is bytes of an object elsewhere.

    Parameters
    ----------
    index
        Grid coordinates of the chunk.
    location
        URL of the object.
    offset, length
        Bytes of it.
    """

    index: tuple[int, ...]
    location: str
    offset: int
    length: int


def write_virtual_references(
    session: Session,
    node: Node,
    cells: Int64s | Box,
    urls: Sequence[str],
    offsets: npt.NDArray[Any],
    lengths: npt.NDArray[Any],
    validate: bool,
) -> list[tuple[int, ...]] | None:
    """Write references in columns.

    Parameters
    ----------
    session, node
        Where to.
    cells
        Coordinates of the chunks, shape (n, d), or a box of them, in row-major order.
    urls, offsets, lengths
        Of each chunk; an empty URL leaves it as it is.
    validate
        Whether URLs must be in a container opened to the repository.

    Returns
    -------
    list of tuple, or None
        Chunks left out because their URL is none, or in no container.
    """
    grid = array_info(node.documents).grid
    _check_columns(node, grid, cells, urls, offsets, lengths)
    if len(urls) == 0:
        return None
    known, source = _numbered(urls)
    allowed = session.context.containers.allows if validate else _is_url
    shared = common_directory(known)
    try:
        locations = locations_from_urls(known, prefix=shared)
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"the URL {error.object[:80]!r} is not valid Unicode") from None
    usable = None if shared and _is_url(shared) and allowed(shared) else _usable(known, allowed)
    changes = session.hierarchy.writable()
    with changes.lock:
        changes.check_open()
        if changes.epoch:  # there are forks, whose writes may overlap with these
            coords = cells.coords(np.arange(len(urls))) if isinstance(cells, Box) else cells
            changes.touch_many(node, coords if usable is None else coords[usable[source]])
        table = changes.array(node).table
        numbers = table.box_numbers(cells) if isinstance(cells, Box) else table.numbers(cells)
        values = np.empty((len(urls), 3), dtype=np.int64)
        np.add(source, changes.put_locations(locations), out=values[:, 0])
        values[:, 1] = offsets
        values[:, 2] = lengths
        if usable is None:
            table.put_numbered(numbers, values)
        else:
            keep = usable[source]
            table.put_numbered(numbers[keep], values[keep])
        session.hierarchy.forget()
    if usable is None:
        return None
    refused = np.flatnonzero(~usable[source])
    coords = cells.coords(refused) if isinstance(cells, Box) else cells[refused]
    absent = [not urls[i] for i in refused.tolist()]
    left_out = [tuple(row) for row, empty in zip(coords.tolist(), absent, strict=True) if not empty]
    return left_out or None


def _check_columns(
    node: Node,
    grid: tuple[int, ...],
    cells: Int64s | Box,
    urls: Sequence[str],
    offsets: npt.NDArray[Any],
    lengths: npt.NDArray[Any],
) -> None:
    count = cells.volume if isinstance(cells, Box) else len(cells)
    ndim = len(cells.low) if isinstance(cells, Box) else cells.shape[1]
    if not len(urls) == len(offsets) == len(lengths) == count or ndim != len(grid):
        raise InvalidInputError("locations, offsets, lengths and chunks differ in number")
    if not count:
        return
    if offsets.dtype.kind not in "iu" or lengths.dtype.kind not in "iu":
        raise InvalidInputError("offsets and lengths are whole numbers")
    largest = (1 << 62) - 1
    if min(offsets.min(), lengths.min()) < 0 or max(offsets.max(), lengths.max()) > largest:
        raise InvalidInputError(f"an offset or a length is negative or larger than {largest}")
    box = cells if isinstance(cells, Box) else bounding_box(cells)
    if any(low < 0 or high > side for low, high, side in zip(box.low, box.high, grid, strict=True)):
        raise InvalidInputError(f"a chunk is outside of the grid {grid} of array {node.path!r}")


_SAMPLE = 4096


def _numbered(urls: Sequence[str]) -> tuple[Sequence[str], Int64s]:
    """Return distinct URLs and, per chunk, the number of its own; all of them where hardly any comes twice."""
    sample = urls[:_SAMPLE]
    if len(urls) > _SAMPLE and 2 * len(set(sample)) > len(sample):
        return urls, np.arange(len(urls), dtype=np.int64)
    unique: dict[str, int] = {}
    numbers = np.fromiter((unique.setdefault(url, len(unique)) for url in urls), np.int64, len(urls))
    return list(unique), numbers


def _usable(urls: Sequence[str], allowed: Callable[[str], bool]) -> npt.NDArray[np.bool_] | None:
    """Tell which URLs may be referred to; None for all of them."""
    usable = np.fromiter((_is_url(url) and allowed(url) for url in urls), np.bool_, len(urls))
    return None if bool(usable.all()) else usable


def _is_url(url: str) -> bool:
    scheme, separator, rest = url.partition("://")
    return bool(separator and rest and scheme.isascii() and scheme.replace("+", "").isalnum())
