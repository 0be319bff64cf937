"""Parsing the command line, and turning errors into messages and exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from arraystore.errors import ArrayStoreError

__all__ = ["main"]

_EXIT_ERROR = 1
_EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130

_INGEST_ABOUT = """\
Copies NetCDF-3, NetCDF-4, HDF5 and Zarr sources into a group of a repository, in one commit.

Numbers and attributes arrive as they are stored, undecoded.  With --append-dim the sources follow each other along
that dimension, in the order given; arrays that exist already grow.  Without it, every variable becomes a new array.
The work is done by Spark; everything is checked before the first task starts."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="arraystore", description="Versioned, transactional arrays on object storage."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_ingest(commands.add_parser(
        "ingest", help="copy files into a repository, through Spark", description=_INGEST_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ))  # fmt: skip
    _add_log(commands.add_parser("log", help="show the history of a branch or tag"))
    return parser


def _add_ingest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="a file, or the directory or URL of a Zarr group")
    parser.add_argument(
        "--repo", required=True, metavar="URL", help="repository: a path or URL; made if it does not exist"
    )
    parser.add_argument("--branch", default="main", help="branch to commit to (default: main)")
    parser.add_argument(
        "--group", default="", metavar="PATH", help="group that takes the variables (default: the root)"
    )
    parser.add_argument("--append-dim", metavar="DIM", help="dimension along which sources are joined and arrays grow")
    parser.add_argument(
        "--chunks", default="", metavar="DIM=N,…", help="chunk sizes of new arrays, as in time=60,lat=37"
    )
    parser.add_argument(
        "--skip", action="append", default=[], metavar="NAME", help="leave a variable out (may be repeated)"
    )
    parser.add_argument("--source-group", metavar="PATH", help="group within the sources (default: their root)")
    parser.add_argument("--message", metavar="TEXT", help="message of the commit")
    parser.add_argument("--tasks", type=int, metavar="N", help="largest number of tasks (default: 3 for each slot)")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: local[*])")
    parser.add_argument("--dry-run", action="store_true", help="show the plan and change nothing")


def _add_log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repo", metavar="URL", help="repository: a path or URL")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--branch", help="branch to show (default: main)")
    where.add_argument("--tag", help="tag to start from")
    parser.add_argument("-n", "--limit", type=int, metavar="N", help="show the newest N snapshots only")


def _command(name: str) -> Callable[[argparse.Namespace], None]:
    """Import a command when it is called: ``log`` does not wait for xarray."""
    try:
        if name == "ingest":
            from arraystore.cli.ingest import run_ingest

            return run_ingest
        from arraystore.cli.log import run_log
    except ImportError as error:
        raise ArrayStoreError(
            f"`arraystore {name}` needs the package {error.name!r}: pip install 'arraystore[cli,spark,xarray]'"
        ) from error
    return run_log


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns
    -------
    int
        0; 1 after an error, which stands on the standard error stream; 2 for wrong usage; 130 if interrupted.
    """
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else _EXIT_USAGE
    try:
        _command(options.command)(options)
    except ArrayStoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return _EXIT_ERROR
    except KeyboardInterrupt:
        print("interrupted; nothing was committed", file=sys.stderr)
        return _EXIT_INTERRUPTED
    return 0
