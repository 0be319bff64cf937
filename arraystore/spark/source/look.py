"""Looking at a repository through the data source: its history, nodes, branches and tags as rows.

The rows have the fields of the Python objects, and of what the commands ``log``, ``tree`` and ``branch list`` print
with ``--json``; metadata is text in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from arraystore.errors import InvalidInputError
from arraystore.spark.errors import marked_errors
from arraystore.spark.reading.arrow_columns import arrow_schema
from arraystore.spark.snapshots import pinned_session
from arraystore.spark.source.options import LookOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from arraystore._repository.repository import Repository

_TIME = pa.timestamp("us", "UTC")
_INDICES = pa.list_(pa.field("element", pa.int64()))
_SCHEMAS: Mapping[str, Mapping[str, pa.DataType]] = {
    "history": {
        "id": pa.string(), "parent_id": pa.string(), "written_at": _TIME, "message": pa.string(),
        "metadata": pa.string(), "imported_at": _TIME, "base_id": pa.string(), "merged_forks": pa.int64(),
    },
    "list": {
        "path": pa.string(), "kind": pa.string(), "shape": _INDICES, "chunks": _INDICES, "dtype": pa.string(),
        "dimensions": pa.list_(pa.field("element", pa.string())), "grid_size": pa.int64(), "initialised": pa.int64(),
        "stored_bytes": pa.int64(),
    },
    "refs": {
        "kind": pa.string(), "name": pa.string(), "snapshot_id": pa.string(), "written_at": _TIME,
        "message": pa.string(),
    },
}  # fmt: skip
"""Columns by what is looked at."""

_ROWS = 4096
"""Rows of an Arrow batch."""

_MOST = 2**63 - 1


def look_schema(kind: str) -> StructType:
    """Return the columns of a load."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema(list(_SCHEMAS[kind].items())))


def pin_look(options: LookOptions) -> LookOptions:
    """Return the options of a load that looks from the snapshot that its options name now."""
    if options.kind == "refs":
        return options
    session = pinned_session(options.location.repository(), **options.ref)
    return replace(options, ref={"snapshot_id": session.snapshot_id})


class LookReader(DataSourceReader):
    """Reads the rows in one task."""

    def __init__(self, options: LookOptions, schema: StructType) -> None:
        own = look_schema(options.kind)
        if schema != own:
            raise InvalidInputError(
                f"a load with option {options.kind!r} has fixed columns ({own.simpleString()}): leave the schema out"
            )
        self._options = pin_look(options)
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the one partition."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows."""
        with marked_errors():
            options = self._options
            rows = _LOOKS[options.kind](options.location.repository(), options)
            yield from _batches(islice(rows, options.limit), arrow_schema(self._schema))


def _batches(rows: Iterator[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while some := list(islice(rows, _ROWS)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def _history(repo: Repository, options: LookOptions) -> Iterator[Mapping[str, Any]]:
    for info in repo.ancestry(**options.ref):
        yield {**asdict(info), "metadata": json.dumps(info.metadata, ensure_ascii=False)}


def _nodes(repo: Repository, options: LookOptions) -> Iterator[Mapping[str, Any]]:
    from arraystore._session.node_views import measured_nodes

    for view in measured_nodes(pinned_session(repo, **options.ref), options.path):
        row = asdict(view)
        if view.grid_size is not None and view.grid_size > _MOST:
            row["grid_size"] = None
        yield row


def _refs(repo: Repository, options: LookOptions) -> Iterator[Mapping[str, Any]]:
    from arraystore._repository.ref_tips import newest_of

    named: Iterable[tuple[str, Iterable[str]]] = (("branch", repo.list_branches()), ("tag", repo.list_tags()))
    for kind, names in named:
        for name, info in newest_of(repo, kind, names).items():
            yield {
                "kind": kind, "name": name, "snapshot_id": info.id, "written_at": info.written_at,
                "message": info.message,
            }  # fmt: skip


_LOOKS: Mapping[str, Callable[[Repository, LookOptions], Iterator[Mapping[str, Any]]]] = {
    "history": _history,
    "list": _nodes,
    "refs": _refs,
}
