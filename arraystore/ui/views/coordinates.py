"""Labels of axes: coordinate arrays as CF has them, with times in any calendar."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from arraystore._format.node import Node, NodeKind
from arraystore._format.zarr_metadata import array_info
from arraystore._session.regions.access import open_array
from arraystore._session.regions.layout import layout_of
from arraystore._session.session import Session
from arraystore.errors import ArrayStoreError, InvalidInputError
from arraystore.ui.views.bounded_reading import read_bounded
from arraystore.ui.views.hierarchy import document_of, inner_chunk_shape
from arraystore.ui.views.item_texts import durations
from arraystore.ui.views.limits import MAX_COORDINATES
from arraystore.ui.views.packing import is_packed, packing_of, unpacked
from arraystore.ui.views.snapshots import state_of

__all__ = ["Axis", "Coordinate", "axis_of", "load_coordinate"]

_KEPT = 8
_LONGEST_LABEL = 64
_LONGEST_ITEM = 1_024
"""Bytes of an item of a fixed size."""
_DIGITS = 8
"""Digits of a label, which tell coordinates in metres apart."""
_HALF_A_MILLISECOND = timedelta(microseconds=500)

_read: WeakKeyDictionary[Session, OrderedDict[str, Coordinate | None]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Axis:
    """One dimension of what is shown."""

    dimension: int
    name: str
    size: int
    start: int
    stop: int
    """Items that are shown, from `start` to `stop` (exclusive)."""
    step: int
    """Every how many-th of them."""
    labels: tuple[str, ...] | None
    """Label of each item that is shown; None without a coordinate."""
    values: tuple[float, ...] | None
    """Numeric values of the same; None for other coordinates."""
    units: str | None
    title: str | None
    """Long or standard name."""


@dataclass(frozen=True, eq=False)
class Coordinate:
    """Values along one dimension."""

    values: npt.NDArray[Any]
    attributes: Mapping[str, Any]

    @property
    def is_time(self) -> bool:
        """Tell whether the values count time since an epoch."""
        units = self.attributes.get("units")
        return isinstance(units, str) and " since " in units

    def labels(self, at: slice | int) -> tuple[str, ...]:
        """Return the values as text."""
        values = np.atleast_1d(self.values[at])
        if self.is_time and values.dtype.kind in "iuf":
            times = _times(values, self.attributes)
            if times is not None:
                return times
        if values.dtype.kind in "fc":
            digits = _DIGITS if values.dtype.itemsize > 4 else _DIGITS - 1
            return tuple([f"{value:.{digits}g}" for value in values.tolist()])
        if values.dtype.kind == "m":
            return tuple(durations(values))
        if values.dtype.kind == "M":
            return tuple(np.datetime_as_string(values, unit="auto").tolist())
        return tuple([str(value)[:_LONGEST_LABEL] for value in values.tolist()])

    def numbers(self, at: slice) -> tuple[float, ...] | None:
        """Return the values as finite numbers; None for others, and for times."""
        values = self.values[at]
        if self.is_time or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
            return None
        return tuple(values.astype(float).tolist())


def _times(values: npt.NDArray[Any], attributes: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return numbers since an epoch as dates; None for units or a calendar that are not those of CF."""
    import cftime

    calendar = attributes.get("calendar", "standard")
    try:
        numbers = np.ma.masked_invalid(values) if values.dtype.kind == "f" else values
        dates = cftime.num2date(numbers, attributes["units"], calendar if isinstance(calendar, str) else "standard")
        return _date_texts(np.ma.atleast_1d(dates).tolist())
    except (ValueError, OverflowError, TypeError, KeyError, AttributeError):
        return None


def _date_texts(dates: Sequence[Any]) -> tuple[str, ...]:
    """Return dates to the minute, or finer where one of them needs it; an empty string for none."""
    rounded = [None if date is None else date + _HALF_A_MILLISECOND for date in dates]  # floating-point times are near
    known = [date for date in rounded if date is not None]
    finest = "seconds" if any(date.second for date in known) else "minutes"
    finest = "milliseconds" if any(date.microsecond >= 1000 for date in known) else finest
    texts = ["" if date is None else str(date.isoformat(sep=" ", timespec=finest)) for date in rounded]
    return tuple([text.removesuffix(" 00:00") for text in texts])


def axis_of(
    name: str | None, dimension: int, size: int, window: tuple[int, int, int], coordinate: Coordinate | None
) -> Axis:
    """Return an axis, with the labels of `window`: start, stop and step."""
    start, stop, step = window
    at = slice(start, stop, step)
    attributes: Mapping[str, Any] = {} if coordinate is None else coordinate.attributes
    time = coordinate is not None and coordinate.is_time
    return Axis(
        dimension,
        name or f"dimension {dimension}",
        size,
        start,
        stop,
        step,
        None if coordinate is None else coordinate.labels(at),
        None if coordinate is None else coordinate.numbers(at),
        None if time else text_of(attributes, "units"),
        text_of(attributes, "long_name", "standard_name"),
    )


def text_of(attributes: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of some attributes that is text."""
    found = [attributes[name] for name in names if isinstance(attributes.get(name), str)]
    return found[0][:200] if found else None


async def load_coordinate(session: Session, array: Node, name: str | None, size: int) -> Coordinate | None:
    """Load the coordinate of a dimension: an array of its name and size beside the array, or above it.

    None if there is none, or none that a page can read.
    """
    node = None if name is None else _find(session, array.path, name, size)
    if node is None:
        return None
    kept = _read.setdefault(session, OrderedDict())
    if node.path not in kept:
        try:
            kept[node.path] = await _load(session, node)
        except (ArrayStoreError, ValueError, TypeError, KeyError, RuntimeError):
            kept[node.path] = None  # a label less; the array itself says what is wrong with it
        while len(kept) > _KEPT:
            kept.popitem(last=False)
    return kept.get(node.path)


def _find(session: Session, path: str, name: str, size: int) -> Node | None:
    nodes = state_of(session).nodes
    above = path
    while above:
        above = above.rpartition("/")[0]
        node = nodes.get(f"{above}/{name}" if above else name)
        if node is not None and node.kind == NodeKind.ARRAY and _shape(node) == (size,):
            return node
    return None


def _shape(node: Node) -> tuple[int, ...] | None:
    try:
        return array_info(node.documents).shape
    except InvalidInputError:
        return None


async def _load(session: Session, node: Node) -> Coordinate | None:
    layout = layout_of(open_array(session, node.path))
    chunk: Sequence[int] = inner_chunk_shape(document_of(node)) or (MAX_COORDINATES + 1,)
    if max(layout.shape[0], chunk[0]) > MAX_COORDINATES or layout.dtype.itemsize > _LONGEST_ITEM:
        return None
    values, attributes = await read_bounded(session, node, [slice(0, layout.shape[0])]), packing_of(node)
    if values.dtype.kind in "iuf" and is_packed(attributes):
        values = unpacked(values, attributes)
    return Coordinate(values, attributes)
