"""Pyramids: an array at several resolutions, described by the multiscales convention for Zarr.

The convention (https://github.com/zarr-conventions/multiscales, version 0.1) is the one that GeoZarr builds on; unlike
that of OME-NGFF it describes any array, whatever its axes mean.  Its metadata are attributes of the group of the array:
a layout of levels, each with its path, the level that it is derived from and the scale between the two.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import zarr

from arraystore._format.node import NodeKind
from arraystore._runtime.progress import Progress, shows_progress
from arraystore._session.arguments import check_writable_session
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.transforms.arrays import (
    ArrayShape,
    create_array,
    describe_array,
    dimension_names,
    open_array,
    results_at,
)
from arraystore.transforms.coarsening import coarsen
from arraystore.transforms.engines import EngineOption
from arraystore.transforms.report import TransformReport
from arraystore.transforms.transform import DEFAULT_MEMORY, parse_factors

_MOST_LEVELS = 32
CONVENTION = {
    "uuid": "d35379db-88df-4056-af3a-620245f8e347",
    "name": "multiscales",
    "schema_url": "https://raw.githubusercontent.com/zarr-conventions/multiscales/refs/tags/v0.1/schema.json",
    "spec_url": "https://github.com/zarr-conventions/multiscales/blob/v0.1/README.md",
    "description": "Multiscale layout of zarr datasets",
}
_METHODS = {"mean": "average", "median": "med", "first": "nearest"}
"""Names in the convention, where they are others than here."""


@dataclass(frozen=True)
class PyramidReport:
    """Result of building a pyramid; it is in the session, and visible to others once that is committed.

    Parameters
    ----------
    levels
        Paths of the levels, from the array itself on.
    reports
        Reports of the levels below the array.
    seconds
        Duration.
    """

    levels: tuple[str, ...]
    reports: tuple[TransformReport, ...]
    seconds: float


def plan_levels(array: ArrayShape, factors: Mapping[str, int], levels: int | None) -> list[tuple[int, ...]]:
    """Return the shapes of levels below an array: by default until a level has one chunk along all factors."""
    steps = [factors.get(dim, 1) for dim in array.dims]
    shapes: list[tuple[int, ...]] = []
    last = array.shape
    while len(shapes) < (_MOST_LEVELS if levels is None else levels):
        wide = [size for size, step in zip(last, steps, strict=True) if step > 1 and size > 1]
        one = all(step == 1 or size <= unit for size, step, unit in zip(last, steps, array.write_unit, strict=True))
        if not wide or (levels is None and one):
            break
        last = tuple(-(-size // step) for size, step in zip(last, steps, strict=True))
        shapes.append(last)
    return shapes


@shows_progress("Coarsening")
def build_pyramid(
    session: Session,
    path: str,
    factors: Mapping[str, int],
    *,
    levels: int | None = None,
    function: str = "mean",
    skipna: bool = True,
    overwrite: bool = False,
    memory: int = DEFAULT_MEMORY,
    engine: EngineOption = "threads",
    progress: Progress | bool = False,
) -> PyramidReport:
    """Build coarser levels of an array, each from the one before: all or none of them; nothing is committed.

    Level 1 of ``images/red`` is ``images/overviews/1/red``, beside coarsened coordinates of the dimensions, and so on.
    Levels have the data type of the array, to which means are rounded.  The group ``images`` gets the attributes
    ``multiscales`` and ``zarr_conventions``; levels of other arrays in them stay.

    Parameters
    ----------
    session
        A writable session.
    path
        Path of an array of integers, floats or booleans, with names of dimensions.
    factors
        Cells of a window from one level to the next, by dimension: ``{"y": 2, "x": 2}``.
    levels
        Count of levels below the array; by default as many as it takes to have one chunk along these dimensions.
    function, skipna, memory, engine, progress
        As in `coarsen`.
    overwrite
        Whether levels that exist are replaced.

    Returns
    -------
    PyramidReport
        Paths and reports of levels.

    Raises
    ------
    InvalidInputError
        If factors or function do not fit, or a level exists.
    NodeNotFoundError, TransformError, TaskFailedError
        As `coarsen`.
    """
    began = time.perf_counter()
    check_writable_session(session)
    steps = parse_factors(factors)
    array = describe_array(session, path)
    for dim in steps:
        array.axis(dim)
    if not any(step > 1 for step in steps.values()):
        raise InvalidInputError("factors must have a dimension with a factor > 1")
    if levels is not None and (type(levels) is not int or not 1 <= levels <= _MOST_LEVELS):
        raise InvalidInputError(f"levels={levels!r} must be an integer from 1 to {_MOST_LEVELS}")
    above, _, name = array.path.rpartition("/")
    assets = [name, *(f"overviews/{n}/{name}" for n in range(1, 1 + len(plan_levels(array, steps, levels))))]
    paths = [f"{above}/{asset}" if above else asset for asset in assets]
    for level, shape in zip(paths[1:], plan_levels(array, steps, levels), strict=True):
        _check_others(session, level, array.dims, shape)
    reports: list[TransformReport] = []
    with results_at(session, *_made(paths, array.dims)):
        for source, target in pairwise(paths):
            _open_group(session, target.rpartition("/")[0], like=open_array(session, path).metadata.zarr_format)
            report = coarsen(
                session, source, target, steps, function, skipna=skipna, dtype=array.dtype, overwrite=overwrite,
                memory=memory, engine=engine, progress=progress,
            )  # fmt: skip
            reports.append(report)
            _coarsen_coordinates(session, source.rpartition("/")[0], target.rpartition("/")[0], array.dims, steps)
        _describe(_open_group(session, above), assets, [float(steps.get(dim, 1)) for dim in array.dims], function)
    return PyramidReport(tuple(paths), tuple(reports), time.perf_counter() - began)


def _made(paths: Sequence[str], dims: Sequence[str]) -> list[str]:
    """Return the paths of the levels below the array, and of their coordinates."""
    return [f"{path.rpartition('/')[0]}/{name}" for path in paths[1:] for name in (path.rpartition("/")[2], *dims)]


def _check_others(session: Session, path: str, dims: tuple[str, ...], shape: tuple[int, ...]) -> None:
    """Check that a level is of the size of those of other arrays, with which it shares coordinates."""
    group, _, name = path.rpartition("/")
    sizes = dict(zip(dims, shape, strict=True))
    if session.hierarchy.node(group) is None:
        return
    for other, array in _open_group(session, group).arrays():
        if other in (name, *dims):
            continue
        for dim, size in zip(dimension_names(array), array.shape, strict=True):
            if sizes.get(dim, size) != size:
                raise InvalidInputError(
                    f"{group!r} has {other!r}, of {size} cells along {dim!r}, and a level of {name!r} would have "
                    f"{sizes[dim]}: levels in one group share their coordinates, so use the same factors for both"
                )


def _open_group(session: Session, path: str, like: Literal[2, 3] | None = None) -> zarr.Group:
    return zarr.open_group(session.store, path=path, mode="a", zarr_format=like)


def _describe(group: zarr.Group, assets: list[str], scale: list[float], function: str) -> None:
    """Put the levels into the attributes of their group."""
    attributes = dict(group.attrs)
    found: Any = attributes.get("multiscales")
    kept = found if isinstance(found, dict) and isinstance(found.get("layout"), list) else {"layout": []}
    name = assets[0]
    layout = [each for each in kept["layout"] if not _is_level(each, name)]
    layout.append({"asset": name})
    for source, asset in pairwise(assets):
        method = _METHODS.get(function, function)
        layout.append(
            {"asset": asset, "derived_from": source, "transform": {"scale": scale}, "resampling_method": method}
        )
    others: Any = attributes.get("zarr_conventions")
    conventions = (
        [each for each in others if isinstance(each, dict) and each.get("uuid") != CONVENTION["uuid"]]
        if isinstance(others, list)
        else []
    )
    group.update_attributes({"zarr_conventions": [*conventions, CONVENTION], "multiscales": {**kept, "layout": layout}})


def _is_level(entry: Any, name: str) -> bool:
    """Tell whether an entry of a layout is a level of an array."""
    asset = entry.get("asset") if isinstance(entry, dict) else None
    return asset == name or (
        isinstance(asset, str) and asset.startswith("overviews/") and asset.rpartition("/")[2] == name
    )


def _coarsen_coordinates(
    session: Session, above: str, below: str, dims: tuple[str, ...], steps: Mapping[str, int]
) -> None:
    """Write the coordinates of a level: means of windows, or those of the level above where it is as fine."""
    for dim in dims:
        source, target = (f"{group}/{dim}" if group else dim for group in (above, below))
        node = session.hierarchy.node(source)
        if node is None or node.kind != NodeKind.ARRAY:
            continue
        coordinate = open_array(session, source)
        if (
            coordinate.ndim != 1
            or dimension_names(coordinate) != (dim,)
            or np.dtype(coordinate.dtype).kind not in "iuf"
        ):
            continue
        _write_coordinate(session, target, coordinate, dim, steps.get(dim, 1))


def _write_coordinate(session: Session, target: str, coordinate: zarr.Array[Any], dim: str, step: int) -> None:
    values = np.asarray(coordinate[...])
    starts = np.arange(0, len(values), step)
    if step > 1:
        means = np.add.reduceat(values.astype(np.float64), starts) / np.diff(np.append(starts, len(values)))
        values = means.astype(values.dtype if values.dtype.kind == "f" else np.float64)
    attributes = {name: value for name, value in dict(coordinate.attrs).items() if name != "_ARRAY_DIMENSIONS"}
    create_array(
        session, target, shape=values.shape, dtype=values.dtype, dims=(dim,), chunks=(max(1, len(values)),),
        fill_value=0, attributes=attributes, zarr_format=coordinate.metadata.zarr_format, overwrite=True,
    )  # fmt: skip
    session.write(target, ..., values)
