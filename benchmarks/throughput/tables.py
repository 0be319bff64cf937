"""The tables of docs/throughput.md, made from what the parts have kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from benchmarks.results import Bar, Table, human
from benchmarks.throughput.latencies import PROVIDERS, S3
from benchmarks.throughput.ours_study import ALONE
from benchmarks.throughput.outcomes import Figures
from benchmarks.throughput.points import Point
from benchmarks.throughput.published import FAST_APPEND, REMARKS, Remark

__all__ = ["bars", "model_tables", "ours_tables", "reality_tables"]

_ENOUGH = 0.999
_NOTHING = "—"


def _number(value: float, digits: int) -> str:
    return _NOTHING if math.isnan(value) else f"{value:.{digits}f}"


def _percent(value: float) -> str:
    return _NOTHING if math.isnan(value) else f"{value:.1%}"


def _find(points: Iterable[Point], experiment: str, mean_ms: float, light: float = 1.0, kind: str = "all") -> Point:
    """The point of a setting."""
    key = (experiment, float(mean_ms), light, kind)
    for point in points:
        if (point.experiment, float(point.mean_ms), point.light, point.kind) == key:
            return point
    raise LookupError(f"no result for {key}: run the part anew")


# -- the model ----------------------------------------------------------------------------------------------------


def model_tables(points: Sequence[Point]) -> list[Table]:
    """What the model says beside what was published."""
    return [
        _fast_append(points),
        _remarks(points),
        _readings(points),
        _grid("Light transactions that succeed", points, "1b", "light", lambda p: p.light, _share),
        _grid("Heavy transactions that succeed", points, "1b", "heavy", lambda p: p.light, _share),
        _grid("Light only, by the catalog's latency", points, "2a", "all", lambda p: p.catalog_ms, _milliseconds),
        _grid("Light ones of 90/10, by catalog", points, "2b", "light", lambda p: p.catalog_ms, _milliseconds),
        _grid("Heavy ones of 90/10, by catalog", points, "2b", "heavy", lambda p: p.catalog_ms, _milliseconds),
    ]


def _share(light: float) -> str:
    return f"{light:.0%} light"


def _milliseconds(value: float) -> str:
    return f"{value:g} ms"


def _fast_append(points: Sequence[Point]) -> Table:
    header = ["arrivals", "commits/s", "success", "p50 s", "p95 s", "p99 s", "retries"]
    rows = []
    for row in FAST_APPEND:
        found = _find(points, "1a published", row.mean_ms).figures
        pairs = [
            (f"{row.throughput:.1f}", _number(found.throughput, 1)),
            (_percent(row.success), _percent(found.success)),
            *(
                (f"{one:.2f}", _number(other, 2))
                for one, other in ((row.p50, found.p50), (row.p95, found.p95), (row.p99, found.p99))
            ),
            (f"{row.retries:.1f}", _number(found.retries, 1)),
        ]
        rows.append([f"{row.mean_ms:,} ms", *(f"{published} / {ours}" for published, ours in pairs)])
    return Table("Light only, catalog of 1 ms: published / model", header, rows)


def _remarks(points: Sequence[Point]) -> Table:
    rows = []
    for remark in REMARKS:
        found = _of_remark(points, remark)
        low, high = remark.low, remark.high
        shown = _percent if remark.figure == "success" else _seconds
        given = shown(low) if low == high else f"{shown(low)} – {shown(high)}"
        rows.append([remark.what, f"{remark.mean_ms:,} ms", f"{remark.catalog_ms:g} ms", given, shown(found)])
    header = ["what the text says of", "arrivals", "catalog", "published", "model"]
    return Table("Mixes and slower catalogs: published and model", header, rows)


def _seconds(value: float) -> str:
    return f"{_number(value, 2)} s"


def _of_remark(points: Sequence[Point], remark: Remark) -> float:
    kind = "all" if remark.light in (0.0, 1.0) else ("heavy" if remark.heavy else "light")
    experiment = "2b" if remark.light == 0.9 else "2a" if remark.light == 1.0 else "1b"
    chosen = [p for p in points if p.experiment == experiment and p.kind == kind]
    for p in chosen:
        if p.mean_ms == remark.mean_ms and p.light == remark.light and p.catalog_ms == remark.catalog_ms:
            return float(getattr(p.figures, remark.figure))
    return math.nan


def _readings(points: Sequence[Point]) -> Table:
    names = ("1a published", "1a corrected", "1a published, as described", "1a corrected, as described")
    header = ["arrivals", *(f"{name.removeprefix('1a ')}: commits/s, success, p50, p99" for name in names)]
    rows = []
    for row in FAST_APPEND:
        cells = []
        for name in names:
            found = _find(points, name, row.mean_ms).figures
            cells.append(
                f"{_number(found.throughput, 1)}, {_percent(found.success)}, {_number(found.p50, 2)} s, "
                f"{_number(found.p99, 2)} s"
            )
        rows.append([f"{row.mean_ms:,} ms", *cells])
    return Table("Light only, catalog of 1 ms, in four readings of the study (model)", header, rows)


def _grid(
    title: str,
    points: Sequence[Point],
    experiment: str,
    kind: str,
    row_of: Callable[[Point], float],
    name_of: Callable[[float], str],
) -> Table:
    only = 1.0 if kind == "light" else 0.0
    chosen = [
        p for p in points if p.experiment == experiment and (p.kind == kind or (p.kind == "all" and p.light == only))
    ]
    columns = sorted({point.mean_ms for point in chosen})
    lines = sorted({row_of(point) for point in chosen}, reverse=experiment == "1b")
    found = {(row_of(point), point.mean_ms): point.figures.success for point in chosen}
    rows = [[name_of(line), *(_percent(found.get((line, column), math.nan)) for column in columns)] for line in lines]
    return Table(f"{title} (model), by time between arrivals", ["", *(f"{c:,} ms" for c in columns)], rows)


# -- ours ---------------------------------------------------------------------------------------------------------


def _rate(point: Point) -> str:
    return f"{1000 / point.mean_ms:g}/s"


def _our_row(point: Point) -> list[str]:
    figures = point.figures
    return [
        _rate(point),
        _share(point.light) if point.kind == "all" else f"– {point.kind}",
        f"{point.more['runtime']:g} s",
        f"{point.more['window']:g} s",
        human(figures.committed),
        _number(figures.throughput, 2),
        f"{figures.success:.2%}",
        *(_number(value, 2) for value in (figures.p50, figures.p95, figures.p99)),
        _number(point.more["requests"], 1) if point.kind == "all" else "",
        _number(point.more["together"], 1) if point.kind == "all" else "",
    ]


_OUR_HEADER = [
    "arrivals",
    "mix",
    "run time",
    "window",
    "commits",
    "commits/s",
    "success",
    "p50 s",
    "p95 s",
    "p99 s",
    "requests a commit",
    "commits a record",
]


def ours_tables(points: Sequence[Point], model: Sequence[Point]) -> list[Table]:
    """What our code does at the points of the study, and beyond them."""
    tables = []
    if model:
        tables.append(_beside(points, model))
    s3 = [p for p in points if p.experiment in ("long", "short", "a minute")]
    ordered = sorted(s3, key=lambda p: (-p.mean_ms, -p.light))
    tables.append(Table("arraystore on S3 latencies", _OUR_HEADER, [_our_row(p) for p in ordered]))
    four = [p for p in points if p.experiment == "four at a time"]
    tables.append(Table("The same with four requests of a process at a time", _OUR_HEADER, list(map(_our_row, four))))
    tables.append(_kinds([p for p in ordered if p.kind == "all"]))
    tables.append(_providers(points, model))
    return tables


def _beside(points: Sequence[Point], model: Sequence[Point]) -> Table:
    header = ["arrivals", "table format: commits/s, success, p50, p99", "arraystore: commits/s, success, p50, p99"]
    rows = []
    for mean in sorted({p.mean_ms for p in points if p.experiment in ("long", "short")}, reverse=True):
        light = [p for p in points if p.mean_ms == mean and p.light == 1.0 and p.experiment in ("long", "short")]
        ours = min(light, key=lambda p: p.experiment)  # the long run time where there is one
        theirs = [p for p in model if (p.experiment, p.mean_ms) == ("1a corrected, as described", mean)]
        rows.append([f"{mean:g} ms", _cell(theirs[0]) if theirs else _NOTHING, _cell(ours)])
    return Table("Light only, same latencies and arrivals: model of a table format beside ours", header, rows)


def _cell(point: Point) -> str:
    f = point.figures
    return f"{f.throughput:.2f}, {f.success:.1%}, {f.p50:.2f} s, {f.p99:.2f} s"


def _kinds(points: Sequence[Point]) -> Table:
    names = sorted({name for point in points for name in point.more["kinds"]})
    rows = [
        [
            _rate(point),
            _share(point.light),
            f"{point.more['runtime']:g} s",
            *(_number(point.more["kinds"].get(name, 0.0), 2) for name in names),
            human(point.more["read"] / 1024),
            human(point.more["written"] / 1024),
        ]
        for point in points
    ]
    header = ["arrivals", "mix", "run time", *names, "KiB read", "KiB written"]
    return Table("Requests and bytes a commit, background work included", header, rows)


def _providers(points: Sequence[Point], model: Sequence[Point]) -> Table:
    rows = []
    for name, provider in PROVIDERS.items():
        theirs = [p for p in model if p.experiment == f"catalog on {name}" and p.figures.success >= 0.95]
        best = max((p.figures.throughput for p in theirs), default=math.nan)
        experiment = "short" if name == S3.name else f"on {name}"
        cells = [_at(points, experiment, mean) for mean in (200, 20)]
        rows.append([provider.title, f"{_number(best, 1)}/s", *cells, provider.source])
    header = ["store", "table format: most commits/s at 95 %", "ours at 5/s", "ours at 50/s", "figures from"]
    return Table(
        "Other stores: commits/s, success, p50, p99; the catalog of the table format on the store", header, rows
    )


def _at(points: Sequence[Point], experiment: str, mean_ms: float) -> str:
    found = [p for p in points if (p.experiment, p.mean_ms, p.light) == (experiment, mean_ms, 1.0)]
    return _cell(found[0]) if found else _NOTHING


def _sustained(figures: Figures) -> bool:
    return figures.success >= _ENOUGH and figures.p50 <= 0.8 and figures.p99 <= 1.5


def bars(points: Sequence[Point], together: float) -> list[Bar]:
    """The bars, with what our code came to; `together` is the median of one GET and one PUT, in seconds."""
    found = []
    for mean, requests in ((20, 20), (10, None), (5, 30)):
        point = _find(points, "short", mean)
        f, rate = point.figures, 1000 / mean
        what = f"{rate:g} commits/s asked for, light only"
        good = _sustained(f)
        ours = f"{f.throughput:.1f}/s, {f.success:.2%}, p50 {f.p50:.2f} s, p99 {f.p99:.2f} s"
        found.append(Bar(what, ours, "2–4/s", "", "≥ 99.9 %, p50 ≤ 0.8 s, p99 ≤ 1.5 s", good))
        for light in (0.9, 0.5):
            mixed = _find(points, "short", mean, light).figures
            ratio = mixed.throughput / f.throughput
            found.append(
                Bar(
                    f"the same, {1 - light:.0%} heavy",
                    f"{mixed.throughput:.1f}/s, {mixed.success:.2%}, p50 {mixed.p50:.2f} s, p99 {mixed.p99:.2f} s",
                    "1–2/s",
                    f"{ratio:.2f}",
                    "the same, and within 10 % of the rate of light ones",
                    _sustained(mixed) and ratio >= 0.9,
                )
            )
        if requests is not None:
            asked = point.more["requests"]
            found.append(
                Bar(f"requests a commit at {rate:g}/s", f"{asked:.1f}", "", "", f"≤ {requests}", asked <= requests)
            )
    alone = _find(points, ALONE, 1_200_000).figures.p50
    found.append(
        Bar(
            "p50 without contention",
            f"{alone * 1000:.0f} ms",
            "5 requests",
            f"{alone / together:.2f}",
            f"≤ 1.10 × GET + PUT ({together * 1000:.0f} ms)",
            alone <= 1.1 * together,
        )
    )
    return found


# -- reality ------------------------------------------------------------------------------------------------------


def reality_tables(points: Sequence[Point]) -> list[Table]:
    """Simulated beside measured."""
    header = [
        "requests take",
        "clients",
        "mix",
        "simulated commits/s",
        "measured",
        "ratio",
        "p50 s",
        "p99 s",
        "requests a commit",
        "requests later than their time",
        "by, ms",
    ]
    rows = []
    for simulated, measured in zip(points[::2], points[1::2], strict=True):
        s, m = simulated.figures, measured.figures
        rows.append(
            [
                f"{measured.more['slowdown']:g} × S3",
                str(measured.more["clients"]),
                _share(measured.light),
                _number(s.throughput, 2),
                _number(m.throughput, 2),
                f"{m.throughput / s.throughput:.2f}",
                f"{s.p50:.2f} / {m.p50:.2f}",
                f"{s.p99:.2f} / {m.p99:.2f}",
                f"{s.requests:.1f} / {m.requests:.1f}",
                _percent(measured.more["late"]),
                _number(measured.more["lateness"] * 1000, 1),
            ]
        )
    return [Table("Clients that commit one transaction after the other: simulated / measured", header, rows)]
