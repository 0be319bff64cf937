"""Maintenance: ``expire``, ``gc``, ``compact``, ``maintain``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arraystore._runtime.formatting import bytes_text, count_text, time_text
from arraystore.cli.confirmation import confirm
from arraystore.cli.console import (
    literal,
    make_console,
    plain,
    print_json,
    print_note,
    print_pairs,
    print_report,
    print_table,
)
from arraystore.cli.engine import EngineName, Master, On, open_engine
from arraystore.cli.options import DryRun, Json, Url, Yes
from arraystore.cli.progress import progress_bar
from arraystore.cli.resolve import open_repository
from arraystore.cli.sizes import parse_size
from arraystore.cli.times import TIME_HELP, parse_duration, parse_time
from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    from arraystore._repository.maintenance import MaintenanceReport

_DEFAULT_CUTOFF = "1d"
_FINDINGS_SHOWN = 20

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
    older_than: OlderThan = _DEFAULT_CUTOFF,
    full: Full = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete unreferenced objects: those of expired snapshots, failed commits and crashed writers.

    Safe at any time, concurrently with writers and readers. Sessions that wrote data before --older-than can no longer
    commit and fail with an error; committed data is never affected. With the default --older-than, nobody is asked.
    """
    cutoff = parse_time(older_than, option="--older-than")
    repository = open_repository(url)
    if not dry_run and older_than != _DEFAULT_CUTOFF:
        confirm(f"delete unreferenced objects older than {time_text(cutoff)} UTC", yes=yes)
    with progress_bar("Collecting") as progress:
        summary = repository.garbage_collect(cutoff, full=full, dry_run=dry_run, progress=progress)
    if as_json:
        print_json(summary)
    else:
        counts = {name: count for name, count in plain(summary).items() if name.endswith("_deleted") and count}
        if counts:
            print("Dry run: would delete objects:" if dry_run else "Deleted objects:")
            print_report(False, {name.removesuffix("_deleted"): count for name, count in counts.items()})
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
        print_table(("snapshot",), [(snapshot,) for snapshot in sorted(expired)])


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
    engine: On = EngineName.threads,
    master: Master = None,
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
            min_live=min_live, dry_run=dry_run, engine=open_engine(engine, master), progress=progress,
        )  # fmt: skip
    if dry_run and not as_json:
        print("Dry run: nothing was changed; would do:")
    print_report(as_json, summary)
    if summary.damaged:
        raise typer.Exit(1)


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
    as_json: Json = False,
) -> None:
    """Run maintenance: expire by policy, compact, collect garbage and verify a sample.

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
    if as_json:
        print_json(report, indent=None)
    else:
        _print_maintenance(report)
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _print_maintenance(report: MaintenanceReport) -> None:
    """Print what each step has done, a line or two each."""
    steps = report.steps
    rows: list[tuple[str, object]] = [("status", f"{report.status}, in {report.seconds:.1f} s")]
    if "expire" in steps:
        rows.append(
            ("expire", f"{count_text(steps['expire']['snapshots'], 'snapshot')} by {steps['expire']['policy']}")
        )
    for branch, done in steps.get("compact", {}).items():
        rows.append((f"compact {branch}", _compact_text(done)))
    if "collect" in steps:
        rows.append(("collect", _collect_text(steps["collect"])))
    if "verify" in steps:
        findings = steps["verify"]["findings"]
        rows.append(("verify", "nothing found" if not findings else count_text(len(findings), "finding")))
    rows += [(f"{name} failed", text) for name, text in report.errors.items()]
    print_pairs(rows)
    _print_findings(steps.get("verify", {}).get("findings", ()))


def _print_findings(findings: Sequence[Mapping[str, Any]]) -> None:
    """Print the first findings of a verification, each with its remedy."""
    from arraystore._maintenance.verification.findings import Finding

    for each in findings[:_FINDINGS_SHOWN]:
        make_console().print(literal(Finding(**each)), soft_wrap=True)
    if len(findings) > _FINDINGS_SHOWN:
        print_note("`arraystore verify` shows all findings")


def _compact_text(done: Mapping[str, Any]) -> str:
    layers = f"{done['layers_before']:,} layers → {done['layers_after']:,}"
    packs = f"{count_text(done['packs_rewritten'], 'pack')} rewritten into {done['packs_written']:,}"
    text = f"{layers}, {packs}" if done["records"] else "nothing to do"
    if done["damaged"]:
        text += f"; damaged: {', '.join(pack['object'] for pack in done['damaged'])}"
    return text if done["complete"] else f"{text}; more is left for the next run"


def _collect_text(done: Mapping[str, Any]) -> str:
    kinds = {
        name.removesuffix("_deleted"): count for name, count in done.items() if name.endswith("_deleted") and count
    }
    size = kinds.pop("bytes", 0)
    if not kinds:
        return "nothing to delete"
    objects = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in kinds.items())
    failed = f"; {count_text(len(done['failures']), 'failure')}" if done["failures"] else ""
    return f"{bytes_text(size)} deleted: {objects}{failed}"
