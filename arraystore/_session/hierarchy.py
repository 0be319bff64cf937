"""A Zarr hierarchy as keys and values: a snapshot with a change set over it.

Keys are metadata documents, chunks of arrays, or files (any other valid key).  Functions that need no request are
synchronous; those that may need one are synchronous and asynchronous twins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from operator import lt
from typing import TYPE_CHECKING, Any

from arraystore._changes.change_set import ArrayChanges, ChangeSet, file_key, file_node
from arraystore._changes.read_tracking import moved_below, note_document, note_missing, places_beneath, speaks_of
from arraystore._chunks.chunk_table import DELETED_CHUNK, ChunkReference
from arraystore._chunks.read_memory import ReadMemory
from arraystore._chunks.reader import ChunkReader, ReferencePosition, Window, reference_at, sole_reference, whole_chunk
from arraystore._format.ids import NodeId
from arraystore._format.layer import Layer
from arraystore._format.layer_bounds import FEW
from arraystore._format.manifest import Manifest
from arraystore._format.node import Node, NodeKind, ancestors
from arraystore._format.references import DELETED, INLINE, VIRTUAL
from arraystore._format.reserved_keys import HIDDEN, visible
from arraystore._format.zarr_changes import keeps_chunks, without_consolidated
from arraystore._format.zarr_metadata import DOCUMENT_NAMES, ArrayInfo, array_info, known_index, node_type
from arraystore._log.state import SnapshotState
from arraystore._runtime import lazy_module
from arraystore._runtime.values import dataclass
from arraystore._session.keys import check_key, join, split_document
from arraystore.errors import ChunkDamagedError, InvalidInputError, InvalidKeyError, ReadOnlyError, SourceChangedError
from arraystore.storage.protocol import BytesLike

if TYPE_CHECKING:
    from arraystore._changes.read_set import ReadSet
    from arraystore._session import early_chunks
else:
    early_chunks = lazy_module("arraystore._session.early_chunks")


_MAKES_NODE = ("zarr.json", ".zarray", ".zgroup")


class VirtualChunkError(Exception):
    """A chunk is in another storage, whose chunks are better read together."""


@dataclass(eq=False)
class ArrayHandle:
    """An array or file, prepared for access to its chunks."""

    node: Node
    info: ArrayInfo | None
    """Grid and chunk keys; None for a file."""
    prefix: str
    """The prefix of chunk keys, of the usual encodings only."""
    separator: str
    """The separator of coordinates in chunk keys, of the usual encodings only."""
    changes: ArrayChanges | None
    """Chunks written in this session; None if there are none."""
    committed: Node | None
    """The node in the snapshot beneath; None for one that this session created."""
    sole: Manifest | None = None
    """The loaded manifest of an array with a single layer."""
    layout: Any = None
    """The decoded metadata, of `regions`; None until a region is read or written."""
    scan: Any = None
    """The regions that were read last, of `regions.read_ahead`; None until one is read."""

    def __post_init__(self) -> None:
        self.grid = () if self.info is None else self.info.grid
        self.layers = self.node.layers
        self.committed_grid = self.grid
        committed = self.committed
        self.own_layers = () if committed is None else self.layers[len(committed.layers) :]
        if self.info is not None and committed is not None and committed.documents is not self.node.documents:
            self.committed_grid = array_info(committed.documents).grid
        self.as_committed = committed is not None and self.committed_grid == self.grid and not self.own_layers

    def layers_of(self, coords: tuple[int, ...]) -> Sequence[Layer]:
        """Return at least the layers that may have a chunk, oldest first."""
        return self.layers if len(self.layers) <= FEW else self.node.layers_around(coords, [c + 1 for c in coords])

    def inside(self, coords: tuple[int, ...]) -> bool:
        """Tell whether a chunk is in the grid."""
        return all(map(lt, coords, self.grid))


_untracked: ContextVar[Any] = ContextVar("arraystore_untracked", default=None)
"""The hierarchy whose reads are not tracked in the current task or thread, and in tasks that it starts."""


class Hierarchy:
    """Keys and values of a snapshot with changes over it."""

    def __init__(self, state: SnapshotState, reader: ChunkReader, changes: ChangeSet | None) -> None:
        self.state = state
        self.reader = reader
        self.changes = changes
        self.reads: ReadSet | None = None
        """The read set; None if reads are not tracked."""
        self.beneath = state
        """The snapshot whose reads are tracked, without the uncommitted changes that a fork has from its session."""
        self._handles: dict[str, ArrayHandle] = {}
        self._last: ArrayHandle | None = None
        self._files = changes.has_files if changes else state.has_files

    # -- look-ups -------------------------------------------------------------------------------------------

    def node(self, key: str) -> Node | None:
        """Return a node by its key."""
        return self.state.nodes.get(key) if self.changes is None else self.changes.node(key)

    @property
    def has_files(self) -> bool:
        """True if there are files, whose keys may be those of chunks."""
        return self._files

    def handle(self, node: Node) -> ArrayHandle:
        """Return the handle of an array or file."""
        handle = self._handles.get(node.key)
        if handle is None or handle.node is not node:
            info = None if node.kind == NodeKind.FILE else array_info(node.documents)
            prefix, separator = "", ""
            if info is not None and len(info.encodings) == 1 and info.grid:
                prefix = (node.path + "/" if node.path else "") + info.chunk_prefixes[0]
                separator = info.encodings[0][1]
            changes = None if self.changes is None else self.changes.arrays.get(node.id)
            handle = self._handles[node.key] = ArrayHandle(
                node, info, prefix, separator, changes, self.beneath.by_id(node.id)
            )
        return handle

    def forget(self) -> None:
        """Drop all handles, after nodes have changed."""
        self._handles.clear()
        self._last = None
        if self.changes is not None:
            self._files = self.changes.has_files

    def chunk(self, key: str) -> tuple[ArrayHandle, tuple[int, ...]] | None:
        """Return array and coordinates of the key of a chunk or file; coordinates may be outside of the grid."""
        last = self._last
        if last is not None and not self._files and key.startswith(last.prefix):
            try:
                coords = tuple(map(known_index, key[len(last.prefix) :].split(last.separator)))
            except KeyError:  # an uncached index, or not a chunk
                return self._find_chunk(key)
            if len(coords) == len(last.grid):
                return last, coords
        return self._find_chunk(key)

    def _find_chunk(self, key: str) -> tuple[ArrayHandle, tuple[int, ...]] | None:
        target = self._find_array_chunk(key)
        if target is not None and target[0].inside(target[1]):
            return target  # whatever file has this key: appends of others have moved the end of the array beyond it
        if self._files or key.startswith(HIDDEN):  # not covered by `_files`, to keep chunk look-ups fast
            file = self.node(file_key(key))
            if file is not None:
                return self.handle(file), ()
        return target

    def is_covered(self, file: Node) -> bool:
        """Tell whether the key of a file is one of a chunk in the grid of an array, which counts instead of it."""
        target = self._find_array_chunk(file.path)
        return target is not None and target[0].inside(target[1])

    def _find_array_chunk(self, key: str) -> tuple[ArrayHandle, tuple[int, ...]] | None:
        path, name = split_document(key) or ("\0", "")
        cut = -1 if (owner := self.node(path)) is not None and name in owner.documents else len(key)
        while cut >= 0:
            cut = key.rfind("/", 0, cut) if cut else -1
            path = key[:cut] if cut >= 0 else ""
            node = self.node(path)
            if node is not None and node.kind == NodeKind.ARRAY:
                handle = self.handle(node)
                assert handle.info is not None
                coords = handle.info.parse(key[cut + 1 :] if cut >= 0 else key)
                if coords is None:
                    return None
                if handle.separator:
                    self._last = handle
                return handle, coords
        return None

    # -- tracking reads -------------------------------------------------------------------------------------

    @contextmanager
    def untracked(self) -> Iterator[None]:
        """Suspend the tracking of reads by this thread or task, for look-ups by the library itself."""
        token = _untracked.set(self)
        try:
            yield
        finally:
            _untracked.reset(token)

    @property
    def noted(self) -> ReadSet | None:
        """The read set to add current reads to; None if they are not tracked."""
        return None if self.reads is None or _untracked.get() is self else self.reads

    def _note_chunk(self, reads: ReadSet, handle: ArrayHandle, coords: tuple[int, ...]) -> None:
        """Add a chunk of the snapshot to the read set, unless this session wrote or placed it."""
        if _untracked.get() is not self and (handle.as_committed or self._is_committed(handle, coords)):
            reads.chunk(handle.node.id, coords)

    def _is_committed(self, handle: ArrayHandle, coords: tuple[int, ...]) -> bool:
        if handle.committed is None or not all(map(lt, coords, handle.committed_grid)):
            return False
        return not speaks_of(handle.own_layers, coords, self.reader)

    def _note_outside(self, handle: ArrayHandle) -> None:
        """Add the metadata of an array to the read set, after a look-up outside of its grid."""
        reads = self.noted
        if reads is not None and handle.committed is not None:
            reads.node(handle.committed.key)

    # -- reading --------------------------------------------------------------------------------------------

    def document(self, key: str) -> bytes | None:
        """Return a metadata document of a node."""
        document_key = split_document(key)
        if document_key is None:
            if self.reads is not None and (reads := self.noted) is not None:
                note_missing(reads, self.beneath, self.changes, key)
            return None
        node = self.node(document_key[0])
        if self.reads is not None and (reads := self.noted) is not None:
            note_document(reads, self.beneath, self.changes, key, document_key[1], node)
        return None if node is None else node.documents.get(document_key[1])

    def _changed(self, handle: ArrayHandle, coords: tuple[int, ...]) -> ChunkReference | None:
        """Return this session's reference of a chunk, with source `DELETED` for a deleted one; None if unchanged."""
        changes = handle.changes
        if changes is None:
            return None
        assert self.changes is not None
        with self.changes.lock:  # another thread may resize the array, which renumbers its chunks
            entry = changes.table.get(changes.table.number(coords))
            return DELETED_CHUNK if entry is None and changes.hides(coords) else entry

    def get_sync(self, key: str, window: Window = whole_chunk) -> BytesLike | None:
        """Return a value, or the window of it; None if the key is missing."""
        target = self.chunk(key)
        return self._document_part(key, window) if target is None else self.get_chunk_sync(*target, window)

    def get_chunk_sync(
        self,
        handle: ArrayHandle,
        coords: tuple[int, ...],
        window: Window = whole_chunk,
        *,
        virtual: bool = True,
        memory: ReadMemory | None = None,
    ) -> BytesLike | None:
        """Return a chunk, or the window of it; None if there is none.

        Without `virtual`, `VirtualChunkError` is raised for a virtual one.  It may be in `memory`, until the next one.
        """
        if not handle.inside(coords):
            self._note_outside(handle)
            return None
        place: ReferencePosition | Layer | None
        entry = None if handle.changes is None else self._changed(handle, coords)
        if entry is not None:
            if entry.source == DELETED:
                return None
            part = self._entry_at_hand(entry, window)
            if part is not None:
                return part
            place = self._entry_place(entry)
        else:
            if self.reads is not None:
                self._note_chunk(self.reads, handle, coords)
            place = self._place(handle, coords)
            if isinstance(place, Layer):
                place = self.reader.find_sync(handle.layers_of(coords), coords)
        if place is None:
            return None
        if not virtual and self.reader.is_virtual(place):
            raise VirtualChunkError
        try:
            return self.reader.read_sync(place, window, memory)
        except (ChunkDamagedError, SourceChangedError) as error:
            refused = [error.of_chunk(handle.node.path, coords)]
        raise refused.pop()  # outside of the handler, whose error's frames reference the chunk, and without a cycle

    def _read_file(self, file: Node) -> BytesLike | None:
        return self.get_chunk_sync(self.handle(file), ())

    def _place(self, handle: ArrayHandle, coords: tuple[int, ...]) -> ReferencePosition | Layer | None:
        """Look up a committed chunk without a request; a layer if its manifest has to be loaded first."""
        sole = handle.sole
        if sole is None:
            reference = self.reader.find_cached(handle.layers_of(coords), coords)
            if isinstance(reference, tuple) and len(handle.layers) == 1 and handle.layers[0].shift is None:
                handle.sole = reference[0]
            return reference
        at = sole.find(coords)
        return None if at < 0 or sole.source.item(at) == sole.deleted_source else (sole, at)

    async def get(self, key: str, window: Window = whole_chunk) -> BytesLike | None:
        """Return a value, or the window of it; None if the key is missing."""
        target = self.chunk(key)
        if target is None:
            return self._document_part(key, window)
        handle, coords = target
        if not handle.inside(coords):
            self._note_outside(handle)
            return None
        if handle.changes is not None:
            entry = self._changed(handle, coords)
            if entry is not None:
                if entry.source == DELETED:
                    return None
                part = self._entry_at_hand(entry, window)
                return await self._read(handle, coords, self._entry_place(entry), window) if part is None else part
        if self.reads is not None:
            self._note_chunk(self.reads, handle, coords)
        place = self._place(handle, coords)
        if isinstance(place, Layer):
            place = await self.reader.find(handle.layers_of(coords), coords)
        return None if place is None else await self._read(handle, coords, place, window)

    async def _read(
        self, handle: ArrayHandle, coords: tuple[int, ...], place: ReferencePosition, window: Window
    ) -> BytesLike:
        try:
            return await self.reader.read(place, window)
        except (ChunkDamagedError, SourceChangedError) as error:
            refused = [error.of_chunk(handle.node.path, coords)]
        raise refused.pop()

    def _document_part(self, key: str, window: Window) -> BytesLike | None:
        document = self.document(key)
        if document is None:
            return None
        start, stop = window(len(document))
        return document[start:stop]

    def _entry_at_hand(self, entry: ChunkReference, window: Window) -> BytesLike | None:
        """Return bytes of a chunk of this session that are in memory."""
        assert self.changes is not None
        source, offset, length = entry
        start, stop = window(length)
        if start >= stop:
            return b""
        if source == INLINE:
            return self.changes.inline[offset + start : offset + stop]  # a view would keep the buffer from growing
        return self.changes.packs.read(source, offset + start, offset + stop) if source < VIRTUAL else None

    def _entry_place(self, entry: ChunkReference) -> ReferencePosition:
        """Return the reference of a chunk of this session that is not in memory."""
        assert self.changes is not None
        source, offset, length = entry
        if source < VIRTUAL:
            return sole_reference(0, offset, length, self.changes.packs.packs[source])
        return sole_reference(source - VIRTUAL, offset, length, locations=self.changes.locations())

    async def length(self, key: str) -> int | None:
        """Return the length of a value without reading it; None if the key is missing."""
        target = self.chunk(key)
        if target is None:
            document = self.document(key)
            return None if document is None else len(document)
        reference = await self.reference(*target)
        return None if reference is None else reference.length

    async def reference(self, handle: ArrayHandle, coords: tuple[int, ...]) -> ChunkReference | None:
        """Return where a chunk is, without reading it; None if there is none."""
        if not handle.inside(coords):
            self._note_outside(handle)
            return None
        entry = self._changed(handle, coords)
        if entry is not None:
            return None if entry.source == DELETED else entry
        if self.reads is not None:
            self._note_chunk(self.reads, handle, coords)
        place = await self.reader.find(handle.layers_of(coords), coords)
        return None if place is None else reference_at(*place)

    # -- writing --------------------------------------------------------------------------------------------

    def writable(self) -> ChangeSet:
        """Return the change set; raises `ReadOnlyError` if there is none."""
        if self.changes is None:
            raise ReadOnlyError("the session is read-only: open a writable one to make changes")
        return self.changes

    def _target(self, key: str) -> tuple[ArrayHandle, tuple[int, ...]]:
        """Return array and coordinates for a value that is not a document, or a new file for another key."""
        target = self.chunk(key)
        if target is None:
            changes = self.writable()
            with changes.lock:
                check_key(key)
                file = changes.node(file_key(key))
                if file is None:
                    file = file_node(key, NodeId(changes.packs.environment.new_id()))
                    changes.put_node(file)
                    self._files = changes.has_files
                return self.handle(file), ()
        handle, coords = target
        if not handle.inside(coords):
            raise InvalidKeyError(
                f"{key!r}: chunk {coords} is outside of the grid {handle.grid} of array {handle.node.path!r}"
            )
        return target

    def _record(self, changes: ChangeSet, handle: ArrayHandle, coords: tuple[int, ...], entry: ChunkReference) -> None:
        handle.changes = changes.put_chunk(handle.node, coords, entry)

    def set_sync(self, key: str, data: memoryview) -> None:
        """Set a value."""
        self.writable()
        if key.endswith(DOCUMENT_NAMES) and self._set_document(key, data):
            return
        self.set_chunk_sync(*self._target(key), data)

    def set_chunk_sync(self, handle: ArrayHandle, coords: tuple[int, ...], data: memoryview) -> None:
        """Set a chunk of the grid."""
        changes = self.writable()
        if not self._set_small(changes, handle, coords, data):
            self._record(changes, handle, coords, changes.packs.add(data))

    async def set(self, key: str, data: memoryview) -> None:
        """Set a value; large chunks are uploaded while other tasks run."""
        changes = self.writable()
        if key.endswith(DOCUMENT_NAMES) and self._set_document(key, data):
            return
        handle, coords = self._target(key)
        if not self._set_small(changes, handle, coords, data):
            self._record(changes, handle, coords, await changes.packs.add_async(data))

    def set_if_untouched(self, key: str, data: memoryview) -> None:
        """Set a value that the snapshot lacks, unless this session has set it since."""
        changes = self.writable()
        with changes.lock:
            target = self.chunk(key)
            present = self.document(key) if target is None else self._changed(*target)
            if present is None or present == DELETED_CHUNK:
                self.set_sync(key, data)

    def _set_small(self, changes: ChangeSet, handle: ArrayHandle, coords: tuple[int, ...], data: memoryview) -> bool:
        """Inline a small chunk, or overwrite one in the open pack; False for any other."""
        if len(data) <= changes.packs.settings.inline:
            self._record(changes, handle, coords, changes.put_inline(data))
            return True
        written = handle.changes
        if written is None:
            return False
        with changes.lock:
            entry = written.table.get(written.table.number(coords))
            return entry is not None and entry.source >= 0 and changes.packs.replace(*entry, data)

    def _set_document(self, key: str, data: memoryview) -> bool:
        """Set a metadata document; False if key or bytes are not those of one."""
        document_key = split_document(key)
        if document_key is None:
            return False
        path, name = document_key
        check_key(key)
        changes = self.writable()
        with changes.lock:
            node = changes.node(path)
            document = without_consolidated(name, bytes(data), None if node is None else node.documents.get(name))
            if document is None:
                return True
            if name in _MAKES_NODE:
                made = node_type(name, document)
                if made is None:
                    if node is not None and name in node.documents:
                        raise InvalidInputError(
                            f"{key!r}: the bytes must be metadata that this release can read, else they would make "
                            f"{node.kind.name.lower()} {path!r} unreadable; delete it first"
                        )
                    return False
                kind = NodeKind.ARRAY if made == "array" else NodeKind.GROUP
                self._make_node(changes, path, name, kind, document, node)
                array = changes.node(path)
                if kind == NodeKind.ARRAY and array is not None and self._files and changes.has_files_below(path):
                    early_chunks.adopt_early_chunks(changes, node, array, self._read_file, self.set_sync)
            elif node is None:
                return False  # kept as a file until its node exists
            else:
                changes.put_node(replace(node, documents={**node.documents, name: document}))
            self._drop_file(changes, key)
            self.forget()
        return True

    def _make_node(
        self, changes: ChangeSet, path: str, name: str, kind: NodeKind, document: bytes, node: Node | None
    ) -> None:
        self._check_place(changes, path, kind, node)
        documents = {name: document}
        if node is not None:
            if node.kind != kind and name not in node.documents:
                raise InvalidKeyError(
                    f"{join(path, name)!r} would make a {kind.name.lower()} of {node.kind.name.lower()} {path!r}, "
                    "which exists in the other Zarr format; delete it first"
                )
            if node.kind == kind:
                documents = {**node.documents, name: document}
                if kind == NodeKind.GROUP or keeps_chunks(path, node.documents, name, document):
                    changes.put_node(replace(node, documents=documents))
                    return
            changes.remove_node(node)
        early = join(path, ".zattrs")  # zarr may write attributes before the node that they belong to
        if self._files and changes.node(file_key(early)) is not None:
            documents[".zattrs"] = bytes(self.get_sync(early) or b"{}")
            self._drop_file(changes, early)
        changes.put_node(Node(NodeId(changes.packs.environment.new_id()), path, kind, documents))

    def _check_place(self, changes: ChangeSet, path: str, kind: NodeKind, node: Node | None) -> None:
        if node is not None and node.kind == kind:
            return
        for above in ancestors(path):
            parent = changes.node(above)
            if parent is not None and parent.kind == NodeKind.ARRAY:
                raise InvalidKeyError(f"{path!r} cannot be a node: its ancestor {above!r} is an array")
        if kind == NodeKind.ARRAY and changes.has_nodes_below(path):
            raise InvalidKeyError(f"{path!r} cannot be an array: there are nodes below it")

    def _drop_file(self, changes: ChangeSet, path: str) -> None:
        if self._files:
            file = changes.node(file_key(path))
            if file is not None:
                changes.remove_node(file)

    def delete(self, key: str) -> None:
        """Delete a value, if there is one."""
        changes = self.writable()
        with changes.lock:
            document = split_document(key)
            node = None if document is None else changes.node(document[0])
            if document is not None and node is not None and document[1] in node.documents:
                self._delete_document(changes, node, document[1])
                self.forget()
                return
            target = self.chunk(key)
            if target is None:
                return
            handle, coords = target
            if handle.info is None:
                changes.remove_node(handle.node)
                self.forget()
            elif handle.inside(coords):
                self.delete_chunk(handle, coords)

    def delete_chunk(self, handle: ArrayHandle, coords: tuple[int, ...]) -> None:
        """Delete a chunk of the grid, if there is one."""
        changes = self.writable()
        changes.deletes(handle.node, coords)
        handle.changes = changes.arrays.get(handle.node.id)

    def _delete_document(self, changes: ChangeSet, node: Node, name: str) -> None:
        rest = {n: document for n, document in node.documents.items() if n != name}
        if any(n in _MAKES_NODE for n in rest):
            changes.put_node(replace(node, documents=rest))
            return
        changes.remove_node(node)
        for n, document in rest.items():  # attributes without a node are files
            self.set_sync(join(node.path, n), memoryview(document))

    def delete_prefix(self, prefix: str) -> list[Node]:
        """Delete nodes and files at or below a path, and return the arrays above it, which may have chunks below."""
        changes = self.writable()
        path = prefix.strip("/")
        below = path + "/" if path else ""
        above: list[Node] = []
        if (reads := self.noted) is not None:
            for place in places_beneath(self.beneath, changes, path):
                reads.listing(place, recursive=True)
            for moved in moved_below(self.beneath, changes, below):
                reads.listing(moved.path, recursive=True)
        with changes.lock:
            for node in visible(changes.all_nodes(), path):
                is_file = node.kind == NodeKind.FILE
                if node.path.startswith(below) or (node.path == path and not is_file):
                    changes.remove_node(node)
                elif node.kind == NodeKind.ARRAY and below.startswith(node.path + "/" if node.path else ""):
                    above.append(node)
            self.forget()
        return above
