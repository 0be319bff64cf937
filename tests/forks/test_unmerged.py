"""Forks that may have written something and were not merged are reported when the session commits."""

from __future__ import annotations

import asyncio
import gc
import pickle
import warnings
from collections.abc import Callable

import pytest

import arraystore as ars
from arraystore.errors import UnmergedForksWarning
from tests.forks.support import counted, fill, values


@pytest.fixture
def session() -> ars.Session:
    session = counted(ars.in_memory_storage())[0].writable_session("main")
    fill(session, 8, 1)
    return session


def written(session: ars.Session) -> object:
    fork = session.fork()
    fill(fork, 0, 2)
    return fork


def sent(session: ars.Session) -> object:
    return pickle.dumps(session.fork())


def returned(session: ars.Session) -> object:
    fork = session.fork()
    fill(fork, 0, 2)
    return fork.changes()


@pytest.mark.parametrize("use", [written, sent, returned])
def test_a_fork_that_was_used_and_not_merged_is_reported(
    session: ars.Session, use: Callable[[ars.Session], object]
) -> None:
    kept = [use(session), use(session)]
    with pytest.warns(UnmergedForksWarning, match="2 forks") as caught:
        session.commit("work of forks", allow_empty=True)
    assert caught[0].filename == __file__
    assert "merge" in str(caught[0].message)
    del kept


def test_forks_that_were_merged_or_never_used_are_not_reported(session: ars.Session) -> None:
    unused, merged, travelled, combined = (session.fork() for _ in range(4))
    fill(merged, 0, 2)
    copy = pickle.loads(pickle.dumps(travelled))
    fill(copy, 1, 2)
    fill(combined, 2, 2)
    session.merge(merged, ars.merge_sessions(copy, combined))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.commit("work of forks", allow_empty=True)
    assert not unused.has_uncommitted_changes


def test_a_fork_whose_merge_failed_is_still_reported(session: ars.Session) -> None:
    one, two = session.fork(), session.fork()
    for fork in (one, two):
        fill(fork, 0, 2)
    with pytest.raises(ars.MergeConflictError):
        session.merge(one, two)
    session.merge(one)
    with pytest.warns(UnmergedForksWarning, match="1 fork "):
        session.commit("work of forks", allow_empty=True)


def test_a_fork_that_nobody_holds_and_nobody_sent_is_forgotten(session: ars.Session) -> None:
    session.fork()
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.commit("work of forks", allow_empty=True)


def test_discarding_forgets_the_forks_of_what_is_discarded(session: ars.Session) -> None:
    kept = written(session)
    session.discard_changes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.commit("work of forks", allow_empty=True)
    del kept


def test_a_fork_with_changes_is_reported_though_a_fork_of_it_was_merged_into_the_session(session: ars.Session) -> None:
    fork = session.fork()
    fill(fork, 0, 2)
    second = fork.fork()
    fill(second, 1, 2)
    session.merge(second)
    with pytest.warns(UnmergedForksWarning, match="1 fork of this session"):
        session.commit("without what the first fork wrote")


@pytest.mark.parametrize("travels", [False, True])
def test_a_fork_of_a_fork_that_was_merged_into_the_session_is_missed_by_nobody(
    session: ars.Session, travels: bool
) -> None:
    fork = session.fork()
    second = fork.fork()
    fill(second, 1, 2)
    session.merge(pickle.loads(pickle.dumps(second)) if travels else second)
    fill(fork, 0, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.merge(fork.changes())
        session.commit("both")
    assert values(session)[:3] == [2, 2, 1]


def test_a_fork_that_was_sent_and_came_back_as_a_fork_of_it_is_not_reported(session: ars.Session) -> None:
    worker = pickle.loads(pickle.dumps(session.fork()))
    task = worker.fork()
    fill(task, 0, 2)
    session.merge(task.changes())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.commit("work of a thread of a worker")


@pytest.mark.parametrize("travels", [False, True])
def test_forks_of_a_fork_that_were_merged_into_each_other_are_not_reported(session: ars.Session, travels: bool) -> None:
    fork = session.fork()
    forks = [fork.fork() for _ in range(3)]
    for number, each in enumerate(forks):
        fill(each, number, 2)
    forks[2].merge(forks[0], forks[1])
    last = pickle.loads(pickle.dumps(forks[2])) if travels else forks[2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fork.merge(last)
        session.merge(fork.changes())
        session.commit("by way of one another")
    assert values(session)[:4] == [2, 2, 2, 1]


def transact(repo: ars.Repository, *, own: bool = False, commits: bool = False, fails: bool = False) -> None:
    """Write through a fork of a transaction, and do not merge it."""
    with repo.transaction("main", message="work of forks") as store:
        fork = store.session.fork()
        fill(fork, 0, 2)
        if own:
            fill(store.session, 1, 2)
        if commits:
            store.session.commit("by itself")
        if fails:
            raise KeyError


@pytest.mark.parametrize("own", [False, True], ids=["only the fork", "the session as well"])
def test_a_transaction_reports_a_fork_that_was_written_to_and_not_merged(session: ars.Session, own: bool) -> None:
    repo = ars.Repository.open(session.context.storage)
    tip = repo.lookup_branch("main")
    with pytest.warns(UnmergedForksWarning, match="1 fork of this session") as caught:
        transact(repo, own=own)
    assert [each.filename for each in caught] == [__file__]
    assert (repo.lookup_branch("main") == tip) is not own


def test_a_transaction_that_fails_reports_no_fork_and_one_that_commits_by_itself_reports_it_once(
    session: ars.Session,
) -> None:
    repo = ars.Repository.open(session.context.storage)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyError):
            transact(repo, fails=True)
        with repo.transaction("main", message="empty"):
            pass
    with pytest.warns(UnmergedForksWarning) as caught:
        transact(repo, own=True, commits=True)
    assert len(caught) == 1


@pytest.mark.parametrize("way", ["amend", "flush"])
def test_an_amendment_and_a_flush_report_their_forks_at_the_caller(session: ars.Session, way: str) -> None:
    fork = session.fork()
    fill(fork, 0, 2)
    with pytest.warns(UnmergedForksWarning, match="1 fork of this session") as caught:
        getattr(session, way)("work of forks")
    assert caught[0].filename == __file__


@pytest.mark.parametrize("way", ["commit_async", "amend_async", "flush_async"])
def test_the_asynchronous_twins_report_forks_as_well(session: ars.Session, way: str) -> None:
    fork = session.fork()
    fill(fork, 0, 2)
    with pytest.warns(UnmergedForksWarning, match="1 fork of this session"):
        asyncio.run(getattr(session, way)("work of forks"))
