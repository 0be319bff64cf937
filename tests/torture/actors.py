"""The actors of a torture: each works in a process of its own until somebody kills it."""

from __future__ import annotations

import os
import random
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn

import numpy as np
import zarr

from arraystore import (
    ConflictDetector,
    ConflictError,
    FormatError,
    ObjectNotFoundError,
    Repository,
    Session,
    SessionExpiredError,
    SnapshotNotFoundError,
)
from arraystore._environment import ENVIRONMENT
from arraystore._log import branch_log
from arraystore.errors import AlreadyExistsError, ArrayStoreError, RefNotFoundError, SnapshotExpiredError, StorageError
from tests.torture.places import Clock, Place, values_of

__all__ = ["ACTORS", "BIG", "COUNTERS", "GRACE", "KEPT", "ROWS", "WIDTH", "Actor", "act", "create", "values_at"]

ROWS = 64
"""Of each writer; a row is a chunk."""

WIDTH = 256
BIG = 8192
COUNTERS = 3
KEPT = timedelta(seconds=15)
GRACE = timedelta(seconds=20)
PAUSE = 3.0
"""In place of `LONGEST_PAUSE`, in each process of the torture: a fraction of the grace, as it is of the real one."""

_PASSING = (StorageError, FormatError)
"""What a request that fails or comes back short may lead to; what lasts is found in the end."""

_GONE = (SnapshotNotFoundError, SnapshotExpiredError, ObjectNotFoundError)


def create(repository: Repository, writers: int) -> None:
    """Create the arrays: chunks in packs, inlined, of their own; counters that all write; a log that all append to."""
    session = repository.writable_session("main")
    group = zarr.create_group(session.store)
    raw: dict[str, Any] = {"dtype": "i8", "compressors": None, "fill_value": -1}
    group.create_array("rows", shape=(writers * ROWS, WIDTH), chunks=(1, WIDTH), **raw)
    group.create_array("tiny", shape=(writers * ROWS,), chunks=(1,), **raw)
    group.create_array("big", shape=(writers, BIG), chunks=(1, BIG), **raw)
    group.create_array("counters", shape=(COUNTERS,), chunks=(1,), **(raw | {"fill_value": 0}))
    group.create_array("log", shape=(0,), chunks=(1,), dimension_names=("entry",), **raw)
    session.commit("create")


def values_at(session: Session) -> dict[str, Any]:
    """Read everything at a snapshot: one value for each row."""
    group: Any = zarr.open_group(session.store, mode="r")
    arrays = {name: np.asarray(group[name][...]) for name in ("rows", "tiny", "big", "counters", "log")}
    return arrays | {"rows": values_of(arrays["rows"]), "big": values_of(arrays["big"])}


