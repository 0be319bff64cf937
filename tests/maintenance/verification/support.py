"""Repositories with objects of every kind, and ways to damage them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec

from arraystore import Repository, in_memory_storage
from arraystore._context.config import RepositoryConfig
from arraystore._maintenance.verification.findings import Finding, VerifyReport
from arraystore._maintenance.verification.verify import verify
from arraystore._runtime import run
from arraystore._session.session import Session
from arraystore.errors import ArrayStoreError
from arraystore.storage import MemoryStorage, Storage
from tests.commit.support import delete, keys, put
from tests.seams import context_of

SMALL = RepositoryConfig(inline_chunk_threshold_bytes=8, own_object_threshold_bytes=256, pack_target_bytes=512)
"""Inlined chunks, packs of several, and chunks of their own, in arrays of a few kilobytes."""

Damage = Callable[[Storage, str], bytes | None]


def missing(storage: Storage, key: str) -> None:
    """Nothing is left."""


def truncated(storage: Storage, key: str) -> bytes:
    """The end is gone."""
    data = bytes(storage.get_sync(key))
    return data[: len(data) // 2]


def empty(storage: Storage, key: str) -> bytes:
    """All bytes are gone."""
    return b""


def flipped(storage: Storage, key: str) -> bytes:
    """One bit is another."""
    data = bytearray(storage.get_sync(key))
    data[-1 - len(data) // 3] ^= 4
    return bytes(data)


def swapped(storage: Storage, key: str) -> bytes:
    """It has the bytes of its neighbour, which has the same kind and is whole."""
    own = bytes(storage.get_sync(key))
    prefix = key[: key.rindex("/") + 1]
    others = [bytes(storage.get_sync(other)) for other in keys(storage, prefix) if other != key]
    return next(data for data in reversed(others) if data != own)


def damage(storage: Storage, key: str, how: Damage) -> None:
    """Damage an object."""
    data = how(storage, key)
    delete(storage, key)
    if data is not None:
        put(storage, key, data)


def verified(repository: Repository, level: str = "metadata", sample: int | None = None) -> VerifyReport:
    """Verify with nothing in memory."""
    context = context_of(Repository.open(repository.storage))
    return run(
        verify(context.storage, context.repository, context.environment, context.reader, level, sample=sample)  # type: ignore[arg-type]
    )


def about(report: VerifyReport, key: str) -> list[Finding]:
    """Return what is said about an object."""
    return [finding for finding in report.findings if finding.key == key]


def create_arrays(session: Session) -> None:
    """Create arrays whose chunks are inlined, packed and of their own; all but the first have checksums."""
    group = zarr.create_group(session.store)
    codecs = {"serializer": BytesCodec(), "compressors": [Crc32cCodec()], "fill_value": -1}
    group.create_array("tiny", shape=(64,), chunks=(1,), dtype="i4", compressors=None, fill_value=-1)
    group.create_array("packed", shape=(64, 8), chunks=(1, 8), dtype="i4", **codecs)
    group.create_array("large", shape=(8, 128), chunks=(1, 128), dtype="i4", **codecs)
    group.create_group("below").create_array("packed", shape=(64, 8), chunks=(1, 8), dtype="i4", **codecs)


def commit_all(repository: Repository, number: int, branch: str = "main") -> str:
    """Commit something to each array."""
    session = repository.writable_session(branch)
    group = zarr.open_group(session.store, mode="r+")
    group["tiny"][number % 64] = number
    group["packed"][number % 32 : number % 32 + 3] = number
    group["large"][number % 8] = np.arange(128) + number
    group["below/packed"][number % 60 : number % 60 + 4] = number
    return session.commit(f"number {number}")


def small_repository(commits: int = 6) -> Repository:
    """Create a repository of a few snapshots on two branches, with a tag."""
    repository = Repository.create(in_memory_storage(), SMALL)
    session = repository.writable_session("main")
    create_arrays(session)
    session.commit("create")
    made = [commit_all(repository, number) for number in range(commits)]
    repository.create_branch("side", made[commits // 2])
    commit_all(repository, 40, "side")
    repository.create_tag("release", made[1])
    repository.wait_for_maintenance()
    return repository


def long_repository(commits: int) -> Repository:
    """Create a repository with history pages, checkpoints and folds."""
    repository = small_repository(3)
    for number in range(commits):
        session = repository.writable_session("main")
        zarr.open_array(session.store, path="tiny", mode="r+")[number % 64] = number
        session.commit(f"tiny {number}")
        if number % 32 == 0:
            repository.wait_for_maintenance()
    repository.wait_for_maintenance()
    return repository


def contents(repository: Repository) -> dict[str, dict[str, bytes] | None]:
    """Read every array of every snapshot of the branches and tags that exist; None for a snapshot that fails."""
    snapshots: set[str] = set()
    for branch in sorted(repository.list_branches()):
        snapshots.update(info.id for info in repository.ancestry(branch=branch))
    return {snapshot: _content(repository.storage, snapshot) for snapshot in sorted(snapshots)}


def _content(storage: Storage, snapshot: str) -> dict[str, bytes] | None:
    try:
        session = Repository.open(storage).readonly_session(snapshot_id=snapshot)
        group = zarr.open_group(session.store, mode="r") if session.base_tip.state.nodes else None
        arrays = {} if group is None else dict(group.members(max_depth=None))
        return {name: item[...].tobytes() for name, item in arrays.items() if isinstance(item, zarr.Array)}
    except (ArrayStoreError, ValueError):
        return None


def copied(storage: Storage) -> MemoryStorage:
    """Return a storage with the same objects."""
    other = in_memory_storage()
    for key in keys(storage):
        put(other, key, bytes(storage.get_sync(key)))
    return other


def objects_of(storage: Storage) -> dict[str, bytes]:
    """Return all objects by their keys."""
    return {key: bytes(storage.get_sync(key)) for key in keys(storage)}
