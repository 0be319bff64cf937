"""What is encoded decodes to what it was, for every value of the format."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from arraystore._format import manifest as manifest_module
from arraystore._format.box import Box
from arraystore._format.collection import Collection, decode_collection, encode_collection
from arraystore._format.columns import decode_column, encode_column, narrow
from arraystore._format.envelope import pack_body, unpack_body
from arraystore._format.fork_payload import ChangePayload, decode_changes, encode_changes
from arraystore._format.history import (
    HistoryPage,
    Survivors,
    decode_history,
    decode_survivors,
    encode_history,
    encode_survivors,
)
from arraystore._format.intent import Intent, decode_intent, encode_intent
from arraystore._format.layer import EnclosingRecord, Layer
from arraystore._format.layer_table import decode_layers, encode_layers
from arraystore._format.locations import Locations, concat_locations, locations_from_urls
from arraystore._format.manifest import MAX_REACH, Manifest, decode_manifest, encode_manifest
from arraystore._format.record import decode_body, decode_note, encode_body, encode_note
from arraystore._format.refs import (
    Hint,
    RepositoryInfo,
    decode_hint,
    decode_repository,
    encode_hint,
    encode_repository,
    name_from_key,
    name_in_key,
)
from arraystore._format.repository_log import RepositoryRecord, decode_repository_record, encode_repository_record
from arraystore._format.snapshot import Checkpoint, decode_checkpoint, encode_checkpoint
from arraystore._format.transaction import Presence, TransactionLog, decode_transaction, encode_transaction
from arraystore.errors import FormatError, InvalidInputError
from tests.format import values as v

RECORD = EnclosingRecord("main", 17)


def through_msgpack(value: object) -> object:
    return unpack_body("test", pack_body(value))


# -- columns ----------------------------------------------------------------------------------------------------


@given(
    st.sampled_from([0, 1, 255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32, v.LARGEST]).flatmap(
        lambda largest: st.lists(st.integers(0, largest), max_size=40)
    )
)
def test_a_column_decodes_to_what_it_was(items: list[int]) -> None:
    column = encode_column(np.array(items, dtype=np.int64))
    assert decode_column("test", column, len(items)).tolist() == items
    with pytest.raises(FormatError):
        decode_column("test", column + b"\0", len(items))
    if items:
        assert decode_column("test", column, len(items), max(items)).tolist() == items
    if items and max(items):
        with pytest.raises(FormatError):
            decode_column("test", column, len(items), max(items) - 1)


@pytest.mark.parametrize(
    ("items", "encoding", "width"),
    [
        ([], 0, 1),
        ([7], 0, 1),
        ([v.LARGEST] * 5, 0, 8),
        ([1 << 16] * 3, 0, 4),
        ([1, 250, 3, 99], 1, 1),
        ([1, 65535, 3, 9], 1, 2),
        ([0, v.LARGEST, 0, 5], 1, 8),
        (list(range(10**9, 10**9 + 500)), 2, 4),
        ([10**12 + i % 7 for i in range(50)], 1, 8),
        (list(range(0, 5000, 10)), 2, 1),
        ([0, v.LARGEST], 2, 8),
    ],
)
def test_the_smaller_encoding_of_a_column_is_chosen(items: list[int], encoding: int, width: int) -> None:
    column = encode_column(np.array(items, dtype=np.int64))
    assert (column[0], column[1]) == (encoding, width)
    assert decode_column("test", column, len(items)).tolist() == items


@given(st.lists(st.integers(0, v.LARGEST), max_size=20))
def test_narrowing_keeps_values_in_the_smallest_type_that_holds_them(items: list[int]) -> None:
    found = narrow(np.array(items, dtype=np.int64))
    assert found.tolist() == items
    needed = max(items, default=0).bit_length()
    assert found.dtype.itemsize * 8 >= needed > (0 if found.dtype.itemsize == 1 else found.dtype.itemsize * 4) - 1


# -- locations --------------------------------------------------------------------------------------------------


def urls(table: Locations) -> list[tuple[str, str | None, int | None]]:
    return [(table.url(i), table.etag(i), table.not_modified_after(i)) for i in range(len(table))]


@given(st.lists(st.tuples(v.text, st.none() | v.text, st.integers(0, v.LARGEST)), min_size=1, max_size=8))
def test_locations_decode_to_what_they_were(rows: list[tuple[str, str | None, int]]) -> None:
    table = locations_from_urls(*map(list, zip(*rows, strict=True)))
    expected = [(url, etag or None, modified or None) for url, etag, modified in rows]
    assert urls(table) == expected
    assert urls(Locations.from_wire("test", through_msgpack(table.to_wire()))) == expected


@given(st.lists(v.locations(), max_size=4), st.data())
def test_locations_are_selected_and_joined_as_lists_are(tables: list[Locations], data: st.DataObject) -> None:
    joined = concat_locations(tables)
    expected = [row for table in tables for row in urls(table)]
    assert urls(joined) == expected
    assume(expected)
    keep = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=6))
    assert urls(joined.select(np.array(keep, dtype=np.int64))) == [expected[i] for i in keep]


@pytest.mark.parametrize("url", ["", "/", "s3://b/", "no-slash", "s3://b/é/ü.nc", "https://h/a?b=/c", "s3://b/🌍"])
def test_urls_of_any_form_survive(url: str) -> None:
    table = locations_from_urls([url, "s3://other/x", url], ["é", None, ""])
    found = Locations.from_wire("test", through_msgpack(table.to_wire()))
    assert [found.url(0), found.url(2), found.etag(0), found.etag(1), found.etag(2)] == [url, url, "é", None, None]


# -- manifests, layers, logs ------------------------------------------------------------------------------------


@given(v.manifests())
def test_a_manifest_decodes_to_what_it_was(manifest: Manifest) -> None:
    found = decode_manifest("test", encode_manifest(manifest))
    assert v.plain(found) == v.plain(manifest)
    for at, number in enumerate(manifest.numbers().tolist()):
        assert found.find(tuple(manifest.box.coords(np.array([number]))[0].tolist())) == at
    assert found.has_deletions == (manifest.deleted_source in manifest.source.tolist())


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, MAX_REACH - 1) | st.integers(0, 99), st.integers(0, (1 << 63) - 1)),
        min_size=1,
        max_size=12,
    ),
    packs=st.integers(0, 3),
)
def test_offsets_of_few_references_are_those_of_many_and_refused_alike(
    rows: list[tuple[int, int, int]], packs: int
) -> None:
    source, length, column = (np.array(each, dtype=np.int64) for each in zip(*rows, strict=True))

    def decoded(few: int) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(manifest_module, "_FEW", few)
            try:
                return manifest_module._decode_offsets("test", encode_column(column), source, length, packs).tolist()
            except FormatError as error:
                return str(error)

    assert decoded(16) == decoded(-1)


@given(v.manifests(64))
def test_a_manifest_finds_no_cell_that_it_does_not_speak_of(manifest: Manifest) -> None:
    found = decode_manifest("test", encode_manifest(manifest))
    spoken = set(manifest.numbers().tolist())
    for number in set(range(manifest.box.volume)) - spoken:
        assert found.find(tuple(manifest.box.coords(np.array([number]))[0].tolist())) == -1
    if manifest.box.low:
        assert found.find(manifest.box.high) == -1


@pytest.mark.parametrize("reach", [(0, 1 << 62), (1 << 62, 0), ((1 << 63) - 1, 1), ((1 << 61), 1 << 61)])
def test_a_reference_that_reaches_too_far_is_refused_when_it_is_written(reach: tuple[int, int]) -> None:
    box = v.Box((0,), (2,))
    offset, length = (np.array([0, value], dtype=np.int64) for value in reach)
    with pytest.raises(FormatError, match="reaches"):
        encode_manifest(Manifest(box, None, np.zeros(2, dtype=np.uint8), offset, length, bytes(12)))


@given(st.data())
def test_presence_tells_exactly_the_cells_in_whatever_encoding(data: st.DataObject) -> None:
    side = data.draw(st.sampled_from([1, 20, 100, 5000, 1 << 50]))
    cells = sorted(data.draw(st.sets(st.integers(0, side - 1), min_size=1, max_size=30)))
    index = np.array(cells, dtype=np.int64)
    presence = Presence.of(v.Box((5,), (5 + side,)), None if len(cells) == side else index, len(cells))
    assert presence.numbers("test").tolist() == cells
    assert presence.kind == (0 if len(cells) == side else 1 if side <= 16 * len(cells) else 2)


@given(v.layers(RECORD))
def test_a_layer_decodes_to_what_it_was_in_a_record_and_elsewhere(layer: Layer) -> None:
    assert Layer.from_wire("test", through_msgpack(layer.to_wire(RECORD)), RECORD) == layer
    assert Layer.from_wire("test", through_msgpack(layer.to_wire())) == layer


@given(st.lists(v.layers(), max_size=6))
def test_a_table_of_layers_decodes_to_what_it_was(layers: list[Layer]) -> None:
    assert decode_layers("test", through_msgpack(encode_layers(layers))) == layers


_MOST = (1 << 63) - 1


@pytest.mark.parametrize(
    ("low", "side", "count"),
    [
        ((0, 0), (2, 3), 7),
        ((0,), (3,), 0),
        ((0, 0), (3, 0), 1),
        ((0, 0), (1 << 32, 1 << 32), 1),
        ((0, 0, 0), (1 << 32, 1 << 32, 4), 1),
        ((1,), (_MOST,), 1),
        ((_MOST - 1,), (2,), 1),
    ],
)
def test_a_layer_whose_box_cannot_be_is_refused_in_a_table_of_many(
    low: tuple[int, ...], side: tuple[int, ...], count: int
) -> None:
    sound = [Layer(bytes([n]) * 12, v.Box((0,), (n + 1,)), 1) for n in range(2)]
    high = tuple(a + b for a, b in zip(low, side, strict=True))
    wrong = Layer(bytes([9]) * 12, v.Box(low, high), count)
    with pytest.raises(FormatError, match="layer"):
        decode_layers("test", through_msgpack(encode_layers([sound[0], wrong, sound[1]])))


def test_the_largest_boxes_of_layers_are_read() -> None:
    boxes = [
        v.Box((), ()),
        v.Box((0,), (_MOST,)),
        v.Box((_MOST - 1,), (_MOST,)),
        v.Box((0, 5), (1 << 31, (1 << 31) + 5)),
    ]
    layers = [Layer(bytes([n]) * 12, box, 1) for n, box in enumerate(boxes)]
    assert decode_layers("test", through_msgpack(encode_layers(layers))) == layers


@given(v.logs())
def test_a_transaction_log_decodes_to_what_it_was(log: TransactionLog) -> None:
    assert decode_transaction("test", encode_transaction("test", log)) == log


@pytest.mark.parametrize("number", [0, 17])
@given(st.data())
def test_a_body_of_a_record_decodes_to_what_it_was(number: int, data: st.DataObject) -> None:
    body = data.draw(v.bodies(EnclosingRecord("main", number)))
    encoded = encode_body(number, body, "main")
    assert decode_body("test", encoded, "main", number) == body
    with pytest.raises(FormatError, match="the body is of record"):
        decode_body("test", encoded, "main", number + 1)
    with pytest.raises(FormatError, match="one birth"):
        decode_body("test", encode_body(17 - number, body, "main"), "main", 17 - number)


# -- notes, checkpoints, history, references ----------------------------------------------------------------------


@given(v.text, v.metadata)
def test_message_and_metadata_decode_to_what_they_were(message: str, metadata: dict[str, object]) -> None:
    assert decode_note("test", encode_note(message, metadata)) == (message, metadata)


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_metadata_nests_62_deep_and_no_deeper() -> None:
    deep = {"a": nested(62)}
    assert decode_note("test", encode_note("", deep)) == ("", deep)
    for depth in (63, 100, 400):
        with pytest.raises(InvalidInputError, match="deep"):
            encode_note("", {"a": nested(depth)})


@given(v.checkpoints())
def test_a_checkpoint_decodes_to_what_it_was(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint("test", encode_checkpoint("test", checkpoint)) == checkpoint


def test_the_order_of_documents_in_a_node_does_not_matter_and_their_bytes_stay() -> None:
    docs = {".zattrs": b"{}", ".zarray": b"\xff\0 not even JSON"}
    node = v.Node(bytes(12), "a", v.NodeKind.ARRAY, docs)
    checkpoint = Checkpoint("main", 0, bytes(12), None, 0, encode_note("", {}), (node,), ())
    assert decode_checkpoint("test", encode_checkpoint("test", checkpoint)).nodes[0].documents == docs


@given(v.history_pages())
def test_a_history_page_decodes_to_what_it_was(page: HistoryPage) -> None:
    data = encode_history(page)
    assert decode_history("test", data, page.branch, page.level, page.index) == page
    for other in ((page.branch + "x", page.level, page.index), (page.branch, page.level, page.index + 1)):
        with pytest.raises(FormatError, match="holds page"):
            decode_history("test", data, *other)


@given(v.survivors())
def test_a_list_of_survivors_decodes_to_what_it_was(survivors: Survivors) -> None:
    data = encode_survivors("test", survivors)
    assert decode_survivors("test", data, survivors.branch) == survivors
    with pytest.raises(FormatError, match="holds snapshots of branch"):
        decode_survivors("test", data, survivors.branch + "x")


@given(v.repository_records())
def test_a_record_of_the_repository_log_decodes_to_what_it_was(record: RepositoryRecord) -> None:
    data = encode_repository_record(record)
    assert decode_repository_record("test", data, record.number, record.repository) == record
    with pytest.raises(FormatError, match=f"holds record {record.number} of the repository log"):
        decode_repository_record("test", data, record.number + 1, record.repository)


@given(v.intents())
def test_an_intent_decodes_to_what_it_was(intent: Intent) -> None:
    data = encode_intent(intent)
    assert decode_intent("test", data, intent.branch, intent.sequence) == intent
    with pytest.raises(FormatError, match="holds an intent"):
        decode_intent("test", data, intent.branch, intent.sequence + 1)


@given(v.collections)
def test_what_a_collection_leaves_decodes_to_what_it_was(collection: Collection) -> None:
    assert decode_collection("test", encode_collection("test", collection)) == collection


@given(v.repositories, v.hints)
def test_small_objects_decode_to_what_they_were(info: RepositoryInfo, hint: Hint) -> None:
    assert decode_repository("test", encode_repository(info)) == info
    assert decode_hint("test", encode_hint(hint)) == hint


@given(v.payloads())
def test_a_change_payload_decodes_to_what_it_was(payload: ChangePayload) -> None:
    assert v.plain(decode_changes("test", encode_changes(payload))) == v.plain(payload)


# -- names in keys ----------------------------------------------------------------------------------------------


@given(v.branches)
def test_a_name_in_a_key_is_one_part_and_leads_back_to_the_name(name: str) -> None:
    part = name_in_key(name)
    assert name_from_key(part) == name
    assert part.isascii()
    assert part not in (".", "..")
    assert not set(part) & set("/\\%") - {"%"}
    assert len(part) <= 200


@pytest.mark.parametrize("name", ["", "a\0", "\x7f", "\n", "x" * 201, "é" * 40, "\ud800", None, 3, b"main"])
def test_a_name_that_no_key_can_hold_is_refused(name: object) -> None:
    with pytest.raises(InvalidInputError):
        name_in_key(name)


@pytest.mark.parametrize(("name", "part"), [(".", "%2E"), ("..", "%2E."), ("a/b", "a%2Fb"), ("a b~", "a%20b~")])
def test_names_are_percent_encoded(name: str, part: str) -> None:
    assert name_in_key(name) == part


def test_a_reference_whose_padded_end_is_out_of_reach_is_refused() -> None:
    """What follows it is told from its padded end, which must fit."""
    end = MAX_REACH - 4
    source = np.zeros(2, dtype=np.int64)
    offset, length = np.array([end - 1, 0]), np.array([1, 1])
    manifest = Manifest(Box((0,), (2,)), None, source, offset, length, packs=bytes(12))
    with pytest.raises(FormatError, match="reaches"):
        encode_manifest(manifest)
