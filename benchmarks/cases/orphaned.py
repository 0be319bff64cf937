"""Collecting what a deleted branch leaves, against the peer, and what is left of it in the end."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import arraystore
from benchmarks.cases.history import stored
from benchmarks.forged import CHUNK
from benchmarks.places import Place, PlaceMaker
from benchmarks.results import Bar, CaseResult, Table, at_least, human
from benchmarks.setup import Setup
from benchmarks.systems import IcechunkSystem, System
from benchmarks.timing import Stopwatch, interleaved, note

__all__ = ["CELLS", "REMARK", "begin", "commit_chunks", "measure", "now"]

CELLS = 1000
"""Chunks of the array that the commits write to, one after the other."""

_GONE = ("chunks", "manifests", "transactions", "history")
_SIDE = "side"
_COLLECTION, _REST = "collection", "collection after the grace"

REMARK = (
    "The orphaned commits are those of a branch that was deleted, beside a *main* with all the others. Every "
    "round collects in a copy of the directory, on the disk (hard links), by a repository object just opened, "
    "ours with nothing from an earlier collection to build on. *Left* compares with the directory before that "
    "branch was made. Ours leaves records of logs for an hour, and the pages that list them until the next full "
    "collection (*left*). The second collection is full, and is told that nobody writes (*left in the end*): of a "
    "branch that is gone its name, the newest records of its log, 64 at most, and the checkpoint below them stay, "
    "so that nobody can write a record of that number again, however late; the rest are the notes of the "
    "collections themselves. The peer's *overwritten* objects are older states of its `repo` object; no "
    "collection deletes them."
)


def now() -> dt.datetime:
    """Return the moment up to which everything may be collected."""
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True)
class _Stored:
    """Bytes and number of the objects below each part of a repository."""

    sizes: dict[str, tuple[int, int]]

    @classmethod
    def of(cls, directory: Path) -> _Stored:
        parts = {path.name: stored(path) for path in directory.iterdir() if path.is_dir()}
        whole = stored(directory)
        return cls({**parts, "": whole})

    def beyond(self, other: _Stored) -> str:
        """What is here and not there, part by part."""
        texts: list[str] = []
        for part in sorted(self.sizes):
            before = other.sizes.get(part, (0, 0))
            size, objects = (mine - theirs for mine, theirs in zip(self.sizes[part], before, strict=True))
            if part and (size or objects):
                texts.append(f"{part} {objects:+,} ({size:+,} B)")
        return ", ".join(texts) or "nothing"


def commit_chunks(handle: Any, branch: str, first: int, count: int) -> str:
    """Commit one chunk of 4 KiB after another, each of them of its own; returns the last snapshot."""
    random = np.random.default_rng(first)
    last = ""
    for number in range(first, first + count):
        data = default_buffer_prototype().buffer.from_bytes(random.bytes(CHUNK))
        session = handle.writable_session(branch)
        sync(session.store.set(f"data/c/{number % CELLS}", data))
        last = session.commit(f"commit {number}")
    return last


def begin(system: System, place: Place) -> tuple[Any, str]:
    handle = system.create(place)
    session = handle.writable_session("main")
    zarr.create_array(
        session.store, name="data", shape=(CELLS * CHUNK,), chunks=(CHUNK,), dtype="uint8", compressors=None
    )
    return handle, session.commit("array")


def _leave_orphans(system: System, place: Place, kept: int, orphans: int) -> _Stored:
    """Make a branch beside main and delete it; returns what there was before."""
    note(f"lifecycle: {kept:,} commits and {orphans:,} orphans by {system.name}")
    handle, first = begin(system, place)
    commit_chunks(handle, "main", 0, kept)
    if isinstance(handle, arraystore.Repository):
        handle.wait_for_maintenance()
    before = _Stored.of(place.directory)
    handle.create_branch(_SIDE, first)
    commit_chunks(handle, _SIDE, kept, orphans)
    handle.delete_branch(_SIDE)
    if isinstance(handle, arraystore.Repository):
        handle.wait_for_maintenance()
    return before


@dataclass(slots=True)
class _Left:
    """What one system leaves behind: the same each round, so the last one is kept."""

    before: _Stored
    after: _Stored | None = None
    in_the_end: _Stored | None = None


def _collect_copy(system: System, made: Place, places: PlaceMaker, left: _Left) -> Stopwatch:
    """Collect in a copy that shares the files; neither system writes into a file that is there."""
    watch = Stopwatch()
    with places.fresh() as copy:
        shutil.copytree(made.directory, copy.directory, copy_function=os.link, dirs_exist_ok=True)
        handle = system.open(copy, None)
        watch.start()
        handle.garbage_collect(now())
        watch.stop(_COLLECTION)
        left.after = _Stored.of(copy.directory)
        handle = system.open(copy, None)
        grace: dict[str, Any] = {}
        if isinstance(handle, arraystore.Repository):
            grace = {"full": True, "record_grace": dt.timedelta(0), "nobody_writes": True}
        watch.start()
        handle.garbage_collect(now(), **grace)
        watch.stop(_REST)
        left.in_the_end = _Stored.of(copy.directory)
    return watch


def measure(result: CaseResult, setup: Setup, places: PlaceMaker) -> None:
    kept, orphans = setup.scaled(9000, 40), setup.scaled(1000, 10)
    systems: list[System] = [setup.ours, IcechunkSystem()]
    lefts: dict[str, _Left] = {}
    runs: dict[str, Callable[[], Stopwatch]] = {}
    with ExitStack() as stack:
        for system in systems:
            made = stack.enter_context(places.fresh())
            lefts[system.name] = _Left(_leave_orphans(system, made, kept, orphans))
            runs[system.name] = partial(_collect_copy, system, made, places, lefts[system.name])
        found = interleaved(runs, setup.rounds, warmup=False)
    ours, peer = (found[system.name] for system in systems)
    what = f"collection of {orphans:,} orphaned commits among {kept + orphans:,}"
    result.bars.append(at_least(what, ours.median(_COLLECTION), peer.median(_COLLECTION), 2, "s"))
    mine, theirs = (_growth(lefts[system.name]) for system in systems)
    text, other = (f"{objects:+,} objects, {size:+,} B" for size, objects in (mine, theirs))
    promise = f"nothing in {', '.join(_GONE)}"
    result.bars.append(Bar(f"{what}: left in the end", text, other, "", promise, _nothing_left(lefts[setup.ours.name])))
    header = [
        "system",
        "seconds",
        "least to greatest",
        "left",
        "once more, s",
        "left in the end",
        "overwritten objects",
    ]
    rows = []
    for system in systems:
        samples, left = found[system.name], lefts[system.name]
        if left.after is None or left.in_the_end is None:
            raise AssertionError("nothing was measured")
        least, greatest = samples.spread(_COLLECTION)
        size, objects = left.in_the_end.sizes.get("overwritten", (0, 0))
        rows.append(
            [
                system.name,
                human(samples.median(_COLLECTION)),
                f"{human(least)} to {human(greatest)}",
                left.after.beyond(left.before),
                human(samples.median(_REST)),
                left.in_the_end.beyond(left.before),
                f"{objects:,} ({size:,} B)",
            ]
        )
    result.tables.append(Table(f"{what}; each commit is one chunk of 4 KiB", header, rows))


def _nothing_left(left: _Left) -> bool:
    """Whether the branch has left nothing that grows with its commits."""
    if left.in_the_end is None:
        raise AssertionError("nothing was measured")
    none = (0, 0)
    return all(left.in_the_end.sizes.get(part, none) <= left.before.sizes.get(part, none) for part in _GONE)


def _growth(left: _Left) -> tuple[int, int]:
    if left.in_the_end is None:
        raise AssertionError("nothing was measured")
    (size, objects), (size_before, objects_before) = left.in_the_end.sizes[""], left.before.sizes[""]
    return size - size_before, objects - objects_before
