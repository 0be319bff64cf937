"""References of an array's chunks together with what their layers know of the values in them."""

from __future__ import annotations

from typing import NamedTuple

from arraystore._chunks.statistics_objects import load_known
from arraystore._format.chunk_statistics import ChunkStatistics
from arraystore._format.node import Node, NodeKind
from arraystore._format.references import References
from arraystore._history import missing_objects
from arraystore._runtime import run
from arraystore._session.base import SessionBase
from arraystore._session.keys import node_path
from arraystore._session.listing import present_chunks
from arraystore.errors import NodeNotFoundError, ObjectNotFoundError


class MeasuredChunks(NamedTuple):
    """An array, all of its chunks, and the statistics of those that were committed with any."""

    node: Node
    references: References
    statistics: ChunkStatistics | None


def measured_chunks(session: SessionBase, path: str) -> MeasuredChunks:
    """Return the chunks of an array with their statistics.

    Raises `NodeNotFoundError` if there is no such array.
    """
    node = session.hierarchy.node(node_path(path))
    if node is None or node.kind != NodeKind.ARRAY:
        raise NodeNotFoundError(f"there is no array {path!r} in snapshot {session.snapshot_id}")
    return run(_load(session, node))


async def _load(session: SessionBase, node: Node) -> MeasuredChunks:
    hierarchy = session.hierarchy
    try:
        references = await present_chunks(hierarchy, node)
    except ObjectNotFoundError as error:
        await missing_objects.check_not_expired(session.context, session._tip.state, hierarchy.changes, error)
        raise
    known = await load_known(session.context.storage, node, node.layers)
    return MeasuredChunks(node, references, known)
