"""Sessions of the real code on storage in memory, with notes of what they do: histories for the checker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from zarr.core.buffer import cpu

import arraystore as ars
from arraystore._conflicts import Conflict, ConflictType, VersionSelection
from arraystore._runtime import run
from arraystore.errors import ConflictError
from tests.simulation.observations import (
    Append,
    Committed,
    Coords,
    Create,
    Delete,
    ListingRead,
    Merge,
    Move,
    Observations,
    Rebase,
    Refused,
    Solver,
    TipLook,
    Update,
    ValueRead,
    WriteChunk,
    WriteFile,
)

GROUP = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}).encode()
CHOICES = {"ours": VersionSelection.UseOurs, "theirs": VersionSelection.UseTheirs, "fail": VersionSelection.Fail}
DETECTOR = Solver("detector")


def array(shape: tuple[int, ...], chunk: tuple[int, ...] | None = None, **attributes: Any) -> bytes:
    """Return the document of an array."""
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk or [1] * len(shape)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "bytes"}],
            "dimension_names": [f"d{axis}" for axis in range(len(shape))],
            "attributes": attributes,
        }
    ).encode()


class Play:
    """A repository, what is noted of it, and a clock that goes on with every look."""

    def __init__(self) -> None:
        self.storage = ars.in_memory_storage()
        self.notes = Observations()
        config = ars.RepositoryConfig(inline_chunk_threshold_bytes=40)
        self.repo = ars.Repository.create(self.storage, config)
        self._now = 0.0

    def now(self) -> float:
        self._now += 1.0
        return self._now

    def open(self, label: str, isolation: Any = "snapshot", branch: str = "main") -> Actor:
        return Actor(self, label, isolation, branch)

    def look(self, branch: str = "main") -> None:
        began = self.now()
        self.notes.see(TipLook("looker", branch, self.repo.lookup_branch(branch), began, self.now()))

    def read(self, key: str, snapshot: str) -> None:
        began = self.now()
        session = self.repo.readonly_session(snapshot_id=snapshot)
        self.notes.see(ValueRead("reader", snapshot, key, value_of(session, key), began, self.now()))

    def objects(self) -> dict[str, bytes]:
        async def read() -> dict[str, bytes]:
            found: dict[str, bytes] = {}
            async for page in self.storage.list(""):
                for item in page:
                    found[item.key] = bytes(await self.storage.get(item.key))
            return found

        return run(read())


def value_of(session: ars.Session, key: str) -> bytes | None:
    found = session.store.get_sync(key)
    return None if found is None else found.to_bytes()


class Merging(ars.ConflictSolver):
    """Merges what both wrote, and notes it."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor

    def solve(self, conflict: Conflict, versions: Any) -> Any:
        if conflict.conflict_type is not ConflictType.ChunkDoubleUpdate:
            return None
        merged: dict[Coords, bytes] = {}
        assert conflict.conflicted_chunks is not None
        for coords in map(tuple, conflict.conflicted_chunks.tolist()):
            merged[coords] = f"{self.actor.noted.label} merged {len(self.actor.noted.merges)}".encode()
            self.actor.noted.merges.append(Merge(conflict.path, coords, merged[coords], versions.theirs.snapshot_id))
        return ars.Solution(VersionSelection.UseTheirs, merged)


