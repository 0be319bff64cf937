"""Spark as tests of the data source use it: with ``format("arraystore")``, and the path of a repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arraystore import Repository
from arraystore.spark import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(spark: SparkSession) -> SparkSession:
    """The session of all tests, with the data source."""
    register(spark)
    return spark


@pytest.fixture
def path(repo: Repository, tmp_path: Path) -> str:
    """The path of the repository that a module's own `repo` made with `new_repository`."""
    return str(tmp_path / "repo")
