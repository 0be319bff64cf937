"""What it costs to let go of history, and to look at it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import arraystore
from arraystore import CountingStorage
from arraystore.storage import Storage
from arraystore.storage.wrapper import WrapperStorage
from benchmarks.cases import orphaned
from benchmarks.cases.orphaned import CELLS, begin, commit_chunks, now
from benchmarks.contenders import OURS
from benchmarks.forged import PER_PACK, forge
from benchmarks.places import Place
from benchmarks.results import CaseResult, Table, at_most, human
from benchmarks.setup import Setup
from benchmarks.timing import note

__all__ = ["run"]

# -- what does not grow ---------------------------------------------------------------------------------------------


class _Distant(WrapperStorage):
    """A local directory that is treated as an object store, where looking whether something is there is a request."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.cheap_probes = False


def _counted(place: Place) -> tuple[arraystore.Repository, CountingStorage]:
    """Open a repository anew, and forget what that took."""
    counting = CountingStorage(_Distant(OURS.storage(place)))
    repository = arraystore.Repository.open(counting)
    counting.reset()
    return repository, counting


def _requests(counting: CountingStorage) -> Counter[str]:
    return Counter(operation for operation, _ in counting.log if operation != "sync")


def _idle(result: CaseResult, setup: Setup) -> None:
    """Collect where there is nothing to do."""
    few, many = setup.scaled(10_000, 1000), setup.scaled(1_000_000, 10_000)
    rows: list[list[str]] = []
    counts: list[int] = []
    for references in (few, many):
        note(f"lifecycle: nothing to do among {references:,} chunks")
        with setup.quickest_place.fresh() as place:
            forge(place, 1, references)
            for label in ("first", "second", "third"):
                repository, counting = _counted(place)
                summary = repository.garbage_collect(now())
                if summary.chunks_deleted or summary.full != (label == "first"):
                    raise AssertionError(f"not a collection with nothing to do: {summary}")
                found = _requests(counting)
                rows.append([f"{references:,}", label, f"{found.total():,}", _told(found)])
                if label == "second":
                    counts.append(found.total())
    what = f"second collection, nothing to do, {many:,} live chunks in packs"
    peer = f"{counts[0]:,} (itself, {few:,} chunks)"
    result.bars.append(at_most(what, counts[1], 20, "requests", peer=peer))
    result.bars.append(at_most(f"{what}: more than among {few:,}", counts[1] - counts[0], 0, "requests"))
    result.tables.append(Table("Collections with nothing to do", ["live chunks", "run", "requests", "which"], rows))


def _told(found: Counter[str]) -> str:
    return ", ".join(f"{count} {operation}" for operation, count in sorted(found.items()))


# -- memory ---------------------------------------------------------------------------------------------------------


def _memory(result: CaseResult, setup: Setup) -> None:
    references = setup.scaled(10_000_000, 20_000)
    rows: list[list[str]] = []
    loads = (("packs of 8 MiB", 10, PER_PACK, True), ("an object for each chunk", 20, 1, False))
    for label, arrays, per_pack, files in loads:
        note(f"lifecycle: memory of a full collection, {references:,} references, {label}")
        with setup.quickest_place.fresh() as place:
            ids = forge(place, arrays, references // arrays, per_pack, files=files)
            found = _collect_in_child(setup.scratch, place, None if files else ids)
        peak = found["bytes"] / 2**20
        what = f"full collection of {references:,} references, {label}: peak memory"
        result.bars.append(at_most(what, found["bytes"] / 1e6, 100, "MB"))
        rows.append([label, f"{len(ids) // 12:,}", human(peak), human(found["seconds"]), f"{int(found['requests']):,}"])
    header = ["layout", "objects with chunks", "peak memory, MiB", "s", "requests"]
    result.tables.append(Table(f"A full collection of {references:,} references, nothing to delete", header, rows))


def _collect_in_child(scratch: Path, place: Place, listed: bytes | None) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.collecting", str(place.directory)]
    file = scratch / "packs.ids"
    if listed is not None:
        file.write_bytes(listed)
        command += ["--listed", str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    file.unlink(missing_ok=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- looking at history ---------------------------------------------------------------------------------------------


def _looking(result: CaseResult, setup: Setup) -> None:
    commits, apart = setup.scaled(10_000, 60), setup.scaled(1000, 20)
    rows: list[list[str]] = []
    note(f"lifecycle: looking at {commits:,} commits")
    with setup.quickest_place.fresh() as place:
        handle, _ = begin(setup.ours, place)
        older = commit_chunks(handle, "main", 0, commits - 1 - apart)
        newer = commit_chunks(handle, "main", commits - 1 - apart, apart)
        handle.wait_for_maintenance()
        looks: dict[str, Callable[[arraystore.Repository], object]] = {
            "log, the newest 20 commits": lambda one: _expect(20, list(islice(one.ancestry(branch="main"), 20))),
            # The branch begins with a snapshot of its own.
            "log, all commits": lambda one: _expect(commits + 1, list(one.ancestry(branch="main"))),
            f"diff of snapshots {apart:,} commits apart": lambda one: _expect(
                min(apart, CELLS), one.diff(from_snapshot_id=older, to_snapshot_id=newer).updated_chunks["/data"]
            ),
        }
        for what, look in looks.items():
            rows.append([f"{commits:,} commits: {what}", *_looked(partial(_counted, place), look)])
    references = setup.scaled(1_000_000, 10_000)
    note(f"lifecycle: verifying {references:,} references")
    with setup.quickest_place.fresh() as place:
        forge(place, 1, references)
        rows.append([f"verify metadata of {references:,} references", *_looked(partial(_counted, place), _verified)])
    header = ["what", "requests", "which", "s"]
    result.tables.append(Table("Looking at history, on a local directory", header, rows))


def _expect(count: int, found: Any) -> None:
    if len(found) != count:
        raise AssertionError(f"{len(found)} were found, not {count}")


def _verified(repository: arraystore.Repository) -> None:
    report = repository.verify()
    if not report.ok:
        raise AssertionError(f"a sound repository is told to be damaged: {report}")


def _looked(
    opened: Callable[[], tuple[arraystore.Repository, CountingStorage]],
    look: Callable[[arraystore.Repository], object],
) -> list[str]:
    repository, counting = opened()
    started = time.perf_counter()
    look(repository)
    seconds = time.perf_counter() - started
    found = _requests(counting)
    return [f"{found.total():,}", _told(found), human(seconds)]


# -- the case -----------------------------------------------------------------------------------------------------

_ON_THE_REST = (
    "References of the other tables are made without chunk data: their packs are files without content, or, one for "
    "each chunk, exist in listings only. Peak memory is the resident set's in a process of its own, above what it had "
    "after a small collection. Requests are those of a repository just opened, its opening not counted; a listing is "
    "one however many pages it has."
)


def run(setup: Setup) -> CaseResult:
    """Collections against the peer's, what collections cost as the repository grows, and a look at long histories."""
    result = CaseResult("lifecycle", "Lifecycle")
    orphaned.measure(result, setup, setup.main_place)
    _idle(result, setup)
    _memory(result, setup)
    _looking(result, setup)
    result.notes += [orphaned.REMARK, _ON_THE_REST]
    return result
