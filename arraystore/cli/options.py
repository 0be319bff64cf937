"""Arguments and options that commands have in common, so that they look and read the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from arraystore.cli.times import TIME_HELP

__all__ = [
    "CARE",
    "CHANGING",
    "LOOKING",
    "MOVING",
    "SETTING",
    "AsOf",
    "Branch",
    "DryRun",
    "Json",
    "Limit",
    "Message",
    "Path",
    "Ref",
    "Snapshot",
    "Url",
    "Yes",
]

LOOKING = "Look"
CHANGING = "Change"
CARE = "Keep in good health"
MOVING = "Bring in, take out"
SETTING = "Set up"

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="The repository: s3://bucket/prefix, gs://…, az://account/container/…, or a path."
    ),
]
Ref = Annotated[
    str,
    typer.Argument(metavar="REF", help="Branch, tag or snapshot id; branch:NAME or tag:NAME where both exist."),
]
Snapshot = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Snapshot id, or a tag, or a branch for its newest.")]
Path = Annotated[str, typer.Argument(metavar="PATH", help="Path of a group or array; the root unless given.")]
Branch = Annotated[str, typer.Option("--branch", "-b", metavar="NAME", help="Branch to commit to.")]
Message = Annotated[str | None, typer.Option("--message", "-m", metavar="TEXT", help="Message of the commit.")]
Limit = Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="Show the newest N only.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")]
AsOf = Annotated[str | None, typer.Option("--as-of", metavar="TIME", help=f"The branch as it was then: {TIME_HELP}.")]
