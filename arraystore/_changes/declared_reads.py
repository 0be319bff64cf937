"""Declared reads: the dependencies of a change as its writer names them, in place of what was noted."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from operator import index
from types import EllipsisType
from typing import Any

import numpy as np

from arraystore._changes.change_set import file_key
from arraystore._changes.read_set import ReadSet
from arraystore._chunks.cells import Cells
from arraystore._format.box import MAX_VOLUME, Box
from arraystore._format.node import Node, NodeKind, check_path
from arraystore._format.types import Int64s
from arraystore._format.zarr_changes import dimension_of
from arraystore._format.zarr_metadata import array_info
from arraystore._log.state import SnapshotState
from arraystore.errors import FormatError, InvalidInputError

_MOST_LISTED = 1 << 16
"""A selection with gaps counts as one without where it touches more chunks than this."""


def declared_reads(state: SnapshotState, reads: Mapping[str, Any]) -> ReadSet:
    """Return a read set for reads of a snapshot that a user declares, by path; raises `InvalidInputError`.

    A value is None for the metadata of a node, or for its absence; ``...`` for all of an array, or for everything at
    and below a group; or a selection of items of an array, made of integers, slices and ``...`` as numpy takes them.
    """
    if not isinstance(reads, Mapping):
        raise InvalidInputError(
            "reads must be a mapping of paths to regions, such as {'/balance': np.s_[3:7]}, "
            f"not {type(reads).__name__}"
        )
    read_set = ReadSet()
    for path, region in reads.items():
        _declare(read_set, state, _checked_path(path), region)
    return read_set


def _checked_path(path: Any) -> str:
    if not isinstance(path, str):
        raise InvalidInputError(f"a path in reads must be a string, not {type(path).__name__}")
    try:
        return check_path("reads", path.strip("/"), NodeKind.GROUP)
    except FormatError as error:
        raise InvalidInputError(f"path {path[:80]!r} in reads: {error.reason}") from None


def _declare(read_set: ReadSet, state: SnapshotState, path: str, region: Any) -> None:
    node, file = state.nodes.get(path), state.nodes.get(file_key(path))
    read_set.node(path)
    if path and (node is None or file is not None):
        read_set.node(file_key(path))
    if region is None:
        return
    if file is not None:
        read_set.array(file.id)
    if region is ...:
        if node is not None and node.kind == NodeKind.ARRAY:
            read_set.array(node.id)
        else:
            read_set.tree(path)
        return
    if node is None or node.kind != NodeKind.ARRAY:
        what = "nothing" if node is None else "a group"
        raise InvalidInputError(
            f"reads of {'/' + path!r}: a selection {region!r} must be of an array, but there is {what} in the snapshot "
            "that the session is based on; give None for its metadata, or ... for everything at and below it"
        )
    for cells in _touched(node, region):
        read_set.cells(node.id, cells)


def _touched(node: Node, region: Any) -> list[Cells]:
    """Return the chunks that a selection touches: none, or one set."""
    info = array_info(node.documents)
    items = _expanded(node.path, region, len(info.shape))
    axes: list[Int64s | range] = []
    for axis, (item, length, count) in enumerate(zip(items, info.shape, info.grid, strict=True)):
        selected = _selected(node.path, item, axis, length)
        if not selected:
            return []
        side = dimension_of(node.documents, axis).chunk
        # chunks that differ in length are not told apart
        axes.append(range(count) if side is None else _chunks(selected, side))
    listed = all(len(axis) <= _MOST_LISTED for axis in axes) and _product(axes) <= _MOST_LISTED
    if listed and not all(isinstance(axis, range) for axis in axes):
        return [Cells.of(np.array(list(product(*[map(int, axis) for axis in axes])), dtype=np.int64))]
    box = Box(tuple([int(axis[0]) for axis in axes]), tuple([int(axis[-1]) + 1 for axis in axes]))
    if box.volume > MAX_VOLUME:
        raise InvalidInputError(
            f"reads of {'/' + node.path!r}: {region!r} touches more chunks than can be numbered; declare ... instead"
        )
    return [Cells(box, None)]


def _product(axes: list[Int64s | range]) -> int:
    total = 1
    for axis in axes:
        total *= len(axis)
    return total


def _expanded(path: str, region: Any, dimensions: int) -> list[Any]:
    """Return one item a dimension, as numpy reads a selection."""
    items = list(region) if isinstance(region, tuple) else [region]
    gaps = [at for at, item in enumerate(items) if item is ...]
    if len(gaps) > 1 or len(items) - len(gaps) > dimensions:
        raise InvalidInputError(
            f"reads of {'/' + path!r}: {region!r} must have at most {dimensions} items, and one ... among them"
        )
    at = gaps[0] if gaps else len(items)
    rest = items[at + 1 :]
    return [*items[:at], *[slice(None)] * (dimensions - at - len(rest)), *rest]


def _selected(path: str, item: Any, axis: int, length: int) -> range:
    """Return the indices that one item selects, ascending."""
    try:
        if isinstance(item, slice):
            chosen = range(*item.indices(length))
            return chosen if chosen.step > 0 else chosen[::-1]
        if isinstance(item, bool | np.bool_ | EllipsisType):
            raise TypeError("it is not an integer")
        number = index(item)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"reads of {'/' + path!r}: {item!r} selects nothing along dimension {axis} ({error}); "
            "a selection is made of integers and slices"
        ) from None
    if not -length <= number < length:
        raise InvalidInputError(
            f"reads of {'/' + path!r}: index {number} is out of bounds: along dimension {axis} it must be >= {-length} "
            f"and < {length}"
        )
    return range(number % length, number % length + 1)


def _chunks(selected: range, side: int) -> Int64s | range:
    """Return the chunks along one axis that hold selected items; a range where they follow each other."""
    first, last = selected[0] // side, selected[-1] // side
    if selected.step <= side or len(selected) > _MOST_LISTED or len(selected) == 1:
        return range(first, last + 1)
    return np.unique(np.array(selected, dtype=np.int64) // side)
