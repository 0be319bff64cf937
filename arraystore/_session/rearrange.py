"""Shifts and reindexing of chunks within the grid of their array, by references only."""

from __future__ import annotations

import enum
import operator
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from arraystore._changes.change_set import ChangeSet
from arraystore._commit.rebase_changes import put_references
from arraystore._format.box import Box
from arraystore._format.node import Node, NodeKind
from arraystore._format.references import DELETED, VIRTUAL, References
from arraystore._format.types import Bools, Int64s
from arraystore._format.zarr_changes import dimension_of
from arraystore._format.zarr_metadata import array_info
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.keys import node_path
from arraystore.errors import InvalidInputError, NodeNotFoundError, SessionStateError

ChunkFunction = Callable[[Any], Any]
"""A function from the grid coordinates of a chunk, or of many, to new ones."""
Keep = Callable[[Node], Awaitable[None]]

_PLACE, _STAYS, _GOES = 0, 1, 2
"""Kinds of answers of a function: a place, None and `DELETE`."""

_SHOWN = 3
_LARGEST = (1 << 63) - 1


class Deletion(enum.IntEnum):
    """The type of `DELETE`; an integer, so that it can be in an array of coordinates."""

    DELETE = -(1 << 63)


DELETE = Deletion.DELETE
"""The answer of a function of `Session.reindex_array` for a chunk to delete."""


async def rearrange(hierarchy: Hierarchy, places: Places, plan: Plan, keep: Keep, *, vacate: bool = True) -> None:
    """Carry out a plan, calling `keep` first if chunks in packs of others get another reference.

    Without `vacate`, cells that chunks leave, and that none comes to, keep them.
    """
    moved = plan.keep & (plan.targets != places.coords).any(axis=1)
    if not bool((moved | ~plan.keep).any()):
        return
    _check_distinct(places, plan)
    if places.refers_to_packs(moved):
        await keep(places.node)
    _apply(hierarchy, places, plan, moved, vacate=vacate)


# -- chunks ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Places:
    """The chunks of an array: first those that the session wrote, then the others."""

    node: Node
    grid: tuple[int, ...]
    """The chunk grid of the array."""
    written: tuple[Int64s, Int64s]
    """Coordinates and values of the session's own table, deletions included."""
    alive: Bools
    """True if each row of `written` is a chunk, not a deletion."""
    base: References | None
    """References of the chunks that the session did not write."""
    coords: Int64s
    """Coordinates of all chunks."""

    @property
    def own(self) -> int:
        """Count of chunks that the session wrote."""
        return int(self.alive.sum())

    def refers_to_packs(self, rows: Bools) -> bool:
        """Tell whether some of the chunks are in packs of others."""
        if self.base is None:
            return False
        source = self.base.source[rows[self.own :]]
        return bool(((source >= 0) & (source < VIRTUAL)).any())


@dataclass(frozen=True, eq=False)
class Plan:
    """The target of each chunk of an array, and whether it is kept."""

    targets: Int64s
    keep: Bools


async def load_places(hierarchy: Hierarchy, array_path: str) -> Places:
    """Load the chunks of an array; raises `InvalidInputError` if they differ in shape."""
    changes = hierarchy.writable()
    node = hierarchy.node(node_path(array_path))
    if node is None or node.kind != NodeKind.ARRAY:
        raise NodeNotFoundError(f"there is no array {array_path!r}")
    info = array_info(node.documents)
    grid = info.grid
    if 0 not in grid and any(dimension_of(node.documents, axis).chunk is None for axis in range(len(grid))):
        raise InvalidInputError(
            f"the grid of array {array_path!r} is rectilinear: its chunks differ in shape, so that one cannot take the "
            "place of another; only arrays with a regular chunk grid can be shifted or reindexed"
        )
    if (reads := hierarchy.noted) is not None and node.id in hierarchy.beneath.keys:
        reads.array(node.id)
    below = await hierarchy.reader.present(node.layers)
    with changes.lock:
        written, visible = _written(changes, node), _visible(changes, node)
    alive = written[1][:, 0] != DELETED
    base = None if below is None else _left(below, written[0], visible, grid)
    coords = written[0][alive]
    if base is not None:
        coords = np.concatenate([coords, base.coords])
    return Places(node, grid, written, alive, base, coords)


