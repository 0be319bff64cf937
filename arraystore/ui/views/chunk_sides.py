"""The sides of the chunks of an array along each dimension, which may vary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["chunks_between", "largest_chunk"]

Runs = tuple[tuple[int, int], ...]
"""Sides of chunks along a dimension, each with how often it is repeated."""


def _runs(document: dict[str, Any], dimensions: int) -> tuple[Runs, ...] | None:
    """Return the sides of a rectilinear chunk grid, whose metadata were checked; None for other grids."""
    grid = document.get("chunk_grid")
    if not isinstance(grid, dict) or grid.get("name") != "rectilinear":
        return None
    return tuple([_runs_of(sides) for sides in grid["configuration"]["chunk_shapes"]][:dimensions])


def _runs_of(sides: int | list[Any]) -> Runs:
    if not isinstance(sides, list):
        return ((sides, 1 << 63),)
    return tuple([(run[0], run[1]) if isinstance(run, list) else (run, 1) for run in sides])


def largest_chunk(document: dict[str, Any], sizes: Sequence[int]) -> tuple[int, ...] | None:
    """Return the longest side of a chunk along each dimension of a rectilinear grid; None for other grids."""
    found = _runs(document, len(sizes))
    return None if found is None else tuple([max(side for side, _ in runs) for runs in found])


def chunks_between(document: dict[str, Any], bounds: Sequence[tuple[int, int]]) -> list[range] | None:
    """Return the chunks that hold the items from a first to a last (exclusive), of a rectilinear grid; else None."""
    found = _runs(document, len(bounds))
    if found is None:
        return None
    return [
        range(_chunk_at(runs, low), _chunk_at(runs, high - 1) + 1)
        for runs, (low, high) in zip(found, bounds, strict=True)
    ]


def _chunk_at(runs: Runs, item: int) -> int:
    """Return the number of the chunk that holds an item."""
    chunks = start = 0
    for side, repeated in runs:
        if item < start + side * repeated:
            return chunks + (item - start) // side
        chunks, start = chunks + repeated, start + side * repeated
    return chunks - 1
