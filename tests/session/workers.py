"""What tests of the store run in other processes; importable by name, so that spawned processes find it."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import zarr
from zarr.core.buffer import cpu

from arraystore import ArrayStore, ArrayStoreError, ForkSession, Repository, Session


def read_store(store: ArrayStore, path: str = "a") -> Any:
    return zarr.open_array(store, path=path, mode="r")[...]


def read_session(session: Session, path: str = "a") -> Any:
    return read_store(session.store, path)


def read_repository(repo: Repository, path: str = "a") -> Any:
    return read_session(repo.readonly_session("main"), path)


def read_again_pickled(session: Session) -> Any:
    return read_session(pickle.loads(pickle.dumps(session)))


def refusal(session: Session) -> tuple[bool, list[str]]:
    """Try to write in every way; returns whether the session calls itself read-only, and the refusals."""
    store, value = session.store, cpu.Buffer.from_bytes(b"x")
    attempts = [
        lambda: store.set_sync("a/c/0", value),
        lambda: store.delete_sync("a/c/0"),
        lambda: store._sync(store.set("a/c/0", value)),
        lambda: store._sync(store.clear()),
        lambda: session.commit("no"),
        session.fork,
        session.discard_changes,
    ]
    return session.read_only, [_error(attempt) for attempt in attempts]


def _error(attempt: Any) -> str:
    try:
        attempt()
    except ArrayStoreError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def write_part(fork: ForkSession, start: int, stop: int) -> bytes:
    """Fill a part of an array through a fork; returns its changes."""
    zarr.open_array(fork.store, path="a", mode="r+")[start:stop] = np.arange(start, stop) + 1
    return fork.changes()


def make_group(fork: ForkSession, name: str) -> bytes:
    array = zarr.create_array(fork.store, name=f"{name}/b", shape=(4,), chunks=(2,), dtype="i4")
    array[:] = 7
    return fork.changes()
