"""Chunks that are set before the metadata of their array are chunks of it, as in any other Zarr store."""

from __future__ import annotations

import json
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from arraystore import (
    ConflictDetector,
    InvalidKeyError,
    MergeConflictError,
    RebaseFailedError,
    Repository,
    RepositoryConfig,
    Session,
    in_memory_storage,
)
from arraystore._format.node import NodeKind
from arraystore._format.zarr_metadata import DOCUMENT_NAMES
from arraystore._session.listing import all_nodes
from arraystore.transforms import rechunk
from tests.tiers import mostly_thorough

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


# -- appends that meet early chunks beyond the grid ---------------------------------------------------------------


def with_early_chunks(beyond: list[int]) -> Repository:
    """Return a repository with an array of eight values, and keys of chunks beyond its end that are files."""
    repo = repository()
    session = repo.writable_session("main")
    for index in beyond:
        set_value(session, f"g/t/c/{index}", plain_store(3)["g/t/c/0"])
    zarr.create_group(session.store, path="g")
    zarr.create_array(
        session.store, name="g/t", shape=(8,), chunks=(2,), dtype="i4", dimension_names=["t"], fill_value=0
    )[:] = VALUES
    session.commit("an array, and chunks beyond it")
    return repo


def check_values(session: Session, expected: list[int]) -> None:
    """Compare an array with its values, read in all ways, and look for keys that are listed twice."""
    assert session.read("g/t").tolist() == expected
    assert [int(session.read("g/t", at)) for at in range(len(expected))] == expected
    assert zarr.open_array(session.store, path="g/t", mode="r")[:].tolist() == expected

    async def listed() -> list[str]:
        return [key async for key in session.store.list_prefix("g/t/c/")]

    keys = sync(listed())
    assert len(set(keys)) == len(keys)
    for key in keys:
        assert session.hierarchy.get_sync(key) is not None


