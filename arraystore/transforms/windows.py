"""Windows of inputs: the cells that a box of the output needs, with halos and what lies beyond the edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Int64s
from arraystore._session.base import SessionBase
from arraystore.errors import InvalidInputError
from arraystore.transforms.arrays import ArrayShape

Halo: TypeAlias = "int | tuple[int, int] | Mapping[str, int | tuple[int, int]]"
Boundary: TypeAlias = "str | float | Mapping[str, str | float]"

MODES = ("cut", "nearest", "reflect", "wrap")


@dataclass(frozen=True)
class Edge:
    """Cells around a box along one dimension, and what they are beyond the ends of the array."""

    before: int = 0
    after: int = 0
    mode: str | float = "cut"
    """One of `MODES`, or a constant."""


def parse_halo(halo: Halo | None, boundary: Boundary, dims: Sequence[str]) -> dict[str, Edge]:
    """Return the edges by dimension; raise `InvalidInputError`."""
    widths = _by_dim("halo", 0 if halo is None else halo, dims, 0)
    modes = _by_dim("boundary", boundary, dims, "cut")
    return {dim: Edge(*_sides(widths[dim], dim), _mode(modes[dim], dim)) for dim in dims}


def _by_dim(name: str, value: Any, dims: Sequence[str], default: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return dict.fromkeys(dims, value)
    unknown = set(value) - set(dims)
    if unknown:
        raise InvalidInputError(f"{name} names {min(map(str, unknown))!r}, and the target has dimensions {list(dims)}")
    return {dim: value.get(dim, default) for dim in dims}


def _sides(width: Any, dim: str) -> tuple[int, int]:
    sides = (width, width) if type(width) is int else tuple(width) if isinstance(width, tuple | list) else ()
    if len(sides) != 2 or any(type(side) is not int or side < 0 for side in sides):
        raise InvalidInputError(f"halo of {dim!r} must be an integer >= 0 or a pair of them, not {width!r}")
    return sides


def _mode(mode: Any, dim: str) -> str | float:
    if isinstance(mode, str) and mode in MODES:
        return mode
    if isinstance(mode, int | float) and not isinstance(mode, bool):
        return mode
    if isinstance(mode, np.number):
        return float(mode)
    raise InvalidInputError(
        f"boundary of {dim!r} must be one of {', '.join(map(repr, MODES))} or a number, not {mode!r}"
    )


@dataclass(frozen=True)
class Window:
    """Positions of an input along one dimension."""

    positions: Int64s
    """Positions within the array, in order and perhaps repeated."""
    before: int = 0
    after: int = 0
    """Cells of the constant beyond the ends."""


def window(start: int, stop: int, size: int, edge: Edge, dim: str) -> Window:
    """Return the positions that a box from start to stop needs."""
    low, high = start - edge.before, stop + edge.after
    if edge.mode == "cut" or not isinstance(edge.mode, str):
        inside = np.arange(max(low, 0), min(high, size), dtype=np.int64)
        outside = (0, 0) if edge.mode == "cut" else (max(0, -low), max(0, high - size))
        return Window(inside, *outside)
    if edge.mode == "reflect" and max(edge.before, edge.after) >= max(size, 1):
        raise InvalidInputError(
            f"a halo of {edge} cannot reflect dimension {dim!r} of {size} cells: it must be shorter"
        )
    return Window(_folded(np.arange(low, high, dtype=np.int64), size, edge.mode))


def _folded(positions: Int64s, size: int, mode: str) -> Int64s:
    """Return positions within the array for those beyond its ends."""
    if mode == "wrap":
        return np.asarray(positions % size)
    if mode == "nearest":
        return np.asarray(np.clip(positions, 0, size - 1))
    period = max(1, 2 * (size - 1))
    folded = np.abs(positions) % period
    return np.asarray(np.minimum(folded, period - folded))


def read_window(session: SessionBase, array: ArrayShape, windows: Sequence[Window], constants: Sequence[Any]) -> Any:
    """Read the cells of windows along all dimensions, with constants where they reach beyond the ends."""
    unique = [np.unique(each.positions) for each in windows]
    values = _read_runs(session, array, [_runs(positions) for positions in unique], [len(each) for each in unique])
    for axis, (each, positions) in enumerate(zip(windows, unique, strict=True)):
        if len(positions) != len(each.positions) or not np.array_equal(positions, each.positions):
            values = np.take(values, np.searchsorted(positions, each.positions), axis=axis)
    for axis, (each, constant) in enumerate(zip(windows, constants, strict=True)):
        if each.before or each.after:
            widths = [(0, 0)] * values.ndim
            widths[axis] = (each.before, each.after)
            values = np.pad(values, widths, constant_values=constant)
    return values


def _runs(positions: Int64s) -> list[tuple[int, int]]:
    """Return runs of consecutive positions."""
    if not len(positions):
        return []
    cuts = np.flatnonzero(np.diff(positions) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(positions, cuts)]


def _read_runs(
    session: SessionBase, array: ArrayShape, runs: Sequence[list[tuple[int, int]]], shape: Sequence[int]
) -> npt.NDArray[Any]:
    """Read all combinations of runs into one array."""
    if all(len(each) == 1 for each in runs):
        return np.asarray(session.read(array.path, (*(slice(*each[0]) for each in runs), ...)))
    values = np.empty(tuple(shape), array.dtype)
    places = [_places(each) for each in runs]
    for parts in product(*(list(zip(each, place, strict=True)) for each, place in zip(runs, places, strict=True))):
        source = tuple(slice(*run) for run, _ in parts)
        values[tuple(place for _, place in parts)] = session.read(array.path, (*source, ...))
    return values


def _places(runs: Sequence[tuple[int, int]]) -> list[slice]:
    """Return where runs are when they are concatenated."""
    ends = np.cumsum([stop - start for start, stop in runs]).tolist()
    return [slice(end - (stop - start), end) for end, (start, stop) in zip(ends, runs, strict=True)]
