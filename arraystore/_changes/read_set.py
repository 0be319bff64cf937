"""Read sets: the reads of a serializable session, in bounded memory, and which of them others have changed."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from arraystore._changes.read_cells import ReadCells
from arraystore._chunks.cells import Cells
from arraystore._conflicts import Conflict, ConflictType
from arraystore._format.envelope import pack_body, unpack_body
from arraystore._format.ids import NodeId, SnapshotId, id_to_text
from arraystore._format.node import MAX_PATH, NodeKind
from arraystore._format.types import Int64s
from arraystore._format.wire import read_id, read_tuple
from arraystore._log.footprint import Footprint, NodeFootprint
from arraystore._log.state import SnapshotState
from arraystore.errors import FormatError
from arraystore.storage.forking import renew_locks_after_fork

MAX_ENTRIES = 100_000
"""Most keys, listings and arrays; where more were read, everything counts as read."""

MAX_TOTAL_CELLS = 1 << 20
"""Most blocks of chunks in all arrays together; where there are more, the blocks of the largest array grow."""

_BUFFER = 1 << 14
"""Chunks are noted one by one in a list, with about 200 bytes for each, until there are this many."""

_FEW = 1 << 10
"""Chunks of a fork that are noted one by one: those of thousands of forks are merged at once."""


class ReadSet:
    """Reads of a session from its base snapshot, in bounded memory.

    It may say more than what was read, where that was too much to remember, but never less.  Several threads may
    note what they read at once.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._recent: list[tuple[NodeId, tuple[int, ...]]] = []
        self._keys: set[str] = set()
        self._places: set[str] = set()
        self._listings: set[str] = set()
        self._prefixes: set[str] = set()
        self._trees: set[str] = set()
        self._arrays: dict[NodeId, ReadCells] = {}
        self._weight = 0
        renew_locks_after_fork(self)

    def renew_locks(self) -> None:
        """Replace the lock, in a forked child."""
        self._lock = threading.RLock()

    # -- recording ------------------------------------------------------------------------------------------

    def node(self, key: str) -> None:
        """Note that the metadata at a key (see `arraystore._format.node.node_key`) was looked for, found or not."""
        if key not in self._keys:
            self._note(self._keys, key)

    def place(self, key: str) -> None:
        """Note that it was looked whether there is a node at a key, and which, but not at its metadata."""
        if key not in self._places:
            self._note(self._places, key)

    def listing(self, path: str, *, recursive: bool) -> None:
        """Note that the names right below a path were listed, or all keys below it, those of chunks included."""
        if not recursive:
            if path not in self._listings:
                self._note(self._listings, path)
            return
        self.place(path)
        self.prefix(path + "/" if path else "")

    def prefix(self, text: str) -> None:
        """Note that all keys that start with a string were listed, those of chunks included."""
        if text not in self._prefixes:
            self._note(self._prefixes, text)

    def tree(self, path: str) -> None:
        """Note that everything at and below a path was read: nodes, metadata and chunks."""
        self.node(path)
        below = path + "/" if path else ""
        if below not in self._trees:
            self._note(self._trees, below)

    def chunk(self, node: NodeId, coords: tuple[int, ...]) -> None:
        """Note that a chunk of an array (by id) was read, or looked for and not found."""
        recent = self._recent  # always the same list, which grows at one end and is cut at the other: no lock here
        recent.append((node, coords))
        if len(recent) >= _BUFFER:
            with self._lock:
                self._spill()

    def chunks(self, node: NodeId, coords: Int64s) -> None:
        """Note that chunks of an array, shape (n, d), were read, or looked for and not found."""
        if len(coords) <= _FEW:
            self._recent.extend([(node, tuple(row)) for row in coords.tolist()])
            if len(self._recent) < _BUFFER:
                return
        with self._lock:
            self._spill()
            if len(coords) > _FEW:
                self._change(node, lambda array: array.add(coords))

    def cells(self, node: NodeId, cells: Cells) -> None:
        """Note that chunks of an array were read."""
        with self._lock:
            self._change(node, lambda array: array.add_cells(cells))

    def array(self, node: NodeId) -> None:
        """Note that all of an array was read, or which chunks it has."""
        with self._lock:
            self._change(node, ReadCells.add_all)

    def update(self, other: ReadSet) -> None:
        """Note what another one has noted, a fork's for instance."""
        if other is self:
            return
        with other._lock:
            other._spill()
            kinds = [set(kind) for kind in other._kinds()]
            arrays = ReadSet._copied(other._arrays)
        with self._lock:
            for mine, theirs in zip(self._kinds(), kinds, strict=True):
                mine.update(theirs)
            for node, cells in arrays.items():
                blocks = cells.blocks
                if blocks is not None and cells.level == 0 and blocks.count <= _FEW:
                    # a few at a time would have the columns merged again and again
                    self._recent.extend([(node, tuple(row)) for row in blocks.coords().tolist()])
                    cells.blocks = None
                if cells.whole or cells.boxes or cells.blocks is not None:
                    self._change(node, lambda array, cells=cells: array.update(cells))
            if len(self._recent) >= _BUFFER:
                self._spill()
            self._bound()

    @staticmethod
    def _copied(arrays: Mapping[NodeId, ReadCells]) -> dict[NodeId, ReadCells]:
        copies: dict[NodeId, ReadCells] = {}
        for node, cells in arrays.items():
            copies[node] = ReadCells()
            copies[node].update(cells)
        return copies

    @property
    def everything(self) -> bool:
        """True if everything counts as read."""
        return "" in self._trees

    @property
    def empty(self) -> bool:
        """True if nothing has been read."""
        with self._lock:
            return not (self._recent or self._arrays or any(self._kinds()))

    def _kinds(self) -> tuple[set[str], ...]:
        return (self._keys, self._places, self._listings, self._prefixes, self._trees)

    def _note(self, kind: set[str], text: str) -> None:
        with self._lock:
            if not self.everything:
                kind.add(text)
                self._bound()

    def _spill(self) -> None:
        """Take the chunks noted one by one into the columns of their arrays; the lock is held."""
        recent = self._recent
        if not recent:
            return
        taken = recent[: len(recent)]
        del recent[: len(taken)]
        by_node: dict[NodeId, list[tuple[int, ...]]] = {node: [] for node in set(map(itemgetter(0), taken))}
        if len(by_node) == 1:
            by_node[taken[0][0]] = list(map(itemgetter(1), taken))
        else:
            for node, coords in taken:
                by_node[node].append(coords)
        for node, cells in by_node.items():
            self._change(node, lambda array, cells=cells: _add_all(array, cells))

    def _change(self, node: NodeId, change: Any) -> None:
        """Change what is noted of an array; the lock is held."""
        if self.everything:
            return
        array = self._arrays.get(node)
        if array is None:
            array = self._arrays[node] = ReadCells()
        self._weight -= array.weight
        change(array)
        self._weight += array.weight
        self._bound()

    def _bound(self) -> None:
        if len(self._arrays) + sum(map(len, self._kinds())) > MAX_ENTRIES or self.everything:
            for kind in self._kinds():
                kind.clear()
            self._trees.add("")
            self._arrays.clear()
            self._weight = 0
        while self._weight > MAX_TOTAL_CELLS:
            largest = max(self._arrays.values(), key=lambda array: array.weight)
            self._weight -= largest.weight
            largest.widen()
            self._weight += largest.weight

    # -- what others changed of it --------------------------------------------------------------------------

    def collisions(self, footprint: Footprint, before: SnapshotState | None = None) -> list[Conflict]:
        """Return the conflicts with what others have changed, in order of path.

        With the state `before` their changes, a listing collides with a key that brought the first name of an implicit
        directory, and not with every file further below.
        """
        with self._lock:
            self._spill()
            return _Comparison(self, footprint, before).conflicts()

    # -- looking, and travelling ----------------------------------------------------------------------------

    def summary(self, keys: Mapping[NodeId, str] | None = None) -> dict[str, Any]:
        """Describe what was read, with the arrays called by their `keys`, or by id where they have none.

        ``everything`` tells whether too much was read to say; ``metadata``, ``places``, ``listings``, ``prefixes`` and
        ``trees`` are sorted strings; ``chunks`` has, by path of the array, ``"all"`` or the count of chunks, with the
        side of the blocks in which they are remembered.
        """
        with self._lock:
            self._spill()
            names = ("metadata", "places", "listings", "prefixes", "trees")
            summary: dict[str, Any] = {"everything": self.everything}
            for name, kind in zip(names, self._kinds(), strict=True):
                texts = kind if name == "prefixes" else map(_shown, kind)
                summary[name] = sorted(texts)
            chunks: dict[str, Any] = {}
            for node, array in self._arrays.items():
                key = None if keys is None else keys.get(node)
                chunks[id_to_text(node) if key is None else _shown(key)] = _array_summary(array)
            return {**summary, "chunks": dict(sorted(chunks.items()))}

    def encode(self) -> bytes:
        """Encode it, for intents and for the changes of forks."""
        with self._lock:
            self._spill()
            arrays = tuple([(node, array.to_wire()) for node, array in sorted(self._arrays.items())])
            return pack_body((*[tuple(sorted(kind)) for kind in self._kinds()], arrays))

    @classmethod
    def decode(cls, name: str, data: bytes) -> ReadSet:
        """Decode a read set, which may come from anywhere; raises `FormatError`."""
        *kinds, arrays = read_tuple(name, unpack_body(name, data, stored=len(data)), *[tuple] * 6)
        if sum(map(len, (*kinds, arrays))) > MAX_ENTRIES:
            raise FormatError(name, f"more than the {MAX_ENTRIES} keys, listings and arrays that a session keeps")
        read_set = cls()
        for kind, texts in zip(read_set._kinds(), kinds, strict=True):
            kind.update([_read_text(name, text) for text in texts])
        for item in arrays:
            node, wire = read_tuple(name, item, bytes, tuple)
            array = read_set._arrays[NodeId(read_id(name, node))] = ReadCells.from_wire(name, wire)
            read_set._weight += array.weight
            if read_set._weight > MAX_TOTAL_CELLS:
                raise FormatError(name, f"more than the {MAX_TOTAL_CELLS} blocks of chunks that a session keeps")
        if len(read_set._arrays) < len(arrays):
            raise FormatError(name, "names an array twice")
        read_set._bound()
        return read_set


