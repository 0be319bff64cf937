"""Repositories open with ``engine="arraystore"``: the datasets that zarr shows, in fewer requests."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dask.base
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from xarray.core import indexing

from arraystore import (
    CountingStorage,
    InvalidInputError,
    RefNotFoundError,
    Repository,
    RepositoryConfig,
    RepositoryNotFoundError,
    SelectionError,
    Session,
    in_memory_storage,
    local_filesystem_storage,
)
from arraystore._format.reserved_keys import HIDDEN
from arraystore.xarray import ArrayStoreBackendEntrypoint as Engine
from arraystore.xarray import to_arraystore
from arraystore.xarray.urls import is_repository_url, plain_url
from tests.integrations.datasets import ENCODING, lazy, weather
from tests.packs import delete_packs, pack_keys
from tests.session.conftest import FarMemory

pytestmark = pytest.mark.filterwarnings("ignore:.*Zarr V3 specification.*")


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    """Fail for warnings, but those of zarr about data types."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*Zarr V3 specification.*")
        yield


def filled(storage: Any, **options: Any) -> Repository:
    """Return a repository with four days in a commit, and six in the next."""
    repo = Repository.create(storage, config=RepositoryConfig(inline_chunk_threshold_bytes=0))
    for mode, count in (("w-", 4), ("w", 6)):
        session = repo.writable_session("main")
        to_arraystore(weather(0, count), session, encoding=ENCODING, mode=mode, **options)
        session.commit(f"{count} days")
    return repo


@pytest.fixture
def repo() -> Repository:
    return filled(in_memory_storage())


def test_a_url_opens_the_newest_snapshot(tmp_path: Path) -> None:
    filled(local_filesystem_storage(tmp_path, fsync=False))
    for place in (f"arraystore+file://{tmp_path}", f"file://{tmp_path}", str(tmp_path), tmp_path):
        xr.testing.assert_identical(xr.open_dataset(place, engine=Engine).load(), weather(0, 6))
    assert xr.open_dataset(f"arraystore+file://{tmp_path}", engine=Engine).encoding["source"].startswith("arraystore+")


def test_several_urls_are_opened_as_one_dataset(tmp_path: Path) -> None:
    urls = []
    for first in (0, 4):
        repo = Repository.create(local_filesystem_storage(tmp_path / str(first), fsync=False))
        session = repo.writable_session("main")
        to_arraystore(weather(first, 4)[["rain"]], session)
        session.commit("four days")
        urls.append(f"arraystore+file://{tmp_path / str(first)}")
    xr.testing.assert_equal(xr.open_mfdataset(urls, engine=Engine).load(), weather(0, 8)[["rain"]])


@pytest.mark.parametrize("url", ["s3://bucket/a/b?region=eu", "file:///a/b", "memory://a", "gs://b"])
def test_a_url_that_xarray_takes_for_a_path_is_understood_all_the_same(url: str) -> None:
    mangled = os.path.abspath(f"arraystore+{url}")
    assert plain_url(mangled) == plain_url(f"arraystore+{url}") == plain_url(url) == url
    assert is_repository_url(mangled)
    assert not is_repository_url(url)


def test_the_engine_is_registered_under_its_name() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'arraystore = "{Engine.__module__}:{Engine.__name__}"' in text


def test_any_object_that_leads_to_a_snapshot_is_opened(repo: Repository) -> None:
    session = repo.readonly_session("main")
    for place in (repo, repo.storage, session, session.store, repo.writable_session("main")):
        xr.testing.assert_identical(xr.open_dataset(place, engine=Engine).load(), weather(0, 6))
        assert Engine().guess_can_open(place)
    assert Engine().guess_can_open("arraystore+s3://bucket/prefix")
    assert not any(map(Engine().guess_can_open, ["s3://bucket/prefix", "data.nc", b"CDF", 3]))


def test_a_snapshot_is_chosen_as_for_a_session(repo: Repository) -> None:
    _, six, four, *_ = [None, *repo.ancestry(branch="main")]
    repo.create_tag("first", four.id)
    repo.create_branch("other", four.id)
    for choice in ({"tag": "first"}, {"snapshot_id": four.id}, {"branch": "other"}):
        assert xr.open_dataset(repo, engine=Engine, **choice).sizes["time"] == 4
    for ref, days in (("first", 4), ("other", 4), (four.id, 4), ("main", 6)):
        assert xr.open_dataset(repo, engine=Engine, ref=ref).sizes["time"] == days
        assert xr.open_datatree(repo, engine=Engine, ref=ref).sizes["time"] == days
    assert xr.open_dataset(repo, engine=Engine, branch="main", as_of=datetime.now(UTC)).sizes["time"] == 6
    assert xr.open_dataset(repo, engine=Engine, ref="main", as_of=datetime.now(UTC)).sizes["time"] == 6
    assert xr.open_dataset(repo, engine=Engine, snapshot_id=six.id).sizes["time"] == 6


