"""What was cut off from an array does not come back with a chunk that a fork wrote without having seen it."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer.cpu import Buffer

from arraystore import ForkSession, MergeConflictError, Repository, RepositoryConfig, Session, in_memory_storage

LEFT = [1, 1, 1, 1, 0, 0, 0, 0]


@pytest.fixture
def session() -> Session:
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(8,), chunks=(2,), dtype="i4", fill_value=0)[:] = 1
    session.commit("an array")
    return repository.writable_session("main")


def _opened(session: Session | ForkSession) -> Any:
    return zarr.open_array(session.store, path="a", mode="r+")


def _resize(session: Session | ForkSession, *lengths: int) -> None:
    for length in lengths:
        _opened(session).resize((length,))


def _resize_in_the_document(session: Session | ForkSession, *lengths: int) -> None:
    for length in lengths:
        document = session.store.get_sync("a/zarr.json")
        assert document is not None
        changed = json.loads(document.to_bytes()) | {"shape": [length]}
        session.store.set_sync("a/zarr.json", Buffer.from_bytes(json.dumps(changed).encode()))


def _check_refused(session: Session | ForkSession, writing: ForkSession) -> None:
    _opened(writing)[7] = 9
    with pytest.raises(MergeConflictError) as caught:
        session.merge(writing)
    assert caught.value.chunks == ((3,),)
    assert _opened(session)[:].tolist() == LEFT


@pytest.mark.parametrize("resize", [_resize, _resize_in_the_document])
def test_a_session_cuts_off_and_grows_again(session: Session, resize: Any) -> None:
    early = session.fork()
    resize(session, 4, 8)
    late = session.fork()
    _check_refused(session, early)
    _opened(late)[7] = 5
    session.merge(late)
    assert _opened(session)[:].tolist() == [*LEFT[:7], 5]


@pytest.mark.parametrize("resize", [_resize, _resize_in_the_document])
def test_a_fork_cuts_off_and_its_session_grows_again(session: Session, resize: Any) -> None:
    cutting, early = session.fork(), session.fork()
    resize(cutting, 4)
    session.merge(cutting)
    resize(session, 8)
    _check_refused(session, early)


@pytest.mark.parametrize("travels", [False, True])
@pytest.mark.parametrize("resize", [_resize, _resize_in_the_document])
def test_a_fork_cuts_off_and_merges_another_one(session: Session, resize: Any, travels: bool) -> None:
    cutting, other = session.fork(), session.fork()
    resize(cutting, 4, 8)
    _check_refused(pickle.loads(pickle.dumps(cutting)) if travels else cutting, other)


def test_what_a_fork_writes_where_it_has_cut_off_itself_is_merged_again(session: Session) -> None:
    fork = session.fork()
    _resize(fork, 4)
    session.merge(fork)
    _resize(fork, 8)
    _opened(fork)[6:] = 5
    session.merge(fork)
    assert _opened(session)[:].tolist() == [*LEFT[:6], 5, 5]


def test_only_what_is_beyond_a_cut_collides(session: Session) -> None:
    early = session.fork()
    _resize_in_the_document(session, 4, 8)
    _opened(early)[:4] = np.arange(4)
    session.merge(early)
    assert _opened(session)[:].tolist() == [0, 1, 2, 3, 0, 0, 0, 0]


def test_fill_values_that_a_fork_writes_where_it_has_cut_off_collide_with_chunks_of_others(session: Session) -> None:
    _opened(session)[6:] = 0  # no chunk is there for the fork to cut off
    fork = session.fork()
    _resize_in_the_document(fork, 4, 8)
    _opened(fork)[6:] = 0
    _opened(session)[6:] = 5
    with pytest.raises(MergeConflictError) as caught:
        session.merge(fork)
    assert caught.value.chunks == ((3,),)
    session.merge(fork, on_overlap="last")
    assert _opened(session)[:].tolist() == LEFT


def test_chunks_of_other_arrays_keep_their_packs_where_a_fork_cuts_off_an_array() -> None:
    repository = Repository.create(in_memory_storage(), RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repository.writable_session("main")
    for name in ("a", "b"):
        zarr.create_array(session.store, name=name, shape=(8,), chunks=(2,), dtype="i4", compressors=None)[:] = 1
    session.commit("two arrays")
    session = repository.writable_session("main")
    fork = session.fork()
    inner = fork.fork()
    for start in (0, 2, 4):  # each state of the inner fork brings the packs of the one before once more
        inner.write("a", slice(start, start + 2), start + 10)
        fork.merge(inner)
    zarr.open_array(fork.store, path="b").resize((4,))
    for start in (0, 2):
        fork.write("b", slice(start, start + 2), start + 20)
        fork.fork()  # what is written later goes to another pack
    session.merge(fork.changes())
    assert np.asarray(session.read("a")).tolist() == [10, 10, 12, 12, 14, 14, 1, 1]
    assert np.asarray(session.read("b")).tolist() == [20, 20, 22, 22]
