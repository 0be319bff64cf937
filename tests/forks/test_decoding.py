"""Chunks of forks are merged only into an array that decodes them as the fork has encoded them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer.cpu import Buffer

import arraystore as ars
from arraystore import (
    ConflictDetector,
    ConflictType,
    FormatError,
    MergeConflictError,
    RebaseFailedError,
    in_memory_storage,
    merge_sessions,
)
from arraystore._forks.merge import decode_payload
from arraystore._format.fork_payload import encode_changes
from tests.forks.support import CHUNK, counted, fill, values


@pytest.fixture
def session() -> ars.Session:
    return counted(in_memory_storage())[0].writable_session("main")


def _scale(session: Any, factor: float = 0.1, path: str = "a") -> None:
    zarr.open_array(session.store, path=path).attrs["scale_factor"] = factor


def _title(session: Any) -> None:
    zarr.open_array(session.store, path="a").attrs["title"] = "rain"


def _grow(session: Any) -> None:
    zarr.open_array(session.store, path="a").resize((20 * CHUNK,))


def _document(session: Any, **members: Any) -> None:
    """Change members of the metadata document of the array in place, as programs do that edit documents."""
    document = json.loads(session.store.get_sync("a/zarr.json").to_bytes())
    session.store.set_sync("a/zarr.json", Buffer.from_bytes(json.dumps(document | members).encode()))


CHANGES: dict[str, Callable[[Any], None]] = {
    "scale": _scale,
    "fill value": lambda session: _document(session, fill_value=7),
    "data type": lambda session: _document(session, data_type="int8"),
    "dimension": lambda session: _document(session, dimension_names=["x"]),
    "codecs": lambda session: _document(
        session, codecs=[{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]
    ),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_chunks_of_a_fork_are_refused_once_the_session_decodes_the_array_otherwise(
    session: ars.Session, change: str
) -> None:
    fork = session.fork()
    fill(fork, 0, 5)
    CHANGES[change](session)
    before = values(session) if change != "codecs" else None
    with pytest.raises(MergeConflictError, match="decode") as caught:
        session.merge(fork, on_overlap="last")
    assert caught.value.path == "a"
    assert caught.value.chunks == ((0,),)
    assert before is None or values(session) == before


@pytest.mark.parametrize("change", [_title, _grow])
def test_attributes_that_mean_nothing_to_chunks_and_growth_do_not_stand_in_the_way(
    session: ars.Session, change: Callable[[Any], None]
) -> None:
    fork, other = session.fork(), session.fork()
    fill(fork, 0, 5)
    fill(other, 1, 6)
    change(session)
    session.merge(merge_sessions(fork, other))
    assert values(session)[:3] == [5, 6, 1]


def test_chunks_are_merged_where_a_change_was_taken_back(session: ars.Session) -> None:
    fork = session.fork()
    fill(fork, 0, 5)
    _scale(session)
    del zarr.open_array(session.store, path="a").attrs["scale_factor"]
    session.merge(fork)
    assert values(session)[0] == 5


def test_a_fork_that_was_taken_after_the_change_is_merged(session: ars.Session) -> None:
    session.fork()
    _scale(session)
    fork = session.fork()
    fill(fork, 0, 5)
    session.merge(pickle.loads(pickle.dumps(fork)))
    assert values(session)[0] == 5


@pytest.mark.parametrize("combined", [False, True])
@pytest.mark.parametrize("first", ["redefines", "writes"])
def test_of_two_forks_one_cannot_change_how_chunks_of_the_other_are_decoded(
    session: ars.Session, first: str, combined: bool
) -> None:
    redefines, writes = session.fork(), session.fork()
    _scale(redefines)
    fill(redefines, 1, 6)
    fill(writes, 0, 5)
    both = [redefines, writes] if first == "redefines" else [writes, redefines]
    with pytest.raises(MergeConflictError, match="decode"):
        session.merge(merge_sessions(both) if combined else both)
    session.merge(both[0])
    with pytest.raises(MergeConflictError, match="decode"):
        session.merge(both[1], on_overlap="last")


def test_a_fork_cannot_change_how_what_the_session_wrote_meanwhile_is_decoded(session: ars.Session) -> None:
    fork = session.fork()
    _scale(fork)
    fill(session, 3, 9)
    with pytest.raises(MergeConflictError, match="decode"):
        session.merge(fork)
    assert "scale_factor" not in zarr.open_array(session.store, path="a").attrs


def test_forks_that_make_the_same_change_and_write_are_merged_at_once(session: ars.Session) -> None:
    forks = [session.fork() for _ in range(3)]
    for number, fork in enumerate(forks):
        _scale(fork)
        fill(fork, number, 5)
    session.merge(forks)
    assert values(session)[:4] == [5, 5, 5, 1]
    assert zarr.open_array(session.store, path="a").attrs["scale_factor"] == 0.1


def test_a_fork_may_change_what_only_it_and_older_forks_have_written(session: ars.Session) -> None:
    older = session.fork()
    fill(older, 0, 5)
    session.merge(older)
    fork = session.fork()
    _scale(fork)
    fill(fork, 1, 6)
    session.merge(fork)
    fill(fork, 2, 7)
    session.merge(fork)
    assert values(session)[:4] == [5, 6, 7, 1]


def test_what_a_fork_takes_back_does_not_change_how_what_others_wrote_since_is_decoded(session: ars.Session) -> None:
    fork = session.fork()
    _scale(fork)
    session.merge(fork)
    later = session.fork()
    fill(later, 0, 5)
    session.merge(later)
    del zarr.open_array(fork.store, path="a").attrs["scale_factor"]
    with pytest.raises(MergeConflictError, match="decode"):
        session.merge(fork)


def test_a_fork_of_a_fork_that_changed_the_array_is_not_merged_into_the_session_without_it(
    session: ars.Session,
) -> None:
    fork = session.fork()
    _scale(fork)
    inner = fork.fork()
    fill(inner, 0, 5)
    written = inner.changes()
    with pytest.raises(MergeConflictError, match="decode"):
        session.merge(written)
    fork.merge(written)
    session.merge(fork)
    assert values(session)[0] == 5


@pytest.mark.parametrize("redefines", ["into", "merged"])
def test_a_fork_refuses_chunks_of_another_fork_that_decodes_them_otherwise(
    session: ars.Session, redefines: str
) -> None:
    into, merged = session.fork(), session.fork()
    fill(into, 0, 5)
    fill(merged, 1, 6)
    _scale(into if redefines == "into" else merged)
    with pytest.raises(MergeConflictError, match="decode"):
        into.merge(merged)


def test_deletions_of_chunks_and_files_are_merged_as_before(session: ars.Session) -> None:
    fork = session.fork()
    fork.store.delete_sync("a/c/0")
    np.testing.assert_array_equal(values(fork)[:2], [0, 1])
    _title(session)
    session.merge(fork)
    assert values(session)[:2] == [0, 1]


def _shrink_and_grow(session: Any) -> None:
    array = zarr.open_array(session.store, path="a")
    array.resize((2 * CHUNK,))
    array.resize((16 * CHUNK,))


@pytest.mark.parametrize("travels", [False, True])
def test_what_a_fork_cuts_off_in_between_collides_with_what_others_commit_there(travels: bool) -> None:
    repo = counted(in_memory_storage())[0]
    session = repo.writable_session("main")
    fork = session.fork()
    _shrink_and_grow(fork)
    if travels:
        fork = pickle.loads(pickle.dumps(fork))
    session.merge(fork)
    theirs = repo.writable_session("main")
    fill(theirs, 12, 4)
    theirs.commit("where the fork has cut the array off")
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=ConflictDetector())
    (conflict,) = caught.value.conflicts
    assert conflict.conflict_type is ConflictType.ChunkDoubleUpdate
    assert conflict.conflicted_chunks is not None
    assert conflict.conflicted_chunks.tolist() == [[12]]


@pytest.mark.parametrize("first", [0, 1])
def test_what_any_of_several_forks_cuts_off_collides_with_what_others_commit_there(first: int) -> None:
    repository = ars.Repository.create(ars.in_memory_storage())
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="v", shape=(10,), chunks=(1,), dtype="i8", fill_value=-1)[:5] = 1
    session.commit("half of it")
    session, theirs = repository.writable_session("main"), repository.writable_session("main")
    forks = [session.fork(), session.fork()]
    for fork, left in zip(forks, (5, 8), strict=True):
        array = zarr.open_array(fork.store, path="v", mode="r+")
        array.resize((left,))
        array.resize((10,))
        array[0] = left
    session.merge(forks[first], forks[1 - first], on_overlap="last")
    zarr.open_array(theirs.store, path="v", mode="r+")[6] = 6
    theirs.commit("where one of them has cut the array off")
    with pytest.raises(ars.RebaseFailedError):
        session.commit("cut off", rebase_with=ars.ConflictDetector())


def test_what_a_fork_cuts_off_in_between_is_gone_and_what_was_written_since_stays() -> None:
    repo = counted(in_memory_storage())[0]
    session = repo.writable_session("main")
    fill(session, 10, 4)
    fork, other = session.fork(), session.fork()
    _shrink_and_grow(fork)
    fill(fork, 9, 5)
    fill(other, 11, 6)
    fill(session, 12, 7)
    session.merge(fork, other)
    expected = [1, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 6, 7, 0, 0, 0]
    assert values(session) == expected
    session.commit("merged")
    assert values(repo.readonly_session("main")) == expected


def test_a_cut_with_other_dimensions_than_the_array_is_refused(session: ars.Session) -> None:
    fork = session.fork()
    _shrink_and_grow(fork)
    payload = decode_payload(fork.changes())
    (array,) = payload.forks[0].arrays
    wrong = replace(payload.forks[0], arrays=(replace(array, cut=(1, 1)),))
    with pytest.raises(FormatError, match="dimensions"):
        session.merge(encode_changes(replace(payload, forks=(wrong,))))
    assert values(session)[7] == 1
