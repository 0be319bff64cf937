"""Strategies for every value of the format, and what makes two of them equal."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from arraystore._format.box import MAX_VOLUME, Box
from arraystore._format.chunk_statistics import ChunkStatistics
from arraystore._format.collection import Collection, LogSeen
from arraystore._format.columns import narrow
from arraystore._format.fork_payload import ChangePayload, ForkChanges, Part, WrittenArray
from arraystore._format.history import HistoryPage, SnapshotRow, Survivors, page_span
from arraystore._format.intent import PATIENCE, Intent, Proposal
from arraystore._format.layer import Attachment, EnclosingRecord, Layer
from arraystore._format.lifecycle import BranchLife, Deleted, Expiry, Fence, Origin, Reset
from arraystore._format.locations import NO_LOCATIONS, Locations, locations_from_urls
from arraystore._format.manifest import MAX_REACH, Manifest
from arraystore._format.node import Node, NodeKind
from arraystore._format.record import (
    MOST_PACKS_IN_BODY,
    Birth,
    Body,
    Commit,
    Replacement,
    Rewrite,
    Transaction,
    encode_note,
)
from arraystore._format.refs import Hint, RepositoryInfo
from arraystore._format.repository_log import (
    FIRST_BRANCH,
    BranchRow,
    RepositoryEntry,
    RepositoryOperation,
    RepositoryRecord,
    RepositoryTable,
    Tag,
    carried_from,
)
from arraystore._format.snapshot import Checkpoint, PageRef
from arraystore._format.transaction import Append, ChunkChange, NodeChange, Operation, Presence, TransactionLog
from arraystore._format.wire import LATEST_TIME
from arraystore._format.zarr_changes import DECODING_BYTES

LARGEST = (1 << 63) - 1

ids = st.binary(min_size=12, max_size=12)
times = st.integers(0, LATEST_TIME)
numbers = st.integers(0, 1 << 40)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
branches = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
part = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=6).filter(
    lambda p: p not in (".", "..")
)
paths = st.lists(part, min_size=1, max_size=3).map("/".join)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
metadata = st.dictionaries(text, json_values, max_size=3)
notes = st.builds(encode_note, text, metadata)


@st.composite
def boxes(draw: st.DrawFn, most_cells: int = MAX_VOLUME, largest_low: int = 1 << 60) -> Box:
    sides: list[int] = []
    for _ in range(draw(st.integers(0, 6))):
        room = most_cells // math.prod(sides)
        sides.append(draw(st.integers(1, max(1, min(room, 1 << 61)))))
    low = tuple(draw(st.integers(0, largest_low)) for _ in sides)
    return Box(low, tuple(a + b for a, b in zip(low, sides, strict=True)))


@st.composite
def locations(draw: st.DrawFn, most: int = 5) -> Locations:
    count = draw(st.integers(1, most))
    urls = draw(st.lists(text, min_size=count, max_size=count))
    etags = draw(st.none() | st.lists(st.none() | text, min_size=count, max_size=count))
    modified = draw(st.none() | st.lists(st.integers(0, LARGEST), min_size=count, max_size=count))
    return locations_from_urls(urls, etags, modified)


@st.composite
def manifests(draw: st.DrawFn, most_cells: int = 1 << 62) -> Manifest:
    box = draw(boxes(draw(st.sampled_from([30, most_cells]))))
    if box.volume <= 30 and draw(st.booleans()):
        index, count = None, box.volume
    else:
        cells = draw(st.sets(st.integers(0, box.volume - 1), min_size=1, max_size=min(30, box.volume)))
        index, count = np.array(sorted(cells), dtype=np.int64), len(cells)
        if count == box.volume:
            index = None
    packs = b"".join(draw(st.lists(ids, max_size=4)))
    table = draw(locations()) if draw(st.booleans()) else NO_LOCATIONS
    inline = draw(st.binary(max_size=40))
    used = len(packs) // 12 + len(table)
    return _with_references(draw, Manifest(box, index, *_nothing(count), packs, table, inline), used, count)


def _nothing(count: int) -> tuple[Any, Any, Any]:
    return (np.zeros(count, dtype=np.uint8),) * 3


def _with_references(draw: st.DrawFn, manifest: Manifest, used: int, count: int) -> Manifest:
    source, offset, length = [], [], []
    for _ in range(count):
        kind = draw(st.integers(0, used + 1))
        most = MAX_REACH - 1 - 16  # with the checksum and padding of a pack
        if kind == used:
            most = len(manifest.inline)
        elif kind == used + 1:
            most = 0
        start = draw(st.integers(0, most))
        source.append(kind)
        offset.append(start)
        length.append(draw(st.integers(0, most - start)))
    columns = [narrow(np.array(c, dtype=np.int64)) for c in (source, offset, length)]
    return Manifest(manifest.box, manifest.index, *columns, manifest.packs, manifest.locations, manifest.inline)


def attachments_of(record: EnclosingRecord | None) -> st.SearchStrategy[Attachment]:
    other = st.builds(Attachment, branches, numbers, st.integers(0, 70))
    if record is None:
        return other
    return other | st.builds(Attachment, st.just(record.branch), st.just(record.sequence), st.integers(0, 70))


@st.composite
def layers(draw: st.DrawFn, record: EnclosingRecord | None = None, dimensions: int | None = None) -> Layer:
    box = draw(boxes() if dimensions is None else boxes().filter(lambda b: len(b.low) == dimensions))
    count = draw(st.integers(1, min(box.volume, 1 << 20)))
    where = draw(st.integers(0, 2))
    shift = draw(st.none() | st.tuples(*[st.integers(1 - (1 << 62), (1 << 62) - 1)] * len(box.low)))
    return Layer(
        draw(ids),
        box,
        count,
        draw(st.booleans()),
        draw(st.binary(max_size=30)) if where == 1 else None,
        draw(attachments_of(record)) if where == 2 else None,
        shift,
    )


documents = st.dictionaries(st.sampled_from(["zarr.json", ".zarray", ".zgroup", ".zattrs"]), st.binary(max_size=60))


@st.composite
def node_changes(draw: st.DrawFn) -> NodeChange:
    operation = draw(st.sampled_from(Operation))
    kind = draw(st.sampled_from(NodeKind))
    found: dict[str, bytes | None] = {}
    if kind != NodeKind.FILE and operation in (Operation.CREATED, Operation.UPDATED):
        found = dict(draw(documents))
        if operation == Operation.UPDATED and draw(st.booleans()):
            found[".zmetadata"] = None
    target = draw(paths) if operation == Operation.MOVED else None
    append = draw(appends()) if operation == Operation.APPENDED else None
    kind = NodeKind.ARRAY if append is not None else kind
    return NodeChange(operation, draw(ids), draw(paths), kind, found, target, append)


@st.composite
def appends(draw: st.DrawFn) -> Append:
    chunk = draw(st.integers(1, 1 << 20))
    return Append(draw(st.integers(0, 63)), chunk * draw(st.integers(0, 1 << 20)), draw(st.integers(1, 1 << 40)), chunk)


@st.composite
def chunk_changes(draw: st.DrawFn, record: EnclosingRecord | None = None) -> ChunkChange:
    layer = draw(layers(record))
    if layer.dense or layer.inline is not None:
        return ChunkChange(draw(ids), layer)
    cells = sorted(draw(st.sets(st.integers(0, layer.box.volume - 1), min_size=1, max_size=20)))
    layer = Layer(layer.id, layer.box, len(cells), layer.deletions, None, layer.attachment, layer.shift)
    if layer.dense:
        return ChunkChange(draw(ids), layer)
    presence = Presence.of(layer.box, np.array(cells, dtype=np.int64), len(cells))
    return ChunkChange(draw(ids), layer, (presence.kind, presence.data))


@st.composite
def logs(draw: st.DrawFn, record: EnclosingRecord | None = None) -> TransactionLog:
    found = draw(st.lists(node_changes(), max_size=3, unique_by=lambda change: change.id))
    chunks = draw(st.lists(chunk_changes(record), max_size=3))
    grown = [change.id for change in found if change.append is not None]
    for number, chunk in enumerate(chunks):
        if grown and draw(st.booleans()):
            layer = replace(chunk.layer, shift=None)
            chunks[number] = replace(chunk, node=draw(st.sampled_from(grown)), layer=layer, appended=True)
    return TransactionLog(tuple(found), tuple(chunks))


@st.composite
def transactions(draw: st.DrawFn, record: EnclosingRecord) -> Transaction:
    attachment = st.integers(0, 100)
    first = draw(st.integers(0, 80))
    log = draw(logs(record._replace(first=first)) | attachment | ids)
    told = draw(ids), draw(ids), draw(times), draw(st.integers(0, 1)), draw(notes | attachment)
    return Transaction(*told, log, first, draw(st.none() | ids), draw(packs))


packs = st.none() | st.lists(ids, max_size=MOST_PACKS_IN_BODY).map(b"".join)
origins = st.builds(Origin, branches, numbers, ids)


@st.composite
def lives(draw: st.DrawFn) -> BranchLife:
    start, ended = draw(numbers), draw(st.just(-1) | numbers)
    deleted = draw(st.just(False) | st.just(ended > start))
    told = start, draw(st.none() | origins), draw(ids), draw(st.booleans()), deleted
    fenced = draw(st.just(-1) | numbers)
    if draw(st.booleans()):
        return BranchLife(*told, draw(numbers), fenced=fenced, ended=ended)
    return BranchLife(*told, draw(numbers), draw(numbers), draw(ids), draw(st.none() | ids), fenced, ended)


def lifecycle_entries(sequence: int) -> st.SearchStrategy[Reset | Deleted | Fence | Expiry]:
    """Entries of a record that change no data."""
    resets = st.builds(Reset, ids, st.none() | ids, times, origins, lives(), ids, numbers)
    fences = st.builds(Fence, ids, times, st.booleans())
    expiries = st.builds(Expiry, times, st.integers(0, max(sequence - 1, 0)), ids, st.none() | ids)
    return resets | st.builds(Deleted, ids, st.none() | ids, times, lives()) | fences | expiries


def bodies(record: EnclosingRecord) -> st.SearchStrategy[Body]:
    births = st.builds(Birth, ids, st.none() | ids, times, st.none() | origins, ids, numbers)
    listed = st.lists(transactions(record), min_size=1, max_size=3).map(tuple)
    commits = st.builds(Commit, listed, st.lists(ids, max_size=3).map(tuple))
    added = st.lists(layers(record), max_size=2).map(tuple)
    replacements = st.builds(Replacement, ids, ids, ids, st.integers(1, 1 << 20), added)
    rewrites = st.builds(Rewrite, st.lists(replacements, min_size=1, max_size=2).map(tuple), packs)
    return births if record.sequence == 0 else commits | rewrites | lifecycle_entries(record.sequence)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    kind = draw(st.sampled_from(NodeKind))
    dimensions = 0 if kind == NodeKind.FILE else draw(st.integers(0, 3))
    found = () if kind == NodeKind.GROUP else tuple(draw(st.lists(layers(None, dimensions), max_size=3)))
    path = draw(paths if kind == NodeKind.FILE else paths | st.just(""))
    return Node(draw(ids), path, kind, {} if kind == NodeKind.FILE else draw(documents), found)


page_refs = st.builds(PageRef, st.integers(1, 10), numbers, ids, ids)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    unique = draw(st.lists(nodes(), max_size=4, unique_by=(lambda n: n.key, lambda n: n.id)))
    return Checkpoint(
        draw(branches),
        draw(numbers),
        draw(ids),
        draw(st.none() | ids),
        draw(times),
        draw(notes),
        tuple(sorted(unique, key=lambda n: n.key)),
        tuple(draw(st.lists(page_refs, max_size=3))),
        draw(lives()),
    )


@st.composite
def snapshot_rows(draw: st.DrawFn, first: int, last: int) -> tuple[SnapshotRow, ...]:
    count = draw(st.integers(0, 6))
    sequences = sorted(draw(st.lists(st.integers(first, last), min_size=count, max_size=count)))
    found = draw(st.lists(ids, min_size=count, max_size=count, unique=True))
    parent = st.none() | ids.filter(any)
    return tuple(
        SnapshotRow(s, i, draw(parent), draw(times), draw(notes)) for s, i in zip(sequences, found, strict=True)
    )


@st.composite
def history_pages(draw: st.DrawFn) -> HistoryPage:
    level, index = draw(st.integers(1, 3)), draw(st.integers(0, 1 << 20))
    rows = draw(snapshot_rows(*page_span(level, index)))
    return HistoryPage(draw(branches), level, index, rows, tuple(draw(st.lists(st.tuples(numbers, ids), max_size=2))))


@st.composite
def survivors(draw: st.DrawFn) -> Survivors:
    upto = draw(numbers)
    rows = draw(snapshot_rows(0, upto))
    checkpoints = tuple(draw(st.lists(ids, min_size=len(rows), max_size=len(rows))))
    left = st.none() | ids.filter(any)
    return Survivors(draw(branches), upto, rows, checkpoints, tuple(draw(st.lists(st.tuples(ids, left), max_size=3))))


@st.composite
def repository_entries(draw: st.DrawFn) -> RepositoryEntry:
    operation = draw(st.sampled_from(RepositoryOperation))
    created = operation in (RepositoryOperation.TAG_CREATED, RepositoryOperation.BRANCH_CREATED)
    named = created or operation in (RepositoryOperation.TAG_DELETED, RepositoryOperation.BRANCH_DELETED)
    return RepositoryEntry(
        operation,
        draw(times),
        draw(branches if named else text),
        draw(ids if created else st.none() | ids),
        draw(st.none() | ids),
        draw(origins if created else st.none() | origins),
        draw(json_values),
        draw(ids if operation == RepositoryOperation.WATERMARK else st.none() | ids),
        draw(st.none() | ids),
    )


def branch_rows() -> st.SearchStrategy[BranchRow]:
    from_snapshot = st.builds(BranchRow, numbers, st.booleans(), ids, st.none() | ids, origins, ids)
    return from_snapshot | st.builds(BranchRow, numbers, st.booleans())


@st.composite
def repository_tables(draw: st.DrawFn, number: int) -> RepositoryTable:
    tags = st.dictionaries(branches, st.builds(Tag, ids, origins), max_size=3)
    named = {**draw(st.dictionaries(branches, branch_rows(), max_size=3)), FIRST_BRANCH: draw(branch_rows())}
    settings = draw(st.dictionaries(text, json_values, max_size=3))
    burnt = draw(st.frozensets(branches, max_size=3))
    return RepositoryTable(number, draw(tags), burnt, named, settings, draw(ids), draw(st.none() | ids))


@st.composite
def repository_records(draw: st.DrawFn) -> RepositoryRecord:
    number = draw(st.integers(1, 5) | st.sampled_from([64, 65, 66, 128]) | st.integers(1, 200))
    entry = draw(repository_entries())
    entries = [draw(repository_entries()) if at % 20 == 0 else entry for at in range(carried_from(number), number + 1)]
    return RepositoryRecord(number, tuple(entries), None if number % 64 else draw(repository_tables(number)))


@st.composite
def intents(draw: st.DrawFn) -> Intent:
    number = draw(numbers)
    proposals = st.builds(
        lambda *told: Proposal(*told[:2], TransactionLog(), None, (), *told[2:]),
        *(ids, st.builds(encode_note, st.just("short"), st.just({})), times, st.integers(0, 1)),
        st.dictionaries(ids, st.tuples(st.integers(0, 63), numbers, st.none() | st.integers(1, 1 << 40)), max_size=2),
        st.dictionaries(ids, st.lists(numbers, max_size=3).map(tuple), max_size=2),
        *(st.none() | st.binary(max_size=10), st.lists(ids, max_size=2).map(tuple), st.none() | ids, packs),
    )
    last = draw(st.integers(number + 1, number + PATIENCE))
    found = draw(st.lists(proposals, min_size=1, max_size=2))
    return Intent(draw(branches), number, last, tuple(found))


@st.composite
def payloads(draw: st.DrawFn) -> ChangePayload:
    nodes = st.lists(node_changes(), max_size=3).map(tuple)
    parents = st.lists(st.tuples(ids, numbers), max_size=2).map(tuple)
    cuts = st.none() | st.lists(numbers, max_size=3).map(tuple)
    decodings = st.just(b"") | st.binary(min_size=DECODING_BYTES, max_size=DECODING_BYTES)
    written = st.lists(st.builds(WrittenArray, ids, decodings, cuts), max_size=2).map(tuple)
    fork = st.builds(ForkChanges, ids, numbers, numbers, nodes, st.binary(max_size=10), parents, written)
    forks = draw(st.lists(fork, min_size=1, max_size=3, unique_by=lambda item: item.fork))
    arrays = draw(st.lists(st.tuples(ids, paths), max_size=3, unique_by=lambda item: item[0]))
    found, parts, end = [], [], 0
    for manifest in draw(st.lists(manifests(), max_size=3)) if arrays else []:
        fork, array = draw(st.integers(0, len(forks) - 1)), draw(st.integers(0, len(arrays) - 1))
        parts.append(Part(fork, array, manifest.box, manifest.index))
        place = Box((end,), (end + manifest.count,))
        found.append(replace(manifest, box=place, index=None))
        end += manifest.count
    order = draw(st.none() | st.permutations(range(end)).map(lambda order: np.array(order, dtype=np.int64)))
    return ChangePayload(draw(ids), tuple(forks), tuple(arrays), tuple(parts), order if end else None, tuple(found))


repositories = st.builds(RepositoryInfo, ids, times, metadata)
collections = st.builds(
    Collection,
    ids,
    numbers,
    st.dictionaries(branches, st.builds(LogSeen, numbers, lives()), max_size=3),
    st.lists(ids, max_size=3).map(tuple),
    st.lists(ids, max_size=3).map(sorted).map(b"".join),
)
hints = st.builds(Hint, numbers, ids, numbers)


def plain(value: Any) -> Any:
    """Turn a value into one that compares by content, numpy columns and location tables included."""
    if isinstance(value, Manifest):
        table = value.locations
        where = [(table.url(i), table.etag(i), table.not_modified_after(i)) for i in range(len(table))]
        index = None if value.index is None else value.index.tolist()
        columns = [c.tolist() for c in (value.source, value.offset, value.length)]
        return (value.box, index, columns, value.packs, where, value.inline)
    if isinstance(value, Part):
        return (value.fork, value.array, value.box, value.numbers().tolist())
    if isinstance(value, ChangePayload):
        order = None if value.order is None else value.order.tolist()
        parts, tables = [plain(part) for part in value.parts], [plain(manifest) for manifest in value.manifests]
        known = [plain(table) for table in value.statistics]
        return (value.session, value.forks, value.arrays, parts, order, tables, known)
    if isinstance(value, ChunkStatistics):
        columns = (value.source, value.offset, value.length, value.least, value.greatest)
        counts = (value.nans, value.fills, value.valued)
        return (value.encoding, value.kind, value.packs, *(each.tolist() for each in (*columns, *counts)))
    return value
