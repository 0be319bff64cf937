"""Expiry and garbage collection: ``expire``, ``gc``."""

from __future__ import annotations

from typing import Annotated

import typer

from arraystore.cli.confirmation import confirm
from arraystore.cli.console import (
    add_row,
    count_text,
    make_console,
    make_table,
    plain,
    print_fields,
    print_json,
    print_note,
    time_text,
)
from arraystore.cli.options import DryRun, Json, Url, Yes
from arraystore.cli.progress import progress_bar
from arraystore.cli.resolve import open_repository
from arraystore.cli.times import TIME_HELP, parse_time
from arraystore.errors import InvalidInputError

__all__ = ["expire", "gc"]

OlderThan = Annotated[
    str,
    typer.Option(
        "--older-than", metavar="TIME", help=f"Delete only objects older than this: {TIME_HELP}. Any value is safe."
    ),
]
Full = Annotated[
    bool, typer.Option("--full", help="Scan all objects, not only those changed since the last collection.")
]


def gc(
    url: Url,
    older_than: OlderThan = "1d",
    full: Full = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete unreferenced objects: those of expired snapshots, failed commits and crashed writers.

    Safe at any time, concurrently with writers and readers. Sessions that wrote data before --older-than can no longer
    commit and fail with an error; committed data is never affected.
    """
    cutoff = parse_time(older_than, option="--older-than")
    repository = open_repository(url)
    if not dry_run:
        confirm(f"delete unreferenced objects older than {time_text(cutoff)} UTC", yes=yes)
    with progress_bar("Collecting") as progress:
        summary = repository.garbage_collect(cutoff, full=full, dry_run=dry_run, progress=progress)
    if as_json:
        print_json(summary)
    else:
        counts = {name: count for name, count in plain(summary).items() if name.endswith("_deleted") and count}
        if counts:
            print("Dry run: would delete objects:" if dry_run else "Deleted objects:")
            print_fields({name.removesuffix("_deleted"): count for name, count in counts.items()})
        else:
            print("Dry run: would delete nothing." if dry_run else "Nothing to delete.")
    for failure in summary.failures:
        print_note(f"cannot delete {failure.key}: {failure.reason}; the next full collection will retry")


def expire(
    url: Url,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help=f"Expire only snapshots older than this: {TIME_HELP}."),
    ] = None,
    keep_last: Annotated[
        int | None,
        typer.Option("--keep-last", metavar="N", min=1, help="Keep the newest N snapshots of each branch."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="RULES",
            help="Keep snapshots by rules such as 'daily for 30 days, weekly for a year, last 10'.",
        ),
    ] = None,
    delete_branches: Annotated[
        bool, typer.Option("--delete-expired-branches", help="Delete branches whose newest snapshot expires.")
    ] = False,
    delete_tags: Annotated[
        bool, typer.Option("--delete-expired-tags", help="Delete tags of expired snapshots.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Expire old snapshots: remove them from history, except branch tips, tagged snapshots and the first one.

    Snapshots are selected by --older-than, --keep-last and --policy, by default by the retention policy of the
    repository. Expired snapshots can no longer be read; `arraystore gc` frees their storage.
    """
    cutoff = parse_time(older_than or "now", option="--older-than")
    repository = open_repository(url)
    if older_than is None and keep_last is None and policy is None:
        policy = repository.get_retention()
        if policy is None:
            raise InvalidInputError(
                "expire needs --older-than, --keep-last or --policy, or a retention policy: set one with "
                "`arraystore retention`"
            )
    if not dry_run:
        kept = [*([f"the last {keep_last}"] if keep_last else []), *([policy] if policy else [])]
        exceptions = f", but keep {', and '.join(kept)}" if kept else ""
        confirm(f"expire snapshots older than {time_text(cutoff)} UTC{exceptions}", yes=yes)
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
