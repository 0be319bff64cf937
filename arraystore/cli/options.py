"""Arguments and options shared by commands."""

from __future__ import annotations

from typing import Annotated

import typer

from arraystore.cli.times import TIME_HELP

START = "Get started"
INSPECT = "Inspect"
COMPUTE = "Transform arrays"
CHANGE = "Branches and history"
MAINTENANCE = "Maintain"
TRANSFER = "Move data"
CONFIGURE = "Configure"

Url = Annotated[
    str,
    typer.Argument(metavar="URL", help="Repository: s3://bucket/prefix, gs://…, az://account/container/…, or a path."),
]
Ref = Annotated[
    str,
    typer.Argument(metavar="REF", help="Branch, tag or snapshot id; branch:NAME or tag:NAME if both exist."),
]
RefOption = Annotated[
    str, typer.Option("--ref", "-r", metavar="REF", help="Branch, tag or snapshot id; main by default.")
]
Snapshot = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Snapshot id, tag, or branch for its tip.")]
Path = Annotated[str, typer.Argument(metavar="PATH", help="Path of a group or array; the root by default.")]
Branch = Annotated[str, typer.Option("--branch", "-b", metavar="NAME", help="Branch to commit to.")]
BranchName = Annotated[str, typer.Argument(metavar="BRANCH", help="Name of the branch.")]
Message = Annotated[str | None, typer.Option("--message", "-m", metavar="TEXT", help="Commit message.")]
Limit = Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="Show only the newest N.")]
Authorize = Annotated[
    list[str] | None,
    typer.Option(
        "--authorize",
        metavar="PREFIX",
        help="Read virtual chunks of this container with the credentials of the environment (may be repeated).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the actions without performing them.")]
AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="TIME", help=f"State of the branch at a time: {TIME_HELP}.")
]
