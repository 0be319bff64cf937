"""What a session gives up, it does not warn of."""

from __future__ import annotations

import pickle
import warnings

import pytest
import zarr

from arraystore import Repository, UnmergedForksWarning, in_memory_storage


@pytest.mark.parametrize("abandon", [True, False])
def test_a_commit_warns_of_a_fork_that_was_sent_away_unless_it_was_abandoned(abandon: bool) -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(2,), dtype="i4")
    fork, other = session.fork(), session.fork()
    pickle.dumps(fork)
    session.abandon(fork if abandon else other)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session.commit("an array")
    assert [w.category for w in caught] == ([] if abandon else [UnmergedForksWarning])


def test_what_was_abandoned_can_still_be_merged() -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(2,), dtype="i4")
    fork = session.fork()
    zarr.open_array(fork.store, path="a", mode="r+")[:] = 7
    session.abandon(fork)
    session.merge(fork)
    assert zarr.open_array(session.store, path="a", mode="r")[:].tolist() == [7, 7]  # type: ignore[union-attr]
