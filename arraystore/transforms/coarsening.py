"""Coarsening: an array of fewer cells, each of them computed from a window of cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr

from arraystore._format.types import Array, Bools
from arraystore._runtime.progress import Progress, shows_progress
from arraystore._session.arguments import check_writable_session
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.transforms.arrays import check_result, create_array, open_array, results_at, shape_of
from arraystore.transforms.decoding import mask_of, number_decoder
from arraystore.transforms.engines import EngineOption
from arraystore.transforms.integer_medians import median_of_integers
from arraystore.transforms.number_conversion import convert_numbers
from arraystore.transforms.reducers import Sum, make_reducer
from arraystore.transforms.report import TransformError, TransformReport
from arraystore.transforms.transform import DEFAULT_MEMORY, parse_factors, transform_chunks

FUNCTIONS = ("mean", "sum", "min", "max", "median", "first")


@shows_progress("Coarsening")
def coarsen(
    session: Session,
    source: str,
    target: str,
    factors: Mapping[str, int],
    function: str = "mean",
    *,
    edge: str = "partial",
    skipna: bool = True,
    dtype: Any = None,
    chunks: Mapping[str, int] | None = None,
    overwrite: bool = False,
    memory: int = DEFAULT_MEMORY,
    engine: EngineOption = "threads",
    progress: Progress | bool = False,
) -> TransformReport:
    """Coarsen an array into a new one by windows of cells; nothing is committed.

    Values stay packed: ``scale_factor`` and ``add_offset`` are those of the source.  Stored values that equal
    ``_FillValue`` or ``missing_value`` are missing, and NaN is unless `skipna` is off; a window of missing values has
    the missing value.  Windows without any chunk stay unwritten, where that is the same.

    Parameters
    ----------
    session
        A writable session.
    source
        Path of an array of integers, floats or booleans.
    target
        Path of the result, which is created with the dimensions and attributes of the source.
    factors
        Cells of a window by dimension.
    function
        ``"mean"``, ``"sum"``, ``"min"``, ``"max"``, ``"median"``, or ``"first"``, the first cell of the window.
    edge
        What becomes of cells at the end that fill no window: a ``"partial"`` one, or they are left out (``"trim"``).
    skipna
        Whether NaN is left out.
    dtype
        Data type of the result, to which values are rounded, of two equally near integers to the even one; by default
        that of floats and packed integers, and double precision for means and medians of other integers.  Means and
        medians of 64-bit integers are exact before that.
    chunks
        Sides of the chunks of the result by dimension; those of the source by default.
    overwrite, memory, engine, progress
        As in `reduce_array`.

    Raises
    ------
    InvalidInputError
        If array, factors or function do not fit.
    NodeNotFoundError
        If there is no such array.
    TransformError, TaskFailedError
        If a task failed for good.
    """
    check_writable_session(session)
    sides = parse_factors(factors)
    opened = open_array(session, source)
    array, attributes = shape_of(source.strip("/"), opened), dict(opened.attrs)
    decoder = number_decoder(array.path, array.dtype, attributes, mask_of(opened))
    check_coarsening(array.path, function, edge, decoder.scale, packed=decoder.is_packed)
    for dim in sides:
        array.axis(dim)
    steps = tuple(sides.get(dim, 1) for dim in array.dims)
    shape = tuple(
        size // step if edge == "trim" else -(-size // step) for size, step in zip(array.shape, steps, strict=True)
    )
    kind = _dtype(array.dtype, function, dtype, packed=decoder.is_packed)
    missing = decoder.missing[0] if decoder.missing and function != "sum" else None
    _check_missing(array.path, kind, missing)
    kernel = WindowReduction(function, steps, decoder.missing, skipna, kind, _swapped(function, decoder.scale))
    units = [
        (chunks or {}).get(dim, min(unit, max(1, size)))
        for dim, unit, size in zip(array.dims, array.write_unit, shape, strict=True)
    ]
    fill = opened.fill_value if kind == array.dtype else _other_fill(opened, kind, missing)
    check_result(session, array.path, target, overwrite=overwrite)
    named: Any = getattr(opened.metadata, "dimension_names", None) or attributes.pop("_ARRAY_DIMENSIONS", None)
    same = kind == array.dtype and function != "sum"
    with results_at(session, target):
        create_array(
            session, target, shape=shape, dtype=kind, dims=named, chunks=units, fill_value=fill, attributes=attributes,
            zarr_format=opened.metadata.zarr_format, overwrite=overwrite,
        )  # fmt: skip
        return transform_chunks(
            session, source, target, kernel, factors=sides, skip_missing=same, memory=memory, engine=engine,
            description=f"coarsen {source} to {target}", progress=progress,
        )  # fmt: skip


def check_coarsening(path: str, function: str, edge: str, scale: float, *, packed: bool) -> None:
    """Check the choices for windows; raise `InvalidInputError`."""
    if function not in FUNCTIONS:
        raise InvalidInputError(f"function={function!r} must be one of {', '.join(map(repr, FUNCTIONS))}")

    if edge not in ("partial", "trim"):
        raise InvalidInputError(f"edge={edge!r} must be 'partial' or 'trim'")
    if function == "sum" and packed:
        raise InvalidInputError(
            f"sums of {path!r}, which is packed, do not stay packed: reduce or transform it instead"
        )


def _check_missing(path: str, kind: np.dtype[Any], missing: Any) -> None:
    limits = np.iinfo(kind) if kind.kind in "iu" else None
    if limits is not None and missing is not None and not limits.min <= missing <= limits.max:
        raise InvalidInputError(f"dtype={str(kind)!r} does not hold {missing}, the missing value of array {path!r}")


def _other_fill(source: zarr.Array[Any], kind: np.dtype[Any], missing: Any) -> Any:
    """Return the fill value of a result of another data type; in Zarr v2 it is the missing value."""
    if source.metadata.zarr_format == 2 and (missing is not None or kind.kind != "f"):
        return missing
    return np.nan if kind.kind == "f" else (missing or 0)


def _swapped(function: str, scale: float) -> str:
    """Return the function of stored values: of a negative scale, the smallest number is stored as the largest."""
    return {"min": "max", "max": "min"}.get(function, function) if scale < 0 else function


def _dtype(source: np.dtype[Any], function: str, wanted: Any, *, packed: bool) -> np.dtype[Any]:
    if wanted is not None:
        kind: np.dtype[Any] = np.dtype(wanted)
        if kind.kind not in "biuf":
            raise InvalidInputError(f"dtype={wanted!r} must be of integers, floats or booleans")
        return kind
    if source.kind == "f" or packed or function in ("min", "max", "first"):
        return source
    return np.dtype("u8" if source.kind == "u" else "i8") if function == "sum" else np.dtype("f8")


@dataclass(frozen=True)
class WindowReduction:
    """Function of blocks that reduces windows of cells."""

    function: str
    steps: tuple[int, ...]
    missing: tuple[Any, ...]
    skipna: bool
    dtype: np.dtype[Any]
    reducer: str
    """Function of stored values."""

    def __call__(self, values: Array) -> Array:
        """Return a value for each window."""
        if self.function == "first":
            return self._held(values[tuple(slice(None, None, step) for step in self.steps)])
        valid = self._valid(values)
        windows, there = self._windows(values, valid)
        axes = tuple(range(1, 2 * values.ndim, 2))
        found, empty = self._reduce(windows, there, axes)
        return self._stored(found, empty)

    def _valid(self, values: Array) -> Bools:
        valid = np.ones(values.shape, dtype=bool)
        for each in self.missing:
            valid &= values != each
        if self.skipna and values.dtype.kind == "f":
            valid &= ~np.isnan(values)
        return valid

    def _windows(self, values: Array, valid: Bools) -> tuple[Array, Bools]:
        """Return values and their validity with each dimension split in two: windows, and cells of a window."""
        lacking = [(0, -size % step) for size, step in zip(values.shape, self.steps, strict=True)]
        if any(after for _, after in lacking):
            values, valid = np.pad(values, lacking), np.pad(valid, lacking)
        shape = [side for size, step in zip(values.shape, self.steps, strict=True) for side in (size // step, step)]
        return values.reshape(shape), valid.reshape(shape)

    def _reduce(self, values: Array, valid: Bools, axes: tuple[int, ...]) -> tuple[Array, Bools]:
        empty = ~valid.any(axis=axes)
        if self.reducer == "median" and values.dtype.kind != "f":
            return median_of_integers(values, valid, axes, rounded=self.dtype.kind in "iu"), empty
        if self.reducer == "median":
            masked = np.where(valid, values, np.nan).astype(np.float64)
            bad = (valid & np.isnan(masked)).any(axis=axes)  # NaN that is not left out
            masked[np.broadcast_to(np.expand_dims(empty, axes), masked.shape)] = 0
            masked[np.broadcast_to(np.expand_dims(bad, axes), masked.shape)] = 0
            return np.where(bad, np.nan, np.nanmedian(masked, axis=axes)), empty
        source = values.dtype
        if self.reducer == "mean" and source.kind != "f" and self.dtype.kind in "iu":
            means = Sum(source, mean=True, rounded=True)
            return means.finish(means.reduce(values, valid, axes)), empty
        reducer = make_reducer(self.reducer, source, skipna=self.skipna, ddof=0, missing=source.type(0))
        return np.asarray(reducer.finish(reducer.reduce(values, valid, axes))), empty

    def _stored(self, found: Array, empty: Bools) -> Array:
        """Return values of the data type of the result, with the missing value where there is none."""
        stored = self._held(np.where(empty, 0, found))
        if self.function == "sum" or not bool(empty.any()):
            return stored
        if self.missing:
            stored[empty] = self.missing[0]
        elif self.dtype.kind == "f":
            stored[empty] = np.nan
        else:
            raise TransformError("there is no value in a window, and no missing value among integers to say so")
        return stored

    def _held(self, found: Array) -> Array:
        """Return values in the data type of the result, rounded; raise `TransformError` for one that it cannot hold."""
        rounded = np.rint(found) if self.dtype.kind in "biu" and found.dtype.kind == "f" else found
        if self.dtype.kind in "iu" and rounded.dtype.kind == "f":
            limits = np.iinfo(self.dtype)
            unfit: Bools | None = ~((rounded >= float(limits.min)) & (rounded < float(limits.max) + 1))
        else:
            unfit = convert_numbers(rounded, self.dtype).unfit
        if unfit is not None and bool(unfit.any()):
            raise TransformError(f"{self.function} values do not fit into {self.dtype}: take a larger type")
        return rounded.astype(self.dtype)
