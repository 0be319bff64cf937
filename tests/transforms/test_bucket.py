"""Transforms of arrays in a bucket: what they write is what they write elsewhere, at a bounded count of requests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import Repository, Storage, in_memory_storage, s3_storage
from arraystore.storage import CountingStorage
from arraystore.transforms import build_pyramid, quantile, rechunk, reduce_array, transform_chunks
from tests.s3server import S3Server
from tests.transforms.conftest import put

DIMS = ("t", "y", "x")
SHAPE = (24, 16, 16)
VIRTUAL = 4
"""Maps that are virtual, in an object of their own."""


def storage_of(server: S3Server, bucket: str, prefix: str) -> Storage:
    return s3_storage(
        bucket=bucket, prefix=prefix, region=server.region, endpoint_url=server.endpoint_url, allow_http=True,
        access_key_id=server.access_key_id, secret_access_key=server.secret_access_key,
    )  # fmt: skip


def values() -> Any:
    return np.random.default_rng(3).normal(size=SHAPE).astype("<f4")


def filled(storage: Storage, source: Storage, prefix: str) -> Repository:
    """Create a repository with maps, the first of which are virtual."""
    source.put_sync("maps.bin", values()[:VIRTUAL].tobytes())
    repo = Repository.create(storage, authorize_virtual_chunk_access={prefix: source})
    session = repo.writable_session("main")
    put(session, "maps", values(), (1, 16, 16), DIMS, compressors=None)
    size = values()[0].nbytes
    offsets = size * np.arange(VIRTUAL)
    references = [f"{prefix}maps.bin"] * VIRTUAL, offsets, [size] * VIRTUAL
    session.store.set_virtual_refs_arr("maps", (VIRTUAL, 1, 1), *references)
    session.commit("maps")
    return repo


def transformed(repo: Repository) -> dict[str, Any]:
    """Run each kind of transform, and return what it made."""
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="smooth", shape=SHAPE, chunks=(8, 8, 8), dtype="<f4", dimension_names=DIMS)
    transform_chunks(session, "maps", "smooth", lambda maps: maps[:-2] + maps[2:], halo={"t": 1}, boundary="nearest")
    reduce_array(session, "maps", "mean", "mean", "t")
    quantile(session, "maps", "median", 0.5)
    build_pyramid(session, "maps", {"y": 2, "x": 2}, levels=2)
    session.commit("transforms")
    rechunk(repo, "maps", {"t": -1, "y": 4, "x": 4}, target="series")
    session = repo.readonly_session("main")
    names = ("smooth", "mean", "median", "overviews/1/maps", "overviews/2/maps", "series")
    return {name: session.read(name) for name in names}


@pytest.fixture
def expected() -> dict[str, Any]:
    return transformed(filled(in_memory_storage(), in_memory_storage(), "memory://source/"))


def test_transforms_in_a_bucket_are_those_in_memory(s3_server: S3Server, expected: dict[str, Any]) -> None:
    bucket = s3_server.new_bucket()
    storage = CountingStorage(storage_of(s3_server, bucket, "repository"), log=False)
    repo = filled(storage, storage_of(s3_server, bucket, "source"), f"s3://{bucket}/source/")
    before = storage.counts
    found = transformed(repo)
    assert {name for name in expected if not np.array_equal(found[name], expected[name])} == set()
    assert np.array_equal(found["series"], values())
    assert repo.list_branches() == {"main"}
    assert repo.verify("chunks").ok
    assert (storage.counts - before).total < 400
