"""Work of tasks that write through forks: what comes back is data, whatever it says."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest
import zarr

from arraystore import Repository, Session, in_memory_storage, local_filesystem_storage
from arraystore._runtime.plain_values import pack
from arraystore._session.change_set_transfer import is_spilled
from arraystore._session.fork import ForkSession
from arraystore.errors import FormatError, InvalidInputError, MergeConflictError, ReadOnlyError
from arraystore.spark import TaskFailedError, translate_error
from arraystore.spark.fork_job import (
    Attempt,
    Outcome,
    merge_outcomes,
    pickle_new_fork,
    read_outcome,
    run_fork_job,
    run_tasks,
)
from arraystore.spark.spark_action import task_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = Repository.create(local_filesystem_storage(tmp_path, fsync=False))
    with repo.transaction("main", message="begin") as store:
        zarr.create_array(store, name="a", shape=(8,), chunks=(2,), dtype="i4")
    return repo


def values(session: Session) -> list[int]:
    return zarr.open_array(session.store, path="a", mode="r")[:].tolist()


def writes(at: int, value: int = 1) -> Callable[[ForkSession, Iterator[Any]], Mapping[str, Any]]:
    def work(fork: ForkSession, batches: Iterator[Any]) -> Mapping[str, Any]:
        zarr.open_array(fork.store, path="a", mode="r+")[at] = value
        return {"at": at}

    return work


def outcome(fork_bytes: bytes, work: Any, most_inline: int = 1 << 20) -> Outcome:
    return read_outcome("outcome", Attempt(fork_bytes, work, most_inline).outcome(iter(())))


def test_a_ticket_is_a_fork_of_its_own_each_time(repo: Repository):
    session = repo.writable_session("main")
    fork_bytes = pickle_new_fork(session)
    merge_outcomes(session, [outcome(fork_bytes, writes(0, 1)), outcome(fork_bytes, writes(2, 2), most_inline=10)])
    assert values(session) == [1, 0, 2, 0, 0, 0, 0, 0]


def test_a_ticket_stays_small_whatever_is_uncommitted(repo: Repository):
    """It goes into every task; what is uncommitted of chunks travels as a reference to an object, or compactly."""
    session = repo.writable_session("main")
    assert len(pickle_new_fork(session)) < 2000
    zarr.create_array(session.store, name="many", shape=(10_000,), chunks=(1,), dtype="f8")[:] = np.arange(10_000) + 0.5
    assert len(pickle_new_fork(session)) < 100_000


def test_two_tasks_that_wrote_the_same_are_an_error_with_the_remedy(repo: Repository):
    session = repo.writable_session("main")
    fork_bytes = pickle_new_fork(session)
    with pytest.raises(MergeConflictError, match=r"let one task own each chunk \(repartition_by_chunk") as caught:
        merge_outcomes(
            session, [outcome(fork_bytes, writes(0)), outcome(fork_bytes, writes(4)), outcome(fork_bytes, writes(1))]
        )
    assert (caught.value.path.strip("/"), caught.value.chunks) == ("a", ((0,),))
    assert not session.has_uncommitted_changes


def test_sessions_that_workers_cannot_write_for_are_refused(repo: Repository):
    with pytest.raises(ReadOnlyError):
        pickle_new_fork(repo.readonly_session("main"))
    session = Repository.create(in_memory_storage()).writable_session("main")
    with pytest.raises(InvalidInputError, match=r"memory://\w+ is memory of this process"):
        pickle_new_fork(session)


def test_input_is_read_to_its_end_so_that_spark_can_use_the_worker_again(repo: Repository):
    left = iter(range(5))
    Attempt(pickle_new_fork(repo.writable_session("main")), writes(0)).outcome(left)  # type: ignore[arg-type]
    assert list(left) == []


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"rows": 5, "names": ["a", "ä"], "nested": {"x": [1, 2.5, None, True]}, "raw": b"\x00\xff"},
        {0: 5, -1: "by number"},
        {"large": 2**64 - 1, "small": -(2**63)},
    ],
)
def test_reports_of_plain_values_come_back(report: dict[Any, Any]):
    assert read_outcome("outcome", pack((3, 1, b"", report))).report == report


def test_numbers_of_numpy_come_back_as_plain_ones():
    report = {"n": np.int64(5), "x": np.float32(0.5), "b": np.bool_(True), "list": np.arange(3), "z": np.array(7)}
    found = read_outcome("outcome", pack((3, 1, b"", report))).report
    assert found == {"n": 5, "x": 0.5, "b": True, "list": [0, 1, 2], "z": 7}
    assert type(found["n"]) is int


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, np.datetime64("2020-01-01"), lambda: 1])
def test_reports_of_other_things_fail_in_the_task(repo: Repository, value: object):
    session = repo.writable_session("main")
    with pytest.raises(RuntimeError, match="ARRAYSTORE_TASK_FAILED") as caught:
        outcome(pickle_new_fork(session), lambda fork, batches: {"value": value})
    assert isinstance(translate_error(caught.value), TaskFailedError)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x81\x90\x01",
        pickle.dumps({}),
        msgpack.packb([1]),
        msgpack.packb(5),
        msgpack.packb([0, 0, b"", {"t": msgpack.ExtType(5, b"x")}]),
        msgpack.packb([0, 0, b"", [1]]),
        msgpack.packb(["0", 0, b"", {}]),
    ],
)
def test_what_is_no_outcome_is_refused(data: bytes):
    with pytest.raises(FormatError, match="outcome of a task"):
        read_outcome("outcome of a task", data)


class Bomb:
    """Would show if anything unpickled what a worker sent."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_nothing_that_a_worker_sends_is_unpickled(repo: Repository, tmp_path: Path):
    bomb = pickle.dumps(Bomb(tmp_path / "boom"))
    session = repo.writable_session("main")
    with pytest.raises(FormatError):
        merge_outcomes(session, [Outcome(0, 0, bomb, {})])
    with pytest.raises(FormatError):
        merge_outcomes(session, [Outcome(0, 0, msgpack.packb((bomb,)), {})])
    with pytest.raises(FormatError):
        read_outcome("outcome of a task", bomb)
    assert not (tmp_path / "boom").exists()


