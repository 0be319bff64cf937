"""What became of transactions, and the figures that sum it up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from benchmarks.throughput.workload import Workload

__all__ = ["Figures", "Outcome", "figures", "mean_of", "percentile"]


@dataclass(frozen=True)
class Outcome:
    """One transaction; times in seconds.

    Parameters
    ----------
    arrived, began, ended
        When it came, when it had run and began to commit, and when it knew what had become of it.
    heavy
        Whether it overwrote and validated.
    committed
        Whether it was committed.
    retries
        Attempts after the first.
    requests
        Of its commit, where they are counted.
    """

    arrived: float
    began: float
    ended: float
    heavy: bool
    committed: bool
    retries: int
    requests: int = 0


@dataclass(frozen=True)
class Figures:
    """What a group of transactions came to; times in seconds, shares from 0 to 1."""

    transactions: int
    committed: int
    success: float
    throughput: float
    mean: float
    p50: float
    p95: float
    p99: float
    retries: float
    requests: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a file of results."""
        return asdict(self)


def percentile(ordered: Sequence[float], share: float) -> float:
    """A percentile of sorted values, between neighbours in proportion; NaN of none."""
    if not ordered:
        return math.nan
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def figures(outcomes: Iterable[Outcome], workload: Workload, heavy: bool | None = None) -> Figures:
    """Sum up what was decided within the window of a workload; `heavy` picks one kind."""
    first, last = workload.window
    chosen = [each for each in outcomes if first <= each.ended < last and heavy in (None, each.heavy)]
    committed = [each for each in chosen if each.committed]
    waits = sorted(each.ended - each.began for each in committed)
    nothing = math.nan
    return Figures(
        len(chosen),
        len(committed),
        len(committed) / len(chosen) if chosen else nothing,
        len(committed) / (last - first),
        fmean(waits) if waits else nothing,
        percentile(waits, 0.5),
        percentile(waits, 0.95),
        percentile(waits, 0.99),
        fmean(each.retries for each in committed) if committed else nothing,
        fmean(each.requests for each in committed) if committed else nothing,
    )


def mean_of(runs: Sequence[Figures]) -> Figures:
    """The mean of several runs' figures, those left out that have none."""

    def mean(name: str) -> float:
        values = [value for value in (float(getattr(run, name)) for run in runs) if not math.isnan(value)]
        return fmean(values) if values else math.nan

    transactions, committed = (sum(getattr(run, name) for run in runs) for name in ("transactions", "committed"))
    return Figures(
        transactions,
        committed,
        mean("success"),
        mean("throughput"),
        mean("mean"),
        mean("p50"),
        mean("p95"),
        mean("p99"),
        mean("retries"),
        mean("requests"),
    )