@pytest.mark.parametrize("beyond", mostly_thorough([[5], [6], [7], [9], [4, 5, 6, 7, 8]], every=4))
@pytest.mark.parametrize(("ours", "theirs"), list(product((2, 4), (2, 4))))
def test_appends_that_move_each_other_over_an_early_chunk_keep_their_values(
    beyond: list[int], ours: int, theirs: int
) -> None:
    repo = with_early_chunks(beyond)
    mine, other = repo.writable_session("main"), repo.writable_session("main")
    mine.append({"g/t": [100] * ours}, "t")
    other.append({"g/t": [200] * theirs}, "t")
    other.commit("theirs")
    expected = [*VALUES.tolist(), *[200] * theirs]
    both = {4 + n for n in range(ours // 2)} & {4 + n for n in range(theirs // 2)} & set(beyond)
    if both:  # both have removed the file
        with pytest.raises(RebaseFailedError, match=f"/g/t/c/{min(both)}"):
            mine.commit("ours", rebase_with=ConflictDetector())
        mine = repo.writable_session("main")
        mine.append({"g/t": [100] * ours}, "t")
    mine.commit("ours", rebase_with=ConflictDetector())
    expected += [100] * ours
    check_values(repo.readonly_session("main"), expected)
    session = repo.writable_session("main")
    check_values(session, expected)
    end = len(expected)
    session.append({"g/t": [300] * 6}, "t")
    check_values(session, [*expected, *[300] * 6])
    assert not [path for path in files(session) if int(path.rpartition("/")[2]) < (end + 6) // 2]
    session.commit("longer")
    check_values(repo.readonly_session("main"), [*expected, *[300] * 6])


def test_a_value_that_is_set_where_appends_have_covered_an_early_chunk_is_one_of_the_array() -> None:
    repo = with_early_chunks([5])
    mine, other = repo.writable_session("main"), repo.writable_session("main")
    for session, value in (mine, 100), (other, 200):
        session.append({"g/t": [value] * 2}, "t")
        session.commit("appended", rebase_with=ConflictDetector())
    session = repo.writable_session("main")
    session.write("g/t", slice(9, 11), [8, 9])
    check_values(session, [*VALUES.tolist(), 100, 8, 9, 200])
    session.store.delete_sync("g/t/c/5")
    check_values(session, [*VALUES.tolist(), 100, 8, 0, 0])
    session.commit("deleted")
    check_values(repo.readonly_session("main"), [*VALUES.tolist(), 100, 8, 0, 0])


@pytest.mark.parametrize("by_session", [False, True])
@pytest.mark.parametrize(("index", "refused"), [(0, True), (3, True), (4, False)])
def test_an_early_chunk_of_one_fork_does_not_vanish_behind_the_array_of_another(
    by_session: bool, index: int, refused: bool
) -> None:
    session = repository().writable_session("main")
    zarr.create_group(session.store, path="g")
    one, other = session.fork(), session.fork()
    zarr.create_array(one.store, name="g/t", shape=(8,), chunks=(2,), dtype="i4")[:] = VALUES
    key, value = f"g/t/c/{index}", plain_store(3)["g/t/c/0"]
    (session if by_session else other).store.set_sync(key, cpu.Buffer.from_bytes(value))
    if refused:
        with pytest.raises(MergeConflictError, match=f"'{key}' was set before the array 'g/t'"):
            session.merge(one, other)
    else:
        session.merge(one, other)
        assert files(session) == [key]
        assert session.read("g/t").tolist() == VALUES.tolist()


# -- appends, forks and resets of one session -----------------------------------------------------------------------


def appended(repo: Repository) -> tuple[Session, list[int]]:
    session = repo.writable_session("main")
    session.append({"g/t": [100] * 3}, "t")
    return session, [*VALUES.tolist(), 100, 100, 100]


def test_a_fork_writes_what_its_session_has_appended_and_no_chunk_beyond() -> None:
    repo = with_early_chunks([])
    session, expected = appended(repo)
    fork = session.fork()
    fork.write("g/t", slice(7, 11), [7, 8, 9, 10])
    with pytest.raises(InvalidKeyError, match="outside of the grid"):
        fork.store.set_sync("g/t/c/6", cpu.Buffer.from_bytes(plain_store(3)["g/t/c/0"]))
    session.merge(fork)
    expected[7:] = [7, 8, 9, 10]
    check_values(session, expected)
    other = repo.writable_session("main")
    other.append({"g/t": [200] * 2}, "t")
    other.commit("first")
    session.commit("ends within a chunk", rebase_with=ConflictDetector())
    expected[8:8] = [200, 200]
    check_values(repo.readonly_session("main"), expected)


def test_a_fork_that_wrote_beyond_the_end_of_its_session_is_refused_unless_the_session_has_grown_too() -> None:
    repo = with_early_chunks([])
    session = repo.writable_session("main")
    one, other = session.fork(), session.fork()
    for fork, value in (one, 300), (other, 400):
        array = zarr.open_array(fork.store, path="g/t")
        array.resize((12,))
        array[8:] = value
    session.append({"g/t": [100] * 2}, "t")
    with pytest.raises(MergeConflictError, match="g/t"):
        session.merge(one)
    check_values(session, [*VALUES.tolist(), 100, 100])
    session.discard_changes()
    check_values(session, VALUES.tolist())
    with pytest.raises(MergeConflictError):
        session.merge(other)
    check_values(session, VALUES.tolist())


@pytest.mark.parametrize("first", [2, 3])
@pytest.mark.parametrize("beyond", [[], [5]])
def test_an_append_after_changes_were_discarded_begins_at_the_committed_end(first: int, beyond: list[int]) -> None:
    repo = with_early_chunks(beyond)
    session, other = repo.writable_session("main"), repo.writable_session("main")
    session.append({"g/t": [100] * 2 * first}, "t")
    session.discard_changes()
    check_values(session, VALUES.tolist())
    assert files(session) == [f"g/t/c/{index}" for index in beyond]
    session.append({"g/t": [300] * 2}, "t")
    session.append({"g/t": [400] * 2}, "t")
    other.append({"g/t": [200] * 2}, "t")
    other.commit("other")
    session.commit("after a reset", rebase_with=ConflictDetector())
    check_values(repo.readonly_session("main"), [*VALUES.tolist(), 200, 200, 300, 300, 400, 400])


def test_an_append_after_the_branch_was_reset_begins_at_its_end() -> None:
    repo = with_early_chunks([5])
    start = repo.lookup_branch("main")
    session = repo.writable_session("main")
    session.append({"g/t": [100] * 4}, "t")
    session.commit("appended")
    repo.reset_branch("main", start)
    session = repo.writable_session("main")
    session.append({"g/t": [300] * 4}, "t")
    session.commit("appended again")
    check_values(repo.readonly_session("main"), [*VALUES.tolist(), *[300] * 4])
