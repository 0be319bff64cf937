"""Everything at once: writers, a collector up to this moment, a compactor, an expirer, readers, and SIGKILL.

    python -m tests.lifecycle.torture --minutes 10 --storage local|s3

Each actor is a process that opens the repository, works for a while and is killed at any moment; another one takes its
place.  Writers note in journals what they are about to commit, and what was acknowledged.  In the end the journals are
compared with what the repository holds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from arraystore import (
    ArrayStoreError,
    ConflictDetector,
    ConflictError,
    ObjectNotFoundError,
    Repository,
    RepositoryConfig,
    SessionExpiredError,
    SnapshotNotFoundError,
    local_filesystem_storage,
    s3_storage,
)
from arraystore.commit import log
from arraystore.errors import SnapshotExpiredError, StorageError
from arraystore.storage import Storage

__all__ = ["Outcome", "torture"]

WRITERS = 4
ROWS = 64
"""Of each writer; a row is a chunk."""

WIDTH = 256
KEPT = timedelta(seconds=15)
GRACE = timedelta(seconds=20)
PAUSE = 3.0
"""In place of `LONGEST_PAUSE`, in each process of the torture: a fraction of the grace, as it is of the real one."""

CONFIG = RepositoryConfig(
    inline_chunk_threshold_bytes=32,
    own_object_threshold_bytes=1 << 15,
    pack_target_bytes=1 << 16,
    max_bytes_in_flight=1 << 18,
)
_GONE = (SnapshotNotFoundError, SnapshotExpiredError, ObjectNotFoundError)


@dataclass(frozen=True)
class Place:
    """Where a repository is, as processes tell one another.

    Parameters
    ----------
    storage
        Arguments of the constructor of its storage; a path, or what `s3_storage` takes.
    journals
        Directory of the journals.
    """

    storage: dict[str, Any]
    journals: Path

    def open(self) -> Storage:
        """Return the storage."""
        if "path" in self.storage:
            return local_filesystem_storage(self.storage["path"])
        return s3_storage(**self.storage)


@dataclass
class Outcome:
    """What came of it.

    Parameters
    ----------
    problems
        What must not be; empty if all is well.
    counts
        How often what happened.
    """

    problems: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])


# -- actors -----------------------------------------------------------------------------------------------------------


def _note(place: Place, name: str, **what: Any) -> None:
    with (place.journals / f"{name}.{os.getpid()}").open("a") as file:
        file.write(json.dumps(what) + "\n")


def _write(place: Place, number: int, chance: random.Random) -> None:
    repository = Repository.open(place.open())
    first = number * ROWS
    while True:
        session = repository.writable_session("main")
        array = zarr.open_array(session.store, path="a", mode="r+")
        rows = [first + row for row in chance.sample(range(ROWS), chance.choice([1, 1, 2, 8]))]
        value = time.time_ns() // 1000
        for row in rows:
            array[row] = value
        time.sleep(chance.choice([0, 0, 0, 0.01, 0.3]))
        _note(place, f"writer-{number}", tried=value, rows=rows)
        try:
            made = session.commit(f"{value}", {"rows": rows, "value": value}, rebase_with=ConflictDetector())
        except SessionExpiredError:
            _note(place, "count", what="session expired")
            continue
        except (ConflictError, StorageError) as error:
            _note(place, "count", what=type(error).__name__)
            continue
        _note(place, f"writer-{number}", done=value, rows=rows, snapshot=made)


def _collect(place: Place, _number: int, chance: random.Random) -> None:
    repository = Repository.open(place.open())
    while True:
        full = chance.random() < 0.1
        with contextlib.suppress(StorageError):
            summary = repository.garbage_collect(datetime.now(UTC), full=full, record_grace=GRACE, nobody_writes=True)
            _note(place, "count", what="collection", objects=summary.objects_deleted, records=summary.records_deleted)
        time.sleep(chance.random() * 0.3)


def _compact(place: Place, _number: int, chance: random.Random) -> None:
    repository = Repository.open(place.open())
    while True:
        try:
            repository.compact()
            _note(place, "count", what="compaction")
        except (SessionExpiredError, StorageError, ConflictError) as error:
            _note(place, "count", what=f"compaction: {type(error).__name__}")
        time.sleep(chance.random() * 0.5)


def _expire(place: Place, _number: int, chance: random.Random) -> None:
    repository = Repository.open(place.open())
    while True:
        with contextlib.suppress(StorageError):
            moment = datetime.now(UTC) - KEPT
            _note(place, "expired", before=moment.timestamp())
            gone = repository.expire_snapshots(moment, keep_last=3)
            _note(place, "count", what="expiry", snapshots=len(gone))
        time.sleep(chance.random())


def _read(place: Place, _number: int, chance: random.Random) -> None:
    while True:
        acknowledged = _newest_values(place)
        repository = Repository.open(place.open())
        values = _values(repository, branch="main")
        for row, value in acknowledged.items():
            if values[row] < value:
                _note(place, "problem", what=f"row {row} of the newest snapshot is {values[row]}, not {value} or later")
        for _ in range(3):
            history = [info.id for info in repository.ancestry(branch="main") if "value" in info.metadata]
            if not history:
                continue
            snapshot = chance.choice(history[:200])
            try:
                _values(repository, snapshot_id=snapshot)
                _note(place, "count", what="read of a snapshot")
            except _GONE as error:
                if snapshot in {info.id for info in Repository.open(place.open()).ancestry(branch="main")}:
                    _note(place, "problem", what=f"snapshot {snapshot} is kept, and cannot be read: {error!r}")
                _note(place, "count", what=f"read: {type(error).__name__}")


def _values(repository: Repository, **where: str) -> npt.NDArray[np.int64]:
    """Read the one value of each chunk of a snapshot."""
    array = zarr.open_array(repository.readonly_session(**where).store, path="a", mode="r")
    found = np.asarray(array[:])
    assert (found == found[:, :1]).all(), "a chunk is torn"
    return np.asarray(found[:, 0])


ACTORS: dict[str, Callable[[Place, int, random.Random], None]] = {
    "write": _write,
    "collect": _collect,
    "compact": _compact,
    "expire": _expire,
    "read": _read,
}


def _act(name: str, number: int, seed: int, place: Place) -> None:
    try:
        ACTORS[name](place, number, random.Random(seed))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        import traceback

        where = "".join(traceback.format_exception(error)[-4:])
        _note(place, "problem", what=f"{name} ended with {type(error).__name__}: {error}\n{where}")
        raise


# -- journals ---------------------------------------------------------------------------------------------------------


def _notes(place: Place, name: str) -> Iterator[dict[str, Any]]:
    for path in sorted(place.journals.glob(f"{name}.*")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


def _newest_values(place: Place) -> dict[int, int]:
    """Return the newest acknowledged value of each row."""
    newest: dict[int, int] = {}
    for note in _notes(place, "writer-*"):
        for row in note["rows"] if "done" in note else ():
            newest[row] = max(newest.get(row, -1), note["done"])
    return newest


# -- the whole --------------------------------------------------------------------------------------------------------


def torture(place: Place, seconds: float, seed: int = 0) -> Outcome:
    """Torture a new repository for some time, then check it."""
    place.journals.mkdir(parents=True, exist_ok=True)
    repository = Repository.create(place.open(), config=CONFIG)
    session = repository.writable_session("main")
    zarr.create_array(
        session.store,
        name="a",
        shape=(WRITERS * ROWS, WIDTH),
        chunks=(1, WIDTH),
        dtype="i8",
        compressors=None,
        fill_value=-1,
    )
    session.commit("create")
    chance = random.Random(seed)
    parts = [("write", number) for number in range(WRITERS)]
    parts += [("collect", 0), ("compact", 0), ("expire", 0), ("read", 0), ("read", 1)]
    running = {part: _start(place, *part, chance) for part in parts}
    end, kills = time.monotonic() + seconds, 0
    try:
        while time.monotonic() < end:
            time.sleep(min(chance.random() * 3, max(0.0, end - time.monotonic())))
            part = chance.choice(parts)
            running[part].send_signal(signal.SIGKILL)
            running[part].wait()
            kills += 1
            for other, process in running.items():
                if process.poll() is not None:
                    running[other] = _start(place, *other, chance)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    outcome = _checked(place)
    outcome.counts["kills"] = kills
    return outcome


def _start(place: Place, name: str, number: int, chance: random.Random) -> subprocess.Popen[bytes]:
    told = json.dumps({"storage": place.storage, "journals": str(place.journals)})
    command = [sys.executable, "-m", "tests.lifecycle.torture", "--act", name, str(number), str(chance.getrandbits(32))]
    root = Path(__file__).parents[2]
    return subprocess.Popen([*command, told], cwd=root, stderr=subprocess.DEVNULL)


def _checked(place: Place) -> Outcome:
    """Compare what the repository holds with the journals."""
    outcome = Outcome([note["what"] for note in _notes(place, "problem")])
    for note in _notes(place, "count"):
        outcome.counts[note["what"]] += 1
        outcome.counts["objects deleted"] += note.get("objects", 0)
        outcome.counts["records deleted"] += note.get("records", 0)
        outcome.counts["snapshots expired"] += note.get("snapshots", 0)
    repository = Repository.open(place.open())
    _check_history(place, repository, outcome)
    for _ in range(2):
        repository.garbage_collect(datetime.now(UTC), full=True, record_grace=timedelta(0), nobody_writes=True)
    repository = Repository.open(place.open())
    _check_history(place, repository, outcome)
    report = repository.verify(level="chunks")
    outcome.problems += [f"verify: {finding}" for finding in report.errors]
    return outcome


def _check_history(place: Place, repository: Repository, outcome: Outcome) -> None:
    tried = {note["tried"] for note in _notes(place, "writer-*") if "tried" in note}
    done = {note["snapshot"]: note for note in _notes(place, "writer-*") if "done" in note}
    cut = max([note["before"] for note in _notes(place, "expired")], default=0.0)
    history = [info for info in repository.ancestry(branch="main") if "value" in info.metadata]
    ids = {info.id for info in history}
    values = {info.id: info.metadata["value"] for info in history}
    outcome.counts.update({"tried": len(tried), "acknowledged": len(done), "in the history": len(history)})
    if len(ids) != len(history) or not set(values.values()) <= tried:
        outcome.problems.append("the history holds what nobody has written, or something twice")
    for snapshot, note in done.items():
        if note["done"] / 1e6 - 1 > cut and snapshot not in ids:
            outcome.problems.append(f"commit {snapshot} of value {note['done']} was acknowledged and is not there")
    newest = _newest_values(place)
    found = _values(repository, branch="main")
    wrong = {row: int(found[row]) for row, value in newest.items() if found[row] < value}
    if wrong:
        outcome.problems.append(f"acknowledged values are lost: {wrong}")
    _check_steps(repository, history, outcome, cut)


def _check_steps(repository: Repository, history: list[Any], outcome: Outcome, cut: float) -> None:
    """Check that each snapshot differs from the one before it in the rows that its writer says, and in no others."""
    after: npt.NDArray[np.int64] | None = None
    later: Any = None
    for info in history:
        try:
            values = _values(repository, snapshot_id=info.id)
        except (ArrayStoreError, AssertionError) as error:
            outcome.problems.append(f"snapshot {info.id} cannot be read: {error!r}")
            return
        outcome.counts["snapshots read"] += 1
        if any(values[row] != info.metadata["value"] for row in info.metadata["rows"]):
            outcome.problems.append(f"snapshot {info.id} does not hold what its writer says")
        if after is not None and info.written_at.timestamp() > cut:
            changed = set(np.flatnonzero(values != after).tolist())
            if changed != set(later.metadata["rows"]):
                outcome.problems.append(f"snapshot {later.id} changed rows {changed}, not {later.metadata['rows']}")
        after, later = values, info


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--storage", choices=["local", "s3"], default="local")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--act", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.act:
        name, number, seed, told = options.act
        place = json.loads(told)
        log.LONGEST_PAUSE = PAUSE
        _act(name, int(number), int(seed), Place(place["storage"], Path(place["journals"])))
        return
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        storage: dict[str, Any] = {"path": f"{directory}/repository"}
        if options.storage == "s3":
            from tests.s3server import open_run, running_server

            stack.enter_context(open_run())
            storage = s3_place(stack.enter_context(running_server()))
        outcome = torture(Place(storage, Path(directory) / "journals"), options.minutes * 60, options.seed)
    for line in [str(dict(outcome.counts)), *(f"PROBLEM: {problem}" for problem in outcome.problems[:50])]:
        sys.stdout.write(line + "\n")
    sys.exit(bool(outcome.problems))


def s3_place(server: Any) -> dict[str, Any]:
    """Return what `s3_storage` takes for a new bucket of a server."""
    return {
        "bucket": server.new_bucket("torture"),
        "endpoint_url": server.endpoint_url,
        "allow_http": True,
        "force_path_style": True,
        "region": server.region,
        "access_key_id": server.access_key_id,
        "secret_access_key": server.secret_access_key,
    }


if __name__ == "__main__":
    main()
