"""Noting what a look at a hierarchy tells of the snapshot beneath, and leaving out what it shows of own changes."""

from __future__ import annotations

from collections.abc import Container, Sequence

from arraystore.commit.changes import file_key
from arraystore.commit.reader import ChunkReader
from arraystore.commit.reads import ReadSet
from arraystore.commit.state import State
from arraystore.format.layer import Layer
from arraystore.format.node import MAX_PATH, Node, ancestors

__all__ = ["note_document", "note_missing", "speaks_of"]


def speaks_of(layers: Sequence[Layer], coords: tuple[int, ...], reader: ChunkReader) -> bool:
    """Tell whether a chunk was written or deleted by layers that are in memory: those that a fork's session put on."""
    for layer in layers:
        if layer.shift is None and layer.box.contains(coords):
            manifest = reader.manifests.get(layer)
            if manifest is not None and manifest.find(coords) >= 0:
                return True
    return False


def note_document(
    reads: ReadSet, state: State, appends: Container[bytes], key: str, name: str, node: Node | None
) -> None:
    """Note that a metadata document was looked for.

    Parameters
    ----------
    reads
        Where to note it.
    state
        The snapshot.
    appends
        Ids of arrays that were appended to.
    key, name
        Key of the document, and the last part of it.
    node
        The node that it would belong to, as it is now.
    """
    if node is None:
        path = key[: -len(name) - 1]
        if len(path) <= MAX_PATH and path not in state.nodes:
            reads.node(path)
        _note_file(reads, state, key)  # without a node the document would be a file
        return
    committed = state.by_id(node.id)
    if committed is None:
        return
    own = committed.documents.get(name) is not node.documents.get(name)
    # how long an array is that this session appended to depends on how long it was
    if not own or node.id in appends:
        reads.node(committed.key)


def note_missing(reads: ReadSet, state: State, key: str) -> None:
    """Note a look at a key that is neither that of a chunk nor that of a document: an array above would change that."""
    if len(key) > MAX_PATH:
        return
    _note_file(reads, state, key)
    for above in ancestors(key):
        reads.place(above)


def _note_file(reads: ReadSet, state: State, key: str) -> None:
    file = file_key(key)
    if len(key) <= MAX_PATH and file not in state.nodes:  # one that is there was deleted by this session
        reads.node(file)
