"""What driver processes do in these tests; see `tests.spark.clusters.processes.running_driver`."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import arraystore.spark as asp
from arraystore import ConflictDetector, Repository, Storage, storage_from_url
from arraystore.copying import clone_repository, import_zarr
from arraystore.errors import ArrayStoreError
from arraystore.spark.errors import code_of
from arraystore.transforms import rechunk
from arraystore.transforms.rechunking import boxes, plan, run
from tests.engines import many_tasks
from tests.spark.clusters.dying import DiesAtCommit, DiesAtRecord, KillsExecutorOnce, Moment
from tests.spark.clusters.model import HALF, ROWS, Region, Values, X, Y, regions, storage_at, values
from tests.spark.clusters.work import Constant, Fails, KillsExecutorAt, WaitsForCopyAt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = "the cube's rows"
_PATIENCE = 300.0


@contextmanager
def spark_session(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName("arraystore cluster tests").config(map=dict(settings)).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def write_cube(spark: SparkSession, storage: Storage, function: Callable[[Region], Values] = values) -> dict[str, int]:
    """Write the whole cube with two tasks in one commit; returns what the report says."""
    session = Repository.open(storage).writable_session("main")
    report = asp.write_regions(session, "cube", regions(), function, spark=spark, tasks=2)
    session.commit("the cube")
    return {"chunks": report.chunks, "tasks": report.tasks, "wasted": report.attempts_wasted}


def cells(spark: SparkSession, first: int, end: int) -> DataFrame:
    """Some rows of the cube as a DataFrame, a row for each cell, with the columns t, y, x and v."""
    frame = spark.range(first * Y * X, end * Y * X, 1, 3)
    return frame.selectExpr(
        f"id div {Y * X} as t", f"id div {X} % {Y} as y", f"id % {X} as x", "cast(id + 1 as double) as v"
    )


# -- attempts that are lost -------------------------------------------------------------------------------------


def lose_an_executor(settings: dict[str, str], repository: str, row: int) -> dict[str, int]:
    """Write, and lose the executor of the task that comes to a row."""
    with spark_session(settings) as spark:
        return write_cube(spark, storage_at(repository), KillsExecutorAt(row))


def write_with_copies(settings: dict[str, str], repository: str, row: int, notes: str) -> dict[str, int]:
    """Write, and let the task that comes to a row wait until Spark has started a copy of it."""
    with spark_session(settings) as spark:
        return write_cube(spark, storage_at(repository), WaitsForCopyAt(row, notes))


# -- drivers that die -------------------------------------------------------------------------------------------


def write_and_die(settings: dict[str, str], repository: str, moment: Moment) -> None:
    """Write the cube and die at the commit."""
    with spark_session(settings) as spark:
        write_cube(spark, DiesAtCommit(storage_at(repository), moment))


def stream_and_die(settings: dict[str, str], repository: str, moment: Moment, source: str, checkpoint: str) -> None:
    """Stream files into the cube and die at the commit of the first batch."""
    with spark_session(settings) as spark:
        stream_files(spark, DiesAtCommit(storage_at(repository), moment), source, checkpoint)


def stream_files(spark: SparkSession, storage: Storage, source: str | Path, checkpoint: str | Path) -> None:
    """Stream the files that there are into the cube."""
    write = asp.batch_writer(
        Repository.open(storage), "cube", dims=["t", "y", "x"], value="v", stream_id=STREAM, tasks=2
    )
    rows = spark.readStream.schema("t long, y long, x long, v double").parquet(str(source))
    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()


# -- rechunking -------------------------------------------------------------------------------------------------

SERIES = {"t": -1, "y": 2, "x": 8}


def rechunk_cube(storage: Storage, engine: str = "spark") -> dict[str, Any]:
    """Rechunk the cube through an intermediate array, in batches of a few boxes; returns what the report says."""
    with pytest.MonkeyPatch.context() as patch:  # small arrays are planned as large ones are
        patch.setattr(plan, "_STAGE_BYTES", 0)
        patch.setattr(boxes, "_ACCESS_BYTES", 100)
        patch.setattr(run, "_ROUNDS", 2)
        report = rechunk(
            Repository.open(storage), "cube", SERIES, memory=24_000, batch_bytes=1, message="series",
            engine="spark" if engine == "spark" else "threads",
        )  # fmt: skip
    every = sum(stage.cost.boxes for stage in report.plan.stages)
    stages, wasted = len(report.plan.stages), report.attempts_wasted
    return {"stages": stages, "wasted": wasted, "resumed": report.resumed, "boxes": report.boxes, "all": every}


def rechunk_without_an_executor(settings: dict[str, str], repository: str, mark: str) -> dict[str, Any]:
    """Rechunk, and lose an executor that has written some chunks."""
    with spark_session(settings):
        return rechunk_cube(KillsExecutorOnce(storage_at(repository), mark))


def rechunk_and_die(settings: dict[str, str], repository: str, record: int) -> None:
    """Rechunk, and die at a record of the branch of the job."""
    with spark_session(settings):
        rechunk_cube(DiesAtRecord(storage_at(repository), record))


# -- maintenance ------------------------------------------------------------------------------------------------


def maintain_without_executors(settings: dict[str, str], place: str) -> dict[str, Any]:
    """Clone, compact and import, and lose an executor in each that has written some objects."""
    directory = Path(place)

    def dying(name: str) -> Storage:
        return KillsExecutorOnce(storage_at(directory / name), str(directory / f"{name} killed"))

    with spark_session(settings) as spark, pytest.MonkeyPatch.context() as patch:
        many_tasks(patch)
        workers = asp.engine(spark)
        clone = clone_repository(storage_at(directory / "repository"), dying("clone"), engine=workers)
        summary = Repository.open(dying("packed")).compact(engine=workers)
        imported = import_zarr(str(directory / "plain"), Repository.open(dying("imported")), engine=workers)
    return {"objects": clone.objects, "left out": len(clone.left_out), "copied": summary.chunks_copied,
            "imported": imported.chunks}  # fmt: skip


# -- two drivers ------------------------------------------------------------------------------------------------


def append_regions(settings: dict[str, str], repository: str, rows: int, meet: str) -> str:
    """Append rows of -1 as regions, and commit when the other driver is about to; returns the snapshot."""
    with spark_session(settings) as spark:
        session = Repository.open(storage_at(repository)).writable_session("main")
        with session.appending("t") as store:
            array = zarr.open_array(store, path="cube", mode="r+")
            end = array.shape[0]
            array.resize((end + rows, Y, X))
        asp.write_regions(session, "cube", regions(end, end + rows), Constant(-1.0), spark=spark, tasks=2)
        _meet(meet, "regions", "rows")
        return session.commit("regions", rebase_with=ConflictDetector())


def append_rows(settings: dict[str, str], repository: str, first: int, end: int, meet: str) -> str:
    """Append rows of the cube as a DataFrame, and commit when the other driver is about to; returns the snapshot."""
    with spark_session(settings) as spark:
        session = Repository.open(storage_at(repository)).writable_session("main")
        frame = cells(spark, first, end)
        asp.write_dataframe(frame, session, "cube", dims=["t", "y", "x"], value="v", append_dim="t", tasks=2)
        _meet(meet, "rows", "regions")
        return session.commit("rows", rebase_with=ConflictDetector())


def _meet(where: str, name: str, other: str) -> None:
    """Wait until another driver has come as far, too."""
    Path(where, name).touch()
    limit = time.monotonic() + _PATIENCE
    while not Path(where, other).exists():
        assert time.monotonic() < limit, f"the driver that appends {other} did not come"
        time.sleep(0.02)


# -- Spark Connect ----------------------------------------------------------------------------------------------


def through_connect(url: str, repository: str) -> dict[str, Any]:
    """Write, read, and let things go wrong with no Spark context in this process."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(url).getOrCreate()
    repo = Repository.open(storage_at(repository))
    session = repo.writable_session("main")
    report = asp.write_regions(session, "cube", regions(0, HALF), values, spark=spark, tasks=2)
    frames = asp.write_dataframe(cells(spark, HALF, ROWS), session, "cube", dims=["t", "y", "x"], value="v", tasks=2)
    session.commit("the cube")
    array = zarr.open_array(repo.readonly_session("main").store, path="cube", mode="r")
    frame = asp.read_dataframe(spark, repo, "cube", isel={"t": slice(3, ROWS - 2)})
    read = frame.selectExpr("count(*)", "sum(cube)", "min(t)", "max(t)").collect()[0]

    def failing() -> None:
        asp.write_regions(session, "cube", regions(), Fails(5), spark=spark, tasks=2)

    session = repo.writable_session("main")
    answer = {
        "cube": np.asarray(array[:]).tolist(),
        "chunks": report.chunks,
        "rows": frames.rows,
        "read": [float(found) for found in read],
        "refused": _error_of(failing, ArrayStoreError),
        "written": session.has_uncommitted_changes,
    }
    for chunk in Path(repository, "chunks").iterdir():
        chunk.unlink()
    answer["lost"] = _error_of(frame.count, PySparkException)
    spark.stop()
    return answer


