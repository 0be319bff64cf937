"""Labels are found by arithmetic and by search, and both agree with a naive search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore.errors import InvalidInputError
from arraystore.spark.writing.chunk_grid import NOWHERE
from arraystore.spark.writing.labels import LabelIndex


def naive(values: np.ndarray, labels: np.ndarray, tolerance: float) -> list[set[int]]:
    """Return the indices that are right for each label: those of the nearest values, if within the tolerance."""
    found: list[set[int]] = []
    for label in labels.tolist():
        distances = [abs(label - value) for value in values.tolist()]
        best = min(distances, default=None)
        fits = best is not None and best <= tolerance
        found.append({i for i, distance in enumerate(distances) if distance == best} if fits else {NOWHERE})
    return found


@given(
    st.lists(st.integers(-50, 50), unique=True, max_size=12),
    st.lists(st.integers(-60, 60), min_size=1),
    st.integers(0, 4),
)
def test_integers_are_found_as_a_naive_search_finds_them(values: list[int], labels: list[int], tolerance: int) -> None:
    known, asked = np.array(values, np.int64), np.array(labels, np.int64)
    found = LabelIndex("x", known, tolerance).indices(asked)
    assert all(index in right for index, right in zip(found.tolist(), naive(known, asked, tolerance), strict=True))


@given(
    st.lists(st.floats(-1e3, 1e3, width=32), unique=True, max_size=12),
    st.lists(st.floats(allow_nan=True), min_size=1),
    st.sampled_from([0, 0.25, 10.0]),
    st.sampled_from(["f4", "f8"]),
)
def test_floats_are_found_as_a_naive_search_finds_them(
    values: list[float], labels: list[float], tolerance: float, dtype: str
) -> None:
    known = np.array(values, dtype)
    with np.errstate(over="ignore"):
        asked = np.array([*labels, *values], dtype)
    found = LabelIndex("x", known, tolerance).indices(asked)
    finite = np.isfinite(asked)
    assert (found[~finite] == NOWHERE).all()
    right = naive(known, asked[finite], tolerance)
    assert all(index in some for index, some in zip(found[finite].tolist(), right, strict=True))


def test_the_ends_of_integers_do_not_overflow() -> None:
    ends = np.array([-(2**63), 2**63 - 1], np.int64)
    assert LabelIndex("x", ends, 5).indices(np.array([-(2**63) + 5, 0, 2**63 - 7], np.int64)).tolist() == [
        0,
        NOWHERE,
        NOWHERE,
    ]


@pytest.mark.parametrize("end", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_label_that_is_not_finite_hides_no_other_within_the_tolerance(end: float, dtype: str) -> None:
    index = LabelIndex("x", np.array([1, 2, end], dtype), 0.1)
    found = index.indices(np.array([0.95, 1.05, 1.95, 2.05, 2.5, np.nan, -np.inf]))
    assert found.tolist() == [0, 0, 1, 1, NOWHERE, NOWHERE, NOWHERE]
    assert index.indices(np.array([np.inf])).tolist() == [2 if end == np.inf else NOWHERE]


@pytest.mark.parametrize(
    ("values", "tolerance", "pair"),
    [
        (np.array([3.0, 1.0, 1.01, 7.0]), 0.1, (1, 2)),
        (np.array([1, 2, np.nan, np.inf]), 0.1, None),
        (np.array([5, 0, 3]), 2, (2, 0)),
        (np.array([-(2**63), 2**63 - 1]), 1, None),
        (np.array([1.0, 1.0000001]), 0, None),
    ],
)
def test_labels_that_one_value_could_mean_are_noticed(values: np.ndarray, tolerance: float, pair: Any) -> None:
    assert LabelIndex("x", values, tolerance).near_each_other() == pair


def test_texts_are_found() -> None:
    labels = LabelIndex("place", np.array(["b", "a", "ü"], object))
    assert labels.indices(np.array(["ü", "c", "b", ""], object)).tolist() == [2, NOWHERE, 0, NOWHERE]
    assert labels.regular is None


@pytest.mark.parametrize("values", [[1, 2, 1], [0.5, 0.5], ["a", "a"]])
def test_a_label_that_repeats_is_refused(values: list[Any]) -> None:
    kind = object if isinstance(values[0], str) else None
    with pytest.raises(InvalidInputError, match="more than once"):
        LabelIndex("x", np.array(values, kind))


@pytest.mark.parametrize("tolerance", [-1, float("nan"), float("inf")])
def test_a_tolerance_that_is_none_is_refused(tolerance: float) -> None:
    with pytest.raises(InvalidInputError, match="finite number >= 0"):
        LabelIndex("x", np.array([1.0, 2.0]), tolerance)
    with pytest.raises(InvalidInputError, match="holds strings"):
        LabelIndex("x", np.array(["a"], object), 1)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(10),
        np.arange(100, -100, -3),
        np.array([5]),
        np.linspace(-90, 90, 181),
        np.linspace(-90, 90, 721),
        np.linspace(89.875, -89.875, 720).astype("f4"),
        np.linspace(0, 360, 1440, endpoint=False),
        np.arange(0, 1, 0.1),
        np.arange(-20.05, 60, 0.1),
        (np.arange(3000) * 0.1).astype("f4"),
        np.arange(50) * 86_400_000_000 + 946_684_800_000_000,
    ],
    ids=str,
)
def test_grids_as_people_make_them_are_regular(values: np.ndarray) -> None:
    values = values.astype(np.int64) if values.dtype.kind == "i" else values
    regular = LabelIndex("x", values).regular
    assert regular is not None
    there = regular.start + np.arange(regular.count) * regular.step
    assert np.array_equal(there.astype(values.dtype), values)


@pytest.mark.parametrize(
    ("values", "tolerance"),
    [
        (np.array([0, 1, 3]), 0),
        (np.array([0.0, 1.0, 2.5]), 0),
        (np.array([0.0, np.nan]), 0),
        (np.array([np.inf]), 0),
        (np.arange(4.0), 0.5),
        (np.arange(0, 40, 10), 5),
        (np.array([-(2**63), 2**63 - 1]), 0),
        (np.array([], np.int64), 0),
        (np.array([1.0]), 0.5),
    ],
    ids=str,
)
def test_what_arithmetic_cannot_tell_is_searched_for(values: np.ndarray, tolerance: float) -> None:
    assert LabelIndex("x", values, tolerance).regular is None
