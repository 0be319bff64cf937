"""Rows find their cells by the labels of coordinates, in Spark by arithmetic or in Python by search."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from pyspark.sql import types as st

import arraystore as ars
from arraystore.errors import InvalidInputError
from arraystore.spark import repartition_by_chunk, write_dataframe
from arraystore.spark.writing.axes import label_axis
from tests.spark.support import read_array

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

TIMES = [datetime(2000, 1, 1, 6, tzinfo=UTC) + timedelta(days=day) for day in range(4)]
LATITUDES = np.linspace(60, -60, 13)
SHAPE = (4, 13, 3)


@pytest.fixture
def repo(tmp_path: Path) -> ars.Repository:
    """A repository with a variable over days, latitudes, and places."""
    repo = ars.Repository.create(ars.local_filesystem_storage(str(tmp_path / "repo")))
    session = repo.writable_session("main")
    group = zarr.create_group(session.store, path="g")
    time = group.create_array("time", shape=(4,), dtype="f8", dimension_names=["time"])
    time[:] = np.arange(4) + 0.25
    time.attrs["units"] = "days since 2000-01-01"
    group.create_array("lat", shape=(13,), dtype="f4", dimension_names=["lat"])[:] = LATITUDES
    uneven = group.create_array("depth", shape=(3,), dtype="i4", dimension_names=["depth"])
    uneven[:] = [0, 10, 50]
    group.create_array(
        "v", shape=SHAPE, chunks=(1, 5, 2), dtype="i4", fill_value=-1, dimension_names=["time", "lat", "depth"]
    )
    session.commit("make the arrays")
    return repo


def table(depths: list[int] | None) -> pa.Table:
    """Return all cells as rows, backwards; depths by label, or by index where None."""
    t, y, z = (index.ravel()[::-1] for index in np.indices(SHAPE))
    return pa.table(
        {
            "time": pa.array([TIMES[i] for i in t], pa.timestamp("us", "UTC")),
            "lat": LATITUDES[y],
            "depth": pa.array(z if depths is None else np.array(depths)[z], pa.int32()),
            "v": pa.array(np.ravel_multi_index((t, y, z), SHAPE), pa.int32()),
        }
    )


@pytest.mark.parametrize(
    ("depths", "coords"), [([0, 10, 50], "label"), (None, {"time": "label", "lat": "label", "depth": "index"})]
)
@pytest.mark.parametrize("ahead", [True, False])
def test_all_cells_are_found(
    spark: SparkSession, repo: ars.Repository, depths: list[int] | None, coords: Any, ahead: bool
) -> None:
    rows = spark.createDataFrame(table(depths)).repartition(3)
    session = repo.writable_session("main")
    dims = ["time", "lat", "depth"]
    if ahead:
        rows = repartition_by_chunk(rows, session, "g/v", dims=dims, coords=coords)
    report = write_dataframe(rows, session, "g/v", dims=dims, value="v", coords=coords, shuffle=not ahead)
    session.commit("rows")
    assert np.array_equal(read_array(repo, "g/v"), np.arange(np.prod(SHAPE)).reshape(SHAPE))
    assert report.rows == np.prod(SHAPE)


@pytest.mark.parametrize("depths", [[0, 10, 50], None])
def test_rows_with_other_labels_are_counted_and_shown(
    spark: SparkSession, repo: ars.Repository, depths: list[int] | None
) -> None:
    coords: Any = "label" if depths else {"time": "label", "lat": "label"}
    rows = spark.createDataFrame(table(depths)).selectExpr(
        "CASE WHEN v = 0 THEN time + INTERVAL 1 SECOND WHEN v = 1 THEN NULL ELSE time END AS time",
        "CASE WHEN v IN (4, 5, 6, 7) THEN lat + 0.5 WHEN v = 8 THEN double('NaN') ELSE lat END AS lat",
        "depth",
        "v",
    )
    session = repo.writable_session("main")
    with pytest.raises(InvalidInputError) as caught:
        write_dataframe(rows, session, "g/v", dims=["time", "lat", "depth"], value="v", coords=coords)
    text = str(caught.value)
    for part in (
        "of 156 rows",
        "5 have a 'lat' that is not in the coordinate",
        "1 have a 'time' that is not in the coordinate",
        "1 have no value in the dimension column 'time'",
        "time=null",
    ):
        assert part in text


@pytest.mark.end_to_end
def test_a_tolerance_takes_in_labels_that_are_near(spark: SparkSession, repo: ars.Repository) -> None:
    rows = spark.createDataFrame(table(None)).selectExpr(
        "time + INTERVAL 1 MINUTE AS time", "lat + 0.25 AS lat", "depth", "v"
    )
    options: Any = {
        "dims": ["time", "lat", "depth"],
        "value": "v",
        "coords": {"time": "label", "lat": "label"},
    }
    session = repo.writable_session("main")
    tolerance: Any = {"time": timedelta(minutes=1), "lat": 0.25}
    write_dataframe(rows, session, "g/v", **options, tolerance=tolerance)
    session.commit("rows")
    assert np.array_equal(read_array(repo, "g/v"), np.arange(np.prod(SHAPE)).reshape(SHAPE))
    session = repo.writable_session("main")
    with pytest.raises(InvalidInputError, match="156 have a 'time'"):
        write_dataframe(rows, session, "g/v", **options, tolerance={"time": timedelta(seconds=59), "lat": 0.25})


def near(values: np.ndarray, step: float) -> np.ndarray:
    """Return labels, their neighbours among the numbers, and others between them and beyond."""
    between = np.concatenate([values + fraction * step for fraction in (-0.51, -0.3, -0.1, 0.1, 0.3, 0.49, 0.5)])
    ends = np.array([values.min() - 10 * abs(step), values.max() + 10 * abs(step)])
    if values.dtype.kind == "i":
        return np.concatenate([values, values - 1, values + 1, between.astype(np.int64), ends.astype(np.int64)])
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300])
    return np.concatenate([values, np.nextafter(values, np.inf), np.nextafter(values, -np.inf), between, ends, odd])


@pytest.mark.parametrize(
    ("values", "attrs", "tolerance"),
    [
        (np.arange(50) * 3 - 60, {}, None),
        (np.arange(50) * -7 + 60, {}, 2),
        (np.arange(50), {}, None),
        (np.array([42]), {}, None),
        (np.linspace(-90, 90, 181), {}, None),
        (np.linspace(90, -90, 721), {}, 0.1),
        (np.arange(300) * 0.1, {}, None),
        ((np.arange(300) * 0.1).astype("f4"), {}, None),
        (np.array([7.5]), {}, None),
        (np.arange(40) / 24, {"units": "days since 1990-01-01"}, None),
        (np.arange(40)[::-1] * 6, {"units": "hours since 1990-01-01"}, timedelta(minutes=90)),
    ],
    ids=["ints", "falling", "step-1", "one", "degrees", "near", "tenths", "single", "one-float", "hours", "near-time"],
)
def test_spark_finds_by_arithmetic_what_a_search_finds(
    spark: SparkSession, values: np.ndarray, attrs: dict[str, Any], tolerance: Any
) -> None:
    kind: st.DataType = st.LongType() if values.dtype.kind == "i" else st.DoubleType()
    if attrs:
        kind = st.TimestampType()
    axis = label_axis(st.StructType([st.StructField("c", kind)]), "d", "c", values, attrs, tolerance)
    assert axis.in_spark
    assert axis.labels is not None
    found = axis.labels.values
    step = float(found[1] - found[0]) if len(found) > 1 else 1.0
    asked = near(found if found.dtype.kind == "i" else values.astype("f8"), step)
    arrow = {"long": pa.int64(), "double": pa.float64(), "timestamp": pa.timestamp("us", "UTC")}[kind.typeName()]
    column = pa.concat_arrays([pa.array(asked).cast(arrow), pa.nulls(1, arrow)])
    frame = spark.createDataFrame(pa.table({"n": pa.array(np.arange(len(column))), "c": column}))
    rows = frame.selectExpr("n", f"{axis.sql()} AS i").toArrow().sort_by("n")
    assert np.array_equal(rows.column("i").to_numpy(), axis.indices(column))
