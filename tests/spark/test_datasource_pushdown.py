"""Filters that are pushed into the data source: not unless a load asks for it, and why."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

from arraystore import Repository, local_filesystem_storage
from arraystore.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
VALUES = np.arange(8 * 6, dtype="f8").reshape(8, 6)
LON = np.array([-20.0, -10.0, 0.0, 10.0, 20.0, 30.0])


def between(*filters: Any) -> dict[str, tuple[Any, Any]]:
    from arraystore.spark.source.pushdown import bounds_of

    return dict(bounds_of(filters))


def test_filters_are_bounds_and_several_of_one_column_hold_together():
    from pyspark.sql import datasource as api

    assert between(api.EqualTo(("t",), 3)) == {"t": (3, 3)}
    assert between(api.GreaterThan(("t",), 3), api.LessThanOrEqual(("t",), 9)) == {"t": (3, 9)}
    assert between(api.GreaterThanOrEqual(("t",), 3), api.GreaterThan(("t",), 5)) == {"t": (5, None)}
    assert between(api.LessThan(("t",), 3), api.LessThan(("x",), 5)) == {"t": (None, 3), "x": (None, 5)}
    assert between(api.In(("t",), (4, None, 2))) == {"t": (2, 4)}
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert between(api.EqualTo(("time",), noon)) == {"time": (noon, noon)}


def test_filters_that_are_no_bounds_say_nothing():
    from pyspark.sql import datasource as api

    assert (
        between(
            api.IsNotNull(("t",)),
            api.IsNull(("t",)),
            api.Not(api.EqualTo(("t",), 1)),
            api.EqualNullSafe(("t",), None),
            api.StringStartsWith(("name",), "a"),
            api.EqualTo(("nested", "t"), 1),
            api.GreaterThan(("nested", "t"), 1),
            api.In(("t",), (None,)),
            api.EqualTo(("t",), None),
        )
        == {}
    )


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that hands filters to data sources."""
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.set(PUSHDOWN, "false")


@pytest.fixture
def path(tmp_path: Path, spark: SparkSession) -> str:
    register(spark)
    repo = Repository.create(local_filesystem_storage(tmp_path / "repo", fsync=False))
    with repo.transaction("main", message="begin") as store:
        zarr.create_array(store, name="lon", data=LON, chunks=(6,), dimension_names=["lon"])
        zarr.create_array(store, name="a", data=VALUES, chunks=(1, 6), dimension_names=["t", "lon"])
    return str(tmp_path / "repo")


def load(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    given = {"array": "a", "chunks_per_task": 1} | options
    return spark.read.format("arraystore").options(**given).load(path)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_hands_the_filters_of_one_query_to_others_of_the_same_frame(pushing: SparkSession):
    """A bug of Spark, found in 4.3.0: when this test fails, it is mended, and pushdown may be on by default."""
    from tests.spark.pruning_source import PruningSource

    pushing.dataSource.register(PruningSource)
    frame = pushing.read.format("pruning").load()

    assert [tuple(row) for row in frame.where("a = 1").collect()] == [(1, 10)]
    assert frame.count() == 1, "it has 4 rows"
    assert frame.union(frame.where("a = 1")).count() == 2, "it has 5 rows"
    pushing.conf.set(PUSHDOWN, "false")
    assert pushing.read.format("pruning").load().count() == 4


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_unless_a_load_asks_for_it_every_query_of_a_frame_is_right(pushing: SparkSession, path: str):
    frame = load(pushing, path)

    assert frame.where("t = 1").count() == 6
    assert frame.count() == 48
    assert frame.union(frame.where("t = 1")).count() == 54
    assert frame.where("t = 1").rdd.getNumPartitions() == 8


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize(
    ("where", "wanted", "partitions"),
    [
        ("t = 3", VALUES[3], 1),
        ("t >= 6 AND lon < 3", VALUES[6:, :3], 2),
        ("t IN (2, 3)", VALUES[2:4], 2),
        ("t > 5 OR t < 2", VALUES[[0, 1, 6, 7]], 8),
        ("t > 100", VALUES[:0], 1),
    ],
)
def test_a_load_that_asks_for_it_reads_only_chunks_that_filters_ask_for(
    pushing: SparkSession, path: str, where: str, wanted: np.ndarray, partitions: int
):
    frame = load(pushing, path, pushdown="true").where(where)

    assert frame.rdd.getNumPartitions() == partitions
    assert sorted(row["a"] for row in frame.collect()) == wanted.ravel().tolist()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_labels_are_pushed_as_positions_are(pushing: SparkSession, path: str):
    frame = load(pushing, path, pushdown="true", coords="label").where("lon BETWEEN -10 AND 5 AND t = 2")

    assert sorted((row["lon"], row["a"]) for row in frame.collect()) == [(-10.0, 13.0), (0.0, 14.0)]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_where_spark_hands_over_no_filters_asking_for_them_changes_nothing(spark: SparkSession, path: str):
    frame = load(spark, path, pushdown="true")

    assert frame.where("t = 1").count() == 6
    assert frame.count() == 48