class Actor:
    """A session that notes what it does."""

    def __init__(self, play: Play, label: str, isolation: Any, branch: str) -> None:
        self.play = play
        began = play.now()
        self.session = play.repo.writable_session(branch, isolation=isolation)
        self.noted = play.notes.transaction(
            label,
            process=label,
            branch=branch,
            base=self.session.snapshot_id,
            began=began,
            opened=play.now(),
            isolation=isolation,
        )

    def _set(self, key: str, data: bytes) -> None:
        self.session.store.set_sync(key, cpu.Buffer.from_bytes(data))

    def create(self, path: str, document: bytes = GROUP) -> Actor:
        self._set(f"{path}/zarr.json".lstrip("/"), document)
        self.noted.operations.append(Create(path, {"zarr.json": document}))
        return self

    def update(self, path: str, document: bytes) -> Actor:
        self._set(f"{path}/zarr.json".lstrip("/"), document)
        self.noted.operations.append(Update(path, {"zarr.json": document}))
        return self

    def delete(self, path: str) -> Actor:
        run(self.session.store.delete_dir(path))
        self.noted.operations.append(Delete(path))
        return self

    def move(self, source: str, target: str) -> Actor:
        self.session.move(source, target)
        self.noted.operations.append(Move(source, target))
        return self

    def write(self, path: str, coords: Coords, size: int = 0) -> Actor:
        data = f"{self.noted.label} {path} {coords} {len(self.noted.operations)}".encode().ljust(size, b".")
        self._set("/".join([path, "c", *map(str, coords)]), data)
        self.noted.operations.append(WriteChunk(path, coords, data))
        return self

    def erase(self, path: str, coords: Coords) -> Actor:
        self.session.store.delete_sync("/".join([path, "c", *map(str, coords)]))
        self.noted.operations.append(WriteChunk(path, coords, None))
        return self

    def file(self, key: str, data: bytes | None) -> Actor:
        if data is None:
            self.session.store.delete_sync(key)
        else:
            self._set(key, data)
        self.noted.operations.append(WriteFile(key, data))
        return self

    def append(self, path: str, document: bytes, items: int, chunks: Mapping[Coords, bytes]) -> Actor:
        with self.session.appending("d0"):
            self._set(f"{path}/zarr.json", document)
            for coords, data in chunks.items():
                self._set("/".join([path, "c", *map(str, coords)]), data)
        self.noted.operations.append(Append(path, 0, items, chunks))
        return self

    def read(self, key: str) -> Actor:
        began, position = self.play.now(), len(self.noted.operations)
        data = value_of(self.session, key)
        read = ValueRead(
            self.noted.process, self.session.snapshot_id, key, data, began, self.play.now(), self.noted.label, position
        )
        self.play.notes.see(read)
        return self

    def list(self, prefix: str, *, deep: bool = False) -> Actor:
        async def names() -> tuple[str, ...]:
            store = self.session.store
            found = store.list_prefix(prefix) if deep else store.list_dir(prefix)
            return tuple(sorted([name async for name in found]))

        began, position = self.play.now(), len(self.noted.operations)
        listed = run(names())
        label, snapshot = self.noted.label, self.session.snapshot_id
        self.play.notes.see(ListingRead(label, snapshot, prefix, deep, listed, began, self.play.now(), label, position))
        return self

    def rebase(self, solver: Solver = DETECTOR) -> Actor:
        chosen = self._solver(solver)
        assert chosen is not None
        self.session.rebase(chosen)
        self.noted.operations.append(Rebase(self.session.snapshot_id, solver))
        return self

    def commit(self, solver: Solver = DETECTOR) -> str | None:
        """Commit; returns the snapshot, or None for a conflict."""
        attempt = self.noted.attempt(solver, self.play.now())
        try:
            snapshot = self.session.commit(self.noted.label, rebase_with=self._solver(solver))
        except ConflictError as error:
            attempt.end(self.play.now(), Refused(type(error).__name__))
            return None
        attempt.end(self.play.now(), Committed(snapshot))
        return snapshot

    def _solver(self, noted: Solver) -> ars.ConflictSolver | None:
        if noted.kind == "basic":
            return ars.BasicConflictSolver(
                on_chunk_conflict=CHOICES[noted.on_chunk_conflict],
                fail_on_delete_of_updated_array=noted.fail_on_delete_of_updated_array,
                fail_on_delete_of_updated_group=noted.fail_on_delete_of_updated_group,
            )
        return {"detector": ars.ConflictDetector(), "custom": Merging(self), "none": None}[noted.kind]
