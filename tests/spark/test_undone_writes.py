"""Arrays that grow or are created for rows are as before if the write fails, without a cluster."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr
from pyspark.sql.types import LongType, StructField, StructType

from arraystore import ConflictDetector, Repository, Session, in_memory_storage
from arraystore.errors import SessionStateError
from arraystore.spark.creation.create import created, find_missing
from arraystore.spark.creation.new_arrays import NewArrays
from arraystore.spark.writing.append_growth import Growth, grow

LENGTH, MORE = 10, 3


@pytest.fixture
def repo() -> Repository:
    """Ten labels in chunks of four, two variables beside them, and an array of another dimension."""
    repo = Repository.create(in_memory_storage())
    session = repo.writable_session("main")
    for name, shape, chunks, dims in (
        ("t", (LENGTH,), (4,), ("t",)),
        ("a", (LENGTH, 2), (5, 2), ("t", "x")),
        ("b", (2, LENGTH), (1, 3), ("x", "t")),
        ("other", (2,), (1,), ("y",)),
    ):
        array = zarr.create_array(
            session.store, name=name, shape=shape, chunks=chunks, dtype="i8", fill_value=-9, dimension_names=dims
        )
        array[...] = np.arange(np.prod(shape)).reshape(shape)
    session.commit("ten")
    return repo


def growth() -> Growth:
    return Growth(
        "t", (("a", 0), ("b", 1), ("t", 0)), LENGTH, LENGTH + MORE, "t", np.arange(LENGTH, LENGTH + MORE) * 100
    )


def append(session: Session, then: Callable[[], object]) -> None:
    with grow(session, growth()):
        fork = session.fork()
        pickle.dumps(fork)  # which uploads what the session has written
        session.abandon(fork)
        then()
        raise ZeroDivisionError


def fail(session: Session, then: Callable[[], object] = lambda: None) -> None:
    with pytest.raises(ZeroDivisionError):
        append(session, then)


def array_of(session: Session, path: str) -> zarr.Array[Any]:
    return zarr.open_array(session.store, path=path, mode="r+")


def values(session: Any, path: str) -> npt.NDArray[Any]:
    return np.asarray(zarr.open_array(session.store, path=path, mode="r")[...])


def test_a_failed_append_leaves_no_label_and_no_change_in_a_session_that_has_others(repo: Repository) -> None:
    session = repo.writable_session("main")
    array_of(session, "other")[0] = 7
    before = repr(session.status())
    fail(session)
    assert repr(session.status()) == before
    array_of(session, "t").resize((LENGTH + MORE,))
    assert values(session, "t")[LENGTH:].tolist() == [-9] * MORE


def test_a_failed_append_leaves_a_session_without_changes_without_any(repo: Repository) -> None:
    session = repo.writable_session("main")
    fail(session)
    assert not session.has_uncommitted_changes
    assert not session.uniques


def test_what_the_session_had_written_at_the_end_of_the_arrays_is_there_after_a_failed_append(repo: Repository) -> None:
    session = repo.writable_session("main")
    array_of(session, "t")[LENGTH - 1] = 77
    array_of(session, "a")[LENGTH - 1] = 78
    fail(session)
    session.commit("mine")
    found = repo.readonly_session("main")
    assert values(found, "t").tolist() == [*range(LENGTH - 1), 77]
    assert values(found, "a")[-1].tolist() == [78, 78]
    np.testing.assert_array_equal(values(found, "b"), np.arange(2 * LENGTH).reshape(2, LENGTH))


def test_after_a_failed_append_the_rest_commits_beside_an_append_of_others(repo: Repository) -> None:
    session, other = repo.writable_session("main"), repo.writable_session("main")
    array_of(session, "other")[0] = 7
    fail(session)
    with grow(other, growth()):
        array_of(other, "a")[LENGTH:] = 50
    other.commit("theirs")
    session.commit("mine", rebase_with=ConflictDetector())
    found = repo.readonly_session("main")
    assert values(found, "t").tolist() == [*range(LENGTH), 1000, 1100, 1200]
    assert (values(found, "a")[LENGTH:] == 50).all()
    assert values(found, "other").tolist() == [7, 1]


def test_a_failed_append_keeps_what_another_thread_has_written_meanwhile(repo: Repository) -> None:
    session = repo.writable_session("main")

    def write() -> None:
        array_of(session, "other")[0] = 7

    fail(session, write)
    assert values(session, "other").tolist() == [7, 1]
    assert values(session, "t").tolist() == list(range(LENGTH))


def test_nothing_is_committed_while_arrays_have_grown_and_rows_are_missing(repo: Repository) -> None:
    session = repo.writable_session("main")
    with grow(session, growth()), pytest.raises(SessionStateError, match="in another thread"):
        session.commit("half of it")
    session.commit("all of it")


def create(session: Session, then: Callable[[], object]) -> None:
    schema = StructType([StructField("x", LongType()), StructField("v", LongType())])
    how = NewArrays()
    missing = find_missing(session, schema, "deep/group/v", how, dims=["x"], value=None, values=None, coords="index")
    assert missing is not None
    with created(session, missing, how, {"x": 5}, None) as made:
        assert [one.path for one in made] == ["deep/group/v"]
        then()
        raise ZeroDivisionError


def test_a_failed_creation_keeps_what_another_thread_has_written_meanwhile(repo: Repository) -> None:
    session = repo.writable_session("main")

    def write() -> None:
        array_of(session, "other")[0] = 7

    with pytest.raises(ZeroDivisionError):
        create(session, write)
    assert values(session, "other").tolist() == [7, 1]
    assert sorted(name for name, _ in zarr.open_group(session.store, mode="r").members(None)) == [
        "a",
        "b",
        "other",
        "t",
    ]


def test_a_failed_creation_leaves_a_session_without_changes_without_any(repo: Repository) -> None:
    session = repo.writable_session("main")
    with pytest.raises(ZeroDivisionError):
        create(session, lambda: None)
    assert not session.has_uncommitted_changes


def test_nothing_is_committed_while_arrays_are_created_and_rows_are_missing(repo: Repository) -> None:
    session = repo.writable_session("main")
    with pytest.raises(SessionStateError, match="in another thread"):
        create(session, lambda: session.commit("half of it"))
