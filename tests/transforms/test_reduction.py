"""Reductions: what numpy computes of the whole array, for any chunks and memory, and what is missing."""

from __future__ import annotations

import json
import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from xarray.backends.zarr import FillValueCoder

from arraystore import Session
from arraystore.errors import InvalidInputError
from arraystore.transforms import ThreadsEngine, histogram, quantile, reduce_array, reduction_plan
from arraystore.transforms.sketch import LEVEL_SIZE, QuantileSketch
from tests.transforms.conftest import get, put

DIMS = ("t", "y", "x")
SHAPE = (20, 7, 6)
NUMPY: dict[str, Any] = {
    "sum": np.nansum, "mean": np.nanmean, "min": np.nanmin, "max": np.nanmax, "std": np.nanstd, "var": np.nanvar,
    "count": lambda a, axis: (~np.isnan(a)).sum(axis=axis),
}  # fmt: skip


def gappy(dtype: str = "f8") -> Any:
    rng = np.random.default_rng(0)
    values = rng.normal(280, 10, SHAPE).astype(dtype)
    values[rng.random(SHAPE) < 0.2] = np.nan
    values[:, 0, 0] = np.nan
    return values


@pytest.mark.parametrize("function", NUMPY)
@pytest.mark.parametrize("dims", [None, "t", ("y", "x")])
def test_statistics_are_those_of_numpy(session: Session, function: str, dims: Any) -> None:
    axes = None if dims is None else tuple(DIMS.index(dim) for dim in dims)
    integers = np.random.default_rng(1).integers(-100, 100, SHAPE, dtype="i2")
    for name, values in (("f8", gappy()), ("f4", gappy("f4")), ("i2", integers)):
        put(session, name, values, (3, 4, 4), DIMS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exact = NUMPY[function](values.astype("f8") if values.dtype.kind == "f" else values, axis=axes)
            kind = np.asarray(NUMPY[function](values, axis=axes)).dtype
        for memory in (1, 1 << 28):
            reduce_array(session, name, "out", function, dims, memory=memory, overwrite=True)
            found = get(session, "out")
            assert found.dtype == kind
            np.testing.assert_allclose(found, np.asarray(exact).astype(kind), rtol=1e-11 if kind != "f4" else 1e-6)


def test_the_result_does_not_depend_on_the_tasks(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction_plan, "_SMALLEST_BLOCK", 1)
    put(session, "a", np.random.default_rng(0).normal(size=5000) * 10.0 ** (np.arange(5000) % 20), (10,), ("t",))
    results = set()
    for threads in (1, 2, 5):
        for function in ("sum", "std"):
            reduce_array(session, "a", "out", function, overwrite=True, engine=ThreadsEngine(threads))
            results.add((function, float(get(session, "out"))))
    assert len(results) == 2


def test_sums_keep_what_naive_ones_lose(session: Session) -> None:
    values = np.tile([1e16, 1.0, -1e16, 1.0], 1000)
    put(session, "a", values, (1,), ("t",))
    reduce_array(session, "a", "out", "sum", memory=1)
    assert float(get(session, "out")) == float(sum(map(Fraction, values.tolist()))) == 2000


def test_deviations_of_large_numbers_that_differ_little(session: Session) -> None:
    values = 1e9 + np.random.default_rng(0).normal(size=1000)
    put(session, "a", values, (7,), ("t",))
    reduce_array(session, "a", "out", "std", memory=1, ddof=1)
    assert math.isclose(float(get(session, "out")), np.std(values - 1e9, ddof=1), rel_tol=1e-6)


def test_sums_of_integers_are_exact_or_refused(session: Session) -> None:
    put(session, "a", np.array([2**62, 2**62 - 1, 1, 0], "i8"), (1,), ("t",))
    reduce_array(session, "a", "mean", "mean")
    with pytest.raises(InvalidInputError, match="exceeds 64 bits"):
        reduce_array(session, "a", "sum", "sum")
    put(session, "b", np.array([2**53, 1, 1, 1], "i8"), (1,), ("t",))
    reduce_array(session, "b", "out", "sum", memory=1)
    assert int(get(session, "out")) == 2**53 + 3


def test_without_skipna_nan_is_a_result(session: Session) -> None:
    put(session, "a", gappy(), (3, 4, 4), DIMS)
    for function in ("sum", "mean", "max", "var"):
        reduce_array(session, "a", "out", function, "t", skipna=False, overwrite=True, memory=1)
        assert np.array_equal(np.isnan(get(session, "out")), np.isnan(gappy()).any(axis=0))


def test_missing_values_of_attributes_are_left_out_and_packed_ones_unpacked(session: Session) -> None:
    stored = np.random.default_rng(0).integers(0, 50, (30, 4)).astype("i2")
    stored[:, 0] = -9
    attributes = {"_FillValue": -9, "units": "K"}
    put(session, "plain", stored, (7, 3), ("t", "x"), attributes=attributes)
    put(
        session, "packed", stored, (7, 3), ("t", "x"), attributes={**attributes, "scale_factor": 0.5, "add_offset": 200}
    )
    reduce_array(session, "plain", "low", "min", "t", memory=1)
    array = zarr.open_array(session.store, path="low")
    assert array[...].tolist() == [-9, *stored[:, 1:].min(0).tolist()]
    assert dict(array.attrs) == {**attributes, "cell_methods": "t: minimum"}
    reduce_array(session, "packed", "mean", "mean", "t", memory=1)
    array = zarr.open_array(session.store, path="mean")
    np.testing.assert_allclose(array[...], [np.nan, *(200 + 0.5 * stored[:, 1:].mean(0))])
    assert dict(array.attrs) == {"units": "K", "cell_methods": "t: mean"}
    reduce_array(session, "plain", "count", "count", "t")
    assert get(session, "count").tolist() == [0, 30, 30, 30]
    assert "units" not in zarr.open_array(session.store, path="count").attrs


def test_chunks_that_were_never_written_count_with_the_fill_value(session: Session) -> None:
    array = zarr.create_array(
        session.store, name="a", shape=(10,), chunks=(2,), dtype="i4", fill_value=5, dimension_names=("t",)
    )
    array[:2] = 1
    reduce_array(session, "a", "out", "sum", memory=1)
    assert int(get(session, "out")) == 2 + 8 * 5


def test_arrays_without_values(session: Session) -> None:
    put(session, "a", np.zeros((0, 3)), (1, 3), ("t", "x"))
    put(session, "i", np.zeros((0, 3), "i4"), (1, 3), ("t", "x"))
    for function, expected in (("sum", 0), ("count", 0), ("mean", np.nan), ("max", np.nan)):
        reduce_array(session, "a", "out", function, "t", overwrite=True)
        np.testing.assert_array_equal(get(session, "out"), [expected] * 3)
    with pytest.raises(InvalidInputError, match="no value to reduce"):
        reduce_array(session, "i", "out", "max", "t", overwrite=True)
    put(session, "scalar", np.float64(4), ())
    reduce_array(session, "scalar", "one", "mean")
    assert float(get(session, "one")) == 4


@pytest.mark.parametrize("shape", [(0, 3, 2), (3, 0, 2), (0, 0, 1)])
def test_statistics_of_other_dimensions_than_an_empty_one_are_empty(session: Session, shape: tuple[int, ...]) -> None:
    put(session, "a", np.zeros(shape), (1, 3, 2), DIMS)
    reduce_array(session, "a", "sums", "sum", "x")
    quantile(session, "a", "quantiles", [0.1, 0.9], "x")
    histogram(session, "a", "counts", [0, 1, 2, 3], "x")
    assert get(session, "sums").shape == shape[:2]
    assert get(session, "quantiles").shape == (2, *shape[:2])
    assert get(session, "counts").shape == (3, *shape[:2])


def test_the_result_has_the_dimensions_and_chunks_that_remain(session: Session) -> None:
    put(session, "a", gappy(), (3, 4, 4), DIMS, attributes={"long_name": "x", "cell_methods": "area: mean"})
    report = reduce_array(session, "a", "g/out", "mean", "t", chunks={"x": 2})
    array = zarr.open_array(session.store, path="g/out")
    assert (array.shape, array.chunks, array.metadata.dimension_names) == ((7, 6), (4, 2), ("y", "x"))
    assert dict(array.attrs) == {"long_name": "x", "cell_methods": "area: mean t: mean"}
    assert np.isnan(array.fill_value)
    assert (report.array, report.read_bytes) == ("g/out", gappy().nbytes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "out", "median"), "function='median' must be one of"),
        (("a", "out", "mean", "z"), "no dimension 'z'"),
        (("a", "out", "mean", ["t", "t"]), "names a dimension twice"),
        (("a", "a", "mean"), "cannot replace"),
        (("a", "b", "mean"), "there is a node 'b' already"),
        (("text", "out", "mean"), "reductions need"),
    ],
)
def test_what_does_not_fit_is_refused(session: Session, arguments: Any, message: str) -> None:
    put(session, "a", gappy(), (3, 4, 4), DIMS)
    put(session, "b", gappy(), (3, 4, 4), DIMS)
    put(session, "text", np.array(["a"], dtype="U3"), (1,))
    with pytest.raises(InvalidInputError, match=message):
        reduce_array(session, *arguments)


