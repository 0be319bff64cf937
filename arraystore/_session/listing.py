"""Listings of the keys of a hierarchy: documents, files and chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from arraystore._changes.read_tracking import moved_below, places_beneath
from arraystore._commit.prepare import final_references
from arraystore._format.node import MAX_PATH, Node, NodeKind, ancestors
from arraystore._format.references import DELETED, References, overlay
from arraystore._format.reserved_keys import HIDDEN, visible
from arraystore._format.types import Int64s
from arraystore._format.zarr_metadata import DOCUMENT_NAMES, ArrayInfo, array_info
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.keys import join

if TYPE_CHECKING:
    from arraystore._changes.read_set import ReadSet


def all_nodes(hierarchy: Hierarchy) -> Iterator[Node]:
    """Iterate over the current nodes."""
    if hierarchy.changes is None:
        return iter(hierarchy.state.nodes.values())
    return hierarchy.changes.all_nodes()


def visible_nodes(hierarchy: Hierarchy, path: str) -> list[Node]:
    """Return the current nodes, and reserved ones only for a path or prefix of theirs."""
    return visible(all_nodes(hierarchy), path)


async def present_chunks(hierarchy: Hierarchy, node: Node) -> References:
    """Load the references of all chunks that an array or file has now."""
    reads = hierarchy.noted
    if reads is not None and node.id in hierarchy.beneath.keys:
        reads.array(node.id)
    return await untracked_chunks(hierarchy, node)


async def untracked_chunks(hierarchy: Hierarchy, node: Node) -> References:
    """Load them as `present_chunks`, but without adding the array to the read set."""
    changes = hierarchy.changes
    parts = await hierarchy.reader.references(node.layers)
    written = None if changes is None else changes.arrays.get(node.id)
    if changes is not None and written is not None:
        parts.append(await final_references(changes, hierarchy.reader, node, written))
    ndim = 0 if node.kind == NodeKind.FILE else len(array_info(node.documents).grid)
    parts = [part for part in parts if len(part)]
    if not parts:
        return References.none(ndim)
    present = overlay(parts, keep_deleted=False)
    return present.take(present.source != DELETED)


def _keys(info: ArrayInfo, coords: Int64s) -> Iterator[str]:
    """Yield the chunk keys of many chunks, relative to their array."""
    if info.foreign is not None or not info.grid:
        for row in coords.tolist():
            yield info.key(tuple(row))
        return
    separator = info.encodings[0][1]
    prefix = info.chunk_prefixes[0]
    for row in coords.tolist():
        yield prefix + separator.join(map(str, row))


async def list_prefix(hierarchy: Hierarchy, prefix: str) -> AsyncIterator[str]:
    """List all keys that start with a prefix."""
    _note_prefix(hierarchy, prefix)
    for node in visible_nodes(hierarchy, prefix):
        below = join(node.path, "")
        related = below.startswith(prefix) or prefix.startswith(below)
        if node.kind == NodeKind.FILE:
            if node.path.startswith(prefix) and not hierarchy.is_covered(node):
                yield node.path
            continue
        if not related:
            continue
        for name in node.documents:
            key = join(node.path, name)
            if key.startswith(prefix):
                yield key
        if node.kind == NodeKind.ARRAY and (node.layers or _written(hierarchy, node)):
            present = await untracked_chunks(hierarchy, node)
            for relative in _keys(array_info(node.documents), present.coords):
                key = below + relative
                if key.startswith(prefix):
                    yield key


def _note_prefix(hierarchy: Hierarchy, prefix: str) -> None:
    reads = hierarchy.noted
    if reads is None or len(prefix) > MAX_PATH:
        return
    path, slash, start = prefix.rpartition("/")
    for place in places_beneath(hierarchy.beneath, hierarchy.changes, path):
        reads.prefix((place + slash + start)[:MAX_PATH])
        if start and any(name.startswith(start) for name in DOCUMENT_NAMES):
            reads.node(place)
    for moved in moved_below(hierarchy.beneath, hierarchy.changes, prefix):
        reads.prefix(join(moved.path, ""))
        reads.node(moved.key)
    _note_arrays_above(hierarchy, reads, prefix)


def _note_arrays_above(hierarchy: Hierarchy, reads: ReadSet, path: str) -> None:
    """Add arrays above a path or prefix, among whose chunk keys it may be, to the read set."""
    for above in ancestors(path):
        _note_array(hierarchy, reads, hierarchy.node(above))


def _note_array(hierarchy: Hierarchy, reads: ReadSet, node: Node | None) -> None:
    """Add all of an array of the snapshot beneath to the read set."""
    if node is not None and node.kind == NodeKind.ARRAY and node.id in hierarchy.beneath.keys:
        reads.array(node.id)


def _note_names(hierarchy: Hierarchy, path: str) -> None:
    reads = hierarchy.noted
    if reads is None or len(path) > MAX_PATH:
        return
    for place in places_beneath(hierarchy.beneath, hierarchy.changes, path):
        reads.listing(place, recursive=False)
    node = hierarchy.node(path)
    if node is not None and node.documents.keys() != {"zarr.json"}:
        for place in places_beneath(hierarchy.beneath, hierarchy.changes, path):
            reads.node(place)  # its set of documents may change: Zarr v2 has up to three
    _note_array(hierarchy, reads, node)
    _note_arrays_above(hierarchy, reads, path)


def _written(hierarchy: Hierarchy, node: Node) -> bool:
    return hierarchy.changes is not None and node.id in hierarchy.changes.arrays


async def list_dir(hierarchy: Hierarchy, prefix: str) -> list[str]:
    """List the names of keys and key prefixes directly below a path."""
    path = prefix.rstrip("/")
    _note_names(hierarchy, path)
    node = hierarchy.node(path)
    names = {} if node is None else dict.fromkeys(node.documents)
    names.update(dict.fromkeys(_names_below(hierarchy, path)))
    for above in (path, *ancestors(path)):
        array = hierarchy.node(above)
        if array is not None and array.kind == NodeKind.ARRAY and (array.layers or _written(hierarchy, array)):
            relative = path[len(join(above, "")) :]
            names.update(dict.fromkeys(await _chunk_names(hierarchy, array, relative)))
    if not path:
        names.pop(HIDDEN, None)
    return list(names)


def members(hierarchy: Hierarchy, path: str) -> list[Node]:
    """Return the groups and arrays directly below a group, adding their names to the read set."""
    _note_names(hierarchy, path)
    names = dict.fromkeys(_names_below(hierarchy, path))
    if not path:
        names.pop(HIDDEN, None)
    nodes = [hierarchy.node(join(path, name)) for name in names]
    return [node for node in nodes if node is not None and node.kind != NodeKind.FILE]


_indexes: WeakKeyDictionary[Hierarchy, dict[str, dict[str, None]]] = WeakKeyDictionary()
"""Names directly below each path, of listed snapshots."""


def _names_below(hierarchy: Hierarchy, path: str) -> Iterable[str]:
    """Return the names of nodes, files and their ancestors directly below a path."""
    if hierarchy.changes is not None and hierarchy.changes.nodes:
        below = path + "/" if path else ""
        start = len(below)
        paths = [node.path for node in all_nodes(hierarchy) if node.path]
        return [path_below[start:].split("/", 1)[0] for path_below in paths if path_below.startswith(below)]
    index = _indexes.get(hierarchy)
    if index is None:
        index = _indexes[hierarchy] = _index_of(hierarchy.state.nodes.values())
    return index.get(path, ())


def _index_of(nodes: Iterable[Node]) -> dict[str, dict[str, None]]:
    index: dict[str, dict[str, None]] = {}
    for node in nodes:
        path = node.path
        while path:
            above, _, name = path.rpartition("/")
            names = index.setdefault(above, {})
            if name in names:
                break  # and so is everything above it
            names[name] = None
            path = above
    return index


async def _chunk_names(hierarchy: Hierarchy, node: Node, relative: str) -> list[str]:
    """Return the names of chunk keys directly below a path relative to their array."""
    info = array_info(node.documents)
    coords = (await untracked_chunks(hierarchy, node)).coords
    parts = relative.split("/") if relative else []
    if info.foreign is not None or info.encodings[0][1] != "/" or not info.grid:
        start = relative + "/" if relative else ""
        return [key[len(start) :].split("/", 1)[0] for key in _keys(info, coords) if key.startswith(start)]
    if info.encodings[0][0] == "default":
        if not parts:
            return ["c"] if len(coords) else []
        if parts.pop(0) != "c":
            return []
    if len(parts) >= len(info.grid) or not all(part.isascii() and part.isdigit() for part in parts):
        return []
    for axis, part in enumerate(parts):
        coords = coords[coords[:, axis] == int(part)]
    return [str(value) for value in np.unique(coords[:, len(parts)]).tolist()]


async def measure_prefix(hierarchy: Hierarchy, prefix: str) -> int:
    """Return the total length in bytes of all values below a path, without reading them."""
    path = prefix.strip("/")
    below = path + "/" if path else ""
    total = 0
    reads = hierarchy.noted
    if reads is not None and len(path) <= MAX_PATH:
        for place in places_beneath(hierarchy.beneath, hierarchy.changes, path):
            reads.tree(place)
        for moved in moved_below(hierarchy.beneath, hierarchy.changes, below):
            reads.tree(moved.path)
        _note_arrays_above(hierarchy, reads, path)
    for node in visible_nodes(hierarchy, path):
        if node.kind == NodeKind.FILE:
            if node.path.startswith(below) and not hierarchy.is_covered(node):
                total += int((await untracked_chunks(hierarchy, node)).length.sum())
            continue
        within = node.path == path or node.path.startswith(below)
        if within:
            total += sum(map(len, node.documents.values()))
        if node.kind == NodeKind.ARRAY:
            start = join(node.path, "")
            if within:
                total += int((await untracked_chunks(hierarchy, node)).length.sum())
            elif below.startswith(start):
                present = await untracked_chunks(hierarchy, node)
                keys = (start + key for key in _keys(array_info(node.documents), present.coords))
                total += int(present.length[[key.startswith(below) for key in keys]].sum())
    return total
