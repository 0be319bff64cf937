"""Random arrays, random writes, resizes and commits: always what the memory store holds."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from arraystore import Repository, RepositoryConfig
from tests.session.conftest import PIPELINES, FarMemory

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")

TINY = RepositoryConfig(inline_chunk_threshold_bytes=16, own_object_threshold_bytes=64, pack_target_bytes=128)
"""Inlined, packed and large chunks, and several packs, in arrays of a few dozen items."""


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, Any]:
    shape = draw(st.lists(st.integers(0, 7), min_size=0, max_size=3).map(tuple))
    chunks = tuple(draw(st.integers(1, 4)) for _ in shape)
    layout: dict[str, Any] = {"shape": shape, "chunks": chunks, "fill_value": draw(st.integers(-1, 1))}
    layout["zarr_format"] = draw(st.sampled_from([3, 3, 2]))
    if layout["zarr_format"] == 3 and shape and draw(st.booleans()):
        layout["shards"] = tuple(side * draw(st.integers(1, 3)) for side in chunks)
    if layout["zarr_format"] == 3:
        encoding = draw(st.sampled_from(["default", "v2"]))
        layout["chunk_key_encoding"] = {"name": encoding, "separator": draw(st.sampled_from("./"))}
    return layout


def check(store: Any, model: Any, selection: Any) -> None:
    found, expected = zarr.open_array(store, mode="r"), zarr.open_array(model, mode="r")
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found[selection], expected[selection])


@pytest.mark.parametrize("pipeline_name", list(PIPELINES))
@settings(max_examples=settings().max_examples * 2)
@given(layout=layouts(), data=st.data())
def test_any_sequence_of_changes_gives_what_the_memory_store_gives(
    pipeline_name: str, layout: dict[str, Any], data: st.DataObject
) -> None:
    repo, model = Repository.create(FarMemory(), config=TINY), MemoryStore()
    session = repo.writable_session("main")
    with zarr.config.set(PIPELINES[pipeline_name]):
        for store in (session.store, model):
            zarr.create_array(store, dtype="i2", compressors=None, **layout)
        for _ in range(data.draw(st.integers(1, 8), label="steps")):
            array = zarr.open_array(model, mode="r+")
            step = data.draw(st.sampled_from(["write", "write", "write", "resize", "commit", "discard", "append"]))
            if step == "write":
                selection = data.draw(
                    npst.basic_indices(array.shape, allow_newaxis=False, allow_ellipsis=False).filter(
                        _steps_are_positive
                    )
                )
                shape = np.empty(array.shape)[selection].shape
                value = data.draw(npst.arrays("i2", shape, elements=st.integers(-2, 2)), label="value")
                for store in (session.store, model):
                    zarr.open_array(store, mode="r+")[selection] = value
            elif step == "resize":
                shape = tuple(data.draw(st.integers(0, 9), label="side") for _ in array.shape)
                for store in (session.store, model):
                    zarr.open_array(store, mode="r+").resize(shape)
            elif step == "append" and array.ndim:
                axis = data.draw(st.integers(0, array.ndim - 1), label="axis")
                shape = tuple(3 if at == axis else side for at, side in enumerate(array.shape))
                for store in (session.store, model):
                    zarr.open_array(store, mode="r+").append(np.full(shape, 5, dtype="i2"), axis=axis)
            elif step == "commit":
                session.commit("step", allow_empty=True)
                check(session.store, model, ...)
                session = repo.writable_session("main")
            elif step == "discard":
                session.commit("step", allow_empty=True)
                session = repo.writable_session("main")
                zarr.open_array(session.store, mode="r+")[...] = 99
                session.discard_changes()
            check(session.store, model, ...)
        session.commit("last", allow_empty=True)
        store = Repository.open(repo.storage).readonly_session("main").store
        shape = zarr.open_array(model, mode="r").shape
        selection = data.draw(npst.basic_indices(shape, allow_newaxis=False).filter(_steps_are_positive))
        check(store, model, selection)
        check(store, model, ...)


def _steps_are_positive(selection: Any) -> bool:
    """Tell whether zarr supports a selection."""
    parts = selection if isinstance(selection, tuple) else (selection,)
    return all(not isinstance(part, slice) or part.step is None or part.step > 0 for part in parts)
