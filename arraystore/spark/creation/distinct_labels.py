"""Distinct labels of the dimension columns of a frame, in one pass and in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from arraystore.errors import InvalidInputError
from arraystore.spark.errors import marked_errors
from arraystore.spark.spark_action import map_in_arrow, run_action
from arraystore.spark.writing.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LONGEST_LABEL = 1024
"""Bytes of the longest label that is a string."""

_MOST_TASKS = 100_000
"""Tasks whose greatest indices are collected; a lost one would leave rows outside of the array, which is an error."""

_AT_LEAST = 10_000
"""Labels that are collected before they are made distinct."""


def distinct_labels(
    df: DataFrame, labelled: Sequence[str], indexed: Sequence[str], most: int
) -> Mapping[str, pa.Array]:
    """Return the distinct values of columns of labels, and the greatest one of columns of indices; no nulls.

    Raises `InvalidInputError` if there are more than `most` labels, or a longer one than `LONGEST_LABEL`.
    """
    from pyspark.sql.types import IntegerType, StructField, StructType

    columns = [*labelled, *indexed]
    if not columns:
        return {}
    types = [StructField(f"c{number}", df.schema[column].dataType) for number, column in enumerate(columns)]
    frame = df.selectExpr(*(f"{quoted(column)} AS c{number}" for number, column in enumerate(columns)))

    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with marked_errors():
            labels = LabelScan(tuple(columns), len(labelled), most)
            for batch in batches:
                labels.take(batch.columns)
            yield from labels.batches()

    rows = map_in_arrow(frame, scan, StructType([StructField("column", IntegerType()), *types]))
    rows = rows.distinct().limit(most + 1 + len(indexed) * _MOST_TASKS)
    table = run_action(df.sparkSession, rows.toArrow, description="find the labels of new arrays", tasks=1)
    return labels_by_column(table, columns, len(labelled), most)


def labels_by_column(table: pa.Table, columns: Sequence[str], labelled: int, most: int) -> dict[str, pa.Array]:
    """Return the labels of each column in rows of `LabelScan`; raise `InvalidInputError` if there are too many."""
    numbers = table.column(0).combine_chunks()
    found: dict[str, pa.Array] = {}
    for number, column in enumerate(columns):
        mask = pc.call_function("equal", [numbers, pa.scalar(number, pa.int32())])
        found[column] = table.column(1 + number).combine_chunks().filter(mask)
    counts = {column: len(found[column]) for column in columns[:labelled]}
    if sum(counts.values()) > most:
        shown = ", ".join(f"{column!r}: {count:,}" for column, count in counts.items())
        raise InvalidInputError(
            f"the columns of dimensions have more than {most:,} distinct labels (found until then: {shown}): if these "
            "are the right columns, pass the labels (create=NewArrays(labels={...})), or raise most_labels"
        )
    return found


class LabelScan:
    """Distinct labels of columns, of which the first ones hold labels and the others indices."""

    def __init__(self, columns: tuple[str, ...], labelled: int, most: int) -> None:
        self.columns = columns
        self._labelled = labelled
        self._most = most
        self._seen = [_Seen() for _ in columns]
        self._types: list[pa.DataType] = []

    def take(self, arrays: Sequence[pa.Array]) -> None:
        """Add the rows of a batch, an array for each column."""
        self._types = self._types or [array.type for array in arrays]
        for number, array in enumerate(arrays):
            self._add(self._seen[number], number, array)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the labels of each column, in rows that are null in the other columns."""
        for number in range(len(self._types)):
            labels = self._seen[number].distinct()
            if labels is not None and len(labels):
                yield self._rows(number, labels)

    def _add(self, seen: _Seen, number: int, column: pa.Array) -> None:
        if number >= self._labelled:
            greatest = pc.call_function("max", [column])
            if greatest.is_valid:
                seen.replace(greatest)
        elif seen.count <= self._most:
            labels = column.drop_null().unique()
            if pa.types.is_string(labels.type) or pa.types.is_large_string(labels.type):
                self._check_texts(number, labels)
            seen.add(labels)

    def _check_texts(self, number: int, labels: pa.Array) -> None:
        longest = pc.call_function("max", [pc.call_function("binary_length", [labels])]).as_py()
        if longest is not None and longest > LONGEST_LABEL:
            raise InvalidInputError(
                f"column {self.columns[number]!r} has a label of {longest:,} bytes; labels of dimensions have at most "
                f"{LONGEST_LABEL:,}"
            )

    def _rows(self, number: int, labels: pa.Array) -> pa.RecordBatch:
        types = self._types
        labels = labels[: self._most + 1]
        arrays = [labels if other == number else pa.nulls(len(labels), types[other]) for other in range(len(types))]
        names = ["column", *(f"c{other}" for other in range(len(types)))]
        numbers = pa.array([number], pa.int32()).take(pa.array([0] * len(labels)))
        return pa.RecordBatch.from_arrays([numbers, *arrays], names=names)


@dataclass
class _Seen:
    """Distinct labels of one column; new ones are collected, and made distinct when they are many."""

    labels: list[pa.Array] = field(default_factory=list)
    count: int = 0
    """Distinct labels when this was last found out."""
    pending: int = 0

    def add(self, labels: pa.Array) -> None:
        """Add labels."""
        self.labels.append(labels)
        self.pending += len(labels)
        if self.pending > max(self.count, _AT_LEAST):
            self.distinct()

    def replace(self, greatest: pa.Scalar) -> None:
        """Keep the greatest value of those that were added."""
        old = self.labels[0][0].as_py() if self.labels else None
        if old is None or greatest.as_py() > old:
            self.labels = [pa.array([greatest.as_py()], greatest.type)]

    def distinct(self) -> pa.Array | None:
        """Return the distinct labels; None if there are no rows."""
        if not self.labels:
            return None
        if len(self.labels) > 1:
            self.labels = [pa.concat_arrays(self.labels).unique()]
        self.count, self.pending = len(self.labels[0]), 0
        return self.labels[0]
