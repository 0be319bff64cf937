"""Points of the experiment, their figures, and the files that keep them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.throughput.outcomes import Figures

__all__ = ["RESULTS", "Point", "load", "note", "save"]

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Point:
    """The figures of one setting, of all its seeds together.

    Parameters
    ----------
    experiment
        What the point is part of.
    mean_ms, light, catalog_ms
        Time between arrivals, share of light transactions, time of a compare-and-set.
    kind
        ``all``, ``light`` or ``heavy``.
    seeds
        How many runs.
    figures
        Means of their figures.
    more
        What else is known, by name.
    """

    experiment: str
    mean_ms: float
    light: float
    catalog_ms: float
    kind: str
    seeds: int
    figures: Figures
    more: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values, to keep."""
        return {**self.__dict__, "figures": self.figures.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Point:
        """The reverse of `to_json`."""
        return cls(**{**value, "figures": Figures(**value["figures"])})


def note(text: str) -> None:
    """Tell whoever waits how far it is."""
    print(text, file=sys.stderr, flush=True)


def save(name: str, environment: str, points: Iterable[Point]) -> None:
    """Keep points."""
    RESULTS.mkdir(exist_ok=True)
    found = {"environment": environment, "points": [point.to_json() for point in points]}
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


def load(name: str) -> tuple[str, list[Point]]:
    """What was kept; nothing if nothing was."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return "", []
    found = json.loads(path.read_text())
    return found["environment"], [Point.from_json(value) for value in found["points"]]
