"""Merging of nearby byte ranges into one request."""

from __future__ import annotations

from collections.abc import Sequence

from arraystore.storage.protocol import ByteRange

__all__ = ["merge_ranges"]


def merge_ranges(ranges: Sequence[ByteRange], gap: int) -> list[ByteRange]:
    """Return ascending ranges that cover `ranges`, with those at most `gap` bytes apart merged."""
    merged: list[ByteRange] = []
    for start, stop in sorted(ranges):
        if start == stop:
            continue
        if merged and start - merged[-1][1] <= gap:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged
