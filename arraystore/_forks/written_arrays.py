"""Arrays that forks have written to: how the forks decode their chunks, and what they have cut off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from arraystore._changes.change_set import ArrayChanges, ChangeSet
from arraystore._forks.merged import Merged, grid_of
from arraystore._forks.payload_table import PAYLOAD, PayloadTable
from arraystore._format.box import Box
from arraystore._format.fork_payload import ForkChanges, WrittenArray
from arraystore._format.ids import NodeId
from arraystore._format.node import Node, NodeKind
from arraystore._format.references import DELETED
from arraystore._format.transaction import Operation
from arraystore._format.types import Int64s
from arraystore._format.zarr_changes import decoding_digest
from arraystore.errors import FormatError, MergeConflictError

_SHOWN = 100
"""Largest number of chunks that an error names."""

DECODING_MEMBERS = "data type, chunks, codecs, fill value, names of dimensions, or an attribute such as scale_factor"
"""What determines how chunks are decoded, for errors."""


def array_written(node: Node, written: ArrayChanges) -> WrittenArray:
    """Return an array of a fork as the fork sees it."""
    return WrittenArray(node.id, _decoding(node), written.visible)


def decodes_alike(first: Node, second: Node) -> bool:
    """Tell whether two states of a node decode chunks in the same way."""
    return first.documents is second.documents or _decoding(first) == _decoding(second)


def _decoding(node: Node) -> bytes:
    return decoding_digest(node.documents) if node.kind == NodeKind.ARRAY else b""


def check_decodings(table: PayloadTable, nodes: Sequence[Node]) -> None:
    """Check that arrays decode chunks as the forks did that wrote them; `nodes` are those of the table's arrays."""
    seen = [{array.node: array.decoding for array in fork.arrays} for fork in table.forks]
    decodings = [_decoding(node) for node in nodes]
    for part in table.parts:
        node = nodes[part.array]
        if seen[part.fork].get(node.id, decodings[part.array]) != decodings[part.array]:
            raise MergeConflictError(
                f"a fork wrote chunks of {node.path!r}, which its session, or a fork that is merged, decodes otherwise "
                f"({DECODING_MEMBERS}): make such changes before the forks are taken, or after they are merged, or "
                "write again through a fork taken after the change",
                node.path,
                tuple(tuple(row) for row in part.box.coords(part.numbers()[:_SHOWN]).tolist()),
            )


def find_cuts(changes: ChangeSet, table: PayloadTable) -> list[tuple[Node, tuple[int, ...]]]:
    """Return an array and the grid that was left for each fork that made it smaller; raises `FormatError`."""
    cut_off = [(array.node, array.cut) for fork in table.forks for array in fork.arrays if array.cut is not None]
    nodes = {node.id: node for node in changes.all_nodes()} if cut_off else {}
    found = [(nodes[identifier], cut) for identifier, cut in cut_off if identifier in nodes]
    for node, cut in found:
        if node.kind != NodeKind.ARRAY or len(cut) != len(grid_of(node)):
            raise FormatError(PAYLOAD, f"{node.path!r} was not cut off along its dimensions")
    return found


def check_cut_off(
    changes: ChangeSet, forks: Sequence[ForkChanges], nodes: Mapping[NodeId, Node], merged: Merged
) -> None:
    """Check that no fork cuts off chunks that others wrote since it was issued; `nodes` are those after the merge."""
    for fork in forks:
        for change in fork.nodes:
            node = nodes.get(change.id)
            if change.operation == Operation.UPDATED and node is not None and node.kind == NodeKind.ARRAY:
                written = _written_since(changes, merged, fork, node)
                lost = written[(written >= np.array(grid_of(node), dtype=np.int64)).any(axis=1)]
                if len(lost):
                    _refuse_cut(node, lost)


def _refuse_cut(node: Node, lost: Int64s) -> None:
    shown = tuple(tuple(row) for row in lost[:_SHOWN].tolist())
    raise MergeConflictError(
        f"a fork made {node.path!r} smaller, and others wrote {len(lost)} of the chunks that it has cut off, the first "
        f"at {shown[0]}: resize the array in the session, before forks are taken or after they are merged",
        node.path,
        shown,
    )


def _written_since(changes: ChangeSet, merged: Merged, fork: ForkChanges, node: Node) -> Int64s:
    """Return the coordinates of the chunks of an array that others wrote in the session since a fork was issued."""
    log, written = merged.cells.get(node.id), changes.arrays.get(node.id)
    if log is None or written is None:
        return np.empty((0, len(grid_of(node))), dtype=np.int64)
    touched, values = log.columns()
    since = touched[(values[:, 0] >= fork.epoch) & (values[:, 1] != merged.owners.get(fork.fork, -1))]
    there, references = written.table.columns()
    there = there.compress(references[:, 0] != DELETED, axis=0)
    if not len(since) or not len(there):
        return there[:0]
    box = Box((0,) * there.shape[1], tuple((np.maximum(there.max(axis=0), since.max(axis=0)) + 1).tolist()))
    return there.compress(np.isin(box.numbers(there), box.numbers(since)), axis=0)
