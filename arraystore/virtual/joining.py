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
from arraystore._format.zarr_metadata import array_info
from arraystore._session.listing import members
from arraystore._session.session import Session
from arraystore.virtual.arrays import MEANING
from arraystore.virtual.errors import VirtualizeError

_ROUNDING = 1e-6
"""Part of the largest label by which labels of two files may differ."""


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
            if isinstance(kept.data, ManifestArray):
                if dim in kept.dims:
                    _check_meaning(f"{name!r} of {url!r}", variable, owner, kept)
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


def _meaning(variable: xr.Variable) -> Mapping[str, str]:
    attributes = {**variable.encoding, **variable.attrs}
    return {n: json.dumps(plain_attribute(attributes[n]), default=str) for n in MEANING if n in attributes}


def _check_meaning(what: str, variable: xr.Variable, owner: str, kept: xr.Variable) -> None:
    ours, theirs = _meaning(variable), _meaning(kept)
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            raise VirtualizeError(
                f"{what} has {name}={ours.get(name)}, and in {owner} it is {theirs.get(name)}: the same number "
                "would mean something else; copy the files instead (arraystore ingest), or refer to them from "
                "groups of their own"
            )


def check_labels(what: str, variable: xr.Variable, owner: str, kept: xr.Variable) -> None:
    """Check that values that are not joined are equal, but for rounding."""
    if not _alike(np.asarray(variable.values), np.asarray(kept.values)):
        raise VirtualizeError(
            f"{what} has other values than in {owner}, which are kept: refer to the files from groups of their own, or "
            "leave the variable out (skip)"
        )


def _alike(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind not in "iuf" or other.dtype.kind not in "iuf":
        return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "mM" and other.dtype.kind in "mM"))
    room = _ROUNDING * float(np.max(np.abs(other[np.isfinite(other)]), initial=0))
    return bool(np.allclose(one, other, rtol=0, atol=room, equal_nan=True))


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
