"""The commit of a data source, which Spark runs in a process of its own with nothing but messages."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgpack
import numpy as np
import pytest
import zarr

from arraystore import Repository, Session, local_filesystem_storage
from arraystore._runtime.plain_values import pack
from arraystore._session.change_set_transfer import send_change_set
from arraystore._session.handoff import SessionHandoff, hand_off
from arraystore.errors import FormatError, MergeConflictError, RebaseFailedError, StorageError
from arraystore.spark.fork_job import merge_outcomes, pickle_new_fork
from arraystore.spark.source.messages import TaskMessage, handoff_in, message_of, outcomes_of, query_of
from arraystore.spark.source.options import RepositoryLocation
from arraystore.spark.source.write import commit_job
from arraystore.spark.streams.batches import Batch, commit_batch
from arraystore.spark.streams.progress import last_batch
from tests.spark.support import messages, read_array

SHAPE = (8, 6)
BEFORE = np.arange(48, dtype="i4").reshape(SHAPE)


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    """An array of 4 x 2 chunks; the last two chunks were never written."""
    repo = Repository.create(local_filesystem_storage(tmp_path, fsync=False))
    with repo.transaction("main", message="begin") as store:
        array = zarr.create_array(store, name="a", shape=SHAPE, chunks=(2, 3), dtype="i4", fill_value=-1)
        array[:6] = BEFORE[:6]
    return repo


class Planned:
    """What Spark's planner has: a session, of which tasks get forks, and the handoff."""

    def __init__(self, repo: Repository) -> None:
        self.session = repo.writable_session("main")
        self.fork_bytes = pickle_new_fork(self.session)
        self.handoff = hand_off(self.session)

    def task(self, number: int, region: tuple[slice, ...], value: int) -> TaskMessage:
        fork = pickle.loads(self.fork_bytes)
        zarr.open_array(fork.store, path="a", mode="r+")[region] = value
        return message_of(pack((number, 0, send_change_set(fork), {"rows": 6})), self.handoff, "query-1")


def location_of(repo: Repository) -> RepositoryLocation:
    return RepositoryLocation(repo.storage.location.removeprefix("file://"))


def expected(**rows: int) -> np.ndarray:
    found = np.full(SHAPE, -1, dtype="i4")
    found[:6] = BEFORE[:6]
    return found


def test_what_tasks_wrote_gets_into_one_commit_through_messages_alone(repo: Repository):
    planned = Planned(repo)
    sent = [planned.task(0, np.s_[0:2, :], 100), planned.task(1, np.s_[6:8, 0:3], 200)]

    handoff = handoff_in(sent, Repository.open(repo.storage).context, "main")
    session = handoff.open()
    merge_outcomes(session, outcomes_of(sent))
    commit_job(session, location_of(repo), "job-1", "write", {"spark.rows": 12})

    wanted = expected()
    wanted[0:2], wanted[6:8, 0:3] = 100, 200
    assert np.array_equal(read_array(repo), wanted)
    newest = next(iter(repo.ancestry(branch="main")))
    assert newest.metadata == {"spark.rows": 12, "spark.job": "job-1"}
    assert query_of(sent) == "query-1"


def test_overwriting_keeps_nothing_of_what_the_array_held(repo: Repository):
    planned = Planned(repo)
    sent = [planned.task(0, np.s_[0:2, 0:3], 100), planned.task(1, np.s_[6:8, 0:3], 200)]

    session = planned.handoff.open()
    merge_outcomes(session, outcomes_of(sent), ["a"])
    commit_job(session, location_of(repo), "job-1", "overwrite", {})

    wanted = np.full(SHAPE, -1, dtype="i4")
    wanted[0:2, 0:3], wanted[6:8, 0:3] = 100, 200
    assert np.array_equal(read_array(repo), wanted)
    assert messages(repo)[0] == "overwrite"
    assert len(repo.readonly_session("main").chunk_coordinates("a")) == 2


