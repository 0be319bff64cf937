"""Copying encoded chunks between repositories by the workers of a cluster, through forks of the target's session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from arraystore._format.ids import NodeId
from arraystore._format.node import Node
from arraystore._format.reference_batches import ReferenceTask, tasks_of
from arraystore._format.references import VIRTUAL, References
from arraystore._runtime.engine import Engine
from arraystore._session.fork import ForkSession
from arraystore._session.remote_forks import write_on_workers
from arraystore._session.session import Session
from arraystore.copying.chunks import copy_chunks
from arraystore.copying.report import CopyCounter
from arraystore.storage.protocol import Storage

__all__ = ["copy_chunks_remotely"]


@dataclass(frozen=True)
class _CopyChunks:
    """Work of a task: some chunks of packs are read at the source and written through a fork."""

    source: Storage

    async def __call__(self, fork: ForkSession, task: ReferenceTask[NodeId]) -> Any:
        counter = CopyCounter()
        for identifier, manifest in task:
            node = fork.hierarchy.state.by_id(identifier)
            assert node is not None  # the session that was forked has it
            references = References.from_manifest(manifest)
            await copy_chunks(self.source, references, fork.hierarchy.writable(), node, counter)
        return counter.counts()


async def copy_chunks_remotely(
    engine: Engine,
    source: Storage,
    changed: AsyncIterator[tuple[Node, References]],
    session: Session,
    counter: CopyCounter,
) -> None:
    """Copy chunks of packs on an engine; deletions, inlined and virtual chunks, which take no reading, here."""

    async def native() -> AsyncIterator[tuple[NodeId, References]]:
        async for node, references in changed:
            packed = (references.source >= 0) & (references.source < VIRTUAL)
            await copy_chunks(source, references.take(~packed), session.hierarchy.writable(), node, counter)
            yield node.id, references.take(packed)

    tasks = tasks_of(native())
    await write_on_workers(engine, session, _CopyChunks(source), tasks, "copying chunks", counter.add_counts)
