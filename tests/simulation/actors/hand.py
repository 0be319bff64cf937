"""A transaction in the making: does things in a session, and notes what it does and sees."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from zarr.core.buffer import cpu

from arraystore._format.node import NodeKind
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError, SourceChangedError
from tests.simulation.actors.documents import (
    DOCUMENT,
    UNIQUE_DIMENSION,
    Shape,
    chunk_key,
    document_key,
    is_coordinate,
    shape_of,
)
from tests.simulation.actors.scene import Scene
from tests.simulation.observations import (
    Append,
    Coords,
    Create,
    Delete,
    ListingRead,
    Move,
    Operation,
    Repeated,
    SourceLost,
    Transaction,
    Update,
    ValueRead,
    WriteChunk,
    WriteFile,
)

__all__ = ["Hand", "note_lost", "session_get", "session_list"]


async def session_get(session: Session, key: str) -> bytes | None:
    """Return a value of a session's store."""
    found = await session.store.get(key)
    return None if found is None else found.to_bytes()


async def session_list(session: Session, prefix: str, deep: bool) -> tuple[str, ...]:
    """Return what a session's store lists, sorted."""
    names = session.store.list_prefix(prefix) if deep else session.store.list_dir(prefix)
    return tuple(sorted([name async for name in names]))


def note_lost(
    scene: Scene, process: str, session: Session, key: str, error: SourceChangedError, began: float, position: int = 0
) -> None:
    """Note that a chunk cannot be read since its source has changed; the checker knows whether it has."""
    scene.notes.see(SourceLost(process, session.snapshot_id, key, error.url, began, scene.clock(), position))


