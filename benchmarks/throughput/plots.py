"""The plots of docs/throughput.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.throughput.points import Point
from benchmarks.throughput.published import FAST_APPEND

__all__ = ["FOLDER", "draw"]

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "throughput"
_PUBLISHED, _CORRECTED, _OURS = "table format, published", "table format, corrected (model)", "arraystore (simulated)"


def _ours(points: Sequence[Point], light: float = 1.0) -> list[Point]:
    """One point for each rate; the long run time where there is one."""
    chosen: dict[float, Point] = {}
    for point in points:
        if point.experiment in ("long", "short") and (point.light, point.kind) == (light, "all"):
            known = chosen.get(point.mean_ms)
            if known is None or known.experiment == "short":
                chosen[point.mean_ms] = point
    return [chosen[mean] for mean in sorted(chosen, reverse=True)]


def _theirs(model: Sequence[Point]) -> list[Point]:
    found = [p for p in model if p.experiment == "1a corrected, as described"]
    return sorted(found, key=lambda point: -point.mean_ms)


def _line(axes: Axes, points: Sequence[Point], values: Sequence[float], style: str, color: str, label: str) -> None:
    axes.plot([1000 / point.mean_ms for point in points], values, style, color=color, label=label)


def _success(axes: Axes, ours: Sequence[Point], model: Sequence[Point]) -> None:
    rates = [1000 / row.mean_ms for row in FAST_APPEND]
    axes.plot(rates, [100 * row.success for row in FAST_APPEND], "o-", color="C0", label=_PUBLISHED)
    theirs, mine = _theirs(model), _ours(ours)
    _line(axes, theirs, [100 * p.figures.success for p in theirs], "s--", "C1", _CORRECTED)
    _line(axes, mine, [100 * p.figures.success for p in mine], "^-", "C2", _OURS)
    axes.set_ylabel("transactions that succeed, %")
    axes.set_ylim(0, 104)


def _latency(axes: Axes, ours: Sequence[Point], model: Sequence[Point]) -> None:
    theirs, mine = _theirs(model), _ours(ours)
    for name, style in (("p50", "-"), ("p99", "--")):
        _line(axes, theirs, [getattr(p.figures, name) for p in theirs], "s" + style, "C1", f"{_CORRECTED}, {name}")
        _line(axes, mine, [getattr(p.figures, name) for p in mine], "^" + style, "C2", f"{_OURS}, {name}")
    axes.set_ylabel("latency of commits that succeed, s")
    axes.set_ylim(0, None)


def _throughput(axes: Axes, ours: Sequence[Point], model: Sequence[Point]) -> None:
    theirs = _theirs(model)
    _line(axes, theirs, [p.figures.throughput for p in theirs], "s--", "C1", _CORRECTED)
    for light, color in ((1.0, "C2"), (0.5, "C4")):
        mine = _ours(ours, light)
        _line(axes, mine, [p.figures.throughput for p in mine], "^-", color, f"{_OURS}, {light:.0%} light")
    axes.set_yscale("log")
    axes.set_ylabel("commits/s")


def _requests(axes: Axes, ours: Sequence[Point], model: Sequence[Point]) -> None:
    """Theirs: four for each attempt, one after each that failed; those of who gives up count as well."""
    theirs, mine = _theirs(model), _ours(ours)
    wasted = [(1 / p.figures.success - 1) * (11 * 4 + 10) for p in theirs]
    used = [4 * (1 + p.figures.retries) + p.figures.retries for p in theirs]
    _line(
        axes,
        theirs,
        [a + b for a, b in zip(used, wasted, strict=True)],
        "s--",
        "C1",
        f"{_CORRECTED}, without the catalog's",
    )
    _line(axes, mine, [p.more["requests"] for p in mine], "^-", "C2", _OURS)
    axes.set_ylabel("requests a commit")
    axes.set_yscale("log")


_PLOTS = {
    "success.svg": ("Share of transactions that succeed, by arrivals a second", _success),
    "latency.svg": ("Latency of commits, by arrivals a second", _latency),
    "rate.svg": ("Commits a second, by arrivals a second", _throughput),
    "requests.svg": ("Requests a commit, by arrivals a second", _requests),
}


def draw(ours: Sequence[Point], model: Sequence[Point]) -> dict[str, str]:
    """Draw all plots into docs/throughput; returns file names and what they show."""
    FOLDER.mkdir(exist_ok=True)
    mpl.rcParams["svg.hashsalt"] = "throughput"
    for name, (title, fill) in _PLOTS.items():
        figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
        fill(axes, ours, model)
        axes.set_xscale("log")
        axes.set_xlabel("arrivals a second")
        axes.set_title(title, fontsize=10)
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=7)
        figure.savefig(FOLDER / name, metadata={"Date": None})
        plt.close(figure)
    return {name: title for name, (title, _) in _PLOTS.items()}
