"""Fitting updates of metadata to arrays that others have appended to meanwhile."""

from __future__ import annotations

from dataclasses import replace

from arraystore._commit.conflict_detection import Ours, keeps_shape
from arraystore._commit.prepared import Prepared
from arraystore._format.node import NodeKind
from arraystore._format.transaction import NodeChange, Operation
from arraystore._format.zarr_changes import same_shape, with_length
from arraystore._format.zarr_metadata import array_info
from arraystore._log.state import SnapshotState


def adapt_node_changes(prepared: Prepared, before: SnapshotState, after: SnapshotState) -> list[NodeChange] | None:
    """Return changes of nodes that fit a snapshot in which arrays were appended to; None if they fit as they are.

    An update carries whole documents, the shape included, which theirs may have let grow.
    """
    ours = Ours.of(prepared)
    nodes = [adapt_node_change(ours, change, before, after) for change in prepared.log.nodes]
    return nodes if any(a is not b for a, b in zip(nodes, prepared.log.nodes, strict=True)) else None


def adapt_node_change(ours: Ours, change: NodeChange, before: SnapshotState, after: SnapshotState) -> NodeChange:
    """Return an update of attributes with the shape that theirs has let grow; any other change as it is."""
    if change.operation != Operation.UPDATED or change.kind != NodeKind.ARRAY:
        return change
    now, was = after.by_id(change.id), before.by_id(change.id)
    if now is None or was is None or same_shape(was.documents, now.documents) or not keeps_shape(ours, before, change):
        return change
    documents = {name: text for name, text in change.documents.items() if text is not None}
    merged = {**now.documents, **documents}
    for axis, length in enumerate(array_info(now.documents).shape):
        merged = with_length(merged, axis, length)
    return replace(change, documents=change.documents | {name: merged[name] for name in documents})
