"""Keys that no hierarchy can hold are refused when set, and quietly absent otherwise."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.sync import _collect_aiterator, sync

from arraystore import ArrayStore, InvalidInputError, InvalidKeyError, Repository, Session, in_memory_storage
from arraystore._format.node import MAX_PATH

VALUE = cpu.Buffer.from_bytes(b"value" * 200)

NO_KEYS = [
    "",
    ".",
    "..",
    "/",
    "../x",
    "/abs",
    "a//b",
    "a/",
    "a/./b",
    "a/../b",
    "./a",
    "nul\0l",
    "\0a",
    "lone \ud800 surrogate",
    "x" * (MAX_PATH + 1),
]
NO_KEYS += [f"{key}/zarr.json" for key in ("..", "a//b", "/abs", "nul\0l", "\udfff", "x" * MAX_PATH)]

OUTSIDE = ["arr/c/99/0", "arr/c/2/0", "arr/c/0/3", f"arr/c/{10**18}/0", "v2/5", "dots/c.0.9", "zero/c/0"]

NOT_CANONICAL = [
    *(
        "arr/c/01/0",
        "arr/c/+1/0",
        "arr/c/1_0/0",
        "arr/c/-1/0",
        "arr/c/ 1/0",
        "arr/c/1 /0",
        "arr/c/1e0/0",
        "arr/c/0x1/0",
    ),
    *(
        "arr/c/\u0661/0",
        "arr/c/\u00b2/0",
        "arr/c/1.0",
        "arr/c.1.0",
        "arr/c/0",
        "arr/c/0/0/0",
        "arr/0/0",
        "arr/c",
        "arr/C/0/0",
    ),
    *(f"arr/c/{'9' * 30}/0", "dots/c.0.01", "dots/c/0/0", "v2/00", "v2/0.0", "scalar/c/0", "scalar/0"),
]


@pytest.fixture
def store(memory_repo: Repository) -> ArrayStore:
    """Arrays of several kinds, half of the chunks committed."""
    session = memory_repo.writable_session("main")
    zarr.create_array(session.store, name="arr", shape=(4, 6), chunks=(2, 2), dtype="i4")[:2] = 1
    dots = {"name": "default", "separator": "."}
    zarr.create_array(session.store, name="dots", shape=(4, 6), chunks=(2, 2), dtype="i4", chunk_key_encoding=dots)[
        :
    ] = 1
    zarr.create_array(session.store, name="v2", shape=(10,), chunks=(2,), dtype="i4", zarr_format=2)[:] = 1
    zarr.create_array(session.store, name="scalar", shape=(), dtype="i4")[...] = 1
    zarr.create_array(session.store, name="zero", shape=(0,), chunks=(2,), dtype="i4")
    session.commit("arrays")
    session = memory_repo.writable_session("main")
    zarr.open_array(session.store, path="arr")[2:] = 2
    return session.store


def snapshot_of(store: ArrayStore) -> dict[str, bytes]:
    keys = sync(_collect_aiterator(store.list()))
    return {key: value.to_bytes() for key in keys if (value := store.get_sync(key)) is not None}


@pytest.mark.parametrize("key", [*NO_KEYS, *OUTSIDE], ids=ascii)
def test_a_key_that_cannot_be_is_refused_when_set_and_absent_otherwise(store: ArrayStore, key: str) -> None:
    before, status = snapshot_of(store), store.session.status()
    with pytest.raises(InvalidKeyError):
        store.set_sync(key, VALUE)
    with pytest.raises(InvalidKeyError):
        sync(store.set(key, VALUE))
    with pytest.raises(InvalidKeyError):
        sync(store.set_if_not_exists(key, VALUE))
    absent(store, key)
    assert snapshot_of(store) == before
    assert store.session.status() == status


def absent(store: ArrayStore, key: str) -> None:
    assert store.get_sync(key) is None
    assert sync(store.get(key, default_buffer_prototype())) is None
    assert not sync(store.exists(key))
    with pytest.raises(FileNotFoundError):
        sync(store.getsize(key))
    store.delete_sync(key)
    sync(store.delete(key))


@pytest.mark.parametrize("key", NOT_CANONICAL, ids=ascii)
def test_an_index_that_is_not_canonical_is_no_chunk(store: ArrayStore, key: str) -> None:
    """Zarr never writes such a key; like any other unknown key it is a file, and leaves all chunks alone."""
    before = snapshot_of(store)
    absent(store, key)
    store.set_sync(key, VALUE)
    assert snapshot_of(store) == before | {key: VALUE.to_bytes()}
    store.delete_sync(key)
    assert snapshot_of(store) == before


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"zarr_format": 3}', b"[" * 100_000])
@pytest.mark.parametrize("key", ["arr/zarr.json", "v2/.zarray"])
def test_metadata_of_a_node_is_not_overwritten_by_garbage(store: ArrayStore, key: str, garbage: bytes) -> None:
    before = snapshot_of(store)
    with pytest.raises(InvalidInputError, match="delete it first"):
        store.set_sync(key, cpu.Buffer.from_bytes(garbage))
    assert snapshot_of(store) == before


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [
        ("arr/zarr.json", "shape", [-1, 2]),
        ("arr/zarr.json", "shape", [1 << 64, 2]),
        ("arr/zarr.json", "shape", [True, 2]),
        ("arr/zarr.json", "shape", [1]),
        ("arr/zarr.json", "shape", None),
        ("arr/zarr.json", "chunk_grid", {"name": "unheard-of"}),
        ("arr/zarr.json", "chunk_key_encoding", {"name": "unheard-of"}),
        ("arr/zarr.json", "chunk_key_encoding", {"name": "default", "configuration": {"separator": "-"}}),
        ("v2/.zarray", "dimension_separator", "-"),
        ("v2/.zarray", "chunks", [1, 2]),
        ("v2/.zarray", "zarr_format", 3),
    ],
)
def test_metadata_that_describes_no_array_is_refused(store: ArrayStore, key: str, field: str, value: object) -> None:
    found = store.get_sync(key)
    assert found is not None
    document = json.loads(found.to_bytes()) | {field: value}
    with pytest.raises(InvalidInputError):
        store.set_sync(key, cpu.Buffer.from_bytes(json.dumps(document).encode()))
    assert store.get_sync(key) == found


def test_nothing_can_be_a_node_below_an_array(store: ArrayStore) -> None:
    before = snapshot_of(store)
    for name in ("arr/below", "arr/c/0", "v2/deep/down"):
        for zarr_format in (2, 3):
            with pytest.raises(ValueError, match=r"delete it first|ancestor .* is an array|A parent of .* is an array"):
                zarr.create_array(store, name=name, shape=2, dtype="i4", zarr_format=zarr_format)
        with pytest.raises(InvalidKeyError):
            store.set_sync(f"{name}/zarr.json", cpu.Buffer.from_bytes(b'{"zarr_format":3,"node_type":"group"}'))
    after = snapshot_of(store)
    added = {key for key in after.keys() - before.keys() if "/" in key}
    assert all(key.endswith(".zattrs") for key in added)  # which zarr writes first
    assert {key: after[key] for key in before} == before
    assert np.all(zarr.open_array(store, path="arr")[:2] == 1)


@pytest.mark.parametrize(("name", "zarr_format"), [("arr", 2), ("v2", 3)])
def test_a_group_of_the_other_format_does_not_replace_an_array(store: ArrayStore, name: str, zarr_format: Any) -> None:
    before = snapshot_of(store)
    with pytest.raises(InvalidKeyError, match="delete it first"):
        zarr.create_group(store, path=name, zarr_format=zarr_format)
    after = snapshot_of(store)
    assert {key: after[key] for key in before} == before


def test_a_group_with_members_does_not_become_an_array(session: Session) -> None:
    zarr.create_array(session.store, name="g/a", shape=2, dtype="i4")
    document = session.store.get_sync("g/a/zarr.json")
    assert document is not None
    with pytest.raises(InvalidKeyError, match="below it"):
        session.store.set_sync("g/zarr.json", document)


def test_metadata_of_other_dimensions_put_in_place_starts_a_new_array(store: ArrayStore) -> None:
    """No chunk key of the old array is one of the new array, so none of its chunks may show."""
    zarr.create_array(store, name="cube", shape=(2, 2, 2), chunks=(1, 1, 1), dtype="i4")
    document = store.get_sync("cube/zarr.json")
    assert document is not None
    store.set_sync("arr/zarr.json", document)
    cube = zarr.open_array(store, path="arr")
    assert cube.shape == (2, 2, 2)
    np.testing.assert_array_equal(cube[...], 0)
    cube[0] = 5
    store.session.commit("cube")
    np.testing.assert_array_equal(zarr.open_array(store, path="arr", mode="r")[0], 5)
    np.testing.assert_array_equal(zarr.open_array(store, path="arr", mode="r")[1], 0)


def test_an_array_has_one_way_to_name_its_chunks(store: ArrayStore) -> None:
    """Documents of both formats share the chunks of a node, so they must agree on the keys, as after a migration."""
    before = snapshot_of(store)
    with pytest.raises(InvalidInputError, match="chunk keys"):
        zarr.create_array(store, name="arr", shape=(4, 6), chunks=(2, 2), dtype="i4", zarr_format=2)
    after = snapshot_of(store)
    assert {key: after[key] for key in before} == before
    assert "arr/.zarray" not in after


def test_an_array_migrated_in_place_reads_the_same_in_both_formats(store: ArrayStore) -> None:
    expected = zarr.open_array(store, path="v2", zarr_format=2)[:]
    keys = {"name": "v2", "separator": "."}
    zarr.create_array(store, name="new", shape=(10,), chunks=(2,), dtype="i4", chunk_key_encoding=keys)
    document = store.get_sync("new/zarr.json")
    assert document is not None
    store.set_sync("v2/zarr.json", document)
    store.session.commit("migrated")
    np.testing.assert_array_equal(zarr.open_array(store, path="v2", zarr_format=2, mode="r")[:], expected)
    np.testing.assert_array_equal(zarr.open_array(store, path="v2", zarr_format=3, mode="r")[:], expected)


def test_a_grid_too_large_to_number_is_refused_before_anything_is_written(session: Session) -> None:
    array = zarr.create_array(session.store, name="a", shape=(2, 1 << 20), chunks=(1, 1), dtype="i1", compressors=None)
    array[0, 0] = 1
    with pytest.raises(InvalidInputError, match="must have at most"):
        array.resize((1 << 50, 1 << 20))
    array = zarr.open_array(session.store, path="a")
    assert array.shape == (2, 1 << 20)
    assert array[0, 0] == 1


def test_an_array_may_take_the_place_of_nodes_that_were_deleted() -> None:
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    root = zarr.create_group(session.store)
    root.create_array("g/h/x", shape=(2,), chunks=(1,), dtype="i4")
    for path in ("g", "g/h"):
        with pytest.raises(InvalidKeyError, match="below it"):
            session.hierarchy.set_sync(f"{path}/.zarray", memoryview(_V2_ARRAY))
    del root["g/h"]["x"]
    del root["g"]
    root.create_array("g", shape=(2,), chunks=(1,), dtype="i4")
    session.commit("an array where a group was")
    assert isinstance(zarr.open(repository.readonly_session("main").store, path="g", mode="r"), zarr.Array)


_V2_ARRAY = (
    b'{"zarr_format": 2, "shape": [2], "chunks": [1], "dtype": "<i4", "compressor": null, "fill_value": 0, '
    b'"order": "C", "filters": null}'
)
