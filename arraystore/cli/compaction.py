"""Keeping reads fast: ``compact``."""

from __future__ import annotations

from typing import Annotated

import typer

from arraystore.cli.console import print_fields, print_json
from arraystore.cli.opening import open_repository
from arraystore.cli.options import DryRun, Json, Url
from arraystore.cli.progress import progress_bar
from arraystore.cli.sizes import size
from arraystore.cli.times import duration

__all__ = ["compact"]


def compact(
    url: Url,
    branch: Annotated[str, typer.Option("--branch", "-b", metavar="NAME", help="Branch to work on.")] = "main",
    max_bytes: Annotated[
        str | None, typer.Option("--max-bytes", metavar="SIZE", help="Stop after reading and writing this much: 10GiB.")
    ] = None,
    max_time: Annotated[
        str | None, typer.Option("--max-time", metavar="TIME", help="Stop after this long: 15m.")
    ] = None,
    min_live: Annotated[
        float, typer.Option("--min-live", metavar="SHARE", min=0, max=1, help="Rewrite packs of which less is in use.")
    ] = 0.5,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Make reading faster and storage smaller: fold manifests, merge small packs, rewrite packs that are mostly unused.

    Changes no data and does not show in history. Safe at any time, next to writers; what a budget leaves undone, the
    next run does. Damaged packs are left as they are and named; then the exit status is 1.
    """
    repository = open_repository(url)
    with progress_bar("Compacting") as progress:
        summary = repository.compact(
            branch=branch,
            max_bytes=None if max_bytes is None else size(max_bytes, option="--max-bytes"),
            max_seconds=None if max_time is None else duration(max_time, option="--max-time").total_seconds(),
            min_live=min_live, dry_run=dry_run, progress=progress,
        )  # fmt: skip
    if as_json:
        print_json(summary)
    else:
        if dry_run:
            print("Dry run: nothing was changed; what would be done:")
        print_fields(summary)
    if summary.damaged:
        raise typer.Exit(1)
