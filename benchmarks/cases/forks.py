"""What workers send home, and how long it takes to merge it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import zarr

import arraystore
from benchmarks.places import PlaceMaker
from benchmarks.results import CaseResult, Table, at_least, at_most, human
from benchmarks.setup import Setup
from benchmarks.systems import IcechunkSystem, System
from benchmarks.timing import Samples, Stopwatch, interleaved, note

__all__ = ["run"]

_CHUNKS = 100
_CHUNK = 1024


def _fill(fork: Any, number: int) -> None:
    """Write the chunks of one worker; what they compress to differs from chunk to chunk."""
    cells = _CHUNKS * _CHUNK
    values = np.random.default_rng(number).integers(0, 256, cells, dtype=np.uint8)
    values.reshape(_CHUNKS, _CHUNK)[:, : number % 300] = 0
    zarr.open_array(fork.store, path="group/data", mode="r+")[number * cells : (number + 1) * cells] = values


def _payloads(session: Any, workers: int, take: Callable[[Any], bytes]) -> list[bytes]:
    """What workers send home; each unpickles a fork of its own, as it would in another process."""
    payloads = []
    sent = pickle.dumps(session.fork())
    for number in range(workers):
        fork = pickle.loads(sent)
        _fill(fork, number)
        payloads.append(take(fork))
    return payloads


def _changes(fork: Any) -> bytes:
    changes: bytes = fork.changes()
    return changes


def _merge(system: System, workers: int, places: PlaceMaker) -> Stopwatch:
    ours = system.name.startswith("arraystore")
    watch = Stopwatch()
    with places.fresh() as place:
        handle = system.create(place)
        first = system.writer(handle)
        shape = (workers * _CHUNKS * _CHUNK,)
        zarr.create_array(first.store, name="group/data", shape=shape, chunks=(_CHUNK,), dtype="uint8")
        first.commit()
        session: Any = handle.writable_session("main")
        payloads = _payloads(session, workers, _changes if ours else pickle.dumps)
        watch.add("bytes", sum(map(len, payloads)) / workers / _CHUNKS)
        watch.start()
        session.merge(*(payloads if ours else map(pickle.loads, payloads)))
        watch.stop("merge")
        if ours:
            other = handle.writable_session("main")
            payloads = _payloads(other, min(workers, 1000), _changes)
            watch.start()
            combined = arraystore.merge_sessions(payloads)
            watch.stop("combine")
            watch.add("combined bytes", len(combined) / len(payloads) / _CHUNKS)
    return watch


def run(setup: Setup) -> CaseResult:
    """Workers of a hundred chunks each: bytes a reference, and the time to merge them."""
    result = CaseResult("forks", "Merging what many workers wrote")
    few, many = setup.scaled(200, 20), setup.scaled(10_000, 40)
    peer = IcechunkSystem()
    note(f"forks: {few} workers of {_CHUNKS} chunks")
    places = setup.quickest_place
    runs = {system.name: partial(_merge, system, few, places) for system in (setup.ours, peer)}
    found = interleaved(runs, min(setup.rounds, 3), warmup=False)
    note(f"forks: {many} workers of {_CHUNKS} chunks")
    large = interleaved({setup.ours.name: partial(_merge, setup.ours, many, places)}, 1, warmup=False)
    ours, theirs, most = found[setup.ours.name], found[peer.name], large[setup.ours.name]
    result.bars.append(at_most("bytes a reference that a worker sends home", ours.median("bytes"), 4, "bytes"))
    what = "the same, against the peer's"
    result.bars.append(at_least(what, ours.median("bytes"), theirs.median("bytes"), 7.0, "bytes"))
    result.bars.append(at_most(f"merge {many:,} workers of {_CHUNKS} chunks", most.median("merge"), 3, "s"))
    header = ["contender / workers", "bytes a reference", "merge, s", "combined by merge_sessions, bytes a reference"]
    rows = [_row(f"{name} / {few:,}", samples) for name, samples in found.items()]
    rows.append(_row(f"{setup.ours.name} / {many:,}", most))
    result.tables.append(Table(f"Workers that wrote {_CHUNKS} chunks of {_CHUNK} bytes each", header, rows))
    result.notes.append(
        "The peer's workers send back the pickled fork; unpickling it is part of its merge, which does not look for "
        "chunks that two workers wrote."
    )
    return result


def _row(label: str, samples: Samples) -> list[str]:
    combined = human(samples.median("combined bytes")) if "combined bytes" in samples.parts else ""
    return [label, human(samples.median("bytes")), human(samples.median("merge")), combined]