@pytest.mark.end_to_end
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_every_partition_gives_one_outcome_in_order_empty_ones_too(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")

    def work(fork: ForkSession, batches: Iterator[Any]) -> Mapping[str, Any]:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        array = zarr.open_array(fork.store, path="a", mode="r+")
        for number in numbers:
            array[2 * number : 2 * number + 2] = number + 1
        return {"numbers": numbers}

    frame = task_frame(spark, 4).where("id <> 2")
    nothing = len(repo.writable_session("main").fork().changes())  # travels; anything more does not
    outcomes = run_fork_job(session, frame, work, description="test", tasks=4, most_inline=nothing)
    assert [(entry.task, entry.attempt, entry.report) for entry in outcomes] == [
        (0, 0, {"numbers": [0]}),
        (1, 0, {"numbers": [1]}),
        (2, 0, {"numbers": []}),
        (3, 0, {"numbers": [3]}),
    ]
    assert [is_spilled(entry.change_set) for entry in outcomes] == [True, True, False, True]
    assert not session.has_uncommitted_changes
    merge_outcomes(session, outcomes)
    assert values(session) == [1, 1, 2, 2, 0, 0, 4, 4]
    session.commit("tasks")
    assert [snapshot.message for snapshot in repo.ancestry(branch="main")][:-1] == ["tasks", "begin"]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_each_share_gets_a_task(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")

    def work(fork: Any, share: tuple[int, str]) -> Mapping[str, Any] | None:
        zarr.open_array(fork.store, path="a", mode="r+")[share[0]] = len(share[1])
        return {"name": share[1]} if share[0] else None

    told: list[tuple[int, int]] = []
    outcomes = run_tasks(
        spark, session, [(0, "x"), (2, "xx"), (6, "xxx")], work, progress=lambda *pair: told.append(pair)
    )
    assert [entry.report for entry in outcomes] == [{}, {"name": "xx"}, {"name": "xxx"}]
    merge_outcomes(session, outcomes)
    assert values(session) == [1, 0, 2, 0, 0, 0, 3, 0]
    assert told[-1] == (3, 3)
    assert run_tasks(spark, session, [], work) == []


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("tasks", [[], [0], [0, 0], [0, 1, 1], [0, 2]])
def test_outcomes_that_are_lost_or_doubled_are_an_error(
    spark: SparkSession, repo: Repository, monkeypatch: pytest.MonkeyPatch, tasks: list[int]
):
    session, fork = repo.writable_session("main"), repo.writable_session("main").fork()
    found = [pack((task, 0, pack((fork.changes(),)), {})) for task in tasks]
    table = pa.table({"outcome": pa.array(found, pa.binary())})
    monkeypatch.setattr("arraystore.spark.fork_job.run_action", lambda *_, **__: table)
    taken: list[Any] = []
    with pytest.raises(FormatError, match="one outcome for each task"):
        run_tasks(spark, session, [(0, "x"), (2, "y")], lambda fork, share: None, take=taken.append)
    assert not taken


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_an_error_of_a_task_is_raised_as_it_was_and_no_fork_is_missed(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")

    def work(fork: Any, share: int) -> None:
        raise MergeConflictError("the words of the task", "a", ((share,),))

    with pytest.raises(MergeConflictError, match=r"^the words of the task$") as caught:
        run_tasks(spark, session, [3], work)
    assert caught.value.chunks == ((3,),)
    zarr.open_array(session.store, path="a")[0] = 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.commit("after all")
    assert values(repo.readonly_session("main"))[0] == 5
