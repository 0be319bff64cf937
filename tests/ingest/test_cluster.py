"""Where Spark cannot start, the error says what is missing and how to get it."""

from __future__ import annotations

from pathlib import Path

import pytest

from arraystore.spark import SparkUnavailableError
from arraystore.spark.cluster import check_java, parallelism


def fake_java(path: Path, says: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    path.chmod(0o755)


def test_a_missing_java_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match=r"java is not on PATH.*apt install openjdk-17.*JAVA_HOME"):
        check_java()


def test_a_java_home_that_leads_nowhere_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match="has no bin/java"):
        check_java()


@pytest.mark.parametrize(("says", "number"), [('java version "1.8.0_292"', "8"), ('openjdk version "11.0.2"', "11")])
def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, number: str) -> None:
    fake_java(tmp_path / "bin" / "java", says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match=f"is Java {number}"):
        check_java()


@pytest.mark.parametrize("says", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21-ea" 2023'])
def test_a_new_enough_java_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str) -> None:
    fake_java(tmp_path / "bin" / "java", says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()


@pytest.mark.parametrize(("master", "slots"), [("local", 1), ("local[3]", 3), ("local[5,4]", 5)])
def test_the_slots_of_a_local_master_are_known_before_it_starts(
    monkeypatch: pytest.MonkeyPatch, master: str, slots: int
) -> None:
    monkeypatch.setattr("arraystore.spark.cluster.active_session", lambda: None)
    assert parallelism(master) == slots
