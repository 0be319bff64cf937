"""Diffs between any two snapshots of random histories, against what a comparison of every key and value says."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu

from arraystore import Diff, Repository, in_memory_storage
from arraystore._maintenance.fold import fold
from arraystore._session.session import Session
from tests.commit.support import run_alone, tip_of
from tests.seams import context_of
from tests.tiers import mostly_thorough

NAMES = "abcd"
Cell = tuple[int, ...]


@dataclass
class _Node:
    """A node of the model: the number tells it from another one at the same path."""

    number: int
    kind: str
    document: int = 0
    shape: Cell = ()
    chunks: dict[Cell, bytes] = field(default_factory=dict)


Model = dict[str, _Node]


class _Run:
    """A repository with two branches, and a model of every snapshot."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counter = 0
        self.repository = Repository.create(in_memory_storage())
        session = self.repository.writable_session("main")
        zarr.create_group(session.store)
        first = session.commit("root")
        self.models: dict[str, Model] = {first: {"": _Node(0, "group")}}
        self.tips = {"main": first}

    def number(self) -> int:
        self.counter += 1
        return self.counter

    def step(self) -> None:
        if len(self.tips) < 3 and self.random.random() < 0.05:
            name = f"branch{len(self.tips)}"
            at = self.random.choice(list(self.models))
            self.repository.create_branch(name, at)
            self.tips[name] = at
        branch = self.random.choice(list(self.tips))
        session = self.repository.writable_session(branch)
        model = copy.deepcopy(self.models[self.tips[branch]])
        for _ in range(self.random.randint(1, 4)):
            _Change(self, session, model).some()
        if self.random.random() < 0.2:
            log = context_of(self.repository).log(branch)
            run_alone(fold(log, tip_of(self.repository, branch), context_of(self.repository).reader))
        self.tips[branch] = session.commit("step", allow_empty=True)
        self.models[self.tips[branch]] = model


class _Change:
    """One change of a session and of its model."""

    def __init__(self, run: _Run, session: Session, model: Model) -> None:
        self.run, self.session, self.model, self.random = run, session, model, run.random

    def some(self) -> None:
        kinds = ["create", "write", "write", "write", "forget", "resize", "append", "attributes"]
        kinds += ["create", "move", "delete", "recreate", "file"]
        getattr(self, self.random.choice(kinds))()

    def paths(self, *kinds: str) -> list[str]:
        return [path for path, node in self.model.items() if path and node.kind in kinds]

    def free_path(self) -> str | None:
        parent = self.random.choice(["", *self.paths("group")])
        free = [name for name in NAMES if _below(parent, name) not in self.model]
        return _below(parent, self.random.choice(free)) if free and parent.count("/") < 2 else None

    def create(self) -> None:
        path = self.free_path()
        if path is None:
            return
        if self.random.random() < 0.4:
            zarr.open_group(self.session.store, path=path, mode="w")
            self.model[path] = _Node(self.run.number(), "group")
            return
        shape = tuple(self.random.randint(1, 6) for _ in range(self.random.randint(1, 2)))
        self.create_array(path, shape, self.random.choice([1, 300]))

    def create_array(self, path: str, shape: Cell, items: int) -> None:
        """Create an array of one chunk a step; chunks of one item are inlined, those of 300 are not."""
        zarr.create_array(
            self.session.store,
            name=path,
            shape=(*shape[:-1], shape[-1] * items),
            chunks=(*(1,) * (len(shape) - 1), items),
            dtype="i4",
            compressors=None,
            fill_value=-1,
            attributes={"items": items},
        )
        self.model[path] = _Node(self.run.number(), "array", 0, shape)

    def array(self) -> tuple[str, _Node] | None:
        paths = self.paths("array")
        path = self.random.choice(paths) if paths else None
        return None if path is None else (path, self.model[path])

    def write(self) -> None:
        found = self.array()
        if found is None or 0 in found[1].shape:
            return
        path, node = found
        items = zarr.open_array(self.session.store, path=path).chunks[-1]
        for _ in range(self.random.randint(1, 3)):
            cell = tuple(self.random.randrange(size) for size in node.shape)
            old = [value for model in self.run.models.values() for n in model.values() for value in n.chunks.values()]
            if items == 1 and old and self.random.random() < 0.3:
                value = self.random.choice(old)[:4]
            else:
                value = np.full(items, self.run.number(), dtype="<i4").tobytes()
            self.session.store.set_sync(_chunk_key(path, cell), cpu.Buffer.from_bytes(value))
            node.chunks[cell] = value

    def forget(self) -> None:
        found = self.array()
        if found is not None and found[1].chunks:
            cell = self.random.choice(list(found[1].chunks))
            self.session.store.delete_sync(_chunk_key(found[0], cell))
            del found[1].chunks[cell]

    def resize(self) -> None:
        found = self.array()
        if found is None:
            return
        path, node = found
        axis = self.random.randrange(len(node.shape))
        self._resize(path, node, tuple(self.random.randint(1, 6) if a == axis else s for a, s in enumerate(node.shape)))

    def append(self) -> None:
        found = self.array()
        if found is None:
            return
        path, node = found
        self._resize(path, node, (node.shape[0] + 1, *node.shape[1:]))

    def _resize(self, path: str, node: _Node, shape: Cell) -> None:
        array = zarr.open_array(self.session.store, path=path)
        array.resize((*shape[:-1], shape[-1] * array.chunks[-1]))
        node.shape = shape
        node.chunks = {c: v for c, v in node.chunks.items() if all(i < s for i, s in zip(c, shape, strict=True))}

    def attributes(self) -> None:
        paths = self.paths("array", "group")
        if paths:
            path = self.random.choice(paths)
            value = self.run.number()
            zarr.open(self.session.store, path=path, mode="r+").attrs["value"] = value
            self.model[path].document = value

    def move(self) -> None:
        paths, target = self.paths("array", "group"), self.free_path()
        source = self.random.choice(paths) if paths else None
        if source is None or target is None or (target + "/").startswith(source + "/"):
            return
        self.session.move(source, target)
        for path in [p for p in self.model if p == source or p.startswith(source + "/")]:
            self.model[target + path[len(source) :]] = self.model.pop(path)

    def delete(self) -> None:
        paths = self.paths("array", "group")
        if paths:
            self._delete(self.random.choice(paths))

    def _delete(self, gone: str) -> None:
        run_alone(self.session.store.delete_dir(gone))
        for path in [p for p in self.model if p == gone or p.startswith(gone + "/")]:
            del self.model[path]

    def recreate(self) -> None:
        found = self.array()
        if found is not None:
            self._delete(found[0])
            self.create_array(found[0], found[1].shape, 1)

    def file(self) -> None:
        path, value = f"notes{self.random.randrange(3)}.txt", b"%d" % self.run.number()
        if path in self.model and self.random.random() < 0.5:
            self.session.store.delete_sync(path)
            del self.model[path]
            return
        self.session.store.set_sync(path, cpu.Buffer.from_bytes(value))
        node = self.model.setdefault(path, _Node(self.run.number(), "file"))
        node.chunks = {(): value}


