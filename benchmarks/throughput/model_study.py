"""The experiments of the published study, with the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.throughput.latencies import PROVIDERS
from benchmarks.throughput.model import CORRECTED, PUBLISHED, Protocol, run
from benchmarks.throughput.outcomes import figures, mean_of
from benchmarks.throughput.points import Point, note
from benchmarks.throughput.workload import MIXES, STUDY_ARRIVALS_MS, Spread, Workload

__all__ = ["CATALOGS_MS", "study"]

CATALOGS_MS = (1, 5, 10, 20, 50, 80, 120)
_KINDS: dict[str, bool | None] = {"all": None, "light": False, "heavy": True}


@dataclass(frozen=True)
class _Setting:
    experiment: str
    workload: Workload
    protocol: Protocol


def _settings(quick: bool) -> Iterator[_Setting]:
    base = Workload(0, spread=Spread.DRAWN)
    arrivals = STUDY_ARRIVALS_MS if not quick else (200, 1000)
    readings = {"published": (PUBLISHED, Spread.DRAWN), "corrected": (CORRECTED, Spread.DRAWN)}
    readings |= {"published, as described": (PUBLISHED, Spread.DESCRIBED)}
    readings |= {"corrected, as described": (CORRECTED, Spread.DESCRIBED)}
    for name, (protocol, spread) in readings.items():
        for mean in arrivals:
            yield _Setting(f"1a {name}", replace(base, mean_ms=mean, spread=spread), protocol)
    for light in MIXES if not quick else (0.9,):
        for mean in arrivals:
            yield _Setting("1b", replace(base, mean_ms=mean, light=light), PUBLISHED)
    for catalog in CATALOGS_MS if not quick else (120,):
        for mean in arrivals:
            yield _Setting("2a", replace(base, mean_ms=mean), PUBLISHED.with_catalog(catalog))
            yield _Setting("2b", replace(base, mean_ms=mean, light=0.9), PUBLISHED.with_catalog(catalog))
    for mean in arrivals:
        workload = replace(base, mean_ms=mean, light=0.9)
        yield _Setting("1b, four at a time", workload, replace(PUBLISHED, parallel=4))
    for provider in PROVIDERS.values():
        on_it = replace(PUBLISHED, provider=provider, catalog=provider.conditional_put, reads_metadata=True)
        for mean in arrivals:
            yield _Setting(f"catalog on {provider.name}", replace(base, mean_ms=mean), on_it)


def study(seeds: int, quick: bool) -> Iterator[Point]:
    """Run everything."""
    known: dict[tuple[Workload, Protocol], list[Point]] = {}
    for setting in _settings(quick):
        key = setting.workload, setting.protocol
        if key not in known:
            known[key] = _points(setting, seeds)
        yield from (replace(point, experiment=setting.experiment) for point in known[key])
        all_of_it = known[key][0].figures
        note(
            f"{setting.experiment}: {setting.workload.mean_ms} ms, {setting.workload.light:.0%} light, catalog "
            f"{setting.protocol.catalog.median_ms} ms: {all_of_it.throughput:.2f}/s, {all_of_it.success:.1%}"
        )


def _points(setting: _Setting, seeds: int) -> list[Point]:
    workload, protocol = setting.workload, setting.protocol
    runs = [run(workload, seed, protocol) for seed in range(seeds)]
    kinds = _KINDS if 0 < workload.light < 1 else {"all": None, "light" if workload.light else "heavy": None}
    return [
        Point(
            setting.experiment,
            workload.mean_ms,
            workload.light,
            protocol.catalog.median_ms,
            kind,
            seeds,
            mean_of([figures(outcomes, workload, heavy) for outcomes in runs]),
            {},
        )
        for kind, heavy in kinds.items()
    ]
