"""Maintenance job and its retention policy: ``maintain``, ``retention``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from arraystore.cli.console import plain, print_result
from arraystore.cli.options import Json, Url
from arraystore.cli.resolve import open_repository
from arraystore.cli.sizes import parse_size
from arraystore.cli.times import parse_duration
from arraystore.errors import InvalidInputError

__all__ = ["maintain", "retention"]


def retention(
    url: Url,
    policy: Annotated[
        str | None,
        typer.Argument(metavar="RULES", help="Rules such as 'daily for 30 days, weekly for a year, last 10'."),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Remove the policy.")] = False,
    as_json: Json = False,
) -> None:
    """Show or set the retention policy of `maintain` and of `expire` without options.

    "all", "hourly", "daily", "weekly", "monthly" or "yearly" with "for" a duration keeps the newest snapshot of each
    such period, "last N" the newest ones of each branch. A snapshot is kept if any rule keeps it.
    """
    repository = open_repository(url)
    if policy is not None and none:
        raise InvalidInputError("pass only one of RULES and --none")
    if policy is not None or none:
        repository.set_retention(policy)
    current = repository.get_retention()
    print_result(
        as_json, "none: snapshots do not expire automatically" if current is None else current, retention=current
    )


def maintain(
    url: Url,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="RULES", help="Retention policy to use instead of the repository's."),
    ] = None,
    collect_after: Annotated[
        str, typer.Option("--collect-after", metavar="TIME", help="Delete only unreferenced objects older than this.")
    ] = "1d",
    compact_bytes: Annotated[
        str,
        typer.Option(
            "--compact-bytes", metavar="SIZE", help="Maximum bytes that compaction reads per branch; 0 disables it."
        ),
    ] = "1GiB",
    compact_time: Annotated[
        str, typer.Option("--compact-time", metavar="TIME", help="Maximum duration of compaction per branch.")
    ] = "10m",
    verify_sample: Annotated[
        int, typer.Option("--verify-sample", metavar="N", min=0, help="Number of chunks to verify; 0 disables it.")
    ] = 100,
    lease: Annotated[
        str, typer.Option("--lease", metavar="TIME", help="Time after which another job may take over.")
    ] = "1h",
    as_json: Annotated[
        bool, typer.Option("--json", help="Accepted for consistency: output is always JSON.", show_default=False)
    ] = True,
) -> None:
    """Run maintenance: expire by policy, compact, collect garbage and verify a sample; print one line of JSON.

    Never asks for confirmation, for use in cron; concurrent runs are safe. Exit status: 0 on success or if another job
    is running, 1 if a step failed or damage was found.
    """
    from arraystore._repository.maintenance import UpkeepOptions

    options = UpkeepOptions(
        policy,
        parse_duration(collect_after, option="--collect-after"),
        parse_size(compact_bytes, option="--compact-bytes"),
        parse_duration(compact_time, option="--compact-time").total_seconds(),
        verify_sample,
        parse_duration(lease, option="--lease"),
    )
    report = open_repository(url).maintain(options)
    print(json.dumps(plain(report), ensure_ascii=False))
    if report.exit_code:
        raise typer.Exit(report.exit_code)
