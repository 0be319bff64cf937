"""Appending to all arrays of a dimension together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.api.asynchronous import open_array

from arraystore._changes.node_changes import axis_of
from arraystore._format.node import Node, NodeKind
from arraystore._format.zarr_metadata import array_info
from arraystore._session.rebase import Unique
from arraystore.errors import InvalidInputError, NodeNotFoundError

if TYPE_CHECKING:
    from arraystore._session.session import Session

__all__ = ["append", "append_async", "note_unique"]


@dataclass(frozen=True)
class _Part:
    """What is appended to one array."""

    node: Node
    axis: int
    shape: tuple[int, ...]
    values: npt.NDArray[Any]

    @property
    def length(self) -> int:
        return self.shape[self.axis]

    @property
    def items(self) -> int:
        return int(self.values.shape[self.axis])

    @property
    def grown(self) -> tuple[int, ...]:
        return tuple(n + self.items if axis == self.axis else n for axis, n in enumerate(self.shape))

    @property
    def place(self) -> tuple[slice, ...]:
        new = slice(self.length, None)
        return tuple(new if axis == self.axis else slice(None) for axis in range(len(self.shape)))


def append(session: Session, data: Mapping[str, npt.ArrayLike], dim: str, unique: str | None) -> None:
    """Append to arrays along a dimension; see `Session.append`.

    Everything is checked before anything is changed.
    """
    with session.hierarchy.untracked():  # that it knows where the arrays end does not make it depend on that
        parts = _parts(session, data, dim)
        found = None if unique is None else _check_unique(session, parts, unique)
        with session.appending(dim) as store:
            for part in parts:
                array = zarr.open_array(store, path=part.node.path, mode="r+")
                array.resize(part.grown)
                array[part.place] = part.values
    if found is not None:
        _note(session, found)


async def append_async(session: Session, data: Mapping[str, npt.ArrayLike], dim: str, unique: str | None) -> None:
    """Asynchronous twin of `append`."""
    with session.hierarchy.untracked():
        parts = _parts(session, data, dim)
        found = None if unique is None else await _check_unique_async(session, parts, unique)
        with session.appending(dim) as store:
            for part in parts:
                array = await open_array(store=store, path=part.node.path, mode="r+")
                await array.resize(part.grown)
                await array.setitem(part.place, part.values)
    if found is not None:
        _note(session, found)


def note_unique(session: Session, path: str, start: int, values: npt.NDArray[Any]) -> None:
    """Have the commit fail if somebody else has appended one of the values that were appended to a coordinate.

    Parameters
    ----------
    path
        Of the coordinate.
    start
        Where the values begin.
    values
        What was appended; none of it was there before.
    """
    node = session.hierarchy.node(path.strip("/"))
    if node is None:
        raise NodeNotFoundError(f"there is no array {path!r}")
    _note(session, Unique(node.id, node.path, start, values))


def _note(session: Session, found: Unique) -> None:
    session.uniques = [u for u in session.uniques if u.node != found.node] + [_with_older(session, found)]


def _with_older(session: Session, new: Unique) -> Unique:
    old = next((u for u in session.uniques if u.node == new.node), None)
    return new if old is None else Unique(new.node, new.path, old.start, np.concatenate([old.values, new.values]))


def _parts(session: Session, data: Mapping[str, npt.ArrayLike], dim: str) -> list[_Part]:
    if not data:
        raise InvalidInputError("there is nothing to append: give data by path")
    parts = [_part(session, path, values, dim) for path, values in data.items()]
    _check_together(session, parts, dim)
    return parts


def _part(session: Session, path: str, values: npt.ArrayLike, dim: str) -> _Part:
    node = session.hierarchy.node(path.strip("/"))
    if node is None or node.kind != NodeKind.ARRAY:
        raise NodeNotFoundError(f"there is no array {path!r} to append to")
    axis = axis_of(node.documents, dim)
    if axis is None:
        raise InvalidInputError(f"array {path!r} has no dimension {dim!r}: name its dimensions when it is created")
    shape = array_info(node.documents).shape
    found = np.asarray(values)
    if found.ndim != len(shape) or any(
        n != m for i, (n, m) in enumerate(zip(found.shape, shape, strict=True)) if i != axis
    ):
        raise InvalidInputError(
            f"data of shape {found.shape} cannot be appended to array {path!r} of shape {shape} along {dim!r}"
        )
    if not found.shape[axis]:
        raise InvalidInputError(f"the data for {path!r} has no items along {dim!r}")
    return _Part(node, axis, shape, found)


def _check_together(session: Session, parts: list[_Part], dim: str) -> None:
    first = parts[0]
    for part in parts[1:]:
        if part.items != first.items or part.length != first.length:
            raise InvalidInputError(
                f"/{part.node.path} is {part.length} long along {dim!r} and gets {part.items}, /{first.node.path} is "
                f"{first.length} long and gets {first.items}: arrays that share a dimension grow together"
            )
    given = {part.node.id for part in parts}
    groups = {part.node.path.rpartition("/")[0] for part in parts}
    changes = session.hierarchy.writable()
    for node in changes.all_nodes():
        if node.kind != NodeKind.ARRAY or node.id in given or node.path.rpartition("/")[0] not in groups:
            continue
        if axis_of(node.documents, dim) is not None:
            raise InvalidInputError(f"array '/{node.path}' has the dimension {dim!r} too: append to it as well")


def _check_unique(session: Session, parts: list[_Part], unique: str) -> Unique:
    part = _unique_part(parts, unique)
    there = zarr.open_array(session.store, path=part.node.path, mode="r")[:]
    return _not_repeated(part, np.asarray(there), unique)


async def _check_unique_async(session: Session, parts: list[_Part], unique: str) -> Unique:
    part = _unique_part(parts, unique)
    array = await open_array(store=session.store, path=part.node.path, mode="r")
    return _not_repeated(part, np.asarray(await array.getitem(slice(None))), unique)


def _unique_part(parts: list[_Part], unique: str) -> _Part:
    part = next((part for part in parts if part.node.path == unique.strip("/")), None)
    if part is None:
        raise InvalidInputError(f"the unique coordinate {unique!r} is not among the arrays that are appended to")
    if part.values.ndim != 1:
        raise InvalidInputError(f"the unique coordinate {unique!r} has {part.values.ndim} dimensions, not one")
    return part


def _not_repeated(part: _Part, there: npt.NDArray[Any], unique: str) -> Unique:
    twice = np.intersect1d(there, part.values)
    if len(twice) or len(np.unique(part.values)) < len(part.values):
        shown = ", ".join(map(str, twice[:3])) if len(twice) else "a value among those given, twice"
        raise InvalidInputError(f"{unique!r} must not repeat, and would: {shown}")
    return Unique(part.node.id, part.node.path, part.length, part.values)
