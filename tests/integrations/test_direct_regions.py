"""xarray and dask read and write regions of sessions, not chunks through zarr, and what comes of it is the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

from arraystore import ConflictDetector, InvalidInputError, NodeNotFoundError, ReadOnlyError, Repository, Session
from arraystore.dask import load_dask, store_dask
from arraystore.xarray import to_arraystore
from tests.integrations.datasets import ENCODING, documents, lazy, weather

pytestmark = pytest.mark.filterwarnings("ignore:.*Zarr V3 specification.*")


@pytest.fixture
def session(memory_repo: Repository) -> Session:
    return memory_repo.writable_session("main")


@pytest.fixture
def without_zarr(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail where zarr is asked to write a selection."""

    def refuse(array: Any, selection: Any, *_: Any, **__: Any) -> Any:
        raise AssertionError(f"zarr was asked for {selection} of {array}")

    monkeypatch.setattr(zarr.Array, "__setitem__", refuse)
    yield
    monkeypatch.undo()


@pytest.mark.usefixtures("without_zarr")
@pytest.mark.parametrize("of_dask", [False, True])
def test_nothing_is_written_through_zarr(session: Session, of_dask: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    part = weather(0, 4).drop_vars("station")  # zarr writes strings
    to_arraystore(lazy(part) if of_dask else part, session, encoding=ENCODING)
    more = weather(4, 2).drop_vars("station")
    to_arraystore(lazy(more) if of_dask else more, session, append_dim="time", mode="a-" if of_dask else None)
    monkeypatch.undo()
    found = xr.open_zarr(session.store, consolidated=False).load()
    xr.testing.assert_identical(found, weather(0, 6).drop_vars("station"))


def test_documents_and_chunks_are_those_of_xarray(session: Session, memory_repo: Repository) -> None:
    other = memory_repo.writable_session("main")
    for count in (4, 2):
        append = {} if count == 4 else {"append_dim": "time"}
        encoding = {} if append else {"encoding": ENCODING}
        to_arraystore(weather(4 - count, count), session, **append, **encoding)
        weather(4 - count, count).to_zarr(other.store, consolidated=False, **append, **encoding)
    ours, theirs = (documents(zarr.open_group(each.store, mode="r")) for each in (session, other))
    assert ours == theirs
    for name in weather(0, 1).variables:
        assert session.chunk_coordinates(name).tolist() == other.chunk_coordinates(name).tolist()


@pytest.mark.parametrize("of_dask", [False, True])
@pytest.mark.parametrize("writes_empty", [False, True])
def test_an_encoding_decides_whether_empty_chunks_are_written(
    session: Session, writes_empty: bool, of_dask: bool
) -> None:
    dataset = xr.Dataset({"v": ("x", np.zeros(12, dtype="i4"))})
    encoding = {"v": {"chunks": (4,), "write_empty_chunks": writes_empty}}
    to_arraystore(dataset.chunk(x=4) if of_dask else dataset, session, encoding=encoding)
    assert len(session.chunk_coordinates("v")) == (3 if writes_empty else 0)


# -- writes that wait ---------------------------------------------------------------------------------------------


def test_dask_arrays_may_wait_while_all_else_is_written(session: Session) -> None:
    dataset = lazy(weather(0, 4))
    dataset["orography"] = dataset["orography"].compute()
    pending = to_arraystore(dataset, session, encoding=ENCODING, compute=False)
    assert not len(session.chunk_coordinates("rain"))
    assert len(session.chunk_coordinates("orography"))
    pending.compute(scheduler="threads")
    xr.testing.assert_identical(xr.open_zarr(session.store, consolidated=False).load(), weather(0, 4))


def test_what_waits_is_not_written_after_the_commit(session: Session) -> None:
    pending = to_arraystore(lazy(weather(0, 4)), session, encoding=ENCODING, compute=False)
    session.commit("a template")
    with pytest.raises(ReadOnlyError):
        pending.compute()


def test_a_template_is_filled_by_regions(session: Session) -> None:
    to_arraystore(lazy(weather(0, 4)), session, encoding=ENCODING, compute=False)
    for first in (0, 2):
        part = weather(first, 2).drop_vars(["x", "y", "station", "orography"])
        to_arraystore(part, session, region="auto")
    found = xr.open_zarr(session.store, consolidated=False)["rain"].values
    np.testing.assert_array_equal(found, weather(0, 4)["rain"].values)


# -- trees --------------------------------------------------------------------------------------------------------


def test_a_tree_is_what_xarray_writes_of_it(session: Session, memory_repo: Repository) -> None:
    other = memory_repo.writable_session("main")
    tree = xr.DataTree.from_dict(
        {"/": xr.Dataset(attrs={"a": 1}, coords={"x": [1, 2]}), "/deep/er": xr.Dataset({"v": ("x", [3, 4])})}
    )
    encoding = {"/deep/er": {"v": {"chunks": (1,)}}}
    to_arraystore(tree.chunk(x=1), session, encoding=encoding)
    tree.to_zarr(other.store, encoding=encoding, consolidated=False)
    ours, theirs = (documents(zarr.open_group(each.store, mode="r")) for each in (session, other))
    assert ours == theirs


def test_what_trees_do_not_have_is_refused(session: Session) -> None:
    tree = xr.DataTree.from_dict({"/": xr.Dataset(coords={"x": [1, 2]})})
    with pytest.raises(InvalidInputError, match="append_dim='y' must be a dimension of a group"):
        to_arraystore(tree, session, append_dim="y")
    with pytest.raises(InvalidInputError, match="the tree has no"):
        to_arraystore(tree, session, encoding={"/b": {}})
    assert not session.has_uncommitted_changes
    to_arraystore(tree, session)
    with pytest.raises(InvalidInputError, match="the group 'b' has none of the dimensions"):
        to_arraystore(tree.assign({"b": xr.DataTree(xr.Dataset({"v": 1}))}), session, region={"x": slice(0, 2)})


# -- dask arrays --------------------------------------------------------------------------------------------------


@pytest.fixture
def values(session: Session) -> np.ndarray:
    made = np.arange(20 * 12, dtype="i4").reshape(20, 12)
    zarr.create_array(session.store, name="g/a", shape=made.shape, chunks=(8, 5), dtype="i4")
    session.write("g/a", ..., made)
    return made


def test_each_block_is_one_read(session: Session, values: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    session.commit("numbers")
    loaded = load_dask(session, "/g/a")
    assert (loaded.chunks, loaded.dtype) == (((8, 8, 4), (5, 5, 2)), np.dtype("i4"))
    reads: list[str] = []
    read = Session.read

    def counted(self: Session, path: str, *rest: Any, **options: Any) -> Any:
        reads.append(path)
        return read(self, path, *rest, **options)

    monkeypatch.setattr(Session, "read", counted)
    np.testing.assert_array_equal(loaded.compute(scheduler="synchronous"), values)
    assert reads == ["g/a"] * 9
    np.testing.assert_array_equal(load_dask(session, "g/a", chunks=-1).compute(), values)
    assert len(reads) == 10
    np.testing.assert_array_equal(loaded[[3, 1], ::-2].compute(), values[[3, 1], ::-2])


def test_equal_snapshots_have_equal_names_and_others_do_not(session: Session, values: np.ndarray) -> None:
    assert load_dask(session, "g/a").name != load_dask(session, "g/a").name  # it may be written to in between
    session.commit("numbers")
    assert load_dask(session, "g/a").name == load_dask(session, "g/a").name


def test_dask_arrays_go_from_session_to_session(local_repo: Repository, scheduler: dict[str, Any]) -> None:
    session = local_repo.writable_session("main")
    zarr.create_array(session.store, name="a", data=np.arange(100.0).reshape(10, 10), chunks=(4, 4))
    session.commit("a")
    later = local_repo.writable_session("main")
    target = zarr.create_array(later.store, name="b", shape=(10, 10), chunks=(4, 4), dtype="f8")
    store_dask(sources=load_dask(session, "a") + 1, targets=target, **scheduler)
    np.testing.assert_array_equal(later.read("b"), np.arange(100.0).reshape(10, 10) + 1)


def test_arrays_without_items_or_dimensions_load_too(session: Session) -> None:
    zarr.create_array(session.store, name="none", shape=(0, 3), chunks=(1, 3), dtype="f4")
    zarr.create_array(session.store, name="one", shape=(), dtype="f4", fill_value=2)
    assert load_dask(session, "none").compute().shape == (0, 3)
    assert da.asarray(load_dask(session, "one")).compute() == 2
    with pytest.raises(NodeNotFoundError):
        load_dask(session, "missing")


def forecast(first: int, count: int) -> xr.DataTree:
    """A tree whose groups share the times of its root, or have their own, or have none."""
    number = np.arange(first, first + count)
    shared = xr.Dataset({"mean": ("time", number * 1.0)}, {"time": number})
    own = xr.Dataset({"v": (("time", "y"), number[:, None] * 1.0 + np.zeros(2))}, {"time": number + 100, "y": [5, 6]})
    fixed = xr.Dataset({"height": ("y", [7.0, 8.0])}, {"y": [5, 6]})
    below = xr.Dataset({"w": ("time", number * 2.0)})
    return xr.DataTree.from_dict({"/": shared, "/below": below, "/below/deep": below + 1, "/fixed": fixed}).assign(
        {"own": xr.DataTree(own.assign(time=number))}
    )


SHORT = {
    path: {name: {"chunks": (2, 2) if name == "v" else (2,)} for name in names}
    for path, names in {"/": ("mean", "time"), "/own": ("v",), "/below": ("w",), "/below/deep": ("w",)}.items()
}


@pytest.mark.parametrize("of_dask", [False, True])
@pytest.mark.parametrize("mode", [None, "a-"])
def test_trees_append_at_the_same_time_as_others(memory_repo: Repository, of_dask: bool, mode: Any) -> None:
    session = memory_repo.writable_session("main")
    to_arraystore(forecast(0, 2), session, encoding=SHORT)
    session.commit("two days")
    sessions = [memory_repo.writable_session("main") for _ in range(2)]
    for number, each in enumerate(sessions):
        part = forecast(2 + 2 * number, 2)
        to_arraystore(part.chunk(time=2) if of_dask and mode else part, each, append_dim="time", mode=mode)
    for each in sessions:
        each.commit("two more", rebase_with=ConflictDetector())
    found = xr.open_datatree(memory_repo, engine="arraystore").load()
    xr.testing.assert_equal(found, forecast(0, 6))


@pytest.mark.parametrize("of_dask", [False, True])
@pytest.mark.parametrize("region", ["auto", {"time": slice(2, 4)}, {"time": "auto"}])
def test_a_region_of_each_group_of_a_tree_is_filled(session: Session, region: Any, of_dask: bool) -> None:
    to_arraystore(forecast(0, 6), session, encoding=SHORT)
    part = forecast(2, 2).drop_nodes("fixed") + 50
    if isinstance(region, dict):
        part["own"] = xr.DataTree(part["own"].to_dataset().drop_vars("y"))
        if region["time"] != "auto":
            part = part.map_over_datasets(lambda dataset: dataset.drop_vars("time", errors="ignore"))
    to_arraystore(part.chunk(time=2) if of_dask else part, session, region=region)
    found = xr.open_datatree(session, engine="arraystore")
    for path in ("mean", "own/v", "below/w", "below/deep/w"):
        expected = forecast(0, 6)[path].values.copy()
        expected[2:4] += 50
        np.testing.assert_array_equal(found[path].values, expected)
    np.testing.assert_array_equal(found["time"], np.arange(6))
