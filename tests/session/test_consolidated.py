"""Consolidated metadata is not kept, however it is written: no commit can leave it stale, no two conflict over it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import MemoryStore, WrapperStore

import arraystore as ars
from arraystore.copying import import_zarr
from tests.commit.model import raw

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore:.*[Cc]onsolidated metadata.*"),
]
FORMATS = pytest.mark.parametrize("zarr_format", [3, 2])
NAMES = {3: "zarr.json", 2: ".zmetadata"}


def series(length: int, *names: str, first: int = 0) -> xr.Dataset:
    return xr.Dataset({name: ("time", np.arange(first, first + length)) for name in names})


def by_xarray(store: Any, zarr_format: Any) -> None:
    series(4, "a", "b").to_zarr(store, zarr_format=zarr_format)


def by_xarray_explicitly(store: Any, zarr_format: Any) -> None:
    series(4, "a", "b").to_zarr(store, zarr_format=zarr_format, consolidated=True)


def through_a_wrapper(store: Any, zarr_format: Any) -> None:
    series(4, "a", "b").to_zarr(store, zarr_format=zarr_format, consolidated=False)
    zarr.consolidate_metadata(WrapperStore(store), zarr_format=zarr_format)


def byte_for_byte(store: Any, zarr_format: Any) -> None:
    memory = MemoryStore()
    series(4, "a", "b").to_zarr(memory, zarr_format=zarr_format, consolidated=True)
    for key in sorted(memory._store_dict, key=lambda key: (key.count("/"), key)):
        store.set_sync(key, memory._store_dict[key])


def by_import(store: Any, zarr_format: Any) -> None:
    memory = MemoryStore()
    series(4, "a", "b").to_zarr(memory, zarr_format=zarr_format, consolidated=True)
    session = store.session
    import_zarr(memory, ars.Repository.open(session.context.storage), overwrite=True)
    session.rebase(ars.ConflictDetector())


WRITERS = [by_xarray, by_xarray_explicitly, through_a_wrapper, byte_for_byte, by_import]
Writer = Callable[[Any, Any], None]


def written(writer: Writer, zarr_format: int) -> ars.Repository:
    repo = ars.Repository.create(ars.in_memory_storage())
    session = repo.writable_session("main")
    writer(session.store, zarr_format)
    if session.has_uncommitted_changes:
        session.commit("four days")
    return repo


def lengths(repo: ars.Repository) -> list[int]:
    """Return what readers see, those included that would use consolidated metadata."""
    store = repo.readonly_session("main").store
    found = [xr.open_zarr(each).sizes["time"] for each in (store, WrapperStore(store))]
    with pytest.raises(ValueError, match=r"[Cc]onsolidated|zmetadata"):
        zarr.open_consolidated(WrapperStore(store), mode="r")
    return [*found, *(zarr.open_array(each, path="a", mode="r").shape[0] for each in (store, WrapperStore(store)))]


@FORMATS
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_no_reader_sees_an_older_shape_than_the_snapshot_has(writer: Writer, zarr_format: Any) -> None:
    repo = written(writer, zarr_format)
    session = repo.writable_session("main")
    for name in ("a", "b"):
        zarr.open_array(session.store, path=name, mode="r+").resize((8,))
    session.commit("four more")
    assert lengths(repo) == [8] * 4
    kept = raw(repo.readonly_session("main"))
    assert ".zmetadata" not in kept
    assert "consolidated_metadata" not in json.loads(kept.get("zarr.json", b"{}"))


@FORMATS
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_two_writers_of_different_variables_do_not_conflict(writer: Writer, zarr_format: Any) -> None:
    repo = written(writer, zarr_format)
    sessions = [repo.writable_session("main"), repo.writable_session("main")]
    for session, name in zip(sessions, "cd", strict=True):
        series(4, name, first=10).to_zarr(session.store, mode="a", consolidated=True)
        zarr.consolidate_metadata(WrapperStore(session.store), zarr_format=zarr_format)
        session.commit(name, rebase_with=ars.ConflictDetector())
    found = xr.open_zarr(repo.readonly_session("main").store).load()
    assert found["c"].values.tolist() == found["d"].values.tolist() == [10, 11, 12, 13]


@FORMATS
def test_consolidating_what_is_committed_changes_nothing(zarr_format: Any) -> None:
    repo = written(through_a_wrapper, zarr_format)
    session = repo.writable_session("main")
    zarr.consolidate_metadata(WrapperStore(session.store), zarr_format=zarr_format)
    assert not session.has_uncommitted_changes


def test_attributes_beside_consolidated_metadata_are_kept() -> None:
    repo = written(byte_for_byte, 3)
    session = repo.writable_session("main")
    zarr.open_group(session.store).attrs["title"] = "days"
    wrapped = WrapperStore(session.store)
    zarr.consolidate_metadata(wrapped)
    session.commit("a title")
    assert dict(zarr.open_group(repo.readonly_session("main").store, mode="r").attrs) == {"title": "days"}


@FORMATS
def test_zarr_is_told_that_there_is_no_consolidated_metadata(zarr_format: Any) -> None:
    repo = written(by_xarray, zarr_format)
    store = repo.writable_session("main").store
    assert not store.supports_consolidated_metadata
    with pytest.raises(TypeError, match="doesn't support consolidated metadata"):
        zarr.consolidate_metadata(store)
    with pytest.raises(ValueError, match="doesn't support consolidated metadata"):
        zarr.open_consolidated(store)


def test_what_only_looks_like_consolidated_metadata_is_kept() -> None:
    repo = ars.Repository.create(ars.in_memory_storage())
    session = repo.writable_session("main")
    attributes: dict[str, Any] = {"consolidated_metadata": {"of": "somebody else"}}
    zarr.create_group(session.store, attributes=attributes)
    zarr.create_array(session.store, name="a", shape=(1,), dtype="i1", attributes=attributes)
    session.commit("attributes")
    store = repo.readonly_session("main").store
    assert dict(zarr.open_group(store, mode="r").attrs) == attributes
    assert dict(zarr.open_array(store, path="a", mode="r").attrs) == attributes


def test_names_that_hide_in_escapes_are_found() -> None:
    repo = ars.Repository.create(ars.in_memory_storage())
    session = repo.writable_session("main")
    document = b'{"zarr_format": 3, "node_type": "group", "consolidated\\u005fmetadata": {"metadata": {}}}'
    session.hierarchy.set_sync("zarr.json", memoryview(document))
    assert json.loads(raw(session)["zarr.json"]) == {"zarr_format": 3, "node_type": "group"}