def _written(changes: ChangeSet, node: Node) -> tuple[Int64s, Int64s]:
    array = changes.arrays.get(node.id)
    if array is None:
        return np.empty((0, len(array_info(node.documents).grid)), dtype=np.int64), np.empty((0, 3), dtype=np.int64)
    return array.table.columns()


def _visible(changes: ChangeSet, node: Node) -> tuple[int, ...] | None:
    array = changes.arrays.get(node.id)
    return None if array is None else array.visible


def _left(below: References, written: Int64s, visible: tuple[int, ...] | None, grid: tuple[int, ...]) -> References:
    """Return the references beneath a session that it has not overwritten or cut off."""
    bound = np.array(grid if visible is None else tuple(map(min, grid, visible)), dtype=np.int64)
    visible_references = below.take((below.coords < bound).all(axis=1))
    box = _whole(grid)
    inside = written[(written < np.array(grid, dtype=np.int64)).all(axis=1)]
    return visible_references.take(~np.isin(box.numbers(visible_references.coords), box.numbers(inside)))


def _whole(grid: tuple[int, ...]) -> Box:
    return Box((0,) * len(grid), grid)


# -- plans -------------------------------------------------------------------------------------------------------


def _offset(chunk_offset: Iterable[int], grid: tuple[int, ...], path: str) -> tuple[int, ...]:
    """Return an offset, clipped to the extent of the grid."""
    try:
        move = tuple([operator.index(step) for step in chunk_offset])
    except TypeError:
        raise InvalidInputError(
            f"{chunk_offset!r} is not a valid offset: it must have an integer for each dimension"
        ) from None
    if len(move) != len(grid):
        raise InvalidInputError(f"an offset for array {path!r} must have {len(grid)} dimensions, not {len(move)}")
    return tuple([max(-side, min(side, step)) for step, side in zip(move, grid, strict=True)])


def plan_shift(places: Places, chunk_offset: Iterable[int]) -> Plan:
    """Plan to move all chunks by a vector; see `Session.shift_array`."""
    move = _offset(chunk_offset, places.grid, places.node.path)
    targets = places.coords + np.array(move, dtype=np.int64)
    return Plan(targets, _inside(targets, places.grid))


def plan_reindex(places: Places, forward: ChunkFunction, backward: ChunkFunction | None, vectorized: bool) -> Plan:
    """Plan to move each chunk to the result of a function; see `Session.reindex_array`."""
    targets, answer = _mapped(forward, places.coords, vectorized)
    targets = np.where((answer == _STAYS)[:, None], places.coords, targets)
    keep = answer != _GOES
    _check_inside(places, targets, keep)
    if backward is not None:
        back, answer = _mapped(backward, targets[keep], vectorized)
        wrong = np.flatnonzero((answer != _PLACE) | (back != places.coords[keep]).any(axis=1))
        if len(wrong):
            at = wrong[0]
            start, end = places.coords[keep][at], targets[keep][at]
            shown = _shown(back[at]) if answer[at] == _PLACE else "None" if answer[at] == _STAYS else "DELETE"
            raise InvalidInputError(
                f"backward does not undo forward: chunk {_shown(start)} goes to {_shown(end)}, to which backward says "
                f"{shown}; to delete it, return arraystore.DELETE for it from forward"
            )
    return Plan(targets, keep)


def _check_inside(places: Places, targets: Int64s, keep: Bools) -> None:
    outside = np.flatnonzero(keep & ~_inside(targets, places.grid))
    if len(outside):
        start, end = places.coords[outside[0]], targets[outside[0]]
        raise InvalidInputError(
            f"chunk {_shown(start)} of array {'/' + places.node.path!r} would go to {_shown(end)}, outside of the grid "
            f"{places.grid}: return arraystore.DELETE to delete it, or resize the array first to keep it"
        )


def _mapped(function: ChunkFunction, coords: Int64s, vectorized: bool) -> tuple[Int64s, Int64s]:
    """Return the targets of chunks, and the kind of each answer: a place, None or `DELETE`."""
    if vectorized:
        answer = function(coords.copy())
        if answer is DELETE:
            return coords, np.full(len(coords), _GOES)
        values = np.asarray(answer)
        if values.shape != coords.shape or values.dtype.kind not in "iu":
            raise InvalidInputError(
                f"a vectorized function must return integers of shape {coords.shape} for coordinates of that shape, "
                f"not {values.dtype} of shape {values.shape}"
            )
        if values.dtype.kind == "u":
            values = np.minimum(values, _LARGEST)
        targets = values.astype(np.int64)
        return targets, np.where((targets == DELETE).any(axis=1), _GOES, _PLACE)
    rows = [_row(function, tuple(row)) for row in coords.tolist()]
    places = [row if isinstance(row, list) else [-1] * coords.shape[1] for row in rows]
    kinds = [_PLACE if isinstance(row, list) else _GOES if row is DELETE else _STAYS for row in rows]
    return np.array(places, dtype=np.int64).reshape(coords.shape), np.array(kinds, dtype=np.int64)


