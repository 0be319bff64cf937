"""Arrays that forks have written to: how the forks decode their chunks, and what they have cut off."""

from __future__ import annotations

from collections.abc import Sequence

from arraystore._changes.change_set import ChangeSet
from arraystore._forks.merged import grid_of
from arraystore._forks.payload_table import PAYLOAD, PayloadTable
from arraystore._format.fork_payload import WrittenArray
from arraystore._format.node import Node, NodeKind
from arraystore._format.zarr_changes import decoding_digest
from arraystore.errors import FormatError, MergeConflictError

_SHOWN = 100
"""Largest number of chunks that an error names."""

DECODING_MEMBERS = "data type, chunks, codecs, fill value, names of dimensions, or an attribute such as scale_factor"
"""What determines how chunks are decoded, for errors."""


def array_written(changes: ChangeSet, node: Node) -> WrittenArray:
    """Return an array of a fork as the fork sees it."""
    return WrittenArray(node.id, _decoding(node), changes.arrays[node.id].visible)


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
