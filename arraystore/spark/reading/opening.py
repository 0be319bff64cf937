"""Opening the arrays of a frame: names, dimensions and coordinate arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import zarr
from zarr.errors import NodeTypeValidationError

from arraystore._session.base import SessionBase
from arraystore.errors import InvalidInputError, NodeNotFoundError
from arraystore.spark.reading.coordinates import Coordinate
from arraystore.spark.reading.decoding import decoder_of

_SHOWN = 10


@dataclass(frozen=True)
class OpenedArray:
    """An array, the column that it becomes, and the names of its dimensions."""

    column: str
    array: zarr.Array[Any]
    dims: tuple[str, ...]

    def axes_in(self, dims: Sequence[str]) -> tuple[int, ...]:
        """Return the number of each of its dimensions among `dims`."""
        return tuple(dims.index(name) for name in self.dims)

    def side(self, axis: int) -> int:
        """Return the size of chunks along a dimension; of the largest one, where they differ."""
        sides = sides_of(self.array, axis, stored=False)
        return max(sides if isinstance(sides, int) else int(sides.max(initial=1)), 1)


@dataclass(frozen=True)
class OpenedArrays:
    """The arrays of a frame, of which `lead` has all dimensions."""

    session: SessionBase
    arrays: tuple[OpenedArray, ...]
    lead: OpenedArray

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of all dimensions, in the order of the leading array."""
        return self.lead.dims


def sides_of(array: zarr.Array[Any], axis: int, *, stored: bool) -> int | np.ndarray[Any, np.dtype[np.int64]]:
    """Return the size of chunks along a dimension: one number, or that of each chunk where they differ."""
    try:
        return int(((array.shards if stored else None) or array.chunks)[axis])
    except NotImplementedError:  # raised for chunks of several sizes, which zarr supports since 3.2
        sizes: Any = array
        return np.array((sizes.write_chunk_sizes if stored else sizes.read_chunk_sizes)[axis], dtype=np.int64)


def open_arrays(
    session: SessionBase, paths: str | Sequence[str] | Mapping[str, str], dims: Sequence[str] | None
) -> OpenedArrays:
    """Open the arrays of a frame; the paths of groups stand for the arrays right in them."""
    arrays = tuple(_describe(column, array, dims) for column, array in _find_arrays(session, paths))
    columns = [one.column for one in arrays]
    for one in arrays:
        if columns.count(one.column) > 1:
            raise InvalidInputError(
                f"two arrays would be column {one.column!r}: name the columns, as in {{'a': 'first/{one.column}', "
                f"'b': 'second/{one.column}'}}"
            )
    return OpenedArrays(session, arrays, _lead(arrays))


