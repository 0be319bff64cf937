"""Giving chunks other places in the grid of their array: references move, data stays where it is."""

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
from arraystore.errors import InvalidInputError, NodeNotFoundError, SessionStateError

__all__ = ["DELETE", "ChunkFunction", "Deletion", "places_of", "plan_reindex", "plan_shift", "rearrange"]

ChunkFunction = Callable[[Any], Any]
"""From the grid coordinates of a chunk, or of many, to those that they get."""
Keep = Callable[[Node], Awaitable[None]]

_PLACE, _STAYS, _GOES = 0, 1, 2
"""Kinds of answers of a function: a place, None, and `DELETE`."""

_SHOWN = 3
_LARGEST = (1 << 63) - 1


class Deletion(enum.IntEnum):
    """The type of `DELETE`; an integer, so that it can stand in an array of coordinates."""

    DELETE = -(1 << 63)


DELETE = Deletion.DELETE
"""What a function of `Session.reindex_array` returns for a chunk that shall be deleted."""


async def rearrange(hierarchy: Hierarchy, places: Places, plan: Plan, keep: Keep) -> None:
    """Carry out a plan.

    Parameters
    ----------
    hierarchy
        Of the array.
    places, plan
        Its chunks, and where they go.
    keep
        Called with the array before chunks get another reference that are in packs of others.
    """
    moved = plan.keep & (plan.targets != places.coords).any(axis=1)
    if not bool((moved | ~plan.keep).any()):
        return
    _check_distinct(places, plan)
    if places.refers_to_packs(moved):
        await keep(places.node)
    _apply(hierarchy, places, plan, moved)


# -- what there is ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Places:
    """The chunks that an array has: first those that the session wrote, then the others.

    Parameters
    ----------
    node, grid
        The array.
    written
        Coordinates and values of the session's own table, deletions included.
    alive
        Which of these are chunks.
    base
        References of the chunks that it did not write.
    coords
        Of all chunks.
    """

    node: Node
    grid: tuple[int, ...]
    written: tuple[Int64s, Int64s]
    alive: Bools
    base: References | None
    coords: Int64s

    @property
    def own(self) -> int:
        """Number of chunks that the session wrote."""
        return int(self.alive.sum())

    def refers_to_packs(self, rows: Bools) -> bool:
        """Tell whether some of the chunks are in packs of others."""
        if self.base is None:
            return False
        source = self.base.source[rows[self.own :]]
        return bool(((source >= 0) & (source < VIRTUAL)).any())


@dataclass(frozen=True, eq=False)
class Plan:
    """Where each chunk of an array goes, and which of them are kept."""

    targets: Int64s
    keep: Bools


