"""Groups that xarray writes to: times of other units than those of their arrays are refused, and so is what wraps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xarray.backends import ZarrStore

from arraystore.errors import InvalidInputError
from arraystore.xarray.integer_limits import check_limits


class TimeCheckingStore(ZarrStore):
    """A group whose arrays take no times in other units than their own, and no numbers that their integers do not hold.

    Where the units of an array of integers do not hold a time, xarray counts in finer ones, and writes that count under
    the units that the array has.
    """

    __slots__ = ()

    def encode(self, variables: Any, attributes: Any) -> Any:
        """Encode variables, which xarray does before it writes anything; raise `InvalidInputError`."""
        for name, variable in variables.items():
            check_limits(name, variable)
        encoded, attributes = super().encode(variables, attributes)  # type: ignore[no-untyped-call,unused-ignore]
        there = () if self._mode == "w" else self.array_keys()  # type: ignore[no-untyped-call,unused-ignore]
        for name, variable in encoded.items():
            if name in there and _counts_time(variable.attrs):
                _check_units(name, variable.attrs["units"], self.zarr_group[name].attrs.get("units"))
        return encoded, attributes


def _counts_time(attributes: Mapping[str, Any]) -> bool:
    units = attributes.get("units")
    return isinstance(units, str) and (" since " in units or str(attributes.get("dtype")).startswith("timedelta64"))


def _check_units(name: str, wanted: str, held: object) -> None:
    if isinstance(held, str) and _unit(wanted) != _unit(held):
        raise InvalidInputError(
            f"the array {name!r} counts time in {held!r}, and the values to write in {wanted!r}: round them to the "
            "units of the array, or write it anew in finer ones"
        )


def _unit(units: str) -> str:
    """Return the unit of a count of time, as xarray reads it."""
    return units.partition(" since ")[0].strip().lower().removesuffix("s")
