"""Writing virtual references: chunks that are bytes of objects elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from arraystore.errors import InvalidInputError
from arraystore.format.locations import locations_from_urls
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
    coords: Int64s,
    urls: Sequence[str],
    offsets: Int64s,
    lengths: Int64s,
    validate: bool,
) -> list[tuple[int, ...]] | None:
    """Write references in columns; returns the chunks left out because no container holds their URL."""
    grid = array_info(node.documents).grid
    if len(offsets) != len(urls) or len(lengths) != len(urls) or coords.shape != (len(urls), len(grid)):
        raise InvalidInputError("locations, offsets, lengths and chunks differ in number")
    if len(urls) == 0:
        return None
    if bool((offsets < 0).any() or (lengths < 0).any()):
        raise InvalidInputError("an offset or a length is negative")
    if bool(((coords < 0) | (coords >= np.array(grid, dtype=np.int64))).any()):
        raise InvalidInputError(f"a chunk is outside of the grid {grid} of array {node.path!r}")
    unique: dict[str, int] = {}
    numbers = np.fromiter((unique.setdefault(url, len(unique)) for url in urls), np.int64, len(urls))
    known = list(unique)
    usable = np.array([bool(url) and _is_url(url) for url in known])
    absent = np.array([not url for url in known])
    containers = session.context.containers
    if validate:
        usable &= np.array([containers.allows(url) for url in known])
    keep = usable[numbers]
    changes = session.hierarchy.writable()
    if bool(keep.any()):
        table = locations_from_urls(known)
        with changes.lock:
            changes.check_open()
            first = changes.put_locations(table)
            changes.array(node).table.put_many(coords[keep], numbers[keep] + first, offsets[keep], lengths[keep])
            session.hierarchy.forget()
    refused = ~keep & ~absent[numbers]
    return [tuple(row) for row in coords[refused].tolist()] if bool(refused.any()) else None


def _is_url(url: str) -> bool:
    scheme, separator, rest = url.partition("://")
    return bool(separator and rest and scheme.isascii() and scheme.replace("+", "").isalnum())
