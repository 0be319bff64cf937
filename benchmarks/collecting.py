"""One full collection in a process of its own, for its peak memory; prints one line of JSON."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import tempfile
import time
from pathlib import Path

import arraystore
from benchmarks import memory
from benchmarks.contenders import OURS
from benchmarks.forged import PACKED, ListedPacks, forge
from benchmarks.places import Place

__all__ = ["collect"]


def collect(directory: Path, listed: Path | None) -> dict[str, float]:
    """Collect everything in a repository of which all is needed.

    Parameters
    ----------
    directory
        Of the repository.
    listed
        File with the ids of packs that are only listed, each of one chunk.
    """
    storage = OURS.storage(Place("local", path=directory))
    if listed is not None:
        storage = ListedPacks(storage, listed.read_bytes(), PACKED)
    repository = arraystore.Repository.open(storage)
    base = memory.reset_peak()
    started = time.perf_counter()
    summary = repository.garbage_collect(dt.datetime.now(dt.UTC), full=True)
    seconds = time.perf_counter() - started
    if summary.chunks_deleted or summary.manifests_deleted or summary.failures:
        raise AssertionError(f"a collection deleted what is needed: {summary}")
    return {"bytes": memory.peak() - base, "seconds": seconds, "requests": summary.requests}


def _warm_up() -> None:
    """Collect something small, so that imports and thread pools do not count."""
    with tempfile.TemporaryDirectory() as directory:
        forge(Place("local", path=Path(directory)), 1, 100)
        collect(Path(directory), None)


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collecting", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--listed", type=Path, default=None, help="ids of packs that are not in the directory")
    given = parser.parse_args()
    _warm_up()
    print(json.dumps(collect(given.directory, given.listed)))


if __name__ == "__main__":
    main()
