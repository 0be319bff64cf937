"""Metadata at scale: a hundred million references, ten thousand arrays, long histories, many layers, large sessions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.results import Bar, CaseResult, Table, at_most, human
from benchmarks.setup import Setup
from benchmarks.timing import note

__all__ = ["measure", "run"]

_GB, _MB = 1e9, 1e6
_KINDS = ("one length", "any length", "native")


def measure(subject: str, directory: Path, count: int, kind: str = "") -> dict[str, float]:
    """Run one measurement in a process of its own."""
    note(f"scale: {subject}, {count:,} {kind}")
    command = [sys.executable, "-m", "benchmarks.scale_subject", subject, str(directory), str(count), kind]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _references(setup: Setup, result: CaseResult) -> None:
    rows: list[list[str]] = []
    largest = setup.scaled(100_000_000, 100_000)
    for count in (largest // 100, largest // 10, largest):
        for kind in _KINDS:
            with setup.quickest_place.fresh() as place:
                wrote = measure("write-references", place.directory, count, kind)
                used = measure("use-references", place.directory, count)
            if count == largest:
                result.bars += _bars(f"{count:,} references, {kind}", wrote, used)
            rows.append(
                [
                    f"{count:,}, {kind}",
                    human(wrote["seconds"]),
                    human(wrote["peak"] / _GB),
                    human(wrote["peak of ours"] / _GB),
                    f"{wrote['bytes each']:.3f}",
                    human(used["open and read"] * 1e3),
                    human(used["memory"] / _MB),
                    human(used["commit"] * 1e3),
                    human(used["commit into an empty one"] * 1e3),
                ]
            )
    header = [
        "references",
        "write and commit, s",
        "peak of the process, GB",
        "above its input, GB",
        "stored, bytes each",
        "open, read one, ms",
        "memory for that, MB",
        "commit one more, processor ms",
        "in an empty repository, processor ms",
    ]
    result.tables.append(
        Table("References to 1,000 files, and to packs of 2,048 chunks, in a memory file system", header, rows)
    )


def _bars(what: str, wrote: dict[str, float], used: dict[str, float]) -> list[Bar]:
    ratio = used["commit"] / used["commit into an empty one"]
    return [
        at_most(f"{what}: peak of the process", wrote["peak"] / _GB, 4, "GB"),
        at_most(f"{what}: stored each", wrote["bytes each"], 3, "bytes"),
        at_most(f"{what}: open and read one chunk", used["open and read"] * 1e3, 100, "ms"),
        at_most(f"{what}: memory for that", used["memory"] / _MB, 100, "MB"),
        at_most(f"{what}: commit of one more, against an empty repository", ratio, 1.2, "times"),
    ]


def _others(setup: Setup, result: CaseResult) -> None:
    loads = [
        ("group", "arrays in a group", setup.scaled(10_000, 50), ""),
        ("history", "commits", setup.scaled(100_000, 100), ""),
        ("layers", "layers that nobody has folded", setup.scaled(10_000, 100), ""),
        ("dirty", "uncommitted chunks in order", setup.scaled(10_000_000, 10_000), "in order"),
        ("dirty", "uncommitted chunks in any order", setup.scaled(10_000_000, 10_000), "any order"),
    ]
    for subject, what, most, kind in loads:
        found: list[tuple[int, dict[str, float]]] = []
        for count in (most // 10, most):
            with setup.quickest_place.fresh() as place:
                found.append((count, measure(subject, place.directory, count, kind)))
        header = [what, *found[0][1]]
        rows = [[f"{count:,}", *map(_shown, figures, figures.values())] for count, figures in found]
        result.tables.append(Table(f"{what.capitalize()}: times in ms, memory in MB", header, rows))


def _shown(name: str, value: float) -> str:
    if name in ("memory", "peak", "bytes"):
        return human(value / _MB)
    return human(value) if name == "objects" else f"{value * 1e3:.3f}"


def run(setup: Setup) -> CaseResult:
    """References by the million, groups, histories, layers, and sessions."""
    result = CaseResult("scale", "Scale of metadata")
    _references(setup, result)
    _others(setup, result)
    return result
