"""Random histories, and what a snapshot holds, key by key."""

from __future__ import annotations

import json
import random

import zarr
from zarr.core.buffer import default_buffer_prototype

from arraystore import MemoryStorage, Repository, RepositoryConfig, Session
from arraystore._runtime import run

SMALL = RepositoryConfig(
    inline_chunk_threshold_bytes=16,
    own_object_threshold_bytes=200,
    pack_target_bytes=400,
)
"""So that histories of a few bytes have inlined chunks, packs, and chunks that are objects."""

V2 = json.dumps(
    {
        "zarr_format": 2,
        "shape": [6],
        "chunks": [2],
        "dtype": "<f8",
        "compressor": None,
        "fill_value": 0,
        "order": "C",
        "filters": None,
    }
).encode()

ELSEWHERE = "mem://elsewhere/"


class FarMemory(MemoryStorage):
    """Memory that takes itself for an object store."""

    cheap_probes = False


def elsewhere() -> MemoryStorage:
    """Return a storage with an object that virtual chunks are taken from."""
    storage = MemoryStorage("elsewhere")
    storage.put_sync("file.bin", bytes(range(256)) * 4)
    return storage


def contents(session: Session) -> dict[str, bytes]:
    """Return all keys and values of a snapshot."""

    async def read() -> dict[str, bytes]:
        store = session.store
        found = {}
        async for key in store.list():
            value = await store.get(key, default_buffer_prototype())
            assert value is not None, key
            found[key] = value.to_bytes()
        return found

    return run(read())


def objects(storage: MemoryStorage, but: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Return all objects of a storage."""

    async def read() -> dict[str, bytes]:
        return {
            info.key: bytes(await storage.get(info.key))
            async for page in storage.list("")
            for info in page
            if not info.key.startswith(but)
        }

    return run(read())


def step(session: Session, rng: random.Random, number: int) -> None:
    """Change something."""
    root = zarr.open_group(session.store, mode="a")
    arrays = [name for name, _ in root.arrays()]
    choice = rng.choice(
        ["create", "write", "write", "write", "delete", "move", "resize", "attrs", "file", "v2", "virtual"]
    )
    if choice == "create" or not arrays:
        name = f"n{number}"
        side = rng.choice([1, 3, 7])
        array = root.create_array(name, shape=(4 * side, side), chunks=(side, side), dtype="i4", compressors=None)
        array[: 2 * side] = number % 200
        return
    name = rng.choice(arrays)
    if choice == "write":
        array = root[name]
        rows = array.shape[0]
        low = rng.randrange(rows)
        array[low : low + rng.randrange(1, rows + 1)] = rng.randrange(1, 200)
    elif choice == "delete":
        del root[name]
    elif choice == "move":
        session.move(name, f"moved{number}")
        if rng.random() < 0.5:
            root[f"moved{number}"].attrs["moved"] = number
    elif choice == "resize":
        array = root[name]
        shape = array.shape
        array.resize((max(1, shape[0] + rng.choice([-5, -2, 4, 6])), *shape[1:]))
        if rng.random() < 0.5:
            array.resize(shape)
    elif choice == "attrs":
        root[name].attrs["number"] = number
    elif choice == "file":
        session.hierarchy.set_sync(f"notes/{number % 3}.txt", memoryview(b"x" * (number * 7 % 300)))
    elif choice == "v2":
        session.hierarchy.set_sync(f"old{number}/.zarray", memoryview(V2))
        for key, value in ((".zattrs", b'{"v": 2}'), ("0", b"12345678" * 2), ("2", b"x" * 16)):
            session.hierarchy.set_sync(f"old{number}/{key}", memoryview(value))
    else:
        array = root.create_array(f"virtual{number}", shape=(8,), chunks=(2,), dtype="u1", compressors=None)
        array[:2] = 9
        for at in (1, 3):
            session.store.set_virtual_ref(
                f"virtual{number}/c/{at}", ELSEWHERE + "file.bin", offset=number % 300 * 3, length=2
            )


def random_history(repo: Repository, seed: int, commits: int, branch: str = "main") -> list[str]:
    """Commit random changes; returns the snapshots."""
    rng = random.Random(seed)
    made = []
    for number in range(commits):
        session = repo.writable_session(branch)
        for part in range(rng.randrange(1, 4)):
            step(session, rng, seed * 1000 + number * 10 + part)
        made.append(session.commit(f"commit {number}", {"number": number}, allow_empty=True))
    return made


def new_repository(config: RepositoryConfig | None = SMALL, storage: MemoryStorage | None = None) -> Repository:
    """Return a repository in memory."""
    return Repository.create(
        storage or MemoryStorage(), config, authorize_virtual_chunk_access={ELSEWHERE: elsewhere()}
    )


def reopened(storage: MemoryStorage) -> Repository:
    """Open a repository in memory, with access to what its virtual chunks are."""
    return Repository.open(storage, authorize_virtual_chunk_access={ELSEWHERE: elsewhere()})


def all_contents(repo: Repository) -> dict[str, dict[str, bytes]]:
    """Return what every snapshot of every branch and tag holds."""
    ids = {info.id for branch in repo.list_branches() for info in repo.ancestry(branch=branch)}
    ids |= {info.id for tag in repo.list_tags() for info in repo.ancestry(tag=tag)}
    return {snapshot: contents(repo.readonly_session(snapshot_id=snapshot)) for snapshot in sorted(ids)}


def copied(storage: MemoryStorage) -> MemoryStorage:
    """Return a storage with the same objects."""
    other = MemoryStorage()
    for key, data in objects(storage).items():
        other.put_sync(key, data)
    return other
