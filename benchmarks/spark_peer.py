"""The peer on Spark: what a user of icechunk writes by hand, on the same route that arraystore takes.

Forks travel pickled and come back pickled; rows go through Arrow into numpy, and every chunk is written whole.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import zarr

from benchmarks.spark_cube import Cube, Field, share

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_frame", "write_frame", "write_regions"]

_ROWS = "t long, y long, x long, value float"


@dataclass(frozen=True, slots=True)
class _WriteRows:
    """Puts the rows of one partition in their place and writes the chunks that have got any."""

    fork: bytes
    path: str
    cube: Cube

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        fork = pickle.loads(self.fork)
        array = zarr.open_array(fork.store, path=self.path, mode="r+")
        cells = np.zeros(self.cube.shape, np.float32)
        met = np.zeros(self.cube.grid, bool)
        ct, cy, cx = self.cube.chunks
        for batch in batches:
            t, y, x, value = (batch.column(name).to_numpy() for name in ("t", "y", "x", "value"))
            cells[t, y, x] = value
            met[t // ct, y // cy, x // cx] = True
        for region, found in zip(self.cube.regions(), met.reshape(-1), strict=True):
            if found:
                array[region] = cells[region]
        yield pa.RecordBatch.from_pydict({"fork": [pickle.dumps(fork)]})


@dataclass(frozen=True, slots=True)
class _WriteRegions:
    """Makes and writes the regions of one task."""

    fork: bytes
    path: str
    field: Field
    tasks: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        fork = pickle.loads(self.fork)
        array = zarr.open_array(fork.store, path=self.path, mode="r+")
        for task in _tasks(batches):
            for region in share(self.field.regions(), task, self.tasks):
                array[region] = self.field.values(region)
        yield pa.RecordBatch.from_pydict({"fork": [pickle.dumps(fork)]})


@dataclass(frozen=True, slots=True)
class _ReadRows:
    """Reads the chunks of one task; each becomes one Arrow batch."""

    session: bytes
    path: str
    cube: Cube
    tasks: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        array = zarr.open_array(pickle.loads(self.session).store, path=self.path, mode="r")
        for task in _tasks(batches):
            for region in share(self.cube.regions(), task, self.tasks):
                values = np.asarray(array[region])
                places = np.ix_(*(np.arange(part.start, part.stop) for part in region))
                columns = [np.broadcast_to(place, values.shape).reshape(-1) for place in places]
                yield pa.RecordBatch.from_arrays([*columns, values.reshape(-1)], names=["t", "y", "x", "value"])


def _tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def write_frame(frame: DataFrame, session: icechunk.Session, path: str, cube: Cube, tasks: int) -> None:
    """Write rows, each chunk by one task, and merge; the caller commits."""
    work: Any = _WriteRows(pickle.dumps(session.fork()), path, cube)
    _merge(session, frame.repartition(tasks, cube.chunk_column()).mapInArrow(work, "fork binary"))


def write_regions(spark: SparkSession, session: icechunk.Session, path: str, field: Field, tasks: int) -> None:
    """Write all regions of an array, and merge; the caller commits."""
    work: Any = _WriteRegions(pickle.dumps(session.fork()), path, field, tasks)
    _merge(session, spark.range(0, tasks, 1, tasks).mapInArrow(work, "fork binary"))


def _merge(session: icechunk.Session, forks: DataFrame) -> None:
    session.merge(*(pickle.loads(row.fork) for row in forks.collect()))


def read_frame(spark: SparkSession, session: icechunk.Session, path: str, cube: Cube, tasks: int) -> DataFrame:
    """One row for each cell."""
    work: Any = _ReadRows(pickle.dumps(session), path, cube, tasks)
    return spark.range(0, tasks, 1, tasks).mapInArrow(work, _ROWS)