def _below(parent: str, name: str) -> str:
    return f"{parent}/{name}" if parent else name


def _chunk_key(path: str, cell: Cell) -> str:
    return "/".join([path, "c", *map(str, cell)])


def _expected(before: Model, after: Model) -> tuple[dict[str, set[str]], dict[str, set[Cell]]]:
    """Work out all of a diff but the moves."""
    was = {node.number: path for path, node in before.items()}
    now = {node.number: path for path, node in after.items()}
    sets: dict[str, set[str]] = {
        f"{what}_{k}s": set() for what in ("new", "deleted", "updated") for k in ("group", "array")
    }
    sets["updated_files"] = set()
    chunks: dict[str, set[Cell]] = {}

    def note(what: str, path: str, node: _Node) -> None:
        sets["updated_files" if node.kind == "file" else f"{what}_{node.kind}s"].add("/" + path)

    for number in was.keys() - now.keys():
        note("deleted", was[number], before[was[number]])
    for number, path in now.items():
        node = after[path]
        old = before[was[number]] if number in was else None
        if old is None:
            note("new", path, node)
        elif (old.document, old.shape) != (node.document, node.shape):
            note("updated", path, node)
        values = {} if old is None else old.chunks
        changed = {cell for cell in {*values, *node.chunks} if values.get(cell) != node.chunks.get(cell)}
        if changed and node.kind == "file":
            note("updated", path, node)
        elif changed:
            chunks["/" + path] = changed
    return sets, chunks


def _moved(path: str, moves: dict[str, str]) -> str:
    """Return where a path goes with the nearest move at it or above it."""
    at = path
    while at:
        if "/" + at in moves:
            return moves["/" + at][1:] + path[len(at) :]
        at = at.rpartition("/")[0]
    return path


def _check_moves(before: Model, after: Model, moves: dict[str, str]) -> None:
    now = {node.number: path for path, node in after.items()}
    kept = {path: now[node.number] for path, node in before.items() if node.number in now}
    assert {path: _moved(path, moves) for path in kept} == kept
    for listed in moves:
        fewer = {old: new for old, new in moves.items() if old != listed}
        assert {path: _moved(path, fewer) for path in kept} != kept


def _check(diff: Diff, before: Model, after: Model) -> None:
    sets, chunks = _expected(before, after)
    assert {name: getattr(diff, name) for name in sets} == sets
    assert {path: {tuple(row) for row in coords.tolist()} for path, coords in diff.updated_chunks.items()} == chunks
    for coords in diff.updated_chunks.values():
        assert coords.dtype == np.int64
        assert coords.tolist() == sorted(coords.tolist())
    _check_moves(before, after, diff.moved_nodes)


def _read(session: Session) -> dict[str, bytes]:
    async def read() -> dict[str, bytes]:
        keys = [key async for key in session.store.list()]
        return {k: session.store.get_sync(k).to_bytes() for k in keys if not k.endswith("zarr.json")}  # type: ignore[union-attr]

    return run_alone(read())


@pytest.mark.parametrize("seed", mostly_thorough(range(8), every=4))
def test_a_diff_of_any_two_snapshots_is_what_a_comparison_of_all_values_says(seed: int, long_run: bool) -> None:
    run = _Run(seed)
    for _ in range(400 if long_run else 60):
        run.step()
    reader = Repository.open(run.repository.storage)
    snapshots = list(run.models)
    for snapshot in run.random.sample(snapshots, 5):  # the model is what zarr shows
        values = {
            _chunk_key(p, c) if n.kind == "array" else p: v
            for p, n in run.models[snapshot].items()
            for c, v in n.chunks.items()
        }
        assert _read(reader.readonly_session(snapshot_id=snapshot)) == values
    found = 0
    for _ in range(200 if long_run else 40):
        first, second = run.random.choices(snapshots, k=2)
        diff = reader.diff(from_snapshot_id=first, to_snapshot_id=second)
        _check(diff, run.models[first], run.models[second])
        assert diff.is_empty() == reader.diff(from_snapshot_id=second, to_snapshot_id=first).is_empty()
        found += len(diff.updated_chunks) + len(diff.moved_nodes)
    assert found > 20
