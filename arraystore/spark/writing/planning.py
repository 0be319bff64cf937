"""Planning of writes, which checks before any task starts that rows of a schema fit the arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.spark.argument_checks import check_choice
from arraystore.spark.writing.axes import Axis, Tolerance, index_axis, label_axis, read_coordinate
from arraystore.spark.writing.chunk_assembler import Policy
from arraystore.spark.writing.columns import Lossy, column_kind, value_column
from arraystore.spark.writing.replaced_region import ReplaceWhere, find_region
from arraystore.spark.writing.target_arrays import Target, find_targets, grid_of
from arraystore.spark.writing.write_plan import OnNull, WritePlan

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DimensionColumnKinds = Literal["index", "label"] | Mapping[str, Literal["index", "label"]]
DimensionColumnNames = Sequence[str] | Mapping[str, str]
Partial = Literal["merge", "fill"]
OnDuplicate = Literal["error", "same"]


def plan_write(
    session: Session,
    schema: StructType,
    path: str | None,
    *,
    dims: DimensionColumnNames | None = None,
    value: str | None = None,
    values: Mapping[str, str] | Sequence[str] | None = None,
    coords: DimensionColumnKinds = "index",
    tolerance: Tolerance | Mapping[str, Tolerance] | None = None,
    partial: Partial = "merge",
    on_duplicate: OnDuplicate = "error",
    on_null: OnNull = "error",
    lossy: Lossy = "floats",
) -> WritePlan:
    """Plan a write, checking everything that does not depend on rows.

    The arguments are those of `write_dataframe`; no Spark session is needed.
    """
    check_choice("partial", partial, get_args(Partial))
    check_choice("on_null", on_null, get_args(OnNull))
    check_choice("lossy", lossy, ("floats", None, True, False))
    rounds: Lossy = bool(lossy) if lossy in (True, False) else "floats"
    choice: str = on_duplicate
    if choice == "last":
        raise InvalidInputError(
            "on_duplicate='last' would depend on the order in which a shuffle delivers rows; choose the row first "
            "(df.groupBy(*dims).agg(max_by(value, order))), or use 'same' if repeated rows have the same values"
        )
    check_choice("on_duplicate", on_duplicate, get_args(OnDuplicate))
    if value is None and values is None and path is not None:
        value = value_column_for(session.store, schema, path, dims)
    targets = find_targets(session.store, path, value, values)
    grid = grid_of(targets)
    columns = [
        value_column(schema, target.column, target.what, np.dtype(target.array.dtype), dict(target.array.attrs), rounds)
        for target in targets
    ]
    fills = tuple(_fill(target) for target in targets)
    policy = Policy(fill=partial == "fill", same=on_duplicate == "same")
    axes = _axes(session.store, schema, targets[0], dims, coords, tolerance)
    return WritePlan(tuple(target.path for target in targets), grid, axes, tuple(columns), fills, policy, on_null)


def plan_axes(
    session: Session,
    schema: StructType,
    path: str,
    *,
    dims: DimensionColumnNames | None = None,
    coords: DimensionColumnKinds = "index",
    tolerance: Tolerance | Mapping[str, Tolerance] | None = None,
) -> WritePlan:
    """Plan the places of rows, without values."""
    targets = find_targets(session.store, path, "", None)
    axes = _axes(session.store, schema, targets[0], dims, coords, tolerance)
    return WritePlan((targets[0].path,), grid_of(targets), axes, (), (), Policy())


def _fill(target: Target) -> Any:
    fill = target.array.fill_value
    dtype = np.dtype(target.array.dtype)
    if fill is None:
        return "" if dtype.kind in "TUO" else np.zeros((), dtype)[()]
    return fill


def value_column_for(store: Any, schema: StructType, path: str, dims: DimensionColumnNames | None) -> str:
    """Return the column of the values where none is named: that with the name of the array, or the only one left."""
    (target,) = find_targets(store, path, "", None)
    places = set[str]()
    for dimension, column in dimension_columns(target, dims):
        column_kind(schema, column, f"dimension {dimension!r}")  # there is such a column, and one alone
        places.add(column)
    rest = [name for name in schema.names if name not in places]
    name = target.path.rpartition("/")[2]
    if name in rest:
        return name
    if len(rest) != 1:
        shown = f"the columns {', '.join(map(repr, rest))}" if rest else "no column"
        raise InvalidInputError(
            f"give value=, the column that goes into {target.what}: beside the dimension columns {sorted(places)} the "
            f"DataFrame has {shown}"
        )
    return rest[0]


def dimension_columns(target: Target, dims: DimensionColumnNames | None) -> list[tuple[str, str]]:
    """Return the name of each dimension of an array with its column, which also names a nameless dimension."""
    names = target.dimensions
    if dims is None:
        named = [name for name in names if name is not None]
        if len(named) < len(names):
            raise InvalidInputError(
                f"{target.what} has dimensions without names, {list(names)}: name the dimension columns, one for each "
                "dimension of the array and in their order (dims=['time', 'lat', 'lon'])"
            )
        return [(name, name) for name in named]
    if isinstance(dims, str):
        raise InvalidInputError(f"dims={dims!r} must be a list of columns, one for each dimension")
    if isinstance(dims, Mapping):
        if None in names or set(dims) != set(names):
            raise InvalidInputError(f"dims names the dimensions {sorted(dims)}, and {target.what} has {list(names)}")
        return [(name, dims[name]) for name in names if name is not None]
    if len(dims) != len(names):
        raise InvalidInputError(
            f"dims={list(dims)!r} must name {len(names)} columns: one for each dimension of {target.what}"
        )
    if len(set(dims)) < len(dims):
        raise InvalidInputError(f"dims={list(dims)!r} names a column twice")
    if None not in names and set(dims) == set(names) and tuple(dims) != tuple(names):
        raise InvalidInputError(
            f"dims={list(dims)!r} are the dimensions of {target.what} in another order, {list(names)}: give the "
            "columns in the order of the array, or a dict {dimension: column} if that is intended"
        )
    return [(column if name is None else name, column) for name, column in zip(names, dims, strict=True)]


def for_dimension(name: str, choice: Any, default: Any) -> Any:
    """Return the choice for a dimension: its own, or that for all."""
    return choice.get(name, default) if isinstance(choice, Mapping) else choice


def check_dimensions(argument: str, choice: object, named: Sequence[tuple[str, str]]) -> None:
    """Check that a choice by dimension names existing dimensions; raise `InvalidInputError`."""
    if isinstance(choice, Mapping) and (unknown := set(choice) - {name for name, _ in named}):
        raise InvalidInputError(f"{argument} names {sorted(unknown)}; the dimensions are {[name for name, _ in named]}")


def _axes(
    store: Any,
    schema: StructType,
    target: Target,
    dims: DimensionColumnNames | None,
    coords: DimensionColumnKinds,
    tolerance: Tolerance | Mapping[str, Tolerance] | None,
) -> tuple[Axis, ...]:
    named = dimension_columns(target, dims)
    check_dimensions("coords", coords, named)
    check_dimensions("tolerance", tolerance, named)
    axes: list[Axis] = []
    for (name, column), size in zip(named, target.array.shape, strict=True):
        how = for_dimension(name, coords, "index")
        check_choice("coords", how, ("index", "label"))
        if how == "index":
            axes.append(index_axis(schema, name, column, size))
        else:
            labels, attrs = read_coordinate(store, target.group, name, size)
            axes.append(label_axis(schema, name, column, labels, attrs, for_dimension(name, tolerance, None)))
    if tolerance is not None and all(axis.labels is None for axis in axes):
        raise InvalidInputError("tolerance needs coords='label': indices are exact")
    return tuple(axes)


def with_region(
    session: Session, plan: WritePlan, dims: DimensionColumnNames | None, where: ReplaceWhere, partial: Partial
) -> WritePlan:
    """Return the plan for rows that replace a region whole."""
    if partial == "fill":
        raise InvalidInputError("partial='fill' empties whole chunks, replace_where its region: give one of them")
    (target,) = find_targets(session.store, plan.arrays[0], "", None)
    names = [name for name, _ in dimension_columns(target, dims)]
    by_label = {name: axis.labels is not None for name, axis in zip(names, plan.axes, strict=True)}
    return replace(plan, region=find_region(session, plan.arrays[0], plan.grid, by_label, where))
