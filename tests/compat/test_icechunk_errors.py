"""Errors of the compatibility layer have the classes and kinds that Icechunk 2.3 raises for the same calls."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer.cpu import Buffer

import arraystore.compat.icechunk as icechunk  # noqa: PLR0402 - as the docs say
from arraystore.compat.icechunk import ErrorKind


@pytest.fixture
def repo() -> icechunk.Repository:
    return icechunk.Repository.create(icechunk.in_memory_storage())


@pytest.fixture
def session(repo: icechunk.Repository) -> icechunk.Session:
    """A session of a snapshot with an array `a` of two chunks in a group `g`."""
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="g/a", shape=4, chunks=2, dtype="i4")[:] = 1
    return repo.writable_session("main")


def check(call: Callable[[], object], error: type[Exception], kind: ErrorKind) -> None:
    with pytest.raises(error) as caught:
        call()
    assert caught.value.kind == kind  # type: ignore[attr-defined]
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.kind) == (type(caught.value), kind)


@pytest.mark.parametrize("owner", ["reader", "fork"])
def test_neither_readers_nor_forks_commit(repo: icechunk.Repository, session: icechunk.Session, owner: str) -> None:
    other = repo.readonly_session("main") if owner == "reader" else session.fork()
    solver = icechunk.ConflictDetector()
    for call in (lambda: other.commit("x"), lambda: other.amend("x"), lambda: other.rebase(solver)):
        check(call, icechunk.SessionStateError, ErrorKind.COMMIT_NOT_ALLOWED)
        check(call, icechunk.ReadOnlyError, ErrorKind.COMMIT_NOT_ALLOWED)


def test_states_that_refuse_are_errors_of_state(repo: icechunk.Repository, tmp_path: Path) -> None:
    check(lambda: repo.delete_branch("main"), icechunk.SessionStateError, ErrorKind.CANNOT_DELETE_MAIN)
    repo.set_feature_flag("create_tag", False)
    head = repo.lookup_branch("main")
    check(lambda: repo.create_tag("t", head), icechunk.SessionStateError, ErrorKind.FEATURE_FLAG_DISABLED)
    session = repo.writable_session("main")
    zarr.create_group(session.store)
    check(lambda: session.amend("x"), icechunk.SessionStateError, ErrorKind.NO_AMEND_FOR_INITIAL_COMMIT)
    check(lambda: session.move("/", "/a"), icechunk.SessionStateError, ErrorKind.MOVE_INTO_SELF_OR_DESCENDANT)
    check(lambda: repo.set_feature_flag("x", True), icechunk.InvalidInputError, ErrorKind.INVALID_FEATURE_FLAG)
    storage = icechunk.local_filesystem_storage(str(tmp_path / "r"))
    icechunk.Repository.create(storage)
    for error in (icechunk.InvalidInputError, icechunk.AlreadyExistsError):
        check(lambda: icechunk.Repository.create(storage), error, ErrorKind.PARENT_DIRECTORY_NOT_CLEAN)


def test_a_commit_to_a_branch_that_is_gone(repo: icechunk.Repository, session: icechunk.Session) -> None:
    repo.create_branch("b", session.snapshot_id)
    other = repo.writable_session("b")
    zarr.create_group(other.store, path="new")
    repo.delete_branch("b")
    check(lambda: other.commit("x"), icechunk.RefNotFoundError, ErrorKind.BRANCH_NOT_FOUND)


def test_chunks_and_nodes_that_are_not_there(session: icechunk.Session) -> None:
    store: Any = session.store
    outside = lambda: asyncio.run(store.set("g/a/c/9", Buffer.from_bytes(b"12345678")))  # noqa: E731
    check(outside, icechunk.InvalidInputError, ErrorKind.INVALID_CHUNK_INDEX)
    check(
        lambda: session.reindex_array("/g/a", lambda _: [9]), icechunk.InvalidInputError, ErrorKind.INVALID_CHUNK_INDEX
    )
    check(lambda: session.chunk_type("/g", [0]), icechunk.InvalidInputError, ErrorKind.NOT_AN_ARRAY)
    check(lambda: session.chunk_type("/x", [0]), icechunk.NodeNotFoundError, ErrorKind.NODE_NOT_FOUND)


@pytest.mark.parametrize("document", [b"not json", b"{}", b"[]"])
def test_documents_that_are_none_are_refused(session: icechunk.Session, document: bytes) -> None:
    write = lambda: asyncio.run(session.store.set("g/b/zarr.json", Buffer.from_bytes(document)))  # noqa: E731
    check(write, icechunk.InvalidInputError, ErrorKind.BAD_METADATA)
    assert list(zarr.open_group(session.store, mode="r")["g"]) == ["a"]  # type: ignore[arg-type]


def test_a_reader_is_told_that_it_only_reads_before_what_is_wrong_with_its_document(repo: icechunk.Repository) -> None:
    store = repo.readonly_session("main").store
    with pytest.raises(icechunk.ReadOnlyError):
        asyncio.run(store.set("zarr.json", Buffer.from_bytes(b"{}")))


def test_virtual_references_that_cannot_be(session: icechunk.Session) -> None:
    store, spec = session.store, icechunk.VirtualChunkSpec
    anywhere: Any = {"offset": 0, "length": 8, "validate_container": False}
    for call, error, kind in (
        (
            lambda: store.set_virtual_ref("g/a/c/7", "s3://b/x", **anywhere),
            icechunk.InvalidInputError,
            "invalid-chunk-index",
        ),
        (lambda: store.set_virtual_ref("x/c/0", "s3://b/x", **anywhere), icechunk.NodeNotFoundError, "node-not-found"),
        (
            lambda: store.set_virtual_refs("x", [spec((0,), "s3://b/x", 0, 8)], validate_containers=False),
            icechunk.NodeNotFoundError,
            "node-not-found",
        ),
    ):
        check(call, error, ErrorKind(kind))


def test_virtual_chunks_of_no_bytes_are_refused(session: icechunk.Session) -> None:
    store, spec = session.store, icechunk.VirtualChunkSpec
    offsets, lengths = np.zeros(2, "u8"), np.array([8, 0], "u8")
    for call in (
        lambda: store.set_virtual_ref("g/a/c/0", "s3://b/x", offset=0, length=0, validate_container=False),
        lambda: store.set_virtual_refs("g/a", [spec((0,), "s3://b/x", 0, 0)], validate_containers=False),
        lambda: store.set_virtual_refs_arr("g/a", (2,), ["s3://b/x"] * 2, offsets, lengths, validate_containers=False),
    ):
        check(call, icechunk.InvalidInputError, ErrorKind.ZERO_LENGTH_CHUNK)
    store.set_virtual_refs_arr("g/a", (2,), ["s3://b/x", ""], offsets, lengths, validate_containers=False)


def test_virtual_chunks_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(10))
    prefix = f"file://{tmp_path}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(tmp_path)))
    )
    access = icechunk.containers_credentials({prefix: None})
    repo = icechunk.Repository.create(icechunk.in_memory_storage(), config, access)
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=6, chunks=2, dtype="i4", compressors=None, filters=None)
    for chunk, url, offset in ((0, prefix + "gone", 0), (1, prefix + "f", 8), (2, "file:///elsewhere", 0)):
        session.store.set_virtual_ref(f"a/c/{chunk}", url, offset=offset, length=8, validate_container=False)
    check(lambda: array[:2], icechunk.StorageError, ErrorKind.VIRTUAL_CHUNK_FETCH)
    check(lambda: array[2:4], icechunk.StorageError, ErrorKind.INVALID_OBJECT_SIZE)
    check(lambda: array[4:], icechunk.InvalidInputError, ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK)
    session.commit("references")
    closed = icechunk.Repository.open(repo.storage).readonly_session("main")
    unread = zarr.open_array(closed.store, path="a", mode="r")
    check(lambda: unread[:2], icechunk.InvalidInputError, ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER)
