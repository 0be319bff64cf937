"""Groups that xarray writes to, which refuse what would be stored as something else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import xarray as xr
from xarray.backends import ZarrStore

from arraystore.errors import InvalidInputError
from arraystore.xarray.time_units import check_units, counts_time
from arraystore.xarray.value_limits import checked

_OF_TIME = ("units", "calendar")


class CheckingStore(ZarrStore):
    """A group whose arrays take no times in other units than their own, and no values that they do not hold.

    Where the units of an array of integers do not hold a time, xarray counts in finer ones, and writes that count under
    the units that the array has, as it does with numbers that were not decoded.
    """

    __slots__ = ("_times_by_bounds",)

    def open_store_variable(self, name: str) -> xr.Variable:
        """Return a variable; bounds of times count as these do, which xarray knows only of what it opens together."""
        variable: xr.Variable = super().open_store_variable(name)  # type: ignore[no-untyped-call,unused-ignore]
        variable.attrs = {**self._inherited(name), **variable.attrs}
        return variable

    def encode(self, variables: Any, attributes: Any) -> Any:
        """Encode variables, which xarray does before it writes anything; raise `InvalidInputError`."""
        there = () if self._mode == "w" else self.array_keys()  # type: ignore[no-untyped-call,unused-ignore]
        encoded = {name: self._encoded(name, variable, name in there) for name, variable in variables.items()}
        _, attributes = super().encode({}, attributes)  # type: ignore[no-untyped-call,unused-ignore]
        return encoded, attributes

    def _encoded(self, name: Any, variable: xr.Variable, exists: bool) -> xr.Variable:
        there: Any = self.members[name] if exists else None
        variable = checked(name, variable, there.dtype if exists else None)
        try:
            encoded, _ = super().encode({name: variable}, {})  # type: ignore[no-untyped-call,unused-ignore]
        except (TypeError, KeyError, OverflowError) as error:
            raise InvalidInputError(
                f"xarray cannot encode the variable {name!r} ({variable.dtype}): {error!r}"
            ) from error
        new: xr.Variable = encoded[name]
        if exists and there.dtype == "S1" and new.ndim < there.ndim:  # xarray would repeat the first ones
            raise InvalidInputError(
                f"the array {name!r} holds strings character by character along its last dimension, into which xarray "
                "does not split them: write it by zarr or Session.append, and leave it out of the dataset"
            )
        if exists and counts_time(new.attrs):
            check_units(name, new.attrs, {**self._inherited(name), **there.attrs})
        return new

    def _inherited(self, name: str) -> Mapping[str, Any]:
        """Return how an array counts time that lacks units, by the array whose bounds it has."""
        if not hasattr(self, "_times_by_bounds"):
            self._times_by_bounds = _times_by_bounds(self.members.values())
        return self._times_by_bounds.get(name, {})


def _times_by_bounds(arrays: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Return units and calendars of times by the names of their bounds."""
    found = {}
    for attributes in (array.attrs.asdict() for array in arrays):
        if isinstance(bounds := attributes.get("bounds"), str) and counts_time(attributes):
            found[bounds] = {key: attributes[key] for key in _OF_TIME if key in attributes}
    return found
