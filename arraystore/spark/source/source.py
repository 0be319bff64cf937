"""Data source ``format("arraystore")``: arrays in Spark SQL, by options in place of function calls.

Spark creates these objects in several processes: for the schema, for planning reads, for planning writes, and for
commits. State gets from one to another only by being pickled with the object. Nothing here reads or writes arrays:
`read_dataframe` and `write_dataframe` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource

from arraystore.errors import InvalidInputError
from arraystore.spark.errors import marked_errors
from arraystore.spark.source.option_parsing import is_for_writing
from arraystore.spark.source.options import (
    ChangesOptions,
    LookOptions,
    changes_options,
    is_look,
    look_options,
    raw_options,
    read_options,
    snapshot_of,
    write_options,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from arraystore.spark.reading.read_dataframe import ReadPlan


class ArrayStoreDataSource(DataSource):
    """Arrays of a repository as rows."""

    _remote = False
    """Whether the options come from another process, which may have another current directory."""

    def __init__(self, options: Mapping[str, str]) -> None:
        with marked_errors():
            self._raw = raw_options(options, remote=self._remote)
        self._planned: ReadPlan | None = None
        self._snapshot: str | None = None
        self._changes: ChangesOptions | None = None
        self._look: LookOptions | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "arraystore"

    def schema(self) -> StructType | str:
        """Return the columns of a load."""
        with marked_errors():
            if self._raw.flag("changes"):
                return self._schema_of_changes()
            if is_look(self._raw):
                return self._schema_of_look()
            return self._plan().schema

    def _schema_of_changes(self) -> str:
        from arraystore.spark.source.changes import pin
        from arraystore.spark.streams.change_feed_rows import FEED_SCHEMA

        self._changes = pin(changes_options(self._raw))
        return FEED_SCHEMA

    def _schema_of_look(self) -> StructType:
        from arraystore.spark.source.look import look_schema, pin_look

        self._look = pin_look(look_options(self._raw))
        return look_schema(self._look.kind)

    def _plan(self) -> ReadPlan:
        """Return the plan of a load, which is made once and fixes the snapshot."""
        if self._planned is None:
            from arraystore.spark.source.read import load_plan

            self._planned = load_plan(read_options(self._raw), self._snapshot)
        return self._planned

    def __getstate__(self) -> dict[str, Any]:
        # With a schema of the user's, Spark does not ask for ours: this is the last chance to fix the snapshot. It may
        # also be a save, to an array that cannot be read.
        of_arrays = not self._raw.flag("changes") and not is_look(self._raw)
        if self._planned is None and of_arrays and not is_for_writing(self._raw):
            with marked_errors():
                self._snapshot = snapshot_of(self._raw)
        return dict(vars(self))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a load."""
        with marked_errors():
            if self._raw.flag("changes"):
                from arraystore.spark.source.changes import changes_reader

                return changes_reader(self._changes or changes_options(self._raw), schema)
            if is_look(self._raw):
                from arraystore.spark.source.look import LookReader

                return LookReader(self._look or look_options(self._raw), schema)
            from arraystore.spark.source.read import ArrayReader, check_schema

            plan = self._plan()
            check_schema(plan, schema)
            return ArrayReader(plan, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a save."""
        with marked_errors():
            from arraystore.spark.source.write import ArrowRowWriter, prepare_write

            return ArrowRowWriter(prepare_write(write_options(self._raw, stream=False), schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer of a batch of a stream."""
        with marked_errors():
            from arraystore.spark.source.stream import ArrowStreamWriter, RowStreamWriter
            from arraystore.spark.source.write import prepare_write

            prepared = prepare_write(write_options(self._raw, stream=True), schema, overwrite)
            takes_arrow = hasattr(datasource, "DataSourceStreamArrowWriter")
            return ArrowStreamWriter(prepared) if takes_arrow else RowStreamWriter(prepared, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a branch's changes as they are committed."""
        with marked_errors():
            if not self._raw.flag("changes"):
                raise InvalidInputError(
                    "a stream reads the changes of commits, not arrays: set option 'changes' to true, or "
                    "read the arrays with spark.read"
                )
            from arraystore.spark.source.changes import changes_stream

            return changes_stream(changes_options(self._raw), schema)


class RemoteArrayStoreDataSource(ArrayStoreDataSource):
    """The same for clients of Spark Connect."""

    _remote = True
