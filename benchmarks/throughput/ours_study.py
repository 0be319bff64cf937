"""Our code at the points of the study, and beyond them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

from benchmarks.throughput.latencies import PROVIDERS, S3, Provider
from benchmarks.throughput.ours import latencies_of, run
from benchmarks.throughput.outcomes import figures
from benchmarks.throughput.points import Point, note
from benchmarks.throughput.workload import Workload

__all__ = ["ALONE", "study"]

_SHORT = 2.0
"""Mean seconds that transactions run at high rates: who has run for long has more to catch up with, no more rivals."""

_MINUTE = 60.0
"""Mean seconds that they run in one of the runs at 50 a second: three thousand sessions are open at a time, each with
some four hundred records to catch up with."""

ALONE = "alone"
_SEED = 1


@dataclass(frozen=True)
class _Setting:
    experiment: str
    workload: Workload
    provider: Provider = S3
    parallel: int | None = None


def _long(mean_ms: float, light: float, full: bool) -> Workload:
    hour = Workload(mean_ms, light)
    return hour if full else replace(hour, duration=1500.0, margin=600.0)


def _short(mean_ms: float, light: float, full: bool) -> Workload:
    seconds, margin = (60.0, 10.0) if mean_ms >= 20 else (30.0, 5.0)
    if full:
        seconds, margin = 300.0, 15.0
    return Workload(mean_ms, light, _SHORT, seconds, margin)


def _settings(quick: bool, full: bool) -> Iterator[_Setting]:
    if quick:
        yield _Setting("short", Workload(50, 0.9, _SHORT, 15.0, 3.0))
        return
    yield _Setting(ALONE, Workload(1_200_000, 1.0, 120.0, 400_000.0, 100.0))
    for light in (1.0, 0.9, 0.5):
        for mean in (20, 10, 5):
            yield _Setting("short", _short(mean, light, full))
    yield _Setting("a minute", Workload(20, 1.0, _MINUTE, 260.0, 110.0))
    for mean in (5000, 2000, 1000, 500, 400, 300, 200):
        yield _Setting("long", _long(mean, 1.0, full))
    for mean in (200, 100, 50):
        yield _Setting("short", _short(mean, 1.0, full))
    yield _Setting("long", _long(200, 0.9, full))
    yield _Setting("long", _long(200, 0.5, full))
    for mean in (20, 5):
        yield _Setting("four at a time", _short(mean, 1.0, full), parallel=4)
    for name in ("s3-express", "azure-premium", "azure", "gcs"):
        for mean in (200, 20):
            yield _Setting(f"on {name}", _short(mean, 1.0, full), PROVIDERS[name])


def study(quick: bool, full: bool, jobs: int, kept: Sequence[Point]) -> Iterator[Point]:
    """Run everything that is not kept already, some settings at a time."""
    settings = list(_settings(quick, full))
    known = {setting: [point for point in kept if _is_of(point, setting)] for setting in settings}
    with ProcessPoolExecutor(jobs) as pool:
        fresh = pool.map(_points, [setting for setting in settings if not known[setting]])
        for setting in settings:
            points = known[setting] or next(fresh)
            first = points[0].figures
            note(
                f"{setting.experiment}: {setting.workload.mean_ms} ms, {setting.workload.light:.0%} light: "
                f"{first.throughput:.1f}/s, {first.success:.2%}, p50 {first.p50:.3f} s, p99 {first.p99:.3f} s, "
                f"{points[0].more['requests']:.1f} requests"
            )
            yield from points


def _is_of(point: Point, setting: _Setting) -> bool:
    workload = setting.workload
    same = (point.experiment, point.mean_ms, point.light) == (setting.experiment, workload.mean_ms, workload.light)
    window = workload.window[1] - workload.window[0]
    return same and (point.more["runtime"], point.more["window"]) == (workload.runtime, window)


def _points(setting: _Setting) -> list[Point]:
    workload = setting.workload
    found = run(workload, _SEED, latencies_of(setting.provider, setting.parallel))
    commits = max(1, found.committed)
    more = {
        "requests": sum(found.requests.values()) / commits,
        "kinds": {name: count / commits for name, count in sorted(found.requests.items())},
        "read": found.bytes_read / commits,
        "written": found.bytes_written / commits,
        "together": commits / max(1, found.records),
        "runtime": workload.runtime,
        "window": workload.window[1] - workload.window[0],
        "provider": setting.provider.name,
    }
    kinds = {"all": None, "light": False, "heavy": True} if 0 < workload.light < 1 else {"all": None}
    return [
        Point(
            setting.experiment,
            workload.mean_ms,
            workload.light,
            0.0,
            kind,
            1,
            figures(found.outcomes, workload, heavy),
            more,
        )
        for kind, heavy in kinds.items()
    ]
