"""Chunks that are set before the metadata of their array, as a copy in the order of keys does: files until then."""

from __future__ import annotations

from collections.abc import Callable

from arraystore._changes.change_set import ChangeSet
from arraystore._chunks.chunk_table import ChunkReference
from arraystore._format.node import Node, NodeKind
from arraystore._format.zarr_metadata import array_info
from arraystore.storage.protocol import BytesLike

Read = Callable[[Node], BytesLike | None]
"""Reads the value of a file, whose key is one of a chunk by now."""
Write = Callable[[str, memoryview], None]
"""Sets the value of a key."""


def adopt_early_chunks(changes: ChangeSet, before: Node | None, array: Node, read: Read, write: Write) -> None:
    """Make chunks of an array of the files that have keys of its grid; the lock of the changes is held.

    Files that were beyond the grid of the array `before` are removed when it grows over them: they never were its data.
    """
    grown = None if before is None or before.id != array.id else array_info(before.documents)
    info, below = array_info(array.documents), array.path + "/" if array.path else ""
    for file in list(changes.all_nodes()):
        if file.kind != NodeKind.FILE or not file.path.startswith(below):
            continue
        key = file.path[len(below) :]
        coords = info.parse(key)
        if coords is not None and info.inside(coords):
            entry, beyond = _written(changes, file), grown is not None and grown.parse(key) is not None
            data = read(file) if entry is None and not beyond else None
            changes.remove_node(file)
            if beyond:
                continue
            if entry is not None:  # the array may refer to packs and inlined bytes of this session as well
                changes.put_chunk(array, coords, entry)
            elif data is not None:
                write(file.path, memoryview(data))
    changes.has_files = changes.has_files_below("")


def _written(changes: ChangeSet, file: Node) -> ChunkReference | None:
    """Return the reference of a file that this session wrote."""
    written = changes.arrays.get(file.id)
    return None if written is None else written.table.get(written.table.number(()))
