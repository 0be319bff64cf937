"""What tasks of Spark send to the driver, and what merging it costs there."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import zarr

from benchmarks.pipelines import FUSED, configured
from benchmarks.places import PlaceMaker
from benchmarks.results import CaseResult, Table, at_most, human
from benchmarks.setup import Setup
from benchmarks.systems import IcechunkSystem, System
from benchmarks.timing import note

__all__ = ["change_set", "run"]

_CELLS = 256
"""Of four bytes each: chunks that neither system inlines."""

_AT_ONCE = 65_536
_MB = 1e6


def _chunks(first: int, count: int, *, varied: bool) -> np.ndarray:
    """Chunks of numbers that do not compress; `varied` ones end in a run of zeros, each of another length."""
    random = np.random.default_rng(first)
    values = random.integers(1, 1 << 32, (count, _CELLS), dtype=np.uint32)
    if varied:
        values[np.arange(_CELLS) >= random.integers(_CELLS * 5 // 8, _CELLS, (count, 1))] = 0
    return values.reshape(-1)


def change_set(system: System, places: PlaceMaker, count: int, *, varied: bool) -> int:
    """Bytes of what a fork sends home that wrote `count` chunks, all of them next to one another."""
    note(f"spark-changes: a change set of {count} {'varied' if varied else 'equal'} references by {system.name}")
    with configured(FUSED), places.fresh() as place:
        handle = system.create(place)
        writer = system.writer(handle)
        compressors: Any = "auto" if varied else None
        options = {"shape": (count * _CELLS,), "chunks": (_CELLS,), "dtype": "uint32", "compressors": compressors}
        zarr.create_array(writer.store, name="group/data", **options)
        writer.commit()
        session: Any = handle.writable_session("main")
        fork = pickle.loads(pickle.dumps(session.fork()))
        array = zarr.open_array(fork.store, path="group/data", mode="r+")
        for first in range(0, count, _AT_ONCE):
            some = min(_AT_ONCE, count - first)
            array[first * _CELLS : (first + some) * _CELLS] = _chunks(first, some, varied=varied)
        sent: bytes = fork.changes() if system.name.startswith("arraystore") else pickle.dumps(fork)
        session.merge(sent if system.name.startswith("arraystore") else pickle.loads(sent))
        session.commit("merged")
        last = np.asarray(zarr.open_array(system.reader(handle), path="group/data", mode="r")[-some * _CELLS :])
        if not np.array_equal(last, _chunks(first, some, varied=varied)):
            raise AssertionError(f"{system.name} merged something else than what was written")
    return len(sent)


def _merge(setup: Setup, sets: int, references: int) -> dict[str, float]:
    note(f"spark-changes: merging {sets} change sets of {references} references")
    with setup.quickest_place.fresh() as place:
        command = [sys.executable, "-m", "benchmarks.spark_changes", str(place.directory), str(sets), str(references)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _sizes(setup: Setup, result: CaseResult) -> None:
    count, fewer = setup.scaled(1_000_000, 5_000), setup.scaled(100_000, 1_000)
    peer, rows = IcechunkSystem(), []
    for varied in (False, True):
        kind = "of varied length" if varied else "of equal length"
        ours = change_set(setup.ours, setup.quickest_place, count, varied=varied)
        theirs = change_set(peer, setup.quickest_place, fewer, varied=varied)
        scaled = theirs * count / fewer
        what = f"change set of {count:,} dense chunk references, chunks {kind}"
        other = f"{human(scaled / _MB)} MB ({count // fewer} times that of {fewer:,})"
        result.bars.append(at_most(what, ours / _MB, 4, "MB", peer=other))
        rows += [[f"arraystore / {kind}", f"{count:,}", human(ours / _MB), human(ours / count)]]
        rows += [[f"icechunk / {kind}", f"{fewer:,}", human(theirs / _MB), human(theirs / fewer)]]
    header = ["contender / chunks", "references", "change set, MB", "bytes a reference"]
    result.tables.append(Table("What a task sends home", header, rows))


def _merging(setup: Setup, result: CaseResult) -> None:
    sets, references = setup.scaled(10_000, 50), 1000
    found = [_merge(setup, sets, references) for _ in range(setup.scaled(3, 1))]
    merge = sorted(one["merge"] for one in found)[len(found) // 2]
    most = max(one["merging"] for one in found)
    what = f"driver merge of {sets:,} change sets of {references:,} references"
    result.bars.append(at_most(what, merge, 10, "s"))
    result.bars.append(at_most(f"{what}: most memory of the process", most / _MB, 1000, "MB"))
    header = [
        "sent, MB",
        "merge, s",
        "processor time of it, s",
        "commit, s",
        "process before, MB",
        "most while merging, MB",
        "and committing, MB",
    ]
    rows = [
        [human(one["sent"] / _MB), *(human(one[key]) for key in ("merge", "processor", "commit"))]
        + [f"{one[key] / _MB:.0f}" for key in ("before", "merging", "committing")]
        for one in found
    ]
    result.tables.append(Table(f"Merging {sets:,} change sets, each time in a process of its own", header, rows))


def run(setup: Setup) -> CaseResult:
    """Bytes of change sets, and time and memory of merging thousands."""
    result = CaseResult("spark-changes", "Spark: change sets")
    _sizes(setup, result)
    _merging(setup, result)
    result.notes.append(
        "A change set is what `changes()` of a fork returns, and for the peer the pickled fork; the chunks are written "
        "and read back. The change sets that are merged by the thousand come from forks that were told of chunks which "
        "are not there: merging reads none. *Most memory* is the peak of the resident set of the driver's process."
    )
    return result
