"""Repositories on every kind of storage, and both codec pipelines."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zarr
import zarr.core.codec_pipeline

from arraystore import Repository, Session, use_pipeline
from arraystore.storage import MemoryStorage, Storage, in_memory_storage, local_filesystem_storage, s3_storage
from tests.s3server import S3Server

NewStorage = Callable[[], Storage]

use_pipeline()  # before any block sets another one, at the end of which zarr's own would be restored

PIPELINES: dict[str, dict[str, object]] = {
    "own": {"codec_pipeline.path": zarr.config.get("codec_pipeline.path")},
    "batched": {"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"},
}
if hasattr(zarr.core.codec_pipeline, "FusedCodecPipeline"):  # older releases of zarr do not have it
    for name, threads in {"fused": 1, "fused-threads": 4}.items():
        PIPELINES[name] = {
            "codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline",
            "codec_pipeline.max_workers": threads,
        }


class FarMemory(MemoryStorage):
    """Memory that takes itself for an object store, so that reads are coalesced."""

    cheap_probes = False


@pytest.fixture(scope="session")
def s3_bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket("store")


@pytest.fixture(params=["memory", "local", "s3"])
def new_storage(request: pytest.FixtureRequest) -> NewStorage:
    """Makes empty storages of one kind."""
    if request.param == "memory":
        return in_memory_storage
    if request.param == "local":
        path: Path = request.getfixturevalue("tmp_path")
        return lambda: local_filesystem_storage(path / uuid.uuid4().hex, fsync=False)
    server: S3Server = request.getfixturevalue("s3_server")
    bucket: str = request.getfixturevalue("s3_bucket")
    return lambda: s3_storage(
        bucket=bucket,
        prefix=uuid.uuid4().hex,
        region=server.region,
        endpoint_url=server.endpoint_url,
        allow_http=True,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
        pickle_credentials=True,
    )


@pytest.fixture
def storage(new_storage: NewStorage) -> Storage:
    """An empty storage of each kind."""
    return new_storage()


@pytest.fixture
def memory_repo() -> Repository:
    return Repository.create(in_memory_storage())


@pytest.fixture
def local_repo(tmp_path: Path) -> Repository:
    return Repository.create(local_filesystem_storage(tmp_path / "repository", fsync=False))


@pytest.fixture
def session(memory_repo: Repository) -> Session:
    """A writable session of a new repository in memory."""
    return memory_repo.writable_session("main")


@pytest.fixture(params=list(PIPELINES))
def pipeline(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each codec pipeline of zarr in turn."""
    with zarr.config.set(PIPELINES[request.param]):
        yield request.param
