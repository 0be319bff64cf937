"""Writing a prepared transaction with other changes: after a rebase, or as the solution of a conflict asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from arraystore._commit.prepare import Placing, join_packs
from arraystore._commit.prepared import Prepared
from arraystore._environment import Environment
from arraystore._format.ids import NodeId
from arraystore._format.manifest import Manifest
from arraystore._format.transaction import ChunkChange, NodeChange
from arraystore.storage.protocol import Storage


async def rewrite_transaction(
    prepared: Prepared,
    nodes: Sequence[NodeChange],
    chunks: Sequence[ChunkChange],
    added: Sequence[tuple[NodeId, Manifest]],
    storage: Storage,
    environment: Environment,
) -> Prepared:
    """Write a transaction with other changes, as a rebase or the solution of a conflict asks for.

    `nodes` are all changes of nodes, `chunks` the changes of chunks that stay, and `added` the manifests to put on top,
    with the ids of their arrays.
    """
    placing = Placing(prepared.note, environment)
    for change in chunks:
        placing.add_again(change, prepared.manifest(change))
    for node, manifest in added:
        placing.add_manifest(node, manifest, appended=False)
    return _same(prepared, await placing.finish(storage, nodes, prepared.isolation))


async def rewrite_nodes(
    prepared: Prepared, nodes: Sequence[NodeChange], storage: Storage, environment: Environment
) -> Prepared:
    """Write a transaction with other changes of nodes."""
    return await rewrite_transaction(prepared, nodes, prepared.log.chunks, (), storage, environment)


def rewrite_in_memory(prepared: Prepared, nodes: Sequence[NodeChange], environment: Environment) -> Prepared | None:
    """Return a transaction with other changes of nodes; None if that takes an object of its own."""
    placing = Placing(prepared.note, environment)
    for change in prepared.log.chunks:
        placing.add_again(change, prepared.manifest(change))
    done = placing.assemble(nodes, prepared.isolation)
    if placing.uploads:
        return None
    return _same(prepared, done)


def _same(prepared: Prepared, done: Prepared) -> Prepared:
    """Return a transaction that was written anew as the one that it is."""
    older = [each for each in (prepared.oldest, done.oldest) if each is not None]
    packs = (
        prepared.packs
        if done.packs == b""
        else None
        if prepared.packs is None or done.packs is None
        else join_packs(prepared.packs, done.packs)
    )
    return replace(
        done,
        id=prepared.id,
        time=prepared.time,
        marks=prepared.marks,
        cuts=prepared.cuts,
        swept=prepared.swept,
        oldest=min(older, default=None),
        packs=packs,
        amends=prepared.amends,
    )
