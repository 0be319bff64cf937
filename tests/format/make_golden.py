"""One object of every kind, with every feature that its kind has, and the files that keep their bytes.

    python -m tests.format.make_golden

writes the files anew.  Manifests within other objects are small ones, which zstd leaves alone: its output may change
with its version, and bodies are compared byte for byte.  Writing anew is for a new object or a new format version only:
a file that changes otherwise means that repositories written before can no longer be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from arraystore._format.box import Box
from arraystore._format.chunk_statistics import ChunkStatistics, decode_statistics, encode_statistics
from arraystore._format.collection import Collection, LogSeen, decode_collection, encode_collection
from arraystore._format.envelope import Kind, pack_body
from arraystore._format.fork_payload import ChangePayload, ForkChanges, Part, decode_changes, encode_changes
from arraystore._format.history import (
    HistoryPage,
    SnapshotRow,
    Survivors,
    decode_history,
    decode_survivors,
    encode_history,
    encode_survivors,
)
from arraystore._format.intent import Intent, Proposal, decode_intent, encode_intent
from arraystore._format.layer import Attachment, Layer
from arraystore._format.lifecycle import BranchLife, Deleted, Expiry, Fence, Origin, Reset
from arraystore._format.locations import Locations
from arraystore._format.manifest import Manifest, decode_manifest, encode_manifest
from arraystore._format.node import Node, NodeKind
from arraystore._format.record import (
    Birth,
    Commit,
    Record,
    Replacement,
    Rewrite,
    Transaction,
    decode_record,
    encode_body,
    encode_note,
    encode_record,
    first_carried,
)
from arraystore._format.refs import Hint, RepositoryInfo, decode_hint, decode_repository, encode_hint, encode_repository
from arraystore._format.repository_log import (
    RepositoryEntry,
    RepositoryOperation,
    RepositoryRecord,
    RepositoryTable,
    carried_from,
    decode_repository_record,
    encode_repository_record,
)
from arraystore._format.snapshot import Checkpoint, PageRef, decode_checkpoint, encode_checkpoint
from arraystore._format.transaction import (
    Append,
    ChunkChange,
    NodeChange,
    Operation,
    Presence,
    TransactionLog,
    decode_transaction,
    encode_transaction,
)

DIRECTORY = Path(__file__).parent / "golden"
TIME = 1_700_000_000_123_456
BRANCH = "main/é"


@dataclass(frozen=True)
class Sample:
    """A value, and the codec of its kind.

    Parameters
    ----------
    name
        Of the golden file.
    kind
        Of the object.
    value
        What it holds.
    encode, decode
        The codec.
    """

    name: str
    kind: Kind
    value: Any
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    @property
    def path(self) -> Path:
        return DIRECTORY / f"{self.name}.bin"


def an_id(n: int) -> bytes:
    return (1_700_000_000_000 + n).to_bytes(6, "big") + bytes([n % 256] * 6)


def column(values: Any, dtype: str = "u8") -> Any:
    return np.array(values, dtype=dtype)


def dense_manifest() -> Manifest:
    """Neighbours in two packs: nothing to store but two changes of pack."""
    zeros = np.zeros(24, dtype="u1")
    source = column([0] * 12 + [1] * 12, "u1")
    offset = column([i % 12 * 1008 for i in range(24)], "u2")
    return Manifest(Box((2, 0, 5), (4, 3, 9)), None, source, offset, zeros + column([1000], "u2"), an_id(1) + an_id(2))


def bitmap_manifest() -> Manifest:
    """Packs, virtual chunks, inlined ones and deleted ones."""
    index = column([0, 3, 5, 6, 11], "i8")
    prefixes, ends = ("s3://bucket/dir/", "s3://bucket/"), column([5, 10], "i8")
    modified, etag_ends = column([1_600_000_000_250_000, 0], "i8"), column([6, 6], "i8")
    table = Locations(prefixes, column([0, 1], "i8"), ends, "é.ncother".encode(), etag_ends, b'"etag"', modified)
    return Manifest(
        Box((0, 10), (3, 14)),
        index,
        column([0, 1, 2, 3, 4], "u1"),
        column([4096, 1 << 40, 0, 1, 0]),
        column([100, 1 << 33, 1 << 20, 4, 0]),
        an_id(3),
        table,
        b"-tiny",
    )


def sparse_manifest() -> Manifest:
    index = column([7, 1 << 40, (1 << 61) - 1], "i8")
    nothing = column([0, 0, 0], "u1")
    length = column([5, 900, 17], "u2")
    return Manifest(Box((0, 1 << 20), (1 << 30, (1 << 20) + (1 << 31))), index, nothing, length - 5, length, an_id(4))


def point_manifest() -> Manifest:
    zero = column([0], "u1")
    return Manifest(Box((), ()), None, zero, zero, column([2], "u1"), inline=b"42")


def some_layers(branch: str = BRANCH, sequence: int = 65) -> tuple[Layer, ...]:
    return (
        Layer(an_id(10), Box((0, 10), (3, 14)), 5, True, None, Attachment(branch, sequence, 1)),
        Layer(an_id(11), Box((100, 0), (200, 1)), 100, False, None, None, (90, -3)),
        Layer(an_id(12), Box((0, 0), (1, 1)), 1, False, encode_manifest_plainly(), None),
        Layer(an_id(13), Box((0, 0), (1 << 31, 1 << 31)), 7, False, None, Attachment("other", 3, 0)),
    )


def encode_manifest_plainly() -> bytes:
    """Return a manifest of one cell of two dimensions; it is too small to be compressed."""
    zero = column([0], "u1")
    return encode_manifest(Manifest(Box((0, 0), (1, 1)), None, zero, zero, column([1], "u1"), inline=b"x"))


def a_log(branch: str = BRANCH, sequence: int = 65) -> TransactionLog:
    first, second, third, fourth = some_layers(branch, sequence)
    array, group, file = NodeKind.ARRAY, NodeKind.GROUP, NodeKind.FILE
    nodes = (
        NodeChange(Operation.DELETED, an_id(20), "gone/é", array, {}),
        NodeChange(Operation.CREATED, an_id(21), "", group, {"zarr.json": b'{"zarr_format":3,"node_type":"group"}'}),
        NodeChange(Operation.CREATED, an_id(22), "a/b", array, {".zarray": b"{}", ".zattrs": b"\xff"}),
        NodeChange(Operation.CREATED, an_id(23), "notes.txt", file, {}),
        NodeChange(Operation.UPDATED, an_id(24), "c", array, {".zattrs": None, ".zarray": b"{ }"}),
        NodeChange(Operation.MOVED, an_id(25), "old", group, {}, "new/place"),
        NodeChange(Operation.APPENDED, an_id(26), "series", array, {}, None, Append(1, 300, 20, 100)),
    )
    sparse = Presence.of(fourth.box, column([0, 1, 2, 3, 9, 1 << 40, (1 << 62) - 1], "i8"), 7)
    bitmap = Presence.of(first.box, column([0, 3, 5, 6, 11], "i8"), 5)
    return TransactionLog(
        nodes,
        (
            ChunkChange(an_id(22), first, (bitmap.kind, bitmap.data)),
            ChunkChange(an_id(22), second),
            ChunkChange(an_id(24), third),
            ChunkChange(an_id(24), fourth, (sparse.kind, sparse.data)),
            ChunkChange(an_id(26), replace(third, shift=None), None, appended=True),
        ),
    )


def the_bodies() -> dict[int, bytes]:
    """Return a log's entries: a birth, 64 commits, and what records 65 to 71 say."""
    note = encode_note("message", {"key": [1, 2.5, None, True, {"é": "text"}]})
    birth = Birth(an_id(30), an_id(29), TIME, Origin("other", 12, an_id(31)), an_id(2), 7)
    bodies = {0: encode_body(0, birth, BRANCH)}
    for n in range(1, 65):
        entry = Commit((Transaction(an_id(30 + n), an_id(29 + n), TIME + n, 0, note, TransactionLog()),))
        bodies[n] = encode_body(n, entry, BRANCH)
    several = (
        Transaction(an_id(95), an_id(94), TIME + 65, 1, note, a_log()),
        Transaction(an_id(96), an_id(95), TIME + 66, 0, 2, 3, 1, None, an_id(3) + an_id(4)),
        Transaction(an_id(97), an_id(95), TIME + 67, 0, note, an_id(98), 0, an_id(96), None),
    )
    bodies[65] = encode_body(65, Commit(several, (an_id(123), an_id(124))), BRANCH)
    added = some_layers(BRANCH, 66)[1:]
    replaced = (
        Replacement(an_id(22), an_id(10), an_id(13), 4, added),
        Replacement(an_id(24), an_id(5), an_id(5), 1, ()),
    )
    bodies[66] = encode_body(66, Rewrite(replaced, an_id(4)), BRANCH)
    bodies |= {number: encode_body(number, entry, BRANCH) for number, entry in the_lifecycle().items()}
    return bodies


