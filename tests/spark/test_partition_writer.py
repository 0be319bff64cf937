"""Writing from a user's own ``rdd.mapPartitions``."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
import pytest
import zarr
from pyspark.cloudpickle import dumps

from arraystore import Repository, local_filesystem_storage
from arraystore.errors import FormatError, InvalidInputError, MergeConflictError, ReadOnlyError
from arraystore.spark import map_partitions_writer
from tests.spark.support import read_array

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = Repository.create(local_filesystem_storage(tmp_path, fsync=False))
    with repo.transaction("main", message="begin") as store:
        zarr.create_array(store, name="a", shape=(12,), chunks=(2,), dtype="i4")
    return repo


def write(store: Any, items: Iterator[tuple[int, int]]) -> dict[str, Any]:
    array = zarr.open_array(store, path="a", mode="r+")
    count = 0
    for at, value in items:
        array[at] = value
        count += 1
    return {"rows": count}


@pytest.mark.end_to_end
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_partitions_of_an_rdd_are_written_in_one_commit(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    writer = map_partitions_writer(session)
    rows = spark.sparkContext.parallelize([(at, at * at) for at in range(12)], 3)
    results = rows.mapPartitions(writer(write)).collect()
    assert len(results) == 3
    assert read_array(repo).tolist() == [0] * 12
    assert writer.merge(results) == [{"rows": 4}] * 3
    session.commit("rdd")
    assert read_array(repo).tolist() == (np.arange(12) ** 2).tolist()
    assert [snapshot.message for snapshot in repo.ancestry(branch="main")][:-1] == ["rdd", "begin"]


def test_each_partition_gives_one_result_also_where_there_is_nothing(repo: Repository):
    session = repo.writable_session("main")
    writer = map_partitions_writer(session)
    partition = pickle.loads(dumps(writer(write)))
    results = [*partition([(0, 5), (1, 6)]), *partition([]), *partition([(4, 7)])]
    assert writer.merge(results) == [{"rows": 2}, {"rows": 0}, {"rows": 1}]
    assert writer.merge([]) == []
    session.commit("three")
    assert read_array(repo).tolist() == [5, 6, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]


def test_a_function_needs_no_report_and_may_leave_items_unread(repo: Repository):
    writer = map_partitions_writer(repo.writable_session("main"))
    items = iter([1, 2, 3])
    assert writer.merge(writer(lambda store, items: None)(items)) == [{}]  # type: ignore[misc]
    assert list(items) == []


def test_partitions_that_wrote_the_same_chunk_are_refused_together(repo: Repository):
    session = repo.writable_session("main")
    writer = map_partitions_writer(session)
    results = [*writer(write)([(0, 5)]), *writer(write)([(1, 6)])]
    with pytest.raises(MergeConflictError, match="one task own each chunk"):
        writer.merge(results)
    assert not session.has_uncommitted_changes


def test_results_of_another_session_are_refused(repo: Repository):
    results = list(map_partitions_writer(repo.writable_session("main"))(write)([(0, 5)]))
    with pytest.raises(MergeConflictError):
        map_partitions_writer(repo.writable_session("main")).merge(results)


def test_sessions_that_only_read_are_refused_at_once(repo: Repository):
    with pytest.raises(ReadOnlyError):
        map_partitions_writer(repo.readonly_session("main"))


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ("text", InvalidInputError),
        (5, InvalidInputError),
        ((0, 0, b"", b""), InvalidInputError),
        (b"", FormatError),
        (pickle.dumps([1]), FormatError),
        (msgpack.packb((0, 0, b"")), FormatError),
        (msgpack.packb((0, 0, b"", b"")), FormatError),
        (msgpack.packb((0, 0, b"", msgpack.packb({}))), FormatError),
        (msgpack.packb(("0", 0, b"", b"\x80")), FormatError),
    ],
)
def test_what_no_partition_returned_is_refused(repo: Repository, result: Any, kind: type[Exception]):
    session = repo.writable_session("main")
    writer = map_partitions_writer(session)
    good = list(writer(write)([(0, 5)]))
    with pytest.raises(kind):
        writer.merge([*good, result])
    assert not session.has_uncommitted_changes
