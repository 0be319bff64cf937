"""Serializable sessions read what they would have read had they run one after the other, in the order of commits."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype

import arraystore as ars
from arraystore.errors import InvalidKeyError, RebaseFailedError
from tests.tiers import mostly_thorough

PATHS = ("a", "g", "g/a", "g/b", "g/h", "g/h/a")

Look = Callable[[Any], object]


async def _listed(names: Any) -> list[str]:
    return sorted([name async for name in names])


def _read(store: Any, path: str, row: int) -> object:
    try:
        array = zarr.open_array(store, path=path, mode="r")
    except (FileNotFoundError, zarr.errors.NodeTypeValidationError):
        return "no array"
    return np.asarray(array[row]).tolist()


def _attributes(store: Any, path: str) -> object:
    try:
        return zarr.open(store, path=path, mode="r").attrs.asdict()
    except FileNotFoundError:
        return "no node"


def a_look(rng: random.Random) -> Look:
    """Return some way to look at a store."""
    path, row = rng.choice(PATHS), rng.randrange(4)
    key = rng.choice([f"{path}/zarr.json", f"{path}/c/{row}/0", f"{path}/note", f"{path}/c/9/9"])
    prefix = rng.choice(["", path, path + "/", path[:-1], f"{path}/c/{row}", "g/n"])
    looks: list[Look] = [
        lambda store: _read(store, path, row),
        lambda store: _attributes(store, path),
        lambda store: asyncio.run(_listed(store.list_dir(path))),
        lambda store: asyncio.run(_listed(store.list_dir(""))),
        lambda store: asyncio.run(_listed(store.list_prefix(prefix))),
        lambda store: asyncio.run(store.exists(key)),
        lambda store: None if (found := store.get_sync(key)) is None else found.to_bytes(),
        lambda store: asyncio.run(store.getsize_prefix(path)),
    ]
    return rng.choices(looks, weights=[8, 3, 2, 2, 2, 4, 4, 1])[0]


def change(rng: random.Random, session: ars.Session) -> None:
    """Change something without looking, as far as that goes; what cannot be done now is left alone."""
    store, path, row = session.store, rng.choice(PATHS), rng.randrange(4)
    value = rng.randrange(1, 100)
    with session.hierarchy.untracked():  # a look that decides nothing but whether the operation is tried
        node = session.hierarchy.node(path)
        kind = "nothing" if node is None else node.kind.name.lower()
    text = default_buffer_prototype().buffer.from_bytes(b"x" * (value % 7 + 1))
    match rng.choice(["chunk", "chunk", "chunk", "attributes", "create", "delete", "file", "delete chunk", "move"]):
        case "chunk" if kind == "array":
            zarr.open_array(store, path=path, mode="r+")[row, rng.choice([slice(0, 2), slice(2, 4), 1])] = value
        case "attributes" if kind != "nothing":
            zarr.open(store, path=path, mode="r+").attrs["x"] = value
        case "create" if kind == "nothing":
            make_node(store, path, group=path in ("g", "g/h"))
        case "delete" if kind != "nothing" and rng.random() < 0.5:
            asyncio.run(store.delete_dir(path))
        case "file" if kind != "array":
            store.set_sync(f"{path}/note", text)
        case "delete chunk" if kind == "array":
            store.delete_sync(f"{path}/c/{row}/0")
        case "move" if kind == "array" and path == "g/a":
            with session.hierarchy.untracked():
                free = session.hierarchy.node("g/moved") is None
            if free:
                session.move("/g/a", "/g/moved")
        case _:
            pass


def make_node(store: Any, path: str, *, group: bool) -> None:
    if group:
        zarr.create_group(store, path=path)
    else:
        zarr.create_array(store, name=path, shape=(4, 4), chunks=(1, 2), dtype="i4", fill_value=0)


def run_one(rng: random.Random, session: ars.Session) -> list[tuple[Look, object]]:
    """Look at some things and change others; returns what was seen."""
    seen: list[tuple[Look, object]] = []
    for _ in range(rng.randrange(1, 4)):
        look = a_look(rng)
        seen.append((look, look(session.store)))
    for _ in range(rng.randrange(1, 3)):
        change(rng, session)
    return seen


def run_history(seed: int, isolation: Any) -> Counter[str]:
    """Let sessions overlap at random; counts commits, refusals, and commits that rest on what was no longer so."""
    rng = random.Random(seed)
    repo = ars.Repository.create(ars.in_memory_storage())
    with repo.transaction("main", message="begin") as store:
        zarr.create_group(store)
        for path in PATHS:
            make_node(store, path, group=path in ("g", "g/h"))
        zarr.open_array(store, path="g/a", mode="r+")[:2] = 1
    count: Counter[str] = Counter()
    open_sessions: list[tuple[ars.Session, list[tuple[Look, object]]]] = []
    for _ in range(24):
        if len(open_sessions) < 3:
            session = repo.writable_session("main", isolation=isolation)
            try:
                open_sessions.append((session, run_one(rng, session)))
            except InvalidKeyError:  # a place that the hierarchy has no room for
                continue
        if len(open_sessions) == 3:
            session, seen = open_sessions.pop(rng.randrange(3))
            before = repo.readonly_session("main").store
            if not session.has_uncommitted_changes:
                continue
            try:
                session.commit("one", rebase_with=ars.ConflictDetector())
            except RebaseFailedError:
                count["refused"] += 1
                continue
            count["committed"] += 1
            count["stale"] += any(look(before) != what for look, what in seen)
    return count


@pytest.mark.parametrize("part", mostly_thorough(range(4)))
def test_every_commit_saw_what_the_snapshot_before_it_shows(part: int, long_run: bool) -> None:
    total: Counter[str] = Counter()
    for seed in range(part, 1000 if long_run else 60, 4):
        count = run_history(seed, "serializable")
        assert count["stale"] == 0, f"history {seed}"
        total += count
    assert total["committed"] > total["refused"] > 0


@pytest.mark.thorough
def test_snapshot_isolation_would_not_pass_this() -> None:
    total: Counter[str] = Counter()
    for seed in range(20):
        total += run_history(seed, "snapshot")
    assert total["stale"] > 5