@dataclass
class Actor:
    """Somebody who works on a repository.

    Parameters
    ----------
    place
        Where it is.
    number
        Among those of its kind.
    chance
        Draws everything.
    clock
        Of its process.
    """

    place: Place
    number: int
    chance: random.Random
    clock: Clock = field(default_factory=Clock)

    def open(self) -> Repository:
        """Open the repository, with faults."""
        return Repository.open(self.place.open(self.chance.getrandbits(32)))

    # -- committing

    def write(self, repository: Repository, branch: str, first: int) -> None:
        """Commit once, and note what was tried, and what was acknowledged."""
        session = repository.writable_session(branch)
        value = time.time_ns() // 1000
        what = {"value": value, "branch": branch, **self._changes(session, first, value)}
        time.sleep(self.chance.choice([0, 0, 0, 0.01, 0.3]))
        clock = self.clock.seconds()
        self.place.note("writer", tried=value, clock=clock, **what)
        made = self._committed(session, what)
        if made is not None:
            self.place.note("writer", done=value, clock=clock, snapshot=made, **what)

    def _changes(self, session: Session, first: int, value: int) -> dict[str, Any]:
        """Write rows, and perhaps a large one, a counter, and a line of the log."""
        group: Any = zarr.open_group(session.store, mode="r+")
        rows = [first + row for row in self.chance.sample(range(ROWS), self.chance.choice([1, 1, 2, 8]))]
        for row in rows:
            group["rows"][row] = value
            group["tiny"][row] = value
        large = self.chance.random() < 0.1
        if large:
            group["big"][first // ROWS] = value
        appends = self.chance.random() < 0.2
        if appends:
            session.append({"log": np.array([value])}, "entry")
        return {"rows": rows, "big": large, "log": appends, "counter": self._counted(group)}

    def _counted(self, group: Any) -> list[int] | None:
        """Add one to a counter of all writers, now and then; two that do so from the same base must collide."""
        if self.chance.random() > 0.25:
            return None
        number = self.chance.randrange(COUNTERS)
        value = int(group["counters"][number]) + 1
        group["counters"][number] = value
        return [number, value]

    def _committed(self, session: Session, what: dict[str, Any]) -> str | None:
        """Commit; where the outcome is unknown, ask again until it is known, now and then not."""
        for _ in range(self.chance.choice([1, 8, 8])):
            try:
                return session.commit(str(what["value"]), what, rebase_with=ConflictDetector())
            except (SessionExpiredError, ConflictError, RefNotFoundError) as error:
                self.place.count(f"refused: {type(error).__name__}")
                return None
            except _PASSING as error:
                self.place.count(f"unknown: {type(error).__name__}")
        return None


# -- what each of them does -------------------------------------------------------------------------------------------


def _write(actor: Actor) -> None:
    repository = actor.open()
    while True:
        actor.write(repository, "main", actor.number * ROWS)


def _branch(actor: Actor) -> None:
    """Live on branches of its own: create, commit, tag, reset, delete, and leave them to whoever expires."""
    repository = actor.open()
    name = f"side/{os.getpid()}-{time.time_ns() // 1000}"
    repository.create_branch(name, repository.lookup_branch("main"))
    for _ in range(actor.chance.choice([1, 2, 6])):
        actor.write(repository, name, actor.number * ROWS)
        if actor.chance.random() < 0.2:
            _tag(actor, repository, name)
        if actor.chance.random() < 0.1:
            actor.place.note("moved", branch=name)
            repository.reset_branch(name, repository.lookup_branch("main"))
        time.sleep(actor.chance.choice([0, 0.2, 2, KEPT.total_seconds()]))
    if actor.chance.random() < 0.7:
        actor.place.note("moved", branch=name)
        repository.delete_branch(name)
        actor.place.count("branch deleted")


def _tag(actor: Actor, repository: Repository, branch: str) -> None:
    name = f"tag/{os.getpid()}-{time.time_ns() // 1000}"
    snapshot = repository.lookup_branch(branch)
    repository.create_tag(name, snapshot)
    actor.place.note("tag", tag=name, snapshot=snapshot)


def _collect(actor: Actor) -> None:
    repository = actor.open()
    while True:
        full = actor.chance.random() < 0.1
        summary = repository.garbage_collect(actor.clock.now(), full=full, record_grace=GRACE, nobody_writes=True)
        actor.place.count("collection", objects=summary.objects_deleted, records=summary.records_deleted)
        time.sleep(actor.chance.random() * 0.3)


def _compact(actor: Actor) -> None:
    repository = actor.open()
    while True:
        try:
            if actor.chance.random() < 0.7:
                repository.compact()
                actor.place.count("compaction")
            else:
                repository.rewrite_manifests("rewrite", branch="main")
                actor.place.count("manifests rewritten")
        except (SessionExpiredError, ConflictError) as error:
            actor.place.count(f"compaction: {type(error).__name__}")
        time.sleep(actor.chance.random() * 0.5)


def _expire(actor: Actor) -> None:
    repository = actor.open()
    while True:
        moment = Clock().now() - KEPT
        branches = actor.chance.random() < 0.3
        actor.place.note("expired", before=moment.timestamp(), branches=branches)
        gone = repository.expire_snapshots(moment, keep_last=3, delete_expired_branches=branches)
        actor.place.count("expiry", snapshots=len(gone))
        time.sleep(actor.chance.random())


def _read(actor: Actor) -> None:
    """Read without faults: what was acknowledged is there, and what a history shows can be read."""
    gone = 0
    while True:
        acknowledged = actor.place.newest_values()
        repository = Repository.open(actor.place.open_directly())
        try:
            values = values_at(repository.readonly_session("main"))["rows"]
            gone = 0
        except _GONE as error:  # it may have expired while it was read, though not again and again
            gone += 1
            if gone == 5:
                _problem(actor, f"the newest snapshot cannot be read: {error!r}")
            continue
        for row, value in acknowledged.items():
            if values[row] < value:
                _problem(actor, f"row {row} of the newest snapshot is {values[row]}, not {value} or later")
        for _ in range(3):
            _read_any(actor, repository)


def _read_any(actor: Actor, repository: Repository) -> None:
    history = [info.id for info in repository.ancestry(branch="main") if "value" in info.metadata]
    if not history:
        return
    snapshot = actor.chance.choice(history[:200])
    try:
        values_at(repository.readonly_session(snapshot_id=snapshot))
        actor.place.count("read of a snapshot")
    except _GONE as error:
        again = Repository.open(actor.place.open_directly())
        if snapshot in {info.id for info in again.ancestry(branch="main")}:
            _problem(actor, f"snapshot {snapshot} is kept, and cannot be read: {error!r}")
        actor.place.count(f"read: {type(error).__name__}")


def _read_through_faults(actor: Actor) -> None:
    """Read with faults: values, or errors with a type."""
    while True:
        acknowledged = actor.place.newest_values()
        values = values_at(actor.open().readonly_session("main"))["rows"]
        for row, value in acknowledged.items():
            if values[row] < value:
                _problem(actor, f"row {row} was read as {values[row]}, not {value} or later, through faults")
        actor.place.count("read through faults")


def _problem(actor: Actor, what: str) -> None:
    actor.place.note("problem", what=what)


ACTORS: dict[str, Callable[[Actor], None]] = {
    "write": _write,
    "branch": _branch,
    "collect": _collect,
    "compact": _compact,
    "expire": _expire,
    "read": _read,
    "read through faults": _read_through_faults,
}

_EXPECTED: dict[str, tuple[type[ArrayStoreError], ...]] = {
    # Its branch may have been deleted as expired, and what it stands at may have expired.
    "branch": (RefNotFoundError, AlreadyExistsError, SnapshotNotFoundError, ConflictError, SessionExpiredError),
    "read through faults": _GONE,  # the newest snapshot may have expired while it is read
}


def act(name: str, number: int, seed: int, ahead: float, place: Place) -> None:
    """Be an actor, in a process that is made for it."""
    _end_with(os.getppid())
    branch_log.LONGEST_PAUSE = PAUSE
    clock = Clock(ahead)
    ENVIRONMENT.set(clock.environment())
    _play(name, Actor(place, number, random.Random(seed), clock))


def _play(name: str, actor: Actor) -> NoReturn:
    passing: Sequence[type[Exception]] = (*_EXPECTED.get(name, ()), *(() if name == "read" else _PASSING))
    while True:
        try:
            ACTORS[name](actor)
        except tuple(passing) as error:
            actor.place.count(f"{name}: {type(error).__name__}", error=str(error)[:300])
        except Exception as error:
            where = "".join(traceback.format_exception(error)[-6:])
            _problem(actor, f"{name} ended with {type(error).__name__}: {error}\n{where}")
            raise


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
