"""Many NetCDF files as one cube that grows, without copying them: commit, append, read by Spark, copy in.

    python examples/virtual.py

Each file has ten days of a small model.  `virtualize` refers to their chunks: the repository keeps where they are, in
a container that readers authorise.  Spark opens the files that come later and reads all of them through one snapshot.
In the end `materialize` copies the chunks, and the files are needed no longer.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import xarray as xr

import arraystore
import arraystore.spark as asp
from arraystore.copying import materialize
from arraystore.virtual import virtualize

DAYS, NORTH, EAST = 10, 18, 36


def write_file(directory: Path, number: int) -> Path:
    """Write a file of ten days: packed, compressed, a chunk a day."""
    random = np.random.default_rng(number)
    days = np.arange(DAYS * number, DAYS * (number + 1))
    dataset = xr.Dataset(
        {"temperature": (("time", "lat", "lon"), 280 + random.normal(0, 9, (DAYS, NORTH, EAST)))},
        coords={
            "time": ("time", days, {"units": "days since 2020-01-01"}),
            "lat": np.linspace(-85, 85, NORTH),
            "lon": np.arange(0.0, 360, 10),
        },
        attrs={"title": "a small model"},
    )
    packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}
    dataset.temperature.encoding = packed | {"chunksizes": (1, NORTH, EAST), "zlib": True, "shuffle": True}
    path = directory / f"model-{number:03}.nc"
    dataset.to_netcdf(path, engine="h5netcdf")
    return path


def joined(files: list[Path]) -> xr.Dataset:
    """Return the files as xarray joins them."""
    return xr.open_mfdataset(files, combine="nested", concat_dim="time", data_vars="minimal").load()


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "archive"
        archive.mkdir()
        files = [write_file(archive, number) for number in range(12)]
        storage = arraystore.local_filesystem_storage(Path(scratch) / "repository")

        first = virtualize(files[:8], storage, group="model", concat_dim="time")
        print(f"{first.files} files in snapshot {first.snapshot_id}, in the container {first.containers[0]}")

        spark = asp.start_session("local[2]")
        later = virtualize(files[8:], storage, group="model", append_dim="time", engine=asp.engine(spark))
        print(f"{later.files} files appended in snapshot {later.snapshot_id}")

        access = dict.fromkeys(first.containers)
        repository = arraystore.Repository.open(storage, authorize_virtual_chunk_access=access)
        cube = xr.open_dataset(repository, engine="arraystore", group="model")
        expected = joined(files)
        xr.testing.assert_identical(cube.load(), expected)
        before = xr.open_dataset(repository, engine="arraystore", group="model", snapshot_id=first.snapshot_id)
        assert before.sizes["time"] == 8 * DAYS

        frame = asp.read_dataframe(spark, repository, "model/temperature", decode=True)
        mean = frame.selectExpr("avg(temperature)").first()[0]
        np.testing.assert_allclose(mean, float(expected.temperature.mean()), rtol=1e-6)
        print(f"{expected.temperature.size:,} values read by Spark, {mean:.2f} K on average")

        copied = materialize(repository, group="model")
        shutil.rmtree(archive)
        alone = xr.open_dataset(storage, engine="arraystore", group="model")
        xr.testing.assert_identical(alone.load(), expected)
        print(f"{copied.chunks} chunks copied in {copied.commits} commit, and the files deleted: the same values")


if __name__ == "__main__":
    main()
