"""Detection and repair of damage: ``verify``, ``repair``."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from arraystore._runtime.formatting import count_text
from arraystore.cli.confirmation import confirm
from arraystore.cli.console import literal, make_console, print_json
from arraystore.cli.engine import EngineName, Master, On, open_engine
from arraystore.cli.options import Authorize, DryRun, Json, Url, Yes
from arraystore.cli.progress import progress_bar
from arraystore.cli.resolve import open_repository

if TYPE_CHECKING:
    from arraystore._maintenance.verification.findings import VerifyReport
    from arraystore._maintenance.verification.repair import RepairReport


class Level(StrEnum):
    """Depth of a verification."""

    metadata = "metadata"
    chunks = "chunks"


def verify(
    url: Url,
    level: Annotated[
        Level,
        typer.Option("--level", help="metadata: check all objects but chunks; chunks: read and check chunks, too."),
    ] = Level.metadata,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", min=1, help="Check only N random chunks.")
    ] = None,
    authorize: Authorize = None,
    engine: On = EngineName.threads,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Verify that all objects referenced by snapshots exist, are undamaged and consistent.

    Each finding names the object, the affected snapshots and arrays, and the remedy.
    """
    repository = open_repository(url, authorize)
    deep = Level.chunks if sample is not None else level
    with progress_bar("Verifying") as progress:
        report = repository.verify(
            level=deep.value, sample=sample, engine=open_engine(engine, master), progress=progress
        )  # fmt: skip
    _print_report(report, as_json)


def repair(url: Url, yes: Yes = False, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Rebuild objects that can be derived from the log: hints, history pages, checkpoints and lost records.

    Existing commits and chunks are never changed, and nobody is asked where there is nothing to rebuild. Remaining
    findings are reported as by `arraystore verify`, with the same exit status.
    """
    repository = open_repository(url)
    with progress_bar("Repairing") as progress:
        report = repository.repair(dry_run=dry_run or not yes, progress=progress)
    if not report.actions:
        report = replace(report, dry_run=dry_run)
    elif not (dry_run or yes):
        confirm(f"rebuild {count_text(len(report.actions), 'object')} of {repository.storage.location}", yes=False)
        report = repository.repair()
    _print_report(report, as_json)


def _print_report(report: VerifyReport | RepairReport, as_json: bool) -> None:
    """Print a report and exit with its exit status."""
    if as_json:
        print_json(report)
    else:
        make_console().print(literal(report), soft_wrap=True)
    if report.exit_code:
        raise typer.Exit(report.exit_code)
