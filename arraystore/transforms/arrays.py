"""Descriptions of arrays: shape, data type, units of reading and writing, names of dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import zarr

from arraystore._format.node import NodeKind, ancestors
from arraystore._session.append_undo import all_or_none
from arraystore._session.base import SessionBase
from arraystore._session.keys import node_path
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError, NodeNotFoundError

_ITEM_GUESS = 64
"""Bytes of an item of variable length, as memory is planned."""


@dataclass(frozen=True)
class ArrayShape:
    """Shape of an array, and what a task needs to know to read and write it in whole chunks."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dims: tuple[str, ...]
    """Names of dimensions; ``dim_0`` for the first where it has none."""
    read_unit: tuple[int, ...]
    """Cells that are decoded together: chunks, those within shards where there are shards."""
    write_unit: tuple[int, ...]
    """Cells that are written together, which one task must own: shards where there are shards, else chunks."""

    @property
    def itemsize(self) -> int:
        """Bytes of an item in memory; an estimate for items of variable length."""
        return _ITEM_GUESS if self.dtype.hasobject or self.dtype.kind == "T" else max(1, self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all items in memory."""
        return math.prod(self.shape) * self.itemsize

    def axis(self, dim: str) -> int:
        """Return the number of a dimension; raise `InvalidInputError` if there is none of that name."""
        if dim not in self.dims:
            others = f", but {', '.join(map(repr, self.dims))}" if self.dims else ": it has none at all"
            raise InvalidInputError(f"array {self.path!r} has no dimension {dim!r}{others}")
        return self.dims.index(dim)


def open_array(session: SessionBase, path: str) -> zarr.Array[Any]:
    """Open an array of a session; raise `NodeNotFoundError` if there is none."""
    key = node_path(path)
    try:
        node = zarr.open(session.store, path=key, mode="r")
    except FileNotFoundError:
        node = None
    if not isinstance(node, zarr.Array):
        raise NodeNotFoundError(f"there is no array {path!r} in {session.describe()}: create it first")
    return node


def describe_array(session: SessionBase, path: str) -> ArrayShape:
    """Describe an array of a session; raise `InvalidInputError` for one with chunks of several sizes."""
    return shape_of(node_path(path), open_array(session, path))


def shape_of(path: str, array: zarr.Array[Any]) -> ArrayShape:
    """Describe an open array."""
    shape = tuple(map(int, array.shape))
    try:
        read = tuple(map(int, array.chunks))
    except NotImplementedError:  # zarr's word for chunks of several sizes
        read = ()
    if len(read) != len(shape):
        raise InvalidInputError(f"array {path!r} has chunks of several sizes; transforms need a regular grid")
    write = tuple(map(int, getattr(array, "shards", None) or read))
    return ArrayShape(path, shape, np.dtype(array.dtype), dimension_names(array), read, write)


def dimension_names(array: zarr.Array[Any]) -> tuple[str, ...]:
    """Return the names of the dimensions; raise `InvalidInputError` if two are the same."""
    names: Any = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
    if not isinstance(names, list | tuple) or len(names) != array.ndim:
        names = [None] * array.ndim
    dims = tuple(name if isinstance(name, str) and name else f"dim_{number}" for number, name in enumerate(names))
    if len(set(dims)) < len(dims):
        raise InvalidInputError(f"two dimensions of array {array.path!r} have the same name: {dims}")
    return dims


def create_array(
    session: SessionBase,
    path: str,
    *,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    dims: Sequence[str] | None,
    chunks: Sequence[int],
    fill_value: Any,
    attributes: dict[str, Any],
    zarr_format: Literal[2, 3] = 3,
    overwrite: bool = False,
) -> None:
    """Create an array for the result of a transform."""
    if not overwrite:
        check_free(session, path)
    if zarr_format == 2:
        attributes = attributes if dims is None else {**attributes, "_ARRAY_DIMENSIONS": list(dims)}
        dims = None
    zarr.create_array(
        session.store, name=path.strip("/"), shape=tuple(shape), dtype=dtype,
        chunks=tuple(max(1, side) for side in chunks), fill_value=fill_value, dimension_names=dims,
        attributes=attributes, zarr_format=zarr_format, overwrite=overwrite,
    )  # fmt: skip


@contextmanager
def results_at(session: Session, *paths: str) -> Iterator[None]:
    """Restore what is at some paths and below them if the block fails, which makes and computes arrays there."""
    every = [node.path for node in session.hierarchy.writable().all_nodes()]
    places: dict[str, None] = {}
    for path in (each.strip("/") for each in paths):
        below = sorted(each for each in every if each.startswith(path + "/"))
        places |= dict.fromkeys([*reversed(list(ancestors(path))), path, *below])
    with session.append_lock, all_or_none(session.hierarchy, places, None):
        yield


def check_result(session: SessionBase, source: str, target: str, *, overwrite: bool) -> None:
    """Check that a new array may be made of another one at a path; raise `InvalidInputError`."""
    source, target = source.strip("/"), target.strip("/")
    if target == source:
        raise InvalidInputError(f"the result cannot replace {source!r}, which it is computed from")
    if target in ancestors(source):
        raise InvalidInputError(f"the result cannot replace the group {target!r}, which {source!r} is in")
    for above in ancestors(target):
        node = session.hierarchy.node(above)
        if node is not None and node.kind == NodeKind.ARRAY:
            raise InvalidInputError(f"{target!r} is below the array {above!r}: choose a path in a group")
    if not overwrite:
        check_free(session, target)


def check_free(session: SessionBase, path: str) -> None:
    """Check that there is no node at a path; raise `InvalidInputError`."""
    if session.hierarchy.node(node_path(path)) is not None:
        raise InvalidInputError(f"there is a node {path!r} already: choose another path, or pass overwrite=True")