def a_life() -> BranchLife:
    """Return what a log may say of its branch, everything in it."""
    origin = Origin("other/é", 12, an_id(31))
    return BranchLife(4100, origin, an_id(90), True, False, 7, 4150, an_id(141), an_id(142), 4151, 4099)


def the_lifecycle() -> dict[int, Reset | Deleted | Fence | Expiry]:
    """Return entries that change no data."""
    return {
        67: Reset(an_id(31), an_id(30), TIME, Origin(BRANCH, 1, an_id(140)), a_life(), an_id(2), 8),
        68: Fence(an_id(139), TIME, read_only=True),
        69: Expiry(TIME, 66, an_id(141), an_id(142)),
        70: Expiry(TIME, 69, an_id(143), None),
        71: Deleted(an_id(33), an_id(32), TIME, a_life()),
    }


def a_checkpoint() -> Checkpoint:
    first, second, third, fourth = some_layers()
    point = Layer(an_id(14), Box((), ()), 1, False, encode_manifest(point_manifest()))
    nodes = (
        Node(an_id(21), "", NodeKind.GROUP, {"zarr.json": b'{"zarr_format":3,"node_type":"group"}'}),
        Node(an_id(23), "notes.txt", NodeKind.FILE, {}, (point,)),
        Node(an_id(22), "a/b", NodeKind.ARRAY, {".zarray": b"{}", ".zattrs": b"\xff"}, (first, second)),
        Node(an_id(24), "c", NodeKind.ARRAY, {".zarray": b"{ }"}, (third, fourth)),
        Node(an_id(26), "é", NodeKind.ARRAY, {"zarr.json": b""}),
    )
    pages = (PageRef(2, 0, an_id(100), an_id(101)), PageRef(1, 64, an_id(102), an_id(103)))
    return Checkpoint(BRANCH, 4160, an_id(97), None, TIME, encode_note("message", {}), nodes, pages, a_life())


