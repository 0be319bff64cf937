"""Functions of chunks: what numpy computes of whole arrays, whatever the chunks, halos and edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import ConflictDetector, Repository, Session
from arraystore.errors import InvalidInputError, NodeNotFoundError, ReadOnlyError, RebaseFailedError
from arraystore.transforms import ThreadsEngine, TransformError, transform_chunks
from tests.transforms.conftest import get, put

DIMS = ("y", "x")
PADDED = {"nearest": "edge", "reflect": "reflect", "wrap": "wrap"}


def blank(
    session: Session, path: str, shape: Any, chunks: Any, dims: Any = DIMS, dtype: str = "f8", **options: Any
) -> None:
    zarr.create_array(
        session.store, name=path, shape=shape, chunks=chunks, dtype=dtype, dimension_names=dims, **options
    )


def sums(before: int, after: int, axis: int) -> Callable[[Any], Any]:
    """Return a function of arrays with a halo that adds neighbours, and cuts the halo off itself."""

    def add(values: Any) -> Any:
        size = values.shape[axis] - before - after
        parts = [np.take(values, range(at, at + size), axis) for at in range(before + after + 1)]
        return np.sum(parts, axis=0)

    return add


@pytest.mark.parametrize("seed", range(12))
def test_any_halo_at_any_edge_is_what_numpy_pads(session: Session, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, chunks, own = (tuple(map(int, rng.integers(low, high, 2))) for low, high in ((6, 30), (1, 9), (1, 9)))
    before, after = map(int, rng.integers(0, 5, 2))
    axis, mode = int(rng.integers(0, 2)), str(rng.choice(list(PADDED)))
    values = rng.normal(size=shape)
    put(session, "a", values, chunks, DIMS)
    blank(session, "b", shape, own)
    transform_chunks(
        session, "a", "b", sums(before, after, axis), halo={DIMS[axis]: (before, after)}, boundary=mode,
        memory=int(rng.choice([1, 1000, 10**6])),
    )  # fmt: skip
    widths = [(0, 0), (0, 0)]
    widths[axis] = (before, after)
    padded = np.pad(values, widths, mode=PADDED[mode])
    np.testing.assert_allclose(get(session, "b"), sums(before, after, axis)(padded))


def test_beyond_the_edge_a_constant_or_nothing(session: Session) -> None:
    values = np.arange(20.0).reshape(5, 4)
    put(session, "a", values, (2, 2), DIMS)
    blank(session, "b", (5, 4), (3, 4))
    transform_chunks(session, "a", "b", sums(1, 1, 0), halo={"y": 1}, boundary=100, memory=1)
    np.testing.assert_array_equal(
        get(session, "b"), sums(1, 1, 0)(np.pad(values, ((1, 1), (0, 0)), constant_values=100))
    )

    def spread(block: Any) -> Any:
        return np.full(block.shape, block.shape[0])

    transform_chunks(session, "a", "b", spread, halo={"y": 1}, memory=1)
    assert get(session, "b")[:, 0].tolist() == [4, 4, 4, 3, 3]


def test_a_result_with_its_halo_is_cut(session: Session) -> None:
    values = np.random.default_rng(0).normal(size=(9, 7))
    put(session, "a", values, (4, 4), DIMS)
    blank(session, "b", values.shape, (2, 3))
    for boundary in ("cut", "wrap", {"y": "reflect", "x": 0}):
        transform_chunks(session, "a", "b", lambda block: block * 2, halo=(1, 2), boundary=boundary, memory=1)
        np.testing.assert_array_equal(get(session, "b"), values * 2)


def test_sources_are_aligned_by_name_and_broadcast(session: Session) -> None:
    rng = np.random.default_rng(0)
    cube, weights, level = rng.normal(size=(5, 6, 7)), rng.normal(size=(7, 6)), rng.normal(size=5)
    put(session, "cube", cube, (2, 3, 4), ("t", "y", "x"))
    put(session, "weights", weights, (2, 2), ("x", "y"))
    put(session, "level", level, (5,), ("t",))
    blank(session, "out", cube.shape, (3, 2, 5), ("t", "y", "x"))
    report = transform_chunks(session, ["cube", "weights", "level"], "out", lambda a, w, t: a * w + t, memory=500)
    np.testing.assert_allclose(get(session, "out"), cube * weights.T + level[:, None, None])
    assert (report.array, report.nbytes, report.skipped) == ("out", cube.nbytes, 0)
    assert report.read_bytes >= cube.nbytes


def test_dimensions_that_the_target_lacks_are_whole(session: Session) -> None:
    cube = np.random.default_rng(0).normal(size=(5, 6, 7))
    put(session, "cube", cube, (2, 3, 4), ("t", "y", "x"))
    blank(session, "out", (6, 7), (2, 2))
    transform_chunks(session, "cube", "out", lambda a: np.median(a, axis=0), memory=1)
    np.testing.assert_array_equal(get(session, "out"), np.median(cube, axis=0))


@pytest.mark.parametrize("size", [12, 13])
def test_factors_give_each_cell_its_window(session: Session, size: int) -> None:
    values = np.arange(size * 4.0).reshape(size, 4)
    put(session, "a", values, (5, 3), DIMS)
    blank(session, "b", (size // 3, 4), (2, 2))
    transform_chunks(session, "a", "b", lambda a: a.reshape(-1, 3, a.shape[1]).max(1), factors={"y": 3}, memory=1)
    np.testing.assert_array_equal(get(session, "b"), values[: size // 3 * 3].reshape(-1, 3, 4).max(1))


def test_all_boxes_are_computed_from_the_session_as_it_was(session: Session) -> None:
    """The target is the source, and the halo reaches into boxes that were written before."""
    values = np.random.default_rng(0).normal(size=(12, 5))
    put(session, "a", values, (2, 5), DIMS)
    for tasks in (1, 6):
        expected = sums(1, 1, 0)(np.pad(get(session, "a"), ((1, 1), (0, 0)), mode="edge"))
        transform_chunks(
            session, "a", "a", sums(1, 1, 0), halo={"y": 1}, boundary="nearest", memory=1, tasks=tasks,
            engine=ThreadsEngine(3),
        )  # fmt: skip
        np.testing.assert_allclose(get(session, "a"), expected)


def test_boxes_without_input_are_left_out_if_wanted(session: Session) -> None:
    blank(session, "a", (40, 40), (5, 5), fill_value=np.nan)
    zarr.open_array(session.store, path="a")[12, 33] = 1
    blank(session, "b", (40, 40), (4, 4), fill_value=np.nan)
    report = transform_chunks(session, "a", "b", lambda a: a + 1, skip_missing=True, memory=1)
    assert (report.boxes, report.skipped) == (4, 96)  # chunk 10:15, 30:35 reaches into two by two
    assert session.chunk_coordinates("b").tolist() == [[3, 8]]
    assert transform_chunks(session, "a", "b", lambda a: a + 1, skip_missing=True, halo=4, memory=1).boxes == 16
    assert transform_chunks(session, "a", "b", lambda a: a + 1, memory=1).skipped == 0


def test_the_function_gets_the_region_and_may_return_a_scalar(session: Session) -> None:
    put(session, "a", np.zeros((6, 4)), (2, 2), DIMS)
    blank(session, "b", (6, 4), (3, 4))
    transform_chunks(session, "a", "b", lambda a, region: region[0].start, with_region=True, memory=1)
    assert get(session, "b")[:, 0].tolist() == [0, 0, 0, 3, 3, 3]


def test_arrays_without_items_or_dimensions(session: Session) -> None:
    put(session, "one", np.float64(2), ())
    blank(session, "scalar", (), (), ())
    transform_chunks(session, "one", "scalar", lambda a: a + 1)
    assert get(session, "scalar")[()] == 3
    put(session, "none", np.zeros((0, 4)), (1, 4), DIMS)
    blank(session, "nothing", (0, 4), (1, 4))
    assert transform_chunks(session, "none", "nothing", lambda a: a).boxes == 0


def test_shards_belong_to_one_task(session: Session) -> None:
    values = np.arange(400.0).reshape(20, 20)
    put(session, "a", values, (3, 3), DIMS)
    blank(session, "b", (20, 20), (2, 5), shards=(10, 10))
    report = transform_chunks(session, "a", "b", lambda a: -a, memory=1)
    assert report.boxes == 4
    np.testing.assert_array_equal(get(session, "b"), -values)


def test_tasks_hold_no_more_than_memory_unless_a_chunk_is_larger(session: Session) -> None:
    sizes: list[int] = []
    put(session, "a", np.zeros((100, 100)), (100, 1), DIMS)
    blank(session, "b", (100, 100), (10, 10))

    def look(values: Any) -> Any:
        sizes.append(values.nbytes)
        return values

    transform_chunks(session, "a", "b", look, memory=16_000, engine=ThreadsEngine(1), tasks=1)
    assert 2 * max(sizes) <= 16_000
    assert max(sizes) > 800


# -- what fails -------------------------------------------------------------------------------------------------------


@pytest.fixture
def two(session: Session) -> Session:
    put(session, "a", np.arange(24.0).reshape(6, 4), (2, 2), DIMS)
    blank(session, "b", (6, 4), (3, 4), dtype="i2")
    return session


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a: 1 / 0, r"computing y\[0:3\], x\[0:4\] of 'b' failed: ZeroDivisionError: division by zero"),
        (lambda a: a, "float64 do not fit into 'b', which holds int16: convert"),
        (lambda a: np.full((3, 4), 70000), "int64 do not fit into 'b'"),
        (lambda a: None, "returned None"),
        (lambda a: a[:1].astype("i2"), r"values of shape \(1, 4\), not \(3, 4\)"),
        (lambda a: np.ma.masked_less(a, 3), "masked in 3 places"),
    ],
)
def test_a_function_that_fails_is_named_with_its_box_and_nothing_is_written(
    two: Session, function: Any, message: str
) -> None:
    calls: list[int] = []

    def late(a: Any) -> Any:
        calls.append(1)
        return function(a)

    with pytest.raises(TransformError, match=message):
        transform_chunks(two, "a", "b", late, tasks=1, memory=1)
    assert len(two.chunk_coordinates("b")) == 0
    assert not two.has_forks


def test_after_a_failure_tasks_that_have_not_begun_do_not_begin(session: Session) -> None:
    calls: list[int] = []
    put(session, "a", np.zeros((100, 1)), (1, 1), DIMS)
    blank(session, "b", (100, 1), (1, 1))

    def fail(a: Any) -> Any:
        calls.append(1)
        raise ValueError("no")

    with pytest.raises(TransformError):
        transform_chunks(session, "a", "b", fail, tasks=100, memory=1, engine=ThreadsEngine(1))
    assert len(calls) < 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sources": []}, "at least one array"),
        ({"halo": -1}, "integer >= 0"),
        ({"halo": {"z": 1}}, "halo names 'z'"),
        ({"halo": {"y": (1, 2, 3)}}, "integer >= 0 or a pair"),
        ({"boundary": "mirror"}, "boundary of 'y' must be one of"),
        ({"factors": {"y": 0}}, "integer >= 1"),
        ({"factors": {"y": 2}}, "do not match by 2"),
        ({"memory": 0}, "memory=0"),
        ({"tasks": 1.5}, "tasks=1.5"),
        ({"engine": "dask"}, "engine='dask'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_a_task_starts(
    two: Session, arguments: dict[str, Any], message: str
) -> None:
    call: dict[str, Any] = {"sources": "a", **arguments}
    with pytest.raises(InvalidInputError, match=message):
        transform_chunks(two, call.pop("sources"), "b", pytest.fail, **call)


def test_arrays_that_do_not_exist_or_match_are_refused(two: Session, repo: Repository) -> None:
    blank(two, "c", (6, 5), (1, 1))
    with pytest.raises(InvalidInputError, match="'x' has 4 cells in 'a' and 5 in 'c'"):
        transform_chunks(two, "a", "c", pytest.fail)
    with pytest.raises(NodeNotFoundError):
        transform_chunks(two, "none", "c", pytest.fail)
    with pytest.raises(ReadOnlyError):
        transform_chunks(repo.readonly_session("main"), "a", "b", pytest.fail)


def test_a_halo_that_cannot_be_reflected_is_refused(two: Session) -> None:
    with pytest.raises(InvalidInputError, match="cannot reflect dimension 'x' of 4 cells"):
        transform_chunks(two, "a", "a", lambda a: a, halo={"x": 4}, boundary="reflect")


# -- commits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_what_others_change_of_the_source_is_a_conflict_of_serializable_sessions(
    repo: Repository, isolation: Any
) -> None:
    session = repo.writable_session("main")
    put(session, "a", np.arange(24.0).reshape(6, 4), (2, 2), DIMS)
    blank(session, "b", (6, 4), (3, 4))
    session.commit("arrays")
    session, other = repo.writable_session("main", isolation=isolation), repo.writable_session("main")
    transform_chunks(session, "a", "b", lambda a: a)
    other.write("a", np.s_[5], 0)
    other.commit("other")
    if isolation == "serializable":
        with pytest.raises(RebaseFailedError):
            session.commit("b", rebase_with=ConflictDetector())
    else:
        session.commit("b", rebase_with=ConflictDetector())
        assert np.array_equal(get(repo.readonly_session("main"), "b"), np.arange(24.0).reshape(6, 4))