def test_what_does_not_go_together_is_refused(repo: Repository) -> None:
    with pytest.raises(InvalidInputError, match="a session has its snapshot"):
        xr.open_dataset(repo.readonly_session("main"), engine=Engine, branch="main")
    with pytest.raises(InvalidInputError, match="a session has its snapshot"):
        xr.open_dataset(repo.readonly_session("main"), engine=Engine, ref="main")
    with pytest.raises(InvalidInputError, match="leave out branch, tag and snapshot_id"):
        xr.open_dataset(repo, engine=Engine, ref="main", branch="main")
    with pytest.raises(RefNotFoundError, match="no branch, tag or snapshot 'missing', but 'main'"):
        xr.open_dataset(repo, engine=Engine, ref="missing")
    with pytest.raises(InvalidInputError, match="storage_options go with a URL"):
        xr.open_dataset(repo, engine=Engine, storage_options={})
    with pytest.raises(InvalidInputError, match="opens URLs"):
        xr.open_dataset(3, engine=Engine)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="'/missing'"):
        xr.open_dataset(repo, engine=Engine, group="missing")
    with pytest.raises(InvalidInputError, match=r"'/rain'.* is an array"):
        xr.open_dataset(repo, engine=Engine, group="rain")
    with pytest.raises(RepositoryNotFoundError):
        xr.open_dataset(in_memory_storage(), engine=Engine)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_variables_are_those_of_zarr_with_their_encodings(zarr_format: Any) -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    dataset = weather(0, 4).assign(
        flag=("x", np.arange(8) > 3), scalar=((), 3.5), when=("time", weather(3, 4).time.data)
    )
    dataset.to_zarr(session.store, encoding=ENCODING, consolidated=False, zarr_format=zarr_format)
    for options in ({}, {"decode_cf": False}, {"mask_and_scale": False}):
        ours = xr.open_dataset(session, engine=Engine, **options)
        theirs = xr.open_dataset(session.store, engine="zarr", consolidated=False, **options)
        xr.testing.assert_identical(ours.load(), theirs.load())
        assert list(ours.variables) == list(theirs.variables)
        for name, variable in theirs.variables.items():
            assert str(ours.variables[name].encoding) == str(variable.encoding)
            assert ours.variables[name].dtype == variable.dtype


def test_attributes_that_a_user_changes_are_not_those_of_the_next_dataset(repo: Repository) -> None:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="rain").attrs["flags"] = {"meanings": ["dry"]}
    session.commit("flags")
    first = xr.open_dataset(repo, engine=Engine)
    first["rain"].attrs["flags"]["meanings"].append("wet")
    first.attrs["levels"].append(4)
    second = xr.open_dataset(repo, engine=Engine)
    assert (second["rain"].attrs["flags"], second.attrs["levels"]) == ({"meanings": ["dry"]}, [1, 2, 3])


def test_a_tree_has_all_groups_at_and_below_a_path(repo: Repository) -> None:
    session = repo.writable_session("main")
    tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs={"a": 1}), "/x": weather(0, 2), "/z/deep": weather(5, 2)})
    to_arraystore(tree, session, group="tree", mode="w")
    session.commit("a tree")
    assert sorted(xr.open_groups(repo, engine=Engine, group="tree")) == ["/", "/x", "/z", "/z/deep"]
    xr.testing.assert_identical(xr.open_datatree(repo, engine=Engine, group="tree").load(), tree)
    deepest = xr.open_datatree(repo, engine=Engine, group="tree/z/deep", drop_variables="rain")
    xr.testing.assert_identical(deepest.to_dataset(), weather(5, 2).drop_vars("rain"))


