"""Run the study: ``python -m benchmarks.throughput model|ours|reality|page [--quick|--full] [--seeds N]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from benchmarks.report import environment_line
from benchmarks.throughput.points import Point, load, save


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__)
    parser.add_argument("part", choices=["model", "ours", "reality", "page"])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a few small runs, to see that all works; writes nothing")
    size.add_argument("--full", action="store_true", help="hours of simulated time where minutes are the default")
    parser.add_argument("--seeds", type=int, default=None, help="runs of each setting of the model (5; 1 when quick)")
    parser.add_argument("--fresh", action="store_true", help="run what is kept of `model` and `ours` all the same")
    parser.add_argument("--jobs", type=int, default=1, help="runs of `ours` at a time")
    return parser.parse_args(given)


def _run(name: str, points: Iterable[Point], quick: bool) -> None:
    """Run a part to its end, and keep what it finds as it goes."""
    found: list[Point] = []
    for point in points:
        found.append(point)
        if not quick:
            save(name, environment_line(), found)


def main(given: list[str] | None = None) -> int:
    """Run a part, keep its results, and renew docs/throughput.md."""
    arguments = _arguments(given)
    if arguments.part == "model":
        from benchmarks.throughput.model_study import study

        kept = [] if arguments.fresh else load("model")[1]
        _run("model", study(arguments.seeds, arguments.quick, arguments.full, kept), arguments.quick)
    elif arguments.part == "ours":
        from benchmarks.throughput.ours_study import study as study_ours

        kept = [] if arguments.fresh else load("ours")[1]
        _run("ours", study_ours(arguments.quick, arguments.full, arguments.jobs, kept), arguments.quick)
    elif arguments.part == "reality":
        from benchmarks.throughput.reality import study as compare

        _run("reality", compare(arguments.quick, arguments.full), arguments.quick)
    if not arguments.quick:
        from benchmarks.throughput.page import write

        write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
