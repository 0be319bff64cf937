"""Plans and the rows that come of them, without Spark: against numpy, and counting what is asked of the storage."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from arraystore import (
    ArrayStoreError,
    InvalidInputError,
    NodeNotFoundError,
    Repository,
    RepositoryConfig,
    Session,
    in_memory_storage,
    local_filesystem_storage,
)
from arraystore.errors import ChunkDamagedError
from arraystore.spark.errors import translate_error
from arraystore.spark.reading import blocks
from arraystore.spark.reading.read_dataframe import ReadPlan, plan_read
from arraystore.spark.spark_action import by_task
from arraystore.storage import CountingStorage
from tests.commit.support import keys

SHAPE = (7, 6, 10)
VALUES = np.arange(np.prod(SHAPE), dtype="i4").reshape(SHAPE) + 1
HEIGHT = np.arange(60, dtype="f8").reshape(6, 10) / 4


def new_session(storage: Any = None) -> Session:
    return Repository.create(storage or in_memory_storage()).writable_session("main")


def put(session: Session, name: str, values: Any, chunks: Any, dims: Any, **options: Any) -> zarr.Array[Any]:
    values = np.asarray(values)
    made = zarr.create_array(
        session.store,
        name=name,
        shape=values.shape,
        chunks=chunks,
        dtype=values.dtype,
        dimension_names=dims,
        **options,
    )
    made[...] = values
    return made


def cube() -> Session:
    """A cube, a map of its last two dimensions, a transposed and otherwise chunked cube, and coordinates."""
    session = new_session()
    put(session, "v", VALUES, (2, 3, 4), ("t", "y", "x"))
    put(session, "height", HEIGHT, (4, 4), ("y", "x"))
    put(session, "turned", VALUES.transpose(2, 0, 1) * 10, (3, 5, 2), ("x", "t", "y"))
    put(session, "t", np.arange(7) * 24, (7,), ("t",), attributes={"units": "hours since 2000-01-01"})
    put(session, "y", np.linspace(50, -50, 6), (6,), ("y",))
    return session


@pytest.fixture(scope="module")
def session() -> Session:
    return cube()


def rows(plan: ReadPlan) -> dict[str, Any]:
    tables = [pa.Table.from_batches([batch]) for task in range(plan.tasks) for batch in plan.batches(task)]
    if not tables:
        return {name: [] for name in plan.schema.names}
    return pa.concat_tables(tables).to_pydict()


def by_position(plan: ReadPlan, dims: tuple[str, ...], column: str) -> dict[tuple[int, ...], Any]:
    found = rows(plan)
    keys = list(zip(*(found[dim] for dim in dims), strict=True))
    assert len(keys) == len(set(keys)), "a position has more than one row"
    return dict(zip(keys, found[column], strict=True))


def expected(values: Any, positions: tuple[Any, ...]) -> dict[tuple[int, ...], Any]:
    return {place: values[place].item() for place in product(*positions)}


indexes = st.one_of(
    st.just(slice(None)),
    st.integers(0, 5),
    st.tuples(st.integers(0, 6), st.integers(0, 8)).map(lambda ends: slice(*ends)),
    st.lists(st.integers(0, 5), max_size=4),
    st.integers(2, 3).map(lambda step: slice(None, None, step)),
)


@given(indexes, indexes, indexes, st.integers(1, 9), st.sampled_from([1, 100, 1000, 10**6]))
def test_each_selected_position_is_one_row_with_the_values_of_all_arrays(
    t: Any, y: Any, x: Any, tasks: int, block_bytes: int
) -> None:
    session = _CUBE
    plan = plan_read(session, ["v", "height", "turned"], isel={"t": t, "y": y, "x": x}, tasks=tasks)
    positions = tuple(
        np.unique(np.atleast_1d(np.arange(size)[index])) for size, index in zip(SHAPE, (t, y, x), strict=True)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_BLOCK_BYTES", block_bytes)
        found = rows(plan)
    places = list(zip(found["t"], found["y"], found["x"], strict=True))
    assert sorted(places) == sorted(product(*(along.tolist() for along in positions)))
    for column, values in (("v", VALUES), ("height", np.broadcast_to(HEIGHT, SHAPE)), ("turned", VALUES * 10)):
        assert found[column] == [values[place].item() for place in places]


_CUBE = cube()


def test_tasks_share_the_chunks_and_each_chunk_is_read_by_one(session: Session) -> None:
    plan = plan_read(session, "v", tasks=5)
    parts = [sum(batch.num_rows for batch in plan.batches(task)) for task in range(5)]
    assert sum(parts) == VALUES.size
    assert all(parts)


def test_tasks_are_few_unless_they_would_read_much(session: Session) -> None:
    assert plan_read(session, "v", slots=2).tasks == 4
    assert plan_read(session, "v", slots=100).tasks == 4 * 2 * 3
    assert plan_read(session, "v", chunks_per_task=5).tasks == 5
    assert plan_read(session, "v", tasks=100).tasks == 24
    large = new_session()
    zarr.create_array(large.store, name="v", shape=(1 << 30, 8), chunks=(1 << 16, 8), dtype="f4")
    assert plan_read(large, "v", slots=2).tasks == 128


def test_tasks_are_never_more_than_spark_can_count() -> None:
    endless = new_session()
    zarr.create_array(endless.store, name="v", shape=(10**9, 10**9), chunks=(100, 100), dtype="f4")
    assert plan_read(endless, "v", slots=2).tasks == 50_000
    for wanted in ({"tasks": 2**31}, {"chunks_per_task": 1}):
        with pytest.raises(InvalidInputError, match="more than Spark can count"):
            plan_read(endless, "v", **wanted)


def test_the_lead_is_the_first_array_with_all_dimensions(session: Session) -> None:
    plan = plan_read(session, ["height", "v"])
    assert plan.schema.names == ["t", "y", "x", "height", "v"]
    assert rows(plan)["height"] == [HEIGHT[y, x] for _, y, x in zip(*(rows(plan)[d] for d in "tyx"), strict=True)]


def test_a_group_is_all_its_arrays_but_coordinates(session: Session) -> None:
    names = plan_read(session, "").schema.names
    assert names[:3] == ["x", "t", "y"], "the order of the first array that has all dimensions"
    assert names[3:] == ["height", "turned", "v"]


def test_columns_can_be_named(session: Session) -> None:
    plan = plan_read(session, {"steps": "t", "hours": "/t"}, isel={"t": [3]}, coords="none")
    assert rows(plan) == {"steps": [72], "hours": [72]}


def test_labels_take_the_place_of_positions_where_there_are_any(session: Session) -> None:
    found = rows(plan_read(session, "v", isel={"t": 1, "y": [0, 5], "x": 7}, coords="label"))
    assert found["t"] == [24, 24]
    assert found["y"] == [50.0, -50.0]
    assert found["x"] == [7, 7]


def test_decoded_labels_are_timestamps_in_utc(session: Session) -> None:
    plan = plan_read(
        session, "v", sel={"t": "2000-01-02", "y": slice(40, 20)}, isel={"x": 0}, coords="label", decode=True
    )
    assert rows(plan)["t"] == [datetime(2000, 1, 2, tzinfo=UTC)]
    assert rows(plan)["y"] == [30.0]


def test_columns_may_be_values_alone(session: Session) -> None:
    assert rows(plan_read(session, "v", isel={"t": 0, "y": 0}, coords="none")) == {"v": list(range(1, 11))}


def test_an_array_without_dimensions_is_one_row(session: Session) -> None:
    one = new_session()
    put(one, "answer", np.array(42), (), None)
    assert rows(plan_read(one, "answer")) == {"answer": [42]}


def test_dimensions_without_names_are_numbered_or_named_by_the_caller() -> None:
    session = new_session()
    put(session, "v", np.ones((2, 3)), (1, 3), None)
    put(session, "half", np.ones((2, 3)), (1, 3), ("a", None))
    assert plan_read(session, "v").schema.names == ["dim_0", "dim_1", "v"]
    assert plan_read(session, "half").schema.names == ["a", "dim_1", "half"]
    assert plan_read(session, "v", dims=["t", "x"], isel={"x": 1}).schema.names == ["t", "x", "v"]
    with pytest.raises(InvalidInputError, match=r"names 1 dimensions.*'v' has 2"):
        plan_read(session, "v", dims=["t"])


def test_sharded_arrays_are_read_by_the_chunks_in_the_shards() -> None:
    session = new_session()
    put(session, "v", VALUES, (1, 3, 5), ("t", "y", "x"), shards=(2, 6, 10))
    plan = plan_read(session, "v", isel={"t": slice(1, 4)}, layout="chunks")
    found = rows(plan)
    assert found["shape"] == [[1, 3, 5]] * 12
    assert by_position(plan_read(session, "v"), ("t", "y", "x"), "v") == expected(VALUES, tuple(map(range, SHAPE)))


@pytest.mark.skipif("rectilinear_chunks" not in zarr.config.get("array"), reason="this zarr writes regular grids only")
def test_chunks_of_several_sizes_are_read_and_skipped_like_others() -> None:
    session = new_session()
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.create_array(
            session.store, name="v", shape=(10,), chunks=((1, 4, 2, 3),), dtype="i4", dimension_names=("x",)
        )
        array[5:7] = [8, 9]
        assert rows(plan_read(session, "v")) == {"x": list(range(10)), "v": [0] * 5 + [8, 9] + [0] * 3}
        assert rows(plan_read(session, "v", skip_missing=True))["x"] == [4, 5, 6, 7]


def test_large_boxes_are_cut_into_batches_that_lie_one_after_the_other() -> None:
    session = new_session()
    values = np.arange(3 * 5 * 50_000, dtype="i4").reshape(3, 5, 50_000)
    put(session, "v", values, values.shape, ("t", "y", "x"))
    plan = plan_read(session, "v")
    batches = list(plan.batches(0))
    assert max(batch.num_rows for batch in batches) <= 1 << 16
    table = pa.Table.from_batches(batches)
    np.testing.assert_array_equal(table["v"].to_numpy(), values.reshape(-1))
    np.testing.assert_array_equal(table["x"].to_numpy(), np.tile(np.arange(50_000), 15))
    np.testing.assert_array_equal(table["t"].to_numpy(), np.repeat(np.arange(3), 250_000))


# -- what is missing ----------------------------------------------------------------------------------------


def sparse(session: Session) -> None:
    """Ten chunks along a line, of which 2 and 7 are there, and the same in another grid: the first half of 0."""
    v = zarr.create_array(
        session.store, name="v", shape=40, chunks=4, dtype="f4", fill_value=-1, dimension_names=("x",)
    )
    v[8:12] = [1, 2, 3, 4]
    v[28] = 5
    w = zarr.create_array(session.store, name="w", shape=40, chunks=2, dtype="i8", dimension_names=("x",))
    w[0] = 9


def test_chunks_that_are_not_there_read_as_the_fill_value() -> None:
    session = new_session()
    sparse(session)
    found = rows(plan_read(session, "v"))
    assert found["v"] == [-1.0] * 8 + [1, 2, 3, 4] + [-1] * 16 + [5] + [-1] * 11


def test_chunks_that_are_not_there_can_be_skipped() -> None:
    session = new_session()
    sparse(session)
    assert rows(plan_read(session, "v", skip_missing=True))["x"] == [8, 9, 10, 11, 28, 29, 30, 31]
    both = rows(plan_read(session, ["v", "w"], skip_missing=True))
    assert both["x"] == [0, 1, 2, 3, 8, 9, 10, 11, 28, 29, 30, 31]
    assert both["w"] == [9] + [0] * 11
    cut = plan_read(session, ["v", "w"], skip_missing=True, isel={"x": [2, 11, 12, 31]})
    assert rows(cut)["x"] == [2, 11, 31], "chunk 0 of v is told of as a whole, though w has only half of it"


def test_what_lacks_a_dimension_does_not_keep_chunks_from_being_skipped(session: Session) -> None:
    session = new_session()
    sparse(session)
    v = zarr.create_array(
        session.store, name="cube", shape=(3, 40), chunks=(1, 4), dtype="f4", dimension_names=("t", "x")
    )
    v[1, 0] = 1
    assert rows(plan_read(session, ["cube", "w"], skip_missing=True))["t"] == [1, 1, 1, 1]


def test_a_read_of_nothing_has_a_schema_and_no_tasks(session: Session) -> None:
    plan = plan_read(session, "v", isel={"t": []}, slots=4)
    assert (plan.tasks, plan.schema.names) == (0, ["t", "y", "x", "v"])
    empty = new_session()
    zarr.create_array(empty.store, name="v", shape=(0, 4), chunks=(2, 2), dtype="f4", dimension_names=("t", "x"))
    zarr.create_array(empty.store, name="w", shape=(4,), chunks=(2,), dtype="f4", dimension_names=("x",))
    assert plan_read(empty, "v").tasks == 0
    assert plan_read(empty, "w", skip_missing=True).tasks == 0


# -- types --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "spark", "stored", "told"),
    [
        ("?", "boolean", [True, False], [True, False]),
        ("i1", "tinyint", [-128, 127], [-128, 127]),
        ("i2", "smallint", [-5, 5], [-5, 5]),
        ("i4", "int", [-5, 5], [-5, 5]),
        ("i8", "bigint", [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        (">i4", "int", [-5, 5], [-5, 5]),
        ("u1", "smallint", [0, 255], [0, 255]),
        ("u2", "int", [0, 65535], [0, 65535]),
        ("u4", "bigint", [0, 2**32 - 1], [0, 2**32 - 1]),
        ("u8", "decimal(20,0)", [0, 2**64 - 1], [0, 2**64 - 1]),
        ("f2", "float", [0.5, -2], [0.5, -2]),
        ("f4", "float", [0.5, -2], [0.5, -2]),
        (">f8", "double", [0.5, -2], [0.5, -2]),
        ("U3", "string", ["a", "äbc"], ["a", "äbc"]),
        ("S3", "binary", [b"a", b"abc"], [b"a", b"abc"]),
        (
            "M8[s]",
            "timestamp",
            np.array(["2000-01-01", "NaT"], "M8[s]"),
            [datetime(2000, 1, 1, tzinfo=UTC), None],
        ),
    ],
)
def test_every_type_of_zarr_that_spark_knows_becomes_a_column(dtype: str, spark: str, stored: Any, told: Any) -> None:
    session = new_session()
    put(session, "v", np.array(stored, dtype), (2,), ("x",))
    plan = plan_read(session, "v", coords="none")
    assert plan.schema["v"].dataType.simpleString() == spark
    assert rows(plan)["v"] == told


def test_text_of_any_length_becomes_a_column() -> None:
    session = new_session()
    v = zarr.create_array(session.store, name="v", shape=(2,), chunks=(1,), dtype=str, dimension_names=("x",))
    v[:] = np.array(["a", "longer than that"], dtype=object)
    assert rows(plan_read(session, "v"))["v"] == ["a", "longer than that"]


@pytest.mark.parametrize("dtype", ["c8", [("a", "i4"), ("b", "f4")]])
def test_types_that_spark_does_not_know_are_refused_with_the_way_out(dtype: Any) -> None:
    session = new_session()
    zarr.create_array(session.store, name="v", shape=(2,), chunks=(1,), dtype=dtype)
    with pytest.raises(InvalidInputError, match=r"'v'.*map_chunks"):
        _ = plan_read(session, "v").schema


def test_missing_values_are_null_when_decoded() -> None:
    session = new_session()
    attrs = {"_FillValue": -9, "scale_factor": 0.5}
    put(session, "v", np.array([1, -9, 4], "i2"), (2,), ("x",), attributes=attrs)
    assert rows(plan_read(session, "v", decode=True))["v"] == [0.5, None, 2.0]
    assert rows(plan_read(session, "v"))["v"] == [1, -9, 4]
    packed = rows(plan_read(session, "v", decode=True, layout="chunks"))["v"]
    np.testing.assert_array_equal(np.frombuffer(packed[0], "<f8"), [0.5, np.nan])
    assert rows(plan_read(session, "v", decode=True, layout="chunks", data="array"))["v"] == [[0.5, None], [2.0]]


def test_packed_whole_numbers_have_one_type_in_all_chunks() -> None:
    session = new_session()
    put(session, "v", np.array([1, -9, 4], "i2"), (2,), ("x",), attributes={"_FillValue": -9})
    plan = plan_read(session, "v", decode=True, layout="chunks")
    assert plan.schema["v"].metadata == {"dtype": "<f8"}
    assert [len(part) for part in rows(plan)["v"]] == [16, 8]


@pytest.mark.parametrize(("values", "fill", "packed"), [(["a", "-"], "-", "a"), ([b"a", b"-"], "-", b"a")])
def test_packed_text_is_empty_where_it_is_missing(values: Any, fill: str, packed: Any) -> None:
    session = new_session()
    stored = np.array(values)
    put(session, "v", stored, (2,), ("x",), attributes={"_FillValue": fill})
    found = rows(plan_read(session, "v", decode=True, layout="chunks"))["v"]
    assert np.frombuffer(found[0], stored.dtype.newbyteorder("<")).tolist() == [packed, packed[:0]]


def test_text_of_any_length_is_not_packed_but_told_as_arrays() -> None:
    session = new_session()
    v = zarr.create_array(session.store, name="v", shape=(2,), chunks=(2,), dtype=str, dimension_names=("x",))
    v[:] = np.array(["a", "longer than that"], dtype=object)
    with pytest.raises(InvalidInputError, match=r"'v'.*data='array'"):
        _ = plan_read(session, "v", layout="chunks").schema
    assert rows(plan_read(session, "v", layout="chunks", data="array"))["v"] == [["a", "longer than that"]]


# -- chunks as rows -----------------------------------------------------------------------------------------


def test_chunks_are_rows_with_their_place_and_values_in_order(session: Session) -> None:
    plan = plan_read(session, ["v", "height"], layout="chunks", isel={"t": slice(1, 5)})
    assert plan.schema.names == ["t_start", "y_start", "x_start", "shape", "v", "height"]
    found = rows(plan)
    got, high = np.zeros(SHAPE, "i4"), np.zeros(SHAPE)
    for t, y, x, shape, v, height in zip(*found.values(), strict=True):
        place = tuple(slice(start, start + size) for start, size in zip((t, y, x), shape, strict=True))
        got[place] = np.frombuffer(v, plan.schema["v"].metadata["dtype"]).reshape(shape)
        high[place] = np.frombuffer(height, "<f8").reshape(shape)
    np.testing.assert_array_equal(got[1:5], VALUES[1:5])
    np.testing.assert_array_equal(high[1:5], np.broadcast_to(HEIGHT, (4, 6, 10)))
    assert not got[0].any()
    assert not got[5:].any()
    assert len(found["v"]) == 3 * 2 * 3


def test_positions_with_gaps_cannot_be_told_as_chunks(session: Session) -> None:
    with pytest.raises(InvalidInputError, match="along 'x' positions with gaps"):
        plan_read(session, "v", layout="chunks", isel={"x": [0, 2]})


# -- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paths", "options", "message"),
    [
        ("v", {"isel": {"time": 0}}, "isel selects along 'time'.*'t', 'y', 'x'"),
        ("v", {"sel": {"x": 0}}, "no coordinate array 'x'.*isel"),
        ("v", {"sel": {"t": 0}, "isel": {"t": 0}}, "both select along 't'"),
        ("v", {"isel": {"t": 7}}, "dimension 't' has 7 positions, and 7"),
        ("v", {"sel": {"y": 1}}, "near it are -10.0, 10.0"),
        ("v", {"coords": "both"}, "coords='both'"),
        ("v", {"layout": "columns"}, "layout='columns'"),
        ("v", {"layout": "chunks", "data": "pickle"}, "data='pickle'"),
        ("v", {"tasks": 0}, "tasks=0"),
        ("v", {"chunks_per_task": 1.5}, r"chunks_per_task=1\.5"),
        ("v", {"tasks": 2, "chunks_per_task": 2}, "one of them"),
        ("t", {}, "both be column 't'"),
        (["v", "/v/"], {}, "two arrays would be column 'v'"),
        (["t", "height"], {"coords": "none"}, "none of the arrays has all of the dimensions"),
        ([], {}, "at least one array"),
        ([3], {}, "has 3 where"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_runs(
    session: Session, paths: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        plan_read(session, paths, **options)


def test_an_unknown_array_is_refused_with_the_nearest(session: Session) -> None:
    with pytest.raises(NodeNotFoundError, match=r"no array or group 'hight'.*'height'"):
        plan_read(session, "hight")
    with pytest.raises(NodeNotFoundError, match="no array or group 'a/b'"):
        plan_read(session, "a/b")


def test_arrays_of_other_sizes_cannot_be_read_together() -> None:
    session = new_session()
    put(session, "a", np.ones(4), (2,), ("x",))
    put(session, "b", np.ones(5), (2,), ("x",))
    put(session, "c", np.ones((2, 2)), (2, 2), ("x", "x"))
    with pytest.raises(InvalidInputError, match="'x' has 4 positions in 'a' and 5 in 'b'"):
        plan_read(session, ["a", "b"])
    with pytest.raises(InvalidInputError, match="same name"):
        plan_read(session, "c")


# -- what is asked of the storage ---------------------------------------------------------------------------


def counted(tmp_path: Path) -> tuple[CountingStorage, Repository]:
    storage = CountingStorage(local_filesystem_storage(tmp_path / "repo"))
    repo = Repository.create(storage, RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repo.writable_session("main")
    values = np.arange(64 * 1000, dtype="f8").reshape(64, 1000) + 1
    v = put(session, "v", values, (1, 1000), ("t", "x"), compressors=None)
    assert v.chunks == (1, 1000)
    session.commit("64 chunks")
    repo.wait_for_maintenance()
    return storage, Repository.open(storage)


def read_from_packs(storage: CountingStorage, plan: ReadPlan) -> tuple[int, int]:
    """Return how many rows a plan has, and how many requests for chunks they take."""
    storage.reset()
    count = sum(batch.num_rows for task in range(plan.tasks) for batch in plan.batches(task))
    return count, len([key for _, key in storage.log if key.startswith("chunks/")])


def test_only_chunks_of_the_selection_are_read(tmp_path: Path) -> None:
    storage, repo = counted(tmp_path)
    session = repo.readonly_session("main")
    assert read_from_packs(storage, plan_read(session, "v", isel={"t": [3, 60], "x": 0})) == (2, 2)
    assert read_from_packs(storage, plan_read(session, "v", isel={"t": slice(10, 15)})) == (5000, 5)
    assert read_from_packs(storage, plan_read(session, "v")) == (64_000, 4)  # neighbouring chunks in one read


def test_what_lacks_a_dimension_is_read_once_for_many_chunks(tmp_path: Path) -> None:
    storage, repo = counted(tmp_path)
    session = repo.writable_session("main")
    put(session, "height", np.arange(1000.0) + 1, (1000,), ("x",), compressors=None)
    session.commit("heights")
    plan = plan_read(repo.readonly_session("main"), ["v", "height"], tasks=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_BLOCK_BYTES", 1)
        assert read_from_packs(storage, plan) == (64_000, 65)


def test_small_chunks_are_read_many_at_a_time_and_large_ones_one_by_one(session: Session) -> None:
    plan = plan_read(session, "v").rows.plan
    assert [block.shape for block in blocks.blocks_of_task(plan, 0, 1)] == [SHAPE]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_BLOCK_BYTES", 2 * 3 * 4 * 4)
        assert len(list(blocks.blocks_of_task(plan, 0, 1))) == 24


def test_planning_reads_no_chunks_of_data(tmp_path: Path) -> None:
    storage, repo = counted(tmp_path)
    session = repo.readonly_session("main")
    storage.reset()
    plan_read(session, "v", skip_missing=True, isel={"t": slice(5, 50)})
    assert not [key for _, key in storage.log if key.startswith("chunks/")]


def test_a_coordinate_is_read_once_for_its_labels_and_a_selection(tmp_path: Path) -> None:
    storage, repo = counted(tmp_path)
    with repo.transaction("main", message="times") as store:
        zarr.create_array(store, name="t", shape=(64,), chunks=(64,), dtype="f8", dimension_names=["t"])[:] = range(64)
    session = Repository.open(storage).readonly_session("main")
    storage.reset()
    plan_read(session, "v", sel={"t": slice(5, 50)}, coords="label")
    assert len([key for _, key in storage.log if key.startswith("chunks/")]) == 1


def test_plans_pickle_small_however_many_chunks_there_are(tmp_path: Path) -> None:
    repo = Repository.create(local_filesystem_storage(tmp_path / "repo"))
    session = repo.writable_session("main")
    zarr.create_array(
        session.store, name="v", shape=(10**6, 10**6), chunks=(10, 10), dtype="f4", dimension_names=("y", "x")
    )
    session.commit("ten billion chunks")
    plan = plan_read(repo.readonly_session("main"), "v", slots=4)
    assert len(plan.rows.plan.chunks) == 10**10
    assert len(pickle.dumps(plan)) < 8000


def test_a_plan_reads_the_same_after_a_journey_and_after_the_branch_has_moved(tmp_path: Path) -> None:
    repo = Repository.create(local_filesystem_storage(tmp_path / "repo"))
    session = repo.writable_session("main")
    v = put(session, "v", np.arange(4), (2,), ("x",))
    session.commit("first")
    plan = pickle.dumps(plan_read(repo.readonly_session("main"), "v"))
    session = repo.writable_session("main")
    v = zarr.open_array(session.store, path="v")
    v[:] = 9
    session.commit("second")
    assert rows(pickle.loads(plan))["v"] == [0, 1, 2, 3]


def test_a_chunk_that_is_lost_fails_the_task_with_an_error_that_can_be_told(tmp_path: Path) -> None:
    repo = Repository.create(
        local_filesystem_storage(tmp_path / "repo"), RepositoryConfig(inline_chunk_threshold_bytes=0)
    )
    session = repo.writable_session("main")
    put(session, "v", np.arange(40_000) + 1, (10_000,), ("x",), compressors=None)
    session.commit("data")
    lost = [path for path in (tmp_path / "repo" / "chunks").rglob("*") if path.is_file()]
    assert lost
    for path in lost:
        path.unlink()
    plan = plan_read(Repository.open(local_filesystem_storage(tmp_path / "repo")).readonly_session("main"), "v")
    with pytest.raises(RuntimeError, match="ARRAYSTORE_") as caught:
        list(by_task(plan.batches)(iter([pa.RecordBatch.from_pydict({"id": [0]})])))
    assert isinstance(translate_error(caught.value), ArrayStoreError)


def test_damaged_chunks_are_an_error_and_no_rows(tmp_path: Path) -> None:
    storage, repo = counted(tmp_path)
    for key in keys(storage, "chunks/"):
        storage.put_sync(key, bytes([1]) * len(storage.get_sync(key)))
    plan = plan_read(repo.readonly_session("main"), "v").rows.plan
    with pytest.raises(ChunkDamagedError, match="of '/v'"):
        list(blocks.blocks_of_task(plan, 0, 1))
