"""Each promise about Spark once, small: run by run.py with every supported PySpark, classic and over Spark Connect.

Each function gets the session and an empty directory, which driver and server share.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

import arraystore as ars
import arraystore.spark as asp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHAPE = (4, 6)
NUMBERS = np.arange(24, dtype="f4").reshape(SHAPE)


def new_repository(place: Path, values: np.ndarray[Any, Any] | None = None) -> ars.Repository:
    """Create a repository with an array ``v`` and its coordinate ``x``."""
    repo = ars.Repository.create(ars.local_filesystem_storage(place / "repo", fsync=False))
    with repo.transaction("main", message="begin") as store:
        array = zarr.create_array(
            store, name="v", shape=SHAPE, chunks=(2, 3), dtype="f4", fill_value=-1, dimension_names=["t", "x"]
        )
        if values is not None:
            array[...] = values
        zarr.create_array(store, name="x", data=np.arange(6) * 10, dimension_names=["x"])
    return repo


def cells(spark: SparkSession, first: int = 0, end: int = 24) -> DataFrame:
    """Return a row for each cell, whose value is its number."""
    return spark.range(first, end).selectExpr("id div 6 AS t", "id % 6 AS x", "float(id) AS v")


def stored(repo: ars.Repository) -> list[list[float]]:
    """Return the values of the array in the newest snapshot."""
    values: list[list[float]] = zarr.open_array(repo.readonly_session("main").store, path="v", mode="r")[...].tolist()
    return values


def error_of(action: Callable[[], object]) -> BaseException:
    """Return the error of arraystore that an action raises."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - compared by who calls this
        return asp.translate_error(error)
    raise AssertionError("nothing was raised")


def test_a_dataframe_is_written_and_read(spark: SparkSession, place: Path) -> None:
    repo = new_repository(place)
    session = repo.writable_session("main")
    report = asp.write_dataframe(cells(spark), session, "v", dims=["t", "x"], value="v")
    session.commit("rows")
    assert (report.rows, report.chunks) == (24, 4)
    assert stored(repo) == NUMBERS.tolist()
    frame = asp.read_dataframe(spark, repo, "v", sel={"x": slice(20, 30)}, coords="label")
    assert frame.selectExpr("count(*)", "sum(v)", "max(x)").first() == (8, float(NUMBERS[:, 2:4].sum()), 30)


def test_rows_of_whole_chunks_are_written_in_front_of_the_shuffle(spark: SparkSession, place: Path) -> None:
    repo = new_repository(place)
    session = repo.writable_session("main")
    rows = cells(spark).coalesce(1)
    report = asp.write_dataframe(rows, session, "v", dims=["t", "x"], value="v", shuffle="rest", tasks=2)
    session.commit("rows")
    assert (report.rows, report.chunks, report.tasks) == (24, 4, 1 + 2)
    assert stored(repo) == NUMBERS.tolist()


def test_bad_rows_are_counted_and_leave_nothing_behind(spark: SparkSession, place: Path) -> None:
    repo = new_repository(place)
    session = repo.writable_session("main")
    error = error_of(lambda: asp.write_dataframe(cells(spark, 0, 30), session, "v", dims=["t", "x"], value="v"))
    assert isinstance(error, ars.InvalidInputError)
    assert "6 are outside the array by 't'" in str(error)
    assert not session.has_uncommitted_changes


def test_regions_are_written_and_chunks_are_mapped(spark: SparkSession, place: Path) -> None:
    repo = new_repository(place)
    session = repo.writable_session("main")
    expected = NUMBERS
    asp.write_regions(session, "v", None, lambda region: expected[region], spark=spark)
    session.commit("regions")
    assert stored(repo) == NUMBERS.tolist()
    sums = asp.map_chunks(spark, repo, "v", lambda chunk: {"sum": [float(chunk.arrays["v"].sum())]}, "sum double")
    assert sums.groupBy().sum("sum").first()[0] == float(NUMBERS.sum())


def test_registering_is_harmless_however_often(spark: SparkSession, place: Path) -> None:
    repo = new_repository(place, NUMBERS)
    for _ in range(3):
        asp.register(spark)
    frame = spark.read.format("arraystore").option("array", "v").load(str(place / "repo"))
    assert frame.count() == 24
    assert len(list(repo.ancestry(branch="main"))) == 2


