"""Maintenance whose executors are killed does all of its work once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import zarr

from arraystore import Repository, RepositoryConfig, Storage
from arraystore.copying import export_zarr
from tests.commit.support import keys
from tests.spark.clusters.drivers import maintain_without_executors
from tests.spark.clusters.masters import Cluster
from tests.spark.clusters.model import ROWS, cube, new_repository, numbers, regions, storage_at
from tests.spark.clusters.processes import call_in_driver

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-clusters"), pytest.mark.timeout(900)]

PACKED = RepositoryConfig(inline_chunk_threshold_bytes=8, own_object_threshold_bytes=300, pack_target_bytes=2000)


def fill(storage: Storage) -> None:
    session = new_repository(storage).writable_session("main")
    for region in regions():
        session.write("cube", region, numbers()[region])
    session.commit("the cube")


def fill_packs(storage: Storage) -> None:
    """Leave packs of which the half is dead."""
    repository = Repository.create(storage, PACKED)
    with repository.transaction("main", message="begin") as store:
        zarr.create_array(store, name="a", shape=(400,), chunks=(20,), dtype="<i8", compressors=None)
    for start in range(0, 400, 20):
        with repository.transaction("main", message="more") as store:
            zarr.open_array(store, path="a")[start : start + 20] = np.arange(start, start + 20)


def test_executors_that_are_killed_in_maintenance_are_replaced(workers: Cluster, tmp_path: Path) -> None:
    names = ("repository", "clone", "packed", "imported")
    source, clone, packed, imported = (storage_at(tmp_path / name) for name in names)
    fill(source)
    fill_packs(packed)
    export_zarr(Repository.open(source), str(tmp_path / "plain"), branch="main")
    Repository.create(imported)
    report = call_in_driver(
        maintain_without_executors,
        tmp_path / "driver",
        workers.environment,
        settings=workers.settings,
        place=str(tmp_path),
    )
    for name in names[1:]:
        assert (tmp_path / f"{name} killed").exists(), name
    assert (report["left out"], report["copied"], report["imported"]) == (0, 20, ROWS)
    assert {key: bytes(clone.get_sync(key)) for key in keys(clone, "chunks/")} == {
        key: bytes(source.get_sync(key)) for key in keys(source, "chunks/")
    }
    for storage in (clone, imported):
        np.testing.assert_array_equal(cube(storage), numbers())
    array = zarr.open_array(Repository.open(packed).readonly_session("main").store, path="a", mode="r")
    assert np.array_equal(array[:], np.arange(400))
    for storage in (clone, packed, imported):  # attempts that were lost leave garbage, and nothing else
        Repository.open(storage).garbage_collect(datetime.now(UTC))
        found = Repository.open(storage).verify("chunks")
        leaks = {kind for kind, leak in found.leaks.items() if leak.objects}
        assert (found.findings, leaks - {"manifests"}) == ((), set()), found  # a rewrite record keeps its manifest
