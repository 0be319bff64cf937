"""Snapshots as values: nodes with their documents and the bytes of their chunks.

A snapshot shares every node with the one before it that it does not change, so a log of a thousand commits is a
thousand small differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tests.simulation.checker.arrays import DOCUMENTS, array_of
from tests.simulation.checker.decoding import Cells, Coords

__all__ = [
    "ARRAY",
    "FILE",
    "GROUP",
    "Key",
    "Layer",
    "Node",
    "Nodes",
    "Snapshot",
    "above",
    "listing",
    "lookup",
    "moved",
    "place_of",
]

GROUP, ARRAY, FILE = 0, 1, 2
Key = tuple[str, bool]
"""Path of a node, and whether it is a file: a file may have the path of another node."""


@dataclass(frozen=True)
class Layer:
    """One layer of an array.

    Parameters
    ----------
    id
        Of its manifest.
    cells
        What that says, where an append put it.
    carrier
        Key of the object that holds the manifest, which may be a record; nothing where it stands with the layer.
    packs
        Keys of the packs that cells are in.
    """

    id: bytes
    cells: Cells = field(repr=False)
    carrier: str = ""
    packs: Mapping[Coords, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Node:
    """A node.

    Parameters
    ----------
    id, path, kind, documents
        As in the format.
    layers
        Oldest first.
    chunks
        What they come to.
    """

    id: bytes
    path: str
    kind: int
    documents: Mapping[str, bytes]
    layers: tuple[Layer, ...] = field(default=(), repr=False)
    chunks: Mapping[Coords, bytes] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> Key:
        """What it is found under."""
        return self.path, self.kind == FILE

    def with_layers(self, layers: tuple[Layer, ...]) -> Node:
        """Return the node with other layers, its chunks worked out anew."""
        return replace(self, layers=layers, chunks=_overlaid({}, layers))

    def with_layer(self, layer: Layer) -> Node:
        """Return the node with one more layer on top."""
        return replace(self, layers=(*self.layers, layer), chunks=_overlaid(self.chunks, (layer,)))

    def with_chunks(self, changes: Cells) -> Node:
        """Return the node with chunks written, or deleted where there is None."""
        return replace(self, chunks=_overlaid(self.chunks, (Layer(b"", changes),)))


def _overlaid(chunks: Mapping[Coords, bytes], layers: Iterable[Layer]) -> dict[Coords, bytes]:
    merged: Cells = dict(chunks)
    for layer in layers:
        merged.update(layer.cells)
    return {coords: data for coords, data in merged.items() if data is not None}


class Nodes:
    """Nodes by key and by id, to be changed; the tables that it starts from are left as they are."""

    def __init__(self, nodes: Mapping[Key, Node] = {}, keys: Mapping[bytes, Key] | None = None) -> None:
        self.nodes: dict[Key, Node] = dict(nodes)
        self.keys: dict[bytes, Key] = {n.id: k for k, n in nodes.items()} if keys is None else dict(keys)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def by_id(self, identifier: bytes) -> Node | None:
        """Return a node; None if there is none."""
        key = self.keys.get(identifier)
        return None if key is None else self.nodes[key]

    def put(self, node: Node) -> None:
        """Add a node, or replace the one of its id."""
        old = self.keys.get(node.id)
        if old is not None and old != node.key:
            del self.nodes[old]
        self.nodes[node.key] = node
        self.keys[node.id] = node.key

    def remove(self, identifier: bytes) -> Node:
        """Remove a node."""
        return self.nodes.pop(self.keys.pop(identifier))

    def relocate(self, places: Mapping[bytes, str]) -> None:
        """Give nodes other paths, all at once; raises ValueError where a path is taken."""
        taken = [replace(self.nodes.pop(self.keys[i]), path=path) for i, path in places.items()]
        for node in taken:
            if node.key in self.nodes:
                raise ValueError(f"two nodes at {'/' + node.path!r}")
            self.nodes[node.key] = node
            self.keys[node.id] = node.key


@dataclass(frozen=True)
class Snapshot:
    """What a branch is at a record.

    Parameters
    ----------
    id, parent, time, message, metadata
        Of the snapshot.
    branch, number
        The record.
    nodes
        By key.
    keys
        Key of each node by id.
    """

    id: bytes
    parent: bytes | None
    nodes: Mapping[Key, Node] = field(repr=False)
    keys: Mapping[bytes, Key] = field(repr=False)
    branch: str = ""
    number: int = 0
    time: int = 0
    message: str = ""
    metadata: Mapping[str, object] | None = None

    def by_id(self, identifier: bytes) -> Node | None:
        """Return a node; None if there is none."""
        key = self.keys.get(identifier)
        return None if key is None else self.nodes[key]


def above(path: str) -> Iterator[str]:
    """Yield the paths above one, the nearest first."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def moved(nodes: Nodes, targets: Mapping[bytes, str]) -> dict[bytes, str]:
    """Return where all nodes go when some are moved: with the nearest group above them that moves, if not by name."""
    places = dict(targets)
    for node in nodes:
        if node.id in targets:
            continue
        for path in above(node.path):
            group = nodes.nodes.get((path, False))
            if group is not None and group.kind == GROUP and group.id in targets:
                places[node.id] = targets[group.id] + node.path[len(path) :]
                break
    return places


def _array_above(nodes: Mapping[Key, Node], key: str) -> Node | None:
    path = key
    while path:
        path = path.rpartition("/")[0]
        node = nodes.get((path, False))
        if node is not None and node.kind == ARRAY:
            return node
    return None


def place_of(nodes: Mapping[Key, Node], key: str) -> tuple[Node, str | Coords] | None:
    """Return the node that a Zarr key belongs to, with the name of the document or the chunk; None for no node."""
    file = nodes.get((key, True))
    if file is not None:
        return file, ()
    path, _, name = key.rpartition("/")
    if name in DOCUMENTS:
        node = nodes.get((path, False))
        return None if node is None else (node, name)
    array = _array_above(nodes, key)
    if array is None:
        return None
    coords = array_of(array.documents).coords(key[len(array.path) + 1 :] if array.path else key)
    return None if coords is None else (array, coords)


def lookup(nodes: Mapping[Key, Node], key: str) -> bytes | None:
    """Return the value of a Zarr key; None where there is none."""
    found = place_of(nodes, key)
    if found is None:
        return None
    node, what = found
    return node.documents.get(what) if isinstance(what, str) else node.chunks.get(what)


def _all_keys(nodes: Mapping[Key, Node]) -> Iterator[str]:
    for node in nodes.values():
        if node.kind == FILE:
            yield node.path
            continue
        start = node.path + "/" if node.path else ""
        yield from (start + name for name in node.documents)
        if node.kind == ARRAY and node.chunks:
            array = array_of(node.documents)
            yield from (start + array.key(coords) for coords in node.chunks)


def listing(nodes: Mapping[Key, Node], prefix: str, *, deep: bool) -> tuple[str, ...]:
    """Return what is listed: all keys that start with a prefix, or the names right below a path."""
    if deep:
        return tuple(sorted(key for key in _all_keys(nodes) if key.startswith(prefix)))
    path = prefix.rstrip("/")
    below = path + "/" if path else ""
    return tuple(sorted({key[len(below) :].split("/", 1)[0] for key in _all_keys(nodes) if key.startswith(below)}))
