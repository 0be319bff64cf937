"""Choices for arrays that a write makes, and the description of those that it has made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from arraystore.errors import InvalidInputError
from arraystore.spark.argument_checks import check_count

CHUNK_BYTES = 8 << 20
MOST_LABELS = 1_000_000


@dataclass(frozen=True)
class NewArrays:
    """Choices for the arrays and coordinates that `write_dataframe` creates.

    Parameters
    ----------
    chunks
        Shape of chunks: a tuple, a dict by dimension, or ``"auto"``.  What is not chosen is that of an array of the
        group with the same dimensions, else such that a chunk takes up to `chunk_bytes` and its sides are of about the
        same length in cells.
    chunk_bytes
        Size of chunks that are chosen, in bytes before compression.
    labels
        Labels of dimensions in the order of the array, or with ``coords="index"`` their lengths.  Dimensions without
        an entry get the distinct labels of the rows in ascending order, or the greatest index + 1, which takes a pass
        over the frame.
    units
        CF units of coordinates and variables of times, by name: ``"hours since 2000-01-01"``.  By default dates are
        days, other times in coordinates seconds, or the coarsest finer unit that holds all labels, and in variables
        microseconds, since 1970-01-01.
    fill_values
        Fill values by the name of the array.  By default NaN for floats, the least (unsigned: greatest) value
        for integers and times of columns that are nullable, which is then also their ``_FillValue``, and else 0, False
        or the empty string.
    attributes
        Attributes by the name of the array or coordinate, in addition to the metadata of the column.
    most_labels
        Most distinct labels of all dimensions together; more are an error, because the driver holds them in memory.
    options
        Further arguments of `zarr.create_array` for all variables, such as ``compressors`` and ``shards``.
    """

    chunks: Literal["auto"] | Sequence[int] | Mapping[str, int] = "auto"
    chunk_bytes: int = CHUNK_BYTES
    labels: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    fill_values: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    most_labels: int = MOST_LABELS
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_count("chunk_bytes", self.chunk_bytes)
        check_count("most_labels", self.most_labels)
        if isinstance(self.chunks, str) and self.chunks != "auto":
            raise InvalidInputError(f"chunks={self.chunks!r} must be 'auto', a tuple, or a dict by dimension")
        sizes = self.chunks.values() if isinstance(self.chunks, Mapping) else self.chunks
        for size in () if isinstance(sizes, str) else sizes:
            check_count("chunks", size)
        taken = {"store", "name", "shape", "chunks", "dtype", "data", "fill_value", "dimension_names", "attributes"}
        if taken & set(self.options):
            raise InvalidInputError(
                f"options must not have {sorted(taken & set(self.options))}: the frame decides them"
            )


@dataclass(frozen=True, slots=True)
class CreatedArray:
    """An array that a write has created.

    Parameters
    ----------
    path
        Path of the array.
    shape, chunks
        In cells.
    dtype
        Type of the values.
    """

    path: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.path} {self.dtype}{list(self.shape)} in chunks of {list(self.chunks)}"


def new_arrays(create: bool | NewArrays) -> NewArrays | None:
    """Return the choices that an argument `create` stands for; None if nothing may be created."""
    if isinstance(create, NewArrays):
        return create
    if not isinstance(create, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"create={create!r} must be True, False or a NewArrays")
    return NewArrays() if create else None
