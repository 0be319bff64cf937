"""Repositories for tests of forks, and functions that run in other processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr

from arraystore import CountingStorage, ForkSession, Repository, Session, Storage

CHUNK = 1000
"""Bytes of a chunk: more than are inlined, fewer than fill a pack."""


def chunked(store: Any, name: str, chunks: int, **options: Any) -> Any:
    """Create an array of so many chunks of `CHUNK` bytes."""
    shape = (chunks * CHUNK,)
    return zarr.create_array(store, name=name, shape=shape, chunks=(CHUNK,), dtype="u1", compressors=None, **options)


def counted(storage: Storage, chunks: int = 16) -> tuple[Repository, CountingStorage]:
    """Return a repository with an array of which the first half is written, and its request counter."""
    counting = CountingStorage(storage)
    repo = Repository.create(counting)
    session = repo.writable_session("main")
    array = chunked(session.store, "a", chunks)
    array[: chunks // 2 * CHUNK] = 1
    session.commit("an array")
    return repo, counting


def fill(session: Session | ForkSession, number: int, value: int, path: str = "a") -> None:
    """Write one chunk."""
    zarr.open_array(session.store, path=path, mode="r+")[number * CHUNK : (number + 1) * CHUNK] = value


def values(session: Session | ForkSession, path: str = "a") -> list[int]:
    """Return the first item of every chunk."""
    found = np.asarray(zarr.open_array(session.store, path=path, mode="r")[:])
    return [int(value) for value in found[::CHUNK]]


def values_elsewhere(fork: ForkSession) -> list[int]:
    return values(fork)


def fill_elsewhere(fork: ForkSession, number: int, value: int) -> bytes:
    fill(fork, number, value)
    return fork.changes()


def fill_inherited(fork: ForkSession, number: int, value: int) -> tuple[list[int], bytes]:
    """Read and write in a forked child through a fork that it has inherited."""
    before = values(fork)
    fill(fork, number, value)
    return before, fork.changes()


def pickle_inherited(session: Session) -> str:
    """Return what pickling in a forked child says."""
    import pickle

    from arraystore import SessionStateError

    try:
        pickle.dumps(session)
    except SessionStateError as error:
        return str(error)
    return "done"


def fill_and_return(fork: ForkSession, number: int, value: int) -> ForkSession:
    fill(fork, number, value)
    return fork
