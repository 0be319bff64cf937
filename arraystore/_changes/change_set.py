"""Change sets: uncommitted changes of a session or a fork.

Nodes are kept as they are now, over the snapshot that the session is based on; what changed is worked out at commit.
Chunks are kept per node id in a `ChunkTable`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from arraystore._changes.append_mode import AppendMode
from arraystore._changes.node_changes import append_mark, node_changes
from arraystore._chunks.chunk_table import DELETED_CHUNK, ChunkReference, ChunkTable
from arraystore._chunks.pack_writer import PackWriter
from arraystore._format.ids import CheckpointId, NodeId, PackId
from arraystore._format.locations import Locations, concat_locations
from arraystore._format.node import Node, NodeKind, ancestors, node_key
from arraystore._format.references import INLINE, VIRTUAL, References
from arraystore._format.reserved_keys import is_hidden
from arraystore._format.transaction import AppendMark, NodeChange
from arraystore._format.types import Int64s
from arraystore._format.zarr_metadata import array_info
from arraystore._log.state import SnapshotState
from arraystore._runtime.values import dataclass
from arraystore.errors import SessionStateError
from arraystore.storage.forking import renew_locks_after_fork

_UNCUT = 1 << 62
"""Bound of a grid that holds every chunk."""

_SEALED = "the session is being committed and takes no changes meanwhile: write before that, or in a new session"
_UNDIVIDED = (
    "the session is being written to in another thread, all or none of it: commit or rebase when that has ended"
)

_FEW = 16
"""Chunks that are put one by one: a run of so few costs more."""

_MOST_SINGLE_LOCATIONS = 1 << 16
"""Locations that were put one at a time and are remembered, to be shared by the chunks that are there."""


@dataclass
class ArrayChanges:
    """Chunk changes of one array or file."""

    table: ChunkTable
    """References written."""
    visible: tuple[int, ...] | None = None
    """Grid beyond which cells of the base do not count, since the array was smaller in between; a dimension in which it
    was not is out of reach, so that what others append stays."""

    def hides(self, coords: tuple[int, ...]) -> bool:
        """Tell whether the base's chunk of a cell was cut off by a shrink."""
        return self.visible is not None and any(c >= v for c, v in zip(coords, self.visible, strict=True))

    def copy(self) -> ArrayChanges:
        """Return what has changed by now, which later changes leave as it is; the lock is held."""
        return ArrayChanges(self.table.copy(), self.visible)


