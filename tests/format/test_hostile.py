"""Whatever the bytes of an object are, a decoder gives a value or a `FormatError` that names the object."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import google_crc32c
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import zstd

from arraystore._format.envelope import (
    BODY_LIMIT,
    FORMAT_VERSION,
    Kind,
    decode_object,
    encode_object,
    pack_body,
    unpack_body,
)
from arraystore._format.fork_payload import ChangePayload
from arraystore._format.history import HistoryPage, Survivors
from arraystore._format.ids import id_to_text
from arraystore._format.lifecycle import BranchLife
from arraystore._format.manifest import MAX_REFERENCES, Manifest
from arraystore._format.msgpack_limits import MAX_DEPTH
from arraystore._format.record import Record, decode_body, decode_note
from arraystore._format.references import References, overlay, to_manifests
from arraystore._format.refs import name_in_key
from arraystore._format.repository_log import RepositoryRecord, RepositoryTable
from arraystore._format.snapshot import Checkpoint
from arraystore._format.transaction import ChunkChange, Presence, TransactionLog
from arraystore._format.wire import LATEST_TIME
from arraystore._log.status import flags_of, status_of_table
from arraystore.errors import FormatError
from tests.format.make_golden import BRANCH, Sample, samples, the_bodies
from tests.format.values import plain

SAMPLES = list(samples())
NAMES = ("sample", "record ")
every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)


def envelope(
    kind: int, stored: bytes, *, size: int | None = None, codec: int = 0, version: int = FORMAT_VERSION
) -> bytes:
    """Put anything into an envelope whose checksum is right."""
    head = struct.pack("<4sBBBBI", b"ARST", version, kind, codec, 0, len(stored) if size is None else size)
    return head + struct.pack("<I", google_crc32c.extend(google_crc32c.value(head), stored)) + stored


def body_of(sample: Sample) -> bytes:
    return bytes(decode_object(sample.name, sample.kind, sample.encode(sample.value)))


def refused(decode: Callable[[bytes], Any], data: bytes) -> bool:
    """Tell whether bytes are refused as they should be; a value that is accepted has to be usable."""
    try:
        value = decode(data)
        use(value)
    except FormatError as error:
        refusal = error
    else:
        return False
    assert refusal.object_name.startswith(NAMES)
    assert str(refusal).startswith(refusal.object_name + ": ")
    return True


def use(value: Any) -> None:
    """Do what readers do with a value."""
    if isinstance(value, Manifest):
        use_manifest(value)
    elif isinstance(value, Record):
        for number, body in value.bodies().items():
            entry = decode_body("sample", body, value.branch, number)
            for item in getattr(entry, "transactions", ()):
                use(item.log)
                if isinstance(item.note, bytes):
                    decode_note("sample", item.note)
    elif isinstance(value, TransactionLog):
        for chunk in value.chunks:
            use_chunk(chunk)
    elif isinstance(value, ChangePayload):
        for part in value.parts:
            part.box.coords(part.numbers())
        for manifest in value.manifests:
            use_manifest(manifest)
        assert sum(part.count for part in value.parts) == sum(manifest.count for manifest in value.manifests)
    elif isinstance(value, Checkpoint):
        assert 0 <= value.time <= LATEST_TIME
        decode_note("sample", value.note)
    elif isinstance(value, HistoryPage | Survivors):
        for row in value.rows:
            assert 0 <= row.time <= LATEST_TIME
            decode_note("sample", row.note)
    elif isinstance(value, RepositoryRecord):
        use_repository_record(value)


def use_repository_record(record: RepositoryRecord) -> None:
    table = record.table or RepositoryTable(record.number - len(record.entries))
    for entry in record.entries:
        table = table.after(entry)
    for name in (*table.tags, *table.branches, *table.burnt):
        name_in_key(name)
    status_of_table(table)
    flags_of(table)


def use_manifest(manifest: Manifest) -> None:
    expanded = References.from_manifest(manifest)
    assert len(overlay([expanded, expanded], keep_deleted=True)) == manifest.count
    for i in range(min(len(manifest.locations), 10)):
        assert isinstance(manifest.locations.url(i), str)
        assert manifest.locations.etag(i) != ""
        assert manifest.locations.not_modified_after(i) != 0
    assert sum(part.count for part in to_manifests(expanded)) == manifest.count
    assert len(manifest.pack_keys) == len(manifest.extents) == manifest.pack_count
    first = tuple(manifest.box.coords(manifest.numbers()[:1])[0].tolist())
    assert manifest.find(first) == 0


def use_chunk(chunk: ChunkChange) -> None:
    layer = chunk.layer
    assert layer.key == "manifests/" + id_to_text(layer.id)
    if chunk.presence is not None:
        found = Presence(layer.box, layer.count, *chunk.presence).numbers("sample")
        assert len(found) == layer.count
        assert bool((np.diff(found) > 0).all())


# -- the envelope -----------------------------------------------------------------------------------------------


@every_sample
def test_an_object_cut_off_anywhere_is_refused(sample: Sample) -> None:
    data = sample.encode(sample.value)
    for end in range(len(data)):
        assert refused(sample.decode, data[:end])
    assert refused(sample.decode, data + b"\0")


@every_sample
def test_an_object_with_one_byte_changed_is_refused(sample: Sample) -> None:
    data = sample.encode(sample.value)
    for at in range(len(data)):
        for change in (0x01, 0x80, 0xFF):
            assert refused(sample.decode, data[:at] + bytes([data[at] ^ change]) + data[at + 1 :])


@every_sample
def test_an_object_is_read_from_any_kind_of_buffer(sample: Sample) -> None:
    data = sample.encode(sample.value)
    for buffer in (bytearray(data), memoryview(data)):
        assert plain(sample.decode(buffer)) == plain(sample.value)


@every_sample
def test_an_object_of_another_kind_or_version_is_refused(sample: Sample) -> None:
    body = body_of(sample)
    for kind in range(256):
        assert refused(sample.decode, envelope(kind, body)) == (kind != sample.kind)
    for version in range(256):
        assert refused(sample.decode, envelope(sample.kind, body, version=version)) == (version != FORMAT_VERSION)
    for codec in range(1, 256):
        assert refused(sample.decode, envelope(sample.kind, body, codec=codec))
    with pytest.raises(FormatError, match="version 1; this release reads version 2 only"):
        sample.decode(envelope(sample.kind, body, version=1))


@every_sample
def test_a_body_of_another_size_than_announced_is_refused(sample: Sample) -> None:
    body = body_of(sample)
    frame = bytes(zstd.compress(body, 3))
    assert not refused(sample.decode, envelope(sample.kind, frame, size=len(body), codec=1))
    for size in (0, 1, len(body) - 1, len(body) + 1, 1 << 24, BODY_LIMIT[sample.kind], (1 << 32) - 1):
        assert refused(sample.decode, envelope(sample.kind, body, size=size))
        assert refused(sample.decode, envelope(sample.kind, frame, size=size, codec=1))
    for damaged in (b"", frame[:-1], frame + b"\0", frame + frame, b"\x50\x2a\x4d\x18\0\0\0\0" + frame):
        assert refused(sample.decode, envelope(sample.kind, damaged, size=len(body), codec=1))


def test_zstd_frames_whose_header_lies_are_refused() -> None:
    hint = next(sample for sample in SAMPLES if sample.kind == Kind.HINT)
    frame = bytes(zstd.compress(body_of(hint), 3))
    for descriptor in range(256):
        for filler in (0, 0x20, 0xFF):
            lying = frame[:4] + bytes([descriptor]) + bytes([filler] * 12) + frame[6:]
            for size in (len(body_of(hint)), filler, 0xFFFF, 0xFFFF + 256):
                assert refused(hint.decode, envelope(hint.kind, lying, size=size, codec=1))


# -- bodies -----------------------------------------------------------------------------------------------------


@every_sample
def test_a_body_cut_off_or_changed_anywhere_is_read_or_refused(sample: Sample, long_run: bool) -> None:
    body = body_of(sample)
    for end in range(len(body)):
        assert refused(sample.decode, envelope(sample.kind, body[:end]))
    assert refused(sample.decode, envelope(sample.kind, body + b"\xc0"))
    step = 1 if long_run else max(1, len(body) // 600)
    for at in range(0, len(body), step):
        for change in range(1, 256) if long_run else (0x01, 0x10, 0x80, 0xFF):
            refused(sample.decode, envelope(sample.kind, body[:at] + bytes([body[at] ^ change]) + body[at + 1 :]))


NUMBERS = [
    0,
    1,
    65,
    255,
    1 << 20,
    (1 << 20) + 1,
    1 << 31,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
    -1,
    -(1 << 63),
]
BLOBS = [b"", b"\0", bytes(12), b"\xff" * 12, b"\0\1\0", b"\0\x08" + b"\xff" * 8, b"\2\1", b"\1\2ab"]
TEXTS = ["", "x", "\0", "/", "../x", "é" * 5000]
LISTS = [(), ((),), ((), ()), (0,), (-1,), (None,), ("a",), (b"",), ((0,), (1,)), ((0,), (1 << 62,)), (0, 0, 0)]
MAPS = [{}, {"a": 1}, {b"a": 1, "b": 2}, {"zarr.json": None}, {"zarr.json": "text"}]
HOSTILE: list[Any] = [None, True, False, 1.0, float("nan"), *NUMBERS, *BLOBS, *TEXTS, *LISTS, *MAPS]


def variants(value: Any, replacements: list[Any]) -> Iterator[Any]:
    """Yield a value with each of its parts replaced by each of others, left out, and repeated."""
    yield from replacements
    if isinstance(value, bytes) and value:
        yield from blobs(value)
    if isinstance(value, tuple):
        for at, part in enumerate(value):
            yield value[:at] + value[at + 1 :]
            yield value[: at + 1] + value[at:]
            for other in variants(part, replacements):
                yield (*value[:at], other, *value[at + 1 :])
    if isinstance(value, dict):
        for key, part in value.items():
            rest = {k: v for k, v in value.items() if k != key}
            yield rest
            yield from ({**rest, other: part} for other in ("x", b"x", ".zgroup"))
            yield from ({**value, key: other} for other in variants(part, replacements))


def blobs(blob: bytes) -> Iterator[bytes]:
    """Yield changes of a column, or of whatever else the bytes are."""
    yield blob[:-1]
    yield blob + b"\0"
    for first in (0, 1, 2, 3, 255):
        for width in (0, 1, 2, 4, 8, 255):
            yield bytes([first, width]) + blob[2:]
    for at in range(0, len(blob), max(1, len(blob) // 10)):
        yield from (blob[:at] + bytes([new]) + blob[at + 1 :] for new in (0, 0x7F, 0x80, 0xFF))


@every_sample
def test_a_body_with_any_part_replaced_is_read_or_refused(sample: Sample, long_run: bool) -> None:
    found = list(variants(unpack_body("sample", body_of(sample)), HOSTILE))
    if not long_run:
        found = random.Random(7).sample(found, min(len(found), 2500))
    outcomes = {refused(sample.decode, envelope(sample.kind, pack_body(value))) for value in found}
    assert True in outcomes


@pytest.mark.parametrize("number", [0, 1, *range(65, 72)])
def test_an_entry_of_a_record_with_any_part_replaced_is_read_or_refused(number: int, long_run: bool) -> None:
    body = the_bodies()[number]
    found = list(variants(unpack_body("sample", body), HOSTILE))
    if not long_run:
        found = random.Random(8).sample(found, min(len(found), 4000))

    def decode(data: bytes) -> Record:
        return Record(BRANCH, number, data)

    assert {refused(decode, pack_body(value)) for value in found} >= {True}


@every_sample
@given(random_bytes=st.binary(max_size=200), cut=st.integers(0, 1 << 16))
def test_random_bytes_are_refused(sample: Sample, random_bytes: bytes, cut: int) -> None:
    assert refused(sample.decode, random_bytes)
    assert refused(sample.decode, envelope(sample.kind, random_bytes))
    refused(sample.decode, envelope(sample.kind, body_of(sample)[: cut % len(body_of(sample))] + random_bytes))


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        (pack_body(("m", {"a": b"bytes"})), "bytes"),
        (pack_body(("m", {b"a": 1})), "key"),
        (pack_body(("m", {"a": {1: 2}})), "map key|not valid msgpack"),
        (pack_body(("m", (1,))), "tuple"),
        (pack_body((b"m", None)), "bytes"),
        (pack_body(("m",)), "2 values"),
        (msgpack.packb(("m", {"a": msgpack.Timestamp(1, 2)})), "type 0x"),
        (msgpack.packb(("m", {"a": msgpack.ExtType(5, b"code")})), "type 0x"),
        (b"\x92\xa1\xff\xc0", "utf-8|not valid msgpack"),
        (b"\x92\xa1m" + b"\x81\xa1a" * 100 + b"\xc0", "deep"),
    ],
)
def test_a_note_that_is_no_text_with_json_is_refused(note: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=f"sample: .*({reason})"):
        decode_note("sample", note)


# -- what decoding may cost ---------------------------------------------------------------------------------------

MiB = 1 << 20
CPU_SECONDS = 4.0
"""A second on a machine that does nothing else; far less than what a bomb would take."""


def nested(depth: int, announced: int) -> bytes:
    return (b"\xdd" + struct.pack(">I", announced)) * depth


MANY = 1 << 18
"""Values that any body may hold."""


def a_list(count: int, item: bytes) -> bytes:
    return nested(1, count) + item * count


BOMBS: dict[str, bytes] = {
    "deep": b"\x91" * 100_000 + b"\xc0",
    "deep maps": b"\x81\xa1a" * 100_000 + b"\xc0",
    "deeper than allowed by one": b"\x91" * (MAX_DEPTH + 1) + b"\xc0",
    "as deep as allowed": b"\x91" * MAX_DEPTH + b"\xc0",
    "lists": a_list(MANY - 2, b"\x90"),
    "maps": a_list(MANY - 2, b"\x80"),
    "maps of one": a_list(MANY // 3 - 2, b"\x81\xa2ab\xcd\xff\xff"),
    "lists of one": a_list(MANY // 2 - 2, b"\x91\xcf" + b"\xff" * 8),
    "more lists than allowed": a_list(16 * MiB - 8, b"\x90"),
    "four billion items announced": b"\xdd\xff\xff\xff\xff",
    "four billion pairs announced": b"\xdf\xff\xff\xff\xff",
    "four billion bytes announced": b"\xc6\xff\xff\xff\xff",
    "four billion characters announced": b"\xdb\xff\xff\xff\xff" + b"x" * 50,
    "lists in lists that each announce many": nested(60, MANY // 2) + b"\xc0" * MANY,
    "lists in lists that each announce what is there": nested(1000, 100_000) + b"\xc0" * 100_000,
    "extension of four billion bytes": b"\xc9\xff\xff\xff\xff\x05",
    "ten million zeros": b"\0" * 10_000_000,
}


def cost(decode: Callable[[bytes], Any], data: bytes) -> tuple[bool, float, float]:
    """Return whether data was refused, in how many seconds, and how many bytes more than 16 a byte it took."""
    began = time.process_time()
    outcome = refused(decode, data)
    seconds = time.process_time() - began
    tracemalloc.start()
    try:
        refused(decode, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return outcome, seconds, peak - 16 * len(data)


@pytest.mark.parametrize("name", BOMBS)
def test_a_msgpack_bomb_costs_little(name: str) -> None:
    body = BOMBS[name]
    sample = next(sample for sample in SAMPLES if sample.kind == Kind.CHECKPOINT)
    if len(body) > MiB:
        data = envelope(sample.kind, bytes(zstd.compress(body, 3)), size=len(body), codec=1)
    else:
        data = envelope(sample.kind, body)
    outcome, seconds, excess = cost(sample.decode, data)
    assert outcome
    assert seconds < CPU_SECONDS
    assert excess < 64 * MiB


@pytest.mark.parametrize("kind", [Kind.CHECKPOINT, Kind.MANIFEST, Kind.RECORD, Kind.HINT])
@pytest.mark.parametrize("size", [16 * MiB, 16 * MiB + 1, 256 * MiB, 1024 * MiB, (1 << 32) - 1])
def test_a_frame_that_unfolds_too_far_is_not_unfolded(kind: Kind, size: int) -> None:
    sample = next(sample for sample in SAMPLES if sample.kind == kind)
    frame = bytes(zstd.compress(bytes(1 << 20), 3))
    lying = frame[:4] + b"\xa0" + struct.pack("<I", size) + frame[9:] if frame[4] == 0xA0 else frame
    assert lying[4] == 0xA0, "a frame with a content size of four bytes"
    outcome, seconds, excess = cost(sample.decode, envelope(kind, lying, size=size, codec=1))
    assert outcome
    assert seconds < CPU_SECONDS
    assert excess < 17 * MiB


ZEROS = b"\0\1\0"


def manifest_body(box: Any, count: int, presence: int, data: bytes) -> bytes:
    return pack_body((box, count, presence, data, bytes(12), ZEROS, ZEROS, ZEROS, None, b""))


MANIFEST_BOMBS = {
    "constant columns of 2**63 references": manifest_body(((0,), ((1 << 63) - 1,)), (1 << 63) - 1, 0, b""),
    "constant columns of 2**20 + 1 references": manifest_body(((0,), (MiB + 1,)), MiB + 1, 0, b""),
    "an index that is one constant": manifest_body(((0,), (1 << 62,)), MAX_REFERENCES, 2, ZEROS),
    "a bitmap of all ones": manifest_body(((0,), (16 * MiB,)), MAX_REFERENCES, 1, b"\xff" * 2 * MiB),
    "a bitmap of a giant box": manifest_body(((0,), (1 << 40,)), MAX_REFERENCES, 1, b"\xff" * 100),
    "a bitmap of one cell in 2**26": manifest_body(((0,), (64 * MiB,)), 1, 1, b"\x80" + bytes(8 * MiB - 1)),
    "a box of 64 dimensions of 2**63": manifest_body(((0,) * 64, ((1 << 63) - 1,) * 64), 1, 2, ZEROS),
}


@pytest.mark.parametrize("name", MANIFEST_BOMBS)
def test_a_manifest_bomb_costs_little(name: str) -> None:
    sample = next(sample for sample in SAMPLES if sample.kind == Kind.MANIFEST)
    outcome, seconds, excess = cost(sample.decode, encode_object(Kind.MANIFEST, MANIFEST_BOMBS[name]))
    assert outcome
    assert seconds < CPU_SECONDS
    assert excess < 64 * MiB


def test_the_largest_manifest_that_a_few_bytes_can_be_costs_a_bounded_amount() -> None:
    sample = next(sample for sample in SAMPLES if sample.kind == Kind.MANIFEST)
    body = manifest_body(((0,), (MAX_REFERENCES,)), MAX_REFERENCES, 0, b"")
    tracemalloc.start()
    try:
        assert sample.decode(envelope(Kind.MANIFEST, body)).count == MAX_REFERENCES
        assert tracemalloc.get_traced_memory()[1] < 128 * MiB
    finally:
        tracemalloc.stop()


def test_layers_and_nodes_and_rows_without_end_cost_little() -> None:
    id_list = b"".join(n.to_bytes(12, "big") for n in range(10_000))
    table = (10_000, id_list, b"\0\1\x40", *[ZEROS] * 5, b"", ZEROS, (), *[ZEROS] * 3)
    names = ("zarr.json",)
    one_node = (1, bytes(12), ZEROS, b"", b"\0\1\1", ZEROS, (), ZEROS, ZEROS, b"")
    many_documents = (1, bytes(12), ZEROS, b"", b"\0\1\1", b"\0\1\x05", names, ZEROS, ZEROS, b"", ZEROS)
    equal_nodes = (10_000, bytes(12 * 10_000), ZEROS, b"", ZEROS, ZEROS, (), ZEROS, ZEROS, b"", ZEROS)
    endless = (10_000, id_list, ZEROS, b"", ZEROS, ZEROS, (), ZEROS, ZEROS, b"", ZEROS)
    nothing = (0, b"", *[ZEROS] * 6, b"", ZEROS, (), *[ZEROS] * 3)
    sample = next(sample for sample in SAMPLES if sample.kind == Kind.CHECKPOINT)
    for nodes in (
        (*one_node, b"\0\4" + struct.pack("<I", 10_000), table),
        (*many_documents, nothing),
        (*equal_nodes, nothing),
        (*endless, nothing),
    ):
        life = BranchLife()
        body = pack_body(("main", 0, bytes(12), None, 0, pack_body(("", None)), nodes, (), life))
        outcome, seconds, excess = cost(sample.decode, encode_object(Kind.CHECKPOINT, body))
        assert outcome
        assert seconds < CPU_SECONDS
        assert excess < 64 * MiB


# -- writers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(Kind))
def test_nothing_is_written_that_is_too_large_to_be_read(kind: Kind) -> None:
    if BODY_LIMIT[kind] <= 4 * MiB:
        with pytest.raises(FormatError, match="allowed"):
            encode_object(kind, bytes(BODY_LIMIT[kind] + 1))
    with pytest.raises(FormatError, match=r"too many values|allowed"):
        encode_object(kind, pack_body([0] * (2 * MiB)))


def test_a_large_body_that_would_unfold_too_far_is_written_as_it_is() -> None:
    for size, compressed in ((16 * MiB, True), (17 * MiB, False)):
        data = encode_object(Kind.MANIFEST, pack_body(bytes(size - 5)))
        assert (len(data) < MiB) == compressed
        assert decode_object("sample", Kind.MANIFEST, data) == pack_body(bytes(size - 5))
