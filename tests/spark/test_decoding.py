"""Attributes of CF and netCDF, against xarray."""

from __future__ import annotations

import struct
from base64 import b64encode
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st

from arraystore.errors import InvalidInputError
from arraystore.spark.reading.decoding import decoder_of, filled


def array(values: Any, attrs: dict[str, Any] | None = None, **options: Any) -> zarr.Array[Any]:
    stored = np.asarray(values)
    made = zarr.create_array({}, shape=stored.shape, dtype=stored.dtype, attributes=attrs or {}, **options)
    made[...] = stored
    return made


def decoded(values: Any, attrs: dict[str, Any] | None = None, **options: Any) -> tuple[np.ndarray[Any, Any], Any]:
    made = array(values, attrs, **options)
    decoder = decoder_of(made, decode=True)
    found, missing = decoder.decode(np.asarray(made[...]))
    assert found.dtype == decoder.dtype
    return found, missing


@given(
    st.lists(st.integers(-100, 100), min_size=1, max_size=8),
    st.sampled_from(["i1", "i2", "i4", "f4", "f8", ">i2", ">f4"]),
    st.one_of(st.none(), st.sampled_from([0.5, 0.1, 2.0])),
    st.one_of(st.none(), st.sampled_from([0.0, -3.0, 273.15])),
    st.one_of(st.none(), st.integers(-100, 100)),
)
def test_values_are_those_of_xarray(
    stored: list[int], dtype: str, scale: float | None, offset: float | None, fill: int | None
) -> None:
    attrs: dict[str, Any] = {"scale_factor": scale, "add_offset": offset, "missing_value": fill}
    attrs = {name: value for name, value in attrs.items() if value is not None}
    values = np.array(stored, dtype)
    expected = xr.decode_cf(xr.Dataset({"v": ("x", values.astype("f8"), attrs)})).v.values
    found = filled(*decoded(values, attrs))
    np.testing.assert_allclose(found.astype("f8"), expected, rtol=1e-6)
    if fill is None and scale is None and offset is None:
        assert found.dtype == values.dtype.newbyteorder("=")


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_nan_is_a_value_unless_it_is_what_missing_ones_are_told_by(dtype: str) -> None:
    values = np.array([1, np.nan], dtype)
    assert decoded(values)[1] is None
    as_xarray_has_it = b64encode(struct.pack("<d", float("nan"))).decode()
    for told in ({"_FillValue": as_xarray_has_it}, {"_FillValue": "NaN"}, {"missing_value": float("nan")}):
        assert decoded(values, told)[1].tolist() == [False, True]


def test_what_xarray_writes_is_missing_where_xarray_reads_nothing() -> None:
    store: dict[str, Any] = {}
    values = np.array([1.5, np.nan, 3.0], "f4")
    data = xr.Dataset({"packed": ("x", values), "flag": ("x", np.array([True, False, True]))})
    data.to_zarr(
        zarr.storage.MemoryStore(store),
        zarr_format=3,
        consolidated=False,
        encoding={"packed": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -99}},
    )
    group = zarr.open_group(zarr.storage.MemoryStore(store))
    packed, flag = (decoder_of(group[name], decode=True) for name in ("packed", "flag"))
    np.testing.assert_array_equal(filled(*packed.decode(np.asarray(group["packed"][:]))), values.astype("f8"))
    found, _ = flag.decode(np.asarray(group["flag"][:]))
    assert (found.dtype, found.tolist()) == (np.dtype(bool), [True, False, True])


def test_a_fill_value_and_several_missing_values_are_all_missing() -> None:
    _, missing = decoded(np.array([1, -1, 7, 8], "i4"), {"_FillValue": -1, "missing_value": [7, 9]})
    assert missing.tolist() == [False, True, True, False]


def test_unsigned_numbers_in_signed_bytes_and_the_reverse() -> None:
    found, missing = decoded(np.array([1, -1, -2], "i1"), {"_Unsigned": "true", "_FillValue": -1})
    assert (found.tolist(), missing.tolist()) == ([1, 255, 254], [False, True, False])
    found, missing = decoded(np.array([1, 255, 254], "u1"), {"_Unsigned": "false", "_FillValue": 255})
    assert (found.tolist(), missing.tolist()) == ([1, -1, -2], [False, True, False])
    found, _ = decoded(np.array([1, -1], ">i2"), {"_Unsigned": "true"})
    assert found.tolist() == [1, 65535]

    found, missing = decoded(np.array([1, 2**64 - 1], "u8"), {"_Unsigned": "false", "_FillValue": 2**64 - 1})
    assert (found.tolist(), missing.tolist()) == ([1, -1], [False, True])


