"""The examples that use Spark: what they are made of, without Spark.  `make examples` runs them as a whole."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import zarr

import arraystore

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import examples by name."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    names: list[str] = []

    def found(name: str) -> ModuleType:
        names.append(name)
        return importlib.import_module(name)

    yield found
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def repository() -> arraystore.Repository:
    return arraystore.Repository.create(arraystore.in_memory_storage())


# -- a cube of ice ----------------------------------------------------------------------------------------------------


def write_field(ice: ModuleType, path: Path, values: Any, *, year: int, month: int, missing: float) -> None:
    """Write a file as Fortran does: each record between two counts of its bytes."""
    header = np.zeros((), ice.HEADER)
    header["begin"] = header["end"] = 256
    header["words"][[0, 1]] = year, month
    header["words"][[17, 18]] = values.shape
    header["numbers"][17] = missing
    count = np.array(values.nbytes, ">u4").tobytes()
    path.write_bytes(header.tobytes() + count + values.astype(">f4").tobytes() + count)


def test_a_field_is_read_with_its_month_and_what_is_missing(
    example: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    ice = example("ice_velocity")
    values = np.random.default_rng(1).normal(size=(ice.ROWS, ice.COLUMNS)).astype("f4")
    values[3, 5] = -1e30
    write_field(ice, tmp_path / "field", values, year=1892, month=4, missing=-1e30)
    month, found = ice.read_field(str(tmp_path / "field"))
    assert month == 2 * 12 + 3
    assert found.dtype == np.float32
    assert np.argwhere(np.isnan(found)).tolist() == [[3, 5]]
    values[3, 5] = np.nan
    np.testing.assert_array_equal(found, values)


def test_a_file_of_something_else_is_refused(example: Callable[[str], ModuleType], tmp_path: Path) -> None:
    ice = example("ice_velocity")
    write_field(ice, tmp_path / "field", np.zeros((3, 4), "f4"), year=1890, month=1, missing=0)
    with pytest.raises(ValueError, match="does not begin with a field of 215 x 360"):
        ice.read_field(str(tmp_path / "field"))


def test_the_files_are_of_all_months_of_ten_years(example: Callable[[str], ModuleType]) -> None:
    ice = example("ice_velocity")
    assert [ice.read_field(path)[0] for path in ice.FILES] == list(range(120))


def test_files_are_dropped_whole_and_with_times_in_their_order(
    example: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    ice = example("ice_velocity")
    inbox = tmp_path / "inbox"
    ice.drop(ice.FILES[:3], inbox)
    ice.drop(ice.FILES[3:6], inbox)
    dropped = sorted(inbox.iterdir(), key=lambda path: path.stat().st_mtime)
    assert [path.name for path in dropped] == [Path(path).name for path in ice.FILES[:6]]
    # The stream sees milliseconds.
    assert all(before.stat().st_mtime + 0.5 < after.stat().st_mtime for before, after in pairwise(dropped))
    assert dropped[0].read_bytes() == Path(ice.FILES[0]).read_bytes()


# -- two scenarios ----------------------------------------------------------------------------------------------------


def bring_in_without_spark(scenarios: ModuleType, repo: arraystore.Repository) -> dict[str, Any]:
    """Do what the example has executors do."""
    values = {name: scenarios.read(path, scenarios.AIR) for name, path in scenarios.SCENARIOS.items()}
    with repo.transaction("main", message="past") as store:
        scenarios.create_arrays(store)
        zarr.open_array(store, path=scenarios.AIR)[scenarios.PAST] = values["a1b"][scenarios.PAST]
    for name in values:
        repo.create_branch(name, repo.lookup_branch("main"))
        with repo.transaction(name, message="future") as store:
            zarr.open_array(store, path=scenarios.AIR)[scenarios.FUTURE] = values[name][scenarios.FUTURE]
    return values


def test_warming_is_counted_from_the_nineties(example: Callable[[str], ModuleType]) -> None:
    scenarios = example("scenarios")
    years = np.arange(scenarios.YEARS, dtype="f4")[:, None, None]
    slow, fast = (np.broadcast_to(280 + rate * years, (scenarios.YEARS, 37, 49)) for rate in (0.125, 0.25))
    found = scenarios.warming_of({"a1b": fast, "e1": slow})
    assert list(found) == list(range(1990, 2100, 10))
    np.testing.assert_allclose(list(found.values()), [(2.5 * n, 1.25 * n) for n in range(11)], atol=1e-4)


def test_the_scenarios_pass_the_check_of_their_example(
    example: Callable[[str], ModuleType], repository: arraystore.Repository
) -> None:
    scenarios = example("scenarios")
    values = bring_in_without_spark(scenarios, repository)
    assert scenarios.check(repository, scenarios.warming_of(values)) == []


def test_the_check_of_scenarios_notices_other_answers_and_another_past(
    example: Callable[[str], ModuleType], repository: arraystore.Repository
) -> None:
    scenarios = example("scenarios")
    values = bring_in_without_spark(scenarios, repository)
    answers = scenarios.warming_of(values)
    (wrong,) = scenarios.check(repository, answers | {2090: (4.26, 4.26)})
    assert wrong.startswith("SQL says")
    with repository.transaction("e1", message="another past") as store:
        zarr.open_array(store, path=scenarios.AIR)[0, 0, 0] = 0
    wrong = "\n".join(scenarios.check(repository, answers))
    assert "branch e1 does not hold what is in its source" in wrong
    assert "differ where they should not" in wrong


# -- a mask of the earth ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "factor"), [((6, 9), 3), ((4, 4), 1), ((20, 60), 20), ((2, 8), 2)])
@pytest.mark.parametrize("dtype", ["bool", "u2"])
def test_sums_of_blocks_are_those_of_their_cells(
    example: Callable[[str], ModuleType], shape: tuple[int, int], factor: int, dtype: str
) -> None:
    values = np.random.default_rng(2).integers(0, 2 if dtype == "bool" else 60_000, shape).astype(dtype)
    found = example("land_mask").block_sums(values, factor)
    for y, x in np.ndindex(found.shape):
        block = values[y * factor : (y + 1) * factor, x * factor : (x + 1) * factor]
        assert found[y, x] == block.astype(int).sum()
    assert found.size * factor**2 == values.size


def test_each_level_of_the_pyramid_is_whole_blocks_of_the_one_below(example: Callable[[str], ModuleType]) -> None:
    land = example("land_mask")
    below, cells, name = land.SHAPE, 1, "mask"
    for level in land.LEVELS:
        cells *= level.factor
        assert (level.below, level.cells) == (name, cells)
        assert tuple(side * level.factor for side in level.shape) == below
        assert level.cells**2 <= np.iinfo("u2").max  # the type of its counts
        below, name = level.shape, level.name


def test_blocks_do_not_cross_chunks_of_the_level_below(
    example: Callable[[str], ModuleType], repository: arraystore.Repository
) -> None:
    land = example("land_mask")
    session = repository.writable_session("main")
    land.create_arrays(session.store)
    for level in land.LEVELS:
        chunks = zarr.open_array(session.store, path=f"land/{level.below}").chunks
        assert all(side % level.factor == 0 for side in chunks)


# -- a daily job ------------------------------------------------------------------------------------------------------


@pytest.fixture
def job(example: Callable[[str], ModuleType], repository: arraystore.Repository) -> ModuleType:
    found = example("daily_job")
    with repository.transaction("main", message="arrays") as store:
        found.create_arrays(store)
    return found


def appended(job: ModuleType, repo: arraystore.Repository, day: Any) -> arraystore.Session:
    session = repo.writable_session("main")
    job.append(session, day, job.temperatures(day))
    return session


def test_days_that_are_appended_at_once_are_there_in_the_order_of_their_commits(
    job: ModuleType, repository: arraystore.Repository
) -> None:
    for day, earlier in zip(job.DAYS, job.YEAR_BEFORE, strict=True):
        ours, theirs = appended(job, repository, day), appended(job, repository, earlier)
        job.commit(theirs, "theirs")
        job.commit(ours, "ours")
    assert job.check(repository) == []


def test_the_check_of_the_job_notices_another_order(job: ModuleType, repository: arraystore.Repository) -> None:
    for day in [*job.DAYS, *job.YEAR_BEFORE]:
        job.commit(appended(job, repository, day), "a day")
    assert len(job.check(repository)) == 2


def test_a_day_is_refused_if_it_is_there_or_if_somebody_else_appends_it_meanwhile(
    job: ModuleType, repository: arraystore.Repository
) -> None:
    ours, theirs = (appended(job, repository, job.DAYS[0]) for _ in range(2))
    job.commit(theirs, "theirs")
    with pytest.raises(arraystore.RebaseFailedError) as failed:
        job.commit(ours, "ours")
    assert arraystore.ConflictType.DuplicateAppend in {found.conflict_type for found in failed.value.conflicts}
    with pytest.raises(arraystore.InvalidInputError, match="must not repeat"):
        appended(job, repository, job.DAYS[0])