class ChangeSet:
    """Changes over a base snapshot; chunks are written through `packs`."""

    def __init__(self, base: SnapshotState, packs: PackWriter) -> None:
        self.base = base
        self.packs = packs
        self.lock = threading.RLock()
        self.sealed = False
        self.version = 0
        self.append_mode = AppendMode()
        self._undivided = 0
        self.appends: dict[NodeId, AppendMark] = {}
        self.epoch = 0
        self.nodes: dict[str, Node | None] = {}
        self.arrays: dict[NodeId, ArrayChanges] = {}
        self.inline = bytearray()
        self.node_epochs: dict[str, int] = {}
        self.touched: dict[NodeId, ChunkTable] = {}
        self.cuts: dict[NodeId, dict[int, tuple[int, ...]]] = {}
        """Grids beyond which chunks were cut off, by the epoch in which that was."""
        self._inline_copy = b""
        self._pack_copy: tuple[PackId, ...] = ()
        self._below: Counter[str] | None = None
        self._files_below = Counter[str]()
        self.borrowed: list[CheckpointId] = []
        """Checkpoints that keep what these changes refer to besides the base."""
        self.has_files = base.has_files
        self._locations: list[Locations] = []
        self._location_count = 0
        self._single_locations: dict[tuple[str, str | None, int | None], int] = {}
        renew_locks_after_fork(self)

    def renew_locks(self) -> None:
        """Replace the lock, in a forked child, which may read what its parent has written."""
        self.lock = threading.RLock()

    # -- nodes ----------------------------------------------------------------------------------------------

    def node(self, key: str) -> Node | None:
        """Return a node as it is now."""
        if key in self.nodes:
            return self.nodes[key]
        return self.base.nodes.get(key)

    def put_node(self, node: Node) -> None:
        """Set a node."""
        with self.lock:
            self._note_node(node.key)
            if node.kind == NodeKind.FILE and not is_hidden(node.path):
                self.has_files = True
            self._mark_append(node)
            self._clip(node)
            if self.node(node.key) is None:
                self._count_below(node, 1)
            self.nodes[node.key] = node

    def remove_node(self, node: Node) -> None:
        """Remove a node and its chunks."""
        with self.lock:
            self._note_node(node.key)
            self.arrays.pop(node.id, None)
            self.appends.pop(node.id, None)
            if self.node(node.key) is not None:
                self._count_below(node, -1)
            if node.key in self.base.nodes:
                self.nodes[node.key] = None
            else:
                self.nodes.pop(node.key, None)

    def move(self, node: Node, target: str) -> None:
        """Give a node another path, and what is below a group with it."""
        with self.lock:
            below = node.path + "/"
            moved = [node]
            if node.kind == NodeKind.GROUP:
                moved += [other for other in self.all_nodes() if other.path.startswith(below)]
            for each in moved:
                self._note_node(each.key)
                self._count_below(each, -1)
                if each.key in self.base.nodes:
                    self.nodes[each.key] = None
                else:
                    self.nodes.pop(each.key, None)
            for each in moved:
                renamed = replace(each, path=target + each.path[len(node.path) :])
                self._note_node(renamed.key)
                self._count_below(renamed, 1)
                self.nodes[renamed.key] = renamed

    def _mark_append(self, node: Node) -> None:
        """Note where an array ended before it grew along the dimension that is being appended to."""
        dimension = self.append_mode.dimension
        if dimension is None or node.kind != NodeKind.ARRAY or node.id in self.appends:
            return
        before = self.node(node.key)
        if before is None or before.id != node.id or node.id not in self.base.keys:
            return
        mark = append_mark(before.documents, node.documents, dimension)
        if mark is not None:
            self.appends[node.id] = mark

    def has_nodes_below(self, path: str) -> bool:
        """Tell whether there is a group or an array below a path."""
        with self.lock:
            return self._counted()[path] > 0

    def has_files_below(self, path: str) -> bool:
        """Tell whether there is a file below a path that is not hidden."""
        with self.lock:
            self._counted()
            return self._files_below[path] > 0

    def _counted(self) -> Counter[str]:
        """Return the count of the groups and arrays below each path."""
        if self._below is None:
            self._below = Counter()
            for node in self.all_nodes():
                self._count_below(node, 1)
        return self._below

    def _count_below(self, node: Node, step: int) -> None:
        """Keep count of the nodes below each path, once somebody has asked: a thousand creations ask as often."""
        if self._below is None or (node.kind == NodeKind.FILE and is_hidden(node.path)):
            return
        counts = self._files_below if node.kind == NodeKind.FILE else self._below
        for above in ancestors(node.path):
            counts[above] += step

    def _note_node(self, key: str) -> None:
        self.check_open()
        if self.epoch:
            self.node_epochs[key] = self.epoch

    def all_nodes(self) -> Iterator[Node]:
        """Iterate over all nodes as they are now."""
        with self.lock:
            overlay = dict(self.nodes)
        for key, node in self.base.nodes.items():
            if key not in overlay:
                yield node
        for changed in overlay.values():
            if changed is not None:
                yield changed

    def _clip(self, node: Node) -> None:
        """Cut off what a shrunk grid no longer holds."""
        before = self.node(node.key)
        if node.kind != NodeKind.ARRAY or before is None or before.id != node.id:
            return
        grid, old = array_info(node.documents).grid, array_info(before.documents).grid
        if grid == old:
            return
        changes = self.array(node)
        changes.table.fit(grid)
        if any(new < had for new, had in zip(grid, old, strict=True)):
            changes.visible = self._visible(node.id, grid, changes.visible)
            if self.epoch:
                self._note_cut(
                    node.id, tuple([new if new < had else _UNCUT for new, had in zip(grid, old, strict=True)])
                )
            coords, _ = changes.table.columns()
            changes.table.drop((coords < np.array(grid, dtype=np.int64)).all(axis=1))

    def _note_cut(self, identifier: NodeId, cut: tuple[int, ...]) -> None:
        """Note what forks that were issued before have not seen."""
        cuts = self.cuts.setdefault(identifier, {})
        cuts[self.epoch] = tuple(map(min, cut, cuts.get(self.epoch, cut)))

    def cut(self, node: Node, grid: tuple[int, ...]) -> None:
        """Cut off what the base has of an array beyond a grid that it had in between."""
        with self.lock:
            changes = self.array(node)
            changes.visible = self._visible(node.id, grid, changes.visible)

    def _visible(
        self, identifier: NodeId, grid: tuple[int, ...], visible: tuple[int, ...] | None
    ) -> tuple[int, ...] | None:
        """Return what a shrink leaves of the base's grid; an end that this session has added is nobody else's."""
        before = self.base.by_id(identifier)
        if before is None:
            return None
        had = array_info(before.documents).grid
        cut = tuple([new if new < old else _UNCUT for new, old in zip(grid, had, strict=True)])
        cut = cut if visible is None else tuple(map(min, cut, visible))
        return None if set(cut) <= {_UNCUT} else cut

    def node_changes(self) -> list[NodeChange]:
        """Return what changed, in an order in which it can be applied; see `arraystore._changes.node_changes`."""
        with self.lock:
            return node_changes(self.base, self.nodes, self.appends)

    # -- state ----------------------------------------------------------------------------------------------

    def seal(self) -> None:
        """Take no more changes: what is being committed is what there is now."""
        with self.lock:
            if self.sealed:
                raise SessionStateError(_SEALED)
            if self._undivided:
                raise SessionStateError(_UNDIVIDED)
            self.sealed = True

    def unseal(self) -> None:
        """Take changes again."""
        with self.lock:
            self.sealed = False

    @contextmanager
    def undivided(self) -> Iterator[None]:
        """Refuse to be sealed within the block, of whose changes all or none may be committed."""
        with self.lock:
            if self.sealed:
                raise SessionStateError(_SEALED)
            self._undivided += 1
        try:
            yield
        finally:
            with self.lock:
                self._undivided -= 1

    def check_open(self) -> None:
        """Check, with the lock held, that a change would still be committed; raises `SessionStateError`."""
        if self.sealed:
            raise SessionStateError(_SEALED)
        self.version += 1

    def next_epoch(self) -> int:
        """Begin to note what changes, as a fork is taken now; returns the number of the fork's epoch."""
        with self.lock:
            self.epoch += 1
            return self.epoch

    # -- chunks ---------------------------------------------------------------------------------------------

    def array(self, node: Node) -> ArrayChanges:
        """Return the chunk changes of a node, made on first use."""
        with self.lock:
            changes = self.arrays.get(node.id)
            if changes is None:
                grid = () if node.kind == NodeKind.FILE else array_info(node.documents).grid
                changes = self.arrays[node.id] = ArrayChanges(ChunkTable(grid))
            return changes

    def put_chunk(self, node: Node, coords: tuple[int, ...], entry: ChunkReference) -> ArrayChanges:
        """Set the reference of a chunk."""
        with self.lock:
            self.check_open()
            changes = self.arrays.get(node.id) or self.array(node)
            table = changes.table
            table.put(table.number(coords), entry)
            if self.epoch:
                self._touch(node, coords)
            return changes

    def put_chunks(self, node: Node, coords: Int64s, entries: Int64s) -> None:
        """Set the references of chunks, shape (n, d) and (n, 3)."""
        with self.lock:
            self.check_open()
            table = self.array(node).table
            if len(coords) <= _FEW:
                for number, entry in zip(table.numbers(coords).tolist(), entries.tolist(), strict=True):
                    table.put(number, ChunkReference(*entry))
            else:
                table.put_numbered(table.numbers(coords), entries)
            self.touch_many(node, coords)

    def delete_chunks(self, node: Node, coords: Int64s) -> None:
        """Delete chunks, shape (n, d)."""
        with self.lock:
            below = node.id in self.base.keys
            if node.id not in self.arrays and not (below or self.epoch):
                return
            self.check_open()
            changes = self.array(node)
            self.touch_many(node, coords)
            if below and len(coords):
                changes.table.put_numbered(changes.table.numbers(coords), np.tile(DELETED_CHUNK, (len(coords), 1)))
            elif changes.table:
                for number in changes.table.numbers(coords).tolist():
                    changes.table.forget(number)

    def _touch(self, node: Node, coords: tuple[int, ...]) -> None:
        """Note a chunk that the session itself changes while it has forks."""
        table = self._touched_table(node)
        table.put(table.number(coords), ChunkReference(self.epoch, 0, 0))

    def touch_many(self, node: Node, coords: Int64s) -> None:
        """Note chunks, shape (n, d), whose references are put into the table of a node without `put_chunk`."""
        with self.lock:
            if self.epoch:
                nothing = np.zeros(len(coords), dtype=np.int64)
                self._touched_table(node).put_many(coords, nothing + self.epoch, nothing, nothing)

    def _touched_table(self, node: Node) -> ChunkTable:
        grid = () if node.kind == NodeKind.FILE else array_info(node.documents).grid
        table = self.touched.get(node.id)
        if table is None:
            table = self.touched[node.id] = ChunkTable(grid)
        table.fit(grid)
        return table

    def put_inline(self, data: memoryview) -> ChunkReference:
        """Keep the bytes of a tiny chunk."""
        with self.lock:
            offset = len(self.inline)
            self.inline += data
            return ChunkReference(INLINE, offset, len(data))

    def put_locations(self, locations: Locations) -> int:
        """Keep virtual locations; returns the source of the first one."""
        with self.lock:
            first = VIRTUAL + self._location_count
            if len(locations) == 1:  # programs refer to one chunk at a time, and there are many in a file
                known = self._single_locations
                row = locations.url(0), locations.etag(0), locations.not_modified_after(0)
                if len(known) >= _MOST_SINGLE_LOCATIONS:
                    known.clear()
                if known.setdefault(row, first) != first:
                    return known[row]
            self._locations.append(locations)
            self._location_count += len(locations)
            return first

    def locations(self) -> Locations:
        """Return all virtual locations of this change set."""
        with self.lock:
            if len(self._locations) > 1:
                self._locations = [concat_locations(self._locations)]
            return concat_locations(self._locations)

    def copied_arrays(self) -> dict[NodeId, ArrayChanges]:
        """Return the chunk changes of all arrays and files at one moment."""
        with self.lock:
            return {identifier: changes.copy() for identifier, changes in self.arrays.items()}

    def references(self, written: ArrayChanges) -> References:
        """Return the references written to one array."""
        with self.lock:
            return self._of_table(*written.table.columns())

    def reference_stretches(self, node_id: NodeId) -> Iterator[References]:
        """Yield the references written to one array, a bounded number at a time, of changes that are sealed."""
        for coords, values in self.arrays[node_id].table.stretches():
            with self.lock:
                part = self._of_table(coords, values)
            yield part

    def _of_table(self, coords: Int64s, values: Int64s) -> References:
        source, offset, length = values.T
        if len(self._inline_copy) != len(self.inline):  # it only grows
            self._inline_copy = bytes(self.inline)
        if len(self._pack_copy) != len(self.packs.packs):
            self._pack_copy = tuple(self.packs.packs)
        return References(coords, source, offset, length, self._pack_copy, self.locations(), self._inline_copy)

    def deletes(self, node: Node, coords: tuple[int, ...]) -> bool:
        """Delete a chunk; returns whether anything may have changed."""
        with self.lock:
            changes = self.arrays.get(node.id)
            # Others and forks may write the chunk meanwhile: even deleting one that is not there, or was cut off, says
            # something.
            below = node.id in self.base.keys
            if changes is None and not (below or self.epoch):
                return False
            self.check_open()
            changes = self.array(node)
            if self.epoch:
                self._touch(node, coords)
            number = changes.table.number(coords)
            if below:
                changes.table.put(number, DELETED_CHUNK)
            else:
                changes.table.forget(number)
            return True

    @property
    def empty(self) -> bool:
        """True if nothing at all has changed."""
        with self.lock:
            for key, node in self.nodes.items():
                before = self.base.nodes.get(key)
                if before is not node and (
                    before is None or node is None or before.id != node.id or before.documents != node.documents
                ):
                    return False
            return not any(a.table or a.visible is not None for a in self.arrays.values())


def file_node(path: str, identifier: NodeId) -> Node:
    """Return a new file."""
    return Node(identifier, path, NodeKind.FILE, {})


def file_key(path: str) -> str:
    """Return the key of a file in a snapshot."""
    return node_key(path, NodeKind.FILE)
