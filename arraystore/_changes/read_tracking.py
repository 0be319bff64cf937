"""Tracking of reads: a look-up in a hierarchy adds to the read set what it read of the base, not of own changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from arraystore._changes.change_set import ChangeSet, file_key
from arraystore._chunks.reader import ChunkReader
from arraystore._format.layer import Layer
from arraystore._format.node import MAX_PATH, Node, NodeKind, ancestors
from arraystore._log.state import SnapshotState

if TYPE_CHECKING:
    from arraystore._changes.read_set import ReadSet


def speaks_of(layers: Sequence[Layer], coords: tuple[int, ...], reader: ChunkReader) -> bool:
    """Tell whether a chunk was written or deleted by layers that are in memory: those that a fork's session put on."""
    for layer in layers:
        if layer.shift is None and layer.box.contains(coords):
            manifest = reader.manifests.get(layer)
            if manifest is not None and manifest.find(coords) >= 0:
                return True
    return False


def places_beneath(state: SnapshotState, changes: ChangeSet | None, path: str) -> list[str]:
    """Return a path, and where in the snapshot it was before this session moved a group above it, if it has.

    What others put there comes along with the group.
    """
    if changes is None:
        return [path]
    for above in (path, *ancestors(path)):
        node = changes.node(above)
        if node is not None:
            was = state.by_id(node.id)
            if was is None or was.path == above:
                return [path]
            before = was.path + path[len(above) :]
            return [path, before] if len(before) <= MAX_PATH else [path]
    return [path]


def moved_below(state: SnapshotState, changes: ChangeSet | None, prefix: str) -> Iterator[Node]:
    """Yield, as they were, groups and arrays that are below a prefix only since this session moved them."""
    for node in () if changes is None else list(changes.all_nodes()):
        if node.path.startswith(prefix) and node.kind != NodeKind.FILE:
            was = state.by_id(node.id)
            if was is not None and was.path != node.path:
                yield was


def note_document(
    reads: ReadSet, state: SnapshotState, changes: ChangeSet | None, key: str, name: str, node: Node | None
) -> None:
    """Note that a metadata document, called `name`, of a node was looked for; there may be no such node."""
    if node is None:
        for path in places_beneath(state, changes, key[: -len(name) - 1]):
            if len(path) <= MAX_PATH and path not in state.nodes:
                reads.node(path)
        for place in places_beneath(state, changes, key):
            _note_file(reads, state, place)  # without a node the document would be a file
        return
    committed = state.by_id(node.id)
    if committed is None:
        return
    own = committed.documents.get(name) is not node.documents.get(name)
    # how long an array is that this session appended to depends on how long it was
    if not own or (changes is not None and node.id in changes.appends):
        reads.node(committed.key)


def note_missing(reads: ReadSet, state: SnapshotState, changes: ChangeSet | None, key: str) -> None:
    """Note a look at a key that is neither that of a chunk nor that of a document: an array above would change that."""
    for place in places_beneath(state, changes, key):
        if len(place) <= MAX_PATH:
            _note_file(reads, state, place)
            for above in ancestors(place):
                reads.place(above)


def _note_file(reads: ReadSet, state: SnapshotState, key: str) -> None:
    file = file_key(key)
    if len(key) <= MAX_PATH and file not in state.nodes:  # one that is there was deleted by this session
        reads.node(file)
