"""Coarse arrays and pyramids: windows of numpy, and metadata of the multiscales convention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import Repository, Session
from arraystore.errors import InvalidInputError
from arraystore.transforms import TransformError, build_pyramid, coarsen
from arraystore.transforms.coarsening import FUNCTIONS
from tests.transforms.conftest import get, put

DIMS = ("t", "y", "x")


def windows(values: Any, y: int, x: int, function: Any) -> Any:
    """Reduce windows of the last two axes, the last ones short."""
    rows = [
        [function(values[..., a : a + y, b : b + x]) for b in range(0, values.shape[-1], x)]
        for a in range(0, values.shape[-2], y)
    ]
    return np.stack([np.stack(row, -1) for row in rows], -2)


NUMPY: dict[str, Any] = {
    "first": lambda w: w[..., 0, 0],
    **{name: (lambda w, name=name: getattr(np, name)(w, axis=(-2, -1))) for name in FUNCTIONS if name != "first"},
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u1"])
def test_windows_are_reduced_as_numpy_does(session: Session, function: str, dtype: str) -> None:
    values = np.random.default_rng(0).integers(0, 100, (2, 13, 9)).astype(dtype)
    put(session, "a", values, (1, 4, 4), DIMS, attributes={"units": "K"})
    expected = windows(values, 3, 2, NUMPY[function])
    for memory in (1, 1 << 28):
        coarsen(session, "a", "out", {"y": 3, "x": 2}, function, memory=memory, overwrite=True)
        array = zarr.open_array(session.store, path="out")
        np.testing.assert_allclose(array[...], expected, rtol=1e-6 if dtype == "f4" else 1e-12)
        assert (array.dtype, array.metadata.dimension_names) == (expected.dtype, DIMS)
        assert dict(array.attrs) == {"units": "K"}
    coarsen(session, "a", "out", {"y": 3, "x": 2}, function, edge="trim", overwrite=True)
    np.testing.assert_allclose(get(session, "out"), expected[:, :4, :4], rtol=1e-6)


def test_missing_values_are_left_out(session: Session) -> None:
    values = np.array([[1, np.nan, 3, 4], [np.nan, np.nan, 5, 8]])
    put(session, "a", values, (1, 3), ("y", "x"))
    for function, expected in (("mean", [1, 5]), ("max", [1, 8]), ("sum", [1, 20]), ("median", [1, 4.5])):
        coarsen(session, "a", "out", {"y": 2, "x": 2}, function, overwrite=True)
        assert get(session, "out").tolist() == [expected]
    coarsen(session, "a", "out", {"y": 2, "x": 2}, skipna=False, overwrite=True)
    np.testing.assert_array_equal(get(session, "out"), [[np.nan, 5]])
    coarsen(session, "a", "out", {"x": 2}, overwrite=True)
    np.testing.assert_array_equal(get(session, "out"), [[1, 3.5], [np.nan, 6.5]])


def test_packed_values_stay_packed(session: Session) -> None:
    values = np.array([[10, 12, -9, -9], [14, -9, -9, -9]], "i2")
    put(session, "a", values, (1, 3), ("y", "x"), attributes={"_FillValue": -9, "scale_factor": -0.1})
    for function, expected in (("mean", 12), ("min", 14), ("max", 10)):
        coarsen(session, "a", "out", {"y": 2, "x": 2}, function, overwrite=True)
        assert get(session, "out").tolist() == [[expected, -9]]
        assert get(session, "out").dtype == "i2"
    with pytest.raises(InvalidInputError, match="do not stay packed"):
        coarsen(session, "a", "out", {"y": 2}, "sum", overwrite=True)


def test_chunks_that_were_never_written_stay_so(session: Session) -> None:
    array = zarr.create_array(
        session.store,
        name="a",
        shape=(64, 64),
        chunks=(8, 8),
        dtype="f4",
        fill_value=np.nan,
        dimension_names=("y", "x"),
    )
    array[8:10, 16:20] = 3
    report = coarsen(session, "a", "out", {"y": 2, "x": 2})
    assert (report.boxes, session.chunk_coordinates("out").tolist()) == (1, [[0, 1]])
    assert np.nansum(get(session, "out")) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({"z": 2},), "no dimension 'z'"),
        (({"y": 0},), "integer >= 1"),
        (({"y": 2}, "mode"), "function='mode' must be"),
        (({"y": 2}, "mean", "edge"), "edge='pad' must be"),
    ],
)
def test_what_does_not_fit_is_refused(session: Session, arguments: Any, message: str) -> None:
    put(session, "a", np.zeros((4, 4)), (2, 2), ("y", "x"))
    options = {"edge": "pad"} if len(arguments) == 3 else {}
    with pytest.raises(InvalidInputError, match=message):
        coarsen(session, "a", "out", *arguments[:2], **options)
    with pytest.raises(InvalidInputError, match="cannot replace"):
        coarsen(session, "a", "a", {"y": 2})


def test_what_the_data_type_does_not_hold_is_refused(session: Session) -> None:
    put(session, "a", np.full((4, 4), 100, "u1"), (2, 2), ("y", "x"))
    put(session, "f", np.array([[np.nan, np.nan, 1, 2]]), (1, 2), ("y", "x"))
    with pytest.raises(TransformError, match="sum values do not fit into uint8"):
        build_pyramid(session, "a", {"y": 2, "x": 2}, function="sum")
    for function in ("mean", "first"):
        with pytest.raises(TransformError, match=r"no missing value|do not fit"):
            coarsen(session, "f", "out", {"x": 2}, function, dtype="i2", overwrite=True)
    put(session, "m", np.full((2, 2), -9, "i2"), (2, 2), ("y", "x"), attributes={"_FillValue": -9})
    with pytest.raises(InvalidInputError, match="does not hold -9"):
        coarsen(session, "m", "out", {"x": 2}, dtype="u1", overwrite=True)


def test_medians_without_skipna_are_those_of_numpy(session: Session) -> None:
    put(session, "i", np.arange(5, dtype="i2"), (2,), ("x",))
    coarsen(session, "i", "out", {"x": 2}, "median", skipna=False)
    assert get(session, "out").tolist() == [0.5, 2.5, 4]
    put(session, "f", np.array([1, np.nan, 3, -9, -9, -9]), (2,), ("x",), attributes={"_FillValue": -9})
    coarsen(session, "f", "out", {"x": 2}, "median", skipna=False, overwrite=True)
    np.testing.assert_array_equal(get(session, "out"), [np.nan, 3, -9])


def test_fill_values_of_older_arrays_of_xarray_are_missing(session: Session) -> None:
    values = np.array([[1, 3, -9, 4], [-9, -9, 5, 8]], "i2")
    options: Any = {"zarr_format": 2, "fill_value": -9, "attributes": {"_ARRAY_DIMENSIONS": ["y", "x"]}}
    put(session, "a", values, (1, 2), **options)
    coarsen(session, "a", "out", {"x": 2})
    array = zarr.open_array(session.store, path="out")
    assert (array[...].tolist(), array.fill_value) == ([[2, 4], [-9, 6.5]], -9)


# -- pyramids ---------------------------------------------------------------------------------------------------------


def test_a_pyramid_has_levels_coordinates_and_metadata(session: Session) -> None:
    values = np.random.default_rng(0).integers(0, 255, (3, 130, 70)).astype("u1")
    put(session, "img/red", values, (1, 20, 20), DIMS)
    put(session, "img/y", np.arange(130.0), (130,), ("y",), attributes={"units": "m"})
    put(session, "img/t", np.arange(3), (3,), ("t",))
    report = build_pyramid(session, "img/red", {"y": 2, "x": 2})
    assert report.levels == ("img/red", *(f"img/overviews/{level}/red" for level in (1, 2, 3)))
    level = values
    for path in report.levels[1:]:
        level = np.rint(windows(level, 2, 2, NUMPY["mean"])).astype("u1")
        assert np.array_equal(get(session, path), level)
    assert level.shape == (3, 17, 9)  # one chunk along y and x
    assert get(session, "img/overviews/2/y")[:2].tolist() == [1.5, 5.5]
    assert get(session, "img/overviews/2/t").tolist() == [0, 1, 2]
    assert zarr.open_array(session.store, path="img/overviews/1/y").attrs["units"] == "m"
    attributes = dict(zarr.open_group(session.store, path="img", mode="r").attrs)
    (convention,) = attributes["zarr_conventions"]
    assert convention["uuid"] == "d35379db-88df-4056-af3a-620245f8e347"
    layout = attributes["multiscales"]["layout"]
    assert layout[0] == {"asset": "red"}
    assert layout[2] == {
        "asset": "overviews/2/red", "derived_from": "overviews/1/red", "transform": {"scale": [1.0, 2.0, 2.0]},
        "resampling_method": "average",
    }  # fmt: skip


@pytest.mark.parametrize("existing", [False, True])
def test_a_pyramid_of_which_a_level_fails_leaves_the_session_as_it_was(repo: Repository, existing: bool) -> None:
    session = repo.writable_session("main")
    put(session, "img/red", np.full((16, 16), 30, "u1"), (2, 2), ("y", "x"))
    put(session, "img/y", np.arange(16.0), (16,), ("y",))
    if existing:
        build_pyramid(session, "img/red", {"y": 2, "x": 2})
    tip = session.commit("before")
    session = repo.writable_session("main")
    with pytest.raises(TransformError, match="sum values do not fit into uint8"):  # 480, of the second level
        build_pyramid(session, "img/red", {"y": 2, "x": 2}, function="sum", overwrite=True)
    assert not session.has_uncommitted_changes
    session.commit("after", allow_empty=True)
    assert repo.diff(from_snapshot_id=tip, to_branch="main").is_empty
    build_pyramid(session := repo.writable_session("main"), "img/red", {"y": 2, "x": 2}, overwrite=True)
    assert (get(session, "img/overviews/2/red") == 30).all()


def test_pyramids_of_one_group_share_its_metadata(session: Session) -> None:
    group = zarr.open_group(session.store, path="img", mode="a")
    group.update_attributes({"title": "x", "zarr_conventions": [{"uuid": "other"}]})
    for name in ("red", "blue"):
        put(session, f"img/{name}", np.zeros((40, 40)), (10, 10), ("y", "x"))
        build_pyramid(session, f"img/{name}", {"y": 2, "x": 2}, levels=1)
    build_pyramid(session, "img/red", {"y": 2, "x": 2}, levels=2, overwrite=True)
    attributes = dict(zarr.open_group(session.store, path="img", mode="r").attrs)
    assert [each["uuid"][:5] for each in attributes["zarr_conventions"]] == ["other", "d3537"]
    assets = [each["asset"] for each in attributes["multiscales"]["layout"]]
    assert assets == ["blue", "overviews/1/blue", "red", "overviews/1/red", "overviews/2/red"]
    assert attributes["title"] == "x"
    with pytest.raises(InvalidInputError, match="there is a node"):
        build_pyramid(session, "img/red", {"y": 2, "x": 2})


def test_a_pyramid_of_other_factors_does_not_replace_the_coordinates_of_one_beside_it(session: Session) -> None:
    for name in ("red", "blue"):
        put(session, f"img/{name}", np.zeros((40, 40)), (10, 10), ("y", "x"))
    put(session, "img/y", np.arange(40.0), (40,), ("y",))
    build_pyramid(session, "img/red", {"y": 2, "x": 2}, levels=1)
    before = session.status()
    with pytest.raises(InvalidInputError, match="share their coordinates"):
        build_pyramid(session, "img/blue", {"y": 4, "x": 4}, levels=1)
    assert session.status() == before
    build_pyramid(session, "img/red", {"y": 4, "x": 4}, levels=1, overwrite=True)
    assert get(session, "img/overviews/1/y").shape == (10,)


def test_levels_of_an_older_array_are_in_groups_of_its_format(session: Session) -> None:
    zarr.open_group(session.store, mode="a", zarr_format=2)
    put(session, "a", np.ones((8, 8)), (4, 4), zarr_format=2, attributes={"_ARRAY_DIMENSIONS": ["y", "x"]})
    build_pyramid(session, "a", {"y": 2, "x": 2}, levels=1)
    assert dict(zarr.open_group(session.store, path="overviews/1", mode="r").arrays()).keys() == {"a"}


def test_an_array_of_the_root_group_has_a_pyramid(session: Session) -> None:
    put(session, "a", np.arange(64.0).reshape(8, 8), (2, 2), ("y", "x"))
    assert build_pyramid(session, "a", {"y": 2, "x": 2}, function="first").levels == (
        "a",
        "overviews/1/a",
        "overviews/2/a",
    )
    assert get(session, "overviews/2/a").tolist() == [[0, 4], [32, 36]]


@pytest.mark.parametrize(
    ("factors", "options", "message"),
    [
        ({}, {}, "factor > 1"),
        ({"y": 1}, {}, "factor > 1"),
        ({"z": 2}, {}, "no dimension"),
        ({"y": 2}, {"levels": 0}, "levels=0"),
    ],
)
def test_pyramids_that_are_none_are_refused(session: Session, factors: Any, options: Any, message: str) -> None:
    put(session, "a", np.zeros((8, 8)), (2, 2), ("y", "x"))
    with pytest.raises(InvalidInputError, match=message):
        build_pyramid(session, "a", factors, **options)
