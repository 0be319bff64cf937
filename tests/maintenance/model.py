"""A repository beside a model of it: what each snapshot holds, and which snapshots are kept."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import zarr

from arraystore import CountingStorage, Repository, RepositoryConfig
from arraystore._session.session import Session
from arraystore.storage import Storage

__all__ = ["CHUNKS", "CONFIG", "Model", "Values", "now", "read_all"]

Values = dict[str, npt.NDArray[np.float64]]

CHUNKS, LENGTH = 24, 32
NO_GRACE = timedelta(0)
CONFIG = RepositoryConfig(
    inline_chunk_threshold_bytes=32, own_object_threshold_bytes=4096, pack_target_bytes=16384, max_bytes_in_flight=65536
)


def now() -> datetime:
    """Return a moment after everything that was written so far, and before what comes.

    Ids that one program makes within a millisecond get the times of the next ones.
    """
    time.sleep(0.01)
    moment = datetime.now(UTC)
    time.sleep(0.002)
    return moment


def read_all(session: Session) -> Values:
    """Read all arrays of a snapshot."""
    try:
        group = zarr.open_group(session.store, mode="r")
    except zarr.errors.GroupNotFoundError:
        return {}
    return {path: np.asarray(array[:]) for path, array in sorted(group.members(None)) if isinstance(array, zarr.Array)}


def _read_by(storage: Storage, snapshot: str) -> set[str]:
    """Return the objects that reading a snapshot takes."""
    counting = CountingStorage(storage)
    read_all(Repository.open(counting).readonly_session(snapshot_id=snapshot))
    return {key for _, key in counting.log}


def _same(found: Values, expected: Values) -> bool:
    return found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in expected)


@dataclass
class Model:
    """What a repository should be.

    Parameters
    ----------
    storage
        Where it is.
    values
        What each snapshot that was ever made holds.
    branches, tags
        Their histories, newest first.
    burnt
        Names of tags that were deleted.
    flushed
        Snapshots that were made on no branch.
    times
        When each was committed.
    """

    storage: Storage
    chance: random.Random
    values: dict[str, Values] = field(default_factory=dict[str, Values])
    branches: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    tags: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    flushed: list[str] = field(default_factory=list[str])
    times: dict[str, datetime] = field(default_factory=dict[str, datetime])
    first: str = ""
    made: int = 0
    packs_of_amended: set[str] = field(default_factory=set[str])
    """Keys of the packs that only snapshots name whose place others took; these go when their records do."""

    def __post_init__(self) -> None:
        self.repository = Repository.create(self.storage, config=CONFIG)
        self.first = self.repository.lookup_branch("main")
        self.branches["main"] = [self.first]
        self.values[self.first] = {}
        self._note(self.first)

    def _note(self, snapshot: str) -> None:
        self.times[snapshot] = self.repository.lookup_snapshot(snapshot).written_at

    def reopen(self) -> None:
        """Go on with nothing in memory."""
        self.repository.wait_for_maintenance()
        self.repository = Repository.open(self.storage)

    # -- steps ------------------------------------------------------------------------------------------------

    def step(self) -> str:
        """Do something; returns what."""
        steps = {
            self.commit: 12,
            self.amend: 1,
            self.flush: 1,
            self.create_branch: 2,
            self.delete_branch: 1,
            self.reset: 1,
            self.create_tag: 2,
            self.delete_tag: 1,
            self.expire: 1.5,
            self.collect: 3,
            self.compact: 0.7,
            self.reopen: 1,
        }
        (chosen,) = self.chance.choices(list(steps), list(steps.values()))
        chosen()
        return chosen.__name__

    def _change(self, session: Session, held: Values) -> Values:
        chance, held = self.chance, dict(held)
        group = zarr.open_group(session.store, mode="a")
        for _ in range(chance.randint(1, 3)):
            kind = chance.random()
            if not held or (kind < 0.1 and len(held) < 4):
                name = chance.choice(["x", "y", "deep/z", "deep/w"]) + str(chance.randrange(1000))
                chunk = chance.choice([1, LENGTH, LENGTH * 20])
                group.create_array(
                    name, shape=(CHUNKS * chunk,), chunks=(chunk,), dtype="f8", compressors=None, fill_value=-1
                )
                held[name] = np.full(CHUNKS * chunk, -1.0)
                continue
            name = chance.choice(sorted(held))
            if kind < 0.15 and len(held) > 1:
                del group[name]
                del held[name]
                continue
            if kind < 0.2:
                other = f"moved{chance.randrange(10_000)}"
                session.move("/" + name, "/" + other)
                held[other] = held.pop(name)
                continue
            array, new = group[name], held[name].copy()
            assert isinstance(array, zarr.Array)
            (chunk,) = array.chunks
            first = chance.randrange(CHUNKS)
            last = min(CHUNKS, first + chance.choice([1, 1, 2, 8, CHUNKS]))
            self.made += 1
            value = -1.0 if chance.random() < 0.1 else float(self.made)
            part = slice(first * chunk, last * chunk)
            array[part] = new[part] = value
            held[name] = new
        return held

    def _branch(self) -> str:
        return self.chance.choice(sorted(self.branches))

    def _kept(self) -> list[str]:
        return sorted(self.kept())

    def kept(self) -> set[str]:
        """Return the snapshots that the histories of branches and tags show."""
        return {snapshot for history in (*self.branches.values(), *self.tags.values()) for snapshot in history}

    def commit(self) -> None:
        for _ in range(self.chance.choice([1, 1, 1, 3, 12])):
            branch = self._branch()
            session = self.repository.writable_session(branch)
            held = self._change(session, self.values[self.branches[branch][0]])
            if not session.has_uncommitted_changes:
                continue
            snapshot = session.commit(f"commit {self.made}")
            self.values[snapshot] = held
            self.branches[branch].insert(0, snapshot)
            self._note(snapshot)

    def amend(self) -> None:
        branch = self._branch()
        if len(self.branches[branch]) == 1:
            return
        session = self.repository.writable_session(branch)
        held = self._change(session, self.values[self.branches[branch][0]])
        if not session.has_uncommitted_changes:
            return
        snapshot = session.amend("amended")
        self.values[snapshot] = held
        self.packs_of_amended |= _read_by(self.storage, self.branches[branch][0])
        self.branches[branch][0] = snapshot
        self._note(snapshot)

    def flush(self) -> None:
        branch = self._branch()
        session = self.repository.writable_session(branch)
        held = self._change(session, self.values[self.branches[branch][0]])
        if not session.has_uncommitted_changes:
            return
        snapshot = session.flush("flushed")
        self.values[snapshot] = held
        self.flushed.append(snapshot)
        self._note(snapshot)
        if self.chance.random() < 0.5:
            name = f"of-flushed{len(self.values)}"
            self.repository.create_tag(name, snapshot)
            self.tags[name] = [snapshot, *self.branches[branch]]

    def _history(self, snapshot: str) -> list[str]:
        for history in (*self.branches.values(), *self.tags.values()):
            if snapshot in history:
                return list(history[history.index(snapshot) :])
        raise AssertionError(snapshot)

    def create_branch(self) -> None:
        if len(self.branches) > 4:
            return
        name, snapshot = f"b{self.chance.randrange(5)}", self.chance.choice(self._kept())
        if name not in self.branches:
            self.repository.create_branch(name, snapshot)
            self.branches[name] = self._history(snapshot)

    def delete_branch(self) -> None:
        branch = self._branch()
        if branch != "main":
            self.repository.delete_branch(branch)
            del self.branches[branch]

    def reset(self) -> None:
        branch, snapshot = self._branch(), self.chance.choice(self._kept())
        self.repository.reset_branch(branch, snapshot)
        self.branches[branch] = self._history(snapshot)

    def create_tag(self) -> None:
        name, snapshot = (
            f"t{self.made}-{len(self.tags)}-{len(self.values)}-{self.chance.randrange(1000)}",
            self.chance.choice(self._kept()),
        )
        if name not in self.tags and name not in self.repository.list_tags():
            self.repository.create_tag(name, snapshot)
            self.tags[name] = self._history(snapshot)

    def delete_tag(self) -> None:
        if self.tags:
            tag = self.chance.choice(sorted(self.tags))
            self.repository.delete_tag(tag)
            del self.tags[tag]

    def expire(self) -> None:
        moment = self.times[self.chance.choice(self._kept())] + timedelta(microseconds=self.chance.randrange(2))
        refs = {history[0] for history in (*self.branches.values(), *self.tags.values())} | set(self.flushed)
        old = {snapshot for snapshot in self.kept() if self.times[snapshot] < moment}
        foreseen = self.repository.expire_snapshots(moment, dry_run=True)
        gone = self.repository.expire_snapshots(moment)
        assert gone == foreseen
        assert not gone & refs
        assert self.first not in gone
        listed = old - refs - {self.first}
        assert listed <= gone, listed - gone
        assert gone - listed <= self.values.keys() - self.kept(), "something young has expired"
        for history in (*self.branches.values(), *self.tags.values()):
            history[:] = [snapshot for snapshot in history if snapshot not in gone]

    def collect(self) -> None:
        self.repository.garbage_collect(
            now(), full=self.chance.random() < 0.3, record_grace=NO_GRACE, nobody_writes=True
        )

    def compact(self) -> None:
        self.repository.compact(branch=self._branch())

    # -- checks -----------------------------------------------------------------------------------------------

    def check(self, repository: Repository | None = None) -> None:
        """Assert that branches, tags and histories are as they should be, and that each kept snapshot reads so."""
        repository = repository or Repository.open(self.storage)
        assert repository.list_branches() == set(self.branches)
        assert repository.list_tags() == set(self.tags)
        for name, history in self.branches.items():
            assert [info.id for info in repository.ancestry(branch=name)] == history, name
        for name, history in self.tags.items():
            assert [info.id for info in repository.ancestry(tag=name)] == history, name
        for snapshot in self.kept():
            found = read_all(repository.readonly_session(snapshot_id=snapshot))
            assert _same(found, self.values[snapshot]), snapshot

    def settle(self) -> None:
        """Collect everything that is garbage."""
        self.repository.wait_for_maintenance()
        for _ in range(2):
            self.repository.garbage_collect(now(), full=True, record_grace=NO_GRACE, nobody_writes=True)
