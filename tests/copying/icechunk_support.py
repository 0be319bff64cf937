"""Random histories in Icechunk, and the comparison of an import with its source."""

from __future__ import annotations

import random
from datetime import timedelta

import icechunk
import numpy as np
import zarr

from arraystore import Repository
from arraystore._runtime import run
from tests.copying.support import contents


def new_icechunk() -> icechunk.Repository:
    return icechunk.Repository.create(icechunk.in_memory_storage())


def held(repo: icechunk.Repository, snapshot: str) -> dict[str, bytes]:
    """Return all keys and values of a snapshot."""
    from zarr.core.buffer import default_buffer_prototype

    async def read() -> dict[str, bytes]:
        store = (await repo.readonly_session_async(snapshot_id=snapshot)).store
        keys = [key async for key in store.list_prefix("")]
        values = [await store.get(key, default_buffer_prototype()) for key in keys]
        return {key: plain(key, value.to_bytes()) for key, value in zip(keys, values, strict=True) if value is not None}

    return run(read())


def plain(key: str, value: bytes) -> bytes:
    """Return a value as arraystore shows it: old releases of Zarr wrote that there is no consolidated metadata."""
    return value.replace(b'  "consolidated_metadata": null,\n', b"") if key.endswith("zarr.json") else value


def step(session: icechunk.Session, rng: random.Random, number: int) -> None:
    root = zarr.open_group(session.store, mode="a")
    arrays = [name for name, _ in root.arrays()]
    choice = rng.choice(
        ["create", "write", "write", "write", "delete", "recreate", "resize", "attrs", "group", "erase"]
    )
    name = rng.choice(arrays) if arrays else ""
    if choice == "create" or not arrays:
        root.create_array(f"n{number}", shape=(12, 3), chunks=(2, 3), dtype="i4")[:5] = number
    elif choice == "write":
        low = rng.randrange(root[name].shape[0])
        root[name][low : low + 4] = rng.randrange(1, 100)
    elif choice == "erase":
        root[name][:3] = 0
    elif choice == "delete":
        del root[name]
    elif choice == "recreate":
        root.create_array(name, shape=(6,), chunks=(4,), dtype="u1", overwrite=True)[:2] = 1
    elif choice == "resize":
        shape = root[name].shape
        root[name].resize((max(1, shape[0] + rng.choice([-5, -3, 4])), *shape[1:]))
    elif choice == "attrs":
        root[name].attrs["number"] = number
    else:
        group = root.require_group("g/deep")
        group.attrs["n"] = number
        group.create_array(f"x{number}", data=np.float32(number))
        if rng.random() < 0.3:
            del root["g"]


def fill(repo: icechunk.Repository, seed: int, commits: int, branch: str = "main") -> list[str]:
    rng = random.Random(seed)
    made = []
    for number in range(commits):
        if number % 5 == 4 and (
            names := [n for n, _ in zarr.open_group(repo.readonly_session(branch).store, mode="r").arrays()]
        ):
            session = repo.rearrange_session(branch)
            session.move(f"/{names[0]}", f"/moved{seed}_{number}")
        else:
            session = repo.writable_session(branch)
            for part in range(rng.randrange(1, 4)):
                step(session, rng, 1000 * seed + 10 * number + part)
        if not session.has_uncommitted_changes:
            root = zarr.open_group(session.store, mode="a")
            root.attrs["number"] = number
        made.append(session.commit(f"commit {number}", {"number": number}))
    return made


def same(theirs: icechunk.Repository, ours: Repository, branch: str) -> None:
    """Compare all snapshots of a branch: order, notes, times, values, and look-ups by their old ids."""
    originals, copies = list(theirs.ancestry(branch=branch)), list(ours.ancestry(branch=branch))[:-1]
    assert [info.message for info in originals] == [info.message for info in copies]
    for original, copy in zip(originals, copies, strict=True):
        assert copy.metadata == {
            **original.metadata,
            "arraystore.copied_from": original.id,
            "arraystore.written_at": original.written_at.isoformat(),
        }
        assert copy.written_at == original.written_at
        assert copy.imported_at is not None
        assert copy.imported_at >= copy.written_at - timedelta(milliseconds=1)
        assert ours.lookup_snapshot(original.id).id == copy.id
        assert contents(ours.readonly_session(snapshot_id=original.id)) == held(theirs, original.id), original.message
