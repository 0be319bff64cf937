"""Saves whose rows decide what arrays there are, without Spark: attempts, commits and drivers in any order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from pyspark.sql.types import FloatType, IntegerType, LongType, StructField, StructType

from arraystore import Repository, local_filesystem_storage
from arraystore.spark.source.option_parsing import RawOptions
from arraystore.spark.source.options import write_options
from arraystore.spark.source.write import ArrowRowWriter, prepare_write

SCHEMA = StructType([StructField("day", LongType()), StructField("x", IntegerType()), StructField("v", FloatType())])
OPTIONS = {"array": "v", "dims": "day,x", "value": "v"}
LABELS = OPTIONS | {"coords": '{"day": "label", "x": "index"}'}
GROWING = LABELS | {"create": "true", "append_dim": "day", "chunks": '{"day": 2}'}
REGION = LABELS | {"replace_where": '{"day": [1, 2]}'}


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository.create(local_filesystem_storage(tmp_path, fsync=False))


def run_task(of_driver: ArrowRowWriter, *batches: pa.RecordBatch) -> Any:
    """Return the message of one task."""
    return of_driver.write(iter(batches))


def writer(repo: Repository, options: dict[str, str], *, overwrite: bool = False) -> ArrowRowWriter:
    """Return what Spark gets of a driver."""
    place = repo.storage.location.removeprefix("file://")
    return ArrowRowWriter(
        prepare_write(write_options(RawOptions(options | {"path": place}, {}), stream=False), SCHEMA, overwrite)
    )


def rows(*days: int | None, x: int | None = None) -> pa.RecordBatch:
    places = [(day, place) for day in days for place in ((0, 1) if x is None else (x,))]
    values = [10.0 * (day or 0) + place for day, place in places]
    columns = [pa.array([day for day, _ in places], pa.int64()), pa.array([at for _, at in places], pa.int32())]
    return pa.RecordBatch.from_arrays([*columns, pa.array(values, pa.float32())], names=["day", "x", "v"])


def save(repo: Repository, *days: int, options: dict[str, str] = GROWING) -> None:
    of_driver = writer(repo, options)
    of_driver.commit([run_task(of_driver, rows(*days))])


def stored(repo: Repository) -> tuple[list[int], list[Any]]:
    store = repo.readonly_session("main").store
    values = np.asarray(zarr.open_array(store, path="v", mode="r")[:])
    return np.asarray(zarr.open_array(store, path="day", mode="r")[:]).tolist(), values[:, 0].tolist()


def test_attempts_that_do_not_count_and_a_repeated_commit_change_nothing(repo: Repository) -> None:
    of_driver = writer(repo, GROWING)
    run_task(of_driver, rows(1, 2, 9))  # a speculative attempt, which Spark drops
    messages = [run_task(of_driver, rows(1, 2)), run_task(of_driver), run_task(of_driver, rows())]
    of_driver.commit(messages)
    of_driver.commit(messages)
    assert stored(repo) == ([1, 2], [10.0, 20.0])
    assert len(list(repo.ancestry(branch="main"))) == 2


def test_the_second_of_two_drivers_that_create_an_array_fails_whole(repo: Repository) -> None:
    first, second = writer(repo, GROWING), writer(repo, GROWING)
    ours, theirs = [run_task(first, rows(1))], [run_task(second, rows(2))]
    first.commit(ours)
    with pytest.raises(RuntimeError, match="ARRAYSTORE_REBASE_FAILED"):
        second.commit(theirs)
    assert stored(repo) == ([1], [10.0])


def test_two_drivers_that_append_other_labels_both_commit(repo: Repository) -> None:
    save(repo, 1, 2)
    first, second = writer(repo, GROWING), writer(repo, GROWING)
    ours, theirs = [run_task(first, rows(3, 4))], [run_task(second, rows(5, 6))]
    first.commit(ours)
    second.commit(theirs)
    assert stored(repo) == ([1, 2, 3, 4, 5, 6], [10.0, 20.0, 30.0, 40.0, 50.0, 60.0])


def test_two_drivers_that_append_the_same_labels_do_not_both_commit(repo: Repository) -> None:
    save(repo, 1, 2)
    first, second = writer(repo, GROWING), writer(repo, GROWING)
    ours, theirs = [run_task(first, rows(3, 4))], [run_task(second, rows(3, 4))]
    first.commit(ours)
    with pytest.raises(RuntimeError, match="ARRAYSTORE_REBASE_FAILED"):
        second.commit(theirs)
    assert stored(repo)[0] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "batch"),
    [
        (GROWING, rows(None)),
        (OPTIONS | {"create": "true"}, rows(-5)),
        (OPTIONS | {"create": "true"}, rows(1, x=-1)),
    ],
)
def test_rows_that_all_lack_a_place_in_new_arrays_are_refused_and_not_lost(
    repo: Repository, options: dict[str, str], batch: pa.RecordBatch
) -> None:
    of_driver = writer(repo, options)
    with pytest.raises(RuntimeError, match="no row has a place along dimension"):
        of_driver.commit([run_task(of_driver, batch)])
    assert len(list(repo.ancestry(branch="main"))) == 1


def test_rows_without_labels_do_not_let_arrays_grow(repo: Repository) -> None:
    save(repo, 1, 2)
    of_driver = writer(repo, GROWING)
    with pytest.raises(RuntimeError, match="2 have no value in the dimension column 'day'"):
        of_driver.commit([run_task(of_driver, rows(None))])
    assert stored(repo) == ([1, 2], [10.0, 20.0])


def test_a_replaced_region_is_replaced_once_and_by_one_driver(repo: Repository) -> None:
    save(repo, 1, 2, 3, 4)
    first, second = writer(repo, REGION, overwrite=True), writer(repo, REGION, overwrite=True)
    ours, theirs = [run_task(first, rows(1))], [run_task(second, rows(2))]
    save(repo, 5, 6)  # what others append meanwhile stays
    first.commit(ours)
    first.commit(ours)
    with pytest.raises(RuntimeError, match="ARRAYSTORE_REBASE_FAILED"):
        second.commit(theirs)
    days, values = stored(repo)
    assert days == [1, 2, 3, 4, 5, 6]
    assert repr(values) == "[10.0, nan, 30.0, 40.0, 50.0, 60.0]"


def test_a_value_that_means_a_missing_one_is_refused_whether_or_not_the_array_is_new(repo: Repository) -> None:
    schema = StructType([StructField("day", LongType()), StructField("v", LongType())])
    place = repo.storage.location.removeprefix("file://")
    options = {"array": "v", "dims": "day", "value": "v", "create": "true", "path": place}

    def save_values(*values: int) -> None:
        of_driver = ArrowRowWriter(prepare_write(write_options(RawOptions(options, {}), stream=False), schema, False))
        columns = [pa.array(range(len(values)), pa.int64()), pa.array(values, pa.int64())]
        of_driver.commit([run_task(of_driver, pa.RecordBatch.from_arrays(columns, names=schema.names))])

    save_values(1, 2)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="means a missing value"):
            save_values(3, -(2**63))
    assert repo.readonly_session("main").read("v").tolist() == [1, 2]
