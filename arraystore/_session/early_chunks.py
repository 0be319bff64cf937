"""Chunks that are set before the metadata of their array, as a copy in the order of keys does: files until then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arraystore._changes.change_set import ChangeSet
from arraystore._format.node import Node, NodeKind
from arraystore._format.references import DELETED
from arraystore._format.zarr_metadata import array_info

if TYPE_CHECKING:
    from arraystore._session.hierarchy import Hierarchy


def adopt_early_chunks(hierarchy: Hierarchy, changes: ChangeSet, array: Node) -> None:
    """Make chunks of an array of the files that have keys of its grid; the lock of the changes is held."""
    info, below = array_info(array.documents), array.path + "/" if array.path else ""
    for file in list(changes.all_nodes()):
        if file.kind != NodeKind.FILE or not file.path.startswith(below):
            continue
        coords = info.parse(file.path[len(below) :])
        if coords is not None and info.inside(coords):
            _adopt(hierarchy, changes, array, coords, file)
    changes.has_files = changes.has_files_below("")


def _adopt(hierarchy: Hierarchy, changes: ChangeSet, array: Node, coords: tuple[int, ...], file: Node) -> None:
    written = changes.arrays.get(file.id)
    entry = None if written is None else written.table.get(written.table.number(()))
    if entry is not None:  # of this session, whose packs and inlined bytes an array may refer to as well
        changes.remove_node(file)
        if entry.source != DELETED:
            changes.put_chunk(array, coords, entry)
        return
    data = hierarchy.get_sync(file.path)
    changes.remove_node(file)
    if data is not None:
        hierarchy.set_chunk_sync(hierarchy.handle(array), coords, memoryview(data))
