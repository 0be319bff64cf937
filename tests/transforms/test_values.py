"""Values of functions go into arrays unchanged but for the precision of floats, or are refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from arraystore.transforms.report import TransformError
from arraystore.transforms.values import fitting

T = np.datetime64


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (2**24, "f4"),
        (0.1, "f4"),
        ([2**53, -(2**53)], ">f8"),
        (np.array([1e300, np.inf, np.nan]), "f8"),
        (np.array([np.inf, np.nan, 1e-300]), "f4"),
        (np.array([255, 0]), "u1"),
        (True, "i2"),
        (np.array([2**24]), "c8"),
        (np.array([0.1 + 2j, np.nan]), "c8"),
        (T("2001-01-01", "D"), "M8[ns]"),
        (np.array(["2001-01-01T12", "NaT"], "M8[ns]"), "M8[h]"),
        (T("NaT", "D"), "M8[s]"),
        (np.timedelta64(7200, "s"), "m8[h]"),
        (np.array(["abc", ""]), "U3"),
        (np.array(["abc", ""], object), "U3"),
        (np.array(["abc"], np.dtypes.StringDType()), "U3"),
        (np.array([b"abc"]), "S3"),
        (np.array(["abcdef"], object), np.dtypes.StringDType()),
        ([], "f4"),
    ],
    ids=str,
)
def test_values_that_a_type_holds_are_returned_in_it(values: Any, dtype: Any) -> None:
    found = fitting(values, np.dtype(dtype), "a")
    expected = np.asarray(values).astype(np.dtype(dtype))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (2**24 + 1, "f4"),
        ([0, 2**53 + 1], "f8"),
        (np.array([2**64 - 1], "u8"), "f8"),
        (2**64, "f8"),
        (1e300, "f4"),
        (70000.0, "f2"),
        (300, "u1"),
        (-1, "u8"),
        (1.5, "i8"),
        (1j, "f8"),
        (2**24 + 1, "c8"),
        (1e300j, "c8"),
        (np.array([2**53 + 1], object), "f8"),
        (np.array([Decimal("0.1")]), "f8"),
        (np.array([None]), "f4"),
        (np.array(["1"]), "f4"),
        (T("2001-01-01"), "i8"),
        (5, "M8[s]"),
        (T("2001-01-01T00:00:00.5"), "M8[s]"),
        (T("2400-01-01"), "M8[ns]"),
        (np.timedelta64(1, "s"), "M8[s]"),
        (np.array(["abcd"]), "U3"),
        (np.array(["abcd"], object), "U3"),
        (np.array([b"abcd"]), "S3"),
        (np.array(["ä"]), "S3"),
        (12345, "U3"),
        (np.array([None]), "U8"),
        (np.array([None]), np.dtypes.StringDType()),
    ],
    ids=str,
)
def test_values_that_would_become_others_are_refused(values: Any, dtype: Any) -> None:
    with pytest.raises(TransformError, match=r"do not fit into 'a', which holds .*: convert them in the function"):
        fitting(values, np.dtype(dtype), "a")
