"""Reading less because of filters, where a load asks for it; it is off unless it does.

Spark 4.3 keeps what one query pushed for all others of the same DataFrame or view, which then get wrong rows; so this
is for loads that one query uses once.  Spark checks all filters again: what is done here only spares reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from arraystore.spark.source.options import told
from arraystore.spark.source.read import ArrayReader

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PruningReader", "bounds_of"]

Bounds = tuple[Any, Any]
"""The least and the greatest value, both included; None where there is no bound."""


class PruningReader(ArrayReader):
    """Reads the chunks that may hold what filters ask for."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Leave out what no filter asks for, and return all filters."""
        with told():
            self._plan = self._plan.pruned(bounds_of(filters))
        return filters


def bounds_of(filters: Iterable[Filter]) -> Mapping[str, Bounds]:
    """Return between which values columns are, if all filters hold."""
    found: dict[str, Bounds] = {}
    for one in filters:
        name, bounds = _bounds(one)
        if bounds is not None:
            found[name] = _both(found.get(name, (None, None)), bounds)
    return found


def _bounds(one: Filter) -> tuple[str, Bounds | None]:
    match one:
        case EqualTo(attribute=(str() as name,), value=value) if value is not None:
            return name, (value, value)
        case GreaterThan() | GreaterThanOrEqual() if len(one.attribute) == 1:
            return one.attribute[0], (one.value, None)
        case LessThan() | LessThanOrEqual() if len(one.attribute) == 1:
            return one.attribute[0], (None, one.value)
        case In(attribute=(str() as name,), value=values):
            given = [value for value in values if value is not None]
            return name, (min(given), max(given)) if given else None
        case _:
            return "", None


def _both(one: Bounds, other: Bounds) -> Bounds:
    lows = [low for low in (one[0], other[0]) if low is not None]
    highs = [high for high in (one[1], other[1]) if high is not None]
    return max(lows, default=None), min(highs, default=None)
