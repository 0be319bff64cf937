"""The change feed of a branch as a source of Spark's structured streaming."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from arraystore._repository.repository import Repository
from arraystore.errors import InvalidInputError
from arraystore.spark.errors import marked_errors
from arraystore.spark.snapshots import open_repository
from arraystore.spark.streams.change_feed_history import HistoryStep, newest_step, slices, steps_between

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, which brought this and limits
    _MIXINS: tuple[type, ...] = ()
else:
    _MIXINS = (SupportsTriggerAvailableNow,)

_SNAPSHOTS_PER_TASK = 16
_NOTHING = ""
"""Stand-in for the id of a snapshot in an offset: before the first one."""


@dataclass(frozen=True)
class ChangePartition(InputPartition):
    """Snapshots of one task."""

    steps: tuple[HistoryStep, ...]
    """Neighbouring snapshots."""


class ChangeStreamReader(DataSourceStreamReader, *_MIXINS):  # type: ignore[misc]
    """Streams the changes of a branch's commits.

    An offset is ``{"snapshot": id, "sequence": number}``: the last snapshot that was read, and for people the number of
    its record. The storage is first read when Spark asks for an offset or partitions.
    """

    def __init__(
        self,
        source: Repository | str | os.PathLike[str],
        branch: str = "main",
        *,
        starting: str = "earliest",
        most: int | None = None,
        paths: tuple[str, ...] | None = None,
    ) -> None:
        self._source = source
        self._branch = branch
        self._starting = starting  # "earliest", "latest", or the snapshot after which a new query begins
        self._most = most  # snapshots of a batch
        self._paths = paths
        self._target: tuple[str, int] | None = None

    @cached_property
    def _repo(self) -> Repository:
        return open_repository(self._source)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the repository, which a task opens for itself."""
        return {name: value for name, value in vars(self).items() if name != "_repo"}

    # -- offsets --------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset at which a new query begins."""
        with marked_errors():
            if self._starting == "earliest":
                return _offset(_NOTHING, -1)
            newest = newest_step(self._repo, self._branch)
            if self._starting == "latest":
                return _offset(*newest)
            after = steps_between(self._repo, self._branch, self._starting, newest.snapshot)  # raises off the branch
            return _offset(self._starting, after[0].sequence - 1 if after else -1)

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset at which the next batch ends: of the newest snapshot, or before it by the limit."""
        with marked_errors():
            snapshot, sequence = self._target or newest_step(self._repo, self._branch)
            if start is None:  # Spark 4.0 and 4.1 do not pass the start of the batch, so it cannot be limited
                return _offset(snapshot, sequence)
            after = _snapshot_in(start)
            if after == snapshot:
                return dict(start)
            steps = steps_between(self._repo, self._branch, after, snapshot)
            most = getattr(limit, "max_files", None)
            last = steps[-1] if most is None or most >= len(steps) else steps[most - 1]
            return _offset(last.snapshot, last.sequence)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Return the limit of a batch; snapshots count as files, the closest limit that Spark has."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        return ReadAllAvailable() if self._most is None else ReadMaxFiles(self._most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take the newest snapshot as the last one of the query."""
        with marked_errors():
            self._target = newest_step(self._repo, self._branch)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset of the branch, for the status of the query."""
        with marked_errors():
            return _offset(*newest_step(self._repo, self._branch))

    def commit(self, end: Any) -> None:
        """Do nothing: expiry of history does not depend on readers."""

    # -- reading --------------------------------------------------------------------------------------------------

    def bounds(self, from_: str | None, to: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the offsets of two snapshots, as in `read_changes`."""
        snapshot, sequence = newest_step(self._repo, self._branch)
        if to is not None and to != snapshot:
            steps_between(self._repo, self._branch, to, snapshot)  # it is on the branch, or this says so
            snapshot, sequence = to, -1
        return _offset(from_ or _NOTHING, -1), _offset(snapshot, sequence)

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        """Return the snapshots between two offsets, by task."""
        with marked_errors():
            last = _snapshot_in(end)
            if last is None:
                return []
            steps = steps_between(self._repo, self._branch, _snapshot_in(start), last)
            return [ChangePartition(part) for part in slices(steps, -(-len(steps) // _SNAPSHOTS_PER_TASK))]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition; none for the one that Spark creates from an empty list."""
        from arraystore.spark.streams.change_feed_rows import batches_of

        if isinstance(partition, ChangePartition):
            with marked_errors():
                yield from batches_of(self._repo, partition.steps, self._paths)


def _offset(snapshot: str, sequence: int) -> dict[str, Any]:
    return {"snapshot": snapshot, "sequence": sequence}


def _snapshot_in(offset: Any) -> str | None:
    """Return the snapshot of an offset, which comes from a checkpoint; None before the first one."""
    snapshot = offset.get("snapshot") if isinstance(offset, dict) else None
    if not isinstance(snapshot, str):
        raise InvalidInputError(
            f"{str(offset)[:200]} is not an offset of a change feed: the checkpoint is damaged or of another source"
        )
    return snapshot or None
