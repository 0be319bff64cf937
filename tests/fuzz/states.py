"""A small repository with something of everything, the same in every run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any
from unittest import mock

import numpy as np
import zarr
from zarr.core.buffer import cpu

from arraystore import RepoAvailability, Repository, RepositoryConfig, RepoStatus
from arraystore._environment import Environment
from arraystore._format.ids import IdSource
from arraystore._log.state import SnapshotState
from arraystore._session.virtual_references import VirtualChunkSpec
from arraystore.storage import MemoryStorage
from tests.copying.support import objects as objects_on

__all__ = ["CONTAINER", "a_repository", "a_state", "repository_of"]


CONTAINER = "mem://virtual/"
_START = 1_700_000_000_000


@contextmanager
def same_ids() -> Iterator[None]:
    """Let everything that is made meanwhile have the same ids and times in every run."""
    rng, ticks = random.Random(11), count(_START)
    ids = (lambda: next(ticks), rng.randbytes)
    defaults = (lambda: next(ticks) * 1000, asyncio.sleep, rng.random, *(Environment.__init__.__defaults__ or ())[3:])
    with (
        mock.patch.object(IdSource.__init__, "__defaults__", ids),
        mock.patch.object(Environment.__init__, "__defaults__", defaults),
    ):
        yield


@cache
def a_repository() -> dict[str, bytes]:
    """Return the objects of a repository: a branch with checkpoints and history pages, another branch, a tag."""
    storage, elsewhere = MemoryStorage("fuzz"), MemoryStorage("virtual")
    elsewhere.put_sync("file", bytes(range(200)))
    with same_ids():
        repository = Repository.create(
            storage,
            config=RepositoryConfig(inline_chunk_threshold_bytes=16),
            authorize_virtual_chunk_access={CONTAINER: elsewhere},
        )
        _fill(repository)
        repository.wait_for_maintenance()
    return objects_on(storage)


def _fill(repository: Repository) -> None:
    with repository.transaction("main", message="arrays", metadata={"n": 1}) as store:
        zarr.create_group(store, attributes={"title": "é"})
        zarr.create_array(store, name="a", shape=(8, 6), chunks=(2, 3), dtype="i4")[:] = 7
        dots: Any = {"name": "default", "separator": "."}
        made = zarr.create_array(
            store,
            name="group/dots",
            shape=(40,),
            chunks=(2,),
            dtype="i8",
            chunk_key_encoding=dots,
            dimension_names=["t"],
        )
        made[::3] = 5
        zarr.create_array(store, name="group/old", shape=(5,), chunks=(2,), dtype="f4", zarr_format=2)[1:] = 1.5
        zarr.create_array(store, name="scalar", shape=(), dtype="i2")[...] = 3
        store.set_sync("notes.txt", cpu.Buffer.from_bytes(b"a file"))
    session = repository.writable_session("main")
    specs = [VirtualChunkSpec((n,), CONTAINER + "file", n, 16) for n in (1, 2)]
    session.store.set_virtual_refs("group/dots", specs)
    session.commit("virtual chunks")
    for number in range(70):
        session = repository.writable_session("main")
        zarr.open_array(session.store, path="a")[number % 8] = number
        if number % 20 == 3:
            session.append({"group/dots": np.full(4, number)}, "t")
        if number == 9:
            session.move("group/old", "group/moved")
        if number == 30:
            session.store.delete_sync("a/c/0/0")
        session.commit(
            f"commit {number}" * (40 if number == 5 else 1), metadata={"step": number} if number % 2 else None
        )
    newest, *_ = repository.ancestry(branch="main")
    repository.create_branch("side/é", newest.id)
    repository.create_tag("v1", newest.id)
    with repository.transaction("side/é", message="on the side") as store:
        del zarr.open_group(store)["group"]
    _live(repository, newest.id)


def _live(repository: Repository, newest: str) -> None:
    """Let there be every entry that a branch's log and the repository log may hold and users can write."""
    repository.create_branch("reset", newest)
    session = repository.writable_session("reset")
    zarr.open_array(session.store, path="a")[0] = -1
    session.commit("gone with the reset")
    repository.reset_branch("reset", newest)
    repository.create_branch("gone", newest)
    repository.delete_branch("gone")
    repository.create_tag("gone", newest)
    repository.delete_tag("gone")
    repository.set_metadata({"title": "é", "nested": [1, {"a": None}]})
    repository.set_status(RepoStatus(RepoAvailability.read_only, limited_availability_reason="a test"))
    repository.set_status(RepoStatus(RepoAvailability.online))
    repository.set_feature_flag("create_tag", True)
    repository.save_config()


def repository_of(objects: dict[str, bytes]) -> Repository:
    """Open a repository made of these objects."""
    storage, elsewhere = MemoryStorage(), MemoryStorage("virtual")
    elsewhere.put_sync("file", bytes(range(200)))
    for key, data in objects.items():
        storage.put_sync(key, data)
    return Repository.open(storage, authorize_virtual_chunk_access={CONTAINER: elsewhere})


@cache
def a_state() -> SnapshotState:
    """Return a snapshot."""
    return repository_of(a_repository()).readonly_session("main").hierarchy.state
