"""What a test starts ends with the test, also when the test is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spark.clusters.processes import CHECKOUT, PATIENCE, running

_COMMAND = """
import os, subprocess, sys, time
from pathlib import Path

if sys.argv[1] == "child":
    os.setpgid(0, 0)  # as Spark's daemons of Python workers do
    Path("pid.new").write_text(str(os.getpid()))
    Path("pid.new").rename("pid")
    time.sleep(1000)
subprocess.Popen([sys.executable, __file__, "child"])
while sys.argv[1] == "stays" or not Path("pid").exists():
    time.sleep(0.01)
"""
_TEST = """
import os, sys, time
from pathlib import Path
from tests.spark.clusters.processes import running

with running([sys.executable, *sys.argv[2:]], Path(sys.argv[1]), os.environ):
    time.sleep(1000)
"""


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """A program that starts a child, which leaves the group of its parent."""
    path = tmp_path / "command.py"
    path.write_text(_COMMAND)
    return path


def _child(directory: Path) -> int:
    limit = time.monotonic() + PATIENCE
    while not (directory / "pid").exists():
        assert time.monotonic() < limit
        time.sleep(0.01)
    return int((directory / "pid").read_text())


def _lives(pid: int) -> bool:
    """Whether a process runs, and does not only wait for somebody to ask what became of it."""
    told = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return told.stdout.strip()[:1] not in ("", "Z")


def test_nothing_is_left_of_a_command_after_its_block(command: Path) -> None:
    with running([sys.executable, command, "stays"], command.parent / "log", os.environ):
        pid = _child(command.parent)
        assert _lives(pid)
    assert not _lives(pid)


def test_nothing_is_left_of_a_command_that_has_ended(command: Path) -> None:
    with running([sys.executable, command, "goes"], command.parent / "log", os.environ) as tree:
        assert tree.wait() == 0
        assert not _lives(_child(command.parent))


def test_nothing_is_left_of_a_command_whose_test_is_killed(command: Path) -> None:
    log = str(command.parent / "log")
    test = subprocess.Popen([sys.executable, "-c", _TEST, log, str(command), "stays"], cwd=CHECKOUT)
    pid = _child(command.parent)
    assert _lives(pid)
    test.kill()
    test.wait()
    limit = time.monotonic() + PATIENCE
    while _lives(pid):
        assert time.monotonic() < limit
        time.sleep(0.01)