# -- quantiles and histograms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", ["t", ("t", "y"), None])
@pytest.mark.parametrize("memory", [30_000, 1 << 28])
def test_quantiles_are_those_of_numpy(session: Session, dims: Any, memory: int) -> None:
    put(session, "a", gappy(), (3, 4, 4), DIMS)
    quantile(session, "a", "out", [0, 0.1, 0.5, 1], dims, memory=memory)
    axes = None if dims is None else tuple(DIMS.index(dim) for dim in dims)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(get(session, "out"), np.nanquantile(gappy(), [0, 0.1, 0.5, 1], axis=axes))
    assert zarr.open_array(session.store, path="out").metadata.dimension_names[0] == "quantile"
    quantile(session, "a", "out", 0.5, dims, memory=memory, overwrite=True)
    assert get(session, "out").shape == tuple(size for axis, size in enumerate(SHAPE) if axes and axis not in axes)


def test_cells_that_do_not_fit_into_memory_are_refused_with_a_remedy(session: Session) -> None:
    put(session, "a", np.zeros((1000, 4)), (10, 4), ("t", "x"))
    with pytest.raises(InvalidInputError, match="does not hold the 1,000 values of a cell of 'a'"):
        quantile(session, "a", "out", 0.5, "t", memory=1000)


@pytest.mark.parametrize("marks", [(), 2, [0.5, -0.1]])
def test_quantiles_are_from_0_to_1(session: Session, marks: Any) -> None:
    put(session, "a", gappy(), (3, 4, 4), DIMS)
    with pytest.raises(InvalidInputError, match="numbers from 0 to 1"):
        quantile(session, "a", "out", marks)