def _add_all(array: ReadCells, coords: list[tuple[int, ...]]) -> None:
    dimensions = len(coords[0])
    if set(map(len, coords)) != {dimensions}:
        array.add_all()
        return
    flat = np.fromiter(chain.from_iterable(coords), np.int64, dimensions * len(coords))
    array.add(flat.reshape(len(coords), dimensions))


def _read_text(name: str, text: Any) -> str:
    if type(text) is not str or len(text) > MAX_PATH + 1:
        raise FormatError(name, f"a key or path must be a string of at most {MAX_PATH} characters")
    return text


def _shown(key: str) -> str:
    return "/" + key.removeprefix("\0")


def _array_summary(array: ReadCells) -> Any:
    if array.whole:
        return "all"
    blocks = 0 if array.blocks is None else array.blocks.count
    return {"blocks": blocks, "side": array.side, "boxes": [(box.low, box.high) for box in array.boxes]}


class _Comparison:
    """A read set held against a footprint; the lock of the read set is held."""

    def __init__(self, reads: ReadSet, footprint: Footprint, before: SnapshotState | None) -> None:
        keys, places, listings, prefixes, trees = reads._kinds()  # pyright: ignore[reportPrivateUsage]
        self.keys, self.places, self.listings = keys, places, listings
        self.arrays = reads._arrays  # pyright: ignore[reportPrivateUsage]
        self.prefixes, self.trees = _Prefixes(prefixes), _Prefixes(trees)
        self.above = _above([*listings, *prefixes])
        self.footprint = footprint
        self.before = before

    def conflicts(self) -> list[Conflict]:
        """Return all collisions, in order of path."""
        conflicts: list[Conflict] = []
        there = {node.key: node for node in self.footprint.nodes.values() if node.deleted is None}
        reported: set[str] = set()
        for key, snapshot in self.footprint.keys.items():
            arrived = there.get(key)
            why = self._place(key, arrived)
            if why:
                reported.add(key)
                conflicts.append(_conflict(_shown(key), snapshot, why, NodeId(b"") if arrived is None else arrived.id))
        for node in self.footprint.nodes.values():
            conflicts += self._node(node, node.key in reported)
        return sorted(conflicts, key=lambda conflict: conflict.path)

    def _place(self, key: str, arrived: NodeFootprint | None) -> str:
        """Tell why it matters that a node has appeared or vanished at a key; empty where it does not."""
        if key in self.keys or key in self.places:
            return "it was looked at here; a node appeared or vanished"
        text = _text(key)
        if self.trees.match(text) or self.prefixes.match(text) or self._changes_listing(key):
            return "a node appeared or vanished below a path that was listed or read as a whole"
        if key in self.above and arrived is not None and arrived.kind != NodeKind.GROUP:
            return "an array appeared above a path that was listed"
        return ""

    def _changes_listing(self, key: str) -> bool:
        if not self.listings:
            return False
        path = key.removeprefix("\0")
        if path in self.listings and not key.startswith("\0"):
            return True
        name, parent = path, path.rpartition("/")[0]
        if name and parent in self.listings:
            return True
        while parent:
            name, parent = parent, parent.rpartition("/")[0]
            if parent in self.listings and self._is_implicit(name, key):
                return True
        return False

    def _is_implicit(self, name: str, key: str) -> bool:
        """Tell whether a directory may be there only because of a key below it."""
        return key.startswith("\0") if self.before is None else name not in self.before.nodes

    def _node(self, node: NodeFootprint, reported: bool) -> list[Conflict]:
        changes = [snapshot for snapshot in (node.updated, node.reshaped, node.appended) if snapshot is not None]
        text = _text(node.key)
        in_tree = self.trees.match(text)
        conflicts: list[Conflict] = []
        if changes and not reported and (in_tree or node.key in self.keys):
            grew = node.appended is not None and len(changes) == 1
            why = "its metadata was read; it was appended to" if grew else "its metadata was read, and changed"
            conflicts.append(_conflict(node.path, max(changes), why, node.id))
        array = self.arrays.get(node.id)
        if in_tree or self.prefixes.match(text):
            array = _ALL
        if array is not None:
            conflicts += _chunk_conflicts(node, array, reported or bool(conflicts))
        return conflicts


