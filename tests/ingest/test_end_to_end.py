"""What was in the sources is in the repository: values, attributes, fill values, dimensions, in one commit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
import zarr

import arraystore
from arraystore.errors import InvalidInputError, StorageError
from arraystore.ingest import IngestReport, TargetExistsError, VariableMismatchError, ingest
from arraystore.storage import Storage
from tests.ingest.conftest import Make, climate, history, ingested, raw, write_source
from tests.s3server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def decoded(storage: Storage, group: str | None = None) -> xr.Dataset:
    store = arraystore.Repository.open(storage).readonly_session("main").store
    return xr.open_zarr(store, group=group, consolidated=False, chunks=None).load()


def assert_holds(storage: Storage, expected: xr.Dataset, group: str = "") -> None:
    """Values, types, dimensions and attributes, all of them and nothing else."""
    found = ingested(storage, group)
    assert set(found.variables) == set(expected.variables)
    for name, variable in expected.variables.items():
        assert (found[name].dims, found[name].dtype) == (variable.dims, variable.dtype.newbyteorder("=")), name
        np.testing.assert_array_equal(found[name].values, variable.values)
        np.testing.assert_equal(_as_lists(found[name].attrs), _as_lists(variable.attrs))
    assert found.attrs == expected.attrs


def joined(*parts: tuple[int, int]) -> xr.Dataset:
    """What sources that begin somewhere and have a length are together."""
    expected = climate(length=sum(length for _, length in parts))
    for start, length in parts:
        for name in ("tas", "wind"):
            expected[name][start] = climate(start, length)[name][0]
    return expected


def _as_lists(attrs: dict[str, Any]) -> dict[str, Any]:
    return {key: np.asarray(value).tolist() for key, value in attrs.items()}


@pytest.mark.end_to_end
@pytest.mark.parametrize("kind", ["netcdf3", "netcdf4", "hdf5", "zarr2", "zarr3"])
def test_a_source_of_any_format_arrives_unchanged(
    spark: SparkSession, storage: Storage, make_source: Make, kind: str
) -> None:
    path = make_source("source", kind)
    report = ingest([path], storage, group="deep/climate", spark=spark)
    assert {array.name for array in report.plan.arrays if not array.on_driver} == {"tas", "wind", "lat", "lon"}
    assert_holds(storage, climate(), "deep/climate")
    assert history(storage) == ["Ingest source into /deep/climate"]


@pytest.mark.parametrize("kind", ["netcdf3", "netcdf4", "hdf5"])
def test_a_reader_sees_the_same_as_in_the_source(
    spark: SparkSession, storage: Storage, make_source: Make, kind: str
) -> None:
    path = make_source("source.nc", kind)
    ingest([path], storage, spark=spark)
    with xr.open_dataset(path) as source:
        found = decoded(storage)
        xr.testing.assert_identical(found, source.load())
        for name in ("_FillValue", "scale_factor", "add_offset", "dtype"):
            assert found.tas.encoding[name] == source.tas.encoding[name]


def test_arrays_carry_their_fill_value_dimension_names_and_chunks(
    spark: SparkSession, storage: Storage, make_source: Make
) -> None:
    ingest([make_source()], storage, spark=spark, chunks={"time": 6, "y": 20})
    group = zarr.open_group(arraystore.Repository.open(storage).readonly_session("main").store, mode="r")
    tas = group["tas"]
    assert isinstance(tas, zarr.Array)
    assert tas.metadata.zarr_format == 3
    assert tas.metadata.dimension_names == ("time", "y", "x")
    assert tas.chunks == (6, 20, 50)
    assert tas.fill_value == -999
    assert np.isnan(group["wind"].fill_value)  # type: ignore[union-attr]
    assert group["height"].shape == ()  # type: ignore[union-attr]


@pytest.mark.parametrize("tasks", [1, 2, 7, 100])
def test_the_number_of_tasks_makes_no_difference(
    spark: SparkSession, storage: Storage, make_source: Make, tasks: int
) -> None:
    report = ingest([make_source(length=120)], storage, spark=spark, tasks=tasks, chunks={"time": 12})
    assert 1 <= len(report.plan.tasks) <= tasks
    assert_holds(storage, climate(length=120))


@pytest.mark.end_to_end
def test_several_sources_are_joined_in_one_commit_across_chunk_boundaries(
    spark: SparkSession, storage: Storage, make_source: Make
) -> None:
    paths = [make_source(f"{start}.nc", start=start, length=5) for start in range(0, 60, 5)]
    ingest(paths, storage, append_dim="time", chunks={"time": 12}, spark=spark, message="five years")
    assert_holds(storage, joined(*((start, 5) for start in range(0, 60, 5))))
    assert history(storage) == ["five years"]


@pytest.mark.end_to_end
def test_an_append_adds_to_what_is_there_and_leaves_old_snapshots_alone(
    spark: SparkSession, storage: Storage, make_source: Make
) -> None:
    parts = [climate(start, 12) for start in (0, 12, 24, 36)]
    paths = [write_source(part, make_source(f"{i}.nc")) for i, part in enumerate(parts)]
    before = ingest(paths[:1], storage, append_dim="time", spark=spark).snapshot_id
    ingest(paths[1:2], storage, append_dim="time", spark=spark)
    after = ingest(paths[2:], storage, append_dim="time", spark=spark)
    assert after.plan.appends
    whole = xr.concat(parts, "time", data_vars="minimal", coords="minimal", compat="override", join="override")
    for name in whole.variables:
        np.testing.assert_array_equal(ingested(storage)[name].values, whole[name].values)
    assert ingested(storage, snapshot_id=before).sizes["time"] == 12
    assert history(storage) == [
        "Ingest 0.nc into /", "Append 1.nc to / along time", "Append 2 sources to / along time",
    ]  # fmt: skip


def test_an_append_in_other_time_units_arrives_at_the_same_instants(
    spark: SparkSession, storage: Storage, make_source: Make
) -> None:
    def in_hours(dataset: xr.Dataset) -> xr.Dataset:
        dataset["time"] = dataset.time.copy(data=(dataset.time.values - 10) * 24)
        dataset.time.attrs["units"] = "hours since 2000-01-11"
        return dataset.assign(time_bnds=(dataset.time_bnds - 10) * 24)

    ingest([make_source("a.nc", length=24)], storage, append_dim="time", spark=spark)
    ingest([make_source("b.nc", start=24, length=24, change=in_hours)], storage, append_dim="time", spark=spark)
    found = ingested(storage)
    assert found.time.values.tolist() == list(range(48))
    assert found.time_bnds.values.tolist() == [[i, i + 1] for i in range(48)]
    assert found.time.attrs["units"] == "days since 2000-01-01"


def test_text_and_characters_arrive(spark: SparkSession, storage: Storage, tmp_path: Path) -> None:
    names = np.array([f"station {i} in Zürich" for i in range(3000)], dtype=object)
    dataset = xr.Dataset(
        {
            "name": ("station", names, {"long_name": "name of the station"}),
            "code": ("station", np.array([f"S{i:04}" for i in range(3000)], "S5")),
            "table": (("station", "kind"), np.array([["a", ""]] * 3000, dtype=object)),
            "letter": ((), np.array(b"x")),
        }
    )
    path = tmp_path / "text.nc"
    dataset.to_netcdf(path, engine="netcdf4")
    ingest([path], storage, spark=spark)
    with xr.open_dataset(path) as source:
        found = decoded(storage)
        assert found.name.values.tolist() == source.name.values.tolist()
        assert found.code.dtype == source.code.dtype == np.dtype("S5")
        assert found.code.values.tolist() == source.code.values.tolist()
        assert found.table.values.tolist() == source.table.values.tolist()
        assert found.letter.values == source.letter.values == b"x"
        assert found.name.attrs == source.name.attrs


def test_a_source_without_elements_arrives(spark: SparkSession, storage: Storage, make_source: Make) -> None:
    path = make_source(change=lambda dataset: dataset.isel(time=slice(0, 0)))
    ingest([path], storage, append_dim="time", spark=spark)
    assert ingested(storage).sizes["time"] == 0
    ingest([make_source("more.nc")], storage, append_dim="time", spark=spark)
    assert_holds(storage, climate())


def test_a_second_group_leaves_the_first_alone(spark: SparkSession, storage: Storage, make_source: Make) -> None:
    ingest([make_source("a.nc")], storage, group="a", spark=spark)
    ingest([make_source("b.nc", offset=1.0)], storage, group="b", spark=spark)
    assert_holds(storage, climate(), "a")
    assert_holds(storage, climate(offset=1.0), "b")


def test_small_sources_need_no_spark(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **options: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("arraystore.ingest.run.start_session", never)
    path = write_source(xr.Dataset({"soi": ("time", np.arange(1776.0))}), tmp_path / "soi.nc")
    ingest([path], storage)
    assert ingested(storage).soi.values.tolist() == list(range(1776))


def test_the_snapshot_tells_about_its_making_without_paths(
    spark: SparkSession, storage: Storage, make_source: Make, tmp_path: Path
) -> None:
    report: IngestReport = ingest([make_source("made.nc")], storage, group="g", spark=spark)
    newest = next(iter(arraystore.Repository.open(storage).ancestry(branch="main")))
    assert newest.id == report.snapshot_id
    assert newest.metadata["ingest.sources"] == ["made.nc"]
    assert str(tmp_path) not in repr(newest.metadata)


def test_values_that_do_not_grow_must_be_equal(spark: SparkSession, storage: Storage, make_source: Make) -> None:
    def moved(dataset: xr.Dataset) -> xr.Dataset:
        dataset["lat"][44, 49] += 1
        return dataset

    ingest([make_source("a.nc")], storage, append_dim="time", spark=spark)
    other = make_source("b.nc", start=24, change=moved)
    with pytest.raises(VariableMismatchError, match=r"'lat' of .*b\.nc.*other values than in group '/'.*--skip lat"):
        ingest([other], storage, append_dim="time", spark=spark)
    with pytest.raises(VariableMismatchError, match=r"'lat' of .*b\.nc.*other values than in source .*a\.nc"):
        ingest([make_source("a.nc"), other], storage, group="new", append_dim="time", spark=spark)
    assert len(history(storage)) == 1
    ingest([other], storage, append_dim="time", spark=spark, skip=["lat"])
    assert ingested(storage).sizes["time"] == 48


def test_what_is_refused_leaves_no_repository_behind(storage: Storage, make_source: Make) -> None:
    with pytest.raises(VariableMismatchError):
        ingest([make_source("a.nc")], storage, append_dim="level")
    assert not arraystore.Repository.exists(storage)


def test_an_ingest_does_not_replace_arrays(spark: SparkSession, storage: Storage, make_source: Make) -> None:
    ingest([make_source()], storage, group="g", spark=spark)
    with pytest.raises(TargetExistsError, match="'/g' already has"):
        ingest([make_source()], storage, group="/g/", spark=spark)
    assert len(history(storage)) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"zarr_format": 2},
        {"zarr_format": 3},
        {"zarr_format": 3, "encoding": {"wind": {"chunks": (2, 45, 50), "shards": (12, 45, 50)}}},
    ],
    ids=["v2", "v3", "sharded"],
)
def test_arrays_that_somebody_else_made_grow_as_well(
    spark: SparkSession, storage: Storage, make_source: Make, options: dict[str, Any]
) -> None:
    session = arraystore.Repository.create(storage).writable_session("main")
    raw(make_source("first.nc")).to_zarr(session.store, group="g", consolidated=False, **options)
    session.commit("by xarray")
    ingest([make_source("more.nc", start=24)], storage, group="g", append_dim="time", spark=spark)
    found = ingested(storage, "g")
    for name, variable in climate(24).variables.items():
        later = found[name][24:] if "time" in variable.dims else found[name]
        np.testing.assert_array_equal(later.values, variable.values)
    np.testing.assert_array_equal(found["tas"][:24].values, climate()["tas"].values)


def test_more_sources_than_may_be_open_at_once_are_joined(
    spark: SparkSession, storage: Storage, make_source: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arraystore.ingest.transfer.MOST_OPEN_SOURCES", 2)
    paths = [make_source(f"{start}.nc", start=start, length=1) for start in range(6)]
    ingest(paths, storage, append_dim="time", chunks={"time": 6}, spark=spark)
    assert ingested(storage).time.values.tolist() == list(range(6))


def on_s3(server: S3Server, **options: Any) -> Storage:
    return arraystore.s3_storage(
        bucket=server.new_bucket(),
        prefix="repo",
        region=server.region,
        endpoint_url=server.endpoint_url,
        allow_http=True,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
        **options,
    )


@pytest.mark.end_to_end
def test_executors_write_to_object_storage(spark: SparkSession, make_source: Make, s3_server: S3Server) -> None:
    storage = on_s3(s3_server, pickle_credentials=True)
    ingest([make_source()], storage, group="g", append_dim="time", spark=spark)
    ingest([make_source("more.nc", start=24)], storage, group="g", append_dim="time", spark=spark)
    assert ingested(storage, "g").time.values.tolist() == list(range(48))
    np.testing.assert_array_equal(ingested(storage, "g")["tas"][24:].values, climate(24)["tas"].values)


def test_credentials_do_not_go_to_executors_unasked(
    spark: SparkSession, make_source: Make, s3_server: S3Server
) -> None:
    storage = on_s3(s3_server)
    with pytest.raises(StorageError, match="pickle_credentials=True") as caught:
        ingest([make_source()], storage, spark=spark)
    assert s3_server.secret_access_key not in str(caught.value)
    assert history(storage) == []


def test_a_repository_in_memory_is_refused_since_executors_cannot_reach_it(make_source: Make) -> None:
    with pytest.raises(InvalidInputError, match="executors cannot access"):
        ingest([make_source()], arraystore.in_memory_storage())


@pytest.mark.parametrize("aligned", [True, False])
def test_two_appends_at_once_both_succeed_where_chunks_end_with_the_sources(
    spark: SparkSession, storage: Storage, make_source: Make, monkeypatch: pytest.MonkeyPatch, aligned: bool
) -> None:
    from arraystore.ingest import run

    ingest([make_source("0.nc")], storage, append_dim="time", chunks={"time": 12}, spark=spark)
    length = 24 if aligned else 18
    original = run.run_tasks

    def meanwhile(*args: object, **options: object) -> object:
        monkeypatch.setattr(run, "run_tasks", original)
        ingest([make_source("1.nc", start=24, length=length)], storage, append_dim="time", spark=spark)
        return original(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "run_tasks", meanwhile)
    last = make_source("2.nc", start=48)
    if aligned:
        ingest([last], storage, append_dim="time", spark=spark)
        assert_holds(storage, joined((0, 24), (24, length), (48, 24)))
    else:
        with pytest.raises(arraystore.RebaseFailedError, match="choose chunks"):
            ingest([last], storage, append_dim="time", spark=spark)
        assert_holds(storage, joined((0, 24), (24, length)))
