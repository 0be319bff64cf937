"""Sums, means and medians of 64-bit integers are those of Python's integers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from arraystore import InvalidInputError, Session
from arraystore.transforms import coarsen, reduce_array
from arraystore.transforms.integer_medians import median_of_integers
from arraystore.transforms.reducers import Sum
from tests.transforms.conftest import get, put

KINDS = ["i8", "u8", ">i8", "i4", "u1", "bool"]
ROWS = stn.array_shapes(min_dims=2, max_dims=2, max_side=5)


def integers(kind: str) -> st.SearchStrategy[Any]:
    """Return numbers of a type, many of them at its ends."""
    if kind == "bool":
        return st.booleans()
    limits = np.iinfo(kind)
    ends = [limits.min, limits.max, limits.max - 1, 0]
    return st.one_of(st.integers(int(limits.min), int(limits.max)), st.sampled_from([int(each) for each in ends]))


@given(st.data(), st.sampled_from(KINDS))
def test_sums_and_means_are_those_of_integers_without_bounds(data: st.DataObject, kind: str) -> None:
    values = data.draw(stn.arrays(np.dtype(kind), ROWS, elements=integers(kind)))
    valid = data.draw(stn.arrays(np.bool_, values.shape))
    cut = data.draw(st.integers(0, len(values)))
    means, sums = Sum(values.dtype, mean=True, rounded=True), Sum(values.dtype)
    parts = means.combine(means.reduce(values[:cut], valid[:cut], (0,)), means.reduce(values[cut:], valid[cut:], (0,)))
    rounded, floats = means.finish(parts), Sum(values.dtype, mean=True).finish(parts)
    columns = [[int(v) for v, there in zip(c, t, strict=True) if there] for c, t in zip(values.T, valid.T, strict=True)]
    for at, column in enumerate(columns):
        exact = Fraction(sum(column), max(len(column), 1))
        assert int(rounded[at]) == round(exact)  # Python rounds half to even, too
        assert abs(Fraction(float(floats[at])) - exact) <= abs(exact) / 2**52 if column else np.isnan(floats[at])
    limits = np.iinfo(sums.dtype)
    if all(limits.min <= sum(column) <= limits.max for column in columns):
        assert sums.finish(parts).tolist() == [sum(column) for column in columns]
    else:
        with pytest.raises(InvalidInputError, match="64 bits"):
            sums.finish(parts)


@given(st.data(), st.sampled_from(KINDS))
def test_medians_are_those_of_integers_without_bounds(data: st.DataObject, kind: str) -> None:
    values = data.draw(stn.arrays(np.dtype(kind), ROWS, elements=integers(kind)))
    valid = data.draw(stn.arrays(np.bool_, values.shape))
    rounded, floats = (median_of_integers(values, valid, (0,), rounded=each) for each in (True, False))
    for at in range(values.shape[1]):
        column = sorted(int(v) for v, there in zip(values[:, at], valid[:, at], strict=True) if there) or [0]
        exact = Fraction(column[(len(column) - 1) // 2] + column[len(column) // 2], 2)
        assert int(rounded[at]) == round(exact)
        assert float(floats[at]) == float(exact)


@pytest.mark.parametrize("kind", ["i8", "u8"])
@pytest.mark.parametrize("function", ["mean", "median", "min", "max", "first"])
def test_coarser_cells_of_equal_large_integers_have_that_value(session: Session, kind: str, function: str) -> None:
    value = 2**60 + 1
    put(session, "a", np.full((4, 6), value, kind), (2, 3), ("y", "x"))
    coarsen(session, "a", "out", {"y": 2, "x": 2}, function, dtype=kind)
    assert set(get(session, "out").ravel().tolist()) == {value}


def test_packed_large_integers_keep_their_last_bits(session: Session) -> None:
    start = np.int64(2**62) + 1
    put(session, "a", np.array([start, start + 2, -9, start]), (2,), ("x",), attributes={
        "_FillValue": -9, "scale_factor": 1e-9})  # fmt: skip
    coarsen(session, "a", "out", {"x": 2})
    assert get(session, "out").tolist() == [int(start) + 1, int(start)]


@pytest.mark.parametrize(("kind", "value"), [("i8", 2**63 - 1), ("i8", -(2**63)), ("u8", 2**64 - 1)])
def test_sums_up_to_the_last_integer_are_exact_and_means_beyond_it_too(session: Session, kind: str, value: int) -> None:
    put(session, "a", np.array([value, 0, 0, 0], kind), (2,), ("x",))
    reduce_array(session, "a", "sum", "sum", memory=1)
    assert int(get(session, "sum")) == value
    put(session, "b", np.full(8, value, kind), (2,), ("x",))
    reduce_array(session, "b", "mean", "mean", memory=1)
    assert float(get(session, "mean")) == float(value)
    with pytest.raises(InvalidInputError, match="exceeds 64 bits"):
        reduce_array(session, "b", "too_large", "sum")
