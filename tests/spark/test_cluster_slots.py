"""Finding the Spark session that runs, and how much it does at once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from arraystore.spark import SparkUnavailableError, start_session
from arraystore.spark.cluster import active_session, check_java, parallelism, required_session, slots
from arraystore.spark.spark_action import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_session_that_runs_is_found_in_every_thread(spark: SparkSession):
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(active_session()))
    thread.start()
    thread.join(60)
    assert found == [spark]
    assert active_session() is spark
    assert start_session() is spark
    assert required_session(None) is spark


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_slots_are_those_of_the_master(spark: SparkSession):
    assert slots(spark) == 2
    assert parallelism() == parallelism("local[7]") == 2  # what runs counts, not what might be started


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_started_session_ends_batches_for_python_by_rows_and_measures_no_bytes(spark: SparkSession):
    assert spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == str(2**31 - 1)  # the value for no limit
    lengths = map_in_arrow(spark.range(0, 25_000, 1, 1), _lengths, "rows long").collect()
    assert [row[0] for row in lengths] == [10_000, 10_000, 5_000]


def _lengths(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})


@pytest.mark.parametrize(
    ("master", "wanted"),
    [
        ("local", 1),
        ("local[1]", 1),
        ("local[3]", 3),
        ("local[2,4]", 2),
        ("local[*]", os.cpu_count()),
        ("local[*,4]", os.cpu_count()),
        ("spark://host:7077", os.cpu_count()),
        (None, os.cpu_count()),
    ],
)
def test_slots_of_a_master_that_does_not_run_yet(monkeypatch: pytest.MonkeyPatch, master: str | None, wanted: int):
    monkeypatch.setattr("arraystore.spark.cluster.active_session", lambda: None)
    assert parallelism(master) == wanted


def test_without_pyspark_there_is_no_session(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    assert active_session() is None
    assert "pyspark" not in sys.modules  # to look for one does not load it
    with pytest.raises(SparkUnavailableError, match="no Spark session runs in this process: pass spark="):
        required_session(None)


def test_a_missing_pyspark_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("arraystore.spark.cluster.active_session", lambda: None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(SparkUnavailableError, match=r"pip install 'arraystore\[spark\]'"):
        start_session()


def java(root: Path, script: str) -> Path:
    (root / "bin").mkdir()
    path = root / "bin" / "java"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return root


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'openjdk version \"11.0.2\"' >&2", r"is Java 11\. Spark needs a Java runtime, version 17 or newer"),
        ("echo 'java version \"1.8.0_292\"' >&2", r"is Java 8\. "),
        ("echo 'no idea'", "does not print its version"),
    ],
)
def test_a_java_that_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, said: str):
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, script)))
    with pytest.raises(SparkUnavailableError, match=said):
        check_java()


@pytest.mark.parametrize("version", ["17.0.9", "21", "25-ea"])
def test_newer_javas_are_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str):
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, f"echo 'openjdk version \"{version}\"' >&2")))
    check_java()


def test_a_missing_java_is_told_with_where_it_was_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match="has no bin/java"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match="java is not on PATH"):
        check_java()


def test_a_java_that_cannot_be_run_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    home = java(tmp_path, "")
    (home / "bin" / "java").write_bytes(b"\0")
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(SparkUnavailableError, match="does not run"):
        check_java()