def _chunk_conflicts(node: NodeFootprint, array: ReadCells, reported: bool) -> list[Conflict]:
    if node.created is not None:
        return []  # the path says it all
    if node.deleted is not None or node.moved is not None:
        if reported:
            return []
        what = "deleted" if node.deleted is not None else "moved"
        snapshot = node.deleted or node.moved
        assert snapshot is not None
        return [_conflict(node.path, snapshot, f"chunks of it were read; it was {what}", node.id)]
    conflicts: list[Conflict] = []
    if node.reshaped is not None and not reported:
        why = "chunks of it were read; how its chunks are read was changed"
        conflicts.append(_conflict(node.path, node.reshaped, why, node.id))
    coords = array.hits(node.cells()) if node.chunks else np.empty((0, 0), dtype=np.int64)
    if len(coords):
        why = "chunks that were read, or looked for, were written or deleted"
        if array.level:
            why += f" (so many were read that they are remembered in blocks of {array.side} along each axis)"
        conflicts.append(_conflict(node.path, node.snapshot_of(coords), why, node.id, coords))
    return conflicts


_ALL = ReadCells()
_ALL.add_all()


def _conflict(path: str, snapshot: SnapshotId, why: str, node: NodeId, coords: Int64s | None = None) -> Conflict:
    return Conflict(ConflictType.ReadConflict, path, coords, id_to_text(snapshot), why, node)


def _text(key: str) -> str:
    """Return what the keys of a node start with."""
    if key.startswith("\0"):
        return key[1:]
    return key + "/" if key else ""


def _above(paths: Iterable[str]) -> set[str]:
    """Return the paths that are above others."""
    above: set[str] = set()
    for path in paths:
        rest = path
        while rest:
            rest = rest.rpartition("/")[0]
            if rest in above:
                break
            above.add(rest)
    return above


class _Prefixes:
    """Strings, to look up whether another one starts with one of them."""

    def __init__(self, texts: Collection[str]) -> None:
        self._texts: list[str] = []
        for text in sorted(texts):
            if not self._texts or not text.startswith(self._texts[-1]):
                self._texts.append(text)  # none starts with another: the one before in order is the only candidate

    def match(self, text: str) -> bool:
        """Tell whether a string starts with one of these."""
        at = bisect_right(self._texts, text) - 1
        return at >= 0 and text.startswith(self._texts[at])