def test_rows_of_three_indices_are_the_same_behind_the_shuffle(spark: SparkSession, place: Path) -> None:
    session = new_repository(place).writable_session("main")
    zarr.create_array(session.store, name="cube", shape=(3, 4, 5), chunks=(2, 2, 2), dtype="f4")
    rows = spark.range(61).selectExpr("int(id % 3) AS t", "id DIV 3 % 4 AS y", "id DIV 12 AS x", "id")
    for sort in (True, False):
        owned = asp.repartition_by_chunk(rows, session, "cube", dims=["t", "y", "x"], sort=sort)
        assert owned.schema == rows.schema
        assert sorted(map(tuple, owned.collect())) == sorted(map(tuple, rows.collect()))


def test_the_data_source_saves_and_its_errors_come_back(spark: SparkSession, place: Path) -> None:
    repo = new_repository(place)
    asp.register(spark)
    owned = asp.repartition_by_chunk(cells(spark), repo.readonly_session("main"), "v", dims=["t", "x"])
    owned.write.format("arraystore").mode("append").option("array", "v").save(str(place / "repo"))
    assert stored(repo) == NUMBERS.tolist()
    writer = owned.write.format("arraystore").mode("append").option("array", "nothing")
    assert isinstance(error_of(lambda: writer.save(str(place / "repo"))), ars.NodeNotFoundError)


def test_views_are_read_and_inserted_into(spark: SparkSession, place: Path) -> None:
    repo = new_repository(place, NUMBERS)
    asp.register(spark)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW cells USING arraystore OPTIONS (path '{place}/repo', array 'v')")
    assert spark.sql("SELECT sum(v) FROM cells").first()[0] == float(NUMBERS.sum())
    spark.sql("INSERT INTO cells SELECT 1, 2, float(100)")
    assert stored(repo)[1][2] == 100
    assert stored(repo)[1][3] == 9


def test_another_thread_saves_when_the_session_is_activated(spark: SparkSession, place: Path) -> None:
    repo = new_repository(place)
    asp.register(spark)

    def save() -> None:
        asp.activate(spark)
        frame = cells(spark).coalesce(1)
        frame.write.format("arraystore").mode("append").option("array", "v").save(str(place / "repo"))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(save).result()
    assert stored(repo) == NUMBERS.tolist()


def test_batches_of_a_stream_are_committed_once(spark: SparkSession, place: Path) -> None:
    repo = new_repository(place)
    cells(spark, 0, 12).coalesce(1).write.parquet(str(place / "rows"))

    def stream(checkpoint: str) -> None:
        write = asp.batch_writer(
            repo, "v", dims=["t", "x"], value="v", stream_id="numbers", checkpoint=str(place / checkpoint)
        )
        rows = spark.readStream.schema("t long, x long, v float").parquet(str(place / "rows"))
        query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(place / checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    stream("checkpoint")
    assert isinstance(error_of(lambda: stream("another")), ars.StreamRestartedError)  # both have a batch 0
    cells(spark, 12, 24).coalesce(1).write.mode("append").parquet(str(place / "rows"))
    stream("checkpoint")
    assert stored(repo) == NUMBERS.tolist()
    assert len(list(repo.ancestry(branch="main"))) == 4


def test_the_sink_and_the_change_feed_stream(spark: SparkSession, place: Path) -> None:
    repo = new_repository(place)
    asp.register(spark)
    cells(spark).coalesce(1).write.parquet(str(place / "rows"))
    rows = spark.readStream.schema("t long, x long, v float").parquet(str(place / "rows"))
    owned = asp.repartition_by_chunk(rows, repo.readonly_session("main"), "v", dims=["t", "x"], tasks=2)
    sink = owned.writeStream.format("arraystore").option("path", str(place / "repo")).option("array", "v")
    sink = sink.option("stream", "sink").option("checkpointLocation", str(place / "checkpoint"))
    sink.trigger(availableNow=True).start().awaitTermination()
    assert stored(repo) == NUMBERS.tolist()
    feed = spark.readStream.format("arraystore").option("readChangeFeed", "true").load(str(place / "repo"))
    query = feed.writeStream.format("memory").queryName("feed").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.sql("SELECT count(*) FROM feed WHERE change = 'chunk' AND path = '/v'").first()[0] == 4
