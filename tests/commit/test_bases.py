"""What a committer is asked to commit on must be what the log holds; else it refuses before any PUT."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest
import zarr

import arraystore as ars
from arraystore._commit.rebase_step import PendingTransaction
from arraystore._commit.request import Committed, Request
from arraystore._history.detached_snapshots import write_detached
from arraystore._log.loading import Tip
from arraystore._runtime import run
from arraystore._session.session import Session
from arraystore.errors import SessionStateError
from tests.commit.support import reopened
from tests.forks.support import chunked, counted, fill, values
from tests.seams import context_of, prepare

Base = Callable[[ars.Repository], Session]
NOTE = b"\x92\xa1x\x80"


def of_a_fork(repo: ars.Repository) -> Session:
    """A session on the base of a fork, which has uncommitted nodes: it changes what no record has made."""
    session = repo.writable_session("main")
    chunked(session.store, "new", 4)
    return _changing(repo, session.fork())


def of_a_fork_that_came_from_elsewhere(repo: ars.Repository) -> Session:
    session = repo.writable_session("main")
    chunked(session.store, "new", 4)
    return _changing(repo, pickle.loads(pickle.dumps(session.fork())))


def _changing(repo: ars.Repository, fork: ars.ForkSession) -> Session:
    session = Session(context_of(repo), fork.base_tip, "main")
    zarr.open_array(session.store, path="new", mode="r+").attrs["units"] = "K"
    return session


def of_a_snapshot_on_no_branch(repo: ars.Repository) -> Session:
    session = repo.writable_session("main")
    chunked(session.store, "new", 4)
    session.flush("aside")
    return on(repo, session.base_tip)


def of_a_snapshot_on_no_branch_that_was_read(repo: ars.Repository) -> Session:
    session = repo.writable_session("main")
    chunked(session.store, "new", 4)
    return on(repo, repo.readonly_session(snapshot_id=session.flush("aside")).base_tip)


def of_a_record_to_come(repo: ars.Repository) -> Session:
    tip = asyncio.run(context_of(repo).tip("main"))
    return on(repo, Tip(replace(tip.state, sequence=tip.sequence + 7), {}))


def of_another_snapshot(repo: ars.Repository) -> Session:
    tip = asyncio.run(context_of(repo).tip("main"))
    return on(repo, Tip(replace(tip.state, snapshot=bytes(range(12))), {}))


def of_another_snapshot_of_an_older_record(repo: ars.Repository) -> Session:
    session = of_another_snapshot(repo)
    with repo.transaction("main", message="meanwhile") as store:
        chunked(store, "meanwhile", 1)
    return session


def of_another_branch(repo: ars.Repository) -> Session:
    repo.create_branch("side", repo.lookup_branch("main"))
    return on(repo, asyncio.run(context_of(repo).tip("side")))


def on(repo: ars.Repository, tip: Tip) -> Session:
    """Return a session that believes in a base."""
    session = Session(context_of(repo), tip, "main")
    fill(session, 3, 9)
    return session


BASES = [
    of_a_fork,
    of_a_fork_that_came_from_elsewhere,
    of_a_snapshot_on_no_branch,
    of_a_snapshot_on_no_branch_that_was_read,
    of_a_record_to_come,
    of_another_snapshot,
    of_another_snapshot_of_an_older_record,
    of_another_branch,
]


async def submitted(repo: ars.Repository, session: Session, tries: int, amends: bytes | None = None) -> None:
    """Hand what a session has changed to the committer of main, whatever the session says to that."""
    prepared = replace(await prepare(session, NOTE), amends=amends)
    request = Request(PendingTransaction(prepared), session.base_tip, tries)
    await asyncio.wrap_future(context_of(repo).committer("main").submit(request))


@pytest.mark.parametrize("tries", [0, 5], ids=["once", "rebased"])
@pytest.mark.parametrize("amends", [False, True], ids=["commits", "amends"])
@pytest.mark.parametrize("fresh", [False, True], ids=["known branch", "branch never looked at"])
@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_a_base_that_is_no_record_of_the_log_is_refused_before_any_put(
    base: Base, fresh: bool, amends: bool, tries: int
) -> None:
    repo, counting = counted(ars.in_memory_storage())
    session = base(repo)
    expected = reopened(counting).state
    if fresh:
        repo = ars.Repository.open(counting)
    counting.reset()
    with pytest.raises(ars.ArrayStoreError) as caught:
        asyncio.run(submitted(repo, session, tries, session.base_tip.state.snapshot if amends else None))
    assert isinstance(caught.value, SessionStateError | ars.ConflictError | ars.NotFoundError)
    assert not [key for operation, key in counting.log if operation.startswith("put") and key.startswith("refs/")]
    found = reopened(counting).state
    assert (found.sequence, found.snapshot) == (expected.sequence, expected.snapshot)
    fine = repo.writable_session("main")
    fill(fine, 1, 6)
    fine.commit("as ever")
    assert "new" not in reopened(counting).state.nodes


def test_a_base_of_another_branch_does_not_spoil_the_check_of_a_transaction_beside_it() -> None:
    """Two that are committed together, on snapshots of one number: only one of these is in the log."""
    repo, counting = counted(ars.in_memory_storage())
    repo.create_branch("side", repo.lookup_branch("main"))
    with repo.transaction("main", message="an array that the other branch does not have") as store:
        chunked(store, "new", 8)
    side, main = (asyncio.run(context_of(repo).tip(branch)) for branch in ("side", "main"))
    strange = on(repo, Tip(replace(side.state, sequence=main.sequence), side.bodies))
    session, theirs = repo.writable_session("main"), repo.writable_session("main")
    fill(session, 3, 3, "new")
    fill(theirs, 5, 5, "new")
    theirs.commit("theirs")

    async def together() -> list[object]:
        requests = [
            Request(PendingTransaction(await prepare(each, NOTE)), each.base_tip, 5) for each in (strange, session)
        ]
        answers = [asyncio.wrap_future(context_of(repo).committer("main").submit(each)) for each in requests]
        return await asyncio.gather(*answers, return_exceptions=True)

    refused, committed = run(together())
    assert isinstance(refused, SessionStateError)
    assert isinstance(committed, Committed)
    assert values(ars.Repository.open(counting).readonly_session("main"), "new")[3:6] == [3, 0, 5]


@pytest.mark.parametrize("base", BASES[:4], ids=lambda base: base.__name__)
def test_nothing_is_set_aside_on_a_base_that_is_no_record(base: Base) -> None:
    repo, counting = counted(ars.in_memory_storage())
    session = base(repo)
    before = {key for _, key in counting.log if key.startswith("snapshots/")}

    async def flushed() -> None:
        await write_detached(context_of(repo), session.base_tip, await prepare(session, NOTE))

    with pytest.raises(SessionStateError, match="no record"):
        asyncio.run(flushed())
    assert {key for _, key in counting.log if key.startswith("snapshots/")} == before


def test_a_session_whose_base_somebody_replaced_is_refused_by_rebase_too() -> None:
    repo, _ = counted(ars.in_memory_storage())
    session = of_another_snapshot_of_an_older_record(repo)
    with pytest.raises(SessionStateError, match="not what record"):
        session.rebase(ars.ConflictDetector())
