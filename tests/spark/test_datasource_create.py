"""The data source makes arrays, lets them grow and replaces regions: ``create``, ``append_dim``, ``replaceWhere``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

from arraystore import InvalidInputError, Repository
from tests.spark.support import messages, new_repository, read_array, spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

OPTIONS = {"create": "true", "group": "obs", "values": "t2m,count", "dims": "day,station", "coords": "label"}


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return new_repository(tmp_path)


def days(spark: SparkSession, *numbers: int) -> DataFrame:
    """Return rows of three stations for some days; tasks share chunks."""
    rows = [(number, f"s{station}", number * 10.0 + station) for number in numbers for station in (2, 0, 1)]
    frame = spark.createDataFrame(rows, "n int, station string, t2m double").repartition(2)
    return frame.selectExpr("date_add(date'2026-01-01', n) as day", "station", "t2m", "int(t2m) as count", "n as more")


def save(df: DataFrame, path: str, mode: str = "append", **options: str) -> None:
    df.write.format("arraystore").mode(mode).options(**{**OPTIONS, **options}).save(path)


def values(*numbers: int) -> list[list[float]]:
    return [[number * 10.0 + station for station in range(3)] for number in numbers]


@pytest.mark.end_to_end
@pytest.mark.thorough
def test_a_save_makes_arrays_and_later_ones_let_them_grow(spark: SparkSession, path: str, repo: Repository) -> None:
    save(days(spark, 1, 0), path, append_dim="day", chunks='{"day": 2}', units='{"day": "days since 2026-01-01"}')
    save(days(spark, 2, 4), path, appendDim="day")
    assert read_array(repo, "obs/day").tolist() == [0, 1, 2, 4]
    assert read_array(repo, "obs/t2m").tolist() == values(0, 1, 2, 4)
    assert read_array(repo, "obs/count").tolist() == values(0, 1, 2, 4)
    assert zarr.open_array(repo.readonly_session("main").store, path="obs/t2m", mode="r").chunks == (2, 3)
    assert messages(repo)[0] == "write /obs/t2m, /obs/count with 6 rows from Spark"
    # An array that exists is written to without a detour; a new variable joins it.
    save(days(spark, 4).coalesce(1), path)
    save(days(spark, 0, 4), path, values="more")
    assert read_array(repo, "obs/more").tolist() == [[0] * 3, [-(2**31)] * 3, [-(2**31)] * 3, [4] * 3]


def test_the_only_column_that_is_left_holds_the_values(spark: SparkSession, path: str, repo: Repository) -> None:
    options = {"array": "new/v", "dims": "x", "create": "true", "appendDim": "x"}
    for first in (0, 3):
        rows = spark.range(first, first + 3).selectExpr("id AS x", "double(id) AS anything")
        rows.write.format("arraystore").mode("append").options(**options).save(path)
    assert read_array(repo, "new/v").tolist() == [0, 1, 2, 3, 4, 5]


def test_a_save_of_bad_or_no_rows_makes_nothing(spark: SparkSession, path: str, repo: Repository) -> None:
    save(days(spark, 1).where("t2m < 0"), path)
    error = spark_error(lambda: save(days(spark, 1).union(days(spark, 1)), path))
    assert "3 name a cell that another row names, too" in str(error)
    error = spark_error(lambda: save(days(spark, 1), path, create="false", chunks="1,3"))
    assert isinstance(error, InvalidInputError)
    assert messages(repo) == []


def test_no_rows_overwrite_what_there_was(spark: SparkSession, path: str, repo: Repository) -> None:
    save(days(spark, 0), path, append_dim="day")
    save(days(spark, 0).where("t2m < 0"), path, mode="overwrite", append_dim="day")
    assert np.isnan(read_array(repo, "obs/t2m")).all()
    save(days(spark, 1), path, mode="overwrite", append_dim="day")
    assert np.array_equal(read_array(repo, "obs/t2m"), [[np.nan] * 3, *values(1)], equal_nan=True)


def test_a_stream_makes_arrays_and_lets_them_grow(
    spark: SparkSession, path: str, repo: Repository, tmp_path: Path
) -> None:
    incoming = tmp_path / "incoming"
    for numbers in (0, 1), (2,), (3,):
        days(spark, *numbers).coalesce(1).write.mode("append").parquet(str(incoming))
        stream = spark.readStream.schema(days(spark, 0).schema).parquet(str(incoming))
        writer = stream.writeStream.format("arraystore").options(**OPTIONS, append_dim="day", path=path)
        query = writer.option("checkpointLocation", str(tmp_path / "point")).trigger(availableNow=True).start()
        query.awaitTermination()
    assert read_array(repo, "obs/t2m").tolist() == values(0, 1, 2, 3)
    assert len(messages(repo)) == 3


def test_rows_replace_a_region(spark: SparkSession, path: str, repo: Repository) -> None:
    save(days(spark, *range(6)), path, chunks="4,2")
    where = '{"day": {"start": "2026-01-02", "stop": "2026-01-05"}, "station": ["s0", "s2"]}'
    options: dict[str, Any] = {**OPTIONS, "values": "t2m", "replaceWhere": where}
    del options["create"]
    few = days(spark, 2).where("station = 's2'").withColumnRenamed("t2m", "old").selectExpr("*", "old + 0.5 t2m")
    few.write.format("arraystore").mode("overwrite").options(**options).save(path)
    expected = np.array(values(*range(6)))
    expected[np.ix_(range(1, 5), [0, 2])] = np.nan
    expected[2, 2] = 22.5
    assert np.array_equal(read_array(repo, "obs/t2m"), expected, equal_nan=True)
    for mode, reason in ("overwrite", "3 are outside of the region"), ("append", "'replaceWhere' empties a region"):
        writer = days(spark, 5).write.format("arraystore").mode(mode).options(**options)
        assert reason in str(spark_error(partial(writer.save, path)))
    assert len(messages(repo)) == 2
