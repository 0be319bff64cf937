"""Targets: every object of a repository, and everything encoded that is inside of one or goes between processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from arraystore._changes.read_set import ReadSet
from arraystore._chunks.cells import Cells
from arraystore._commit.intent_payload import read_proposal
from arraystore._forks.uncommitted import UncommittedView, with_uncommitted
from arraystore._format.box import Box
from arraystore._format.collection import Collection
from arraystore._format.columns import decode_column, encode_column
from arraystore._format.envelope import Kind, decode_object, encode_object, pack_body, unpack_body
from arraystore._format.intent import Intent, Proposal, decode_intent, encode_intent
from arraystore._format.layer import EnclosingRecord
from arraystore._format.lifecycle import Deleted, Expiry, Fence
from arraystore._format.manifest import MAX_REFERENCES, decode_presence, encode_presence
from arraystore._format.record import Body, decode_body, decode_note, encode_body, encode_note
from arraystore._format.repository_log import RepositoryRecord
from arraystore._format.snapshot import Checkpoint
from arraystore._format.transaction import AppendMark, ChunkChange, TransactionLog, read_log
from arraystore._format.wire import read_tuple
from arraystore._log.state import SnapshotState
from arraystore.errors import FormatError
from tests.format.make_golden import BRANCH, a_log, samples, some_layers, the_bodies
from tests.format.test_hostile import use
from tests.format.values import plain
from tests.fuzz.mutate import change_body
from tests.fuzz.states import a_state
from tests.fuzz.target import Target, change_object

__all__ = ["object_targets", "part_targets"]

NAME = "sample"


def compared(value: Any) -> str:
    """Return a value as text in which equal ones are equal, NaN included."""
    if isinstance(value, RepositoryRecord) and value.table is not None:
        table = value.table
        told = (sorted(part.items()) for part in (table.tags, table.branches, table.settings))
        value = (value.number, value.entries, *told, sorted(table.burnt), table.watermark, table.collection)
    if isinstance(value, Collection):
        return repr(replace(value, logs={})) + repr(sorted(value.logs.items(), key=repr))
    if isinstance(value, Checkpoint):
        return repr(replace(value, nodes=())) + repr(sorted(value.nodes, key=lambda node: node.key))
    return repr(plain(value))


def object_targets() -> Iterator[Target]:
    """Yield a target for each kind of object; for records, whose places decide what they carry, one a sample."""
    by_name: dict[str, list[Any]] = {}
    for sample in samples():
        name = "manifest" if sample.kind == Kind.MANIFEST else sample.name
        by_name.setdefault(name, []).append(sample)
    for name, group in by_name.items():
        first = group[0]
        yield Target(
            f"object-{name}",
            [sample.encode(sample.value) for sample in group],
            first.decode,
            first.encode,
            compared,
            use,
            change_object,
        )
    yield _intent()


def _intent() -> Target:
    """Intents are read by other processes, which check what they hold, and commit it."""

    def decode(data: bytes) -> Intent:
        return decode_intent(NAME, data, BRANCH, 65)

    def check(intent: Intent) -> None:
        for proposal in intent.proposals:
            pending = read_proposal(NAME, proposal)
            prepared = pending.prepared
            if pending.reads is not None:
                _use_reads(pending.reads)
            use(proposal.log)
            assert pending.ours.log is prepared.log
            for change in prepared.log.chunks:
                prepared.manifest(change)
            transaction = prepared.transaction(a_state().snapshot, BRANCH, 66)
            a_state().committed(66, [(transaction, prepared.located(BRANCH, 66), prepared.note)])

    return Target("object-intent", list(_intent_seeds()), decode, encode_intent, compared, check, change_object)


def _intent_seeds() -> Iterator[bytes]:
    note, node = encode_note("message", {"key": [1]}), next(n for n in a_state().nodes.values() if n.layers)
    layer = some_layers(BRANCH, 66)[2]
    written = (
        TransactionLog((), (ChunkChange(node.id, layer),)) if len(node.layers[0].box.low) == 2 else TransactionLog()
    )
    *_, reads = _read_seeds()
    marks: dict[bytes, AppendMark] = {bytes(12): AppendMark(0, 40, 2), b"n" * 12: AppendMark(1, 7, None)}
    plain_one = Proposal(b"i" * 12, note, written, None, (b"attached",), 1, 1, {}, {}, reads, packs=b"p" * 24)
    log = a_log("", 0)
    log = replace(log, chunks=log.chunks[:3])  # the last ones have attachments of other records
    attached = (b"note", pack_body(log.to_wire(EnclosingRecord("", 0))))
    other = Proposal(
        b"j" * 12, b"", log, 1, attached, 2, 0, marks, {b"c" * 12: (3, 4)}, None, (b"g" * 12,), b"o" * 12, None
    )
    yield encode_intent(Intent(BRANCH, 65, 97, (plain_one,)))
    yield encode_intent(Intent(BRANCH, 65, 66, (plain_one, other)))
    yield encode_intent(Intent(BRANCH, 65, 66, (replace(other, log_place=None),)))


# -- what is inside of objects ----------------------------------------------------------------


def part_targets() -> Iterator[Target]:
    """Yield a target for each thing that is decoded on its own."""
    yield _envelope()
    yield _values()
    yield _note()
    for number in (0, 1, *range(65, 72)):
        yield _entry(number)
    yield _log()
    yield _column()
    yield _presence()
    yield _reads()
    yield _uncommitted()


def change_value(rng: Random, data: bytes, target: Target) -> bytes:
    """Change an input that is one msgpack value."""
    return change_body(rng, data, target.trees)


def _envelope() -> Target:
    def decode(data: bytes) -> bytes:
        return bytes(decode_object(NAME, Kind.MANIFEST, data))

    def encode(body: bytes) -> bytes:
        return encode_object(Kind.MANIFEST, body)

    seeds = [encode(body) for body in (b"\xc0", b"\xc4\x20" + bytes(32), pack_body(tuple(range(200))))]

    def use(body: bytes) -> None:
        unpack_body(NAME, body)  # only what is one msgpack value is ever encoded

    return Target("part-envelope", seeds, decode, encode, use=use, change=change_object)


def _values() -> Target:
    seeds = [pack_body(("m", {"k": [1, 2.5, None, True, {"é": b"bytes"}]})), pack_body(({}, (), ((((b"",),),),)))]
    return Target(
        "part-msgpack", seeds, lambda data: unpack_body(NAME, data, stored=len(data)), pack_body, change=change_value
    )


def _note() -> Target:
    notes: list[tuple[str, dict[str, Any]]] = [
        ("", {}),
        ("message", {"key": [1, 2.5, None, True, {"é": "text"}]}),
        ("é" * 40, {"a": {"b": {"c": [[]]}}}),
    ]
    return Target(
        "part-note",
        [encode_note(*note) for note in notes],
        lambda data: decode_note(NAME, data),
        lambda note: encode_note(*note),
        change=change_value,
    )


def _entry(number: int) -> Target:
    def decode(data: bytes) -> Body:
        return decode_body(NAME, data, BRANCH, number)

    return Target(
        f"part-entry-{number}",
        [the_bodies()[number]],
        decode,
        lambda body: encode_body(number, body, BRANCH),
        use=_use_entry,
        change=change_value,
    )


def _use_entry(entry: Any) -> None:
    """Do what whoever replays a log does with an entry."""
    if isinstance(entry, Deleted | Fence | Expiry):
        a_state().lived(66, entry)
    for item in getattr(entry, "transactions", ()):
        use(item.log)
        if isinstance(item.note, bytes):
            decode_note(NAME, item.note)


def _log() -> Target:
    here = EnclosingRecord(BRANCH, 65, 1)

    def decode(data: bytes) -> TransactionLog:
        return read_log(NAME, unpack_body(NAME, data, stored=len(data)), here)

    return Target(
        "part-log", [pack_body(a_log().to_wire(here))], decode, lambda log: pack_body(log.to_wire(here)), use=use,
        change=change_value,
    )  # fmt: skip


def _column() -> Target:
    def decode(data: bytes) -> Any:
        count, largest = int.from_bytes(data[:2], "little"), int.from_bytes(data[2:10], "little") >> 1
        return decode_column(NAME, data[10:], count, largest)

    def encode(values: Any) -> bytes:
        largest = int(values.max()) if len(values) else 0
        return len(values).to_bytes(2, "little") + (largest << 1 | 1).to_bytes(8, "little") + encode_column(values)

    columns = [[], [5], [7] * 9, list(range(300)), [0, 1 << 62, 3], [9, 8, 7, 6], [(1 << 63) - 1, 0]]
    seeds = [encode(np.array(column, dtype=np.int64)) for column in columns]
    return Target("part-column", seeds, decode, encode, lambda values: values.tolist())


def _presence() -> Target:
    def decode(data: bytes) -> tuple[Box, int, Any]:
        low, high, count, kind, blob = read_tuple(NAME, unpack_body(NAME, data), tuple, tuple, int, int, bytes)
        box = Box.from_wire(NAME, (low, high))
        if not 0 < count <= min(MAX_REFERENCES, box.volume):  # what all callers check first
            raise FormatError(NAME, "count")
        return box, count, decode_presence(NAME, box, count, kind, blob)

    def encode(value: tuple[Box, int, Any]) -> bytes:
        box, count, index = value
        return pack_body((*box.to_wire(), count, *encode_presence(box, index, count)))

    cells = [None, np.array([0, 3, 5, 11]), np.array([0, 9, 1 << 20])]
    boxes = [Box((1, 2), (4, 6)), Box((1, 2), (4, 6)), Box((0, 0), (1 << 15, 1 << 16))]
    seeds = [encode((b, b.volume if c is None else len(c), c)) for b, c in zip(boxes, cells, strict=True)]
    same = lambda value: (value[0], value[1], _numbers(*value))  # noqa: E731
    return Target("part-presence", seeds, decode, encode, same, change=change_value)


def _numbers(box: Box, count: int, index: Any) -> Any:
    return None if index is None or count == box.volume else index.tolist()


def _reads() -> Target:
    def decode(data: bytes) -> ReadSet:
        return ReadSet.decode(NAME, data)

    return Target("part-reads", list(_read_seeds()), decode, ReadSet.encode, ReadSet.encode, _use_reads, change_value)


def _read_seeds() -> Iterator[bytes]:
    reads = ReadSet()
    yield reads.encode()
    reads.node("a/b")
    reads.listing("a", recursive=False)
    reads.listing("b", recursive=True)
    for n in (0, 3, 700, 1 << 40):
        reads.chunk(bytes(range(12)), (n, 2))
    reads.cells(bytes(12), Cells(Box((1, 1), (5, 1 << 30)), None))
    reads.array(b"x" * 12)
    yield reads.encode()
    for n in range(5000):
        reads.chunk(bytes(range(1, 13)), (n * 7919 % 65536, n))
    yield reads.encode()


def _use_reads(reads: ReadSet) -> None:
    """Do what merging forks and committing do with what was read."""
    together = ReadSet.decode(NAME, next(_read_seeds()))
    together.update(reads)
    together.update(reads)
    ReadSet.decode(NAME, together.encode())
    for array in reads._arrays.values():
        dimensions = array._dimensions() or 1
        array.hits([Cells(Box((0,) * dimensions, (3,) * dimensions), None)])


def _uncommitted() -> Target:
    base = a_state()

    def decode(data: bytes) -> SnapshotState:
        return with_uncommitted(base, data)

    def encode(state: SnapshotState) -> bytes:
        gone = tuple(key for key in base.nodes if key not in state.nodes)
        fresh = tuple(node for key, node in state.nodes.items() if base.nodes.get(key) is not node)
        wire = UncommittedView(state, gone, fresh, base, None, {})._wire  # type: ignore[arg-type]
        return pack_body((gone, tuple(wire(node) for node in fresh)))

    def compare(state: SnapshotState) -> Any:
        return repr((sorted(state.nodes.items()), sorted(state.keys.items())))

    def check(state: SnapshotState) -> None:
        assert {node.id for node in state.nodes.values()} == state.keys.keys()
        assert all(state.nodes[key].id == identifier for identifier, key in state.keys.items())

    return Target("part-uncommitted", list(_uncommitted_seeds(base)), decode, encode, compare, check, change_value)


def _uncommitted_seeds(base: SnapshotState) -> Iterator[bytes]:
    yield pack_body(((), ()))
    node = next(node for node in base.nodes.values() if node.layers)
    layer = some_layers("other", 1)[2].to_wire()
    kept = (node.id, node.path, int(node.kind), None, len(node.layers), (layer,))
    new = (b"n" * 12, "new/array", 1, {"zarr.json": b"{}"}, 0, (layer,))
    yield pack_body((("gone",), (kept, new)))
    yield pack_body(((node.key,), ((node.id, "elsewhere", int(node.kind), dict(node.documents), 0, ()),)))
