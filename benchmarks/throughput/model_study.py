"""The experiments of the published study, with the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.throughput.latencies import PROVIDERS
from benchmarks.throughput.model import CORRECTED, PUBLISHED, Protocol, run
from benchmarks.throughput.outcomes import figures, mean_of
from benchmarks.throughput.points import Point, note
from benchmarks.throughput.workload import MIXES, STUDY_ARRIVALS_MS, Spread, Workload

__all__ = ["study"]

CATALOGS_MS = (1, 5, 10, 20, 50, 80, 120)
SOME_CATALOGS_MS = (1, 20, 50, 120)
_KINDS: dict[str, bool | None] = {"all": None, "light": False, "heavy": True}


@dataclass(frozen=True)
class _Setting:
    experiment: str
    workload: Workload
    protocol: Protocol

    @property
    def name(self) -> tuple[str, float, float, float]:
        return self.experiment, self.workload.mean_ms, self.workload.light, self.protocol.catalog.median_ms


def _settings(arrivals: Sequence[float], mixes: Sequence[float], catalogs: Sequence[float]) -> Iterator[_Setting]:
    base = Workload(0, spread=Spread.DRAWN)
    readings = {"published": (PUBLISHED, Spread.DRAWN), "corrected": (CORRECTED, Spread.DRAWN)}
    readings |= {"corrected, as described": (CORRECTED, Spread.DESCRIBED)}
    readings |= {"published, as described": (PUBLISHED, Spread.DESCRIBED)}
    for name, (protocol, spread) in readings.items():
        for mean in arrivals:
            yield _Setting(f"1a {name}", replace(base, mean_ms=mean, spread=spread), protocol)
    for mean in arrivals:
        for light in mixes:
            yield _Setting("1b", replace(base, mean_ms=mean, light=light), PUBLISHED)
        for catalog in catalogs:
            yield _Setting("2a", replace(base, mean_ms=mean), PUBLISHED.with_catalog(catalog))
            yield _Setting("2b", replace(base, mean_ms=mean, light=0.9), PUBLISHED.with_catalog(catalog))
        four = replace(PUBLISHED, parallel=4)
        yield _Setting("1b, four at a time", replace(base, mean_ms=mean, light=0.9), four)
        for provider in PROVIDERS.values():
            on_it = replace(CORRECTED, provider=provider, catalog=provider.conditional_put)
            yield _Setting(f"catalog on {provider.name}", replace(base, mean_ms=mean), on_it)


def study(seeds: int | None, quick: bool, full: bool, kept: Sequence[Point]) -> Iterator[Point]:
    """Run everything that is not kept already.

    Where arrivals are so close that an hour has 60,000 of them or more, one seed is enough for all but the first
    table, unless everything is asked for.
    """
    if quick:
        settings = list(_settings((200, 1000), (0.9,), (120,)))
    else:
        arrivals = sorted(STUDY_ARRIVALS_MS, reverse=True)
        settings = list(_settings(arrivals, MIXES, CATALOGS_MS if full else SOME_CATALOGS_MS))
    known: dict[tuple[Workload, Protocol], list[Point]] = {}
    for setting in settings:
        crowded = setting.workload.mean_ms < 100 and not setting.experiment.startswith("1a") and not full
        wanted = seeds or (1 if quick or crowded else 5)
        found = [point for point in kept if _name(point) == setting.name and point.seeds >= wanted]
        if not found:
            key = setting.workload, setting.protocol
            if key not in known:
                known[key] = _points(setting, wanted)
            found = [replace(point, experiment=setting.experiment) for point in known[key]]
            first = found[0].figures
            where = f"{setting.workload.mean_ms} ms, {setting.workload.light:.0%} light, catalog {setting.name[3]} ms"
            note(f"{setting.experiment}: {where}: {first.throughput:.2f}/s, {first.success:.1%}")
        yield from found


def _name(point: Point) -> tuple[str, float, float, float]:
    return point.experiment, point.mean_ms, point.light, point.catalog_ms


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
