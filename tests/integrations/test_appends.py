"""Sessions that append to one dataset at the same time all succeed, and all variables keep in step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from arraystore import (
    ConflictDetector,
    InvalidInputError,
    RebaseFailedError,
    Repository,
    Session,
    SessionStateError,
)
from arraystore.xarray import to_arraystore
from tests.integrations.datasets import ENCODING, lazy, reread, weather

pytestmark = pytest.mark.filterwarnings("ignore:.*Zarr V3 specification.*")

Write = Callable[[xr.Dataset, Session], None]


def by_function(dataset: xr.Dataset, session: Session, **options: Any) -> None:
    to_arraystore(dataset, session, append_dim="time", **options)


def by_function_lazily(dataset: xr.Dataset, session: Session) -> None:
    to_arraystore(lazy(dataset), session, append_dim="time", mode="a-")


def by_xarray(dataset: xr.Dataset, session: Session) -> None:
    with session.appending("time"):
        dataset.to_zarr(session.store, append_dim="time", mode="a-", consolidated=False)


def by_xarray_lazily(dataset: xr.Dataset, session: Session) -> None:
    by_xarray(lazy(dataset), session)


WAYS = pytest.mark.parametrize("write", [by_function, by_function_lazily, by_xarray, by_xarray_lazily])


@pytest.fixture
def repo(memory_repo: Repository) -> Repository:
    return filled(memory_repo)


def filled(repo: Repository, **options: Any) -> Repository:
    session = repo.writable_session("main")
    to_arraystore(weather(0, 4), session, encoding=ENCODING, **options)
    session.commit("the first days")
    return repo


def days(*firsts: int) -> xr.Dataset:
    """Return the dataset to expect: four days, then pairs of days in this order."""
    return joined(*(weather(first, 2) for first in firsts))


def joined(*parts: xr.Dataset) -> xr.Dataset:
    return xr.concat([weather(0, 4), *parts], "time", "minimal", "minimal", compat="equals", join="exact")


@WAYS
def test_two_that_append_at_once_are_stored_in_the_order_of_their_commits(repo: Repository, write: Write) -> None:
    first, second = repo.writable_session("main"), repo.writable_session("main")
    write(weather(10, 2), first)
    write(weather(20, 2), second)
    second.commit("second", rebase_with=ConflictDetector())
    first.commit("first", rebase_with=ConflictDetector())
    xr.testing.assert_identical(reread(repo), days(20, 10))
    times = zarr.open_array(repo.readonly_session("main").store, path="time", mode="r")
    assert times[:].tolist() == [24 * day for day in (1, 2, 3, 4, 21, 22, 11, 12)]


@WAYS
def test_each_sees_its_own_days_before_it_commits(repo: Repository, write: Write) -> None:
    session = repo.writable_session("main")
    write(weather(10, 2), session)
    xr.testing.assert_identical(xr.open_zarr(session.store, consolidated=False).load(), days(10))


def test_many_that_append_at_once_all_succeed(repo: Repository) -> None:
    sessions = [repo.writable_session("main") for _ in range(6)]
    for number, session in enumerate(sessions):
        (by_function if number % 2 else by_function_lazily)(weather(10 * number + 10, 2), session)
    for session in reversed(sessions):
        session.commit("two days", rebase_with=ConflictDetector())
    xr.testing.assert_identical(reread(repo), days(60, 50, 40, 30, 20, 10))


@pytest.mark.parametrize("write", [by_function, by_function_lazily])
def test_an_append_does_not_depend_on_where_the_end_was(repo: Repository, write: Write) -> None:
    first, second = (repo.writable_session("main", isolation="serializable") for _ in range(2))
    write(weather(10, 2), first)
    write(weather(20, 2), second)
    second.commit("second", rebase_with=ConflictDetector())
    first.commit("first", rebase_with=ConflictDetector())
    xr.testing.assert_identical(reread(repo), days(20, 10))


def test_an_append_depends_on_what_it_was_made_of(repo: Repository) -> None:
    first, second = (repo.writable_session("main", isolation="serializable") for _ in range(2))
    made = xr.open_zarr(first.store, consolidated=False, chunks=None).isel(time=slice(0, 2))
    by_function(made.assign_coords(time=weather(10, 2)["time"]), first)
    zarr.open_array(second.store, path="rain")[0] = 7
    second.commit("second")
    with pytest.raises(RebaseFailedError) as caught:
        first.commit("first", rebase_with=ConflictDetector())
    assert {conflict.path for conflict in caught.value.conflicts} == {"/rain"}


def test_a_session_may_append_more_than_once(repo: Repository) -> None:
    first, second = repo.writable_session("main"), repo.writable_session("main")
    by_function(weather(10, 2), first)
    by_function_lazily(weather(12, 2), first)
    by_function(weather(20, 2), second)
    second.commit("second", rebase_with=ConflictDetector())
    first.commit("first", rebase_with=ConflictDetector())
    xr.testing.assert_identical(reread(repo), days(20, 10, 12))


@pytest.mark.thorough
def test_processes_append_too(local_repo: Repository) -> None:
    repo = filled(local_repo)
    first, second = repo.writable_session("main"), repo.writable_session("main")
    kwargs = {"scheduler": "processes", "num_workers": 2}
    to_arraystore(lazy(weather(10, 4)), first, append_dim="time", mode="a-", chunkmanager_store_kwargs=kwargs)
    by_function(weather(20, 2), second)
    second.commit("second", rebase_with=ConflictDetector())
    first.commit("first", rebase_with=ConflictDetector())
    xr.testing.assert_identical(reread(repo), days(20, 10, 12))


def test_groups_are_appended_to_independently(memory_repo: Repository) -> None:
    repo = filled(filled(memory_repo, group="a"), group="b/c")
    first, second = repo.writable_session("main"), repo.writable_session("main")
    for session, start in ((first, 10), (second, 20)):
        by_function(weather(start, 2), session, group="b/c")
    by_function(weather(30, 2), first, group="a")
    second.commit("second", rebase_with=ConflictDetector())
    first.commit("first", rebase_with=ConflictDetector())
    xr.testing.assert_identical(reread(repo, group="a"), days(30))
    xr.testing.assert_identical(reread(repo, group="b/c"), days(20, 10))


def test_ends_within_a_chunk_are_a_conflict_and_nothing_is_mixed_up(repo: Repository) -> None:
    first, second = repo.writable_session("main"), repo.writable_session("main")
    by_function(weather(10, 1), first)
    by_function(weather(20, 2), second)
    first.commit("an odd day", rebase_with=ConflictDetector())
    with pytest.raises(RebaseFailedError):
        second.commit("two days", rebase_with=ConflictDetector())
    xr.testing.assert_identical(reread(repo), joined(weather(10, 1)))


def test_an_append_alone_may_end_within_a_chunk(repo: Repository) -> None:
    for first in range(4, 7):
        session = repo.writable_session("main")
        by_function_lazily(weather(first, 1), session)
        session.commit("one day")
    xr.testing.assert_identical(reread(repo), weather(0, 7))


def test_coordinates_that_are_there_already_are_not_written_again(repo: Repository) -> None:
    session = repo.writable_session("main")
    by_function(weather(10, 2), session)
    assert set(session.status().updated_chunks) == {"/temperature", "/rain", "/time"}
    session.discard_changes()
    changed = weather(10, 2).assign(orography=weather(0, 1)["orography"] + 1)
    by_function(changed, session)
    assert set(session.status().updated_chunks) == {"/temperature", "/rain", "/time", "/orography"}
    np.testing.assert_array_equal(zarr.open_array(session.store, path="orography")[:], changed["orography"])


@pytest.mark.parametrize("zarr_format", [3, 2])
@pytest.mark.parametrize("group", [None, "g/h"])
@pytest.mark.filterwarnings("ignore:.*[Cc]onsolidated metadata.*")
def test_consolidated_metadata_that_was_there_misleads_nobody(
    memory_repo: Repository, group: Any, zarr_format: Any
) -> None:
    session = memory_repo.writable_session("main")
    dataset = weather(0, 4).drop_vars("station")
    dataset.to_zarr(session.store, group=group, consolidated=True, zarr_format=zarr_format)
    session.commit("consolidated")
    session = memory_repo.writable_session("main")
    by_function(weather(4, 2).drop_vars("station"), session, group=group)
    session.commit("two days more")
    store = memory_repo.readonly_session("main").store
    assert xr.open_zarr(store, group=group).sizes["time"] == 6


@pytest.mark.parametrize("options", [{"append_dim": "time"}, {"mode": "a"}])
def test_times_that_the_units_of_the_array_do_not_hold_are_refused(repo: Repository, options: Any) -> None:
    session = repo.writable_session("main")
    late = weather(4, 4 if "mode" in options else 2).drop_vars(["x", "y", "station", "orography"])
    late = late.assign_coords(time=late.time + np.timedelta64(30, "m"))
    with pytest.warns(UserWarning, match="serialized"), pytest.raises(InvalidInputError, match="counts time in 'hours"):
        to_arraystore(late, session, **options)
    assert not session.has_uncommitted_changes


def test_what_was_put_off_is_not_computed_into_places_that_a_rebase_has_moved(repo: Repository) -> None:
    mine, other = repo.writable_session("main"), repo.writable_session("main")
    pending = to_arraystore(lazy(weather(4, 2)), mine, append_dim="time", compute=False)
    to_arraystore(weather(10, 2), other, append_dim="time")
    other.commit("first")
    mine.rebase(ConflictDetector())
    with pytest.raises(SessionStateError, match="it was resized, or the session was rebased"):
        pending.compute()
    rain = zarr.open_array(mine.store, path="rain", mode="r")
    np.testing.assert_array_equal(rain[4:6], weather(10, 2)["rain"])


def counted(values: list[int], units: str | None, calendar: str | None = None) -> xr.Dataset:
    """Return a dataset whose times are numbers that were not decoded."""
    attrs = {name: value for name, value in (("units", units), ("calendar", calendar)) if value is not None}
    return xr.Dataset({"v": ("t", np.arange(len(values)))}, coords={"t": ("t", values, attrs)})


DAYS = "days since 2000-01-01"


@pytest.mark.parametrize(
    ("held", "new", "text"),
    [
        ((DAYS,), ("days since 2000-01-03",), "the same number is another time"),
        ((DAYS, "noleap"), (DAYS, "standard"), "calendar 'noleap'.*calendar 'standard'"),
        ((DAYS,), (DAYS, "360_day"), "calendar None.*calendar '360_day'"),
        ((DAYS,), ("hours since 2000-01-01",), "counts time in 'days since"),
        (("days since 1-1-1",), ("days since 1-1-1", "proleptic_gregorian"), "the same number is another time"),
        ((None,), (DAYS,), "has no units"),
    ],
)
@pytest.mark.parametrize("options", [{"append_dim": "t"}, {"mode": "a"}])
def test_numbers_that_are_other_times_in_the_array_are_refused(
    memory_repo: Repository, held: Any, new: Any, text: str, options: Any
) -> None:
    session = memory_repo.writable_session("main")
    to_arraystore(counted([0, 1], *held), session)
    session.commit("times")
    session = memory_repo.writable_session("main")
    with pytest.raises(InvalidInputError, match=text):
        to_arraystore(counted([2, 3], *new), session, **options)
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize(
    ("held", "new"),
    [
        ((DAYS,), (DAYS, "standard")),
        ((DAYS, "gregorian"), ("day since 2000-1-1 00:00:00", "proleptic_gregorian")),
        ((DAYS, "noleap"), ("days since 2000-01-01T00:00Z", "365_day")),
        ((DAYS,), (None,)),
    ],
)
def test_numbers_that_are_the_same_times_are_appended(memory_repo: Repository, held: Any, new: Any) -> None:
    session = memory_repo.writable_session("main")
    to_arraystore(counted([0, 1], *held), session)
    to_arraystore(counted([2, 3], *new), session, append_dim="t")
    assert session.read("t").tolist() == [0, 1, 2, 3]


def test_times_are_not_appended_to_numbers(memory_repo: Repository) -> None:
    session = memory_repo.writable_session("main")
    to_arraystore(xr.Dataset({"v": ("t", [1.0])}, coords={"t": [0]}), session)
    times = np.array(["2024-01-01"], dtype="M8[ns]")
    with pytest.raises(InvalidInputError, match="'t' has no units, and the values to write count time in 'days since"):
        to_arraystore(xr.Dataset({"v": ("t", [1.0])}, coords={"t": times}), session, append_dim="t")
    assert session.read("t").tolist() == [0]


def with_bounds(repo: Repository) -> xr.Dataset:
    """Write times whose bounds have no units of their own, as in CF, and return them."""
    session = repo.writable_session("main")
    group = zarr.create_group(session.store)
    times = {"units": DAYS, "calendar": "noleap", "bounds": "t_bounds"}
    group.create_array("t", data=np.array([10, 20]), dimension_names=("t",), attributes=times)
    group.create_array("t_bounds", data=np.array([[5, 15], [15, 25]]), dimension_names=("t", "n"))
    session.commit("times")
    return xr.open_dataset(repo, engine="arraystore", use_cftime=True).load()


@pytest.mark.filterwarnings("ignore:.*use_cftime")
def test_bounds_without_units_are_appended_as_their_times_count(memory_repo: Repository) -> None:
    times = with_bounds(memory_repo)
    session = memory_repo.writable_session("main")
    to_arraystore(times, session, append_dim="t")
    assert session.read("t_bounds").tolist() == [[5, 15], [15, 25]] * 2


@pytest.mark.filterwarnings("ignore:.*use_cftime")
def test_a_region_of_bounds_without_units_counts_as_their_times(memory_repo: Repository) -> None:
    times = with_bounds(memory_repo)
    session = memory_repo.writable_session("main")
    to_arraystore(times.isel(t=[1]), session, region={"t": slice(0, 1)})
    assert session.read("t_bounds").tolist() == [[15, 25], [15, 25]]


@pytest.mark.parametrize("dim", ["tme", 5, "x"])
def test_a_dimension_that_the_dataset_lacks_overwrites_nothing(memory_repo: Repository, dim: Any) -> None:
    session = memory_repo.writable_session("main")
    to_arraystore(xr.Dataset({"v": ("time", [1.0, 2.0])}), session)
    with pytest.raises(InvalidInputError, match=r"must be a dimension of the dataset, which has .'time'."):
        to_arraystore(xr.Dataset({"v": ("time", [3.0, 4.0])}), session, append_dim=dim)
    assert session.read("v").tolist() == [1.0, 2.0]


def test_what_was_put_off_is_not_computed_into_what_was_appended_after_a_reset(repo: Repository) -> None:
    session = repo.writable_session("main")
    pending = to_arraystore(lazy(weather(4, 2)), session, append_dim="time", compute=False)
    session.discard_changes()
    to_arraystore(weather(10, 2), session, append_dim="time")
    with pytest.raises(SessionStateError, match="were discarded"):
        pending.compute()
    session.commit("the others")
    xr.testing.assert_identical(reread(repo), days(10))