def a_page() -> HistoryPage:
    note = encode_note("message", {})
    rows = tuple(
        SnapshotRow(n // 2 * 2, an_id(n), an_id(n - 1) if n > 64 else None, TIME + 7 * n, note) for n in range(65, 80)
    )
    rows = (SnapshotRow(65, an_id(64), None, TIME, encode_note("", {})), *rows[2:])
    return HistoryPage(BRANCH, 1, 1, rows, ((64, an_id(200)), (128, an_id(201))))


def some_survivors() -> Survivors:
    """Two snapshots of one record, and one of another."""
    note = encode_note("kept", {"by": "tag"})
    rows = (
        SnapshotRow(0, an_id(30), None, TIME, note),
        SnapshotRow(65, an_id(96), an_id(30), TIME + 1, note),
        SnapshotRow(65, an_id(97), an_id(96), TIME + 2, note),
    )
    links = ((an_id(98), an_id(97)), (an_id(20), None))
    return Survivors(BRANCH, 66, rows, (an_id(150), an_id(151), an_id(152)), links)


def repository_entries() -> list[RepositoryEntry]:
    """Return one entry of each kind, the first ones of a log."""
    origin, kinds = Origin(BRANCH, 65, an_id(99)), RepositoryOperation
    return [
        RepositoryEntry(kinds.TAG_CREATED, TIME, "v1/é", an_id(97), an_id(96), origin),
        RepositoryEntry(kinds.TAG_CREATED, TIME, "v2", an_id(97), None, origin),
        RepositoryEntry(kinds.TAG_DELETED, TIME + 1, "v2"),
        RepositoryEntry(kinds.BRANCH_CREATED, TIME + 2, "side", an_id(97), an_id(96), origin),
        RepositoryEntry(kinds.BRANCH_CREATED, TIME + 2, "gone", an_id(30), None, origin),
        RepositoryEntry(kinds.BRANCH_DELETED, TIME + 3, "gone"),
        RepositoryEntry(kinds.SETTING, TIME + 4, "metadata", value={"é": [1, 2.5, None, True]}),
        RepositoryEntry(kinds.WATERMARK, TIME + 5, watermark=an_id(120)),
        RepositoryEntry(kinds.COLLECTED, TIME + 6, value={"bytes": 5}, watermark=an_id(120), object=an_id(121)),
        RepositoryEntry(kinds.EXPIRED, TIME + 7, value={"snapshots": 3}),
        RepositoryEntry(kinds.BRANCH_CREATED, TIME + 8, "late", an_id(97), None, origin),
    ]


def a_repository_record(number: int) -> RepositoryRecord:
    """Return a record of a log that begins with `repository_entries` and goes on with settings."""
    entries, table = repository_entries(), RepositoryTable()
    entries += [
        RepositoryEntry(RepositoryOperation.SETTING, TIME + n, f"s{n % 3}", value=n) for n in range(len(entries), 70)
    ]
    for entry in entries[:number]:
        table = table.after(entry)
    carried = tuple(entries[carried_from(number) - 1 : number])
    return RepositoryRecord(number, carried, None if number % 64 else table)


def a_collection() -> Collection:
    logs = {BRANCH: LogSeen(4160, a_life()), "new": LogSeen(0, BranchLife())}
    return Collection(an_id(160), 11, logs, (an_id(99), an_id(31)), an_id(161) + an_id(162))


def some_statistics(kind: str = "f") -> ChunkStatistics:
    """Three chunks in two packs, one of nothing but NaN and the fill value."""
    dtype = {"i": "<i8", "u": "<u8", "f": "<f8"}[kind]
    low, high = {"i": (-(2**63), 2**63 - 1), "u": (0, 2**64 - 1), "f": (-np.inf, 1.5)}[kind]
    places = [column(values, "i8") for values in ([0, 0, 1], [0, 16, 0], [9, 12, 1 << 20])]
    bounds = np.array([low, 0, 3], dtype=dtype), np.array([high, 0, 3], dtype=dtype)
    counts = column([0, 5, 1], "i8"), column([2, 7, 0], "i8"), np.array([True, False, True])
    return ChunkStatistics(b"\1\2\3\4\5\6\7\x08", kind, (an_id(5), an_id(6)), *places, *bounds, *counts)


def some_changes() -> ChangePayload:
    """Two forks that wrote to two arrays and a file; references are sorted by pack, cells by part."""
    forks = (
        ForkChanges(an_id(111), 3, 2, a_log().nodes[:3], b"reads"),
        ForkChanges(an_id(112), 4, 1),
    )
    arrays = ((an_id(22), "a/b"), (an_id(24), "c"), (an_id(23), "notes.txt"))
    parts = (
        Part(0, 0, Box((0, 10), (3, 14)), column([0, 3, 11], "i8")),
        Part(0, 2, Box((), ()), None),
        Part(1, 1, Box((7,), (9,)), None),
    )
    zero, one = column([0], "u1"), column([1], "u1")
    tables = (
        Manifest(Box((0,), (2,)), None, column([0, 0], "u1"), column([0, 9], "u1"), column([9, 5], "u1"), an_id(5)),
        Manifest(Box((2,), (3,)), None, zero, zero, one, inline=b"x"),
        Manifest(Box((3,), (4,)), None, one, zero, zero),
        Manifest(Box((4,), (6,)), None, column([0, 0], "u1"), column([3, 9], "u1"), column([4, 5], "u1"), an_id(6)),
    )
    return ChangePayload(an_id(110), forks, arrays, parts, column([2, 0, 3, 1, 5, 4], "i8"), tables)


def some_intent() -> Intent:
    """A transaction whose log travels in a body, and one with attachments and everything else."""
    log = a_log()
    small = Proposal(an_id(121), encode_note("one", {}), TransactionLog(log.nodes[:1]), None, (), TIME, 0)
    large = Proposal(
        an_id(122),
        encode_note("two", {"by": "é"}),
        TransactionLog(log.nodes[:2]),
        1,
        (b"note", pack_body(TransactionLog(log.nodes[:2]).to_wire())),
        TIME,
        1,
        {an_id(22): (0, 12, 4), an_id(24): (1, 5, None)},
        {an_id(22): (3, 0)},
        b"reads",
        (an_id(22), an_id(24)),
        an_id(3),
        an_id(3) + an_id(4),
    )
    return Intent(BRANCH, 65, 97, (small, large))


def samples() -> Iterator[Sample]:
    """Yield one or more of every kind."""
    name = "sample"
    info = RepositoryInfo(an_id(0), TIME, {"pack_target_bytes": 1 << 23, "nested": {"list": [1, "é"]}})
    yield Sample("repository", Kind.REPOSITORY, info, encode_repository, lambda d: decode_repository(name, d))
    for which in (dense_manifest, bitmap_manifest, sparse_manifest, point_manifest):
        yield Sample(which.__name__, Kind.MANIFEST, which(), encode_manifest, lambda d: decode_manifest(name, d))
    log = a_log()
    yield Sample(
        "transaction", Kind.TRANSACTION, log, partial(encode_transaction, name), lambda d: decode_transaction(name, d)
    )
    bodies = the_bodies()
    for number, attachments in ((0, ()), (64, ()), (65, (b"note", encode_manifest_plainly())), (66, ()), (71, ())):
        first = first_carried(number) if number else 0
        value = Record(BRANCH, number, bodies[number], attachments, tuple(bodies[n] for n in range(first, number)))
        yield Sample(f"record_{number}", Kind.RECORD, value, encode_record, _record_decoder(name, number))
    value = a_checkpoint()
    yield Sample(
        "checkpoint", Kind.CHECKPOINT, value, partial(encode_checkpoint, name), lambda d: decode_checkpoint(name, d)
    )
    yield Sample("history", Kind.HISTORY, a_page(), encode_history, lambda d: decode_history(name, d, BRANCH, 1, 1))
    left = a_collection()
    yield Sample(
        "collection", Kind.COLLECTION, left, partial(encode_collection, name), lambda d: decode_collection(name, d)
    )
    kept = some_survivors()
    yield Sample(
        "survivors", Kind.SURVIVORS, kept, partial(encode_survivors, name), lambda d: decode_survivors(name, d, BRANCH)
    )
    for number in (11, 64, 66):
        value = a_repository_record(number)
        decode = _repository_decoder(name, number)
        yield Sample(f"repository_record_{number}", Kind.REPOSITORY_LOG, value, encode_repository_record, decode)
    yield Sample("hint", Kind.HINT, Hint(64, an_id(99), 12), encode_hint, lambda d: decode_hint(name, d))
    intent = some_intent()
    yield Sample("intent", Kind.INTENT, intent, encode_intent, lambda d: decode_intent(name, d, BRANCH, 65))
    for named, changes in ("changes", some_changes()), ("measured_changes", measured_changes()):
        yield Sample(named, Kind.CHANGES, changes, encode_changes, lambda d: decode_changes(name, d))
    for kind in "iuf":
        known = some_statistics(kind)
        encode, decode = partial(encode_statistics, name), partial(_decode_statistics, name)
        yield Sample(f"statistics_{kind}", Kind.STATISTICS, known, encode, decode)


def _decode_statistics(name: str, data: bytes) -> ChunkStatistics:
    return decode_statistics(name, data)


def measured_changes() -> ChangePayload:
    """The same changes, with what is known of some of their chunks."""
    return replace(some_changes(), statistics=(some_statistics("i"), some_statistics("u")))


def _record_decoder(name: str, number: int) -> Callable[[bytes], Record]:
    return lambda data: decode_record(name, data, BRANCH, number, bytes(12))


def _repository_decoder(name: str, number: int) -> Callable[[bytes], RepositoryRecord]:
    return lambda data: decode_repository_record(name, data, number, bytes(12))


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for sample in samples():
        sample.path.write_bytes(sample.encode(sample.value))
