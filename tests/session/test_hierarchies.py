"""What zarr leaves behind in this store is what it leaves behind in its own memory store, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
import zarr
from zarr.abc.store import Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.common import ZarrFormat
from zarr.core.sync import _collect_aiterator, sync
from zarr.storage import MemoryStore

from arraystore import Repository
from arraystore.storage import Storage
from tests.session.conftest import FarMemory
from tests.session.programs import PROGRAMS, RECTILINEAR, Program, unconsolidated

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore:.*Zarr V3 specification.*"),
    pytest.mark.filterwarnings("ignore:.*consolidated metadata.*"),
    pytest.mark.filterwarnings("ignore:.*[Oo]bject at .* is not recognized.*"),
]


@pytest.fixture(autouse=True)
def _rectilinear_grids() -> Iterator[None]:
    with zarr.config.set({"array.rectilinear_chunks": True} if RECTILINEAR else {}):
        yield


def contents(store: Store) -> dict[str, bytes]:
    """All keys and values, through the asynchronous path."""
    found = {}
    for key in sync(_collect_aiterator(store.list())):
        value = sync(store.get(key, default_buffer_prototype()))
        assert value is not None, key
        found[key] = value.to_bytes()
    return found


def directories(store: Store) -> dict[str, list[str]]:
    """What `list_dir` says of every directory."""
    keys = sync(_collect_aiterator(store.list()))
    above = {"", *(key[:at] for key in keys for at, letter in enumerate(key) if letter == "/")}
    return {path: sorted(sync(_collect_aiterator(store.list_dir(path)))) for path in sorted(above)}


def drop_consolidated(model: MemoryStore) -> None:
    """Let a model keep what a repository keeps."""
    held = contents(model)
    kept = unconsolidated(held)
    for key in held.keys() - kept.keys():
        del model._store_dict[key]
    for key in [key for key in kept if kept[key] != held[key]]:
        model._store_dict[key] = default_buffer_prototype().buffer.from_bytes(kept[key])


def assert_same(store: Store, model: MemoryStore) -> None:
    drop_consolidated(model)
    expected = contents(model)
    assert contents(store) == expected
    for key, value in expected.items():
        found = store.get_sync(key)  # type: ignore[attr-defined]
        assert found is not None
        assert found.to_bytes() == value
        assert sync(store.getsize(key)) == len(value)
        assert sync(store.exists(key))
    assert directories(store) == directories(model)
    assert sync(store.getsize_prefix("")) == sum(map(len, expected.values()))
    for key, document in expected.items():
        path, _, name = key.rpartition("/")
        if name == ".zarray" or (name == "zarr.json" and json.loads(document)["node_type"] == "array"):
            zarr_format: ZarrFormat = 2 if name == ".zarray" else 3
            found_array = zarr.open_array(store, path=path, mode="r", zarr_format=zarr_format)
            model_array = zarr.open_array(model, path=path, mode="r", zarr_format=zarr_format)
            np.testing.assert_array_equal(found_array[...], model_array[...])


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_one_session_holds_what_zarr_wrote(name: str, pipeline: str) -> None:
    repo, model = Repository.create(FarMemory()), MemoryStore()
    session = repo.writable_session("main")
    for step in PROGRAMS[name]:
        step(session.store)
        step(model)
        assert_same(session.store, model)
    session.commit("all")
    assert_same(session.store, model)
    assert_same(Repository.open(repo.storage).readonly_session("main").store, model)


def commit_each_step(program: Program, storage: Storage) -> None:
    repo, model = Repository.create(storage), MemoryStore()
    for step in program:
        session = repo.writable_session("main")
        step(session.store)
        step(model)
        assert_same(session.store, model)
        session.commit("step", allow_empty=True)  # some steps change nothing
        assert_same(Repository.open(repo.storage).readonly_session("main").store, model)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_commits_in_between_change_nothing(name: str, storage: Storage) -> None:
    commit_each_step(PROGRAMS[name], storage)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_commits_in_between_change_nothing_for_any_pipeline(name: str, pipeline: str) -> None:
    commit_each_step(PROGRAMS[name], FarMemory())
