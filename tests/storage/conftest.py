"""Every backend under one name, `storage`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from arraystore.simulation.loop import SimulatedLoop
from arraystore.storage import (
    CountingStorage,
    FaultyStorage,
    FsspecStorage,
    LatencyStorage,
    LocalStorage,
    MemoryStorage,
    ObstoreStorage,
    Storage,
    fsspec_storage,
    in_memory_storage,
    local_filesystem_storage,
    s3_storage,
)
from tests.s3server import S3Server

Request = pytest.FixtureRequest


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    """An event loop in virtual time."""
    made = SimulatedLoop()
    yield made
    made.close()


def obstore_on(server: S3Server, **options: Any) -> ObstoreStorage:
    """A storage in a bucket of its own."""
    arguments: dict[str, Any] = {
        "bucket": server.new_bucket(),
        "prefix": "some/pre fix",
        "region": server.region,
        "endpoint_url": server.endpoint_url,
        "allow_http": True,
        "access_key_id": server.access_key_id,
        "secret_access_key": server.secret_access_key,
        "pickle_credentials": True,
    }
    return s3_storage(**arguments | options)


def s3fs_on(server: S3Server, **options: Any) -> FsspecStorage:
    """The same through s3fs."""
    arguments: dict[str, Any] = {
        "key": server.access_key_id,
        "secret": server.secret_access_key,
        "endpoint_url": server.endpoint_url,
        "pickle_credentials": True,
    }
    storage = fsspec_storage(f"s3://{server.new_bucket()}/some/prefix", **arguments | options)
    assert isinstance(storage, FsspecStorage)
    return storage


def _memory(request: Request) -> MemoryStorage:
    return in_memory_storage()


def _local(request: Request) -> LocalStorage:
    path: Path = request.getfixturevalue("tmp_path")
    return local_filesystem_storage(path / "not" / "yet" / "there")


def _local_without_fsync(request: Request) -> LocalStorage:
    path: Path = request.getfixturevalue("tmp_path")
    return local_filesystem_storage(path / "repository", fsync=False)


def _obstore(request: Request) -> ObstoreStorage:
    return obstore_on(request.getfixturevalue("s3_server"))


def _minio(request: Request) -> ObstoreStorage:
    return obstore_on(request.getfixturevalue("minio_server"))


def _s3fs(request: Request) -> FsspecStorage:
    return s3fs_on(request.getfixturevalue("s3_server"))


def _fsspec_memory(request: Request) -> Storage:
    return fsspec_storage(f"memory://tests/{uuid.uuid4().hex}")


def _wrapped(request: Request) -> Storage:
    return CountingStorage(LatencyStorage(FaultyStorage(_memory(request)), 0.0, 0.0))


BACKENDS: dict[str, Callable[[Request], Storage]] = {
    "memory": _memory,
    "local": _local,
    "local-without-fsync": _local_without_fsync,
    "obstore-s3": _obstore,
    "obstore-minio": _minio,
    "s3fs": _s3fs,
    "fsspec-memory": _fsspec_memory,
    "wrapped": _wrapped,
}


@pytest.fixture(params=list(BACKENDS))
def storage(request: Request) -> Storage:
    """An empty storage of each kind."""
    return BACKENDS[request.param](request)
