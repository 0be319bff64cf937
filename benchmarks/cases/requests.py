"""Requests and round trips of the small operations, counted on the wire of an S3 server."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import zarr

from benchmarks.cases.references import CHUNK, prepare
from benchmarks.places import Place, S3Server
from benchmarks.results import Bar, CaseResult, Table
from benchmarks.setup import Setup
from benchmarks.systems import IcechunkSystem, System
from benchmarks.timing import note
from benchmarks.wire import Request, Wire, counted

__all__ = ["run"]

_DELAY = 0.03  # seconds a request: long against the client's own work, so that what overlaps was sent together
_SETTLE = 0.5  # seconds in which a client may finish what it does in the background


@dataclass(frozen=True, slots=True)
class _Count:
    requests: int
    puts: int
    trips: int
    summary: str

    @property
    def text(self) -> str:
        return f"{self.requests} ({self.summary}) in {self.trips} round trips"


def _count(wire: Wire, action: Callable[[], object]) -> _Count:
    wire.take()
    action()
    waited_for = list(wire.requests)
    time.sleep(_SETTLE)
    requests: list[Request] = wire.take()
    puts = sum(request.method in ("PUT", "POST") for request in requests)
    return _Count(len(requests), puts, Wire.round_trips(waited_for), Wire.summary(requests))


def _place(server: S3Server) -> Place:
    return Place("s3", server=server, prefix=uuid.uuid4().hex[:12])


def _create(system: System, server: S3Server) -> _Count:
    with counted(server, _DELAY) as wire:
        place = _place(wire.server)
        return _count(wire, lambda: system.create(place))


def _commit(system: System, server: S3Server, chunk_bytes: int) -> _Count:
    """One chunk by a session that is open, into an array that has another chunk already."""
    with counted(server, _DELAY) as wire:
        handle = system.create(_place(wire.server))
        first = system.writer(handle)
        elements = chunk_bytes // 4
        array = zarr.create_array(
            first.store, name="data", shape=(elements * 16,), chunks=(elements,), dtype="uint32", compressors=None
        )
        array[:elements] = np.arange(1, elements + 1, dtype="uint32")
        first.commit()
        writer = system.writer(handle)
        array = zarr.open_array(writer.store, path="data", mode="r+")

        def write_and_commit() -> None:
            array[elements : 2 * elements] = np.arange(7, elements + 7, dtype="uint32")
            writer.commit()

        time.sleep(_SETTLE)
        return _count(wire, write_and_commit)


def _commit_large(system: System, server: S3Server, references: int) -> _Count:
    """One chunk of 1 MiB by a session that is open, into an array of many virtual references."""
    place = _place(server)
    prepare(system, place, references)
    with counted(server, _DELAY) as wire:
        writer = system.writer(system.open(Place("s3", server=wire.server, prefix=place.prefix), None))
        array = zarr.open_array(writer.store, path="data", mode="r+")
        value = np.arange(CHUNK, dtype="uint32").astype("uint8") | 1

        def write_and_commit() -> None:
            array[5 * CHUNK : 6 * CHUNK] = value
            writer.commit()

        time.sleep(_SETTLE)
        return _count(wire, write_and_commit)


def _open(system: System, server: S3Server, prefix: str) -> _Count:
    """Open anew, take a read-only session and read the metadata of one array: nothing cached."""
    with counted(server, _DELAY) as wire:
        place = Place("s3", server=wire.server, prefix=prefix)

        def open_and_look() -> None:
            store = system.reader(system.open(place, None))
            zarr.open_array(store, path="array-0", mode="r")

        return _count(wire, open_and_look)


def _open_one_of(server: S3Server, prefixes: Mapping[str, str], system: System) -> _Count:
    return _open(system, server, prefixes[system.name])


def _many_arrays(system: System, server: S3Server, arrays: int) -> str:
    place = _place(server)
    writer = system.writer(system.create(place))
    for number in range(arrays):
        zarr.create_array(writer.store, name=f"array-{number}", shape=(8,), chunks=(1,), dtype="uint32")
    writer.commit()
    return place.prefix


def _many_commits(system: System, server: S3Server, commits: int) -> str:
    place = _place(server)
    handle = system.create(place)
    for number in range(commits):
        writer = system.writer(handle)
        if number == 0:
            zarr.create_array(
                writer.store, name="array-0", shape=(1000,), chunks=(1,), dtype="uint32", compressors=None, fill_value=0
            )
        zarr.open_array(writer.store, path="array-0", mode="r+")[number % 1000] = number + 1
        writer.commit()
    return place.prefix


def _bar(what: str, ours: int, limit: int, unit: str, peer: str) -> Bar:
    return Bar(what, f"{ours} {unit}", peer, "", f"≤ {limit} {unit}", ours <= limit)


def run(setup: Setup) -> CaseResult:
    """All small operations of both systems."""
    if setup.server is None:
        raise SystemExit("the case 'requests' counts on an S3 server: run it with --storage s3, or all of them")
    server = setup.server
    result = CaseResult("requests", "Requests and round trips")
    ours, peer = setup.ours, IcechunkSystem()
    rows: list[list[str]] = []

    def both(what: str, measure: Callable[[System], _Count]) -> tuple[_Count, _Count]:
        note(f"requests: {what}")
        mine, theirs = measure(ours), measure(peer)
        rows.append([what, mine.text, theirs.text])
        return mine, theirs

    mine, theirs = both("create a repository", lambda system: _create(system, server))
    result.bars.append(
        _bar("create a repository, with the probe of put-if-absent", mine.requests, 5, "requests", str(theirs.requests))
    )
    mine, theirs = both("commit one tiny chunk (4 B), session open", lambda system: _commit(system, server, 4))
    result.bars.append(_bar("commit of one tiny chunk: PUTs", mine.puts, 1, "PUT", str(theirs.puts)))
    result.bars.append(
        _bar("commit of one tiny chunk: requests in all", mine.requests, 1, "request", str(theirs.requests))
    )
    both("write and commit one chunk of 4 KiB", lambda system: _commit(system, server, 4096))
    references = setup.scaled(1_000_000, 5_000)
    what = f"write and commit one chunk of 1 MiB into {references:,} references"
    mine, theirs = both(what, lambda system: _commit_large(system, server, references))
    result.bars.append(_bar(f"{what}: PUTs", mine.puts, 3, "PUT", str(theirs.puts)))

    arrays = setup.scaled(1000, 20)
    commits, peer_commits = setup.scaled(10_000, 70), setup.scaled(1000, 20)
    prefixes = {
        f"open at {arrays:,} arrays": {one.name: _many_arrays(one, server, arrays) for one in (ours, peer)},
        f"open at {commits:,} commits (peer: {peer_commits:,})": {
            ours.name: _many_commits(ours, server, commits),
            peer.name: _many_commits(peer, server, peer_commits),
        },
    }
    for what, by_system in prefixes.items():
        mine, theirs = both(what, partial(_open_one_of, server, by_system))
        result.bars.append(_bar(f"{what}: round trips", mine.trips, 3, "round trips", str(theirs.trips)))
        result.bars.append(_bar(f"{what}: requests", mine.requests, 6, "requests", str(theirs.requests)))
    result.tables.append(
        Table("Requests, counted by a proxy before the server", ["operation", ours.name, peer.name], rows)
    )
    result.notes.append(
        "*Open* is: open the repository, take a read-only session and read the metadata of one array, all of it cold. "
        "Requests include those that go on in the background for half a second after the call returns; "
        "round trips count only what the call waited for."
    )
    return result
