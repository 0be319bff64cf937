"""Writing a million virtual references, and committing one chunk into an array that has them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import zarr

from benchmarks.cases.history import stored
from benchmarks.contenders import split_icechunk
from benchmarks.places import Place, PlaceMaker
from benchmarks.results import Bar, CaseResult, Table, at_least, human
from benchmarks.setup import Setup
from benchmarks.subject import make_references
from benchmarks.systems import IcechunkSystem, System
from benchmarks.timing import Samples, Stopwatch, interleaved, note

__all__ = ["CHUNK", "prepare", "run_bulk", "run_commit"]

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class _Way:
    label: str
    system: str
    method: str


def _write_in_child(way: _Way, count: int, files: int, places: PlaceMaker) -> Stopwatch:
    with places.fresh() as place:
        command = [sys.executable, "-m", "benchmarks.subject", "write-references", way.system, way.method]
        command += [str(count), str(files), str(place.directory)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        found["disk"] = stored(place.directory)[0] / count
    return Stopwatch(found)


def run_bulk(setup: Setup) -> CaseResult:
    """A million references at once, through columns and through objects."""
    result = CaseResult("references", "Writing a million references")
    count = setup.scaled(1_000_000, 10_000)
    ways = [_Way("arraystore, columns", setup.ours.name, "columns")]
    ways += [_Way("arraystore, columns, fsync", setup.ours_durable.name, "columns")]
    ways += [_Way("icechunk, columns", "icechunk", "columns"), _Way("icechunk, one object each", "icechunk", "specs")]
    for files, kind in ((count // 1000, "1,000 references a file"), (count, "one reference a file")):
        note(f"references: {count} with {kind}")
        runs = {way.label: partial(_write_in_child, way, count, files, setup.main_place) for way in ways}
        found = interleaved(runs, setup.rounds, warmup=False)
        what = f"write {count:,} references and commit, {kind}"
        ours, theirs = found["arraystore, columns"], found["icechunk, columns"]
        result.bars.append(at_least(what, ours.median("total"), theirs.median("total"), 5.0, "s"))
        mine, peer = ours.median("bytes") / 2**20, theirs.median("bytes") / 2**20
        result.bars.append(at_least(f"{what}: peak memory above the input's", mine, peer, 4.0, "MiB"))
        header = [
            "way",
            "set, s",
            "commit, s",
            "total, s",
            "peak memory, MiB",
            "bytes a reference on disk",
            "total, least to greatest",
        ]
        result.tables.append(Table(what, header, [_bulk_row(label, samples) for label, samples in found.items()]))
    return result


def _bulk_row(label: str, samples: Samples) -> list[str]:
    parts = [samples.median(part) for part in ("set", "commit", "total")]
    return [
        label,
        *map(human, parts),
        human(samples.median("bytes") / 2**20),
        human(samples.median("disk")),
        _spread(samples),
    ]


def _spread(samples: Samples) -> str:
    least, greatest = samples.spread("total")
    return f"{human(least)} to {human(greatest)}"


def prepare(system: System, place: Place, count: int) -> Any:
    """An array of `count` chunks of 1 MiB, all of them virtual references."""
    handle = system.create(place)
    writer = system.writer(handle)
    store: Any = writer.store
    zarr.create_array(store, name="data", shape=(count * CHUNK,), chunks=(CHUNK,), dtype="uint8", compressors=None)
    locations, offsets, lengths = make_references(count, max(1, count // 1000))
    store.set_virtual_refs_arr("data", (count,), locations, offsets, lengths, validate_containers=False, checksum=None)
    writer.commit()
    return handle


def _commit_one(system: System, handle: Any, count: int, numbers: Any) -> Stopwatch:
    """Overwrite one chunk, never the same one twice, and commit."""
    watch = Stopwatch()
    number = int(numbers.integers(count))
    value = numbers.integers(1, 256, size=CHUNK, dtype=np.uint8)
    watch.start()
    writer = system.writer(handle)
    array = zarr.open_array(writer.store, path="data", mode="r+")
    watch.stop("open")
    watch.start()
    array[number * CHUNK : (number + 1) * CHUNK] = value
    watch.stop("write")
    watch.start()
    writer.commit()
    watch.stop("commit")
    watch.add("write+commit", watch.parts["write"] + watch.parts["commit"])
    return watch


def _commit_runs(setup: Setup, counts: list[int], stack: ExitStack) -> dict[str, Callable[[], Stopwatch]]:
    contenders = [setup.ours, setup.ours_durable, IcechunkSystem(), split_icechunk(10_000)]
    runs: dict[str, Callable[[], Stopwatch]] = {}
    for count in counts:
        for system in contenders:
            place = stack.enter_context(setup.main_place.fresh())
            handle = prepare(system, place, count)
            numbers = np.random.default_rng(count)
            runs[f"{system.name} / {count:,}"] = partial(_commit_one, system, handle, count, numbers)
    return runs


def run_commit(setup: Setup) -> CaseResult:
    """The time of a commit of one chunk must not depend on how many references the array has."""
    result = CaseResult("large", "Committing one 1 MiB chunk into a large array")
    small, large = setup.scaled(1000, 1000), setup.scaled(1_000_000, 10_000)
    with ExitStack() as stack:
        note(f"large: arrays of {small} and {large} references")
        found = interleaved(_commit_runs(setup, [small, large], stack), max(setup.rounds, 9))
    ours, durable = setup.ours.name, setup.ours_durable.name
    part = "write+commit"
    for name in (ours, durable):
        few, many = found[f"{name} / {small:,}"].median(part) * 1e3, found[f"{name} / {large:,}"].median(part) * 1e3
        what = f"commit of 1 MiB, {name}: {large:,} against {small:,} references"
        result.bars.append(
            Bar(
                what,
                f"{human(many)} ms",
                f"{human(few)} ms (itself, small)",
                f"{many / few:.2f}",
                "≤ 1.25",
                many <= 1.25 * few,
            )
        )
    mine = found[f"{ours} / {large:,}"].median(part) * 1e3
    for peer in ("icechunk", "icechunk, split manifests"):
        theirs = found[f"{peer} / {large:,}"].median(part) * 1e3
        what = f"commit of 1 MiB into {large:,} references, against {peer}"
        result.bars.append(at_least(what, mine, theirs, 1.0, "ms"))
    header = ["contender / references", "open session, ms", "write, ms", "commit, ms", "write+commit, ms"]
    rows = [
        [label, *(human(samples.median(one) * 1e3) for one in ("open", "write", "commit", part))]
        for label, samples in found.items()
    ]
    result.tables.append(Table("One chunk of 1 MiB, a session and a commit each, local directory", header, rows))
    return result