def test_overwriting_with_nothing_leaves_nothing(repo: Repository):
    session = Planned(repo).handoff.open()

    merge_outcomes(session, [], ["a"])
    commit_job(session, location_of(repo), "job-1", "overwrite", {})

    assert np.array_equal(read_array(repo), np.full(SHAPE, -1, dtype="i4"))


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_chunk_of_two_tasks_is_refused_with_the_remedy(repo: Repository, overwrite: bool):
    planned = Planned(repo)
    sent = [planned.task(0, np.s_[0:1, 0:1], 100), planned.task(1, np.s_[1:2, 0:1], 200)]
    session = planned.handoff.open()

    with pytest.raises(MergeConflictError, match="repartition_by_chunk") as caught:
        merge_outcomes(session, outcomes_of(sent), ["a"] if overwrite else ())

    assert caught.value.chunks == ((0, 0),)
    assert not session.has_uncommitted_changes


def test_a_commit_that_is_called_again_finds_that_it_is_done(repo: Repository):
    planned = Planned(repo)
    sent = [planned.task(0, np.s_[0:2, :], 100)]

    for _ in range(3):
        session = planned.handoff.open()
        merge_outcomes(session, outcomes_of(sent))
        commit_job(session, location_of(repo), "job-1", "write", {})

    assert messages(repo)[:2] == ["write", "begin"]


def test_a_commit_goes_on_top_of_others_and_is_still_found(repo: Repository):
    planned = Planned(repo)
    sent = [planned.task(0, np.s_[0:2, :], 100)]
    with repo.transaction("main", message="elsewhere") as store:
        zarr.open_array(store, path="a", mode="r+")[4:6] = 7

    for _ in range(2):
        session = planned.handoff.open()
        merge_outcomes(session, outcomes_of(sent))
        commit_job(session, location_of(repo), "job-1", "write", {})

    wanted = expected()
    wanted[0:2], wanted[4:6] = 100, 7
    assert np.array_equal(read_array(repo), wanted)
    assert messages(repo)[:3] == ["write", "elsewhere", "begin"]


def test_a_collision_with_another_commit_is_a_conflict(repo: Repository):
    planned = Planned(repo)
    sent = [planned.task(0, np.s_[0:2, :], 100)]
    with repo.transaction("main", message="same chunk") as store:
        zarr.open_array(store, path="a", mode="r+")[0:2] = 7
    session = planned.handoff.open()
    merge_outcomes(session, outcomes_of(sent))

    with pytest.raises(RebaseFailedError):
        commit_job(session, location_of(repo), "job-1", "write", {})

    assert messages(repo)[0] == "same chunk"


def test_overwriting_collides_with_whoever_wrote_a_chunk_that_it_drops(repo: Repository):
    planned = Planned(repo)
    sent = [planned.task(0, np.s_[6:8, :], 100)]
    with repo.transaction("main", message="elsewhere") as store:
        zarr.open_array(store, path="a", mode="r+")[0:2] = 7
    session = planned.handoff.open()
    merge_outcomes(session, outcomes_of(sent), ["a"])

    with pytest.raises(RebaseFailedError):
        commit_job(session, location_of(repo), "job-1", "overwrite", {})


def test_a_commit_whose_answer_gets_lost_is_asked_again(repo: Repository, monkeypatch: pytest.MonkeyPatch):
    planned = Planned(repo)
    session = planned.handoff.open()
    merge_outcomes(session, outcomes_of([planned.task(0, np.s_[0:2, :], 100)]))
    commit, calls = Session.commit, []

    def loses_two_answers(self: Session, *arguments: object, **options: object) -> str:
        calls.append(arguments)
        if len(calls) < 3:
            raise StorageError("the answer got lost")
        return commit(self, *arguments, **options)

    monkeypatch.setattr(Session, "commit", loses_two_answers)
    commit_job(session, location_of(repo), "job-1", "write", {})

    assert len(calls) == 3
    assert messages(repo)[:2] == ["write", "begin"]


