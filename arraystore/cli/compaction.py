"""Compaction: ``compact``."""

from __future__ import annotations

from typing import Annotated

import typer

from arraystore.cli.console import print_fields, print_json
from arraystore.cli.options import DryRun, Json, Url
from arraystore.cli.progress import progress_bar
from arraystore.cli.resolve import open_repository
from arraystore.cli.sizes import parse_size
from arraystore.cli.times import parse_duration

__all__ = ["compact"]


def compact(
    url: Url,
    branch: Annotated[str, typer.Option("--branch", "-b", metavar="NAME", help="Branch to compact.")] = "main",
    max_bytes: Annotated[
        str | None,
        typer.Option("--max-bytes", metavar="SIZE", help="Stop after reading and writing this much, e.g. 10GiB."),
    ] = None,
    max_time: Annotated[
        str | None, typer.Option("--max-time", metavar="TIME", help="Stop after this time, e.g. 15m.")
    ] = None,
    min_live: Annotated[
        float,
        typer.Option(
            "--min-live", metavar="FRACTION", min=0, max=1, help="Rewrite packs with a smaller fraction of live bytes."
        ),
    ] = 0.5,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Compact a branch: merge manifests and small packs, and rewrite packs with little live data.

    Does not change data or history. Safe at any time, concurrently with writers; the next run continues where a budget
    ended this one. Damaged packs are left unchanged and reported, with exit status 1.
    """
    repository = open_repository(url)
    with progress_bar("Compacting") as progress:
        summary = repository.compact(
            branch=branch,
            max_bytes=None if max_bytes is None else parse_size(max_bytes, option="--max-bytes"),
            max_seconds=None if max_time is None else parse_duration(max_time, option="--max-time").total_seconds(),
            min_live=min_live, dry_run=dry_run, progress=progress,
        )  # fmt: skip
    if as_json:
        print_json(summary)
    else:
        if dry_run:
            print("Dry run: nothing was changed; would do:")
        print_fields(summary)
    if summary.damaged:
        raise typer.Exit(1)