@pytest.mark.parametrize("seed", range(4))
def test_a_sketch_errs_by_no_more_than_it_says_whatever_the_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [rng.normal, lambda size: np.arange(size) * 1.0, lambda size: -np.arange(size) * 1.0, rng.pareto][seed]
    data = values(1, size=300_000) if seed == 3 else values(size=300_000)
    marks = (0.001, 0.25, 0.5, 0.99)
    sketch = QuantileSketch(marks)
    blocks = [sketch.reduce(part, None, (0,)) for part in np.split(data, np.sort(rng.integers(0, len(data), 20)))]
    merged = blocks[0]
    for block in blocks[1:]:
        merged = sketch.combine(merged, block)
    error = sketch.rank_error(merged)
    assert 0 < error < 0.01
    assert len(merged[0]) < 2 * LEVEL_SIZE * 8
    ranks = np.searchsorted(np.sort(data), sketch.finish(merged)) / len(data)
    assert (np.abs(ranks - marks) <= error + 1 / len(data)).all()
    assert (np.int64(1) << merged[1]).sum() == len(data)


def test_a_large_array_is_sketched_and_says_how_well(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction_plan, "_SMALLEST_BLOCK", 1)
    data = np.random.default_rng(0).normal(size=60_000)
    put(session, "a", data, (5000,), ("t",))
    quantile(session, "a", "out", [0.1, 0.9])
    array = zarr.open_array(session.store, path="out")
    error = array.attrs["quantile_rank_error"]
    assert 0 < error < 0.01
    assert (np.abs(np.searchsorted(np.sort(data), array[...]) / len(data) - [0.1, 0.9]) <= error + 1e-4).all()


@pytest.mark.parametrize("dims", [None, "t", ("y", "x")])
def test_histograms_are_those_of_numpy(session: Session, dims: Any) -> None:
    values, edges = np.round(gappy()), [250.0, 270, 280, 290, 300]
    put(session, "a", values, (3, 4, 4), DIMS, attributes={"units": "K"})
    axes = tuple(range(3)) if dims is None else tuple(DIMS.index(dim) for dim in dims)
    kept = [axis for axis in range(3) if axis not in axes]
    rows = values.transpose(*kept, *axes).reshape(*(SHAPE[axis] for axis in kept), -1)
    expected = np.apply_along_axis(lambda row: np.histogram(row[~np.isnan(row)], edges)[0], -1, rows)
    for memory in (1, 1 << 28):
        histogram(session, "a", "out", edges, dims, memory=memory, overwrite=True)
        assert np.array_equal(np.moveaxis(get(session, "out"), 0, -1), expected)
    assert dict(zarr.open_array(session.store, path="out").attrs) == {"bin_edges": edges}
    with pytest.raises(InvalidInputError, match="ascending order"):
        histogram(session, "a", "out", [1, 1], overwrite=True)
    histogram(session, "a", "out", [-np.inf, 270, np.inf], dims, overwrite=True)
    attributes = json.loads(session.store.get_sync("out/zarr.json").to_bytes(), parse_constant=pytest.fail)[
        "attributes"
    ]
    assert attributes == {"bin_edges": ["-Infinity", 270, "Infinity"]}


