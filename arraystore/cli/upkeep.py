"""The job: ``maintain``, and the policy that it expires by: ``retention``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from arraystore.cli.console import answer, plain
from arraystore.cli.opening import open_repository
from arraystore.cli.options import Json, Url
from arraystore.cli.sizes import size
from arraystore.cli.times import duration
from arraystore.errors import InvalidInputError

__all__ = ["maintain", "retention"]


def retention(
    url: Url,
    policy: Annotated[
        str | None, typer.Argument(metavar="RULES", help="As in 'daily for 30 days, weekly for a year, last 10'.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Keep no policy: nothing expires by itself.")] = False,
    as_json: Json = False,
) -> None:
    """Show or set the retention policy, by which `maintain` and a bare `expire` let snapshots go.

    all, hourly, daily, weekly, monthly or yearly "for" some time keeps the newest snapshot of each such stretch, and
    "last N" the newest ones of each branch; what any rule keeps stays.
    """
    repository = open_repository(url)
    if policy is not None and none:
        raise InvalidInputError("give RULES or --none")
    if policy is not None or none:
        repository.set_retention(policy)
    kept = repository.get_retention()
    answer(as_json, "none: nothing expires by itself" if kept is None else kept, retention=kept)


def maintain(
    url: Url,
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="RULES", help="In place of the repository's retention policy.")
    ] = None,
    collect_after: Annotated[
        str, typer.Option("--collect-after", metavar="TIME", help="Delete what is not needed and older than this.")
    ] = "1d",
    compact_bytes: Annotated[
        str, typer.Option("--compact-bytes", metavar="SIZE", help="Most that compaction reads of a branch; 0: none.")
    ] = "1GiB",
    compact_time: Annotated[
        str, typer.Option("--compact-time", metavar="TIME", help="For how long a branch is compacted at most.")
    ] = "10m",
    verify_sample: Annotated[
        int, typer.Option("--verify-sample", metavar="N", min=0, help="Chunks to read and check; 0: verify nothing.")
    ] = 100,
    lease: Annotated[
        str, typer.Option("--lease", metavar="TIME", help="After this long another job takes over.")
    ] = "1h",
    as_json: Annotated[bool, typer.Option("--json", help="As without: it is JSON anyway.", show_default=False)] = True,
) -> None:
    """Do what a job does every now and then: expire by policy, compact, collect, verify a sample; print a line of JSON.

    Asks nothing: made for cron, and safe at any time, however many run. Exit status: 0 if all is well or another job is
    at it, 1 if a step failed or damage was found.
    """
    from arraystore._repository.maintenance import UpkeepOptions

    options = UpkeepOptions(
        policy,
        duration(collect_after, option="--collect-after"),
        size(compact_bytes, option="--compact-bytes"),
        duration(compact_time, option="--compact-time").total_seconds(),
        verify_sample,
        duration(lease, option="--lease"),
    )
    report = open_repository(url).maintain(options)
    print(json.dumps(plain(report), ensure_ascii=False))
    if report.exit_code:
        raise typer.Exit(report.exit_code)