def _error_of(action: Callable[[], Any], kind: type[Exception]) -> list[str]:
    """Class, code and text of the error that an action raises, made again from Spark's if need be."""
    with pytest.raises(kind) as caught:
        action()
    found = asp.translate_error(caught.value)
    assert isinstance(found, ArrayStoreError), found
    return [type(found).__name__, code_of(type(found)), str(found)]


# -- a bucket ---------------------------------------------------------------------------------------------------


def pipeline_in_bucket(settings: dict[str, str], url: str) -> dict[str, Any]:
    """Write the cube as regions, as rows, and by the data source; read it; tell what is known of the storage."""
    with spark_session(settings) as spark:
        asp.register(spark)
        repo = Repository.open(storage_from_url(url))
        session = repo.writable_session("main")
        asp.write_regions(session, "cube", regions(0, ROWS // 3), values, spark=spark, tasks=2)
        session.commit("regions")
        session = repo.writable_session("main")
        frame = cells(spark, ROWS // 3, ROWS // 3 * 2)
        asp.write_dataframe(frame, session, "cube", dims=["t", "y", "x"], value="v", tasks=2)
        session.commit("rows")
        writer = cells(spark, ROWS // 3 * 2, ROWS).repartition(2, "t").write.format("arraystore").mode("append")
        writer.option("array", "cube").option("dims", "t,y,x").option("value", "v").option("message", "saved").save(url)

        asp.create_view(spark, "cells", url, "cube")
        totals = spark.sql("select t, sum(cube) as total from cells group by t order by t").collect()
        loaded = spark.read.format("arraystore").option("array", "cube").option("isel", '{"t": [2, 20]}').load(url)
        plans = [row[0] for row in spark.sql("explain extended select * from cells").collect()]
        plans.append(loaded._jdf.queryExecution().toString())
        fork = pickle.dumps(repo.writable_session("main").fork())
        shown = [repr(repo), repr(session), str(spark.sparkContext.getConf().getAll())]
        return {
            "totals": [row.total for row in totals],
            "loaded": sorted(row.cube for row in loaded.collect()),
            "plans": "\n".join(plans),
            "shown": "\n".join(shown),
            "fork": fork.hex(),
        }
