"""Commits of one process at the same time share records, and each has its own snapshot, message and verdict."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import (
    ConflictDetector,
    ConflictError,
    ConflictType,
    FormatError,
    RebaseFailedError,
    Repository,
    Session,
    SessionStateError,
    Storage,
    in_memory_storage,
)
from arraystore._commit import group_commit
from arraystore._commit.batch import Batch
from arraystore._commit.prepared import Prepared
from arraystore._commit.rebase_request import Passages
from arraystore._commit.request import Request
from arraystore._format.ids import SnapshotId
from arraystore._format.record import MAX_ATTACHED, MAX_BODY, Commit
from arraystore._log.branch_log import AppendUncertainError
from arraystore.storage import CountingStorage, Fault, FaultyStorage
from tests.commit.gate import (
    EVERY,
    Gate,
    Start,
    commits_of,
    gated,
    join,
    queue,
    shares,
    together,
    until,
    with_row,
)
from tests.commit.rivals import RECORDS, Outrun, impatient, latest, messages, rival_commits
from tests.commit.support import (
    commit_number,
    create_repository,
    entries,
    keys,
    number,
    put_bytes,
    put_number,
    repository_at,
    without_maintenance,
)
from tests.commit.works import Expected, Ours, Work
from tests.seams import context_of, waiting_commits
from tests.simulation.checker.decoder import Reader
from tests.tiers import mostly_thorough

# -- sharing ------------------------------------------------------------------------------------------------------


def test_commits_that_wait_for_one_record_share_the_next_each_with_its_own_snapshot() -> None:
    inner, gate, _ = gated()
    counting = CountingStorage(gate)
    repository = without_maintenance(impatient(counting))
    sessions = [with_row(repository, row) for row in range(10)]
    counting.reset()
    results = together(repository, gate, commits_of(sessions))
    assert shares(inner) == [1, 9]
    dear = [(operation, key) for operation, key in counting.log if operation not in ("sync", "head") and key != "repo"]
    assert [operation for operation, _ in dear] == ["put_if_absent"] * 2  # what is left out is free in memory
    assert len(set(results)) == 10
    assert results == [session.snapshot_id for session in sessions]
    history = list(Repository.open(inner).ancestry(branch="main"))[9::-1]
    assert [info.id for info in history] == results
    assert [info.message for info in history] == [f"commit {i}" for i in range(10)]
    assert [info.metadata for info in history] == [{"turn": i} for i in range(10)]
    assert [info.parent_id for info in history[1:]] == results[:-1]
    assert [number(latest(inner), row) for row in range(10)] == list(range(10))


def test_a_session_that_shared_a_record_reads_its_own_snapshot_and_not_those_behind_it() -> None:
    _, gate, repository = gated()
    sessions = [with_row(repository, row) for row in range(6)]
    together(repository, gate, commits_of(sessions))
    for i, session in enumerate(sessions):
        assert session.read_only
        assert [number(session, row) for row in range(6)] == [*range(i + 1), *[None] * (5 - i)]


def test_threads_share_records_too() -> None:
    inner, gate, repository = gated()
    sessions = [with_row(repository, row) for row in range(16)]
    gate.hold()
    with ThreadPoolExecutor(16) as pool:
        before = gate.arrived
        results = [pool.submit(sessions[0].commit, "together")]
        asyncio.run(until(lambda: gate.arrived > before))
        results += [pool.submit(s.commit, "together", rebase_with=ConflictDetector()) for s in sessions[1:]]
        asyncio.run(until(lambda: waiting_commits(repository) == 16))
        gate.release()
        ids = {result.result() for result in results}
    assert len(ids) == 16
    assert len(shares(inner)) == 2
    assert [number(latest(inner), row) for row in range(16)] == list(range(16))


@pytest.mark.thorough
def test_many_rounds_of_commits_by_many_tasks_are_all_there_once_and_in_each_tasks_order() -> None:
    inner = in_memory_storage()
    create_repository(inner)
    repository = impatient(inner)

    async def work(who: int) -> None:
        for turn in range(10):
            session = await repository.writable_session_async("main")
            put_number(session, who * 100 + turn, turn)
            await session.commit_async(f"{who}/{turn}", rebase_with=ConflictDetector())

    async def run() -> None:
        await asyncio.gather(*(work(who) for who in range(20)))

    asyncio.run(run())
    repository.wait_for_maintenance()
    found = messages(inner)[1:]
    assert len(found) == len(set(found)) == 200
    assert sum(shares(inner)) == 200
    for who in range(20):
        assert [text for text in found if text.startswith(f"{who}/")] == [f"{who}/{turn}" for turn in range(10)]
        assert [number(latest(inner), who * 100 + turn) for turn in range(10)] == list(range(10))


def test_a_shared_record_that_loses_a_race_is_put_again_for_all_of_them() -> None:
    inner = in_memory_storage()
    create_repository(inner)
    rival = without_maintenance(Repository.open(inner))
    gate = Gate(Outrun(inner, rival_commits(rival, 5)))
    counting = CountingStorage(gate)
    repository = without_maintenance(impatient(counting))
    sessions = [with_row(repository, row) for row in range(8)]
    counting.reset()
    results = together(repository, gate, commits_of(sessions))
    assert len(set(results)) == 8
    assert [o for o, _ in counting.log].count("put_if_absent") == 6
    assert shares(inner) == [1, 1, 1, 1, 1, 8]
    assert messages(inner)[6:] == [f"commit {i}" for i in range(8)]


@pytest.mark.parametrize("seed", mostly_thorough(range(6), every=3))
def test_random_sessions_that_commit_at_once_are_as_if_each_had_come_after_the_other(seed: int) -> None:
    chance = random.Random(seed)
    inner = in_memory_storage()
    repository = create_repository(inner)
    with repository.transaction("main", message="more") as store:
        zarr.open_group(store).create_array(
            "t", shape=(4, 2), chunks=(2, 2), dtype="i4", fill_value=-1, dimension_names=["time", "x"]
        )[:] = 0
    expected = Expected()
    stale: list[Work] = []
    for turn in range(8):
        works = [*stale, *(Work(repository) for _ in range(5))]
        for at, work in enumerate(works):
            for step in range(4):
                work.act(chance, 1000 * turn + 10 * at + step)
        stale = [works.pop() for _ in range(2)]
        known = len(messages(inner))
        work_of = {f"{turn}/{i}": work for i, work in enumerate(works)}
        results = _together_free(
            [
                lambda m=message, w=work: w.session.commit_async(m, rebase_with=Ours(), allow_empty=True)  # type: ignore[misc]
                for message, work in work_of.items()
            ]
        )
        assert all(isinstance(result, str) for result in results)
        order = messages(inner)[known:]
        assert sorted(order) == sorted(work_of)
        for message in order:
            expected.apply(work_of[message])
        expected.check(latest(inner))


# -- verdicts -----------------------------------------------------------------------------------------------------


def _ids(storage: Storage) -> list[str]:
    return [info.id for info in Repository.open(storage).ancestry(branch="main")]


def test_of_two_that_collide_in_one_round_the_first_commits_and_the_second_is_told_with_which_snapshot() -> None:
    inner, gate, repository = gated()
    rows = [0, 1, 2, 1, 3, 2]
    sessions = [with_row(repository, row, 100 + i) for i, row in enumerate(rows)]
    results = together(repository, gate, commits_of(sessions))
    lost = [i for i, result in enumerate(results) if isinstance(result, Exception)]
    assert lost == [3, 5]
    assert [text for text in messages(inner) if text.startswith("commit")] == [f"commit {i}" for i in (0, 1, 2, 4)]
    for i, winner in ((3, 1), (5, 2)):
        error = results[i]
        assert isinstance(error, RebaseFailedError)
        (conflict,) = error.conflicts
        assert conflict.conflict_type is ConflictType.ChunkDoubleUpdate
        assert conflict.conflicted_chunks is not None
        assert conflict.conflicted_chunks.tolist() == [[rows[i]]]
        assert conflict.snapshot == results[winner]
        assert {conflict.snapshot, error.snapshot} <= set(_ids(inner))
        assert number(sessions[i], rows[i]) == 100 + i  # nothing is lost
        assert sessions[i].has_uncommitted_changes
    assert [number(latest(inner), row) for row in range(4)] == [100, 101, 102, 104]


def test_of_sessions_of_one_base_that_may_not_be_rebased_exactly_the_first_commits() -> None:
    inner, gate, repository = gated()
    sessions = [with_row(repository, row) for row in range(5)]
    first, *others = together(repository, gate, commits_of(sessions, rebase_with=None))
    assert shares(inner) == [1]
    for error in others:
        assert type(error) is ConflictError
        assert error.actual_parent == first
    assert _ids(inner)[0] == first


def test_sessions_that_may_and_may_not_be_rebased_get_their_own_verdicts() -> None:
    inner, gate, repository = gated()
    sessions = [with_row(repository, row) for row in range(6)]
    strict, lenient = commits_of(sessions, rebase_with=None), commits_of(sessions)
    results = together(repository, gate, [(strict, lenient)[i % 2][i] for i in range(6)])
    assert [type(result) for result in results] == [str, str, ConflictError, str, ConflictError, str]
    assert [number(latest(inner), row) for row in range(6)] == [0, 1, None, 3, None, 5]


@pytest.mark.parametrize("step", ["rebase", "add"])
def test_a_transaction_for_which_something_damaged_is_read_fails_alone(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, gate, repository = gated()
    sessions = [with_row(repository, row) for row in range(5)]
    damaged: list[SnapshotId] = []
    rebase, add = group_commit.rebase_request, Batch.add

    def check(prepared: Prepared, at: str) -> None:
        if at == step and sessions[3]._prepared is not None and prepared.id == sessions[3]._prepared.id:
            damaged.append(prepared.id)
            raise FormatError("transactions/…", "is damaged")

    async def rebased(request: Request, passages: Passages) -> Any:
        check(request.prepared, "rebase")
        return await rebase(request, passages)

    def added(batch: Batch, prepared: Prepared) -> bool:
        check(prepared, "add")
        return add(batch, prepared)

    monkeypatch.setattr(group_commit, "rebase_request", rebased)
    monkeypatch.setattr(Batch, "add", added)
    results = together(repository, gate, commits_of(sessions))
    assert damaged
    assert [type(result) for result in results] == [str, str, str, FormatError, str]
    assert [number(latest(inner), row) for row in range(5)] == [0, 1, 2, None, 4]
    assert shares(inner) == [1, 3]


@pytest.mark.parametrize(("isolation", "committed"), [("snapshot", 2), ("serializable", 1)])
def test_of_serializable_mates_that_read_what_the_other_writes_one_commits(isolation: str, committed: int) -> None:
    inner, gate, repository = gated()
    commit_number(repository_opened(inner), 1, 10)
    commit_number(repository_opened(inner), 2, 10)
    first = with_row(repository, 0)
    skewed = [repository.writable_session("main", isolation=isolation) for _ in range(2)]  # type: ignore[arg-type]
    for session, read, written in zip(skewed, (1, 2), (2, 1), strict=True):
        assert number(session, read) == 10
        put_number(session, written, 0)
    results = together(repository, gate, commits_of([first, *skewed]))
    assert [isinstance(result, str) for result in results] == [True, True, committed == 2]
    if committed == 1:
        assert isinstance(results[2], RebaseFailedError)
        (conflict,) = results[2].conflicts
        assert conflict.conflict_type is ConflictType.ReadConflict
        assert conflict.snapshot == results[1]
    assert sum(shares(inner)) == 2 + 1 + committed


def repository_opened(storage: Storage) -> Repository:
    return without_maintenance(Repository.open(storage))


# -- budgets ------------------------------------------------------------------------------------------------------


def _check_records(storage: Storage) -> None:
    async def read() -> None:
        log = context_of(Repository.open(storage)).log("main")
        for sequence in range(await log.tip(None) + 1):
            record = await log.read(sequence)
            assert len(record.body) <= MAX_BODY
            assert sum(map(len, record.attachments)) <= MAX_ATTACHED

    asyncio.run(read())


def test_large_attachments_are_spread_over_as_many_records_as_it_takes() -> None:
    inner, gate, repository = gated()
    sessions = []
    for who in range(9):
        session = repository.writable_session("main")
        for row in range(200):  # 500 bytes each, inlined into a manifest that is attached
            put_bytes(session, who * 1000 + row, who.to_bytes(1, "little") * 4 + _noise(who * 1000 + row, 496))
        sessions.append(session)
    results = together(repository, gate, commits_of(sessions))
    assert all(isinstance(result, str) for result in results)
    assert shares(inner) == [1, 2, 2, 2, 2]
    _check_records(inner)
    reader = latest(inner)
    for who in range(9):
        for row in (0, 199):
            found = reader.store.get_sync(f"a/c/{who * 1000 + row}")
            assert found is not None
            assert found.to_bytes() == who.to_bytes(1, "little") * 4 + _noise(who * 1000 + row, 496)
    assert [info.message for info in Repository.open(inner).ancestry(branch="main")][8::-1] == [
        f"commit {i}" for i in range(9)
    ]


def _noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def test_more_commits_than_a_body_takes_are_spread_over_several_records_in_their_order() -> None:
    inner, gate, repository = gated()
    sessions = [with_row(repository, row) for row in range(150)]
    work = [
        lambda s=s, i=i: s.commit_async(f"{i} " + _noise(i, 100).hex(), rebase_with=ConflictDetector())  # type: ignore[misc]
        for i, s in enumerate(sessions)
    ]
    results = together(repository, gate, work)
    assert all(isinstance(result, str) for result in results)
    _check_records(inner)
    found = shares(inner)
    assert sum(found) == 150
    assert 3 < len(found) < 15
    assert [int(text.split()[0]) for text in messages(inner)[1:]] == list(range(150))


def test_long_messages_and_large_change_logs_of_mates_are_each_others_neighbours_and_stay_apart() -> None:
    inner, gate, repository = gated()
    sessions = [with_row(repository, row) for row in range(6)]
    texts = [f"{i} " + "word " * 400 for i in range(6)]
    for who in (2, 4):
        for row in range(1000, 1400):
            put_bytes(sessions[who], who * 1000 + 3 * row, _noise(row, 16))
    work = [
        lambda s=s, t=t: s.commit_async(t, rebase_with=ConflictDetector())  # type: ignore[misc]
        for s, t in zip(sessions, texts, strict=True)
    ]
    results = together(repository, gate, work)
    assert all(isinstance(result, str) for result in results)
    assert shares(inner) == [1, 5]
    assert messages(inner)[1:] == texts
    for who in (2, 4):
        found = latest(inner).store.get_sync(f"a/c/{who * 1000 + 3 * 1399}")
        assert found is not None
        assert found.to_bytes() == _noise(1399, 16)


# -- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_when_nobody_knows_whether_a_shared_record_arrived_all_are_told_and_all_find_out(when: str) -> None:
    fault = Fault("put_if_absent", "*" + RECORDS + "*", when=when, first=2, times=EVERY)  # type: ignore[arg-type]
    inner, gate, repository = gated(fault)
    sessions = [with_row(repository, row) for row in range(5)]
    first, *others = together(repository, gate, commits_of(sessions))
    assert isinstance(first, str)
    assert all(isinstance(error, AppendUncertainError) for error in others)
    assert sum(shares(inner)) == (5 if when == "after" else 1)
    commit_number(repository_opened(inner), 99, 99)
    again = [session.commit(f"commit {i}", rebase_with=ConflictDetector()) for i, session in enumerate(sessions[1:])]
    found = _ids(inner)
    assert [found.count(snapshot) for snapshot in again] == [1] * 4
    assert len(found) == 2 + 5 + 1
    assert [number(latest(inner), row) for row in range(5)] == list(range(5))


def test_commits_that_lost_their_acknowledgement_are_found_together_too() -> None:
    fault = Fault("put_if_absent", "*" + RECORDS + "*", when="after", first=2, times=EVERY)
    inner, gate, repository = gated(fault)
    sessions = [with_row(repository, row) for row in range(5)]
    together(repository, gate, commits_of(sessions))
    before = shares(inner)
    results = _together_free(commits_of(sessions[1:]))
    assert all(isinstance(result, str) for result in results)
    assert shares(inner) == before == [1, 4]
    assert results == _ids(inner)[3::-1]


def _together_free(commits: Sequence[Start]) -> list[Any]:
    async def run() -> list[Any]:
        return await asyncio.gather(*(commit() for commit in commits), return_exceptions=True)

    return asyncio.run(run())


def test_a_commit_that_is_cancelled_while_it_waits_is_not_committed_and_may_be_tried_again() -> None:
    inner, gate, repository = gated()
    sessions = [with_row(repository, row) for row in range(4)]

    async def run() -> list[Any]:
        tasks = await queue(repository, gate, commits_of(sessions))
        tasks[2].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[2]
        put_number(sessions[2], 50, 50)  # it is known not to be committed: it takes changes again
        gate.release()
        return await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())
    assert shares(inner) == [1, 2]
    sessions[2].commit("later", rebase_with=ConflictDetector())
    assert [number(latest(inner), row) for row in (0, 1, 2, 3, 50)] == [0, 1, 2, 3, 50]
    assert messages(inner)[1:] == ["commit 0", "commit 1", "commit 3", "later"]


def test_a_commit_that_is_cancelled_while_its_record_is_on_its_way_finds_itself_and_disturbs_nobody() -> None:
    inner, gate, repository = gated()
    sessions = [with_row(repository, row) for row in range(4)]

    async def run() -> list[Any]:
        tasks = await queue(repository, gate, commits_of(sessions))
        gate.release(1)
        await until(lambda: gate.arrived == 2)
        tasks[2].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[2]
        with pytest.raises(SessionStateError, match="call commit again"):
            put_number(sessions[2], 50, 50)
        gate.release()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(run())
    assert shares(inner) == [1, 3]
    snapshot = sessions[2].commit("again")
    assert shares(inner) == [1, 3]
    assert _ids(inner)[2::-1] == [results[1], snapshot, results[3]]
    assert sessions[2].read_only


def test_a_record_that_hangs_is_given_up_when_all_who_wait_for_it_have_gone() -> None:
    inner, gate, repository = gated()
    sessions = [with_row(repository, row) for row in range(3)]

    async def run() -> list[Any]:
        tasks = await queue(repository, gate, commits_of(sessions))
        gate.hold()
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        await until(lambda: gate.arrived == 2)
        gate.release()
        return await asyncio.gather(*tasks[1:])

    assert len(asyncio.run(run())) == 2
    assert shares(inner) == [2]
    sessions[0].commit("commit 0", rebase_with=ConflictDetector())
    assert messages(inner)[1:] == ["commit 1", "commit 2", "commit 0"]


def test_when_the_leader_cannot_read_what_it_lost_to_all_fail_and_none_is_committed_twice() -> None:
    inner = in_memory_storage()
    create_repository(inner)
    rivals = iter([None, repository_opened(inner)])

    async def rival() -> None:
        found = next(rivals, None)
        if found is not None:
            await rival_commits(found, 1)()

    faulty = FaultyStorage(Outrun(inner, rival), [Fault("get", "*" + RECORDS + "*/000000000003")])
    gate = Gate(faulty)
    repository = without_maintenance(impatient(gate))
    sessions = [with_row(repository, row) for row in range(4)]
    first, *others = together(repository, gate, commits_of(sessions))
    assert isinstance(first, str)
    assert all(isinstance(error, AppendUncertainError) for error in others)  # a refusal may be of one's own record
    assert shares(inner) == [1, 1]
    assert all(session.has_uncommitted_changes for session in sessions[1:])
    again = _together_free(commits_of(sessions)[1:])
    assert len(set(again)) == 3
    assert sorted(messages(inner)[3:]) == ["commit 1", "commit 2", "commit 3"]
    assert [number(latest(inner), row) for row in range(4)] == list(range(4))


# -- time travel --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [2, 62, 63, 64])
def test_each_snapshot_of_a_shared_record_can_be_opened_tagged_branched_listed_and_pickled(before: int) -> None:
    """Also where the shared record is the 64th, whose checkpoint is that of its last snapshot."""
    inner = in_memory_storage()
    repository_at(inner, before - 1)
    gate = Gate(inner)
    repository = impatient(gate)
    sessions = [with_row(repository, 1000 + row) for row in range(6)]
    ids = together(repository, gate, commits_of(sessions))
    repository.wait_for_maintenance()
    gate.release()
    shared = entries(inner)[before + 1]
    assert isinstance(shared, Commit)
    assert len(shared.transactions) == 5
    for reader in (Repository.open(inner), repository):
        _check_travel(reader, ids, before, pin=reader is repository)
    cold = Repository.open(inner)
    for i, snapshot in enumerate(ids):
        for session in (cold.readonly_session(tag=f"tag{i}"), cold.readonly_session(f"branch{i}")):
            assert session.snapshot_id == snapshot
            assert _rows(session) == [1000 + row if row <= i else None for row in range(6)]
        commit_number(cold, 7, i, f"branch{i}")
        ancestry = [info.id for info in Repository.open(inner).ancestry(branch=f"branch{i}")]
        assert ancestry[1] == snapshot
        assert len(ancestry) == before + i + 2


def _rows(session: Session) -> list[int | None]:
    return [number(session, 1000 + row) for row in range(6)]


def _check_travel(reader: Repository, ids: list[str], before: int, *, pin: bool) -> None:
    for i, snapshot in enumerate(ids):
        session = reader.readonly_session(snapshot_id=snapshot)
        assert session.snapshot_id == snapshot
        for each in (session, pickle.loads(pickle.dumps(session))):
            assert _rows(each) == [1000 + row if row <= i else None for row in range(6)]
        ancestry = [info.id for info in reader.ancestry(snapshot_id=snapshot)]
        assert ancestry[0] == snapshot
        assert len(ancestry) == before + i + 1
        assert reader.lookup_snapshot(snapshot).message == f"commit {i}"
        if pin:
            reader.create_tag(f"tag{i}", snapshot)
            reader.create_branch(f"branch{i}", snapshot)


# -- fairness -----------------------------------------------------------------------------------------------------


def test_commits_are_taken_in_the_order_in_which_they_came() -> None:
    inner, gate, repository = gated()
    order = [3, 0, 4, 1, 2, 7, 6, 5]
    sessions = [with_row(repository, row) for row in range(8)]
    commits = commits_of(sessions)
    together(repository, gate, [commits[i] for i in order])
    assert messages(inner)[1:] == [f"commit {i}" for i in order]


def test_who_has_to_wait_for_the_next_record_is_not_overtaken_by_those_who_come_later() -> None:
    """A change of attributes carries the shape, so behind an append it has to be written anew."""
    inner, gate, _ = gated()
    with Repository.open(inner).transaction("main", message="a dimension") as store:
        zarr.open_group(store).create_array("t", shape=(4,), chunks=(4,), dtype="i4", dimension_names=["time"])
    repository = without_maintenance(impatient(gate))
    sessions = [with_row(repository, row) for row in range(5)]
    sessions[1].append({"t": np.arange(4)}, "time")
    zarr.open_array(sessions[2].store, path="t").attrs["title"] = "attributes"

    async def run() -> None:
        *early, late = commits_of(sessions)
        tasks = await queue(repository, gate, early)
        gate.release(1)
        await until(lambda: gate.arrived == 2)
        tasks.append(await join(repository, late))
        gate.release()
        await asyncio.gather(*tasks)

    asyncio.run(run())
    assert shares(inner) == [1, 1, 2, 2]
    assert messages(inner)[2:] == [f"commit {i}" for i in (0, 1, 3, 2, 4)]
    grown = zarr.open_array(latest(inner).store, path="t", mode="r")
    assert grown.shape == (8,)
    assert dict(grown.attrs) == {"title": "attributes"}


# -- a second reader ----------------------------------------------------------------------------------------------


def test_a_reader_that_knows_the_format_only_finds_what_shared_appends_moves_and_long_messages_made() -> None:
    inner, gate, _ = gated()
    with Repository.open(inner).transaction("main", message="a dimension") as store:
        group = zarr.open_group(store).create_group("g")
        group.create_array("t", shape=(4,), chunks=(2,), dtype="i4", dimension_names=["time"], compressors=None)[:] = 1
    repository = without_maintenance(impatient(gate))
    sessions = [with_row(repository, row) for row in range(9)]
    for value in (1, 3, 5):
        sessions[value].append({"g/t": np.full(4, value)}, "time")
    sessions[4].move("g", "moved")
    for row in range(300):
        put_bytes(sessions[6], 1000 + row, _noise(row, 400))
    commits = [
        lambda s=s, i=i: s.commit_async(f"{i} " + "long " * 100 * (i % 2), rebase_with=ConflictDetector())  # type: ignore[misc]
        for i, s in enumerate(sessions)
    ]
    results = together(repository, gate, commits)
    assert all(isinstance(result, str) for result in results)
    assert max(shares(inner)) > 3
    objects = {key: bytes(inner.get_sync(key)) for key in keys(inner)}
    reader = Reader(objects, lambda url, start, stop: b"")
    snapshot, ours = reader.replay("main"), latest(inner)
    assert {path for path, is_file in snapshot.nodes if not is_file} == {"", "a", "moved", "moved/t"}
    for path in ("a", "moved/t"):
        chunks = reader.chunks(snapshot.nodes[path, False])
        assert sorted(chunks) == [tuple(row) for row in ours.chunk_coordinates(path).tolist()]
        for coords, data in chunks.items():
            found = ours.store.get_sync(f"{path}/c/{coords[0]}")
            assert found is not None
            assert found.to_bytes() == data
