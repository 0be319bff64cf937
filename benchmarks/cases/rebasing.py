"""What it costs to rebase onto what others have committed: requests, and the time to find what collides."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr

import arraystore
from arraystore._commit.conflict_detection import Ours, detect
from arraystore._conflicts import Conflict
from arraystore._environment import Environment
from arraystore._format.refs import REPOSITORY_KEY, decode_repository
from arraystore._log.branch_log import BranchLog
from arraystore._log.footprint import footprint_of
from arraystore._log.loading import Passed, load_tip, passed_between
from arraystore._log.state import SnapshotState
from benchmarks.bank import library, open_bank
from benchmarks.places import Place, S3Server
from benchmarks.results import Bar, CaseResult, Table, at_most, human
from benchmarks.setup import Setup
from benchmarks.systems import IcechunkSystem, System
from benchmarks.timing import Samples, Stopwatch, interleaved, note
from benchmarks.wire import Wire, counted

__all__ = ["Logs", "find_conflicts", "make_logs", "requests_of_rebase", "run"]

_DELAY = 0.03  # seconds a request, so that what overlaps was sent together
_SETTLE = 0.5
_FULL, _QUICK = (1, 10, 64, 200), (1, 5)  # commits in between
_LOCATION = "s3://example-bucket/model/part.nc"


# Requests


@dataclass(frozen=True, slots=True)
class Rebase:
    """The requests for which one commit waited."""

    reads: int
    puts: int
    trips: int
    summary: str

    @property
    def text(self) -> str:
        """For the table."""
        return f"{self.summary} in {self.trips} round trips"


def requests_of_rebase(system: System, server: S3Server, intervening: int) -> Rebase:
    """Commit one chunk after others have committed so many times since the session was opened."""
    prefix = uuid.uuid4().hex[:12]
    with counted(server, _DELAY) as wire:
        others = open_bank(system, Place("s3", server=server, prefix=prefix))
        ours = system.open(Place("s3", server=wire.server, prefix=prefix), None)
        session = ours.writable_session("main")
        zarr.open_array(session.store, path="accounts", mode="r+")[0] = 7
        for number in range(intervening):
            other = others.writable_session("main")
            zarr.open_array(other.store, path="accounts", mode="r+")[1 + number % 40] = number
            other.commit("in between")
        time.sleep(_SETTLE)
        wire.take()
        session.commit("on top", rebase_with=library(system).ConflictDetector())
        waited_for = wire.take()
    puts = sum(request.method in ("PUT", "POST") for request in waited_for)
    return Rebase(len(waited_for) - puts, puts, Wire.round_trips(waited_for), Wire.summary(waited_for))


def _count_requests(setup: Setup, server: S3Server, result: CaseResult) -> None:
    peer = IcechunkSystem()
    rows: list[list[str]] = []
    for intervening in _QUICK if setup.quick else _FULL:
        note(f"rebase over {intervening} commits")
        mine = requests_of_rebase(setup.ours, server, intervening)
        theirs = requests_of_rebase(peer, server, intervening)
        rows.append([f"{intervening:,}", mine.text, theirs.text])
        what = f"commit on top of {intervening:,} others'"
        limit = 3 + intervening // 64
        told = f"≤ {limit} (3 + k/64)"
        result.bars += [
            Bar(f"{what}: GETs", f"{mine.reads}", f"{theirs.reads}", "", told, mine.reads <= limit),
            Bar(f"{what}: PUTs, in two attempts", f"{mine.puts}", f"{theirs.puts}", "", "≤ 2", mine.puts <= 2),
            Bar(f"{what}: rounds, PUTs included", f"{mine.trips}", f"{theirs.trips}", "", "≤ 4", mine.trips <= 4),
        ]
    result.tables.append(Table("Requests of one commit", ["commits since the base", setup.ours.name, peer.name], rows))


# Detection


@dataclass(frozen=True, slots=True)
class Logs:
    """What two sessions of one base have committed, each to a branch of its own."""

    before: SnapshotState
    after: SnapshotState
    ours: Passed
    theirs: Passed


def make_logs(chunks: int, shared: int) -> Logs:
    """Let two sessions set references of so many scattered chunks, of which some are the same."""
    storage = arraystore.in_memory_storage()
    repository = arraystore.Repository.create(storage)
    with repository.transaction("main", message="base") as store:
        zarr.create_array(store, name="data", shape=(chunks * 4,), chunks=(1,), dtype="uint8")
    base = next(iter(repository.ancestry(branch="main"))).id
    order = np.random.default_rng(5).permutation(chunks * 4)
    cells = {"ours": order[:chunks], "theirs": order[chunks - shared : 2 * chunks - shared]}
    for branch, numbers in cells.items():
        repository.create_branch(branch, base)
        session = repository.writable_session(branch)
        _refer(session.store, chunks * 4, numbers)
        session.commit(branch)
    return asyncio.run(_read_logs(storage))


def _refer(store: arraystore.ArrayStore, size: int, numbers: np.ndarray) -> None:
    locations = np.full(size, "", dtype=object)
    locations[numbers] = _LOCATION
    offsets = np.arange(size, dtype=np.uint64) * 100
    lengths = np.full(size, 100, dtype=np.uint64)
    store.set_virtual_refs_arr(
        "data", (size,), locations.tolist(), offsets, lengths, validate_containers=False, checksum=None
    )


async def _read_logs(storage: arraystore.storage.Storage) -> Logs:
    info = decode_repository(REPOSITORY_KEY, await storage.get(REPOSITORY_KEY))
    logs = {branch: BranchLog(storage, info.id, branch, Environment()) for branch in ("ours", "theirs")}
    before = await load_tip(logs["theirs"], at=0)
    after = await load_tip(logs["theirs"])
    (ours,) = await passed_between(logs["ours"], 0, 1)
    (theirs,) = await passed_between(logs["theirs"], 0, 1)
    return Logs(before.state, after.state, ours, theirs)


def find_conflicts(logs: Logs) -> list[Conflict]:
    """Detect what collides, from logs as they were read."""
    ((_, ours, _),) = logs.ours.transactions
    footprint = footprint_of(logs.before, list(logs.theirs.transactions))
    return detect(Ours(ours), footprint, logs.before, logs.after)


def _detect_once(logs: Logs, shared: int) -> Stopwatch:
    watch = Stopwatch()
    watch.start()
    conflicts = find_conflicts(logs)
    watch.stop("detect")
    found = sum(0 if one.conflicted_chunks is None else len(one.conflicted_chunks) for one in conflicts)
    if found != shared:
        raise AssertionError(f"{found} chunks collide, and not {shared}")
    return watch


def _time_detection(setup: Setup, result: CaseResult) -> None:
    chunks = setup.scaled(1_000_000, 10_000)
    rows: list[list[str]] = []
    runs: dict[str, Any] = {}
    for shared in (0, 1000, chunks):
        note(f"detection: {chunks:,} chunks, {shared:,} shared")
        logs = make_logs(chunks, shared)
        runs[f"{shared:,}"] = lambda logs=logs, shared=shared: _detect_once(logs, shared)
    found: dict[str, Samples] = interleaved(runs, setup.rounds)
    for shared_text, samples in found.items():
        milliseconds = samples.median("detect") * 1e3
        what = f"detect conflicts between two changes of {chunks:,} scattered chunks, {shared_text} of them the same"
        result.bars.append(at_most(what, milliseconds, 100, "ms"))
        least, most = samples.spread("detect")
        rows.append([shared_text, human(milliseconds), f"{human(least * 1e3)} – {human(most * 1e3)}"])
    title = f"Detection between two changes of {chunks:,} chunks, scattered over {4 * chunks:,}, in ms"
    result.tables.append(Table(title, ["chunks in both", "median", "least – most"], rows))


def run(setup: Setup) -> CaseResult:
    """Requests on the wire, and detection in memory."""
    if setup.server is None:
        raise SystemExit("the case 'rebasing' counts on an S3 server: run it with --storage s3, or all of them")
    result = CaseResult("rebasing", "Going on top of what others have committed")
    _count_requests(setup, setup.server, result)
    _time_detection(setup, result)
    result.notes.append(
        "The first attempt of the commit finds out that others have committed, so there are two attempts. Requests are "
        "those that the commit waited for, counted by a proxy before the server. Detection starts from change logs as "
        "they were read, encoded, and ends with the list of conflicts."
    )
    return result
