"""Chunks that are set before the metadata of their array are chunks of it, as in any other Zarr store."""

from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from arraystore import Repository, RepositoryConfig, Session, in_memory_storage
from arraystore._format.node import NodeKind
from arraystore._format.zarr_metadata import DOCUMENT_NAMES
from arraystore._session.listing import all_nodes
from arraystore.transforms import rechunk

VALUES = np.arange(1, 9, dtype="i4")


def plain_store(zarr_format: Literal[2, 3]) -> dict[str, bytes]:
    """Return the keys and values of a group with an array in another store."""
    store = MemoryStore()
    zarr.create_group(store, zarr_format=zarr_format)
    array = zarr.create_array(
        store, name="g/t", shape=(8,), chunks=(2,), dtype="i4", fill_value=0, attributes={"units": "K"},
        zarr_format=zarr_format,
    )  # fmt: skip
    array[:] = VALUES
    return {key: value.to_bytes() for key, value in store._store_dict.items()}


def set_value(session: Session, key: str, value: bytes) -> None:
    session.store.set_sync(key, cpu.Buffer.from_bytes(value))


def files(session: Any) -> list[str]:
    return [node.path for node in all_nodes(session.hierarchy) if node.kind == NodeKind.FILE]


def repository(inline: int = 0) -> Repository:
    config = RepositoryConfig(inline_chunk_threshold_bytes=inline, chunk_statistics=True)
    return Repository.create(in_memory_storage(), config=config)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("inline", [0, 512])
@pytest.mark.parametrize("committed", [False, True])
def test_a_copy_in_any_order_of_keys_has_the_chunks_of_its_arrays(
    zarr_format: Literal[2, 3], inline: int, committed: bool
) -> None:
    repo = repository(inline)
    session = repo.writable_session("main")
    for key, value in sorted(plain_store(zarr_format).items(), key=lambda item: item[0].endswith(DOCUMENT_NAMES)):
        if committed and key in ("g/t/zarr.json", "g/t/.zarray"):
            session.commit("chunks without an array")
            session = repo.writable_session("main")
        set_value(session, key, value)
    session.commit("the array")
    found = repo.readonly_session("main")
    assert found.chunk_coordinates("g/t").tolist() == [[0], [1], [2], [3]]
    assert not files(found)
    assert not found.hierarchy.has_files
    assert found.read("g/t").tolist() == VALUES.tolist()
    rechunk(repo, "g/t", (4,))
    assert repo.readonly_session("main").read("g/t").tolist() == VALUES.tolist()


def test_what_is_no_chunk_of_the_array_stays_a_file() -> None:
    repo = repository()
    session = repo.writable_session("main")
    values = plain_store(3)
    early = {"g/t/c/0": values["g/t/c/0"], "g/t/c/9": b"beyond", "g/t/c/x": b"no", "g/t/notes": b"n", "g/tt/c/0": b"o"}
    for key, value in early.items():
        set_value(session, key, value)
    set_value(session, "g/t/zarr.json", values["g/t/zarr.json"])
    session.commit("the array")
    found = repo.readonly_session("main")
    assert found.chunk_coordinates("g/t").tolist() == [[0]]
    assert sorted(files(found)) == ["g/t/c/9", "g/t/c/x", "g/t/notes", "g/tt/c/0"]
    prototype = default_buffer_prototype()
    assert {key: sync(found.store.get(key, prototype)).to_bytes() for key in early} == early  # type: ignore[union-attr]


def test_a_file_that_was_deleted_is_no_chunk() -> None:
    repo = repository()
    session = repo.writable_session("main")
    values = plain_store(3)
    set_value(session, "g/t/c/0", values["g/t/c/0"])
    set_value(session, "g/t/c/1", values["g/t/c/1"])
    session.store.delete_sync("g/t/c/0")
    set_value(session, "g/t/zarr.json", values["g/t/zarr.json"])
    assert session.chunk_coordinates("g/t").tolist() == [[1]]
    assert session.read("g/t").tolist() == [0, 0, 3, 4, 0, 0, 0, 0]


def test_an_array_of_a_fork_has_the_early_chunks_of_its_session() -> None:
    repo = repository()
    session = repo.writable_session("main")
    values = plain_store(3)
    for key in "g/t/c/0", "g/t/c/1":
        set_value(session, key, values[key])
    fork = session.fork()
    fork.store.set_sync("g/t/zarr.json", cpu.Buffer.from_bytes(values["g/t/zarr.json"]))
    session.merge(fork)
    session.commit("the array")
    assert repo.readonly_session("main").chunk_coordinates("g/t").tolist() == [[0], [1]]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("how", ["append", "resize"])
def test_an_early_chunk_beyond_the_grid_is_not_taken_for_data_when_the_array_grows(
    zarr_format: Literal[2, 3], committed: bool, how: str
) -> None:
    repo = repository()
    session = repo.writable_session("main")
    values = plain_store(zarr_format)
    first, beyond = ("g/t/c/0", "g/t/c/5") if zarr_format == 3 else ("g/t/0", "g/t/5")
    set_value(session, beyond, values[first])
    for key, value in values.items():
        set_value(session, key, value)
    array = zarr.open_array(session.store, path="g/t")
    if zarr_format == 2:
        array.attrs["_ARRAY_DIMENSIONS"] = ["t"]
    else:
        document = json.loads(values["g/t/zarr.json"]) | {"dimension_names": ["t"]}
        set_value(session, "g/t/zarr.json", json.dumps(document).encode())
    assert files(session) == [beyond]
    if committed:
        session.commit("an array, and a chunk beyond it")
        session = repo.writable_session("main")
    if how == "append":
        session.append({"g/t": [9, 9, 9]}, "t")
    zarr.open_array(session.store, path="g/t").resize((14,))
    assert not files(session)
    expected = [*VALUES.tolist(), *([9, 9, 9, 0, 0, 0] if how == "append" else [0] * 6)]
    assert session.read("g/t").tolist() == expected
    session.commit("grown")
    found = repo.readonly_session("main")
    assert found.read("g/t").tolist() == expected
    assert len(found.chunk_coordinates("g/t")) == (6 if how == "append" else 4)