def test_nodes_that_the_library_keeps_for_itself_are_not_shown(repo: Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_group(session.store, path=f"{HIDDEN}/streams")
    assert set(xr.open_datatree(session, engine=Engine).groups) == {"/"}


def test_a_lazy_dataset_is_pickled_without_its_data_and_reads_the_same_snapshot(tmp_path: Path) -> None:
    repo = filled(local_filesystem_storage(tmp_path, fsync=False))
    dataset = xr.open_dataset(repo, engine=Engine)
    data = pickle.dumps(dataset)
    session = repo.writable_session("main")
    session.write("rain", ..., 0)
    session.commit("nothing fell")
    xr.testing.assert_identical(pickle.loads(data).load(), weather(0, 6))


def test_dask_reads_stored_chunks(tmp_path: Path) -> None:
    repo = filled(local_filesystem_storage(tmp_path, fsync=False))
    dataset = xr.open_dataset(repo, engine=Engine, chunks={})
    assert dataset["rain"].chunks == ((2, 2, 2), (3, 3), (4, 4))
    xr.testing.assert_identical(dataset.compute(scheduler="synchronous"), weather(0, 6))


def test_dask_takes_arrays_of_different_snapshots_for_different_ones(repo: Repository) -> None:
    six, four, *_ = repo.ancestry(branch="main")
    first, again, other = (repo.readonly_session(snapshot_id=each.id) for each in (six, six, four))
    assert dask.base.tokenize(first) == dask.base.tokenize(again) != dask.base.tokenize(other)
    assert dask.base.tokenize(first.store) == dask.base.tokenize(again.store) != dask.base.tokenize(other.store)
    writable = repo.writable_session("main")
    assert dask.base.tokenize(writable) != dask.base.tokenize(writable)


def test_dask_computes_two_datasets_of_a_branch_that_moved_in_between(tmp_path: Path) -> None:
    repo = filled(local_filesystem_storage(tmp_path, fsync=False))
    before = xr.open_dataset(repo, engine=Engine, chunks={})["rain"]
    session = repo.writable_session("main")
    session.write("rain", ..., -1)
    session.commit("rain that falls upwards")
    after = xr.open_dataset(repo, engine=Engine, chunks={})["rain"]
    first, second = dask.base.compute(before, after, scheduler="synchronous")
    np.testing.assert_array_equal(first, weather(0, 6)["rain"])
    np.testing.assert_array_equal(second, np.full((6, 6, 8), -1))


async def test_a_dataset_loads_asynchronously(repo: Repository) -> None:
    dataset = xr.open_dataset(repo, engine=Engine)
    xr.testing.assert_identical(await dataset.load_async(), weather(0, 6))


# -- requests -----------------------------------------------------------------------------------------------------


def many_coordinates(storage: Any) -> Repository:
    """Return a repository with eight coordinates, each committed alone, so that each has a pack of its own."""
    repo = Repository.create(storage, config=RepositoryConfig(inline_chunk_threshold_bytes=0))
    for number in range(8):
        session = repo.writable_session("main")
        values = np.arange(10.0) + number
        to_arraystore(xr.Dataset(coords={f"c{number}": values}), session, mode="a")
        session.commit("one more")
    return repo


def rounds_to_open(storage: CountingStorage, place: Any, **options: Any) -> int:
    before = storage.counts.total
    xr.open_dataset(place, **options)
    return storage.counts.total - before


def test_coordinates_are_read_together_when_the_first_is(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = CountingStorage(FarMemory())
    session = many_coordinates(storage).readonly_session("main")
    calls: list[int] = []
    read_many = Session.read_many

    def counted(self: Session, requests: Any) -> Any:
        asked = list(requests)
        calls.append(len(asked))
        return read_many(self, asked)

    monkeypatch.setattr(Session, "read_many", counted)
    xr.open_dataset(session, engine=Engine, create_default_indexes=False)
    assert calls == []
    dataset = xr.open_dataset(session, engine=Engine)
    assert calls == [8]
    xr.testing.assert_identical(dataset, xr.Dataset(coords={f"c{n}": np.arange(10.0) + n for n in range(8)}))


def test_opening_takes_no_more_requests_than_by_zarr() -> None:
    storage = CountingStorage(FarMemory())
    many_coordinates(storage)
    ours = rounds_to_open(storage, Repository.open(storage).readonly_session("main"), engine=Engine)
    theirs = rounds_to_open(
        storage, Repository.open(storage).readonly_session("main").store, engine="zarr", consolidated=False
    )
    assert 0 < ours <= theirs


def test_coordinates_of_a_session_that_writes_are_never_stale(repo: Repository) -> None:
    session = repo.writable_session("main")
    dataset = xr.open_dataset(session, engine=Engine, create_default_indexes=False, cache=False)
    assert dataset["x"].values[0] == 0
    session.write("y", 0, -1)
    assert dataset["y"].values[0] == -1


def test_a_coordinate_that_is_damaged_is_the_only_one_that_fails() -> None:
    storage = in_memory_storage()
    repo = many_coordinates(storage)
    session = repo.readonly_session("main")
    dataset = xr.open_dataset(session, engine=Engine, create_default_indexes=False, cache=False)
    delete_packs(storage, pack_keys(storage)[:1])
    outcomes = []
    for name in dataset.coords:
        try:
            dataset[name].load()
            outcomes.append(True)
        except Exception:  # noqa: BLE001
            outcomes.append(False)
    assert sorted(outcomes) == [False] + [True] * 7


# -- selections ---------------------------------------------------------------------------------------------------

SHAPE, CHUNKS = (11, 7, 5), (3, 4, 5)
VALUES = np.arange(np.prod(SHAPE), dtype="i4").reshape(SHAPE)


def arrays() -> list[Any]:
    """Return the same array with codecs that are known and that are not, near and far."""
    found = []
    for storage in (in_memory_storage(), FarMemory()):
        for shards, compressors in ((None, None), (None, zarr.codecs.GzipCodec()), ((6, 8, 5), None)):
            session = Repository.create(storage_of(storage)).writable_session("main")
            options: dict[str, Any] = {"chunks": CHUNKS, "shards": shards, "dtype": "i4", "compressors": compressors}
            array = zarr.create_array(session.store, name="a", shape=SHAPE, dimension_names=list("xyz"), **options)
            array[...] = VALUES
            session.commit("values")
            found.append(xr.open_dataset(session, engine=Engine)["a"].variable._data)
    return found


def storage_of(kind: Any) -> Any:
    return type(kind)()


ARRAYS = arrays()


def indices(length: int) -> st.SearchStrategy[Any]:
    return st.lists(st.integers(-length, length - 1), max_size=8).map(lambda some: np.array(some, dtype=np.int64))


def basic(length: int) -> st.SearchStrategy[Any]:
    return st.integers(-length, length - 1) | st.slices(length)


@given(data=st.data())
def test_selections_are_those_of_numpy(data: st.DataObject) -> None:
    array = data.draw(st.sampled_from(ARRAYS))
    key = tuple(data.draw(basic(length)) for length in SHAPE)
    np.testing.assert_array_equal(np.asarray(array[indexing.BasicIndexer(key)]), VALUES[key])
    outer = tuple(data.draw(basic(length) | indices(length)) for length in SHAPE)
    expected = VALUES
    for axis in range(3):
        place = axis - 3
        part = outer[axis]
        expected = expected.take(range(*part.indices(SHAPE[axis])) if isinstance(part, slice) else part, place)
        if not isinstance(part, slice | np.ndarray):
            expected = np.expand_dims(expected, place if place != -1 else expected.ndim)
    expected = expected[tuple(0 if isinstance(part, int) else slice(None) for part in outer)]
    found = np.asarray(array.oindex[indexing.OuterIndexer(outer)])
    np.testing.assert_array_equal(found, expected)
    count = data.draw(st.integers(0, 8))
    points = tuple(
        np.array(data.draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count)), dtype=np.int64)
        for n in SHAPE
    )
    found = np.asarray(array.vindex[indexing.VectorizedIndexer(points)])
    np.testing.assert_array_equal(found, VALUES[points])


