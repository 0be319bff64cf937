"""Verification of nodes: their documents make them what the log says, and their parents are groups."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

from arraystore._format.node import Node, NodeKind, ancestors
from arraystore._format.transaction import NodeChange, Operation
from arraystore._format.zarr_metadata import array_info, node_type
from arraystore.errors import InvalidInputError


def wrong_documents(node: Node) -> Iterator[str]:
    """Describe the errors in the metadata documents and layers of a node."""
    name = "/" + node.path
    if node.kind == NodeKind.FILE:
        return
    kinds = {kind for document in node.documents.items() if (kind := node_type(*document)) is not None}
    if node.kind.name.lower() not in kinds:
        yield f"the metadata documents of {name!r} do not make it the {node.kind.name.lower()} that the log says it is"
        return
    for document, content in node.documents.items():
        if not _is_json(content):
            yield f"the document {document} of {name!r} is not valid JSON"
    if node.kind == NodeKind.ARRAY:
        try:
            dimensions = len(array_info(node.documents).grid)
        except InvalidInputError as error:
            yield f"{name!r}: {error}"
            return
        if node.layers and len(node.layers[-1].box.low) != dimensions:
            yield f"array {name!r} has {dimensions} dimensions, and chunks of {len(node.layers[-1].box.low)}"


def _is_json(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):
        return False


def misplaced(nodes: Mapping[str, Node], changes: Collection[NodeChange]) -> Iterator[str]:
    """Describe the nodes that a transaction has left where Zarr does not find them.

    Zarr allows to leave groups out, so a group is missing only where there was one.
    """
    by_id = {change.id for change in changes if change.operation in (Operation.CREATED, Operation.MOVED)}
    gone = [change.path for change in changes if change.operation in (Operation.DELETED, Operation.MOVED)]
    for change in changes:
        place = change.target if change.target is not None else change.path
        node = nodes.get(place)
        if node is None or node.id not in by_id:
            continue
        for above in ancestors(place):
            if (there := nodes.get(above)) is not None and there.kind == NodeKind.ARRAY:
                yield f"{'/' + place!r} is below the array {'/' + above!r}"
    lost = {path for path in gone if path not in nodes}
    if not lost or not any(change.kind == NodeKind.GROUP for change in changes):
        return
    for node in nodes.values():
        if node.kind != NodeKind.FILE and node.path and node.path.rpartition("/")[0] in lost:
            yield f"{'/' + node.path!r} has lost its group"
