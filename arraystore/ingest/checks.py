"""Compatibility of variables: of several sources with each other, and of a source with the target array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from arraystore.ingest.errors import AlignmentError, VariableMismatchError
from arraystore.ingest.model import Recode, SourceInfo, VariableInfo
from arraystore.ingest.times import recode_between, same_clock
from arraystore.spark.cf_time import is_time

_MEANING = (
    "units",
    "scale_factor",
    "add_offset",
    "_FillValue",
    "missing_value",
    "_Unsigned",
    "flag_values",
    "flag_meanings",
)
"""Attributes that say what the stored numbers mean: with another value the same number means something else."""


def describe_type(dtype: np.dtype[Any]) -> str:
    """Return the name of a type for messages."""
    return "text" if dtype.kind == "O" else str(dtype)


def check_same_names(source: SourceInfo, expected: Mapping[str, VariableInfo], owner: str, append_dim: str) -> None:
    """Check that the source has the same variables along the append dimension as `owner`."""
    ours, theirs = set(source.variables), set(expected)
    if extra := sorted(ours - theirs):
        raise VariableMismatchError(
            f"source {source.path!r} has {_listed(extra)}, which {owner} lacks; leave out what is new ({_skips(extra)})"
        )
    growing = sorted(name for name in theirs - ours if append_dim in expected[name].dims)
    if growing:
        raise VariableMismatchError(
            f"source {source.path!r} lacks {_listed(growing)}, which {owner} has along {append_dim!r}: "
            "the arrays would no longer be of equal length; add it to the source"
        )


def _listed(names: list[str]) -> str:
    return ("the variable " if len(names) == 1 else "the variables ") + ", ".join(map(repr, names))


def _skips(names: list[str]) -> str:
    return " ".join(f"--skip {name}" for name in names)


def check_fits(
    source: SourceInfo, variable: VariableInfo, array: VariableInfo, owner: str, append_dim: str | None
) -> None:
    """Check type, dimensions, sizes and meaning of a variable against its target array.

    Units of time may differ: `clock_recodes` converts them.
    """
    what = f"variable {variable.name!r} of {source.path!r}"
    if variable.dims != array.dims:
        raise VariableMismatchError(
            f"{what} has dimensions {variable.dims}, but in {owner} they are {array.dims}; transpose or rename them"
        )
    if variable.dtype != array.dtype:
        raise VariableMismatchError(
            f"{what} is of type {describe_type(variable.dtype)}, but in {owner} it is {describe_type(array.dtype)}; "
            "convert the source, or ingest it into another group"
        )
    for dim, ours, theirs in zip(variable.dims, variable.shape, array.shape, strict=True):
        if dim != append_dim and ours != theirs:
            raise VariableMismatchError(
                f"{what} has {ours} elements along {dim!r}, but in {owner} there are {theirs}; only "
                f"{append_dim!r} may differ"
            )
    for key in _MEANING:
        if key == "units" and is_time(variable.attrs) and is_time(array.attrs):
            continue
        new, kept = _meaning(variable, key), _meaning(array, key)
        if not _same_attribute(new, kept):
            raise VariableMismatchError(
                f"{what} has the attribute {key}={new!r}, but in {owner} it is {kept!r}: the same number would "
                "mean something else; convert the source, or ingest it into another group"
            )


def _meaning(variable: VariableInfo, key: str) -> Any:
    """Return an attribute's value; NaN as fill value counts as none, because NaN is missing anyway."""
    value = variable.attrs.get(key)
    if key in ("_FillValue", "missing_value") and isinstance(value, float | np.floating) and np.isnan(value):
        return None
    return value


def _same_attribute(a: Any, b: Any) -> bool:
    """Return whether values of attributes are equal, whatever numpy or JSON made of them; NaN equals NaN."""
    if a is None or b is None:
        return a is b
    left, right = np.asarray(a), np.asarray(b)
    if left.size != right.size:
        return False
    if left.dtype.kind in "fc" or right.dtype.kind in "fc":
        try:
            return bool(np.array_equal(left.astype("c16").ravel(), right.astype("c16").ravel(), equal_nan=True))
        except (TypeError, ValueError):
            return False
    return bool(np.all(left.ravel() == right.ravel()))


def clock_recodes(source: SourceInfo, arrays: Mapping[str, VariableInfo]) -> dict[str, Recode]:
    """Return the recodes of variables whose time units differ from the arrays'; bounds follow their variable."""
    recodes: dict[str, Recode] = {}
    for name, variable in source.variables.items():
        array = arrays.get(name)
        if array is None or not (is_time(variable.attrs) and is_time(array.attrs)):
            continue
        if same_clock(variable.attrs, array.attrs):
            continue
        recode = recode_between(f"variable {name!r} of {source.path!r}", variable.attrs, array.attrs)
        recodes[name] = recode
        for key in ("bounds", "climatology"):
            bounds = variable.attrs.get(key)
            if isinstance(bounds, str) and bounds in source.variables and "units" not in source.variables[bounds].attrs:
                recodes[bounds] = recode
    return recodes


def check_alignment(array: VariableInfo, axis: int, append_dim: str) -> None:
    """Check that the array ends where a chunk ends."""
    size, chunk = array.shape[axis], (array.chunks or array.shape)[axis]
    if size % chunk == 0:
        return
    fitting = [n for n in range(min(size, chunk), 0, -1) if size % n == 0][:3]
    raise AlignmentError(
        f"array {array.name!r} ends at {append_dim}={size}, inside a chunk of {chunk} (chunks end at "
        f"{size - size % chunk} "
        f"and {size - size % chunk + chunk}), and an append writes whole chunks only. Ingest the group anew "
        "with chunks "
        f"that divide every length that you will append: --chunks {append_dim}={fitting[0]} would do for this end"
        + (f" (so would {' and '.join(map(str, fitting[1:]))})" if fitting[1:] else "")
    )
