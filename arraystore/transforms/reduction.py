"""Reductions along dimensions: statistics, quantiles and histograms."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from arraystore._runtime.progress import Progress, callback_of, shows_progress
from arraystore._session.arguments import check_writable_session
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.transforms.arrays import ArrayShape, check_result, create_array, open_array, results_at, shape_of
from arraystore.transforms.decoding import (
    MISSING,
    NumberDecoder,
    mask_of,
    number_decoder,
    numeric_attributes,
    text_of_number,
)
from arraystore.transforms.engines import EngineOption, transform_engine
from arraystore.transforms.reducers import Histogram, Reducer, make_reducer
from arraystore.transforms.reduction_plan import ReductionPlan, plan_reduction
from arraystore.transforms.reduction_run import ExactQuantile, run_quantiles, run_reduction
from arraystore.transforms.report import TransformReport
from arraystore.transforms.sketch import QuantileSketch

DEFAULT_MEMORY = 256 << 20
_METHODS = {
    "sum": "sum",
    "mean": "mean",
    "var": "variance",
    "std": "standard_deviation",
    "min": "minimum",
    "max": "maximum",
}
"""Names of methods in the attribute ``cell_methods`` of the CF conventions."""


@shows_progress("Reducing")
def reduce_array(
    session: Session,
    source: str,
    target: str,
    function: str,
    dims: str | Sequence[str] | None = None,
    *,
    skipna: bool = True,
    ddof: int = 0,
    chunks: Mapping[str, int] | None = None,
    overwrite: bool = False,
    memory: int = DEFAULT_MEMORY,
    engine: EngineOption = "threads",
    progress: Progress | bool = False,
) -> TransformReport:
    """Reduce an array along dimensions into a new array; nothing is committed.

    Stored values that equal the attribute ``_FillValue`` or ``missing_value`` are missing, and NaN is unless `skipna`
    is off; values with ``scale_factor`` or ``add_offset`` are unpacked first.  Chunks that were never written have the
    fill value of the array, like any cell.  Where all values are missing, the result is 0 of sums and counts, NaN of
    other floats, and the missing value of integers.

    Parameters
    ----------
    session
        A writable session.
    source
        Path of an array of integers, floats or booleans.
    target
        Path of the result, which is created with the remaining dimensions and attributes.
    function
        ``"mean"``, ``"sum"``, ``"min"``, ``"max"``, ``"std"``, ``"var"`` or ``"count"``.  Floats are summed in double
        precision, blocks with compensation, and results have their type; sums of integers are exact in 64 bits.
    dims
        Dimensions to reduce; all by default.
    skipna
        Whether NaN is left out.
    ddof
        Subtracted from the count in standard deviations and variances.
    chunks
        Sides of the chunks of the result by dimension; those of the source by default.
    overwrite
        Whether a node at `target` is replaced.
    memory
        Bytes of values that a task may hold, as far as a chunk is not larger.
    engine
        ``"threads"`` of this process, ``"spark"``, or an engine.
    progress
        True to show a progress bar (extra ``progress``), or a callable.  That is called with the count of finished
        tasks and the count of all.

    Raises
    ------
    InvalidInputError
        If the array, dimensions or function do not fit, an integer sum exceeds 64 bits, or there are no values.
    NodeNotFoundError
        If there is no such array.
    TransformError, TaskFailedError
        If a task failed for good.
    """
    began, report = time.perf_counter(), callback_of(progress)
    array, attributes, decoder = open_source(session, source)
    reducer = make_reducer(function, decoder.result_dtype, skipna=skipna, ddof=ddof, missing=_missing(decoder))
    plan = plan_reduction(array, dims, reducer.cell_bytes, chunks, memory)
    kept = numeric_attributes(attributes)
    if function in ("min", "max") and not decoder.is_packed:  # of the same values, so that the same ones are missing
        kept |= {name: attributes[name] for name in MISSING if name in attributes}
    if function in _METHODS:
        kept["cell_methods"] = _cell_methods(attributes, plan, _METHODS[function])
    else:
        kept.pop("units", None)
    with results_at(session, target):
        _create(session, target, plan, reducer.dtype, kept, overwrite)
        results = run_reduction(session, plan, decoder, reducer, target, transform_engine(engine), skipna, report)
    return results.report(target, time.perf_counter() - began)


@shows_progress("Counting")
def histogram(
    session: Session,
    source: str,
    target: str,
    edges: Sequence[float],
    dims: str | Sequence[str] | None = None,
    *,
    chunks: Mapping[str, int] | None = None,
    overwrite: bool = False,
    memory: int = DEFAULT_MEMORY,
    engine: EngineOption = "threads",
    progress: Progress | bool = False,
) -> TransformReport:
    """Count the values of an array between edges, along dimensions, into a new array; nothing is committed.

    The result has the dimension ``bin`` first, and the attribute ``bin_edges``, where infinite edges are the strings
    that JSON has no numbers for, ``"-Infinity"`` and ``"Infinity"``.  A bin includes its lower edge, and the
    last one its upper edge as well; values outside, NaN and missing values are not counted.

    Parameters
    ----------
    edges
        Edges of bins, in ascending order.
    session, source, target, dims, chunks, overwrite, memory, engine, progress
        As in `reduce_array`.

    Raises
    ------
    InvalidInputError, NodeNotFoundError, TransformError, TaskFailedError
        As `reduce_array`.
    """
    began, report = time.perf_counter(), callback_of(progress)
    array, attributes, decoder = open_source(session, source)
    marks = parse_edges(edges)
    reducer = Histogram(marks)
    plan = plan_reduction(array, dims, reducer.cell_bytes, chunks, memory)
    kept = {name: value for name, value in numeric_attributes(attributes).items() if name != "units"}
    kept["bin_edges"] = [mark if math.isfinite(mark) else f"{'-' * (mark < 0)}Infinity" for mark in marks]
    with results_at(session, target):
        _create(session, target, plan, reducer.dtype, kept, overwrite, leading=("bin", len(marks) - 1))
        results = run_reduction(
            session, plan, decoder, reducer, target, transform_engine(engine), True, report, leading=len(marks) - 1
        )
    return results.report(target, time.perf_counter() - began)


@shows_progress("Reducing")
def quantile(
    session: Session,
    source: str,
    target: str,
    quantiles: float | Sequence[float],
    dims: str | Sequence[str] | None = None,
    *,
    skipna: bool = True,
    chunks: Mapping[str, int] | None = None,
    overwrite: bool = False,
    memory: int = DEFAULT_MEMORY,
    engine: EngineOption = "threads",
    progress: Progress | bool = False,
) -> TransformReport:
    """Compute quantiles of an array along dimensions into a new array; nothing is committed.

    Along some dimensions they are exact, interpolated as numpy does, and a task holds all values of its cells.  Along
    all dimensions they come from a sketch of bounded size: exact up to some sixteen thousand values, and beyond that
    with a rank error that is bounded by the attribute ``quantile_rank_error`` of the result, a fraction of the count.

    Parameters
    ----------
    quantiles
        A number from 0 to 1, or several, which become the first dimension, ``quantile``.
    session, source, target, dims, skipna, chunks, overwrite, memory, engine, progress
        As in `reduce_array`.

    Raises
    ------
    InvalidInputError
        If quantiles are out of range, or memory does not hold the values of a cell: rechunk the array first.
    NodeNotFoundError, TransformError, TaskFailedError
        As `reduce_array`.
    """
    began, report = time.perf_counter(), callback_of(progress)
    array, attributes, decoder = open_source(session, source)
    several = isinstance(quantiles, Sequence)
    marks = parse_quantiles(quantiles)
    kept = numeric_attributes(attributes)
    dtype = decoder.result_dtype if decoder.result_dtype.kind == "f" else np.dtype("f8")
    runner = transform_engine(engine)
    leading = ("quantile", len(marks)) if several else None
    if several:
        kept["quantiles"] = list(marks)
    plan = plan_reduction(array, dims, 8 * len(marks), chunks, memory)
    if plan.kept:
        exact = plan.holding_all(memory)
        work = ExactQuantile(exact, decoder, target, skipna, marks, several)
        with results_at(session, target):
            _create(session, target, exact, dtype, kept, overwrite, leading=leading)
            results = run_quantiles(session, work, runner, report)
        return results.report(target, time.perf_counter() - began)
    sketch = QuantileSketch(marks, several)
    with results_at(session, target):
        _create(session, target, plan, dtype, kept, overwrite, leading=leading)
        results = run_reduction(
            session, plan, decoder, sketch, target, runner, skipna, report, leading=len(marks) if several else None,
            returned=True,
        )  # fmt: skip
        error = max((QuantileSketch.rank_error(parts) for parts in results.parts), default=0.0)
        open_for_writing(session, target).update_attributes({"quantile_rank_error": error})
    return results.report(target, time.perf_counter() - began)


def parse_edges(edges: Sequence[float]) -> tuple[float, ...]:
    """Check edges of bins; raise `InvalidInputError`."""
    marks = tuple(float(edge) for edge in edges)
    if len(marks) < 2 or not all(low < high for low, high in pairwise(marks)):
        raise InvalidInputError("edges must be at least two numbers in ascending order")
    return marks


def parse_quantiles(quantiles: float | Sequence[float]) -> tuple[float, ...]:
    """Check quantiles; raise `InvalidInputError`."""
    marks = tuple(float(each) for each in quantiles) if isinstance(quantiles, Sequence) else (float(quantiles),)
    if not marks or not all(0 <= mark <= 1 for mark in marks):
        raise InvalidInputError(f"quantiles={quantiles!r} must be numbers from 0 to 1")
    return marks


def open_for_writing(session: Session, path: str) -> Any:
    """Open an array of a session for writing."""
    import zarr

    return zarr.open_array(session.store, path=path.strip("/"), mode="r+")


class NumberSource(NamedTuple):
    """An array of numbers that is reduced."""

    array: ArrayShape
    attributes: dict[str, Any]
    decoder: NumberDecoder


def open_source(session: Session, source: str) -> NumberSource:
    """Return the shape of an array of numbers, its attributes, and its decoder; raise `InvalidInputError`."""
    check_writable_session(session)
    opened = open_array(session, source)
    array = shape_of(source.strip("/"), opened)
    attributes = {name: value for name, value in dict(opened.attrs).items() if name != "_ARRAY_DIMENSIONS"}
    mask = mask_of(opened)
    decoder = number_decoder(array.path, array.dtype, attributes, mask)
    if mask is not None and not np.isnan(mask):  # the result is of Zarr v3, where an attribute says so
        attributes["_FillValue"] = text_of_number(float(mask)) if array.dtype.kind == "f" else int(mask)
    return NumberSource(array, attributes, decoder)


def _missing(decoder: NumberDecoder) -> Any:
    return None if decoder.is_packed or not decoder.missing else decoder.missing[0]


def _cell_methods(attributes: Mapping[str, Any], plan: ReductionPlan, method: str) -> str:
    dims = ": ".join(plan.source.dims[axis] for axis in plan.reduced)
    return f"{attributes.get('cell_methods', '')} {dims}: {method}".strip()


def _create(
    session: Session,
    target: str,
    plan: ReductionPlan,
    dtype: np.dtype[Any],
    attributes: dict[str, Any],
    overwrite: bool,
    leading: tuple[str, int] | None = None,
) -> None:
    check_result(session, plan.source.path, target, overwrite=overwrite)
    name, size = leading or ("", 0)
    if leading and name in (plan.source.dims[axis] for axis in plan.kept):
        raise InvalidInputError(
            f"array {plan.source.path!r} has a dimension {name!r} of its own, which the result would have twice: "
            "reduce it as well, or rename it first"
        )
    front = () if leading is None else (size,)
    create_array(
        session, target, shape=(*front, *plan.kept_shape), dtype=dtype,
        dims=(*((name,) if leading else ()), *(plan.source.dims[axis] for axis in plan.kept)),
        chunks=(*front, *plan.chunks), fill_value=math.nan if dtype.kind == "f" else 0, attributes=attributes,
        overwrite=overwrite,
    )  # fmt: skip


__all__ = ["Reducer", "histogram", "quantile", "reduce_array"]
