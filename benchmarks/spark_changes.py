"""Change sets of many references: made, and merged in a process of its own, for peak memory; prints a line of JSON."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import time
from pathlib import Path

import numpy as np
import zarr

import arraystore
from arraystore._format.pack import padded_size
from benchmarks import memory
from benchmarks.contenders import OURS
from benchmarks.places import Place
from benchmarks.timing import note

__all__ = ["claimed", "merge_many"]

_CHUNK = 4096
_PER_PACK = 2048


def claimed(sent: bytes, path: str, start: int, count: int) -> bytes:
    """What a fork sends home that wrote so many chunks of varying length, of which only the references are there."""
    fork: arraystore.ForkSession = pickle.loads(sent)
    changes, node = fork.hierarchy.changes, fork.hierarchy.node(path)
    if changes is None or node is None:
        raise AssertionError(f"a fork that is open for writing has no array {path}")
    packs = [os.urandom(12) for _ in range(-(-count // _PER_PACK))]
    first = changes.packs.adopt(packs)
    cells = np.arange(count, dtype=np.int64)
    lengths = np.random.default_rng(start).integers(_CHUNK // 2, _CHUNK, count)
    packed = padded_size(lengths)
    starts = np.cumsum(packed) - packed
    pack = cells // _PER_PACK
    offsets = starts - starts[pack * _PER_PACK]
    changes.array(node).table.put_many((start + cells)[:, np.newaxis], first + pack, offsets, lengths)
    return fork.changes()


def merge_many(directory: Path, sets: int, references: int) -> dict[str, float]:
    """Merge change sets into a session and commit it: seconds of both, and the most memory that the process took."""
    repository: arraystore.Repository = OURS.create(Place("local", path=directory))
    session = repository.writable_session("main")
    chunks = sets * references
    zarr.create_array(session.store, name="group/data", shape=(chunks * _CHUNK,), chunks=(_CHUNK,), dtype="uint8")
    sent = pickle.dumps(session.fork())
    payloads = [claimed(sent, "group/data", number * references, references) for number in range(sets)]
    note(f"spark-changes: {sets} change sets are there")
    base = memory.reset_peak()
    started, used = time.perf_counter(), time.process_time()
    session.merge(payloads)
    merged, busy = time.perf_counter(), time.process_time() - used
    merging = memory.peak()
    session.commit("merged")
    committed = time.perf_counter()
    most = memory.peak()
    if (found := len(repository.readonly_session("main").chunk_coordinates("group/data"))) != chunks:
        raise AssertionError(f"{found} chunks were merged, not {chunks}")
    return {
        "sent": sum(map(len, payloads)),
        "merge": merged - started,
        "processor": busy,
        "commit": committed - merged,
        "before": base,
        "merging": merging,
        "committing": most,
    }


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_changes")
    parser.add_argument("directory", type=Path)
    parser.add_argument("sets", type=int)
    parser.add_argument("references", type=int)
    given = parser.parse_args()
    print(json.dumps(merge_many(given.directory, given.sets, given.references)))


if __name__ == "__main__":
    main()
