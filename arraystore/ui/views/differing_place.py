"""Place where values of an array differ, so that what is shown first of two snapshots is no part where they agree."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.node import Node
from arraystore._format.zarr_metadata import array_info
from arraystore._session.session import Session
from arraystore.errors import ArrayStoreError
from arraystore.ui.views.bounded_reading import read_bounded
from arraystore.ui.views.hierarchy import chunk_shape, document_of
from arraystore.ui.views.preview import readable_layout

__all__ = ["differing_place"]

_MOST = 4 << 20
"""Bytes of a chunk that is looked through."""

_Side = tuple[Session, Node | None]


async def differing_place(first: _Side, second: _Side, coords: npt.NDArray[np.int64]) -> tuple[int, ...]:
    """Return the last item that differs of the last of some chunks; its last item where that takes too much to tell."""
    shown = second[1] or first[1]
    assert shown is not None
    chunk = chunk_shape(document_of(shown))
    if chunk is None or not len(coords):
        return ()
    shape = array_info(shown.documents).shape
    starts = [at * side for at, side in zip(coords[-1].tolist(), chunk, strict=True)]
    box = [slice(start, min(start + side, size)) for start, side, size in zip(starts, chunk, shape, strict=True)]
    try:
        offset = await _last_difference(first, second, box)
    except ArrayStoreError:  # the view of the values tells what is wrong
        offset = None
    ends = tuple([max(0, part.stop - 1) for part in box])
    return ends if offset is None else tuple(map(sum, zip(starts, offset, strict=True)))


async def _last_difference(first: _Side, second: _Side, box: list[slice]) -> list[int] | None:
    """Return the place within a box; None where only one side has all of it, or it is too large."""
    (ours, was), (theirs, now) = first, second
    if was is None or now is None or not box:
        return None
    if any(part.stop > size for part, size in zip(box, array_info(was.documents).shape, strict=False)):
        return None
    layouts = readable_layout(ours, was), readable_layout(theirs, now)
    nbytes = math.prod(part.stop - part.start for part in box) * max(layout.dtype.itemsize for layout in layouts)
    if len(layouts[0].shape) != len(box) or nbytes > _MOST:
        return None
    return _last_of(*await asyncio.gather(read_bounded(ours, was, box), read_bounded(theirs, now, box)))


def _last_of(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> list[int] | None:
    if before.dtype != after.dtype:
        return None
    differs = np.asarray(before != after)
    if before.dtype.kind in "fc":
        differs &= ~(np.isnan(before) & np.isnan(after))
    places = np.argwhere(differs)
    return places[-1].tolist() if len(places) else None
