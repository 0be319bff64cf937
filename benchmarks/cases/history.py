"""What many small commits leave behind."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import zarr

from benchmarks.places import Place, PlaceMaker
from benchmarks.results import Bar, CaseResult, Table, human
from benchmarks.setup import Setup
from benchmarks.systems import IcechunkSystem, System
from benchmarks.timing import note

__all__ = ["Point", "extrapolated", "run", "stored"]

_CHUNKS = 1000


@dataclass(frozen=True, slots=True)
class Point:
    commits: int
    size: int
    objects: int
    seconds: float


def stored(directory: Path) -> tuple[int, int]:
    """Bytes and number of the files under a directory."""
    sizes = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
    return sum(sizes), len(sizes)


def _commit_many(system: System, place: Place, stops: list[int]) -> list[Point]:
    """Commit one tiny chunk after another, looking at the directory at each stop."""
    handle = system.create(place)
    points: list[Point] = []
    started = time.perf_counter()
    for number in range(stops[-1]):
        writer = system.writer(handle)
        if number == 0:
            zarr.create_array(
                writer.store, name="data", shape=(_CHUNKS,), chunks=(1,), dtype="uint32", compressors=None, fill_value=0
            )
        zarr.open_array(writer.store, path="data", mode="r+")[number % _CHUNKS] = number + 1
        writer.commit()
        if number + 1 in stops:
            points.append(Point(number + 1, *stored(place.directory), time.perf_counter() - started))
    return points


def _measure(system: System, places: PlaceMaker, stops: list[int]) -> list[Point]:
    note(f"history: {stops[-1]} commits by {system.name}")
    with places.fresh() as place:
        return _commit_many(system, place, stops)


def extrapolated(points: list[Point], commits: int) -> float:
    """Bytes at `commits`, from a square law through the last two points and nothing at the start."""
    first, second = points[-2], points[-1]
    x, y = (first.commits, first.size), (second.commits, second.size)
    square = (y[1] / y[0] - x[1] / x[0]) / (y[0] - x[0])
    linear = x[1] / x[0] - square * x[0]
    return square * commits**2 + linear * commits


def _rows(name: str, points: list[Point]) -> list[list[str]]:
    return [
        [
            name,
            f"{point.commits:,}",
            f"{point.size:,}",
            human(point.size / point.commits),
            f"{point.objects:,}",
            human(point.seconds / point.commits * 1e3),
        ]
        for point in points
    ]


def run(setup: Setup) -> CaseResult:
    """Ten thousand commits by us, a thousand by the peer."""
    result = CaseResult("history", "Storage after many small commits")
    many, some = setup.scaled(10_000, 128), setup.scaled(1000, 40)
    ours = _measure(setup.ours, setup.quickest_place, sorted({some, many // 2, many}))
    peer = _measure(IcechunkSystem(), setup.quickest_place, [some // 2, some])
    expected = extrapolated(peer, many)
    last, half = ours[-1], ours[-2]
    growth = (last.size - half.size) / (last.commits - half.commits) / (half.size / half.commits)
    per_commit = last.size / last.commits
    peer_text = f"{human(expected / many)} B (extrapolated from {some:,} commits)"
    result.bars.append(
        Bar(
            f"bytes a commit after {many:,} one-chunk commits, everything included",
            f"{human(per_commit)} B",
            peer_text,
            f"{expected / last.size:.1f}",
            "≤ 4,096 B",
            per_commit <= 4096,
        )
    )
    result.bars.append(
        Bar(
            "the second half's growth against the first half's",
            f"{growth:.2f}",
            "",
            "",
            "≤ 1.10 (linear)",
            growth <= 1.1,
        )
    )
    header = ["system", "commits", "bytes", "bytes a commit", "objects", "ms a commit"]
    rows = _rows(setup.ours.name, ours) + _rows("icechunk", peer)
    result.tables.append(Table("One tiny chunk a commit, on a local directory", header, rows))
    return result