async def places_of(hierarchy: Hierarchy, array_path: str) -> Places:
    """Return the chunks that an array has.

    Raises
    ------
    NodeNotFoundError
        If there is no such array.
    InvalidInputError
        If its chunks differ in shape.
    """
    changes = hierarchy.writable()
    node = hierarchy.node(array_path.strip("/"))
    if node is None or node.kind != NodeKind.ARRAY:
        raise NodeNotFoundError(f"there is no array {array_path!r}")
    info = array_info(node.documents)
    grid = info.grid
    if 0 not in grid and any(dimension_of(node.documents, axis).chunk is None for axis in range(len(grid))):
        raise InvalidInputError(
            f"the chunks of array {array_path!r} differ in shape, so that one cannot take the place of another; "
            "only arrays with a regular chunk grid can be shifted or reindexed"
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
    """Return what a session has left of the chunks below it."""
    bound = np.array(grid if visible is None else tuple(map(min, grid, visible)), dtype=np.int64)
    found = below.take((below.coords < bound).all(axis=1))
    box = _whole(grid)
    inside = written[(written < np.array(grid, dtype=np.int64)).all(axis=1)]
    return found.take(~np.isin(box.numbers(found.coords), box.numbers(inside)))


def _whole(grid: tuple[int, ...]) -> Box:
    return Box((0,) * len(grid), grid)


# -- where it goes ------------------------------------------------------------------------------------------------


def _offset(chunk_offset: Iterable[int], grid: tuple[int, ...], path: str) -> tuple[int, ...]:
    """Return an offset, no larger than it takes to leave the grid."""
    try:
        move = tuple([operator.index(step) for step in chunk_offset])
    except TypeError:
        raise InvalidInputError(f"{chunk_offset!r} is no offset: it has a whole number for each dimension") from None
    if len(move) != len(grid):
        raise InvalidInputError(f"an offset of {len(move)} dimensions for array {path!r}, which has {len(grid)}")
    return tuple([max(-side, min(side, step)) for step, side in zip(move, grid, strict=True)])


def plan_shift(places: Places, chunk_offset: Iterable[int]) -> Plan:
    """Plan to move all chunks by a vector; see `Session.shift_array`."""
    move = _offset(chunk_offset, places.grid, places.node.path)
    targets = places.coords + np.array(move, dtype=np.int64)
    return Plan(targets, _inside(targets, places.grid))


def plan_reindex(places: Places, forward: ChunkFunction, backward: ChunkFunction | None, vectorized: bool) -> Plan:
    """Plan to move each chunk to where a function says; see `Session.reindex_array`."""
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
            told = _shown(back[at]) if answer[at] == _PLACE else "None" if answer[at] == _STAYS else "DELETE"
            raise InvalidInputError(
                f"backward does not undo forward: chunk {_shown(start)} goes to {_shown(end)}, to which backward says "
                f"{told}; if it shall be deleted, return arraystore.DELETE for it from forward"
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
    """Return where chunks go, and of which kind each answer was: a place, None or `DELETE`."""
    if vectorized:
        answer = function(coords.copy())
        if answer is DELETE:
            return coords, np.full(len(coords), _GOES)
        found = np.asarray(answer)
        if found.shape != coords.shape or found.dtype.kind not in "iu":
            raise InvalidInputError(
                f"a vectorized function returns integers of shape {coords.shape} for coordinates of that shape, "
                f"not {found.dtype} of shape {found.shape}"
            )
        if found.dtype.kind == "u":
            found = np.minimum(found, _LARGEST)
        targets = found.astype(np.int64)
        return targets, np.where((targets == DELETE).any(axis=1), _GOES, _PLACE)
    rows = [_row(function, tuple(row)) for row in coords.tolist()]
    places = [row if isinstance(row, list) else [-1] * coords.shape[1] for row in rows]
    kinds = [_PLACE if isinstance(row, list) else _GOES if row is DELETE else _STAYS for row in rows]
    return np.array(places, dtype=np.int64).reshape(coords.shape), np.array(kinds, dtype=np.int64)


def _row(function: ChunkFunction, coords: tuple[int, ...]) -> list[int] | Deletion | None:
    found = function(coords)
    if found is None or isinstance(found, Deletion):
        return found
    try:
        row = tuple([operator.index(step) for step in found])
    except TypeError:
        row = None
    if row is None or len(row) != len(coords):
        raise InvalidInputError(
            f"for chunk {coords} the function returned {found!r}: neither {len(coords)} integers, nor None, which "
            "leaves it where it is, nor arraystore.DELETE"
        )
    return [min(max(step, -1), _LARGEST) for step in row]


def _inside(coords: Int64s, grid: tuple[int, ...]) -> Bools:
    inside: Bools = ((coords >= 0) & (coords < np.array(grid, dtype=np.int64))).all(axis=1)
    return inside


def _shown(row: Int64s) -> str:
    return str(tuple(row.tolist()))


# -- bringing it there --------------------------------------------------------------------------------------------


def _apply(hierarchy: Hierarchy, places: Places, plan: Plan, moved: Bools) -> None:
    """Move chunks to their targets, and drop those that are not kept."""
    box, node, own = _whole(places.grid), places.node, places.own
    left = places.coords[moved | ~plan.keep]
    vacated = left[~np.isin(box.numbers(left), box.numbers(plan.targets[plan.keep]))]
    changes = hierarchy.writable()
    with changes.lock:
        changes.check_open()
        _check_unchanged(hierarchy, changes, places)
        changes.appends.pop(node.id, None)  # what was appended has its place now: nobody may move it again
        changes.touch_many(node, np.concatenate([vacated, plan.targets[moved]]))
        _vacate(changes, node, vacated)
        of_base, of_own = moved[own:], moved[:own]
        if places.base is not None and bool(of_base.any()):
            part = places.base.take(of_base)
            put_references(changes, node, replace(part, coords=plan.targets[own:][of_base]), known=True)
        if bool(of_own.any()):
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
    """Check that what was worked out still holds: the functions of the caller ran without the lock."""
    node = places.node
    same = hierarchy.changes is changes and changes.node(node.key) is node
    if not same or not all(map(np.array_equal, _written(changes, node), places.written)):
        raise SessionStateError(
            f"array {'/' + node.path!r} was written to while its chunks were given other places; "
            "do it when nobody else writes to it. Nothing was moved."
        )


def _vacate(changes: ChangeSet, node: Node, coords: Int64s) -> None:
    """Leave nothing at some cells."""
    if not len(coords):
        return
    table = changes.array(node).table
    there, _ = table.columns()
    if len(there):
        table.drop(~np.isin(table.numbers(there), table.numbers(coords)))
    if node.id not in changes.base.keys:
        return  # nobody else has anything there
    visible = _visible(changes, node)
    if visible is not None:  # what a shrink has cut off is deleted as it is
        coords = coords[(coords < np.array(visible, dtype=np.int64)).all(axis=1)]
    nothing = np.zeros(len(coords), dtype=np.int64)
    table.put_many(coords, nothing + DELETED, nothing, nothing)
