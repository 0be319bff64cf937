"""Coordinates of an array that grows, which must be those that it has: what is there would get other labels."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextvars import Context
from typing import Any

import numpy as np
import xarray as xr
from xarray import conventions

from arraystore._format.types import Array
from arraystore._session.base import SessionBase
from arraystore._session.regions.opened_arrays import read_whole
from arraystore.errors import InvalidInputError
from arraystore.xarray.batches import batches


def check_coordinates(
    session: SessionBase, store: Any, dataset: xr.Dataset, append_dim: Hashable, compute_kwargs: Mapping[str, Any]
) -> set[str]:
    """Compare coordinates that lack the dimension of an append with those of a group, and return their paths.

    They are compared as they would be stored, with the encoding of the array that is there, which lets neither
    rounding nor another data type make a difference.  Raises `InvalidInputError` if one differs.
    """
    group = store.zarr_group.path
    names = [name for name in _kept(dataset, append_dim) if name in store.array_keys()]
    there = {name: store.open_store_variable(name) for name in names}
    encoded = _encoded(store, {name: dataset.variables[name] for name in names}, there)
    new = {_path(group, name): (name, each) for name, each in _comparable(encoded, there).items()}
    for path, held in _stored(session, {path: variable.nbytes for path, (_, variable) in new.items()}):
        name, variable = new[path]
        values = variable.compute(**compute_kwargs).values
        if not equal_values(held, values):
            raise _differs(name, group, append_dim, variable, held, values)
    return set(new)


def equal_values(first: Array, second: Array) -> bool:
    """Tell whether arrays have equal values, missing ones among them, of whatever data types."""
    if first.shape != second.shape:
        return False
    return bool(np.all(_equal(first, second)))


def _equal(first: Array, second: Array) -> Array:
    """Return which values are equal; missing ones equal each other."""
    if first.dtype.kind not in "biufcmM" or second.dtype.kind not in "biufcmM":
        first, second = first.astype(object), second.astype(object)  # strings of whatever lengths
    missing = np.not_equal(first, first) & np.not_equal(second, second)
    return np.asarray((first == second) | missing, dtype=bool)


def _stored(session: SessionBase, sizes: Mapping[str, int]) -> Iterator[tuple[str, Array]]:
    """Yield arrays, of bytes by path, small ones read together; the append depends on them."""
    for paths in batches(sizes, sizes.__getitem__):
        found = Context().run(read_whole, session, paths)  # outside of any block that suspends the tracking of reads
        yield from zip(paths, map(np.asarray, found), strict=True)


# -- what is compared -------------------------------------------------------------------------------------------


def _kept(dataset: xr.Dataset, append_dim: Hashable) -> Iterator[str]:
    """Yield the names of coordinates that lack a dimension, and of the bounds of their cells."""
    for name, coordinate in dataset.coords.items():
        bounds = coordinate.attrs.get("bounds", coordinate.encoding.get("bounds"))
        for each in (name, bounds):
            if each in dataset.variables and append_dim not in dataset.variables[each].dims:
                yield str(each)


def _encoded(store: Any, new: Mapping[str, xr.Variable], there: Mapping[str, xr.Variable]) -> dict[str, xr.Variable]:
    """Return variables as xarray would write them into existing arrays."""
    decoded, *_ = conventions.decode_cf_variables(there, attributes={})
    encodable = {}
    for name, variable in new.items():
        encodable[name] = variable.copy(deep=False)
        encodable[name].encoding = decoded[name].encoding
    encoded, _ = store.encode(encodable, {})
    return dict(encoded)


def _comparable(encoded: Mapping[str, xr.Variable], there: Mapping[str, xr.Variable]) -> dict[str, xr.Variable]:
    """Return the variables of the dimensions of their arrays, in their order; others are refused by xarray."""
    return {
        name: variable.transpose(*there[name].dims)
        for name, variable in encoded.items()
        if dict(variable.sizes) == dict(there[name].sizes)
    }


def _path(group: str, name: str) -> str:
    return f"{group}/{name}".strip("/")


# -- what is said of a difference -------------------------------------------------------------------------------


def _differs(
    name: str, group: str, append_dim: Hashable, variable: xr.Variable, held: Array, values: Array
) -> InvalidInputError:
    where = f"of group {'/' + group.strip('/')!r}"
    return InvalidInputError(
        f"{name!r} {where} lacks the dimension {append_dim!r} and differs from what is stored: "
        f"{_difference(name, variable, held, values)}. Written, it would label the data that are there; left out, what "
        f"is stored would label the data to append. Select or sort the dataset by the stored {name!r}; or write "
        f"{name!r} on its own first, with mode='a' and without append_dim; or append by position, without it: "
        f"dataset.drop_vars({name!r})"
    )


def _difference(name: str, variable: xr.Variable, held: Array, values: Array) -> str:
    other = np.flatnonzero(~_equal(held, values))
    if values.ndim == 1 and equal_values(held[::-1], values):
        return f"it has the {len(values)} stored values in reverse order"
    stored, new = (
        conventions.decode_cf_variable(name, xr.Variable(variable.dims, each, variable.attrs)).values.ravel()[other[0]]
        for each in (held, values)
    )
    place = f", the first at {_place(variable, int(other[0]))}" if values.ndim else ""
    return f"{len(other)} of {held.size} values{place}: {stored!s} is stored, {new!s} is to be written"


def _place(variable: xr.Variable, item: int) -> str:
    index = np.unravel_index(item, variable.shape)
    return ", ".join(f"{dim}={int(at)}" for dim, at in zip(variable.dims, index, strict=True))
