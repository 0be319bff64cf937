"""An append does to the arrays of a session what zarr's resize and assignment do, without either."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import assume, given
from hypothesis import strategies as st
from zarr.codecs import GzipCodec

from arraystore import ConflictDetector, InvalidInputError, Repository, Session, in_memory_storage
from arraystore._session.regions import access, growth
from tests.session.test_codec_pipeline import assert_same, layouts, outcome, values
from tests.session.test_regions import refuse

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
]


def named(layout: dict[str, Any]) -> dict[str, Any]:
    """Name the dimensions of an array: t, x and y."""
    names = ["t", "x", "y"][: len(layout["shape"])]
    if layout["zarr_format"] == 2:
        return {**layout, "attributes": {"_ARRAY_DIMENSIONS": names}}
    return {**layout, "dimension_names": names}


def append_by_zarr(session: Session, data: Any) -> None:
    with session.hierarchy.untracked(), session.appending("t"):
        array = zarr.open_array(session.store, path="g/a")
        before = array.shape
        array.resize((before[0] + len(data), *before[1:]))
        array[before[0] :] = data


@given(layout=layouts().map(named), serializable=st.booleans(), data=st.data())
def test_an_append_leaves_the_bytes_that_zarr_leaves(
    layout: dict[str, Any], serializable: bool, data: st.DataObject
) -> None:
    sessions = []
    for _ in range(2):
        repo = Repository.create(in_memory_storage())
        session = repo.writable_session("main")
        assume(isinstance(outcome(lambda s=session: zarr.create_array(s.store, name="g/a", **layout)), zarr.Array))
        session.commit("an array")
        sessions.append(repo.writable_session("main", isolation="serializable" if serializable else "snapshot"))
    one, two = sessions
    for _ in range(data.draw(st.integers(1, 3))):
        new = data.draw(values(layout["dtype"], (data.draw(st.integers(1, 7)), *layout["shape"][1:])))
        one.append({"g/a": new}, "t")
        append_by_zarr(two, new)
        assert_same(one.read("g/a"), two.read("g/a"))
    nodes = [session.hierarchy.node("g/a") for session in sessions]
    assert nodes[0] is not None
    assert nodes[1] is not None
    assert nodes[0].documents == nodes[1].documents
    assert str(one.status()) == str(two.status())
    assert one.reads == two.reads
    for session in sessions:
        session.commit("appended")
    assert_same(one.read("g/a"), two.read("g/a"))


@pytest.fixture
def growing(session: Session) -> Session:
    for name in ("a", "b"):
        zarr.create_array(
            session.store, name=name, shape=(4, 6), chunks=(2, 3), dtype="i4", dimension_names=("t", "x")
        )[...] = 1
    return session


def test_an_append_to_many_arrays_does_not_ask_zarr(growing: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((access, "read_generally"), (access, "write_generally"), (growth.zarr, "open_array")):
        monkeypatch.setattr(module, name, refuse)
    growing.append({"a": np.full((3, 6), 2), "b": np.full((3, 6), 3)}, "t")
    assert growing.read("a", (slice(3, None), 0)).tolist() == [1, 2, 2, 2]
    assert growing.read("b", (slice(3, None), 5)).tolist() == [1, 3, 3, 3]


def test_an_array_that_has_grown_is_read_by_zarr_as_it_is_now(growing: Session) -> None:
    zarr.create_array(
        growing.store, name="z", shape=(4, 6), chunks=(2, 3), dtype="i4", compressors=GzipCodec(),
        dimension_names=("time", "x"),
    )[...] = 1  # fmt: skip
    growing.append({"z": np.full((3, 6), 2)}, "time")
    assert growing.read("z", (slice(3, None), 0)).tolist() == [1, 2, 2, 2]
    assert growing.read("z", [6, 0]).tolist() == [[2] * 6, [1] * 6]


def test_data_that_cannot_be_cast_append_to_no_array(growing: Session) -> None:
    with pytest.raises(InvalidInputError, match="array 'b'"):
        growing.append({"a": np.ones((1, 6)), "b": np.full((1, 6), "x")}, "t")
    assert growing.read("a").shape == growing.read("b").shape == (4, 6)


def test_appends_of_two_sessions_follow_each_other(growing: Session) -> None:
    growing.commit("data")
    repo = Repository.open(growing.context.storage)
    sessions = [repo.writable_session("main") for _ in range(2)]
    sessions[0].append({name: np.full((2, 6), 2) for name in "ab"}, "t")
    asyncio.run(sessions[1].append_async({name: np.full((2, 6), 3) for name in "ab"}, "t"))
    for session in sessions:
        session.commit("more", rebase_with=ConflictDetector())
    assert repo.readonly_session("main").read("a", (..., 0)).tolist() == [1, 1, 1, 1, 2, 2, 3, 3]


# -- documents --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "document",
    [
        '{"shape": [2, 30], "chunk_grid": {"name": "regular"}, "fill_value": 0}',
        '{"attributes": {"shape": [2, 30], "more": "\\"shape\\": [1]"},\n "shape":[\n  2,\n  30\n ]}',
        '{"attributes": {"shape": [2, 30]}, "sh\\u0061pe": [2, 30]}',
        '{"shape": [2, 30], "fill_value": NaN}',
        '{"attributes": [' + '{"shape": [2, 30]}, ' * 9 + '0], "shape": [2, 30]}',
    ],
)
def test_only_the_shape_of_a_document_is_replaced(document: str) -> None:
    grown = growth.with_shape(document.encode(), (17, 30))
    assert grown is not None
    assert str(json.loads(grown)) == str({**json.loads(document), "shape": [17, 30]})


def test_a_document_keeps_its_bytes_but_for_the_shape() -> None:
    document = b'{"attributes": {"shape": [2]},\n\t"shape" : [ 2 ,\n 30 ], "zarr_format":2}'
    assert growth.with_shape(document, (3, 30)) == document.replace(b"[ 2 ,", b"[ 3 ,")


def test_the_shape_of_chunks_of_varying_sides_is_left_to_zarr() -> None:
    assert growth.with_shape(b'{"shape": [2], "chunk_grid": {"name": "rectilinear"}}', (3,)) is None


def test_an_array_that_is_named_twice_is_refused(session: Session) -> None:
    zarr.create_array(session.store, name="a", shape=(2,), chunks=(2,), dtype="i4", dimension_names=["t"])
    with pytest.raises(InvalidInputError, match="must be named once"):
        session.append({"a": [1, 2], "/a": [3, 4]}, "t")
    assert session.read("a").tolist() == [0, 0]


@pytest.mark.parametrize(("dtype", "missing"), [("f8", np.nan), ("M8[s]", np.datetime64("NaT", "s"))])
def test_a_missing_value_is_not_unique(session: Session, dtype: str, missing: Any) -> None:
    zarr.create_array(session.store, name="a", shape=(0,), chunks=(2,), dtype=dtype, dimension_names=["t"])
    with pytest.raises(InvalidInputError, match="missing values"):
        session.append({"a": np.array([missing], dtype)}, "t", unique="a")
    assert session.read("a").shape == (0,)
