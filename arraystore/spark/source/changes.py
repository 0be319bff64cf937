"""Loading the changes of commits through the data source, in batch and as a stream: an adapter of the change feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from arraystore.errors import InvalidInputError
from arraystore.spark.source.options import ChangesOptions
from arraystore.spark.streams.change_feed_history import newest_step
from arraystore.spark.streams.change_feed_rows import ARROW_SCHEMA, FEED_SCHEMA
from arraystore.spark.streams.change_feed_stream import ChangeStreamReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from arraystore._repository.repository import Repository


class ChangesReader(DataSourceReader):
    """Reads the changes between two snapshots."""

    def __init__(self, feed: ChangeStreamReader, start: Any, end: Any) -> None:
        self._feed = feed
        self._start = start
        self._end = end

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions of the tasks."""
        return self._feed.partitions(self._start, self._end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task."""
        return self._feed.read(partition)


def pin(options: ChangesOptions) -> ChangesOptions:
    """Return the options of a load that ends at the snapshot that is the newest now."""
    if options.stop is not None:
        return options
    return replace(options, stop=newest_step(options.location.repository(), options.branch).snapshot)


def _before(repo: Repository, first: str) -> str | None:
    """Return the snapshot after which changes are read that begin with this one; None before all of them."""
    return None if first == "0" else repo.lookup_snapshot(first).parent_id


def changes_reader(options: ChangesOptions, schema: StructType) -> ChangesReader:
    """Plan a load of changes."""
    if options.starting_snapshot is not None or options.most is not None:
        raise InvalidInputError(
            "options 'starting_snapshot' and 'max_snapshots_per_trigger' are for readStream: with spark.read use "
            "'from' and 'to'"
        )
    feed = _feed(options, schema)
    start = options.start
    if options.first is not None:
        start = _before(options.location.repository(), options.first)
    return ChangesReader(feed, *feed.bounds(start, options.stop))


def changes_stream(options: ChangesOptions, schema: StructType) -> ChangeStreamReader:
    """Return a reader of changes as they are committed."""
    if options.start is not None:
        raise InvalidInputError("option 'from' is for spark.read: with readStream use 'starting_snapshot'")
    if options.stop is not None:
        raise InvalidInputError("option 'to' (endingVersion) is for spark.read: a stream goes on until it is stopped")
    return _feed(options, schema)


def _feed(options: ChangesOptions, schema: StructType) -> ChangeStreamReader:
    from pyspark.sql.pandas.types import from_arrow_schema

    if [field.name for field in schema.fields] != ARROW_SCHEMA.names or schema != from_arrow_schema(ARROW_SCHEMA):
        raise InvalidInputError(f"a load of changes has fixed columns ({FEED_SCHEMA}): leave the schema out")
    repo = options.location.repository()
    starting = options.starting_snapshot or options.first or "earliest"
    if options.first is not None and options.first != "latest":
        starting = _before(repo, options.first) or "earliest"
    return ChangeStreamReader(repo, options.branch, starting=starting, most=options.most, paths=options.paths)
