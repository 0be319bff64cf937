"""One Spark session for all Spark tests of a process: two slots, and four attempts for each task, as on a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import arraystore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of Java's for processes that live for seconds: to begin costs a third of what it does without."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of this process, ``local[2,4]``."""
    from arraystore.spark import start_session

    # Workers are processes of their own and must find the same arraystore, and the same tests, as this one.
    checkout = str(Path(arraystore.__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", checkout, prepend=os.pathsep)
        patch.setenv("JAVA_TOOL_OPTIONS", QUICK_JAVA)
        session = start_session("local[2,4]", name="arraystore tests")
        yield session
        session.stop()
