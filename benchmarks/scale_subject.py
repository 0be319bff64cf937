"""One measurement of scale in a process of its own; prints one line of JSON, times in seconds, memory in bytes."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import arraystore
from arraystore._format.ids import PackId
from arraystore._maintenance import fold
from benchmarks import memory
from benchmarks.cases.history import stored

__all__ = ["FILES", "SUBJECTS"]

PREFIX = "s3://example-bucket/model/"
FILES = 1000
_PER_PACK = 2048
_AGAIN = 5

Figures = dict[str, float]


def _clock(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _repository(directory: Path, **options: Any) -> arraystore.Repository:
    storage = arraystore.local_filesystem_storage(directory, fsync=False)
    return arraystore.Repository.open_or_create(storage, **options)


def _array(session: arraystore.Session, name: str, chunks: int) -> None:
    zarr.create_array(session.store, name=name, shape=(chunks,), chunks=(1,), dtype="uint8", compressors=None)


def _commit_one(repository: arraystore.Repository, name: str, number: int) -> None:
    session = repository.writable_session("main")
    session.write(name, slice(number, number + 1), np.array([number % 255 + 1], dtype="uint8"))
    session.commit("one more")


def _warm() -> None:
    """Import and start what any first use does."""
    with tempfile.TemporaryDirectory() as directory:
        repository = _repository(Path(directory))
        session = repository.writable_session("main")
        _array(session, "data", 4)
        session.commit("an array")
        _commit_one(repository, "data", 0)
        np.asarray(zarr.open_array(repository.readonly_session("main").store, path="data", mode="r")[0])


# -- references -------------------------------------------------------------------------------------------------


def _columns(count: int, *, lengths_differ: bool) -> tuple[list[str], np.ndarray, np.ndarray]:
    names = [f"{PREFIX}output/year={1980 + n % 40}/part-{n:07d}.nc" for n in range(FILES)]
    locations = [name for name in names for _ in range(count // FILES)]
    lengths = np.full(count, 800_000, dtype=np.uint64)
    if lengths_differ:
        lengths[:] = np.random.default_rng(5).integers(700_000, 1_000_000, size=count, dtype=np.uint32)
    starts = np.cumsum(lengths.reshape(FILES, -1), axis=1) - lengths.reshape(FILES, -1)
    starts += np.uint64(8192)
    return locations, starts.reshape(-1), lengths


def _refer(session: arraystore.Session, kind: str, columns: tuple[list[str], np.ndarray, np.ndarray]) -> None:
    count = len(columns[0])
    if kind != "native":
        session.store.set_virtual_refs_arr("data", (count,), *columns, validate_containers=False, checksum=None)
        return
    changes, node = session.hierarchy.writable(), session.hierarchy.node("data")
    assert node is not None
    first = changes.packs.adopt([PackId(os.urandom(12)) for _ in range(-(-count // _PER_PACK))])
    table = changes.array(node).table
    for start in range(0, count, 1 << 20):  # as a program that writes chunk after chunk does
        cells = np.arange(start, min(start + (1 << 20), count), dtype=np.int64)
        sizes = np.full(len(cells), 4096, dtype=np.int64)
        table.put_many(cells[:, np.newaxis], first + cells // _PER_PACK, cells % _PER_PACK * 4104, sizes)


def write_references(directory: Path, count: int, kind: str) -> Figures:
    """Set references of one array and commit them."""
    _warm()
    columns = _columns(count, lengths_differ=kind == "any length")
    repository = _repository(directory)
    session = repository.writable_session("main")
    _array(session, "data", count)
    before = memory.reset_peak()
    seconds = _clock(lambda: _refer(session, kind, columns))
    seconds += _clock(lambda: session.commit("references"))
    repository.wait_for_maintenance()
    return {
        "seconds": seconds,
        "peak": memory.peak(),
        "peak of ours": memory.peak() - before,
        "bytes each": stored(directory)[0] / count,
    }


def use_references(directory: Path, count: int, _: str) -> Figures:
    """Open a repository and read one chunk; commit one more chunk, there and into an array without chunks."""
    _warm()
    before = memory.resident()
    looks: list[float] = []

    def look() -> None:
        containers = {PREFIX: arraystore.in_memory_storage()}
        repository = _repository(directory, authorize_virtual_chunk_access=containers)
        array = zarr.open_array(repository.readonly_session("main").store, path="data", mode="r")
        try:
            np.asarray(array[count // 2])
        except (arraystore.SourceChangedError, arraystore.ObjectNotFoundError):
            return  # nobody has the sources: the chunk was looked up
        raise AssertionError("read a chunk that is nowhere")

    looks = [_clock(look) for _ in range(_AGAIN)]
    grown = memory.resident() - before
    with tempfile.TemporaryDirectory(dir=directory.parent) as empty:
        pair = [_repository(directory), _repository(Path(empty))]
        session = pair[1].writable_session("main")
        _array(session, "data", count)
        session.commit("an array")
        commits: list[list[float]] = [[], []]
        for number in range(8 * _AGAIN):  # in turns, and processor time: a commit takes a few milliseconds
            for repository, times in zip(pair, commits, strict=True):
                started = time.process_time()
                _commit_one(repository, "data", number)
                times.append(time.process_time() - started)
        medians = [statistics.median(times) for times in commits]
    return {
        "open and read": statistics.median(looks),
        "memory": grown,
        "commit": medians[0],
        "commit into an empty one": medians[1],
    }


# -- hierarchies, histories, layers, sessions ---------------------------------------------------------------------


def _state_of(directory: Path, name: str) -> Figures:
    """Open a repository, read a chunk and commit one more."""
    before = memory.resident()
    reader = _repository(directory)
    opened = _clock(lambda: reader.readonly_session("main"))
    session = reader.readonly_session("main")
    read = statistics.median(_clock(partial(session.read, name, slice(n, n + 1))) for n in range(_AGAIN))
    more = [_clock(partial(_commit_one, reader, name, n)) for n in range(4 * _AGAIN)]
    grown = memory.resident() - before
    size, objects = stored(directory)
    return {
        "open": opened,
        "read": read,
        "commit": statistics.median(more),
        "memory": grown,
        "bytes": size,
        "objects": objects,
    }


def group(directory: Path, count: int, _: str) -> Figures:
    """A group of many arrays."""
    _warm()
    session = _repository(directory).writable_session("main")
    root = zarr.open_group(session.store, mode="a")
    for number in range(count):
        root.create_array(f"a{number}", shape=(64,), chunks=(1,), dtype="uint8", compressors=None)
    made = _clock(lambda: session.commit("arrays"))
    reader = _repository(directory).readonly_session("main")
    listed = _clock(lambda: list(zarr.open_group(reader.store, mode="r").arrays()))
    return {"commit all": made, "list": listed, **_state_of(directory, "a0")}


def _small_commits(directory: Path, count: int) -> Figures:
    repository = _repository(directory)
    session = repository.writable_session("main")
    _array(session, "data", min(count, 10_000))
    session.commit("an array")
    tenth = max(1, count // 10)
    times = [_clock(partial(_commit_one, repository, "data", n % 10_000)) for n in range(count)]
    repository.wait_for_maintenance()
    first, last = statistics.median(times[:tenth]), statistics.median(times[-tenth:])
    return {"first tenth": first, "last tenth": last, **_state_of(directory, "data")}


def history(directory: Path, count: int, _: str) -> Figures:
    """A history of many commits."""
    _warm()
    figures = _small_commits(directory, count)
    repository = _repository(directory)
    return {**figures, "ancestry": _clock(lambda: sum(1 for _ in repository.ancestry(branch="main")))}


def layers(directory: Path, count: int, _: str) -> Figures:
    """An array of many layers, which nobody folds."""
    _warm()
    fold.foldable = lambda layers: None
    return _small_commits(directory, count)


def dirty(directory: Path, count: int, kind: str) -> Figures:
    """A session with many chunks that are not committed, written in any order or one after the other."""
    _warm()
    repository = _repository(directory)
    session = repository.writable_session("main")
    _array(session, "data", count)
    changes, node = session.hierarchy.writable(), session.hierarchy.node("data")
    assert node is not None
    table = changes.array(node).table
    first = changes.packs.adopt([PackId(os.urandom(12)) for _ in range(-(-count // _PER_PACK))])
    generator = np.random.default_rng(1)
    cells = generator.permutation(count) if kind == "any order" else np.arange(count)
    before = memory.reset_peak()
    started = time.perf_counter()
    for start in range(0, count, 1000):
        some = cells[start : start + 1000]
        order = np.arange(start, start + len(some))
        sizes = np.full(len(some), 4096)
        table.put_many(some[:, np.newaxis], first + order // _PER_PACK, order % _PER_PACK * 4104, sizes)
    put = time.perf_counter() - started
    kept, peak = memory.resident() - before, memory.peak() - before
    asked = generator.integers(0, count, 10_000).tolist()
    looked = _clock(lambda: [table.get(number) for number in asked]) / len(asked)
    committed = _clock(lambda: session.commit("all"))
    return {"put": put, "memory": kept, "peak": peak, "look-up": looked, "commit all": committed}


SUBJECTS: dict[str, Callable[[Path, int, str], Figures]] = {
    "write-references": write_references,
    "use-references": use_references,
    "group": group,
    "history": history,
    "layers": layers,
    "dirty": dirty,
}


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_subject")
    parser.add_argument("subject", choices=list(SUBJECTS))
    parser.add_argument("directory", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("kind", nargs="?", default="")
    given = parser.parse_args()
    print(json.dumps(SUBJECTS[given.subject](given.directory, given.count, given.kind)))


if __name__ == "__main__":
    main()
