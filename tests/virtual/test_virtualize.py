"""Files made one virtual cube of a repository, by one call."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import h5py
import iris_sample_data
import numpy as np
import pytest
import xarray as xr
import zarr

import arraystore as ars
from arraystore.errors import FormatError
from arraystore.virtual import VirtualizeError, fixed_variables, run, virtualize
from arraystore.virtual.joining import alike
from tests.copying.support import contents
from tests.engines import RUBBISH, Change, PickledEngine
from tests.s3server import S3Server
from tests.tiers import mostly_thorough
from tests.virtual.conftest import Files, model, shown


def opened(storage: ars.Storage, prefix: str) -> ars.Repository:
    return ars.Repository.open(storage, authorize_virtual_chunk_access={prefix: None})


def test_files_become_one_cube_that_grows(files: Files, monkeypatch: Any) -> None:
    monkeypatch.setattr(run, "_BATCH", 1)  # as if they were many
    storage = ars.in_memory_storage()
    done = []
    report = virtualize(
        files.paths[:2], storage, group="cube", concat_dim="time", progress=lambda *count: done.append(count)
    )
    assert report.containers == (files.prefix,)
    assert done == [(1, 2), (2, 2)]
    virtualize(files.paths[2:], storage, group="cube", append_dim="time", message="the third")
    repo = opened(storage, files.prefix)
    xr.testing.assert_identical(shown(repo, "cube"), files.dataset())
    assert [each.message for each in repo.ancestry(branch="main")][:2] == ["the third", "Refer to 2 files from /cube"]


def files_in(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_dry_run_checks_everything_and_writes_nothing(files: Files, tmp_path: Path) -> None:
    storage = ars.local_filesystem_storage(tmp_path / "repo", fsync=False)
    report = virtualize(files.paths[:2], storage, concat_dim="time", dry_run=True)
    assert (report.snapshot_id, report.files, report.containers, report.dry_run) == ("", 2, (files.prefix,), True)
    assert files_in(tmp_path) == {}
    with pytest.raises(VirtualizeError, match="no dimension"):
        virtualize(files.paths[:2], storage, concat_dim="nothing", dry_run=True)
    virtualize(files.paths[:2], storage, concat_dim="time")
    before = files_in(tmp_path)
    with pytest.raises(ars.AlreadyExistsError):
        virtualize(files.paths[:2], storage, concat_dim="time", dry_run=True)
    report = virtualize(files.paths[2:], storage, append_dim="time", dry_run=True)
    assert (report.containers, report.message) == ((), "Refer to model 2.nc from /")
    assert files_in(tmp_path) == before


def test_files_on_a_server_are_read_through_a_saved_container(hdf5_files: Files, s3_server: S3Server) -> None:
    bucket = s3_server.new_bucket()
    for number, path in enumerate(hdf5_files.paths):
        s3_server.client().put_object(Bucket=bucket, Key=f"model/{number}.nc", Body=Path(path).read_bytes())
    prefix = f"s3://{bucket}/model/"
    container = ars.VirtualChunkContainer(
        prefix, region=s3_server.region, endpoint_url=s3_server.endpoint_url, allow_http=True, force_path_style=True
    )
    keys = {"access_key_id": s3_server.access_key_id, "secret_access_key": s3_server.secret_access_key}
    storage = ars.in_memory_storage()
    urls = [f"{prefix}{number}.nc" for number in range(3)]
    virtualize(urls, storage, concat_dim="time", container=container, access={prefix: keys})
    repo = ars.Repository.open(storage, authorize_virtual_chunk_access={prefix: keys})
    xr.testing.assert_identical(shown(repo), hdf5_files.dataset())
    assert repo.verify(level="chunks").ok
    with pytest.raises(ars.VirtualReferenceError, match="not authorised"):
        shown(ars.Repository.open(storage))
    s3_server.client().put_object(Bucket=bucket, Key="model/1.nc", Body=b"something else")
    with pytest.raises(ars.SourceChangedError):
        shown(repo)


@pytest.mark.parametrize("name", ["A1B_north_america.nc", "polar_stereo.grib2"])
def test_a_file_that_a_worker_opens_is_that_of_this_process(name: str, tmp_path: Path) -> None:
    path = os.path.join(iris_sample_data.path, name)
    held = []
    for engine in ("threads", PickledEngine()):
        storage = ars.local_filesystem_storage(tmp_path / str(len(held)), fsync=False)
        virtualize([path], storage, engine=engine)  # type: ignore[arg-type]
        keys = contents(opened(storage, f"file://{iris_sample_data.path}/").readonly_session("main"))
        held.append({key: json.loads(data) if key.endswith("zarr.json") else data for key, data in keys.items()})
    assert held[0] == held[1]


def test_files_that_workers_open_become_one_cube(files: Files, monkeypatch: Any) -> None:
    monkeypatch.setattr(run, "_BATCH", 1)
    storage = ars.in_memory_storage()
    virtualize(files.paths, storage, group="cube", concat_dim="time", engine=PickledEngine(attempts=2))
    xr.testing.assert_identical(shown(opened(storage, files.prefix), "cube"), files.dataset())


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_what_is_no_dataset_is_not_committed(files: Files, rubbish: str) -> None:
    storage = ars.in_memory_storage()
    with pytest.raises(FormatError, match="a virtual dataset"):
        virtualize(files.paths, storage, concat_dim="time", engine=PickledEngine(change=_spoil(RUBBISH[rubbish])))
    assert len(list(ars.Repository.open(storage).ancestry(branch="main"))) == 1


def _spoil(change: Change) -> Change:
    """Return a change of the references of a dataset, not of the mapping around them."""

    def spoilt(result: Any) -> Any:
        return {**result, "virtual": {name: change(tuple(each.values())) for name, each in result["virtual"].items()}}

    return spoilt


def test_a_file_with_a_group_and_variables_to_skip(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["inner/kept"], file["inner/skipped"] = np.arange(5), np.arange(5)
    storage = ars.in_memory_storage()
    virtualize([tmp_path / "a.h5"], storage, source_group="inner", skip=["skipped"])
    group = zarr.open_group(opened(storage, f"file://{tmp_path}/").readonly_session("main").store, mode="r")
    assert list(group) == ["kept"]
    assert group["kept"][:].tolist() == [0, 1, 2, 3, 4]


def test_grib_is_read_by_its_parser() -> None:
    path = os.path.join(iris_sample_data.path, "polar_stereo.grib2")
    storage = ars.in_memory_storage()
    virtualize([path], storage)
    temperature = shown(opened(storage, f"file://{iris_sample_data.path}/")).tmp
    assert temperature.shape == (1, 200, 247)
    assert 200 < float(temperature.mean()) < 320


def test_tiff_is_read_by_its_parser(tmp_path: Path) -> None:
    imagecodecs = pytest.importorskip("imagecodecs")
    image = np.arange(64 * 32, dtype="u2").reshape(64, 32)
    (tmp_path / "a.tif").write_bytes(tiff(image, imagecodecs.zlib_encode))
    storage = ars.in_memory_storage()
    virtualize([tmp_path / "a.tif"], storage)
    store = opened(storage, f"file://{tmp_path}/").readonly_session("main").store
    np.testing.assert_array_equal(np.asarray(zarr.open_array(store, path="0", mode="r")[...]).squeeze(), image)


def tiff(image: np.ndarray[Any, Any], encode: Any) -> bytes:
    """Return a picture as a TIFF of one deflated strip."""
    data = encode(image.tobytes())
    tags = [
        (256, 4, image.shape[1]), (257, 4, image.shape[0]), (258, 3, 16), (259, 3, 8), (262, 3, 1), (273, 4, 8),
        (277, 3, 1), (278, 4, image.shape[0]), (279, 4, len(data)), (339, 3, 1),
    ]  # fmt: skip
    entries = b"".join(
        np.array([tag, kind], "<u2").tobytes() + np.array([1, value], "<u4").tobytes() for tag, kind, value in tags
    )
    padding = b"\0" * (len(data) % 2)
    directory = np.array([len(tags)], "<u2").tobytes() + entries + b"\0" * 4
    return b"II*\0" + np.array([8 + len(data) + len(padding)], "<u4").tobytes() + data + padding + directory


def test_a_container_that_is_saved_serves_further_files_and_another_is_added(hdf5_files: Files, tmp_path: Path) -> None:
    storage = ars.in_memory_storage()
    parent = ars.VirtualChunkContainer(f"file://{Path(hdf5_files.paths[0]).parents[1]}/")
    assert virtualize(hdf5_files.paths[:1], storage, group="a", container=parent).containers == (parent.url_prefix,)
    assert virtualize(hdf5_files.paths[1:2], storage, group="b").containers == ()
    elsewhere = Path(f"{tmp_path}-elsewhere")
    elsewhere.mkdir()
    os.link(hdf5_files.paths[2], elsewhere / "c.nc")
    inside = str(elsewhere).startswith(parent.url_prefix.removeprefix("file://"))
    added = virtualize([elsewhere / "c.nc"], storage, group="c").containers
    assert added == (() if inside else (f"file://{elsewhere}/",))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"files": []}, "no file"),
        ({"append_dim": "time", "concat_dim": "y"}, "same dimension"),
        ({}, "need a dimension"),
        ({"concat_dim": "z"}, "no dimension 'z'"),
        ({"concat_dim": "time", "source_group": "nothing"}, "cannot be referred to"),
        ({"concat_dim": "time", "container": ars.VirtualChunkContainer("file:///nowhere/")}, "not in the container"),
        ({"files": ["/nowhere/a.nc"]}, "does not exist"),
        ({"files": [__file__]}, "neither NetCDF, HDF5, GRIB nor TIFF"),
        ({"files": ["s3://a/x.nc", "gs://b/x.nc"], "concat_dim": "time"}, "no directory in common"),
    ],
)
def test_what_cannot_be_referred_to_is_refused_and_nothing_is_committed(
    hdf5_files: Files, options: dict[str, Any], reason: str
) -> None:
    storage = ars.in_memory_storage()
    with pytest.raises(ars.ArrayStoreError, match=reason):
        virtualize(**({"files": hdf5_files.paths} | options), storage=storage)
    if ars.Repository.exists(storage):
        assert len(list(ars.Repository.open(storage).ancestry(branch="main"))) == 1


def test_units_that_differ_are_refused(hdf5_files: Files, tmp_path: Path) -> None:
    later = xr.open_dataset(hdf5_files.paths[1]).load()
    later.rain.encoding |= {"scale_factor": 0.25, "source": None}
    later.to_netcdf(tmp_path / "later.nc", engine="h5netcdf")
    storage = ars.in_memory_storage()
    virtualize(hdf5_files.paths[:1], storage, append_dim="time")
    with pytest.raises(VirtualizeError, match="differs in"):
        virtualize([tmp_path / "later.nc"], storage, append_dim="time", access={hdf5_files.prefix: None})


def test_a_place_that_is_not_authorised_is_not_read_to_compare(hdf5_files: Files, tmp_path: Path) -> None:
    storage, later = ars.in_memory_storage(), tmp_path / "later.nc"
    later.write_bytes(Path(hdf5_files.paths[1]).read_bytes())
    virtualize(hdf5_files.paths[:1], storage, append_dim="time")
    with pytest.raises(ars.VirtualReferenceError, match="not authorised") as refused:
        virtualize([later], storage, append_dim="time")
    assert "compare=False" in refused.value.__notes__[0]
    virtualize([later], storage, append_dim="time", access={hdf5_files.prefix: None})
    virtualize([later], storage, append_dim="time", compare=False)
    assert len(list(ars.Repository.open(storage).ancestry(branch="main"))) == 4


def written(directory: Path, **changes: Any) -> list[str]:
    """Write two files that follow each other, the second one changed."""
    first, second = model(0), model(1)
    for dataset in (first, second):
        dataset.coords["lat"] = ("lat", np.arange(3.0))
        dataset["snow"] = (("time", "lat"), np.ones((2, 3)))
    second.rain.encoding |= changes.get("encoding", {})
    second = second.assign_coords(changes.get("coords", {})).drop_vars(changes.get("without", []))
    second = second.assign(changes.get("variables", {}))
    for number, dataset in enumerate((first, second)):
        dataset.rain.encoding |= {"chunksizes": (1, 3, 4)}
        dataset.to_netcdf(directory / f"{number}.nc", engine="h5netcdf")
    return [str(directory / f"{number}.nc") for number in range(2)]


@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"encoding": {"scale_factor": 0.25}}, "scale_factor"),
        ({"coords": {"lat": np.arange(3.0)[::-1]}}, "'lat'.* has other values"),
        ({"without": ["snow"]}, "snow"),
        ({"variables": {"snow": (("lat", "time"), np.ones((3, 2)))}}, "'snow'.*dimension"),
    ],
)
def test_files_that_mean_something_else_are_not_joined(
    tmp_path: Path, monkeypatch: Any, batch: int, changes: dict[str, Any], reason: str
) -> None:
    monkeypatch.setattr(run, "_BATCH", batch)
    storage = ars.in_memory_storage()
    with pytest.raises(VirtualizeError, match=reason):
        virtualize(written(tmp_path, **changes), storage, concat_dim="time")
    assert len(list(ars.Repository.open(storage).ancestry(branch="main"))) == 1


def test_labels_that_differ_by_rounding_are_joined(tmp_path: Path) -> None:
    storage = ars.in_memory_storage()
    virtualize(written(tmp_path, coords={"lat": np.arange(3.0) + 1e-9}), storage, concat_dim="time")
    assert shown(opened(storage, f"file://{tmp_path}/")).lat.values.tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["a#b.nc", "dir?/x;y.nc", "a%23b c.nc", "ünï.nc"])
@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_a_file_of_any_name_is_the_one_that_is_parsed_and_read(engine: Any, name: str, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    xr.Dataset({"other": ("q", np.arange(7.0))}).to_netcdf(tmp_path / "a", engine=engine)  # what a URL would end at
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    expected = xr.Dataset(
        {"t": (("time", "x"), np.arange(1200.0).reshape(2, 600))}, {"time": [3, 4], "x": np.arange(600)}
    )
    expected.to_netcdf(path, engine=engine)
    for loadable in (None, ["time"], ["time", "t"]):
        report = virtualize([path], storage := ars.in_memory_storage(), group="g", loadable_variables=loadable)
        xr.testing.assert_equal(shown(opened(storage, report.containers[0]), "g"), expected)


def fixed_in(directory: Path, *latitudes: Any) -> list[str]:
    """Write files that follow each other, with a two-dimensional latitude of their own."""
    paths = []
    for number, latitude in enumerate(latitudes):
        dataset = model(number)
        dataset.coords["latitude"] = (("y", "x"), np.asarray(latitude))
        dataset.latitude.encoding = {"_FillValue": -9999.0, "chunksizes": (2, 2)}
        dataset.rain.encoding |= {"chunksizes": (1, 3, 4)}
        paths.append(str(directory / f"{number}.nc"))
        dataset.to_netcdf(paths[-1], engine="h5netcdf")
    return paths


GRID = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("batch", mostly_thorough([1, 2, 64]))
@pytest.mark.parametrize("block", [1, 1 << 24])
@pytest.mark.parametrize("engine", ["threads", PickledEngine()])
def test_files_whose_variables_without_the_dimension_differ_are_not_joined(
    tmp_path: Path, monkeypatch: Any, batch: int, block: int, engine: Any
) -> None:
    monkeypatch.setattr(run, "_BATCH", batch)
    monkeypatch.setattr(fixed_variables, "_BLOCK", block)
    moved = GRID.copy()
    moved[2, 3] += 0.5
    paths = fixed_in(tmp_path, GRID, GRID + 1e-9, moved)
    storage = ars.in_memory_storage()
    with pytest.raises(VirtualizeError, match=r"'latitude'.* has other values than in"):
        virtualize(paths, storage, concat_dim="time", engine=engine)
    assert len(list(ars.Repository.open(storage).ancestry(branch="main"))) == 1
    virtualize(paths[:2], storage, concat_dim="time", engine=engine)
    with pytest.raises(VirtualizeError, match="variable 'latitude' has other values than in group '/'"):
        virtualize(paths[2:], storage, append_dim="time", engine=engine)
    virtualize(paths[2:], storage, append_dim="time", engine=engine, compare=False)
    cube = shown(opened(storage, f"file://{tmp_path}/"))
    assert cube.sizes["time"] == 6
    np.testing.assert_array_equal(cube.latitude.values, GRID)


def test_a_variable_without_the_dimension_must_mean_the_same(tmp_path: Path) -> None:
    paths = fixed_in(tmp_path, GRID, GRID)
    with h5py.File(paths[1], "r+") as file:
        file["latitude"].attrs["units"] = "radians"
    for arguments in ({"files": paths}, {"files": paths[1:]}):
        storage = ars.in_memory_storage()
        if len(arguments["files"]) == 1:
            virtualize(paths[:1], storage, append_dim="time")
        with pytest.raises(VirtualizeError, match=r"'latitude'.* has units="):
            virtualize(**arguments, storage=storage, append_dim="time")


def test_whole_numbers_are_no_labels_that_differ_by_rounding(tmp_path: Path) -> None:
    for number in range(2):
        stations = np.arange(3) + 20_000_000 + number
        dataset = xr.Dataset(
            {"rain": (("time", "station"), np.ones((1, 3)))}, {"time": [number], "station": stations.astype("i8")}
        )
        dataset.to_netcdf(tmp_path / f"{number}.nc", engine="h5netcdf")
    with pytest.raises(VirtualizeError, match=r"'station'.* has other values"):
        virtualize([tmp_path / "0.nc", tmp_path / "1.nc"], ars.in_memory_storage(), concat_dim="time")
    floats = np.arange(3.0) + 20_000_000
    assert not alike(floats + 1, floats)
    assert alike(floats + 1e-9, floats)
    assert alike(np.float32([0.1, 0.2]), np.array([0.1, 0.2]))
    assert alike(np.array([np.nan, 360.0]), np.array([np.nan, 360.0]))
    assert not alike(np.array([np.nan, 360.0]), np.array([0.0, 360.0]))
