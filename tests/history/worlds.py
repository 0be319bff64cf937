"""Repositories to revert and cherry-pick in, and what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import zarr

from arraystore import Repository, RepositoryConfig, Session, in_memory_storage
from arraystore.storage import Storage

SIZE = 6


def world(storage: Storage | None = None, inline: int = 0) -> Repository:
    """Create a repository with the groups "" and g, and the arrays g/a of 1 to 6 and g/b of zeros, a chunk an item."""
    config = RepositoryConfig(inline_chunk_threshold_bytes=inline)
    repository = Repository.create(in_memory_storage() if storage is None else storage, config)
    with committed(repository, "create") as session:
        root = zarr.create_group(session.store)
        group = root.create_group("g")
        group.create_array("a", shape=(SIZE,), chunks=(1,), dtype="i8")[...] = np.arange(1, SIZE + 1)
        group.create_array("b", shape=(SIZE,), chunks=(1,), dtype="i8")
    return repository


@contextmanager
def committed(repository: Repository, message: str, branch: str = "main") -> Iterator[Session]:
    """Commit what is done in a block."""
    session = repository.writable_session(branch)
    yield session
    session.commit(message)


def commit(repository: Repository, change: Callable[[Session], Any], message: str = "", branch: str = "main") -> str:
    """Commit one change, and return the snapshot."""
    session = repository.writable_session(branch)
    change(session)
    return session.commit(message or getattr(change, "__name__", "change"))


def put(path: str, at: int, value: int) -> Callable[[Session], None]:
    """Set one item of an array."""

    def change(session: Session) -> None:
        zarr.open_array(session.store, path=path, mode="r+")[at] = value

    return change


def attributes(path: str, **values: Any) -> Callable[[Session], None]:
    """Set attributes of a node."""

    def change(session: Session) -> None:
        zarr.open(session.store, path=path, mode="r+").attrs.update(values)

    return change


def resized(path: str, length: int) -> Callable[[Session], None]:
    """Resize an array."""

    def change(session: Session) -> None:
        zarr.open_array(session.store, path=path, mode="r+").resize((length,))

    return change


def created(path: str, value: int = 7) -> Callable[[Session], None]:
    """Create an array."""

    def change(session: Session) -> None:
        array = zarr.create_array(session.store, name=path, shape=(2,), chunks=(1,), dtype="i8")
        array[...] = value

    return change


def grouped(path: str) -> Callable[[Session], None]:
    """Create a group."""
    return lambda session: zarr.create_group(session.store, path=path)


def deleted(path: str) -> Callable[[Session], None]:
    """Delete a node, and what is below it."""

    def change(session: Session) -> None:
        above, _, name = path.rpartition("/")
        del zarr.open_group(session.store, path=above, mode="r+")[name]

    return change


def moved(source: str, target: str) -> Callable[[Session], None]:
    """Move a node."""
    return lambda session: session.move(source, target)


def both(*changes: Callable[[Session], Any]) -> Callable[[Session], None]:
    """Do several things."""

    def change(session: Session) -> None:
        for each in changes:
            each(session)

    return change


def contents(repository: Repository, branch: str = "main") -> dict[str, Any]:
    """Return everything that a branch holds: attributes of groups, attributes and values of arrays, by path."""
    root = zarr.open_group(repository.readonly_session(branch).store, mode="r")
    found: dict[str, Any] = {"": dict(root.attrs)}
    for path, node in root.members(max_depth=None):
        values = node[...].tolist() if isinstance(node, zarr.Array) else None
        found[path] = (dict(node.attrs), values)
    return found


def contents_at(repository: Repository, snapshot_id: str) -> dict[str, Any]:
    """Return everything that a snapshot holds."""
    root = zarr.open_group(repository.readonly_session(snapshot_id=snapshot_id).store, mode="r")
    return {path: node[...].tolist() for path, node in root.members(max_depth=None) if isinstance(node, zarr.Array)}


def set_file(key: str, data: bytes) -> Callable[[Session], None]:
    """Set a key that is neither metadata nor a chunk."""
    from zarr.core.buffer import default_buffer_prototype

    return lambda session: session.store.set_sync(key, default_buffer_prototype().buffer.from_bytes(data))


def get_file(repository: Repository, key: str, branch: str = "main") -> bytes | None:
    """Return the value of such a key."""
    found = repository.readonly_session(branch).store.get_sync(key)
    return None if found is None else found.to_bytes()
