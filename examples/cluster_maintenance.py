"""Maintenance on a Spark cluster: verify, compact, materialize, copy, export and import, with the same calls as here.

Run it as it stands, on two executors of one slot each in processes of their own, or name a cluster::

    python examples/cluster_maintenance.py
    python examples/cluster_maintenance.py --master spark://host:7077 --place s3://bucket/prefix

On a cluster, the place must be one that executors reach with credentials of their own; see docs/clusters.md.
"""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import zarr

from arraystore import Repository, RepositoryConfig
from arraystore.copying import clone_repository, export_zarr, import_zarr, materialize
from arraystore.spark import SparkEngine, engine, start_session
from arraystore.storage import Storage, storage_from_url

DAYS, SIDE = 64, 128
CHUNKS = (1, SIDE // 2, SIDE // 2)


def main() -> None:
    """Build a repository and maintain it."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--master", default="local-cluster[2,1,1024]", help="where executors run")
    parser.add_argument("--place", help="directory or URL for the repositories; a temporary directory by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = options.place or directory
        repository = build(storage_from_url(f"{place}/climate"))
        spark = start_session(options.master)
        try:
            maintain(repository, engine(spark), place)
        finally:
            spark.stop()


def build(storage: Storage) -> Repository:
    """Create a repository with many small packs, as appends of single days leave them."""
    config = RepositoryConfig(own_object_threshold_bytes=1 << 20, pack_target_bytes=1 << 20)
    repository = Repository.create(storage, config)
    with repository.transaction("main", message="create") as store:
        zarr.create_array(store, name="rain", shape=(DAYS, SIDE, SIDE), chunks=CHUNKS, dtype="f4", compressors=None)
    for day in range(DAYS):
        session = repository.writable_session("main")
        session.write("rain", slice(day, day + 1), rain_of(day))
        session.commit(f"day {day}")
    return repository


def rain_of(day: int) -> np.ndarray:
    """Return the values of a day."""
    return np.random.default_rng(day).random((1, SIDE, SIDE), dtype="f4")


def maintain(repository: Repository, workers: SparkEngine, place: str) -> None:
    """Run each kind of maintenance on the executors, and check what it leaves."""
    print(repository.verify("chunks", engine=workers))
    summary = repository.compact(engine=workers)
    print(f"compacted: {summary.packs_rewritten} packs into {summary.packs_written}, {summary.chunks_copied} chunks")

    copy = storage_from_url(f"{place}/copy")
    report = clone_repository(repository.storage, copy, engine=workers)
    print(f"cloned: {report.objects} objects, {report.bytes:,} bytes, {report.snapshots} snapshots verified")

    exported = export_zarr(repository, f"{place}/plain", branch="main", engine=workers)
    print(f"exported: {exported.chunks} chunks to {place}/plain")
    target = Repository.create(storage_from_url(f"{place}/imported"))
    imported = import_zarr(f"{place}/plain", target, engine=workers)
    print(f"imported: {imported.chunks} chunks in snapshot {imported.snapshot_id}")
    print(f"virtual chunks left: {materialize(target, engine=workers).chunks}")
    check(target)


def check(repository: Repository) -> None:
    """Compare all values with what was written."""
    array = zarr.open_array(repository.readonly_session("main").store, path="rain", mode="r")
    expected = np.concatenate([rain_of(day) for day in range(DAYS)])
    np.testing.assert_array_equal(np.asarray(array[...]), expected)
    assert repository.verify("chunks").ok
    print("all values are what was written")


if __name__ == "__main__":
    main()
