"""Keeping cost in bounds: ``expire``, ``gc``."""

from __future__ import annotations

from typing import Annotated

import typer

from arraystore.cli.asking import confirm
from arraystore.cli.console import (
    add_row,
    count_text,
    make_console,
    make_table,
    note,
    plain,
    print_fields,
    print_json,
    time_text,
)
from arraystore.cli.opening import open_repository
from arraystore.cli.options import DryRun, Json, Url, Yes
from arraystore.cli.progress import progress_bar
from arraystore.cli.times import TIME_HELP, moment
from arraystore.errors import InvalidInputError

__all__ = ["expire", "gc"]

OlderThan = Annotated[str, typer.Option("--older-than", metavar="TIME", help=f"{TIME_HELP}; now is safe, too.")]
Full = Annotated[
    bool, typer.Option("--full", help="Look at every object, in place of what has changed since the last collection.")
]


def gc(
    url: Url,
    older_than: OlderThan = "1d",
    full: Full = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete objects that no snapshot needs: those of expired snapshots, lost races and crashed writers.

    Safe at any time, next to writers and readers. A session that has been open since before --older-than and has
    written something cannot commit any more: it gets an error that says so, and loses nothing that was committed.
    """
    cutoff = moment(older_than, option="--older-than")
    repository = open_repository(url)
    if not dry_run:
        confirm(f"delete what no snapshot needs and is older than {time_text(cutoff)} UTC", yes=yes)
    with progress_bar("Collecting") as progress:
        summary = repository.garbage_collect(cutoff, full=full, dry_run=dry_run, progress=progress)
    if as_json:
        print_json(summary)
    else:
        counts = {name: count for name, count in plain(summary).items() if name.endswith("_deleted") and count}
        if counts:
            print("Dry run: would be deleted, in numbers:" if dry_run else "Deleted, in numbers:")
            print_fields({name.removesuffix("_deleted"): count for name, count in counts.items()})
        else:
            print("Dry run: would delete nothing." if dry_run else "Nothing to delete.")
    for failure in summary.failures:
        note(f"{failure.key} could not be deleted: {failure.reason}; the next full collection tries again")


def expire(
    url: Url,
    older_than: Annotated[str | None, typer.Option("--older-than", metavar="TIME", help=f"{TIME_HELP}.")] = None,
    keep_last: Annotated[
        int | None,
        typer.Option("--keep-last", metavar="N", min=1, help="Keep the newest N of each branch in any case."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", metavar="RULES", help="Keep those of 'daily for 30 days, weekly for a year, last 10'."
        ),
    ] = None,
    delete_branches: Annotated[
        bool, typer.Option("--delete-expired-branches", help="Delete branches of which the newest snapshot expires.")
    ] = False,
    delete_tags: Annotated[
        bool, typer.Option("--delete-expired-tags", help="Delete tags of snapshots that expire.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Take old snapshots out of history; the newest of each branch, what tags name, and the very first one stay.

    --older-than, --keep-last and --policy say which, and where none is given the repository's retention policy. What
    has expired cannot be read any more; storage becomes free with the next `arraystore gc`.
    """
    cutoff = moment(older_than or "now", option="--older-than")
    repository = open_repository(url)
    if older_than is None and keep_last is None and policy is None:
        policy = repository.get_retention()
        if policy is None:
            raise InvalidInputError(
                "say what is to stay: give --older-than, --keep-last or --policy, or set a policy for good with "
                "`arraystore retention`"
            )
    if not dry_run:
        stays = [*([f"the last {keep_last}"] if keep_last else []), *([policy] if policy else [])]
        but = f", but keep {', and '.join(stays)}" if stays else ""
        confirm(f"expire snapshots from before {time_text(cutoff)} UTC{but}", yes=yes)
    expired = repository.expire_snapshots(
        cutoff, keep_last=keep_last, policy=policy, delete_expired_branches=delete_branches,
        delete_expired_tags=delete_tags, dry_run=dry_run,
    )  # fmt: skip
    if as_json:
        print_json({"expired": sorted(expired), "dry_run": dry_run})
        return
    print(f"{'Dry run: would expire' if dry_run else 'Expired'} {count_text(len(expired), 'snapshot')}.")
    if dry_run and expired:
        table = make_table("snapshot")
        for snapshot in sorted(expired):
            add_row(table, snapshot)
        make_console().print(table)
