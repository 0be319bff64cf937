"""Checks of what is joined: numbers that mean the same, and coordinates with the same labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from virtualizarr.manifests import ManifestArray

from arraystore._changes.node_changes import axis_of
from arraystore._format.node import NodeKind
from arraystore._format.types import Array
from arraystore._format.zarr_metadata import array_info
from arraystore._session.listing import members
from arraystore._session.session import Session
from arraystore.virtual.arrays import MEANING
from arraystore.virtual.errors import VirtualizeError

_ROUNDING = 1e-6
"""Part of the largest label by which labels of two files may differ."""
_STEP = 0.01
"""Part of the usual step from one label to the next by which they may differ at most."""


def plain_attribute(value: Any) -> Any:
    """Return the value of an attribute as JSON has it."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def check_joinable(urls: Sequence[str], datasets: Sequence[xr.Dataset], dim: str) -> None:
    """Check files that are joined along a dimension against the first one, whose attributes and labels are kept."""
    for url, dataset in zip(urls[1:], datasets[1:], strict=True):
        owner = repr(urls[0])
        _check_names(url, along(dataset, dim), owner, along(datasets[0], dim), dim)
        for name, kept in datasets[0].variables.items():
            variable = dataset.variables.get(name)
            if variable is None:
                continue
            if variable.dims != kept.dims:
                raise VirtualizeError(
                    f"{name!r} of {url!r} has the dimensions {variable.dims}, and in {owner} it has {kept.dims}: refer "
                    "to the files from groups of their own, or leave the variable out (skip)"
                )
            if isinstance(kept.data, ManifestArray):
                check_meaning(f"{name!r} of {url!r}", attributes_of(variable), owner, attributes_of(kept))
            elif dim not in kept.dims:
                check_labels(f"{name!r} of {url!r}", variable, owner, kept)


def along(dataset: xr.Dataset, dim: str) -> set[str]:
    """Return the variables that have a dimension."""
    return {str(name) for name, variable in dataset.variables.items() if dim in variable.dims}


def _check_names(url: str, names: set[str], owner: str, kept: set[str], dim: str) -> None:
    if names != kept:
        raise VirtualizeError(
            f"{url!r} has {sorted(names)} along {dim!r}, and {owner} has {sorted(kept)}: arrays that are joined have "
            "all parts; leave out the others (skip)"
        )


def attributes_of(variable: xr.Variable) -> dict[str, Any]:
    """Return the attributes of a variable as they are stored."""
    return {**variable.encoding, **variable.attrs}


def check_meaning(what: str, attributes: Mapping[str, Any], owner: str, kept: Mapping[str, Any]) -> None:
    """Check that attributes that say what numbers mean are equal."""
    ours, theirs = (
        {n: json.dumps(plain_attribute(a[n]), default=str) for n in MEANING if n in a} for a in (attributes, kept)
    )
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            raise VirtualizeError(
                f"{what} has {name}={ours.get(name)}, and in {owner} it is {theirs.get(name)}: the same number "
                "would mean something else; copy the files instead (arraystore ingest), or refer to them from "
                "groups of their own"
            )


def check_labels(what: str, variable: xr.Variable, owner: str, kept: xr.Variable) -> None:
    """Check that values that are not joined are equal, but for rounding."""
    if not alike(np.asarray(variable.values), np.asarray(kept.values)):
        raise other_values(what, owner)


def other_values(what: str, owner: str) -> VirtualizeError:
    """Return the error for values that are not joined and differ."""
    return VirtualizeError(
        f"{what} has other values than in {owner}, which are kept: refer to the files from groups of their own, or "
        "leave the variable out (skip)"
    )


def alike(one: Array, other: Array) -> bool:
    """Tell whether values are equal; floating-point numbers may differ by rounding, far less than their step."""
    if one.shape != other.shape:
        return False
    kinds = {one.dtype.kind, other.dtype.kind}
    if "f" not in kinds or not kinds <= set("iuf"):
        return bool(np.array_equal(one, other, equal_nan=kinds <= set("c") or kinds <= set("m") or kinds <= set("M")))
    return bool(np.allclose(one, other, rtol=0, atol=_room(one, other), equal_nan=True))


def _room(one: Array, other: Array) -> float:
    """Return by how much labels may differ: less than a hundredth of their step, or the precision of their type."""
    largest = float(np.max(np.abs(other[np.isfinite(other)]), initial=0))
    steps = [np.abs(np.diff(other, axis=axis)) for axis in range(other.ndim)]
    usual = max((float(np.median(each[np.isfinite(each)])) for each in steps if np.isfinite(each).any()), default=0.0)
    precision = max(float(np.finfo(each.dtype).eps) for each in (one, other) if each.dtype.kind == "f")
    return max(precision * largest, min(_ROUNDING * largest, _STEP * usual))


def check_lengths(session: Session, group: str, dim: str) -> None:
    """Check that all arrays of a group are of one length along a dimension."""
    nodes = [node for node in members(session.hierarchy, group.strip("/")) if node.kind == NodeKind.ARRAY]
    axes = [(node, axis_of(node.documents, dim)) for node in nodes]
    lengths = {node.path: array_info(node.documents).shape[axis] for node, axis in axes if axis is not None}
    if len(set(lengths.values())) > 1:
        raise VirtualizeError(
            f"the arrays of group {'/' + group.strip('/')!r} would be of different lengths along {dim!r}, {lengths}: "
            "files that are appended have all arrays of the group, and no others (skip)"
        )