def _find_arrays(
    session: SessionBase, paths: str | Sequence[str] | Mapping[str, str]
) -> list[tuple[str, zarr.Array[Any]]]:
    if isinstance(paths, str):
        paths = [paths]
    named = list(paths.items()) if isinstance(paths, Mapping) else [(None, path) for path in paths]
    named_arrays: list[tuple[str, zarr.Array[Any]]] = []
    for column, path in named:
        if not isinstance(path, str) or not (column is None or isinstance(column, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError(f"paths has {path!r} where the path of an array is expected")
        key = path.strip("/")
        array = _array(session, key)
        if array is not None:
            named_arrays.append((column or key.rpartition("/")[2] or "value", array))
        elif column is None:
            named_arrays += _variables_in(session, key)
        else:
            raise NodeNotFoundError(f"{path!r} is a group, and column {column!r} needs one array: name it")
    if not named_arrays:
        raise InvalidInputError("paths must name at least one array")
    return named_arrays


def _array(session: SessionBase, key: str) -> zarr.Array[Any] | None:
    """Open an array, None if it is a group."""
    try:
        return zarr.open_array(session.store, path=key, mode="r")
    except NodeTypeValidationError:
        return None
    except (FileNotFoundError, KeyError):
        pass
    try:
        zarr.open_group(session.store, path=key, mode="r")
    except (FileNotFoundError, KeyError):
        raise _not_found(session, key) from None
    return None


def _not_found(session: SessionBase, key: str) -> NodeNotFoundError:
    above, _, name = key.rpartition("/")
    try:
        names = sorted(key for key, _ in zarr.open_group(session.store, path=above, mode="r").members())
    except (FileNotFoundError, KeyError, NodeTypeValidationError):
        names, where = [], ""
    else:
        where = f" in {above!r}" if above else ""
    close = get_close_matches(name, names, 3) or names[:_SHOWN]
    return NodeNotFoundError(
        f"there is no array or group {key!r} in snapshot {session.snapshot_id}"
        + (f"; there is{where} {', '.join(map(repr, close))}" if close else "")
    )


def _variables_in(session: SessionBase, key: str) -> list[tuple[str, zarr.Array[Any]]]:
    """Return the arrays in a group, except its coordinates."""
    group = zarr.open_group(session.store, path=key, mode="r")
    arrays = sorted(group.arrays())
    listed = {name for _, array in arrays for name in str(array.attrs.get("coordinates", "")).split()}
    variables = [(name, array) for name, array in arrays if dimension_names(array) != (name,) and name not in listed]
    if not variables:
        raise NodeNotFoundError(f"group {key!r} has no arrays but coordinates; name the array that you want")
    return [(name, array) for name, array in variables if not (array.ndim == 0 and len(variables) > 1)]


def dimension_names(array: zarr.Array[Any]) -> tuple[str | None, ...]:
    """Return the names of the dimensions of an array, None where one has no name."""
    names: Any = getattr(array.metadata, "dimension_names", None)
    if names is None:
        names = array.attrs.get("_ARRAY_DIMENSIONS")
    if not isinstance(names, list | tuple) or len(names) != array.ndim:
        return (None,) * array.ndim
    return tuple(name if isinstance(name, str) and name else None for name in names)


def _describe(column: str, array: zarr.Array[Any], dims: Sequence[str] | None) -> OpenedArray:
    names = dimension_names(array)
    if dims is not None and any(name is None for name in names):
        if len(dims) != array.ndim:
            raise InvalidInputError(
                f"dims={list(dims)!r} names {len(dims)} dimensions, and array {array.path!r} has {array.ndim}"
            )
        names = tuple(dims)
    dimensions = tuple(name if name is not None else f"dim_{number}" for number, name in enumerate(names))
    if len(set(dimensions)) < len(dimensions):
        raise InvalidInputError(
            f"two dimensions of array {array.path!r} have the same name: {dimensions}; columns need names of their "
            "own, so name the dimensions in the array"
        )
    return OpenedArray(column, array, dimensions)


def _lead(arrays: Sequence[OpenedArray]) -> OpenedArray:
    """Return the first array that has the dimensions of all, and check that their sizes agree."""
    sizes: dict[str, tuple[int, str]] = {}
    for one in arrays:
        for name, size in zip(one.dims, one.array.shape, strict=True):
            expected, where = sizes.setdefault(name, (size, one.array.path))
            if expected != size:
                raise InvalidInputError(
                    f"dimension {name!r} has {expected} positions in {where!r} and {size} in {one.array.path!r}: they "
                    "cannot be read together"
                )
    for one in arrays:
        if set(one.dims) == set(sizes):
            return one
    listed = ", ".join(f"{one.array.path!r} {one.dims}" for one in arrays[:_SHOWN])
    raise InvalidInputError(
        f"none of the arrays has all of the dimensions {tuple(sizes)}: {listed}. Read them as frames of their own, and "
        "join those"
    )


def coordinate_of(opened: OpenedArrays, name: str, size: int, *, decode: bool) -> Coordinate | None:
    """Return the labels of a dimension, None if there is no coordinate array of its name beside the leading array."""
    above = opened.lead.array.path.strip("/").rpartition("/")[0]
    key = f"{above}/{name}" if above else name
    try:
        array = zarr.open_array(opened.session.store, path=key, mode="r")
    except (FileNotFoundError, KeyError, NodeTypeValidationError):
        return None
    if array.shape != (size,) or dimension_names(array)[0] not in (name, None):
        return None
    meant = decoder_of(array, decode=False)
    shown = decoder_of(array, decode=True) if decode else meant
    try:
        meant = decoder_of(array, decode=True)
    except InvalidInputError:  # of a calendar that has no timestamps, say: its labels are numbers, then
        if decode:
            raise
    return Coordinate(name, np.asarray(array[:]), shown, meant)