def _row(function: ChunkFunction, coords: tuple[int, ...]) -> list[int] | Deletion | None:
    answer = function(coords)
    if answer is None or isinstance(answer, Deletion):
        return answer
    try:
        row = tuple([operator.index(step) for step in answer])
    except TypeError:
        row = None
    if row is None or len(row) != len(coords):
        raise InvalidInputError(
            f"for chunk {coords} the function returned {answer!r}: it must return {len(coords)} integers, None, which "
            "leaves the chunk where it is, or arraystore.DELETE"
        )
    return [min(max(step, -1), _LARGEST) for step in row]


def _inside(coords: Int64s, grid: tuple[int, ...]) -> Bools:
    inside: Bools = ((coords >= 0) & (coords < np.array(grid, dtype=np.int64))).all(axis=1)
    return inside


def _shown(row: Int64s) -> str:
    return str(tuple(row.tolist()))


# -- moving references --------------------------------------------------------------------------------------------


def _apply(hierarchy: Hierarchy, places: Places, plan: Plan, moved: Bools, *, vacate: bool) -> None:
    """Move chunks to their targets, and drop those that are not kept."""
    box, node, own = _whole(places.grid), places.node, places.own
    left = places.coords[(moved | ~plan.keep) & vacate]
    vacated = left[~np.isin(box.numbers(left), box.numbers(plan.targets[plan.keep]))]
    changes = hierarchy.writable()
    with changes.lock:
        changes.check_open()
        _check_unchanged(hierarchy, changes, places)
        changes.appends.pop(node.id, None)  # appended chunks have their final place now: a rebase must not move them
        changes.touch_many(node, np.concatenate([vacated, plan.targets[moved]]))
        _vacate(changes, node, vacated)
        of_base, of_own = moved[own:], moved[:own]
        if places.base is not None and bool(of_base.any()):
            part = places.base.take(of_base)
            put_references(changes, node, replace(part, coords=plan.targets[own:][of_base]), known=True)
        if bool(of_own.any()):
            if not vacate:  # two cells have the same chunk, which a write to one of them must not overwrite
                changes.packs.settle()
            values = places.written[1][places.alive][of_own]
            changes.array(node).table.put_many(plan.targets[:own][of_own], *values.T)
        hierarchy.forget()


def _check_distinct(places: Places, plan: Plan) -> None:
    box = _whole(places.grid)
    ordered = np.sort(box.numbers(plan.targets[plan.keep]))
    again = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if len(again):
        shown = ", ".join(map(_shown, box.coords(again[:_SHOWN])))
        raise InvalidInputError(
            f"several chunks of array {'/' + places.node.path!r} would get the same place: {shown}; to "
            "make room for another one, delete a chunk by arraystore.DELETE: None leaves it where it is"
        )


def _check_unchanged(hierarchy: Hierarchy, changes: ChangeSet, places: Places) -> None:
    """Check that the array is as planned for: the caller's functions ran without the lock."""
    node = places.node
    same = hierarchy.changes is changes and changes.node(node.key) is node
    if not same or not all(map(np.array_equal, _written(changes, node), places.written)):
        raise SessionStateError(
            f"array {'/' + node.path!r} was written to while its chunks were rearranged, and nothing was moved: "
            "try again when no other thread writes to it"
        )


def _vacate(changes: ChangeSet, node: Node, coords: Int64s) -> None:
    """Empty some cells."""
    if not len(coords):
        return
    table = changes.array(node).table
    there, _ = table.columns()
    if len(there):
        table.drop(~np.isin(table.numbers(there), table.numbers(coords)))
    if node.id not in changes.base.keys:
        return  # a new array has no chunks beneath
    visible = _visible(changes, node)
    if visible is not None:  # a shrink has deleted the rest already
        coords = coords[(coords < np.array(visible, dtype=np.int64)).all(axis=1)]
    zeros = np.zeros(len(coords), dtype=np.int64)
    table.put_many(coords, zeros + DELETED, zeros, zeros)
