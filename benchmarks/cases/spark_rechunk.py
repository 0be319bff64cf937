"""Maps rechunked to series on Spark, beside copying them once, and the memory of the workers."""

from __future__ import annotations

from benchmarks.rechunking import COPY, COPY_BACK, RECHUNK, measure
from benchmarks.results import Bar, CaseResult, Table, at_most
from benchmarks.setup import Setup
from benchmarks.timing import note

__all__ = ["run"]

_BAR = 1.5
_MEMORY = 512 << 20
_MB = 1e6


def run(setup: Setup) -> CaseResult:
    """Rechunk and copy in turns."""
    gigabytes, rounds = (0.05, 1) if setup.quick else (4, min(3, setup.rounds))
    note(f"spark-rechunk: {gigabytes} GiB, {rounds} rounds")
    with setup.main_place.fresh() as place:
        found = measure(gigabytes, _MEMORY, rounds, str(place.path))
    result = CaseResult("spark-rechunk", "Spark: maps rechunked to series")
    what = f"rechunk {gigabytes} GiB of maps to series, beside a copy of the maps"
    for unit, figures in (("s", found.seconds), ("s of CPU", found.cpu_seconds)):
        ours, copy = (sorted(figures[name])[rounds // 2] for name in (RECHUNK, COPY))
        ratio = found.ratio(figures)
        shown = f"{ours:.1f} {unit}", f"{copy:.1f} {unit}"
        result.bars.append(Bar(f"{what}: {unit}", *shown, f"{ratio:.2f}", f"≤ {_BAR}", ratio <= _BAR))
    result.bars.append(at_most("peak memory of a worker that rechunks", round(found.peak / _MB), 1000, "MB"))
    rows = [
        [name, *(f"{value:.1f}" for figures in (found.seconds, found.cpu_seconds) for value in _spread(figures[name]))]
        for name in (COPY, RECHUNK, COPY_BACK)
    ]
    header = ["work", "median, s", "least", "greatest", "median, CPU s", "least", "greatest"]
    result.tables.append(Table("Durations, and CPU seconds of all processes", header, rows))
    plan = "; ".join(line.strip() for line in str(found.plan).splitlines())
    result.notes.append(
        f"In turns, with 512 MiB of values a task; values are compared. The plan: {plan}. "
        f"Beside a copy of the series, which encodes the very same chunks, rechunking takes "
        f"{found.ratio(found.cpu_seconds, COPY_BACK):.2f} times the CPU seconds."
    )
    return result


def _spread(values: list[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[0], ordered[-1]