def test_missing_values_are_told_apart_as_xarray_writes_them(session: Session) -> None:
    for number in (np.nan, -9.0):
        text = FillValueCoder.encode(number, np.dtype("f4"))
        put(session, "a", np.array([1, number, 3], "f4"), (2,), ("x",), attributes={"_FillValue": text}, overwrite=True)
        reduce_array(session, "a", "out", "mean", overwrite=True)
        assert float(get(session, "out")) == 2


def test_the_fill_value_of_an_older_array_of_xarray_is_missing(session: Session) -> None:
    options: Any = {"zarr_format": 2, "fill_value": -9, "attributes": {"_ARRAY_DIMENSIONS": ["t", "x"]}}
    put(session, "a", np.array([[1, -9, -9], [5, 4, -9]], "i2"), (1, 3), **options)
    reduce_array(session, "a", "mean", "mean", "t")
    np.testing.assert_array_equal(get(session, "mean"), [3, 4, np.nan])
    reduce_array(session, "a", "min", "min", "t")
    array = zarr.open_array(session.store, path="min")
    assert (array[...].tolist(), array.attrs["_FillValue"]) == ([1, 4, -9], -9)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.filterwarnings("ignore:.*multiple fill values")
@pytest.mark.parametrize("fill", [0, -9, None])
@pytest.mark.parametrize("attributes", [{}, {"_FillValue": -9}, {"_FillValue": -9, "missing_value": 4}])
def test_missing_values_are_those_of_xarray(session: Session, zarr_format: Any, fill: Any, attributes: Any) -> None:
    zarr.open_group(session.store, mode="a", zarr_format=zarr_format)
    named: Any = {"dims": ("x",)} if zarr_format == 3 else {}
    attributes = attributes | ({"_ARRAY_DIMENSIONS": ["x"]} if zarr_format == 2 else {})
    values = np.array([0, 4, -9, 7, 1], "i2")
    put(session, "a", values, (2,), zarr_format=zarr_format, fill_value=fill, attributes=attributes, **named)
    with xr.open_dataset(session, engine="arraystore") as dataset:
        expected = dataset.a.load()
    reduce_array(session, "a", "mean", "mean")
    reduce_array(session, "a", "count", "count")
    assert float(get(session, "mean")) == pytest.approx(float(expected.mean()))
    assert int(get(session, "count")) == int(expected.count())


def test_integers_of_another_sign_by_their_attributes_are_refused(session: Session) -> None:
    put(session, "a", np.array([-1, 1], "i1"), (2,), attributes={"_Unsigned": "true"})
    with pytest.raises(InvalidInputError, match="_Unsigned"):
        reduce_array(session, "a", "out", "mean")


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f4"])
def test_packed_floats_are_unpacked_in_double_precision(session: Session, dtype: str) -> None:
    values = np.array([0.1, 0.2, 0.3, 7], dtype)
    put(session, "a", values, (2,), attributes={"add_offset": 273.15})
    expected = values.astype("f8") + 273.15
    reduce_array(session, "a", "max", "max")
    reduce_array(session, "a", "mean", "mean")
    quantile(session, "a", "median", 0.5)
    found = [float(get(session, name)) for name in ("max", "mean", "median")]
    np.testing.assert_allclose(found, [expected.max(), expected.mean(), np.median(expected)], rtol=1e-14)


@pytest.mark.parametrize(("dtype", "mark"), [("i1", 1.5), ("u2", -0.5), ("?", 2)])
def test_a_missing_value_that_integers_cannot_be_is_refused_and_hides_no_other(
    session: Session, dtype: str, mark: Any
) -> None:
    put(session, "a", np.array([0, 1], dtype), (2,), attributes={"_FillValue": mark})
    with pytest.raises(InvalidInputError, match="_FillValue of array 'a' are not numbers of its type"):
        reduce_array(session, "a", "out", "mean")


@pytest.mark.parametrize("place", [0, 1, 39_999])
def test_without_skipna_no_sketch_loses_nan(session: Session, place: int) -> None:
    values = np.arange(40_000.0)
    values[place] = np.nan
    put(session, "a", values, (5000,))
    quantile(session, "a", "out", [0.0, 0.5], skipna=False, memory=200_000)
    assert np.isnan(get(session, "out")).all()
