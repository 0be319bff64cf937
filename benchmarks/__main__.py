"""Run the benchmarks: ``python -m benchmarks [--quick] [--only CASE …] [--rounds N] [--storage …]``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

# The peer reads this when it is imported, and repeats one warning for each repository on a local directory.
os.environ.setdefault("ICECHUNK_LOG", "error")

from benchmarks.cases import CASES, NEED_LOCAL, NEED_SERVER, ON_REQUEST
from benchmarks.contenders import OURS, OURS_DURABLE
from benchmarks.places import PlaceMaker, S3Server
from benchmarks.report import environment_line, load_results, render, save_results, write_page
from benchmarks.results import CaseResult
from benchmarks.server import running_server
from benchmarks.setup import Setup
from benchmarks.timing import note

_ROOT = Path(__file__).resolve().parent.parent
_RESULTS = _ROOT / "benchmarks" / "results.json"
_PAGE = _ROOT / "docs" / "benchmarks.md"
_SHARED_MEMORY = Path("/dev/shm")  # a file system in memory, where Linux has one


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small loads, to see that all works; writes no page")
    parser.add_argument(
        "--only", action="append", choices=list(CASES), metavar="CASE", help=f"one of {', '.join(CASES)}"
    )
    parser.add_argument("--rounds", type=int, default=None, help="measured rounds (5; 2 when quick)")
    parser.add_argument(
        "--storage",
        choices=["all", "local", "memory", "s3"],
        default="all",
        help="where to write; 'all' takes local directories for times and an S3 server for requests",
    )
    parser.add_argument("--dir", type=Path, default=None, help="a directory on the file system to measure")
    return parser.parse_args(given)


def _file_system(path: Path) -> str:
    """Kind of the file system that holds a path."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "the disk"  # not Linux
    text = str(path.resolve())
    holding = [(len(at), kind) for at, kind in mounts if text == at or text.startswith(at.rstrip("/") + "/")]
    return max(holding)[1]


def _places(storage: str, scratch: Path, server: S3Server | None, stack: ExitStack) -> dict[str, PlaceMaker]:
    if storage == "memory":
        return {"memory": PlaceMaker("memory", scratch)}
    if storage == "s3":
        return {"S3": PlaceMaker("s3", scratch, server)}
    places = {_file_system(scratch): PlaceMaker("local", scratch)}
    if _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK):
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=_SHARED_MEMORY))
        places.setdefault(_file_system(Path(directory)), PlaceMaker("local", Path(directory)))
    return places


def _chosen(only: list[str] | None, storage: str) -> list[str]:
    names = [name for name in CASES if (name in only if only else name not in ON_REQUEST)]
    if storage in ("local", "memory"):
        names = [name for name in names if name not in NEED_SERVER]
    if storage in ("memory", "s3"):
        names = [name for name in names if name not in NEED_LOCAL]
    if not names:
        raise SystemExit(f"none of the cases {', '.join(only or [])} runs with --storage {storage}")
    return names


def main(given: list[str] | None = None) -> int:
    """Run what the arguments ask for; the status tells nothing about bars, the page does."""
    arguments = _arguments(given)
    names = _chosen(arguments.only, arguments.storage)
    rounds = arguments.rounds or (2 if arguments.quick else 5)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server and the directories go too
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=arguments.dir)))
        needs_server = arguments.storage == "s3" or not NEED_SERVER.isdisjoint(names)
        server = stack.enter_context(running_server(scratch)) if needs_server else None
        places = _places(arguments.storage, scratch, server, stack)
        setup = Setup(rounds, arguments.quick, OURS, OURS_DURABLE, scratch, places, server)
        fresh = {}
        for name in names:
            note(f"== {name}")
            fresh[name] = CASES[name](setup)
            fresh[name].environment = f"{environment_line()}; {rounds} rounds, on {', '.join(places)}."
            if not arguments.quick and arguments.storage == "all":
                _keep(fresh)  # after each case: what took minutes to measure survives a later failure
    print(render(fresh))
    return 0


def _keep(fresh: dict[str, CaseResult]) -> None:
    """Put new results in the place of older ones of the same cases, in the file and on the page."""
    known = load_results(_RESULTS) | fresh
    ordered = {name: known[name] for name in CASES if name in known}
    save_results(_RESULTS, ordered)
    write_page(_PAGE, ordered)


if __name__ == "__main__":
    sys.exit(main())