class Hand:
    """Works in a writable session for one transaction.

    Parameters
    ----------
    scene
        The run.
    process
        Name of the process that works.
    session
        The session, or a fork of it.
    noted
        The transaction.
    operations
        Where to note what is done: that of the transaction, or, for a fork, a list that comes there when it is merged.

    Attributes
    ----------
    see
        Notes a read.
    readable
        Whether reads of a fork are of the snapshot, as the session had no changes when it was taken.
    forked
        How many forks were taken.
    """

    def __init__(
        self, scene: Scene, process: str, session: Session, noted: Transaction, operations: list[Operation]
    ) -> None:
        self.scene = scene
        self.process = process
        self.session = session
        self.noted = noted
        self.operations = operations
        self.is_fork = operations is not noted.operations
        self.see: Callable[[ValueRead | ListingRead], None] = scene.notes.see
        self.readable = True
        self.forked = 0
        self._written = 0

    # -- knowing, without reading ---------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Return the paths of all groups."""
        return sorted(n.path for n in self.session.hierarchy.writable().all_nodes() if n.kind == NodeKind.GROUP)

    def arrays(self) -> dict[str, Shape]:
        """Return all arrays by path."""
        found = [n for n in self.session.hierarchy.writable().all_nodes() if n.kind == NodeKind.ARRAY]
        shapes = {node.path: shape_of(node.documents[DOCUMENT]) for node in sorted(found, key=lambda node: node.path)}
        return {path: shape for path, shape in shapes.items() if shape is not None}

    def coordinates(self) -> list[str]:
        """Return the paths of all arrays of which the values must not repeat."""
        found = [n for n in self.session.hierarchy.writable().all_nodes() if n.kind == NodeKind.ARRAY]
        return sorted(node.path for node in found if is_coordinate(node.documents[DOCUMENT]))

    def files(self) -> list[str]:
        """Return the keys of all files."""
        return sorted(n.path for n in self.session.hierarchy.writable().all_nodes() if n.kind == NodeKind.FILE)

    def fresh(self, size: int, what: str) -> bytes:
        """Return bytes that nobody writes a second time."""
        self._written += 1
        text = f"{self.noted.label}:{self.process}:{self._written}:{what}:".encode()
        return text + b"." * max(0, size - len(text))

    # -- reading ----------------------------------------------------------------------------------------------------

    async def get(self, key: str, *, counts: bool = True) -> bytes | None:
        """Read a value."""
        began = self.scene.clock()
        position = 0 if self.is_fork else len(self.operations)
        try:
            data = await session_get(self.session, key)
        except SourceChangedError as error:
            note_lost(self.scene, self.process, self.session, key, error, began, position)
            return None
        if self._notes_reads:
            self.see(
                ValueRead(
                    self.process,
                    self.session.snapshot_id,
                    key,
                    data,
                    began,
                    self.scene.clock(),
                    self.noted.label,
                    position,
                    counts,
                )
            )
        return data

    async def list(self, prefix: str, deep: bool) -> tuple[str, ...]:
        """List keys, or names."""
        began = self.scene.clock()
        names = await session_list(self.session, prefix, deep)
        if self._notes_reads:
            position = 0 if self.is_fork else len(self.operations)
            self.see(
                ListingRead(
                    self.process,
                    self.session.snapshot_id,
                    prefix,
                    deep,
                    names,
                    began,
                    self.scene.clock(),
                    self.noted.label,
                    position,
                )
            )
        return names

    @property
    def _notes_reads(self) -> bool:
        """Reads of a fork are of the snapshot only as long as nothing was changed, here or in the session."""
        return not self.is_fork or (self.readable and not self.operations)

    # -- writing ----------------------------------------------------------------------------------------------------

    async def create(self, path: str, document: bytes) -> None:
        """Create a node where there is none."""
        await self._set(document_key(path), document)
        self.operations.append(Create(path, {DOCUMENT: document}))

    async def update(self, path: str, document: bytes) -> None:
        """Write the document of a node anew."""
        await self._set(document_key(path), document)
        self.operations.append(Update(path, {DOCUMENT: document}))

    async def delete(self, path: str) -> None:
        """Delete a node and what is below it."""
        await self.session.store.delete_dir(path)
        self.operations.append(Delete(path))

    def move(self, source: str, target: str) -> None:
        """Move a node."""
        self.session.move(source, target)
        self.operations.append(Move(source, target))

    async def write(self, path: str, coords: Coords, data: bytes | None) -> None:
        """Write a chunk, or delete it."""
        key = chunk_key(path, coords)
        if data is None:
            await self.session.store.delete(key)
        else:
            await self._set(key, data)
        self.operations.append(WriteChunk(path, coords, data))

    async def write_file(self, key: str, data: bytes | None) -> None:
        """Write a file, or delete it."""
        if data is None:
            await self.session.store.delete(key)
        else:
            await self._set(key, data)
        self.operations.append(WriteFile(key, data))

    async def append(self, path: str, axis: int, document: bytes, items: int, chunks: dict[Coords, bytes]) -> None:
        """Let an array grow at its end, inside of `appending`, and write into the new part."""
        await self._set(document_key(path), document)
        for coords, data in chunks.items():
            await self._set(chunk_key(path, coords), data)
        self.operations.append(Append(path, axis, items, chunks))

    async def append_unique(self, path: str, values: Sequence[int]) -> None:
        """Append integers that are not there yet to an array; that some are is noted."""
        began, position = self.scene.clock(), len(self.operations)
        node = self.session.hierarchy.writable().node(path)
        assert node is not None
        (length,) = json.loads(node.documents[DOCUMENT])["shape"]
        new = {path: np.array(values, dtype="int64")}
        try:
            await self.session.append_async(new, UNIQUE_DIMENSION, unique=path)
        except InvalidInputError as error:
            if "must not repeat" not in str(error):
                raise
            label, ended = self.noted.label, self.scene.clock()
            self.scene.notes.see(Repeated(self.process, label, position, path, tuple(values), began, ended))
            return
        chunks: dict[Coords, bytes] = {(length + at,): struct.pack("<q", value) for at, value in enumerate(values)}
        self.operations.append(Append(path, 0, len(values), chunks, tuple(values)))

    @contextmanager
    def appending(self, dimension: str) -> Iterator[None]:
        """Let growth mean appending."""
        with self.session.appending(dimension):
            yield

    async def _set(self, key: str, data: bytes) -> None:
        await self.session.store.set(key, cpu.Buffer.from_bytes(data))
