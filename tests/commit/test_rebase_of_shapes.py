"""Arrays whose shapes change on both sides, and on the way over another commit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import ConflictDetector, RebaseFailedError, Repository, in_memory_storage
from arraystore._session.session import Session
from tests.commit.operations import create_array, open_array, put


def repository() -> Repository:
    repo = Repository.create(in_memory_storage())
    session = repo.writable_session("main")
    zarr.create_group(session.store)
    plane = zarr.create_array(
        session.store, name="plane", shape=(8, 8), chunks=(1, 1), dtype="i4", fill_value=0, dimension_names=["t", "x"]
    )
    plane[:] = np.arange(1, 65).reshape(8, 8)
    create_array(session, "a", 8, "t")[:] = 1
    session.commit("base")
    return repo


def over_another(repo: Repository, session: Session) -> None:
    """Rebase over a commit that has nothing to do with it."""
    with repo.transaction("main", message="theirs") as store:
        zarr.create_group(store, path="elsewhere")
    session.rebase(ConflictDetector())


def plane_of(repo: Repository) -> Any:
    return zarr.open_array(repo.readonly_session("main").store, path="plane", mode="r")[:]


def test_a_plane_that_shrank_keeps_the_rest_when_it_is_written_after_a_rebase() -> None:
    repo = repository()
    session = repo.writable_session("main")
    open_array(session, "plane").resize((2, 2))
    over_another(repo, session)
    open_array(session, "plane")[0, 0] = 99
    session.commit("ours")
    assert plane_of(repo).tolist() == [[99, 2], [9, 10]]


def test_what_was_cut_off_does_not_come_back_when_a_plane_grows_after_a_rebase() -> None:
    repo = repository()
    session = repo.writable_session("main")
    open_array(session, "plane").resize((2, 2))
    over_another(repo, session)
    open_array(session, "plane").resize((8, 8))
    session.commit("ours")
    expected = np.zeros((8, 8), "i4")
    expected[:2, :2] = [[1, 2], [9, 10]]
    np.testing.assert_array_equal(plane_of(repo), expected)


def test_an_append_collides_with_a_change_of_another_dimension_even_if_theirs_appended_too() -> None:
    repo = repository()
    ours = repo.writable_session("main")
    with ours.appending("t"):
        open_array(ours, "plane").resize((9, 8))
    with repo.transaction("main", message="wider") as store:
        zarr.open_array(store, path="plane").resize((8, 10))
    theirs = repo.writable_session("main")
    with theirs.appending("t"):
        open_array(theirs, "plane").resize((9, 10))
    theirs.commit("longer")
    with pytest.raises(RebaseFailedError):
        ours.commit("ours", rebase_with=ConflictDetector())


def test_fill_values_that_theirs_appended_stay_what_they_are_when_ours_changes_the_fill_value_and_appends() -> None:
    repo = repository()
    ours, theirs = repo.writable_session("main"), repo.writable_session("main")
    _append(theirs, 0)
    document = ours.store.get_sync("a/zarr.json")
    assert document is not None
    put(ours, "a/zarr.json", json.dumps({**json.loads(document.to_bytes()), "fill_value": -1}).encode())
    _append(ours, 5)
    theirs.commit("theirs")
    with pytest.raises(RebaseFailedError):
        ours.commit("ours", rebase_with=ConflictDetector())


def _append(session: Session, value: int) -> None:
    with session.appending("t"):
        found = open_array(session, "a")
        found.resize((10,))
        found[8:] = value


def test_arrays_of_different_dimensions_are_appended_to_in_one_session_whatever_theirs_appends_to_one_of_them() -> None:
    repo = repository()
    with repo.transaction("main", message="another dimension") as store:
        create_array(store.session, "u", 8, "u")[:] = 2
    ours, theirs = repo.writable_session("main"), repo.writable_session("main")
    _append(theirs, 3)
    _append(ours, 4)
    ours.append({"u": [5, 6]}, dim="u")
    theirs.commit("theirs")
    ours.commit("ours", rebase_with=ConflictDetector())
    found = repo.readonly_session("main").store
    assert zarr.open_array(found, path="a", mode="r")[8:].tolist() == [3, 3, 4, 4]
    assert zarr.open_array(found, path="u", mode="r")[8:].tolist() == [5, 6]
