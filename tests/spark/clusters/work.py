"""What executors run in these tests: the values of the model, and something that goes wrong on the way."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from arraystore import Repository
from tests.spark.clusters.model import Region, Values, storage_at, values

_PATIENCE = 300.0


def attempt() -> int:
    """Which attempt at its task this process makes, from 0."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber()


@dataclass(frozen=True)
class ExitsAt:
    """Ends the Python worker at some rows, if it is the first attempt."""

    rows: tuple[int, ...]

    def __call__(self, region: Region) -> Values:
        if region[0].start in self.rows and attempt() == 0:
            os._exit(9)
        return values(region)


@dataclass(frozen=True)
class KillsExecutorAt:
    """Kills the executor at a row, if it is the first attempt, and goes on as long as it lives."""

    row: int

    def __call__(self, region: Region) -> Values:
        if region[0].start == self.row and attempt() == 0:
            os.kill(executor(), signal.SIGKILL)
        return values(region)


def executor() -> int:
    """The process id of the executor above this Python worker, as Linux tells it."""
    pid = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1, "no executor has started this process"
    return pid


@dataclass(frozen=True)
class WaitsForCopyAt:
    """Lets the first attempt wait at a row until a copy of its task has got there, too; each notes what it writes.

    Parameters
    ----------
    row
        Where it waits.
    notes
        A directory of notes: ``<attempt>-<row>``.
    """

    row: int
    notes: str

    def __call__(self, region: Region) -> Values:
        row, number = region[0].start, attempt()
        Path(self.notes, f"{number}-{row}").touch()
        limit = time.monotonic() + _PATIENCE
        while row == self.row and number == 0 and not Path(self.notes, f"1-{row}").exists():
            assert time.monotonic() < limit, "no copy of this task was started"
            time.sleep(0.02)
        return values(region)


@dataclass(frozen=True)
class Constant:
    """The same value everywhere."""

    value: float

    def __call__(self, region: Region) -> Values:
        return np.full([part.stop - part.start for part in region], self.value)


@dataclass(frozen=True)
class Fails:
    """Raises an error at a row, in every attempt."""

    row: int

    def __call__(self, region: Region) -> Values:
        if region[0].start == self.row:
            raise ValueError(f"there is no row {self.row} in the source")
        return values(region)


@dataclass(frozen=True)
class CollectsAt:
    """Collects garbage at a row, from within the task.

    Parameters
    ----------
    row
        Where.
    repository
        Path of the repository that is written to.
    older
        What was written before this moment is collected.
    """

    row: int
    repository: str
    older: datetime

    def __call__(self, region: Region) -> Values:
        if region[0].start == self.row:
            summary = Repository.open(storage_at(self.repository)).garbage_collect(self.older)
            assert summary.chunks_deleted > 0, summary
        return values(region)
