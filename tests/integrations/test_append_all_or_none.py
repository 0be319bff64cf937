"""`to_arraystore(append_dim=…)` lets all arrays of a group grow together; if it fails, the session is as it was."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.buffer import cpu, default_buffer_prototype

from arraystore import (
    ConflictDetector,
    InvalidInputError,
    Repository,
    RepositoryConfig,
    Session,
    SessionStateError,
    in_memory_storage,
)
from arraystore.compat import icechunk
from arraystore.compat.icechunk.xarray import to_icechunk
from arraystore.xarray import deferred, to_arraystore
from tests.integrations.datasets import ENCODING, documents, lazy, reread, weather

pytestmark = pytest.mark.filterwarnings("ignore:.*Zarr V3 specification.*")


@pytest.fixture
def repo(memory_repo: Repository) -> Repository:
    session = memory_repo.writable_session("main")
    to_arraystore(weather(0, 4), session, encoding=ENCODING)
    session.commit("the first days")
    return memory_repo


def snow(dataset: xr.Dataset) -> xr.Dataset:
    return dataset.assign(snow=dataset.rain)


# -- all arrays of a group ----------------------------------------------------------------------------------------

CHANGES: dict[str, tuple[Callable[[xr.Dataset], xr.Dataset], str]] = {
    "one is missing": (lambda d: d.drop_vars("rain"), "has 'rain' along 'time', and the dataset does not"),
    "the coordinate is missing": (lambda d: d.drop_vars("time"), "has 'time' along 'time'"),
    "one is new": (snow, r"has 'snow' along 'time', and group '/' does not.*drop_vars\(\['snow'\]\)"),
    "all are missing": (lambda d: d.isel(time=0, drop=True), "must be a dimension of the dataset"),
    "one lacks the dimension": (lambda d: d.assign(rain=d.rain.isel(time=0, drop=True)), "has 'rain' along"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("options", [{}, {"mode": "a-"}, {"compute": False}])
def test_an_append_that_would_leave_arrays_of_different_lengths_is_refused(
    repo: Repository, change: str, options: Any
) -> None:
    alter, text = CHANGES[change]
    session = repo.writable_session("main")
    dataset = alter(weather(4, 2))
    with pytest.raises(InvalidInputError, match=text):
        to_arraystore(dataset.chunk(y=6) if options else dataset, session, append_dim="time", **options)
    assert not session.has_uncommitted_changes
    assert not session.has_forks


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_that_are_of_different_lengths_already_are_named(memory_repo: Repository, zarr_format: Any) -> None:
    session = memory_repo.writable_session("main")
    days = weather(0, 4).drop_vars("station")
    days.to_zarr(session.store, group="g", consolidated=False, zarr_format=zarr_format)
    zarr.open_array(session.store, path="g/rain").resize((6, 6, 8))
    session.commit("of other lengths")
    session = memory_repo.writable_session("main")
    with pytest.raises(InvalidInputError, match=r"group '/g'.*'rain': 6, 'temperature': 4, 'time': 4"):
        to_arraystore(weather(4, 2).drop_vars("station"), session, group="/g/", append_dim="time")
    assert not session.has_uncommitted_changes


def test_a_new_variable_is_written_for_what_is_there_and_appended_to_then(repo: Repository) -> None:
    session = repo.writable_session("main")
    to_arraystore(snow(weather(0, 4))[["snow"]].drop_vars(["time", "y", "x", "station"]), session, mode="a")
    to_arraystore(snow(weather(4, 2)), session, append_dim="time")
    session.commit("snow")
    xr.testing.assert_equal(reread(repo), snow(weather(0, 6)))


def test_a_region_beside_the_dimension_leaves_no_coordinate_behind(repo: Repository) -> None:
    session = repo.writable_session("main")
    part = weather(4, 2)[["temperature", "rain"]].drop_vars("station").isel(x=slice(0, 4))
    with pytest.raises(InvalidInputError, match="has 'time' along 'time'"):
        to_arraystore(part, session, append_dim="time", region={"x": slice(0, 4)})
    assert not session.has_uncommitted_changes


def tree(first: int, count: int) -> xr.DataTree:
    days = weather(first, count).drop_vars("station")
    return xr.DataTree.from_dict(
        {"/": days[["time", "rain"]], "/a": days[["temperature"]].drop_vars("time"), "/fixed": xr.Dataset({"n": 1})}
    )


@pytest.mark.parametrize("mode", ["a", "a-"])
def test_a_tree_grows_in_all_groups_or_in_none(memory_repo: Repository, mode: Any) -> None:
    session = memory_repo.writable_session("main")
    to_arraystore(tree(0, 4), session, group="t")
    session.commit("a tree")
    session = memory_repo.writable_session("main")
    without = tree(4, 2)
    without["a"] = xr.DataTree(xr.Dataset({"other": 1}))
    with pytest.raises(InvalidInputError, match="group '/t/a' has 'temperature' along 'time'"):
        to_arraystore(without, session, group="t", append_dim="time", mode=mode)
    with pytest.raises(InvalidInputError, match="the dataset has 'time' along 'time', and group '/t/a' does not"):
        to_arraystore(tree(4, 2), session, group="t", append_dim="time", mode=mode, write_inherited_coords=True)
    assert not session.has_uncommitted_changes
    to_arraystore(tree(4, 2), session, group="t", append_dim="time", mode=mode)
    session.commit("longer")
    found = xr.open_datatree(memory_repo, engine="arraystore", group="t").load()  # type: ignore[arg-type]
    xr.testing.assert_equal(found, tree(0, 6))


def test_the_names_of_icechunk_append_as_icechunk_does() -> None:
    session = icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main")
    to_icechunk(weather(0, 4), session)
    to_icechunk(weather(4, 2).drop_vars("rain"), session, append_dim="time")
    lengths = [zarr.open_array(session.store, path=name).shape[0] for name in ("rain", "time")]
    assert lengths == [4, 6]


# -- all or none --------------------------------------------------------------------------------------------------


class OnPurposeError(Exception):
    pass


def failing(block: Any) -> Any:
    raise OnPurposeError


def state(session: Session) -> tuple[str, str]:
    """Return all documents and values of a session, by zarr, and what it has changed."""
    group = zarr.open_group(session.store, mode="r", use_consolidated=False)
    return json.dumps(documents(group), sort_keys=True, default=str), str(session.status())


def more() -> xr.Dataset:
    """Return days to append that also change attributes and an array without the dimension, and bring a new one."""
    days = weather(4, 2)
    days.attrs["history"] = "appended"
    return days.assign(orography=days.orography + 1, basins=("y", np.arange(6)))


def broken(name: str) -> xr.Dataset:
    """Return days of which a variable is a dask graph that fails."""
    days = lazy(more())
    data = days[name].data.map_blocks(failing, dtype="f4", meta=np.empty((0, 0, 0), "f4"))
    return days.assign({name: (days[name].dims, data)})


def fails_by_chunks() -> tuple[xr.Dataset, type[Exception]]:
    days = more()
    return days.assign(temperature=days.temperature.chunk(x=3)), ValueError


def fails_by_graph() -> tuple[xr.Dataset, type[Exception]]:
    return broken("temperature"), OnPurposeError


def fails_by_dtype() -> tuple[xr.Dataset, type[Exception]]:
    days = more()
    return days.assign(temperature=days.temperature.astype("S8")), ValueError


WAYS: list[Callable[[], tuple[xr.Dataset, type[Exception]]]] = [fails_by_chunks, fails_by_graph, fails_by_dtype]


def sessions(repo: Repository) -> Iterator[Session]:
    """Yield sessions without changes, with an append, and with other changes."""
    yield repo.writable_session("main")
    appended = repo.writable_session("main")
    to_arraystore(weather(10, 1), appended, append_dim="time")
    yield appended
    changed = repo.writable_session("main")
    changed.write("orography", (slice(0, 3), slice(0, 3)), -1)
    changed.write("rain", (3,), -1)
    changed.write("time", (3,), 99)
    yield changed


@pytest.mark.parametrize("fails", WAYS)
@pytest.mark.parametrize("inline", [0, 512])
def test_an_append_that_fails_leaves_the_session_as_it_was(fails: Any, inline: int) -> None:
    dataset, error = fails()
    repo = stored(inline)
    for session in sessions(repo):
        before = state(session)
        with pytest.raises(error):
            to_arraystore(dataset, session, append_dim="time")
        assert state(session) == before
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # no fork is left to warn of
            session.commit("what was there before", allow_empty=True)
        assert state(repo.writable_session("main"))[0] == before[0]
        repo.reset_branch("main", next(iter(repo.ancestry(tag="first"))).id)


def stored(inline: int) -> Repository:
    repo = Repository.create(in_memory_storage(), config=RepositoryConfig(inline_chunk_threshold_bytes=inline))
    session = repo.writable_session("main")
    to_arraystore(weather(0, 4), session, encoding=ENCODING)
    repo.create_tag("first", snapshot_id=session.commit("the first days"))
    return repo


def failing_after(at: int, error: type[BaseException]) -> Callable[..., None]:
    """Return a function that writes arrays and fails after one of them."""
    count, write = iter(range(100)), deferred.write_like

    def failing_write(*args: Any) -> None:
        write(*args)
        if next(count) == at:
            raise error

    return failing_write


@pytest.mark.parametrize(
    ("at", "error"), [(0, OnPurposeError), (1, KeyboardInterrupt), (2, OnPurposeError), (4, KeyboardInterrupt)]
)
def test_an_append_that_is_interrupted_at_any_write_leaves_the_session_as_it_was(
    repo: Repository, monkeypatch: pytest.MonkeyPatch, at: int, error: type[BaseException]
) -> None:
    for session in sessions(repo):
        before, length = state(session), len(session.read("time"))
        with monkeypatch.context() as patch:
            patch.setattr(deferred, "write_like", failing_after(at, error))
            if at < 5:  # temperature, rain, orography, basins, time
                with pytest.raises(error):
                    to_arraystore(more(), session, append_dim="time")
                assert state(session) == before
        to_arraystore(more(), session, append_dim="time")
        assert session.read("time").shape == (length + 2,)
        np.testing.assert_array_equal(session.read("rain")[-2:], more().rain)
        np.testing.assert_array_equal(session.read("orography"), more().orography)


def test_a_tree_that_fails_in_its_last_group_leaves_the_first_as_it_was(memory_repo: Repository) -> None:
    session = memory_repo.writable_session("main")
    to_arraystore(tree(0, 4), session)
    session.commit("a tree")
    session = memory_repo.writable_session("main")
    before = state(session)
    new = tree(4, 2)
    new["a"]["temperature"] = new["a"]["temperature"].astype("S8")
    new["new"] = xr.DataTree(xr.Dataset({"n": 2}))
    with pytest.raises(ValueError, match="temperature"):
        to_arraystore(new, session, append_dim="time")
    assert state(session) == before
    assert not session.has_uncommitted_changes


def test_a_group_that_was_made_for_a_refused_append_is_removed(repo: Repository) -> None:
    session = repo.writable_session("main")
    with pytest.raises(ValueError, match="does not match any existing"):
        to_arraystore(weather(4, 2), session, group="new/deep", append_dim="time")
    assert not session.has_uncommitted_changes
    assert session.hierarchy.node("new") is None


def test_a_failed_append_is_no_append_to_others(repo: Repository) -> None:
    mine, other = repo.writable_session("main"), repo.writable_session("main")
    with pytest.raises(OnPurposeError):
        to_arraystore(broken("rain"), mine, append_dim="time")
    to_arraystore(weather(4, 2), mine, append_dim="time")
    to_arraystore(weather(20, 2), other, append_dim="time")
    other.commit("other")
    mine.commit("mine", rebase_with=ConflictDetector())
    found = reread(repo)
    np.testing.assert_array_equal(found.rain[4:], xr.concat([weather(20, 2).rain, weather(4, 2).rain], "time"))
    np.testing.assert_array_equal(found.orography, weather(0, 1).orography)


@pytest.mark.parametrize("committed", [False, True])
def test_what_a_failed_append_removed_as_a_file_is_there_again(memory_repo: Repository, committed: bool) -> None:
    session = memory_repo.writable_session("main")
    beyond = "rain/c/2/0/0"
    session.store.set_sync(beyond, cpu.Buffer.from_bytes(b"beyond the grid"))
    to_arraystore(weather(0, 4), session, mode="a", encoding=ENCODING)
    if committed:
        session.commit("with a key that is no chunk")
        session = memory_repo.writable_session("main")
    before = str(session.status())
    with pytest.raises(OnPurposeError):
        to_arraystore(broken("temperature"), session, append_dim="time")
    assert bytes(session.hierarchy.get_sync(beyond) or b"") == b"beyond the grid"
    assert str(session.status()) == before
    to_arraystore(more(), session, append_dim="time")
    np.testing.assert_array_equal(session.read("rain")[4:], more().rain)


@pytest.mark.filterwarnings("ignore::arraystore.errors.UnmergedForksWarning")
def test_a_commit_while_an_append_is_computed_is_refused(repo: Repository) -> None:
    session = repo.writable_session("main")
    refused = []

    def commit(block: Any) -> Any:
        try:
            session.commit("half of it")
        except SessionStateError as error:
            refused.append(str(error))
        return block

    days = lazy(weather(4, 2).drop_vars("orography"))
    days["rain"] = (days.rain.dims, da.map_blocks(commit, days.rain.data, dtype="f4", meta=np.empty((0, 0, 0), "f4")))
    to_arraystore(days, session, append_dim="time", mode="a-", chunkmanager_store_kwargs={"scheduler": "sync"})
    assert refused
    assert all("written to in another thread" in text for text in refused)
    session.commit("all of it")
    xr.testing.assert_equal(reread(repo), weather(0, 6))


# -- a write that makes or replaces a group -----------------------------------------------------------------------


@pytest.mark.parametrize(("group", "beside"), [(None, False), ("deep/er", False), ("deep/er", True)])
@pytest.mark.parametrize("make", [lambda dataset: dataset, lazy], ids=["numpy", "dask"])
def test_a_group_is_made_whole_or_not_at_all(
    memory_repo: Repository, group: str | None, beside: bool, make: Callable[[xr.Dataset], xr.Dataset]
) -> None:
    session = memory_repo.writable_session("main")
    if beside:
        to_arraystore(weather(0, 2), session, group="deep/other")
    before = str(session.status())
    wrong = weather(20, 3).assign(wrong=("time", np.array([1.0, 2.0, 1e300])))
    with pytest.raises(InvalidInputError, match="'wrong' has values"):
        to_arraystore(make(wrong), session, group=group, encoding={"wrong": {"dtype": "f4"}})
    assert str(session.status()) == before
    assert session.has_uncommitted_changes == beside
    to_arraystore(make(wrong.drop_vars("wrong")), session, group=group)  # mode "w-" again
    session.commit("whole")
    store = memory_repo.readonly_session("main").store
    xr.testing.assert_equal(xr.open_zarr(store, group=group, consolidated=False).load(), weather(20, 3))


@pytest.mark.parametrize("group", [None, "deep/er"])
@pytest.mark.parametrize("uncommitted", [False, True])
def test_a_group_is_replaced_whole_or_stays_as_it_was(
    memory_repo: Repository, group: str | None, uncommitted: bool
) -> None:
    session = memory_repo.writable_session("main")
    to_arraystore(weather(0, 4), session, group=group, encoding=ENCODING)
    to_arraystore(weather(7, 1)[["rain"]], session, group=f"{group or ''}/below/it")
    session.store.set_sync("deep/er/notes.txt", cpu.Buffer.from_bytes(b"kept"))
    if not uncommitted:
        session.commit("what is there")
        session = memory_repo.writable_session("main")
    before = documents(zarr.open_group(session.store, mode="r"))
    new = weather(20, 3).assign(wrong=("time", np.array([1.0, 2.0, 1e300])))
    for dataset in (new, lazy(new)):
        with pytest.raises(InvalidInputError, match="'wrong' has values"):
            to_arraystore(dataset, session, group=group, mode="w", encoding={"wrong": {"dtype": "f4"}})
        assert documents(zarr.open_group(session.store, mode="r")) == before
        assert session.has_uncommitted_changes == uncommitted
    session.commit("the same", allow_empty=True)
    store = memory_repo.readonly_session("main").store
    assert documents(zarr.open_group(store, mode="r")) == before
    kept = store.get_sync("deep/er/notes.txt", prototype=default_buffer_prototype())
    assert kept is not None
    assert kept.to_bytes() == b"kept"
