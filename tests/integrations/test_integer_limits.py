"""Values that the integers of an encoding do not hold are refused, before anything changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

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
