"""Trees of processes that end with the test, and drivers among them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import arraystore
from tests.java import QUICK_JAVA
from tests.spark.clusters import driver, keeper

CHECKOUT = Path(arraystore.__file__).parents[1]
PATIENCE = 400.0
"""Seconds after which something that ought to happen counts as not happening; a busy machine is slow."""


@dataclass(frozen=True)
class Tree:
    """A running command with all its children, and the file that they write to."""

    keeper: subprocess.Popen[bytes]
    log: Path

    def wait(self) -> int:
        """Return the exit code of the command, 128 more than the signal that killed it, when its last child is gone."""
        try:
            return self.keeper.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.keeper.args!r} does not end:\n{self.said()}") from None

    def said(self) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-6000:]

    def wait_for(self, sign: Callable[[], object], what: str) -> None:
        """Wait until `sign` is there."""
        limit = time.monotonic() + PATIENCE
        while not sign():
            ended = self.keeper.poll()
            assert ended is None, f"it ended ({ended}) before {what}:\n{self.said()}"
            assert time.monotonic() < limit, f"no {what}:\n{self.said()}"
            time.sleep(0.05)


@contextlib.contextmanager
def running(command: Sequence[str | Path], log: Path, environment: Mapping[str, str]) -> Iterator[Tree]:
    """Run a command in the directory of its log; at the end of the block nothing of it is left."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, keeper.__file__, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env=dict(environment),
            start_new_session=True,
        )
    try:
        yield Tree(process, log)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(PATIENCE)


@dataclass(frozen=True)
class Driver:
    """A driver in a process of its own, which calls one function and returns what that returns."""

    tree: Tree
    answer: Path

    def result(self) -> Any:
        """Wait until it is done; what it returned."""
        code = self.tree.wait()
        assert code == 0, f"the driver ended with {code}:\n{self.tree.said()}"
        return json.loads(self.answer.read_text())

    def killed(self) -> None:
        """Wait until it has been killed."""
        code = self.tree.wait()
        assert code == 128 + 9, f"the driver was to be killed and ended with {code}:\n{self.tree.said()}"


@contextlib.contextmanager
def running_driver(
    function: Callable[..., Any], directory: Path, environment: Mapping[str, str], **arguments: Any
) -> Iterator[Driver]:
    """Call an importable function with arguments that JSON can hold in a driver process.

    Parameters
    ----------
    directory
        Where the log and the answer go; of this driver alone.
    """
    answer = directory / "answer.json"
    named = f"{function.__module__}:{function.__qualname__}"
    command = [sys.executable, "-m", driver.__name__, named, str(answer), json.dumps(arguments)]
    with running(command, directory / "driver.log", environment) as tree:
        yield Driver(tree, answer)


def call_in_driver(
    function: Callable[..., Any], directory: Path, environment: Mapping[str, str], **arguments: Any
) -> Any:
    """Call a function in a driver process and return what it returns; see `running_driver`."""
    with running_driver(function, directory, environment, **arguments) as started:
        return started.result()


def spark_environment(**more: str) -> dict[str, str]:
    """The environment of processes that belong to a cluster on this machine."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "AWS_"))}
    ours |= {
        "PYTHONPATH": str(CHECKOUT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
    }
    return ours | more
