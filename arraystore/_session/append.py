"""Appends to all arrays of a dimension together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._changes.node_changes import axis_of
from arraystore._format.node import Node, NodeKind
from arraystore._format.zarr_metadata import array_info
from arraystore._session.append_undo import all_or_none
from arraystore._session.base import SessionBase
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.keys import node_path
from arraystore._session.rebase import Unique
from arraystore._session.regions import access
from arraystore._session.regions.growth import grow
from arraystore._session.regions.layout import layout_of
from arraystore.errors import InvalidInputError, NodeNotFoundError


@dataclass(frozen=True)
class _Part:
    """The data to append to one array."""

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


def append(session: SessionBase, data: Mapping[str, npt.ArrayLike], dim: str, unique: str | None) -> Unique | None:
    """Append to arrays along a dimension, and return the values that must not repeat; see `Session.append`."""
    with session.hierarchy.untracked():  # an append does not depend on where the arrays end
        return _append(session, _parts(session.hierarchy, data, dim), dim, unique)


def _append(session: SessionBase, parts: list[_Part], dim: str, unique: str | None) -> Unique | None:
    """Append to all arrays, without zarr: opening, resizing and writing one through it takes 2 ms."""
    appended = None if unique is None else _check_unique(session, parts, unique)
    undo = all_or_none(session.hierarchy, [part.node.path for part in parts], dim)
    with undo, session.hierarchy.writable().append_mode.along(dim):
        for part in parts:
            grow(session.store, session.hierarchy, part.node, part.grown)
            access.write(session, part.node.path, part.place, part.values)
    return appended


def unique_of(hierarchy: Hierarchy, path: str, start: int, values: npt.NDArray[Any]) -> Unique:
    """Return values appended to a coordinate from `start` on, which conflict with equal values of others."""
    node = hierarchy.node(node_path(path))
    if node is None:
        raise NodeNotFoundError(f"there is no array {path!r}")
    return Unique(node.id, node.path, start, values)


def with_unique(uniques: Sequence[Unique], new: Unique) -> list[Unique]:
    """Return unique values with newly appended ones added."""
    old = next((unique for unique in uniques if unique.node == new.node), None)
    if old is not None:
        new = Unique(new.node, new.path, old.start, np.concatenate([old.values, new.values]))
    return [*(unique for unique in uniques if unique.node != new.node), new]


def _parts(hierarchy: Hierarchy, data: Mapping[str, npt.ArrayLike], dim: str) -> list[_Part]:
    if not isinstance(data, Mapping):
        raise InvalidInputError(f"data must be a mapping of values by path, not {type(data).__name__}")
    if not data:
        raise InvalidInputError("data must not be empty: pass values by path")
    parts = [_part(hierarchy, path, values, dim) for path, values in data.items()]
    if len({part.node.id for part in parts}) < len(parts):
        raise InvalidInputError(f"an array must be named once in data, and is twice in {list(data)}: join its values")
    _check_together(hierarchy, parts, dim)
    return parts


def _part(hierarchy: Hierarchy, path: str, values: npt.ArrayLike, dim: str) -> _Part:
    node = hierarchy.node(node_path(path))
    if node is None or node.kind != NodeKind.ARRAY:
        raise NodeNotFoundError(f"there is no array {path!r} to append to")
    axis = axis_of(node.documents, dim)
    if axis is None:
        raise InvalidInputError(f"array {path!r} has no dimension {dim!r}: name its dimensions when creating it")
    shape = array_info(node.documents).shape
    array = np.asarray(values)
    if array.ndim != len(shape) or any(
        n != m for i, (n, m) in enumerate(zip(array.shape, shape, strict=True)) if i != axis
    ):
        raise InvalidInputError(
            f"data of shape {array.shape} cannot be appended to array {path!r} of shape {shape} along {dim!r}"
        )
    if not array.shape[axis]:
        raise InvalidInputError(f"the data for {path!r} must have items along {dim!r}")
    return _Part(node, axis, shape, access.converted(path, array, layout_of(hierarchy.handle(node)).dtype, array.shape))


def _check_together(hierarchy: Hierarchy, parts: list[_Part], dim: str) -> None:
    first = parts[0]
    for part in parts[1:]:
        if part.items != first.items or part.length != first.length:
            raise InvalidInputError(
                f"/{part.node.path} is {part.length} long along {dim!r} and gets {part.items}, /{first.node.path} is "
                f"{first.length} long and gets {first.items}: arrays that share a dimension must grow together"
            )
    extended = {part.node.path for part in parts}
    for path in lengths_along(hierarchy, {path.rpartition("/")[0] for path in extended}, dim):
        if path not in extended:
            raise InvalidInputError(f"array '/{path}' has the dimension {dim!r} too: append to it, too")


def lengths_along(hierarchy: Hierarchy, groups: Collection[str], dim: str) -> dict[str, int]:
    """Return the lengths of all arrays directly in some groups that have a dimension, by path."""
    nodes = hierarchy.writable().all_nodes()
    arrays = [node for node in nodes if node.kind == NodeKind.ARRAY and node.path.rpartition("/")[0] in groups]
    axes = [(node, axis_of(node.documents, dim)) for node in arrays]
    return {node.path: array_info(node.documents).shape[axis] for node, axis in axes if axis is not None}


def _check_unique(session: SessionBase, parts: list[_Part], unique: str) -> Unique:
    part = _unique_part(parts, unique)
    return _not_repeated(part, np.asarray(access.read(session, part.node.path, ..., None)), unique)


def _unique_part(parts: list[_Part], unique: str) -> _Part:
    part = next((part for part in parts if part.node.path == node_path(unique)), None)
    if part is None:
        raise InvalidInputError(f"the unique coordinate {unique!r} must be among the arrays that are appended to")
    if part.values.ndim != 1:
        raise InvalidInputError(f"the unique coordinate {unique!r} must have one dimension, not {part.values.ndim}")
    return part


def _not_repeated(part: _Part, there: npt.NDArray[Any], unique: str) -> Unique:
    if bool((part.values != part.values).any()):
        raise InvalidInputError(f"{unique!r} must not repeat, and missing values (NaN, NaT) equal nothing: fill them")
    twice = np.intersect1d(there, part.values)
    if len(twice) or len(np.unique(part.values)) < len(part.values):
        shown = ", ".join(map(str, twice[:3])) if len(twice) else "a value among those appended, twice"
        raise InvalidInputError(f"{unique!r} must not repeat, and would: {shown}")
    return Unique(part.node.id, part.node.path, part.length, part.values)
