"""Growth of arrays along a dimension for rows beyond their end.

All arrays of a group that have the dimension grow together, its coordinate gets the new labels, and the session records
the growth as an append: two jobs that append at the same time both commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zarr

from arraystore._format.types import Array, Bools
from arraystore._session.append import unique_of, with_unique
from arraystore._session.append_undo import all_or_none
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.spark.cf_time import cf_time_codec
from arraystore.spark.reading.opening import dimension_names
from arraystore.spark.spark_action import run_action
from arraystore.spark.writing.axes import Axis, Tolerance, check_apart, label_axis, read_coordinate
from arraystore.spark.writing.chunk_grid import NOWHERE
from arraystore.spark.writing.columns import (
    COUNTED,
    INTEGERS,
    INTERVAL,
    column_kind,
    microseconds,
    quoted,
    raw,
    times_of,
)
from arraystore.spark.writing.decimals import convert_decimals
from arraystore.spark.writing.planning import (
    DimensionColumnKinds,
    DimensionColumnNames,
    dimension_columns,
    for_dimension,
)
from arraystore.spark.writing.target_arrays import Target
from arraystore.transforms.number_conversion import convert_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

AppendLabels = Sequence[Any] | npt.NDArray[Any] | int


@dataclass(frozen=True)
class Growth:
    """Growth of arrays along a dimension."""

    dimension: str
    """Name of the dimension."""
    arrays: tuple[tuple[str, int], ...]
    """Paths of the arrays that have it, with their axis."""
    before: int
    after: int
    """Length along it."""
    coordinate: str | None = None
    """Path of the coordinate that gets new labels, if there are any."""
    labels: Array | None = None
    """New labels, in the type of the coordinate."""


class RowLabels(Protocol):
    """Rows whose labels are looked for."""

    @property
    def schema(self) -> StructType:
        """Columns of the rows."""
        ...

    def labels(self, column: str) -> pa.Array:
        """Return the distinct labels of a column."""
        ...

    def greatest(self, column: str) -> int | None:
        """Return the greatest index of a column; None if there are no rows."""
        ...

    def label_type(self, column: str) -> pa.DataType:
        """Return the type of labels."""
        ...


@dataclass(frozen=True)
class FrameLabels:
    """Labels of a DataFrame, which it is asked for."""

    df: DataFrame

    @property
    def schema(self) -> StructType:
        """Columns of the rows."""
        return self.df.schema

    def labels(self, column: str) -> pa.Array:
        """Return the distinct labels of a column."""
        frame = self.df.selectExpr(quoted(column)).distinct()
        return _collect(frame, f"find new labels in {column}").column(0).combine_chunks()

    def greatest(self, column: str) -> int | None:
        """Return the greatest index of a column; None if there are no rows."""
        frame = self.df.selectExpr(f"max({quoted(column)})")
        greatest = _collect(frame, f"find the end of {column}").column(0)[0].as_py()
        return None if greatest is None else int(greatest)

    def label_type(self, column: str) -> pa.DataType:
        """Return the type of labels."""
        return self.df.selectExpr(quoted(column)).limit(0).toArrow().schema.field(0).type


def find_growth(
    rows: RowLabels,
    session: Session,
    targets: Sequence[Target],
    dims: DimensionColumnNames | None,
    coords: DimensionColumnKinds,
    dimension: str,
    append_labels: AppendLabels | None,
    tolerance: Tolerance | Mapping[str, Tolerance] | None = None,
) -> Growth:
    """Return the growth that arrays need for rows to fit; what is within `tolerance` of a label is no new one."""
    first = targets[0]
    if dimension not in first.dimensions:
        raise InvalidInputError(
            f"{first.what} has no dimension {dimension!r} to append along; its dimensions are {list(first.dimensions)}"
        )
    axis = first.dimensions.index(dimension)
    column = dict(dimension_columns(first, dims))[dimension]
    before = int(first.array.shape[axis])
    arrays = _arrays(session, targets, dimension, before)
    if for_dimension(dimension, coords, "index") == "index":
        after = max(before, _length(rows, column, dimension, append_labels))
        _check_unlabelled(first.group, dimension, arrays, before, after)
        return Growth(dimension, arrays, before, after)
    values, attrs = read_coordinate(session.store, first.group, dimension, before)
    own = for_dimension(dimension, tolerance, None)
    axis_now = label_axis(rows.schema, dimension, column, values, attrs, own)
    labels = _new_labels(axis_now, _labels(rows, axis_now, append_labels), values, attrs)
    if own is not None:
        check_apart(label_axis(rows.schema, dimension, column, labels, attrs, own))
    path = f"{first.group}/{dimension}".strip("/")
    return Growth(dimension, arrays, before, before + len(labels), path, labels)


def _check_unlabelled(group: str, dimension: str, arrays: Sequence[tuple[str, int]], before: int, after: int) -> None:
    """Check that the coordinate of a dimension does not grow without labels."""
    coordinate = f"{group}/{dimension}".strip("/")
    if after > before and coordinate in {path for path, _ in arrays}:
        raise InvalidInputError(
            f"rows beyond the end of {dimension!r} need labels for its coordinate '/{coordinate}', not indices"
            f": pass coords={{{dimension!r}: 'label'}} and a column of labels"
        )


def _arrays(session: Session, targets: Sequence[Target], dimension: str, length: int) -> tuple[tuple[str, int], ...]:
    """Return the arrays of some groups that have a dimension; they must be of the same length along it."""
    arrays: list[tuple[str, int]] = []
    for group in sorted({target.group for target in targets}):
        for name, array in zarr.open_group(session.store, path=group, mode="r").arrays():
            names = dimension_names(array)
            if dimension not in names:
                continue
            path = f"{group}/{name}".strip("/")
            if array.shape[names.index(dimension)] != length:
                raise InvalidInputError(
                    f"array '/{path}' is {array.shape[names.index(dimension)]} long along {dimension!r}, and "
                    f"{targets[0].what} {length}: arrays that share a dimension grow together"
                )
            arrays.append((path, names.index(dimension)))
    return tuple(arrays)


def _length(rows: RowLabels, column: str, dimension: str, append_labels: AppendLabels | None) -> int:
    """Return the length that includes all indices of a column."""
    if append_labels is not None:
        if not isinstance(append_labels, int | np.integer):
            raise InvalidInputError("append_labels with coords='index' must be an integer, the new length")
        return int(append_labels)
    kind = column_kind(rows.schema, column, f"dimension {dimension!r}")
    if kind not in INTEGERS:
        return 0  # its type is checked with the columns
    greatest = rows.greatest(column)
    return 0 if greatest is None else greatest + 1


def _labels(rows: RowLabels, axis: Axis, append_labels: AppendLabels | None) -> pa.Array:
    """Return the distinct labels of rows as an Arrow array."""
    if append_labels is None:
        labels = rows.labels(axis.column)
    elif isinstance(append_labels, int | np.integer):
        raise InvalidInputError("append_labels with coords='label' must be labels, not a length")
    else:
        labels = _typed_labels(axis, append_labels, rows.label_type(axis.column))
    return labels.drop_null().unique()


def _typed_labels(axis: Axis, append_labels: Sequence[Any] | Array, wanted: pa.DataType) -> pa.Array:
    """Return passed labels in the type of the column that they are compared with."""
    labels = [_python_label(label) for label in append_labels]
    try:
        numbers = [label for label in labels if isinstance(label, int)]
        if axis.kind in COUNTED and numbers:  # would pass for microseconds
            raise pa.ArrowTypeError(f"{numbers[0]!r} is a number")
        return pa.array(labels).cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"append_labels cannot be compared with column {axis.column!r}: {error}; give values of type {wanted}"
        ) from error


def _python_label(label: Any) -> Any:
    """Return a label as a Python value; times that have none become integers, which are refused later."""
    if isinstance(label, np.datetime64 | np.timedelta64):
        with suppress(OverflowError, TypeError):  # out of range, or in units without a fixed length
            count = label.astype(f"{label.dtype.kind}8[us]")
            if np.isnat(label) or count == label:
                return count.item()
        return int(label.astype(np.int64))
    return label.item() if isinstance(label, np.generic) else label


def _collect(frame: DataFrame, description: str) -> pa.Table:
    return run_action(frame.sparkSession, frame.toArrow, description=description, tasks=1)


def _new_labels(axis: Axis, candidates: pa.Array, values: Array, attrs: Any) -> Array:
    """Return the labels that a coordinate does not have, in the order in which they continue it."""
    assert axis.labels is not None
    new = candidates.filter(pa.array(axis.indices(candidates) == NOWHERE))
    # Labels that differ in the type of the column may be one in that of the coordinate.
    labels = np.unique(_convert_labels(axis, _comparable_labels(axis, new), values, attrs))
    falling = len(values) > 1 and bool(values[-1] < values[0])
    if falling:
        labels = labels[::-1]
    if len(labels) and len(values):
        last = np.sort(values)[0 if falling else -1]
        if labels[0] > last if falling else labels[0] < last:
            raise InvalidInputError(
                f"the label {axis.column}={labels[0]!s} is not in the coordinate, and does not come after its last "
                f"one, {last!s}: an array grows only at its end"
            )
    return labels


def _comparable_labels(axis: Axis, labels: pa.Array) -> Array:
    """Return labels without nulls as NumPy arrays; decimals in the type in which they are looked up."""
    assert axis.labels is not None
    if axis.kind != "decimal":
        return raw(labels, axis.kind)
    converted = convert_decimals(labels, axis.labels.values.dtype)
    if converted.bad.any():
        bad = labels[int(np.flatnonzero(converted.bad)[0])].as_py()
        raise InvalidInputError(f"the label {axis.column}={bad} is not one that the coordinate can hold")
    return converted.values


def _convert_labels(axis: Axis, labels: Array, values: Array, attrs: Any) -> Array:
    """Return labels in the type of a coordinate; raise `InvalidInputError` if that changes them."""
    dtype = values.dtype
    if axis.kind not in COUNTED:
        stored, kept = _plain_labels(labels, dtype)
    elif dtype.kind in "Mm":
        converted = times_of(microseconds(labels, axis.kind), dtype)
        stored, kept = converted.values, ~converted.bad
    else:
        time_codec = cf_time_codec(f"coordinate {axis.column!r}", attrs)
        assert time_codec is not None
        stored, _, kept = time_codec.from_microseconds(microseconds(labels, axis.kind), dtype)
    if not np.all(kept):
        shown = _shown(axis, labels[np.flatnonzero(~np.asarray(kept))[0]])
        raise InvalidInputError(
            f"the label {axis.column}={shown!s} cannot be represented in {dtype}, the type of the coordinate"
        )
    return stored


def _shown(axis: Axis, label: Any) -> Any:
    """Return a label as errors show it."""
    if axis.kind not in COUNTED:
        return label
    count = int(microseconds(np.asarray(label), axis.kind))
    return timedelta(microseconds=count) if axis.kind == INTERVAL else np.datetime64(count, "us")


def _plain_labels(labels: Array, dtype: np.dtype[Any]) -> tuple[Array, Bools]:
    """Return numbers or strings in another type, and the mask of those that it holds."""
    if labels.dtype.kind in "iu":
        converted = convert_numbers(labels, dtype)
        return converted.values, ~converted.bad
    with np.errstate(all="ignore"):
        stored = labels.astype(dtype)
    if labels.dtype.kind == "f" and dtype == np.float32:  # labels are looked up as they would be stored
        return stored, np.isfinite(stored)
    with np.errstate(all="ignore"):
        return stored, stored.astype(labels.dtype) == labels


@contextmanager
def grow(session: Session, growth: Growth) -> Iterator[None]:
    """Grow arrays, and undo it if the block fails; nothing is committed before the block has ended."""
    if growth.after <= growth.before:
        yield
        return
    paths = [path for path, _ in growth.arrays]
    with session.append_lock, all_or_none(session.hierarchy, paths, growth.dimension):
        uniques = list(session.uniques)
        try:
            _resize(session, growth)
            _label(session, growth)
            yield
        except BaseException:
            session.uniques = uniques
            raise


def _label(session: Session, growth: Growth) -> None:
    """Write the new labels, which conflict with equal labels of others."""
    if growth.coordinate is None or growth.labels is None:
        return
    array = zarr.open_array(session.store, path=growth.coordinate, mode="r+")
    array[growth.before :] = growth.labels
    new = unique_of(session.hierarchy, growth.coordinate, growth.before, growth.labels)
    session.uniques = with_unique(session.uniques, new)


def _resize(session: Session, growth: Growth) -> None:
    with session.hierarchy.untracked(), session.appending(growth.dimension) as store:
        for path, axis in growth.arrays:
            array = zarr.open_array(store, path=path, mode="r+")
            array.resize(tuple(growth.after if number == axis else n for number, n in enumerate(array.shape)))
