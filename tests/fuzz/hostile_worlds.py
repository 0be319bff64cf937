"""Repositories with objects of every kind, and a model of what was committed to them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from arraystore import ConflictDetector, Repository, RepositoryConfig, StorageError
from arraystore.storage import MemoryStorage, Storage
from arraystore.storage.protocol import BytesLike
from arraystore.storage.wrapper import WrapperStorage
from tests.commit.rivals import impatient
from tests.copying.support import objects as objects_on
from tests.fuzz.states import same_ids
from tests.seams import context_of

__all__ = ["ARRAYS", "CONTAINER", "KINDS", "World", "kind_of", "opened", "world"]

CONTAINER = "mem://virtual/"
CONFIG = RepositoryConfig(inline_chunk_threshold_bytes=16, own_object_threshold_bytes=2048, pack_target_bytes=4096)
SOURCE = np.arange(64, dtype="<i8") * 3 + 7
ARRAYS = ("raw", "zipped", "big", "tiny", "virtual", "sharded", "log", "old", "deep/raw")

Values = dict[str, npt.NDArray[Any]]

_FOLDERS = {
    "repo": "repository",
    "snapshots": "checkpoint",
    "manifests": "manifest",
    "transactions": "change log",
    "collections": "collection",
    "chunks": "pack",
    "hints": "hint",
}
KINDS = frozenset({*_FOLDERS.values(), "record", "intent", "repository record", "page", "survivors"})


def kind_of(key: str) -> str:
    """Return what an object is, by its key."""
    folder, *parts = key.split("/")
    if folder == "refs":
        return "repository record" if parts[1] == "repository" else "intent" if "-" in parts[-1] else "record"
    if folder == "history":
        return "survivors" if "/kept/" in key else "page"
    return _FOLDERS[folder]


@dataclass
class World:
    """A repository, and what its history should read as.

    Parameters
    ----------
    objects
        Everything in its storage.
    snapshots
        Values of all arrays at each snapshot.
    histories
        Snapshots of each branch, the newest first, and of each tag, as long as they are kept.
    """

    objects: dict[str, bytes] = field(default_factory=dict[str, bytes])
    snapshots: dict[str, Values] = field(default_factory=dict[str, Values])
    histories: dict[tuple[str, str], list[str]] = field(default_factory=dict[tuple[str, str], list[str]])

    def by_kind(self) -> dict[str, list[str]]:
        """Return the keys of each kind."""
        found: dict[str, list[str]] = {}
        for key in sorted(self.objects):
            found.setdefault(kind_of(key), []).append(key)
        return found


class Listing(MemoryStorage):
    """A storage in memory where probing is no cheaper than listing, as on an object store."""

    cheap_probes = False


def opened(objects: dict[str, bytes], *, listing: bool) -> Repository:
    """Open a repository made of these objects, as a process does that knows nothing of it."""
    return Repository.open(storage_of(objects, listing=listing), authorize_virtual_chunk_access={CONTAINER: _source()})


def storage_of(objects: dict[str, bytes], *, listing: bool) -> MemoryStorage:
    """Return a storage that holds these objects."""
    storage = Listing("hostile") if listing else MemoryStorage("hostile")
    for key, data in objects.items():
        storage.put_sync(key, data)
    return storage


@cache
def _source() -> Storage:
    source = MemoryStorage("virtual")
    source.put_sync("file", SOURCE.tobytes())
    return source


@cache
def world(name: str) -> World:
    """Return ``live``, in which nothing has expired, or ``trimmed``, in which much has expired and was collected."""
    with same_ids():
        return _Making(expires=name == "trimmed").made()


class _Making:
    """Makes a world, and keeps the model beside it."""

    def __init__(self, *, expires: bool) -> None:
        self.random = Random(5)
        self.expires = expires
        self.storage = MemoryStorage("hostile")
        self.repository = Repository.create(
            self.storage, config=CONFIG, authorize_virtual_chunk_access={CONTAINER: _source()}
        )
        self.world = World()
        self.values: dict[str, Values] = {"main": {}}

    def made(self) -> World:
        """Do everything that leaves an object of some kind."""
        self.commit("main", self.create)
        self.commit("main", self.attributes)
        self.commit("main", self.forget)
        for number in range(70):
            self.commit("main", self.writes[number % len(self.writes)])
            if number == 20:
                self.tag("early", "main")
            if number == 40:
                self.branches()
            if number == 50:
                self.repository.compact(branch="main", min_live=0.9)
        self.tag("late", "main")
        if self.expires:
            self.trim()
        self.intent()
        self.repository.wait_for_maintenance()
        self.world.objects = objects_on(self.storage)
        self.histories()
        return self.world

    # -- commits

    def commit(self, branch: str, write: Callable[[Any, Values], None], *, amend: bool = False) -> str:
        """Make a change to a branch and to the model."""
        session = self.repository.writable_session(branch)
        values = {path: array.copy() for path, array in self.values[branch].items()}
        write(session, values)
        made = session.amend("amended") if amend else session.commit(write.__name__)
        self.values[branch] = self.world.snapshots[made] = values
        return made

    def create(self, session: Any, values: Values) -> None:
        """Create arrays of every kind of chunk."""
        group = zarr.create_group(session.store, attributes={"title": "hostile"})
        raw: dict[str, Any] = {"compressors": None, "fill_value": -1}
        group.create_array("raw", shape=(24, 8), chunks=(2, 8), dtype="i4", **raw)
        group.create_array("zipped", shape=(24, 32), chunks=(4, 32), dtype="i4", fill_value=-1)
        group.create_array("big", shape=(4, 512), chunks=(1, 512), dtype="f8", **raw)
        group.create_array("tiny", shape=(200,), chunks=(1,), dtype="i2", **raw)
        group.create_array("virtual", shape=(64,), chunks=(16,), dtype="<i8", **raw)
        group.create_array("sharded", shape=(16, 16), shards=(8, 8), chunks=(4, 4), dtype="i2", **raw)
        group.create_array("log", shape=(0,), chunks=(4,), dtype="i4", dimension_names=["t"], **raw)
        group.create_array("old", shape=(10,), chunks=(5,), dtype="f4", fill_value=-1)
        group.create_group("deep").create_array(
            "raw", shape=(9, 9), chunks=(4, 4), dtype="u2", **(raw | {"fill_value": 1})
        )
        values |= {name: np.asarray(group[name][...]) for name in ARRAYS}

    def attributes(self, session: Any, values: Values) -> None:
        """Make a change log too large for a record, and refer to bytes elsewhere; fill what will take a manifest."""
        noise = np.random.default_rng(1).integers(0, 1 << 14, 200, dtype="i2")
        self._put(session, values, "tiny", np.s_[:], noise)
        group = zarr.open_group(session.store, mode="r+")
        group["old"].attrs["noise"] = self.random.randbytes(150_000).hex()
        for number in range(4):
            session.store.set_virtual_ref(f"virtual/c/{number}", CONTAINER + "file", offset=128 * number, length=128)
        values["virtual"] = SOURCE.copy()

    def forget(self, session: Any, values: Values) -> None:
        """Delete the long attribute: later snapshots are small."""
        del zarr.open_array(session.store, path="old", mode="r+").attrs["noise"]

    def rows(self, session: Any, values: Values) -> None:
        """Write into packs, as they are and compressed."""
        at, value = self.random.randrange(20), self.random.randrange(1 << 30)
        for name in ("raw", "zipped"):
            noise = np.random.default_rng(value).integers(0, 1 << 30, values[name][at : at + 3].shape, dtype="i4")
            self._put(session, values, name, np.s_[at : at + 3], noise)

    def large(self, session: Any, values: Values) -> None:
        """Write a chunk that is an object of its own, and a shard."""
        self._put(session, values, "big", np.s_[self.random.randrange(4)], self.random.random() * np.arange(512))
        at = self.random.choice((0, 8))
        self._put(session, values, "sharded", np.s_[at : at + 8, :8], self.random.randrange(1 << 14))

    def small(self, session: Any, values: Values) -> None:
        """Write inlined chunks."""
        at = self.random.randrange(30)
        self._put(session, values, "tiny", np.s_[at : at + 2], self.random.randrange(1 << 14))
        self._put(session, values, "old", np.s_[self.random.randrange(10)], self.random.random())
        self._put(session, values, "deep/raw", np.s_[:, self.random.randrange(9)], self.random.randrange(1 << 14))

    def append(self, session: Any, values: Values) -> None:
        """Append."""
        more = np.full(4, self.random.randrange(1 << 30), dtype="i4")
        session.append({"log": more}, "t")
        values["log"] = np.concatenate([values["log"], more])

    @property
    def writes(self) -> list[Callable[[Any, Values], None]]:
        return [self.rows, self.small, self.append, self.rows, self.large]

    def _put(self, session: Any, values: Values, name: str, place: Any, value: Any) -> None:
        zarr.open_array(session.store, path=name, mode="r+")[place] = value
        values[name][place] = value

    # -- branches, tags, and what is gone

    def branches(self) -> None:
        """Have a branch that goes on, one that was amended, one that was reset, and one that was deleted."""
        newest = self.repository.lookup_branch("main")
        for name in ("side/é", "reset", "gone"):
            self.repository.create_branch(name, newest)
            self.values[name] = self.values["main"]
            for write in (self.rows, self.small):
                self.commit(name, write)
        self.commit("side/é", self.rows, amend=True)
        self.tag("on the side", "side/é")
        self.repository.reset_branch("reset", newest)
        self.values["reset"] = self.values["main"]
        self.commit("reset", self.small)
        self.repository.delete_branch("gone")

    def tag(self, name: str, branch: str) -> None:
        self.repository.create_tag(name, self.repository.lookup_branch(branch))

    def trim(self) -> None:
        """Let much expire, collect it, go on, and collect again."""
        for _ in range(2):
            now = datetime.fromtimestamp(context_of(self.repository).environment.now_us() / 1e6, UTC)
            self.repository.expire_snapshots(now, keep_last=6)
            self.repository.garbage_collect(now, full=True, record_grace=timedelta(0), nobody_writes=True)
            for write in self.writes:
                self.commit("main", write)
        self.repository.garbage_collect(now, record_grace=timedelta(0), nobody_writes=True)

    def intent(self) -> None:
        """Leave what somebody proposed, who died before it was committed."""
        repository = impatient(_NoRecords(self.storage))
        session = repository.writable_session("main")
        zarr.create_group(session.store, path="proposed")
        session.context.committer("main").intents.busy = True  # type: ignore[union-attr] # as after lost races
        with suppress(StorageError):
            session.commit("proposed", rebase_with=ConflictDetector())

    def histories(self) -> None:
        """Note what branches and tags show."""
        repository = opened(self.world.objects, listing=False)
        where: list[dict[str, str]] = [{"branch": name} for name in repository.list_branches()]
        where += [{"tag": name} for name in repository.list_tags()]
        for each in where:
            ((kind, name),) = each.items()
            self.world.histories[kind, name] = [info.id for info in repository.ancestry(**each)]


class _NoRecords(WrapperStorage):
    """Takes intents and no records."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.cheap_probes = False

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        if kind_of(key) == "record":
            raise StorageError(f"no record is taken: {key}")
        return await super().put_if_absent(key, data)
