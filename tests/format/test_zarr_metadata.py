"""What zarr's own documents say of chunk grids and keys is what the store reads from them."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import zarr
import zarr.registry
from hypothesis import given
from hypothesis import strategies as st
from zarr.core.chunk_key_encodings import ChunkKeyEncoding
from zarr.storage import MemoryStore

from arraystore._format.zarr_changes import Dimension, dimension_of, with_length
from arraystore._format.zarr_metadata import ArrayInfo, array_info, node_type, parse_index
from arraystore.errors import InvalidInputError

V3: dict[str, Any] = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [10, 7],
    "data_type": "int8",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 7]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0,
    "codecs": [{"name": "bytes"}],
    "attributes": {},
}
V2: dict[str, Any] = {"zarr_format": 2, "shape": [10, 7], "chunks": [3, 7], "dtype": "|i1", "compressor": None}


def info(document: dict[str, Any], name: str = "zarr.json") -> ArrayInfo:
    return array_info({name: json.dumps(document).encode()})


def info_or_none(document: Any, name: str) -> ArrayInfo | None:
    try:
        return array_info({name: json.dumps(document).encode()})
    except InvalidInputError:
        return None


@dataclass(frozen=True)
class DottedKeys(ChunkKeyEncoding):
    """An encoding as a plugin may register: `x1y2`."""

    name = "arraystore-test-keys"

    @classmethod
    def from_dict(cls, data: Any) -> DottedKeys:
        return cls()

    def to_dict(self) -> Any:
        return {"name": self.name}

    def decode_chunk_key(self, chunk_key: str) -> tuple[int, ...]:
        return tuple(int(part) for part in chunk_key.removeprefix("x").split("y")) if chunk_key != "x" else ()

    def encode_chunk_key(self, chunk_coords: tuple[int, ...]) -> str:
        return "x" + "y".join(map(str, chunk_coords))


@pytest.fixture(autouse=True)
def _registered() -> None:
    zarr.registry.register_chunk_key_encoding(DottedKeys.name, DottedKeys)


shapes = st.integers(0, 3).flatmap(
    lambda d: st.tuples(st.tuples(*[st.integers(0, 9)] * d), st.tuples(*[st.integers(1, 4)] * d))
)
ENCODINGS = [
    {"name": "default", "separator": "/"},
    {"name": "default", "separator": "."},
    {"name": "v2", "separator": "."},
    {"name": "v2", "separator": "/"},
]


def written_by_zarr(shape: Any, chunks: Any, **how: Any) -> tuple[dict[str, bytes], set[str]]:
    """Let zarr write every chunk of an array; returns its documents and its chunk keys."""
    kept: dict[str, Any] = {}
    array = zarr.create_array(
        MemoryStore(kept),
        shape=shape,
        chunks=chunks,
        dtype="i1",
        fill_value=0,
        config={"write_empty_chunks": True},
        **how,
    )
    array[...] = np.ones(shape, dtype="i1")
    documents = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}
    found = {k: v.to_bytes() for k, v in kept.items()}
    return {k: v for k, v in found.items() if k in documents}, found.keys() - documents


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@given(shape=shapes)
def test_keys_are_those_that_zarr_3_writes(encoding: dict[str, str], shape: Any) -> None:
    documents, keys = written_by_zarr(*shape, chunk_key_encoding=encoding)
    check(array_info(documents), keys, shape[0])


@pytest.mark.parametrize("separator", [".", "/"])
@given(shape=shapes)
def test_keys_are_those_that_zarr_2_writes(separator: str, shape: Any) -> None:
    encoding = {"name": "v2", "separator": separator}
    documents, keys = written_by_zarr(*shape, chunk_key_encoding=encoding, zarr_format=2)
    check(array_info(documents), keys, shape[0])


def check(found: ArrayInfo, keys: set[str], shape: tuple[int, ...]) -> None:
    cells = list(itertools.product(*map(range, found.grid)))
    assert found.shape == shape
    assert {found.key(cell) for cell in cells} == keys
    for cell in cells:
        assert found.parse(found.key(cell)) == cell
        assert found.inside(cell)
    assert not found.grid or not found.inside(found.grid)


def test_keys_of_a_registered_encoding_are_asked_of_it() -> None:
    document = {**V3, "chunk_key_encoding": {"name": DottedKeys.name}}
    found = info(document)
    assert found.key((1, 0)) == "x1y0"
    assert found.parse("x1y0") == (1, 0)
    for key in ("x01y0", "x1", "x1y0y0", "1.0", "c/1/0", "x-1y0", "", "xay0"):
        assert found.parse(key) is None


def test_an_encoding_that_nobody_registered_is_refused() -> None:
    assert info_or_none({**V3, "chunk_key_encoding": {"name": "nobody-knows"}}, "zarr.json") is None


def rectilinear(shape: list[int], chunk_shapes: Any, **more: Any) -> dict[str, Any]:
    configuration = {"kind": "inline", "chunk_shapes": chunk_shapes, **more}
    return {**V3, "shape": shape, "chunk_grid": {"name": "rectilinear", "configuration": configuration}}


runs = st.lists(st.integers(1, 5) | st.lists(st.integers(1, 5), min_size=2, max_size=2), min_size=1, max_size=5)


@given(runs, st.data())
def test_a_rectilinear_grid_has_the_chunks_that_hold_items(edges: list[Any], data: Any) -> None:
    sides = [side for run in edges for side in ([run] if isinstance(run, int) else [run[0]] * run[1])]
    extent = data.draw(st.integers(0, sum(sides)))
    starts = list(itertools.accumulate(sides, initial=0))[:-1]
    assert info(rectilinear([extent, 7], [edges, 3])).grid == (sum(start < extent for start in starts), 3)


@pytest.mark.skipif("rectilinear_chunks" not in zarr.config.get("array"), reason="this zarr writes regular grids only")
@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=5), min_size=1, max_size=3), st.data())
def test_keys_of_rectilinear_grids_are_those_that_zarr_writes(edges: list[list[int]], data: Any) -> None:
    shape = tuple(sum(sides) for sides in edges)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        documents, keys = written_by_zarr(shape, edges)
    with zarr.config.set({"array.rectilinear_chunks": False}):
        check(array_info(documents), keys, shape)


def test_long_runs_of_chunks_cost_nothing_to_read() -> None:
    most = (1 << 63) - 1
    assert info(rectilinear([most, most], [[[1, most]], [5, [most, most]]])).grid == (most, 2)
    assert info(rectilinear([1000, 1000], [[[1, most]] * 1000, most])).grid == (1000, 1)
    assert info(rectilinear([], [])).grid == ()


@pytest.mark.parametrize(
    "chunk_shapes",
    [[[4, 5], 7], [[[3, 3]], 7], [[], 7], [[10], 0], [[10], -7], [[10, 0], 7], [[10, -1], 7], [[[10, 0]], 7],
     [[[10, -1], 10], 7], [[[0, 10], 10], 7], [[[10]], 7], [[[10, 1, 1]], 7], [[[10, [1]]], 7], [[10]], [[10], 7, 1],
     [10.0, 7], [True, 7], [[True, 9], 7], [[[10, True]], 7], ["10", 7], [None, 7], [{"10": 1}, 7], "10", None, {},
     [[1 << 63], 7], [1 << 63, 7], [[[1, 1 << 63]], 7], [[10, "x"], 7]],
    ids=repr,
)  # fmt: skip
def test_a_rectilinear_grid_that_does_not_cover_the_array_or_is_none_is_refused(chunk_shapes: Any) -> None:
    assert info_or_none(rectilinear([10, 7], chunk_shapes), "zarr.json") is None


def test_a_grid_of_an_unknown_kind_is_refused() -> None:
    assert info_or_none(rectilinear([10, 7], [10, 7], kind="outline"), "zarr.json") is None
    assert info_or_none({**V3, "chunk_grid": {"name": "hexagonal", "configuration": {}}}, "zarr.json") is None


@pytest.mark.parametrize(
    "key",
    ["c", "c/", "c/1", "c/1/2/3", "c/01/0", "c/-1/0", "c/+1/0", "c/1_0/0", "c/ 1/0", "c/1/", "c//1", "c/١/0", "1/0",
     "c.1.0", "C/1/0", "c/1/0/", "/c/1/0", "c/1e1/0", "c/" + "9" * 20 + "/0", ""],
)  # fmt: skip
def test_a_key_in_any_other_form_is_no_chunk_key(key: str) -> None:
    assert info(V3).parse(key) is None


@pytest.mark.parametrize("key", ["0", "c0", "c/", "c/0", ""])
def test_the_only_chunk_of_an_array_without_dimensions_has_one_key(key: str) -> None:
    scalar = {**V3, "shape": [], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": []}}}
    assert info(scalar).parse("c") == ()
    assert info(scalar).parse(key) is None
    assert info({**V2, "shape": [], "chunks": []}, ".zarray").parse("0") == ()


@given(st.text(max_size=6) | st.integers(-5, 1 << 70).map(str))
def test_an_index_has_one_canonical_form(text: str) -> None:
    for _ in range(2):  # the second time from memory
        try:
            value = parse_index(text)
        except ValueError:
            assert not (text.isdigit() and text.isascii() and str(int(text)) == text and len(text) <= 19)
        else:
            assert str(value) == text


def test_documents_of_both_formats_give_the_keys_of_both() -> None:
    both = {"zarr.json": json.dumps(V3).encode(), ".zarray": json.dumps(V2).encode()}
    found = array_info(both)
    assert found.parse("c/1/0") == found.parse("1.0") == (1, 0)
    assert found.key((1, 0)) == "c/1/0"


@pytest.mark.parametrize("name", ["zarr.json", ".zarray", ".zgroup"])
@pytest.mark.parametrize(
    "document",
    [b"", b"\xff\xfe", b"nul", b"null", b"[]", b"3", b'"zarr"', b"{", b"[" * 100_000, b'{"a":' * 50_000, b"{}",
     b'{"zarr_format": 3}', b'{"zarr_format": 2}x', b'{"zarr_format": true, "node_type": "group"}', b"1" * 10_000,
     b'{"zarr_format": [3], "node_type": {}}', b"\xef\xbb\xbf{}", b'{"zarr_format": 1e400}'],
    ids=lambda d: repr(d[:20]),
)  # fmt: skip
def test_bytes_that_are_no_node_are_no_node(name: str, document: bytes) -> None:
    assert node_type(name, document) is None
    with pytest.raises(InvalidInputError):
        array_info({name: document})


hostile = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1 << 65) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
) | st.sampled_from([["regular"], {"name": []}, {"name": {}}, {"configuration": 3}, [1] * 65, [0, 0], [-1, 3]])


@given(st.sampled_from(sorted(V3)), hostile, st.sampled_from(sorted(V2)))
def test_any_value_in_place_of_a_field_is_read_or_refused(field: str, value: Any, old: str) -> None:
    for document, name in (({**V3, field: value}, "zarr.json"), ({**V2, old: value}, ".zarray")):
        found = info_or_none(document, name)
        assert found is None or len(found.grid) == len(found.shape)
        kind = node_type(name, json.dumps(document).encode())
        assert kind in ("array", "group", None)
        if kind == "array":
            assert found is not None


@given(hostile, hostile)
def test_any_encoding_and_grid_are_read_or_refused(grid: Any, encoding: Any) -> None:
    grids = [grid, *({"name": name, "configuration": grid} for name in ("regular", "rectilinear"))]
    encodings = [encoding, *({"name": name, "configuration": encoding} for name in ("default", DottedKeys.name))]
    for chunk_grid, keys in itertools.product(grids, [*encodings, {"name": encoding}]):
        found = info_or_none({**V3, "chunk_grid": chunk_grid, "chunk_key_encoding": keys}, "zarr.json")
        if found is not None:
            origin = tuple(0 for _ in found.grid)
            assert found.parse(found.key(origin)) == origin


def test_an_append_goes_by_the_documents_that_describe_the_array() -> None:
    v3 = {**V3, "shape": [7], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}}, "chunks": 5}
    documents = {"zarr.json": json.dumps(v3).encode(), ".zarray": b"garbage"}
    assert dimension_of(documents, 0) == Dimension(7, 2)
    grown = with_length(documents, 0, 9)
    assert dimension_of(grown, 0) == Dimension(9, 2)
    assert grown[".zarray"] == b"garbage"


def test_documents_that_differ_in_dimensions_have_no_common_dimension() -> None:
    v2 = {"zarr_format": 2, "shape": [7], "chunks": [2]}
    v3 = {**V3, "shape": [7, 6], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}}}
    documents = {"zarr.json": json.dumps(v3).encode(), ".zarray": json.dumps(v2).encode()}
    assert dimension_of(documents, 0) == Dimension(7, 2)
    with pytest.raises(InvalidInputError, match="no dimension 1"):
        dimension_of(documents, 1)
