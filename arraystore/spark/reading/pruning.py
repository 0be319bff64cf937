"""Pruning: the chunks in which a predicate may hold, by the statistics of those that have any."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import zarr

from arraystore._format.chunk_statistics import ChunkStatistics
from arraystore._format.references import References
from arraystore._format.types import Bools, Int64s
from arraystore._format.zarr_metadata import array_info
from arraystore._session.base import SessionBase
from arraystore._session.measured_chunks import measured_chunks
from arraystore.errors import InvalidInputError
from arraystore.spark.reading.decoding import Decoder
from arraystore.spark.reading.predicate import Comparison

_MOST_ABSENT = 1 << 22
"""Chunks of an array up to which those that are not stored are enumerated."""


def check_comparable(column: str, decoder: Decoder) -> None:
    """Check that a column has numbers or truth values, which a predicate compares."""
    if decoder.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"where compares column {column!r} of type {decoder.dtype}, and only numbers and truth values can be: "
            "select labels with sel, and filter the frame by anything else with its where()"
        )


def kept_chunks(
    session: SessionBase, array: zarr.Array[Any], decoder: Decoder, comparisons: Sequence[Comparison]
) -> Int64s | None:
    """Return the coordinates of the stored chunks of an array, and missing ones, that may have rows.

    None if they are all that there may be, or too many to enumerate.
    """
    node, references, known = measured_chunks(session, array.path)
    kept = np.ones(len(references), dtype=np.bool_)
    if known is not None and is_ordered(decoder):
        kept = _may_hold(references, known, array, decoder, comparisons)
    if not _fill_satisfies(array, decoder, comparisons):
        return references.coords[kept]
    grid = array_info(node.documents).grid
    if kept.all() or math.prod(grid) > _MOST_ABSENT:
        return None
    every = np.ones(grid, dtype=np.bool_)
    inside = (references.coords < np.array(grid, dtype=np.int64)).all(axis=1)
    every[tuple(references.coords[inside & ~kept].T)] = False
    return np.argwhere(every)


def is_ordered(decoder: Decoder) -> bool:
    """Tell whether decoded values are in the order of the stored ones, or in the opposite one."""
    linear = all(number is None or math.isfinite(number) for number in (decoder.scale, decoder.offset))
    return linear and decoder.view is None and decoder.time_codec is None and not decoder.truth


def _may_hold(
    references: References,
    known: ChunkStatistics,
    array: zarr.Array[Any],
    decoder: Decoder,
    comparisons: Sequence[Comparison],
) -> Bools:
    """Tell in which chunks all comparisons may hold."""
    rows = known.rows_of(references)
    there = np.flatnonzero(rows >= 0)
    kept = np.ones(len(references), dtype=np.bool_)
    measured = known.take(rows[there])
    kept[there] = np.logical_and.reduce([_may_hold_in(measured, array, decoder, each) for each in comparisons])
    return kept


def _may_hold_in(known: ChunkStatistics, array: zarr.Array[Any], decoder: Decoder, comparison: Comparison) -> Bools:
    """Tell in which chunks of some statistics a comparison may hold: of the interval, of NaN, or of fill values."""
    ends = [_shown(decoder, end) for end in (known.least, known.greatest)]
    # A fill value apart, no value of the interval is missing unless its ends tell nothing of those between them.
    unknown = np.logical_or.reduce([np.isnan(end) for end in ends]) if ends[0].dtype.kind == "f" else False
    may = known.valued & (comparison.may_hold(np.minimum(*ends), np.maximum(*ends)) | unknown)
    if decoder.stored.kind == "f":
        may |= (known.nans > 0) & _holds_of(np.nan, decoder, comparison)
    fill: Any = 0 if array.fill_value is None else array.fill_value
    may |= (known.fills > 0) & _holds_of(fill, decoder, comparison)
    return np.asarray(may, dtype=np.bool_)


def _shown(decoder: Decoder, stored: Any) -> Any:
    """Return stored values as the column shows them, whether or not some of them mean a missing one."""
    kind = decoder.stored.newbyteorder("=")
    values = np.asarray(stored)
    with np.errstate(all="ignore"):
        return decoder.decode(values.astype(kind) if values.dtype != kind else values).values


def _holds_of(stored: Any, decoder: Decoder, comparison: Comparison) -> bool:
    """Tell whether a comparison holds of a stored value; not of one that means a missing value."""
    with np.errstate(all="ignore"):
        values, missing = decoder.decode(np.asarray([stored]).astype(decoder.stored.newbyteorder("=")))
    return missing is None and bool(comparison.holds(values)[0])


def _fill_satisfies(array: zarr.Array[Any], decoder: Decoder, comparisons: Sequence[Comparison]) -> bool:
    """Tell whether rows of chunks that are not stored may satisfy all comparisons."""
    if array.fill_value is None:  # of Zarr version 2, where it is whatever zarr reads
        return True
    return all(_holds_of(array.fill_value, decoder, each) for each in comparisons)