@pytest.mark.parametrize("array", ARRAYS)
def test_indices_out_of_bounds_are_refused(array: Any) -> None:
    with pytest.raises(IndexError):
        np.asarray(array.oindex[indexing.OuterIndexer((np.array([11]), slice(None), 0))])


def test_a_bound_is_named_by_the_error(repo: Repository) -> None:
    array = xr.open_dataset(repo, engine=Engine)["rain"].variable._data
    with pytest.raises(SelectionError, match="'rain'"):
        np.asarray(array.oindex[indexing.OuterIndexer((np.array([6]), slice(None), 0))])


def test_items_of_few_chunks_are_read_out_of_those_chunks_only(repo: Repository) -> None:
    storage = CountingStorage(FarMemory())
    session = Repository.create(storage).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(256, 256), chunks=(64, 64), dtype="f8", compressors=None,
                      dimension_names=["y", "x"])[...] = 1  # fmt: skip
    session.commit("ones")
    array = xr.open_dataset(session, engine=Engine)["a"]
    before = storage.counts
    array.isel(y=xr.DataArray([1, 2, 200], dims="p"), x=xr.DataArray([1, 2, 200], dims="p")).load()
    spent = storage.counts - before
    assert (spent["get_ranges"], spent.bytes_read < 3 * 64 * 64 * 8) == (2, True)


def test_lazy_writes_come_back(repo: Repository) -> None:
    session = repo.writable_session("main")
    to_arraystore(lazy(xr.open_dataset(repo, engine=Engine, chunks={}) + 1), session, group="more")
    session.commit("more")
    found = xr.open_dataset(repo, engine=Engine, group="more")["rain"]
    np.testing.assert_array_equal(found, weather(0, 6)["rain"] + 1)
