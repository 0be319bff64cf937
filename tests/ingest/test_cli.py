"""The command line: plan, dry run, progress and history for people, errors on stderr, exit codes for programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import arraystore
from arraystore.cli import main
from tests.ingest.conftest import Make, history, ingested

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def repo(tmp_path: Path) -> str:
    return str(tmp_path / "repo")


def files(repo: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(repo).rglob("*")) if path.is_file()}


def test_a_dry_run_shows_the_plan_and_makes_nothing(repo: str, make_source: Make, capsys: Captured) -> None:
    arguments = ["ingest", str(make_source(length=240)), "--repo", repo, "--group", "g", "--append-dim", "time"]
    assert main([*arguments, "--chunks", "time=60", "--tasks", "3", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    for part in ("source.nc", "(new)", "tas", "time, y, x", "int16", "240×45×50", "60×45×50", "executors", "/g"):
        assert part in shown
    assert "in 3 tasks" in shown
    assert "Dry run" in shown
    assert not Path(repo).exists()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_dry_run_of_an_append_changes_nothing(
    spark: SparkSession, repo: str, make_source: Make, capsys: Captured
) -> None:
    assert main(["ingest", str(make_source()), "--repo", repo, "--append-dim", "time"]) == 0
    before = files(repo)
    more = str(make_source("more.nc", start=24))
    assert main(["ingest", more, "--repo", repo, "--append-dim", "time", "--dry-run"]) == 0
    assert "24→48×45×50" in capsys.readouterr().out
    assert files(repo) == before


@pytest.mark.end_to_end
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_an_ingest_and_its_history(spark: SparkSession, repo: str, make_source: Make, capsys: Captured) -> None:
    assert main(["ingest", str(make_source()), "--repo", repo, "--append-dim", "time", "--message", "the [first]"]) == 0
    shown = capsys.readouterr().out
    assert "Committed" in shown
    assert "the [first]" in shown
    assert main(["ingest", str(make_source("2.nc", start=24)), "--repo", repo, "--append-dim", "time"]) == 0
    storage = arraystore.local_filesystem_storage(repo)
    assert ingested(storage).sizes["time"] == 48
    assert history(storage) == ["the [first]", "Append 2.nc to / along time"]
    capsys.readouterr()
    assert main(["log", repo, "--oneline"]) == 0
    lines = capsys.readouterr().out.splitlines()
    newest = next(iter(arraystore.Repository.open(storage).ancestry(branch="main")))
    assert newest.id in lines[1]
    assert "Append 2.nc" in lines[1]
    assert "the [first]" in lines[2]
    assert main(["log", repo, "-n", "1", "--oneline"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_run_of_its_own_is_quiet_and_leaves_no_log_behind(repo: str, make_source: Make, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    package = str(Path(arraystore.__file__).parents[1])
    command = [
        sys.executable,
        "-m",
        "arraystore.cli",
        "ingest",
        str(make_source()),
        "--repo",
        repo,
        "--master",
        "local[1]",
    ]
    told = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": package, "TMPDIR": str(logs)},
        timeout=150,
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.splitlines()[-1].startswith("Committed")
    assert list(logs.glob("arraystore-spark-*")) == []
    assert ingested(arraystore.local_filesystem_storage(repo)).sizes["time"] == 24


def test_an_error_goes_to_stderr_with_exit_code_one(repo: str, capsys: Captured) -> None:
    assert main(["ingest", "/no/such.nc", "--repo", repo]) == 1
    told = capsys.readouterr()
    assert told.err.startswith("error: source '/no/such.nc' does not exist")
    assert told.out == ""
    assert not Path(repo).exists()


@pytest.mark.parametrize("arguments", [[], ["ingest"], ["ingest", "a.nc"], ["nonsense"], ["log"]])
def test_wrong_usage_has_exit_code_two(arguments: list[str], capsys: Captured) -> None:
    assert main(arguments) == 2
    assert "Usage: arraystore" in capsys.readouterr().err


def test_chunks_that_cannot_be_read_are_an_error(repo: str, make_source: Make, capsys: Captured) -> None:
    assert main(["ingest", str(make_source()), "--repo", repo, "--chunks", "time:60"]) == 1
    assert "time=60,lat=37" in capsys.readouterr().err


def test_the_history_of_no_repository_is_an_error(repo: str, capsys: Captured) -> None:
    assert main(["log", repo]) == 10
    assert "error:" in capsys.readouterr().err


def test_help_and_log_do_not_wait_for_spark_or_xarray() -> None:
    program = (
        "import sys; from arraystore.cli import main; main(['log', '--help']); "
        "print({*sys.modules} & {'pyspark', 'xarray'})"
    )
    package = str(Path(arraystore.__file__).parents[1])
    told = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": package},
        timeout=60,
    )
    assert told.stdout.splitlines()[-1] == "set()"