def test_a_missing_value_that_no_value_can_be_hides_none() -> None:
    assert decoded(np.array([255, 0], "u1"), {"_FillValue": -1})[1] is None
    assert decoded(np.array([44, 0], "i1"), {"_Unsigned": "true", "_FillValue": 300})[1] is None
    assert decoded(np.array([44, 0], "i8"), {"_Unsigned": "true", "_FillValue": 2**64 + 44})[1] is None


def test_the_fill_value_of_an_array_of_zarr_2_is_missing() -> None:
    _, missing = decoded(np.array([0, 5, 7], "i4"), zarr_format=2, fill_value=7)
    assert missing.tolist() == [False, False, True]
    assert decoded(np.array([0, 5, 7], "i4"), zarr_format=3, fill_value=7)[1] is None


@pytest.mark.parametrize(
    ("values", "fill", "expected"),
    [
        (np.array(["2000-01-01", "NaT"], "M8[s]"), np.datetime64("NaT", "s"), [False, True]),
        (np.array(["2000-01-01", "1970-01-01"], "M8[s]"), np.datetime64(0, "s"), [False, True]),
        (np.array([5, "NaT"], "m8[s]"), np.timedelta64("NaT", "s"), [False, True]),
        (np.array([b"a", b""], "S2"), b"", [False, True]),
        (np.array(["a", "none"], "U4"), "none", [False, True]),
        (np.array([1, 0], "c8"), 0, None),
    ],
)
def test_the_fill_value_of_an_array_of_zarr_2_may_be_of_any_type(values: Any, fill: Any, expected: Any) -> None:
    _, missing = decoded(values, zarr_format=2, fill_value=fill)
    assert (missing if missing is None else missing.tolist()) == expected


def test_numbers_since_an_epoch_become_instants_and_missing_ones_need_not_be_any() -> None:
    attrs = {"units": "days since 2000-01-01", "_FillValue": 2**31 - 1}
    found, missing = decoded(np.array([0, 2**31 - 1, 31], "i4"), attrs)
    assert found[[0, 2]].tolist() == np.array(["2000-01-01", "2000-02-01"], "M8[us]").tolist()
    assert missing.tolist() == [False, True, False]
    found, missing = decoded(np.array([[0.5, np.nan, 1e36]]), attrs | {"_FillValue": 1e36})
    assert found[0, 0] == np.datetime64("2000-01-01T12:00")
    assert missing.tolist() == [[False, True, True]]


def test_packed_times_are_unpacked_first() -> None:
    found, _ = decoded(np.array([0, 4], "i2"), {"units": "days since 2000-01-01", "scale_factor": 0.25})
    assert found.tolist() == np.array(["2000-01-01", "2000-01-02"], "M8[us]").tolist()


def test_text_may_have_a_text_for_missing_ones() -> None:
    found, missing = decoded(np.array(["a", "none"]), {"_FillValue": "none"})
    assert (found.tolist()[0], missing.tolist()) == ("a", [False, True])
    assert filled(found, missing).tolist() == ["a", None]


def test_without_decoding_attributes_do_not_count_and_times_are_in_microseconds_all_the_same() -> None:
    made = array(np.array([1, 2], "i2"), {"scale_factor": 0.5, "_FillValue": 1, "units": "days since 2000-01-01"})
    found, missing = decoder_of(made, decode=False).decode(np.asarray(made[:]))
    assert (found.tolist(), found.dtype, missing) == ([1, 2], np.dtype("i2"), None)
    found, missing = decoded(np.array(["2000-01-01", "NaT"], "M8[ns]"))
    assert (found[0], found.dtype) == (np.datetime64("2000-01-01"), np.dtype("M8[us]"))
    assert missing.tolist() == [False, True]


@pytest.mark.parametrize(
    ("values", "missing", "expected"),
    [
        (np.array([1, 2], "i4"), [False, True], [1.0, np.nan]),
        (np.array([1, 2], "f4"), [True, False], [np.nan, 2.0]),
        (np.array([True, False]), [False, True], [1.0, np.nan]),
        (np.array([0, 1], "M8[us]"), [False, True], np.array([0, "NaT"], "M8[us]")),
    ],
)
def test_missing_values_are_marked_as_numpy_does(values: Any, missing: Any, expected: Any) -> None:
    np.testing.assert_array_equal(filled(values, np.array(missing)), expected)
    assert filled(values, None) is values


@pytest.mark.parametrize(
    "attrs",
    [
        {"scale_factor": "a lot"},
        {"add_offset": [1, 2]},
        {"_FillValue": "nothing"},
        {"_FillValue": {"a": 1}},
        {"units": "days since 2000-01-01", "calendar": "noleap"},
    ],
)
def test_attributes_that_cannot_be_obeyed_are_refused_with_the_way_out(attrs: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="decode=False"):
        decoder_of(array(np.array([1, 2], "i4"), attrs), decode=True)
