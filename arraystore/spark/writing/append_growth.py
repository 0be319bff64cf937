"""Arrays that grow along a dimension because rows lie beyond their end.

All arrays of a group that have the dimension grow together, its coordinate gets the new labels, and the session notes
the growth as an append: two jobs that append at the same time both commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import zarr

from arraystore._session.append import unique_of, with_unique
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.spark.cf_time import cf_time_codec
from arraystore.spark.spark_action import run_action
from arraystore.spark.writing.axes import Axis, label_axis, read_coordinate
from arraystore.spark.writing.chunk_grid import NOWHERE
from arraystore.spark.writing.columns import INTEGERS, TIMES, column_kind, microseconds, quoted, raw
from arraystore.spark.writing.planning import Coords, Dims, dimension_columns, for_dimension
from arraystore.spark.writing.target_arrays import Target, dimensions_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["AppendLabels", "Growth", "find_growth", "grown"]

Array = npt.NDArray[Any]
AppendLabels = Sequence[Any] | npt.NDArray[Any] | int


@dataclass(frozen=True)
class Growth:
    """What is to grow.

    Parameters
    ----------
    dimension
        Name of the dimension.
    arrays
        Paths of the arrays that have it, with their axis.
    before, after
        Length along it.
    coordinate
        Path of the coordinate that gets new labels, if there are any.
    labels
        New labels, as the coordinate holds them.
    """

    dimension: str
    arrays: tuple[tuple[str, int], ...]
    before: int
    after: int
    coordinate: str | None = None
    labels: Array | None = None


def find_growth(
    df: DataFrame,
    session: Session,
    targets: Sequence[Target],
    dims: Dims,
    coords: Coords,
    dimension: str,
    given: AppendLabels | None,
) -> Growth:
    """Return how far arrays must grow for rows to fit.

    Parameters
    ----------
    dimension
        Name of the dimension.
    given
        Labels that rows may have, or, for indices, the length that it takes; None to look through the rows for it.

    Raises
    ------
    InvalidInputError
        If the arrays cannot grow so.
    """
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
        after = max(before, _length(df, column, dimension, given))
        _check_unlabelled(first.group, dimension, arrays, before, after)
        return Growth(dimension, arrays, before, after)
    values, attrs = read_coordinate(session.store, first.group, dimension, before)
    known = label_axis(df.schema, dimension, column, values, attrs, None)
    labels = _new_labels(known, _labels(df, known, given), values, attrs)
    path = f"{first.group}/{dimension}".strip("/")
    return Growth(dimension, arrays, before, before + len(labels), path, labels)


def _check_unlabelled(group: str, dimension: str, arrays: Sequence[tuple[str, int]], before: int, after: int) -> None:
    """Check that no coordinate would grow by labels that nobody tells."""
    coordinate = f"{group}/{dimension}".strip("/")
    if after > before and coordinate in {path for path, _ in arrays}:
        raise InvalidInputError(
            f"rows beyond the end of {dimension!r} need labels for its coordinate '/{coordinate}', and indices are none"
            f": pass coords={{{dimension!r}: 'label'}} and a column of labels"
        )


def _arrays(session: Session, targets: Sequence[Target], dimension: str, length: int) -> tuple[tuple[str, int], ...]:
    """Return the arrays of some groups that have a dimension; they must be of the same length along it."""
    found: list[tuple[str, int]] = []
    for group in sorted({target.group for target in targets}):
        for name, array in zarr.open_group(session.store, path=group, mode="r").arrays():
            names = dimensions_of(array)
            if dimension not in names:
                continue
            path = f"{group}/{name}".strip("/")
            if array.shape[names.index(dimension)] != length:
                raise InvalidInputError(
                    f"array '/{path}' is {array.shape[names.index(dimension)]} long along {dimension!r}, and "
                    f"{targets[0].what} {length}: arrays that share a dimension grow together"
                )
            found.append((path, names.index(dimension)))
    return tuple(found)


def _length(df: DataFrame, column: str, dimension: str, given: AppendLabels | None) -> int:
    """Return the length that takes in all indices of a column."""
    if given is not None:
        if not isinstance(given, int | np.integer):
            raise InvalidInputError("append_labels with coords='index' is the new length, one number")
        return int(given)
    kind = column_kind(df.schema, column, f"dimension {dimension!r}")
    if kind not in INTEGERS:
        return 0  # what is wrong with it is told where columns are checked
    frame = df.selectExpr(f"max({quoted(column)})")
    greatest = _looked_through(frame, f"find the end of {dimension}").column(0)[0].as_py()
    return 0 if greatest is None else int(greatest) + 1


def _labels(df: DataFrame, axis: Axis, given: AppendLabels | None) -> pa.Array:
    """Return the distinct labels of rows, as Arrow has them."""
    frame = df.selectExpr(quoted(axis.column))
    if given is None:
        found = _looked_through(frame.distinct(), f"find new labels in {axis.column}").column(0).combine_chunks()
    elif isinstance(given, int | np.integer):
        raise InvalidInputError("append_labels with coords='label' are labels, not a length")
    else:
        wanted = frame.limit(0).toArrow().schema.field(0).type
        found = _given_labels(axis, given, wanted)
    return found.drop_null().unique()


def _given_labels(axis: Axis, given: Sequence[Any] | Array, wanted: pa.DataType) -> pa.Array:
    """Return labels that were given in the type of the column that they are compared with."""
    import pyarrow as pa

    labels = [_plain(label) for label in given]
    try:
        found = pa.array(labels)
        if axis.kind in TIMES and pa.types.is_integer(found.type):  # would pass for microseconds since 1970
            raise pa.ArrowTypeError(f"{labels[0]!r} is a number")
        return found.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"append_labels cannot be compared with column {axis.column!r}: {error}; give values of type {wanted}"
        ) from error


def _plain(label: Any) -> Any:
    """Return a label as Python has it; what Python cannot tell of an instant is refused as a number is."""
    if isinstance(label, np.datetime64):
        told = label.astype("M8[us]")
        return told.item() if told == label or np.isnat(label) else label.item()
    return label.item() if isinstance(label, np.generic) else label


def _looked_through(frame: DataFrame, description: str) -> pa.Table:
    return run_action(frame.sparkSession, frame.toArrow, description=description, tasks=1)


def _new_labels(axis: Axis, found: pa.Array, values: Array, attrs: Any) -> Array:
    """Return the labels that a coordinate does not have, in the order in which they continue it."""
    assert axis.labels is not None
    new = found.filter(_mask(axis.indices(found) == NOWHERE))
    told, _ = raw(new, axis.kind)
    labels = _stored(axis, np.asarray(told), values, attrs)
    labels = labels[np.argsort(labels, kind="stable")]
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


def _mask(values: npt.NDArray[np.bool_]) -> Any:
    import pyarrow as pa

    return pa.array(values)


def _stored(axis: Axis, labels: Array, values: Array, attrs: Any) -> Array:
    """Return labels in the type of a coordinate; raises `InvalidInputError` where that changes them."""
    dtype = values.dtype
    if axis.kind not in TIMES:
        with np.errstate(all="ignore"):
            found = labels.astype(dtype)
        kept = found.astype(labels.dtype) == labels if dtype != np.float32 else np.isfinite(found)
    elif dtype.kind == "M":
        instants = microseconds(labels, axis.kind).view("M8[us]")
        found = instants.astype(dtype)
        kept = found.astype("M8[us]") == instants
    else:
        time_codec = cf_time_codec(f"coordinate {axis.column!r}", attrs)
        assert time_codec is not None
        found, kept = time_codec.from_microseconds(microseconds(labels, axis.kind), dtype)
    if not np.all(kept):
        bad = labels[np.flatnonzero(~np.asarray(kept))[0]]
        shown = np.datetime64(int(microseconds(np.asarray(bad), axis.kind)), "us") if axis.kind in TIMES else bad
        raise InvalidInputError(
            f"the label {axis.column}={shown!s} cannot be told in {dtype}, which the coordinate holds"
        )
    return found


@contextmanager
def grown(session: Session, growth: Growth) -> Iterator[None]:
    """Let arrays grow; if what is done within the block fails, they are as long as before."""
    if growth.after <= growth.before:
        yield
        return
    clean = not session.has_uncommitted_changes and not session.has_forks
    uniques = list(session.uniques)
    try:
        _resize(session, growth, growth.after)
        if growth.coordinate is not None and growth.labels is not None:
            array = zarr.open_array(session.store, path=growth.coordinate, mode="r+")
            array[growth.before :] = growth.labels
            new = unique_of(session.hierarchy, growth.coordinate, growth.before, growth.labels)
            session.uniques = with_unique(session.uniques, new)
        yield
    except BaseException:
        if clean:
            session.discard_changes()
        else:
            _resize(session, growth, growth.before)
        session.uniques = uniques
        raise


def _resize(session: Session, growth: Growth, length: int) -> None:
    with session.hierarchy.untracked(), session.appending(growth.dimension) as store:
        for path, axis in growth.arrays:
            array = zarr.open_array(store, path=path, mode="r+")
            array.resize(tuple(length if number == axis else n for number, n in enumerate(array.shape)))
