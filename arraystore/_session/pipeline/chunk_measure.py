"""Least and greatest values of whole chunks, from the very memory that is encoded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from arraystore._chunks.statistics_log import StatisticsRows
from arraystore._format.chunk_statistics import VALUE_TYPES, digest_of_encoding, value_kind
from arraystore._format.node import Node
from arraystore._format.types import Array, Int64s
from arraystore._runtime.values import dataclass
from arraystore._session.pipeline.emptiness import FillValue
from arraystore._session.pipeline.shards import ArrayCodec

_ITEMS = 1 << 20
"""Items that are looked at together: they stay in the processor's cache for the passes over them."""


@dataclass(frozen=True)
class ChunkMeasure:
    """Computes the statistics of an array's chunks: of all items, those beyond its end included."""

    encoding: bytes
    kind: str
    dtype: np.dtype[Any]
    """Type of the items, in native byte order."""
    fill: Any
    """Fill value as an item, or NaN."""

    @classmethod
    def of(cls, node: Node, codec: ArrayCodec, fill: FillValue) -> ChunkMeasure | None:
        """Return the measure of an array; None for types that have no statistics."""
        kind, encoding = value_kind(codec.dtype), digest_of_encoding(node.documents)
        if kind is None or encoding is None:
            return None
        dtype = codec.dtype.newbyteorder("=")
        return cls(encoding, kind, dtype, np.asarray(fill.value, dtype=dtype)[()])

    def own(self, items: Array) -> Array:
        """Return a copy of a user's items: they may change while they are looked at and encoded."""
        return np.array(items, dtype=self.dtype, order="C")

    def rows(self, chunks: Array, dimensions: int, at: Int64s) -> StatisticsRows:
        """Return the statistics of chunks by their positions `at`, in row-major order.

        `chunks` has an axis of chunks for each dimension, then their items.
        """
        places = np.unravel_index(at, chunks.shape[:dimensions])
        step = max(1, _ITEMS // math.prod(chunks.shape[dimensions:]))
        parts = [
            self._of_items(chunks[tuple([place[first : first + step] for place in places])].reshape(-1, size))
            for size in [math.prod(chunks.shape[dimensions:])]
            for first in range(0, len(at), step)
        ]
        least, greatest, nans, fills, valued = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return StatisticsRows(self.encoding, self.kind, least, greatest, nans, fills, valued)

    def _of_items(self, items: Array) -> tuple[Array, Array, Int64s, Int64s, Array]:
        """Return least, greatest, counts of NaN and fill values, and whether there are others, of each row."""
        is_nan = np.isnan(items) if items.dtype.kind == "f" else np.zeros((), dtype=np.bool_)
        is_fill = items == self.fill
        aside = is_nan | is_fill
        rows = len(items)
        nans = np.broadcast_to(is_nan, items.shape).sum(axis=1, dtype=np.int64)
        fills = is_fill.sum(axis=1, dtype=np.int64)
        valued = nans + fills < items.shape[1]
        kind = VALUE_TYPES[self.kind]
        least, greatest = np.zeros(rows, dtype=kind), np.zeros(rows, dtype=kind)
        some = items[valued].view(np.uint8) if items.dtype.kind == "b" else items[valued]
        if len(some):
            low, high = _limits(some.dtype)
            kept = ~aside[valued]
            least[valued] = some.min(axis=1, initial=high, where=kept)
            greatest[valued] = some.max(axis=1, initial=low, where=kept)
        return least, greatest, nans, fills, valued


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return what is below and above all values of a type, or equal to them."""
    if dtype.kind == "f":
        return dtype.type(-np.inf), dtype.type(np.inf)
    info = np.iinfo(dtype)
    return info.min, info.max
