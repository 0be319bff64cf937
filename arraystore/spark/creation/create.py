"""Creating the arrays and coordinates that rows are written to, if they are missing.

Everything is created in the session, so that it is committed with the data; if the write fails it is taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import zarr

from arraystore._format.node import ancestors
from arraystore._session.append_undo import all_or_none
from arraystore._session.keys import check_key, join
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.spark.argument_checks import check_choice
from arraystore.spark.creation.chunk_choice import choose_chunks, chunks_by_dimension
from arraystore.spark.creation.distinct_labels import distinct_labels
from arraystore.spark.creation.new_arrays import CreatedArray, NewArrays
from arraystore.spark.creation.new_coordinates import NewCoordinate, new_coordinate, passed_coordinate
from arraystore.spark.creation.new_variables import NewVariable, attributes_of, new_variable
from arraystore.spark.reading.opening import dimension_names
from arraystore.spark.writing.axes import Tolerance, check_apart, label_axis
from arraystore.spark.writing.columns import INTEGERS, column_kind
from arraystore.spark.writing.planning import DimensionColumnKinds, DimensionColumnNames, for_dimension

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

FindLabels = Any
"""Function that returns the labels of columns; see `distinct_labels`."""


@dataclass(frozen=True)
class MissingArrays:
    """Arrays that a write needs and that do not exist, and what their group has already."""

    group: str
    """Path of the group."""
    variables: tuple[NewVariable, ...]
    """Variables to create."""
    columns: Mapping[str, str]
    """Columns of all arrays that are written to, by path."""
    dims: Mapping[str, str]
    """Dimensions and their columns, in the order of the arrays."""
    kinds: Mapping[str, str]
    """``"index"`` or ``"label"`` by dimension."""
    sizes: Mapping[str, int]
    """Lengths of the dimensions that the group has."""
    siblings: Mapping[tuple[str, ...], tuple[int, ...]]
    """Chunks of the arrays of the group by their dimensions."""
    tolerance: Tolerance | Mapping[str, Tolerance] | None = None
    """Largest distance of a value from its label, for all dimensions or by dimension."""


def find_missing(
    session: Session,
    schema: StructType,
    path: str | None,
    choice: NewArrays,
    *,
    dims: DimensionColumnNames | None,
    value: str | None,
    values: Mapping[str, str] | Sequence[str] | None,
    coords: DimensionColumnKinds,
    tolerance: Tolerance | Mapping[str, Tolerance] | None = None,
) -> MissingArrays | None:
    """Return the arrays to create, None if all exist; raise `InvalidInputError` if they cannot be created."""
    named = _named_dims(dims)
    columns = _columns_of(schema, path, value, values, named)
    missing = {where: column for where, column in columns.items() if not _exists(session, where)}
    if not missing:
        return None
    groups = {where.rpartition("/")[0] for where in columns}
    if len(groups) > 1:
        raise InvalidInputError(f"arrays of several groups cannot be created together: {sorted(groups)}")
    (group,) = groups
    _check_group(session, group)
    _check_names(group, named, [where.rpartition("/")[2] for where in missing])
    sizes, siblings = _group_dimensions(session, group, named)
    kinds = {name: for_dimension(name, coords, "index") for name in named}
    for kind in kinds.values():
        check_choice("coords", kind, ("index", "label"))
    variables = tuple(new_variable(schema, where, column, choice) for where, column in missing.items())
    _check_mentioned(choice, named, columns)
    return MissingArrays(group, variables, columns, named, kinds, sizes, siblings, tolerance)


def _named_dims(dims: DimensionColumnNames | None) -> dict[str, str]:
    """Return the columns of dimensions by their names."""
    if dims is None or isinstance(dims, str) or not dims:
        raise InvalidInputError("arrays are created with dims, the dimension columns in order: dims=['time', 'lat']")
    named = dict(dims) if isinstance(dims, Mapping) else dict(zip(dims, dims, strict=True))
    if len(named) < len(dims) or len(set(named.values())) < len(named):
        raise InvalidInputError(f"dims={dims!r} names a dimension or a column twice")
    return named


def _columns_of(
    schema: StructType,
    path: str | None,
    value: str | None,
    values: Mapping[str, str] | Sequence[str] | None,
    dims: Mapping[str, str],
) -> dict[str, str]:
    """Return the columns of values by the paths of their arrays."""
    where = (path or "").strip("/")
    if value is not None and values is not None:
        raise InvalidInputError("give value=column for one array, or values={array: column} for arrays of a group")
    if values is not None:
        named = values if isinstance(values, Mapping) else {name: name for name in values}
        return {f"{where}/{name.strip('/')}".strip("/"): column for name, column in named.items()}
    if value is None:
        rest = [name for name in schema.names if name not in dims.values()]
        own = where.rpartition("/")[2]
        if own not in rest and len(rest) != 1:
            raise InvalidInputError(f"give value=, the column that goes into array '/{where}': there is {rest}")
        value = own if own in rest else rest[0]
    return {where: value}


def _exists(session: Session, path: str) -> bool:
    return _open(session, path) is not None  # if it is a group, the plan of the write says so


def _open(session: Session, path: str) -> zarr.Array[Any] | zarr.Group | None:
    try:
        return zarr.open(session.store, path=path, mode="r")
    except FileNotFoundError:
        return None


def _check_group(session: Session, group: str) -> None:
    """Check that arrays can be created in a group: neither it nor anything above it is an array."""
    for path in _groups(group):
        if isinstance(_open(session, path), zarr.Array):
            raise InvalidInputError(
                f"'/{path}' is an array, and arrays are created in groups: name the path of a group with values="
            )


def _check_names(group: str, dims: Mapping[str, str], variables: Sequence[str]) -> None:
    """Check names, which come from columns: each must be one part of a path, and none be reserved."""
    for name in (*dims, *variables):
        if not isinstance(name, str) or not name or "/" in name or name.startswith(("__", ".")) or name == "zarr.json":
            raise InvalidInputError(
                f"{name!r} cannot be the name of an array or a dimension: names are not empty, have no '/', do not "
                "begin with '.' or '__', and are not 'zarr.json'; rename it with a dict {name: column}"
            )
        check_key(f"{group}/{name}".strip("/"))
    if both := set(dims) & set(variables):
        raise InvalidInputError(f"{sorted(both)} would be both variables and dimensions: name one of them otherwise")


def _check_mentioned(choice: NewArrays, dims: Mapping[str, str], columns: Mapping[str, str]) -> None:
    """Check that choices by name are for names that there are."""
    variables = {where.rpartition("/")[2] for where in columns}
    chunks = set(choice.chunks) if isinstance(choice.chunks, Mapping) else set[str]()
    for argument, names, known in (
        ("chunks", chunks, set(dims)),
        ("labels", set(choice.labels), set(dims)),
        ("units", set(choice.units), {*dims, *variables}),
        ("attributes", set(choice.attributes), {*dims, *variables}),
        ("fill_values", set(choice.fill_values), variables),
    ):
        if unknown := names - known:
            raise InvalidInputError(f"{argument} names {sorted(unknown)}; there is {sorted(known)}")


def _group_dimensions(
    session: Session, group: str, dims: Mapping[str, str]
) -> tuple[dict[str, int], dict[tuple[str, ...], tuple[int, ...]]]:
    """Return the lengths of dimensions that arrays of a group have, and the chunks of arrays by their dimensions."""
    sizes: dict[str, int] = {}
    siblings: dict[tuple[str, ...], tuple[int, ...]] = {}
    try:
        opened = zarr.open_group(session.store, path=group, mode="r")
    except FileNotFoundError:
        return sizes, siblings
    for _, array in sorted(opened.arrays()):
        names = tuple(name or "" for name in dimension_names(array))
        for name, size in zip(names, array.shape, strict=True):
            if name in dims and sizes.setdefault(name, size) != size:
                raise InvalidInputError(
                    f"dimension {name!r} has {sizes[name]} positions in one array of group '/{group}' and {size} in "
                    f"{array.path!r}: a new array cannot share it"
                )
        try:
            siblings.setdefault(names, tuple(array.shards or array.chunks))
        except NotImplementedError:
            continue  # chunks of several sizes
    return sizes, siblings


@contextmanager
def created(
    session: Session, missing: MissingArrays, choice: NewArrays, coordinates: Mapping[str, NewCoordinate | int],
    append_dim: str | None,
) -> Iterator[tuple[CreatedArray, ...]]:  # fmt: skip
    """Create arrays, and take that back if the block fails; nothing is committed before the block has ended."""
    with all_or_none(session.hierarchy, _new_paths(session, missing, coordinates), append_dim):
        yield _create(session, missing, choice, coordinates, append_dim)


def _new_paths(session: Session, missing: MissingArrays, coordinates: Mapping[str, NewCoordinate | int]) -> list[str]:
    """Return the paths of the groups and arrays that are made, groups first."""
    labelled = [name for name, coordinate in coordinates.items() if isinstance(coordinate, NewCoordinate)]
    arrays = [*(join(missing.group, name) for name in labelled), *(variable.path for variable in missing.variables)]
    paths = [*_groups(missing.group), *arrays]
    return [path for path in paths if session.hierarchy.node(path) is None]


def _groups(path: str) -> list[str]:
    """Return the paths of a group and of those above it, the root first."""
    return [*reversed(list(ancestors(path))), path]


def find_coordinates(
    missing: MissingArrays, schema: StructType, choice: NewArrays, find_labels: FindLabels
) -> Mapping[str, NewCoordinate | int]:
    """Return labels, or the length, for each dimension that the group does not have; empty if there are no rows."""
    new = {name: column for name, column in missing.dims.items() if name not in missing.sizes}
    wanted = {name: column for name, column in new.items() if name not in choice.labels}
    for name, column in new.items():
        _check_column(schema, name, column, missing.kinds[name])
    labelled = [column for name, column in wanted.items() if missing.kinds[name] == "label"]
    indexed = [column for name, column in wanted.items() if missing.kinds[name] == "index"]
    found: Mapping[str, pa.Array] = find_labels(labelled, indexed, choice.most_labels) if wanted else {}
    made = {name: _coordinate(missing, schema, choice, name, found.get(column)) for name, column in new.items()}
    empty = any(not (each if isinstance(each, int) else len(each)) for name, each in made.items() if name in wanted)
    return {} if empty else made


def lack_labels(missing: MissingArrays, coordinates: Mapping[str, NewCoordinate | int]) -> bool:
    """Tell whether nothing was found of which a dimension could be made."""
    return coordinates.keys() | missing.sizes.keys() < missing.dims.keys()


def no_place_error(missing: MissingArrays) -> InvalidInputError:
    """Return the error for rows of which none has a place along some dimension: they must not be lost as if none."""
    names = ", ".join(repr(name) for name in missing.dims if name not in missing.sizes)
    columns = ", ".join(repr(column) for name, column in missing.dims.items() if name not in missing.sizes)
    return InvalidInputError(
        f"no row has a place along dimension {names} of the new arrays: all values of column {columns} (or of one of "
        "them) are null or negative. Nothing was written"
    )


def _check_column(schema: StructType, dimension: str, column: str, how: str) -> None:
    kind = column_kind(schema, column, f"dimension {dimension!r}")
    if how == "index" and kind not in INTEGERS:
        raise InvalidInputError(
            f"column {column!r} of dimension {dimension!r} is of type {kind}, and coords='index' takes integers; use "
            "coords='label' if it holds values of the coordinate"
        )
    if how == "label":  # refuses types that cannot be labels
        empty = pa.array([], {"date": pa.date32(), "timestamp": pa.timestamp("us")}.get(kind.removesuffix("_ntz")))
        new_coordinate(dimension, kind, empty, None)


def _coordinate(
    missing: MissingArrays, schema: StructType, choice: NewArrays, name: str, found: pa.Array | None
) -> NewCoordinate | int:
    passed = choice.labels.get(name)
    if missing.kinds[name] == "index":
        if passed is None:
            return max(0, max((int(value) for value in (found or pa.array([])).to_pylist()), default=-1) + 1)
        if type(passed) is not int or passed < 0:
            raise InvalidInputError(f"labels[{name!r}] must be a length >= 0, because its column holds indices")
        return passed
    column = missing.dims[name]
    kind = column_kind(schema, column, f"dimension {name!r}")
    units = choice.units.get(name)
    if passed is not None:
        labels = passed_coordinate(name, kind, passed, units)
    else:
        assert found is not None
        labels = new_coordinate(name, kind, found, units)
        tolerance = for_dimension(name, missing.tolerance, None)
        if tolerance is not None:
            check_apart(label_axis(schema, name, column, labels.labels, labels.attributes, tolerance))
    field = next(field for field in schema.fields if field.name == column)
    attributes = {**attributes_of(field, choice.attributes.get(name, {})), **labels.attributes}
    return NewCoordinate(labels.labels, attributes)


def _create(
    session: Session, missing: MissingArrays, choice: NewArrays, coordinates: Mapping[str, NewCoordinate | int],
    append_dim: str | None,
) -> tuple[CreatedArray, ...]:  # fmt: skip
    """Create coordinates and variables."""
    sizes = {name: n if isinstance(n, int) else len(n) for name, n in coordinates.items()} | dict(missing.sizes)
    dims = tuple(missing.dims)
    shape = tuple(sizes[name] for name in dims)
    chunks = _chunks(missing, choice, shape)
    _make_groups(session, missing.group)
    created: list[CreatedArray] = []
    for name, side in zip(dims, chunks, strict=True):
        coordinate = coordinates.get(name)
        if isinstance(coordinate, NewCoordinate):
            # Jobs that append at the same time both commit if none of them rewrites a chunk of the coordinate.
            length = side if name == append_dim else max(1, len(coordinate))
            path = f"{missing.group}/{name}".strip("/")
            created.append(_make_coordinate(session, path, name, coordinate, length))
    for variable in missing.variables:
        array = _make_array(
            session, variable.path, shape=shape, chunks=chunks, dtype=variable.dtype, fill_value=variable.fill,
            dimension_names=dims, attributes=dict(variable.attributes), **choice.options,
        )  # fmt: skip
        created.append(_describe(array, variable.path))
    return tuple(created)


def _chunks(missing: MissingArrays, choice: NewArrays, shape: Sequence[int]) -> tuple[int, ...]:
    dims = tuple(missing.dims)
    chosen = chunks_by_dimension(choice, dims)
    if not chosen and dims in missing.siblings and "shards" not in choice.options:
        return missing.siblings[dims]
    cell_bytes = max(variable.cell_bytes for variable in missing.variables)
    return choose_chunks(shape, dims, chosen, cell_bytes, choice.chunk_bytes)


def _make_groups(session: Session, group: str) -> None:
    """Create missing groups above the arrays."""
    for path in _groups(group):
        if not _exists(session, path):
            zarr.open_group(session.store, path=path, mode="a")


def _make_coordinate(session: Session, path: str, name: str, coordinate: NewCoordinate, chunk: int) -> CreatedArray:
    labels = coordinate.labels
    dtype: Any = str if labels.dtype.kind == "O" else labels.dtype
    array = _make_array(
        session, path, shape=labels.shape, chunks=(chunk,), dtype=dtype, dimension_names=(name,),
        attributes=dict(coordinate.attributes),
    )  # fmt: skip
    array[...] = np.array(labels.tolist(), dtype=array.dtype) if dtype is str else labels
    return _describe(array, path)


def _make_array(session: Session, path: str, **arguments: Any) -> zarr.Array[Any]:
    try:
        return zarr.create_array(session.store, name=path, **arguments)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"array '/{path}' cannot be created: {error}") from error


def _describe(array: zarr.Array[Any], path: str) -> CreatedArray:
    return CreatedArray(path, tuple(array.shape), tuple(array.chunks), str(array.dtype))


@contextmanager
def create_missing(
    df: DataFrame,
    session: Session,
    path: str | None,
    choice: NewArrays,
    *,
    append_dim: str | None,
    **named: Any,
) -> Iterator[tuple[CreatedArray, ...] | None]:
    """Create the arrays that rows need and that are missing; yield None if there are no rows to make them from."""
    missing = find_missing(session, df.schema, path, choice, **named)
    if missing is None:
        yield ()
        return

    def find_labels(labelled: Sequence[str], indexed: Sequence[str], most: int) -> Mapping[str, pa.Array]:
        return distinct_labels(df, labelled, indexed, most)

    coordinates = find_coordinates(missing, df.schema, choice, find_labels)
    if lack_labels(missing, coordinates):
        if not df.isEmpty():
            raise no_place_error(missing)
        yield None
        return
    with created(session, missing, choice, coordinates, append_dim) as made:
        yield made


def reserved_values(session: Session, paths: Sequence[str]) -> tuple[int | None, ...]:
    """Return the integer by which each array marks that there is no value; None if it has none."""
    arrays = (zarr.open_array(session.store, path=path, mode="r") for path in paths)
    fills = [array.attrs.get("_FillValue") if array.dtype.kind in "iu" else None for array in arrays]
    return tuple(fill if type(fill) is int else None for fill in fills)
