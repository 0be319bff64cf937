"""Values that an encoding or an array does not hold are refused, before anything changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from arraystore import InvalidInputError, Repository
from arraystore.xarray import to_arraystore

PACKED = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}


def dataset(values: Any, first: int = 0) -> xr.Dataset:
    data = np.asarray(values, dtype=float)
    return xr.Dataset({"v": ("t", data)}, coords={"t": np.arange(first, first + len(data))})


@pytest.mark.parametrize(
    ("encoding", "value", "text"),
    [
        (PACKED, 1000.0, r"'v' has values from 280.0 to 1000.0, .* to 607.67"),
        (PACKED, -np.inf, "values from -inf"),
        (PACKED | {"scale_factor": -0.01}, 1000.0, "to 1000.0"),
        ({"dtype": "u1"}, -1.0, "uint8"),
        ({"dtype": "i1", "_Unsigned": "true", "_FillValue": 255}, 256.0, "uint8"),
        ({"dtype": "i4"}, np.nan, "has NaN"),
    ],
)
@pytest.mark.parametrize("appended", [False, True])
@pytest.mark.filterwarnings("ignore:.*fill", "ignore:invalid value")
def test_values_that_would_wrap_are_refused(
    memory_repo: Repository, encoding: dict[str, Any], value: float, text: str, appended: bool
) -> None:
    session = memory_repo.writable_session("main")
    base = 280.0 if "scale_factor" in encoding else 1.0
    options: dict[str, Any] = {"encoding": {"v": encoding}}
    if appended:
        to_arraystore(dataset([base, base]), session, **options)
        session.commit("two values")
        session, options = memory_repo.writable_session("main"), {"append_dim": "t"}
    with pytest.raises(InvalidInputError, match=text):
        to_arraystore(dataset([base, value], 2), session, **options)
    assert not appended or not session.has_uncommitted_changes


@pytest.mark.parametrize(
    ("encoding", "values"),
    [
        (PACKED, [607.67, -47.67, np.nan]),
        (PACKED, [np.nan, np.nan]),
        ({"dtype": "u1"}, [0.0, 255.0]),
        ({"dtype": "i1", "_Unsigned": "true", "_FillValue": 255}, [0.0, 254.0, np.nan]),
        ({"dtype": "f4"}, [1e30, np.nan]),
    ],
)
def test_values_at_the_ends_and_missing_ones_are_written(
    memory_repo: Repository, encoding: dict[str, Any], values: list[float]
) -> None:
    session = memory_repo.writable_session("main")
    to_arraystore(dataset(values), session, encoding={"v": encoding})
    with xr.open_dataset(session, engine="arraystore") as found:
        np.testing.assert_allclose(found.v.values, values, rtol=1e-6)


@pytest.mark.parametrize(("value", "text"), [(70000, "from 1 to 70000.*int16"), (-40000, "from -40000 to 1")])
def test_integers_that_the_array_does_not_hold_are_not_appended(memory_repo: Repository, value: int, text: str) -> None:
    session = memory_repo.writable_session("main")
    to_arraystore(xr.Dataset({"v": ("t", np.array([1, 2], "i2"))}), session)
    session.commit("two values")
    session = memory_repo.writable_session("main")
    with pytest.raises(InvalidInputError, match=text):
        to_arraystore(xr.Dataset({"v": ("t", np.array([1, value]))}), session, append_dim="t")
    assert not session.has_uncommitted_changes


def test_integers_at_the_ends_are_appended_exactly(memory_repo: Repository) -> None:
    session = memory_repo.writable_session("main")
    ends = [-(1 << 63), (1 << 63) - 1, (1 << 53) + 1]
    to_arraystore(xr.Dataset({"v": ("t", np.array(ends)), "u": ("t", np.array([0, (1 << 64) - 1, 1], "u8"))}), session)
    again = xr.Dataset({"v": ("t", np.array(ends, "i8")), "u": ("t", np.array([(1 << 64) - 1, 2, 3], "u8"))})
    to_arraystore(again, session, append_dim="t")
    assert session.read("v").tolist() == ends * 2
    assert session.read("u").tolist() == [0, (1 << 64) - 1, 1, (1 << 64) - 1, 2, 3]
    with pytest.raises(InvalidInputError, match="int64"):
        to_arraystore(again.assign(v=again.u, u=again.u), session, append_dim="t")


LATER = ["of dask", "in memory"]


def as_variable(values: Any, kind: str) -> xr.Dataset:
    dataset = xr.Dataset({"v": ("t", values)})
    return dataset.chunk({"t": 1}) if kind == "of dask" else dataset


@pytest.mark.parametrize("kind", LATER)
@pytest.mark.parametrize(
    ("held", "new", "text"),
    [
        (np.array([1], "i4"), np.array([1, 1 << 40]), "from 1099511627776 to 1099511627776|from 1 to 1099511627776"),
        (np.array([1], "i2"), np.array([1.0, np.nan]), "has NaN"),
        (np.array([1.0], "f4"), np.array([np.inf, 1e300]), r"1e\+300.*float32"),
        (np.array([1.0], "f2"), np.array([1, 70000]), "70000.*float16"),
        (np.array([1.0]), np.array([1.0, 1j]), "take their real part"),
        (np.array([1]), np.array([1.0, 1j]), "take their real part"),
        (np.array([True]), np.array([1, 2]), r"truth values \(bool\)"),
        (np.array(["ab"]), np.array([123, 4]), "convert them to texts"),
        (np.array(["ab"], "T"), np.array([123, 4]), "convert them to texts"),
        (np.array(["ab"]), np.array(["a", "abc"], object), "texts of 3 characters.*those of 2"),
        (np.array([b"ab"]), np.array([b"a", b"abc"], object), "texts of 3 characters.*those of 2"),
        (np.array([1]), np.array(["1", "2"], object), "convert them to numbers"),
        (np.array([1.0]), np.array(["1", "2"], object), "convert them to numbers"),
    ],
)
def test_values_that_the_array_does_not_hold_are_not_appended(
    memory_repo: Repository, held: Any, new: Any, text: str, kind: str
) -> None:
    session = memory_repo.writable_session("main")
    to_arraystore(as_variable(held, kind), session)
    session.commit("one value")
    session = memory_repo.writable_session("main")
    with pytest.raises(InvalidInputError, match=text):
        to_arraystore(as_variable(new, kind), session, append_dim="t")
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize("kind", LATER)
@pytest.mark.parametrize(
    ("held", "new"),
    [
        (np.array([1], "i4"), np.array([2, -(1 << 31)])),
        (np.array([1.0], "f4"), np.array([np.nan, -np.inf, float(np.finfo("f4").max)])),
        (np.array([1j]), np.array([1.0, 2.0])),
        (np.array([True]), np.array([1, 0])),
        (np.array(["ab"]), np.array(["a", "äö"], object)),
        (np.array(["ab"], object), np.array(["abc", ""], object)),
    ],
)
def test_values_of_another_data_type_that_the_array_holds_are_appended(
    memory_repo: Repository, held: Any, new: Any, kind: str
) -> None:
    session = memory_repo.writable_session("main")
    to_arraystore(as_variable(held, kind), session)
    to_arraystore(as_variable(new, kind), session, append_dim="t")
    np.testing.assert_array_equal(session.read("v"), [*held.tolist(), *new.tolist()])


def test_texts_that_an_encoding_would_cut_off_are_refused(memory_repo: Repository) -> None:
    session = memory_repo.writable_session("main")
    texts = xr.Dataset({"v": ("t", np.array(["abc", "ab"], object))})
    with pytest.raises(InvalidInputError, match="'v' has texts of 3 characters, and its encoding holds those of 2"):
        to_arraystore(texts, session, encoding={"v": {"dtype": "S2"}})
    to_arraystore(texts, session, encoding={"v": {"dtype": "S3"}}, mode="w")
    assert session.read("v").tolist() == [b"abc", b"ab"]


def test_lengths_of_time_are_not_appended_to_times(memory_repo: Repository) -> None:
    session = memory_repo.writable_session("main")
    to_arraystore(xr.Dataset({"v": ("t", np.array(["2024-01-01"], "M8[ns]"))}), session)
    with pytest.raises(InvalidInputError, match="cannot encode the variable 'v'"):
        to_arraystore(xr.Dataset({"v": ("t", np.array([1], "m8[s]"))}), session, append_dim="t")
    assert session.read("v").tolist() == [0]


@pytest.mark.parametrize("factor", [[0.5], np.array([0.5, 1.0]), "half", {}])
def test_a_factor_that_is_no_number_is_refused(memory_repo: Repository, factor: Any) -> None:
    session = memory_repo.writable_session("main")
    with pytest.raises(InvalidInputError, match=r"scale_factor=.* must be a number|cannot encode the variable 'v'"):
        to_arraystore(dataset([1.0]), session, encoding={"v": {"dtype": "i2", "scale_factor": factor}})


@pytest.mark.parametrize("options", [{"append_dim": "t"}, {"mode": "a"}, {"region": {"t": slice(0, 2)}}])
def test_texts_are_not_written_into_arrays_of_characters(memory_repo: Repository, options: Any) -> None:
    session = memory_repo.writable_session("main")
    letters = np.array([[b"a", b"b"], [b"c", b"d"]], "S1")
    zarr.create_array(session.store, name="v", data=letters, dimension_names=("t", "n"))
    with xr.open_dataset(session, engine="arraystore") as texts:
        assert texts.v.values.tolist() == [b"ab", b"cd"]
        with pytest.raises(InvalidInputError, match="'v' holds strings character by character"):
            to_arraystore(texts.load(), session, **options)
    assert session.read("v").tolist() == letters.tolist()
