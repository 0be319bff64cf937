"""Many cells are merged a stretch at a time; that shows in memory only."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

import arraystore as ars
from arraystore._forks import merge
from arraystore.errors import MergeConflictError

SIDES = {"a": 7, "b": 12, "c": 1}


@pytest.fixture(params=[1, 3, 1 << 20])
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ars.Session:
    monkeypatch.setattr(merge, "_AT_ONCE", request.param)
    repo = ars.Repository.create(ars.in_memory_storage())
    with repo.transaction("main", message="arrays") as store:
        for path, side in SIDES.items():
            zarr.create_array(store, name=path, shape=(side,), chunks=(1,), dtype="i4", fill_value=-1)
    return repo.writable_session("main")


def _write(session: ars.Session, path: str, cells: list[int], value: int) -> None:
    array = zarr.open_array(session.store, path=path)
    for cell in cells:
        array[cell] = value


def _values(session: ars.Session, path: str) -> list[int]:
    return [int(value) for value in np.asarray(zarr.open_array(session.store, path=path, mode="r")[:])]


def test_every_chunk_comes_home_from_the_fork_that_wrote_it(session: ars.Session) -> None:
    some = [session.fork() for _ in range(3)]
    for number, fork in enumerate(some):
        for path, side in SIDES.items():
            _write(fork, path, [cell for cell in range(side) if cell % 3 == number], 10 * number + 1)
    session.merge(*[fork.changes() for fork in reversed(some)])
    for path, side in SIDES.items():
        assert _values(session, path) == [10 * (cell % 3) + 1 for cell in range(side)]


def test_an_error_names_all_that_two_forks_wrote_and_leaves_everything_as_it_was(session: ars.Session) -> None:
    first, second = session.fork(), session.fork()
    for fork in (first, second):
        _write(fork, "b", [2, 3, 9, 11], 5)
    _write(first, "a", [0], 5)
    _write(second, "c", [0], 5)
    with pytest.raises(MergeConflictError) as caught:
        session.merge(first.changes(), second.changes())
    assert caught.value.path == "b"
    assert caught.value.chunks == ((2,), (3,), (9,), (11,))
    assert [_values(session, path) for path in SIDES] == [[-1] * side for side in SIDES.values()]


def test_what_the_session_and_others_wrote_meanwhile_is_found_in_the_last_stretch_too(session: ars.Session) -> None:
    first, second, third = session.fork(), session.fork(), session.fork()
    _write(first, "b", [0, 1, 11], 1)
    session.merge(first.changes())
    _write(session, "a", [6], 2)
    _write(second, "b", [4, 5, 6, 7, 11], 3)
    with pytest.raises(MergeConflictError) as caught:
        session.merge(second.changes())
    assert (caught.value.path, caught.value.chunks) == ("b", ((11,),))
    _write(third, "a", [0, 1, 6], 4)
    with pytest.raises(MergeConflictError) as caught:
        session.merge(third.changes())
    assert (caught.value.path, caught.value.chunks) == ("a", ((6,),))


def test_of_what_several_wrote_the_last_counts_where_that_is_asked_for(session: ars.Session) -> None:
    some = [session.fork() for _ in range(4)]
    for number, fork in enumerate(some):
        _write(fork, "b", list(range(number, 12)), number)
    session.merge(*[fork.changes() for fork in some], on_overlap="last")
    assert _values(session, "b") == [0, 1, 2, *[3] * 9]
    late = session.fork()
    _write(late, "b", [1, 11], 7)
    session.merge(late.changes())
    assert _values(session, "b") == [0, 7, 2, *[3] * 8, 7]
