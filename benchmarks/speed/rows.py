"""Rows of the speed table: what each contender took for a part of a workload."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.speed.contenders import OURS_ZARR

__all__ = ["Line", "Row", "rows_of"]


@dataclass(frozen=True)
class Row:
    """All samples of one workload."""

    name: str
    title: str
    samples: Mapping[str, Mapping[str, list[float]]]
    """Seconds of all rounds, by contender and part."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for the file of results."""
        return asdict(self)


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    workload: str
    title: str
    part: str
    seconds: Mapping[str, float]
    """Median seconds by contender."""
    ratios: Mapping[str, float]
    """Time over that of the reference, median over pairs of one round each, by contender; less is better."""

    def ratio(self, name: str, other: str) -> float | None:
        """Return one contender's time over that of another; None where one of them was not measured."""
        if name not in self.seconds or other not in self.seconds:
            return None
        return self.ratios[name] / self.ratios[other]


def rows_of(rows: Iterable[Row], reference: str = OURS_ZARR) -> list[Line]:
    """Return a line for each part of each workload, each relative to the reference where it was measured."""
    lines = []
    for row in rows:
        parts = next(iter(row.samples.values())).keys()
        base = reference if reference in row.samples else next(iter(row.samples))
        for part in parts:
            seconds = {name: statistics.median(found[part]) for name, found in row.samples.items()}
            ratios = {name: _paired(found[part], row.samples[base][part]) for name, found in row.samples.items()}
            lines.append(Line(row.name, row.title, part, seconds, ratios))
    return lines


def _paired(ours: list[float], base: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(ours, base, strict=True))
