"""Clusters that the tests of a process share, and a place for a repository."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from arraystore import Storage
from tests.s3server import S3Server
from tests.spark.clusters.masters import Cluster, standalone
from tests.spark.clusters.model import storage_at


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """Where a repository may be made."""
    return storage_at(tmp_path / "repository")


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Cluster]:
    """A master and two workers with addresses of their own, whose environment has the credentials of the S3 server."""
    secrets = {
        "AWS_ACCESS_KEY_ID": s3_server.access_key_id,
        "AWS_SECRET_ACCESS_KEY": s3_server.secret_access_key,
        "AWS_REGION": s3_server.region,
    }
    with standalone(tmp_path_factory.mktemp("standalone"), secrets) as cluster:
        yield cluster
