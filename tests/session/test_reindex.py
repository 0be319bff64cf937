"""Reindexing chunks: any places a function tells, and no stale chunk left behind."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import zarr
from hypothesis import given

from arraystore import DELETE, InvalidInputError, Repository, SessionStateError
from tests.session.test_shift import numbers, read, repository_with


@pytest.fixture
def repository() -> Repository:
    return repository_with(numbers(), (1,))


def reindexed(repository: Repository, *functions: Any, **options: Any) -> list[int]:
    session = repository.writable_session("main")
    session.reindex_array("a", *functions, **options)
    found: list[int] = read(session).tolist()
    session.commit("reindexed", allow_empty=True)
    assert read(repository.readonly_session("main")).tolist() == found
    return found


def test_chunks_change_places(repository: Repository) -> None:
    assert reindexed(repository, lambda c: (5 - c[0],)) == [6, 5, 4, 3, 2, 1]


def test_none_leaves_a_chunk_where_it_is(repository: Repository) -> None:
    assert reindexed(repository, lambda c: None if c[0] < 2 else (7 - c[0],)) == [1, 2, 6, 5, 4, 3]
    assert reindexed(repository, lambda c: None) == [1, 2, 6, 5, 4, 3]


def test_only_delete_deletes_a_chunk(repository: Repository) -> None:
    assert reindexed(repository, lambda c: DELETE if c[0] in (0, 5) else (c[0] - 1,)) == [2, 3, 4, 5, 0, 0]
    session = repository.writable_session("main")
    session.reindex_array("a", lambda c: DELETE)
    assert len(session.chunk_coordinates("a")) == 0


def test_many_chunks_are_deleted_at_once(repository: Repository) -> None:
    assert reindexed(repository, lambda c: np.where(c < 2, DELETE, c - 2), vectorized=True) == [3, 4, 5, 6, 0, 0]


def test_rows_of_several_dimensions_are_deleted_by_one_number() -> None:
    repository = repository_with(np.arange(1, 7).reshape(2, 3), (1, 1))

    def forward(places: np.ndarray) -> np.ndarray:
        places[places[:, 1] == 1, 0] = DELETE
        return places

    assert reindexed(repository, forward, vectorized=True) == [[1, 0, 3], [4, 0, 6]]


def test_no_chunk_takes_the_place_of_one_that_stays(repository: Repository) -> None:
    session = repository.writable_session("main")
    with pytest.raises(InvalidInputError, match=r"would get the same place: \(4,\), \(5,\); to make room.*DELETE"):
        session.reindex_array("a", lambda c: (c[0] + 2,) if c[0] < 4 else None)
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("place", [-1, 6, 1 << 62])
def test_places_outside_of_the_grid_are_refused(repository: Repository, place: int, vectorized: bool) -> None:
    session = repository.writable_session("main")

    def forward(coords: Any) -> Any:
        return np.where(coords == 3, place, coords) if vectorized else (place,) if coords == (3,) else coords

    with pytest.raises(InvalidInputError, match=r"chunk \(3,\) of array '/a' would go to .*outside.*DELETE"):
        session.reindex_array("a", forward, vectorized=vectorized)
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_delete_is_itself_wherever_it_was_pickled(protocol: int) -> None:
    assert pickle.loads(pickle.dumps(DELETE, protocol)) is DELETE
    assert copy.deepcopy(DELETE) is DELETE


def test_forward_alone_leaves_no_stale_chunk() -> None:
    repository = repository_with(np.array([0, 2, 0, 4, 5, 6]), (1,))
    assert reindexed(repository, lambda c: (c[0] - 1,)) == [2, 0, 4, 5, 6, 0]


def test_it_is_asked_only_for_chunks_that_there_are() -> None:
    repository = repository_with(np.array([1, 0, 3, 0, 0, 0]), (1,))
    asked: list[tuple[int, ...]] = []

    def forward(coords: tuple[int, ...]) -> tuple[int, ...]:
        asked.append(coords)
        return coords

    reindexed(repository, forward)
    assert sorted(asked) == [(0,), (2,)]


def test_many_coordinates_at_once(repository: Repository) -> None:
    assert reindexed(repository, lambda c: (c - 2) % 6, vectorized=True) == [3, 4, 5, 6, 1, 2]


def test_two_chunks_cannot_get_one_place(repository: Repository) -> None:
    session = repository.writable_session("main")
    with pytest.raises(InvalidInputError, match=r"'/a' would get the same place: \(0,\), \(1,\), \(2,\)"):
        session.reindex_array("a", lambda c: (c[0] // 2,))
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize(
    "forward", [lambda c: (0, 0), lambda c: 3, lambda c: (1.5,), lambda c: "1", lambda c: ()], ids=range(5)
)
def test_what_is_no_place_is_refused(repository: Repository, forward: Any) -> None:
    session = repository.writable_session("main")
    with pytest.raises(InvalidInputError, match=r"for chunk \(0,\) the function returned"):
        session.reindex_array("a", forward)
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize("forward", [lambda c: c[:-1], lambda c: c * 1.0, lambda c: None], ids=range(3))
def test_vectorized_functions_return_as_many_whole_numbers(repository: Repository, forward: Any) -> None:
    session = repository.writable_session("main")
    with pytest.raises(InvalidInputError, match="a vectorized function must return integers of shape"):
        session.reindex_array("a", forward, vectorized=True)


def test_large_unsigned_places_are_outside_of_the_grid(repository: Repository) -> None:
    def forward(coords: np.ndarray) -> np.ndarray:
        return np.full(coords.shape, np.iinfo(np.uint64).max, dtype=np.uint64)

    session = repository.writable_session("main")
    with pytest.raises(InvalidInputError, match="outside of the grid"):
        session.reindex_array("a", forward, vectorized=True)


def test_backward_is_checked(repository: Repository) -> None:
    assert reindexed(
        repository, lambda c: (c[0] + 1,) if c[0] < 5 else DELETE, lambda c: (c[0] - 1,)
    ) == [0, 1, 2, 3, 4, 5]  # fmt: skip
    session = repository.writable_session("main")
    with pytest.raises(InvalidInputError, match=r"chunk \(1,\) goes to \(2,\), to which backward says \(0,\)"):
        session.reindex_array("a", lambda c: (c[0] + 1,) if c[0] < 5 else DELETE, lambda c: (c[0] - 2,))
    with pytest.raises(InvalidInputError, match="to which backward says None"):
        session.reindex_array("a", lambda c: (5 - c[0],), lambda c: None)
    assert not session.has_uncommitted_changes


def test_an_error_of_the_function_is_the_callers_and_changes_nothing(repository: Repository) -> None:
    session = repository.writable_session("main")
    with pytest.raises(ZeroDivisionError):
        session.reindex_array("a", lambda c: (1 // c[0],))
    assert not session.has_uncommitted_changes


def test_the_function_runs_in_the_callers_thread_and_may_read_the_array(repository: Repository) -> None:
    session = repository.writable_session("main")
    array = zarr.open_array(session.store, path="a", mode="r")
    threads: set[int] = set()

    def by_value(coords: tuple[int, ...]) -> tuple[int, ...]:
        threads.add(threading.get_ident())
        return (6 - int(array[coords[0]]),)

    session.reindex_array("a", by_value)
    assert read(session).tolist() == [6, 5, 4, 3, 2, 1]
    assert threads == {threading.get_ident()}


def test_chunks_written_meanwhile_are_not_lost(repository: Repository) -> None:
    session = repository.writable_session("main")
    array = zarr.open_array(session.store, path="a", mode="r+")

    def forward(coords: tuple[int, ...]) -> tuple[int, ...]:
        array[0] = 100
        return ((coords[0] + 1) % 6,)

    with pytest.raises(SessionStateError, match="nothing was moved"):
        session.reindex_array("a", forward)
    assert read(session).tolist() == [100, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("vectorized", [False, True])
def test_an_array_without_dimensions_has_one_place(vectorized: bool) -> None:
    repository = repository_with(np.array(7), ())
    session = repository.writable_session("main")
    session.reindex_array("a", lambda c: c)
    session.shift_array("a", ())
    assert not session.has_uncommitted_changes
    session.reindex_array("a", lambda c: None)
    assert int(read(session)) == 7
    session.reindex_array("a", lambda c: DELETE, vectorized=vectorized)
    assert int(read(session)) == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("shift"), st.integers(-4, 4), st.integers(-3, 3)),
        st.tuples(st.just("turn"), st.booleans(), st.booleans()),
        st.tuples(st.just("write"), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("commit"), st.none(), st.none()),
        st.tuples(st.just("shrink"), st.integers(1, 4), st.integers(1, 3)),
    ),
    max_size=10,
)


@pytest.mark.timeout(3000)  # of a long run
@given(STEPS)
def test_any_number_of_moves_writes_shrinks_and_commits_is_what_numpy_makes_of_it(steps: list[Any]) -> None:
    expected = np.arange(1, 13).reshape(4, 3)
    repository = repository_with(expected, (1, 1))
    session = repository.writable_session("main")
    for step, (kind, first, second) in enumerate(steps):
        array = zarr.open_array(session.store, path="a", mode="r+")
        if kind == "shift":
            session.shift_array("a", (first, second))
            shifted = np.zeros_like(expected)
            for (row, column), value in np.ndenumerate(expected):
                if 0 <= row + first < 4 and 0 <= column + second < 3:
                    shifted[row + first, column + second] = value
            expected = shifted
        elif kind == "turn":
            signs = np.array([-1 if first else 1, -1 if second else 1])
            start = np.array([3 if first else 0, 2 if second else 0])
            session.reindex_array("a", lambda c, s=signs, b=start: b + s * c, vectorized=True)
            expected = expected[:: signs[0], :: signs[1]].copy()
        elif kind == "write":
            array[first, second] = expected[first, second] = 100 + step
        elif kind == "shrink":
            array.resize((first, second))
            array.resize((4, 3))
            expected[first:], expected[:, second:] = 0, 0
        else:
            session.commit("so far", allow_empty=True)
            session = repository.writable_session("main")
        assert read(session).tolist() == expected.tolist()
    session.commit("all", allow_empty=True)
    assert read(repository.readonly_session("main")).tolist() == expected.tolist()
