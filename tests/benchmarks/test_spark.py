"""What the Spark cases write is what it is said to be; no Spark is started here."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import zarr

import arraystore
from benchmarks.cases.spark_changes import change_set
from benchmarks.cases.spark_regions import speed_beyond
from benchmarks.contenders import OURS
from benchmarks.places import PlaceMaker
from benchmarks.spark_changes import claimed, merge_many
from benchmarks.spark_cube import Cube, Field, Line, share
from benchmarks.spark_ours import write_alone
from benchmarks.spark_pairs import PATH, Load, check, median_ratio
from benchmarks.systems import IcechunkSystem, System
from benchmarks.timing import Samples

CUBE = Cube((4, 6, 10), (2, 3, 5))
FIELDS: list[Field] = [CUBE, Line(10, 4, parts=3)]


def test_what_a_region_of_a_cube_holds_follows_from_where_it_is() -> None:
    whole = CUBE.whole()
    assert whole.shape == CUBE.shape
    assert whole[3, 2, 9] == 3 * 31 + 2 * 17 + 9 * 7
    for region in CUBE.regions():
        assert np.array_equal(CUBE.values(region), whole[region])


@pytest.mark.parametrize("field", FIELDS, ids=["cube", "line"])
def test_regions_cover_an_array_once_and_are_whole_chunks(field: Field) -> None:
    met = np.zeros(field.shape, int)
    for region in field.regions():
        met[region] += 1
        assert field.values(region).dtype == field.dtype
        assert all(part.start % chunk == 0 for part, chunk in zip(region, field.chunks, strict=True))
    assert (met == 1).all()


@pytest.mark.parametrize("tasks", [1, 2, 3, 16])
def test_every_region_is_in_one_share(tasks: int) -> None:
    regions = CUBE.regions()
    assert [region for task in range(tasks) for region in share(regions, task, tasks)] == regions


def test_the_expected_sums_of_a_cube_tell_when_two_cells_change_places() -> None:
    whole = CUBE.whole().reshape(-1).astype(int)
    place = np.arange(CUBE.rows)
    assert CUBE.expected_sums() == (CUBE.rows, place.sum(), whole.sum(), (place * whole).sum())
    whole[[3, 100]] = whole[[100, 3]]
    assert CUBE.expected_sums()[3] != (place * whole).sum()


@pytest.mark.parametrize("field", FIELDS, ids=["cube", "line"])
def test_a_run_that_loses_a_chunk_is_refused(field: Field, tmp_path: Path) -> None:
    load = Load(field, PlaceMaker("local", tmp_path))
    assert load.write_once(OURS, lambda session: write_alone(session, PATH, field)).parts["total"] > 0
    with load.prepared(OURS) as (_, handle), pytest.raises(AssertionError, match="did not keep"):
        check(OURS, handle, field)


@pytest.mark.parametrize("varied", [False, True])
@pytest.mark.parametrize("system", [OURS, IcechunkSystem()], ids=lambda system: system.name)
def test_change_sets_are_measured_of_forks_that_can_be_merged(system: System, varied: bool, tmp_path: Path) -> None:
    assert 0 < change_set(system, PlaceMaker("local", tmp_path), 50, varied=varied) < 5000
    assert list(tmp_path.iterdir()) == [], "a case clears away what it wrote"


def test_claimed_references_lie_one_after_the_other_in_packs_of_their_own() -> None:
    repository = arraystore.Repository.create(arraystore.in_memory_storage())
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(5000 * 4096,), chunks=(4096,), dtype="uint8")
    sent = pickle.dumps(session.fork())
    session.merge([claimed(sent, "a", start, 2500) for start in (0, 2500)])
    session.commit("claimed")
    assert len(repository.readonly_session("main").chunk_coordinates("a")) == 5000


def test_merging_in_a_process_tells_memory_and_time(tmp_path: Path) -> None:
    found = merge_many(tmp_path, 3, 10)
    assert set(found) == {"sent", "merge", "processor", "commit", "before", "merging", "committing"}
    assert found["committing"] >= found["merging"] >= found["before"] > 0


def test_ratios_are_taken_within_rounds() -> None:
    slow, fast = Samples({"total": [2.0, 30.0, 8.0]}), Samples({"total": [1.0, 10.0, 2.0]})
    assert median_ratio(slow, fast) == 3.0


def test_the_overhead_of_tasks_is_taken_off_before_speeds_are_compared() -> None:
    spark, nothing, plain = (Samples({"total": [seconds]}) for seconds in (0.3, 0.1, 0.15))
    assert speed_beyond(spark, nothing, plain) == pytest.approx(0.75)