def stream_batch(repo: Repository, planned: Planned, sent: list[TaskMessage], batch: int) -> None:
    session = handoff_in(sent, repo.context, "main").open()
    merge_outcomes(session, outcomes_of(sent))
    commit_batch(session, repo, Batch("s", batch, "query-1"), "batch", {"spark.rows": 6})


def test_a_batch_of_a_stream_is_committed_with_its_number(repo: Repository):
    planned = Planned(repo)

    stream_batch(repo, planned, [planned.task(0, np.s_[0:2, :], 100)], 5)

    session = repo.readonly_session("main")
    assert last_batch(session, "s") == 5
    newest = next(iter(repo.ancestry(branch="main")))
    assert newest.metadata == {"spark.rows": 6, "spark.stream": "s", "spark.batch": 5}


def test_of_two_drivers_that_commit_the_same_batch_one_finds_it_done(repo: Repository):
    first, second = Planned(repo), Planned(repo)
    rows = np.s_[0:2, :]

    stream_batch(repo, first, [first.task(0, rows, 100)], 0)
    stream_batch(repo, second, [second.task(0, rows, 100)], 0)

    assert messages(repo)[:2] == ["batch", "begin"]


def test_a_batch_that_collides_with_other_data_is_a_conflict(repo: Repository):
    planned = Planned(repo)
    with repo.transaction("main", message="same chunk") as store:
        zarr.open_array(store, path="a", mode="r+")[0:2] = 7

    with pytest.raises(RebaseFailedError):
        stream_batch(repo, planned, [planned.task(0, np.s_[0:2, :], 100)], 0)

    assert last_batch(repo.readonly_session("main"), "s") is None


HOME = ("main", "main", 1, None, b"s" * 12, b"i" * 12)


def damaged(version: int = 1, home: object = HOME, query: object = None, **changes: object) -> TaskMessage:
    outcome: dict[str, object] = {"task": 0, "attempt": 0, "change_set": b"", "report": {}}
    return TaskMessage(pack((version, pack(tuple((outcome | changes).values())), home, query)))


@pytest.mark.parametrize(
    "message",
    [
        None,
        "text",
        TaskMessage(b""),
        TaskMessage(b"\xc1"),
        TaskMessage(pickle.dumps(("main",))),
        TaskMessage(msgpack.packb([1, 2])),
        damaged(version=2),
        damaged(task="0"),
        damaged(change_set="x"),
        TaskMessage(pack((1, b"\xc1", None, None))),
        damaged(report=None),
    ],
)
def test_messages_that_no_task_wrote_are_refused(message: object):
    with pytest.raises(FormatError):
        outcomes_of([message])


@pytest.mark.parametrize(
    "homes",
    [
        (),
        (("main", "main", 1, None, b"s", b"i"), ("main", "main", 2, None, b"s", b"i")),
        (("dev", "main", 1, None, b"s", b"i"),),
        (("main", "main", "1", None, b"s", b"i"),),
        (("main", "main", 1, (1, "x"), b"s", b"i"),),
        (None,),
        ("main",),
    ],
)
def test_tasks_must_agree_on_a_session_of_the_branch(homes: tuple[object, ...], repo: Repository):
    with pytest.raises(FormatError):
        handoff_in([damaged(home=home) for home in homes], repo.context, "main")


def test_a_handoff_gets_through_messages_unchanged(repo: Repository):
    planned = Planned(repo)
    found = handoff_in([planned.task(0, np.s_[0:2, :], 1)], repo.context, "main")

    assert isinstance(found, SessionHandoff)
    assert found == planned.handoff


@pytest.mark.parametrize("queries", [("q", "r"), ("q", None), (7,), ()])
def test_tasks_must_agree_on_a_query(queries: tuple[object, ...]):
    with pytest.raises(FormatError):
        query_of([damaged(query=query) for query in queries])
