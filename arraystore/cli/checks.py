"""Finding and mending damage: ``verify``, ``repair``."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from arraystore.cli.asking import confirm
from arraystore.cli.console import literal, make_console, print_json
from arraystore.cli.opening import open_repository
from arraystore.cli.options import DryRun, Json, Url, Yes
from arraystore.cli.progress import progress_bar

if TYPE_CHECKING:
    from arraystore._maintenance.verification.findings import VerifyReport
    from arraystore._maintenance.verification.repair import RepairReport

__all__ = ["repair", "verify"]


class Level(StrEnum):
    """How deep to look."""

    metadata = "metadata"
    chunks = "chunks"


def verify(
    url: Url,
    level: Annotated[
        Level, typer.Option("--level", help="metadata: all but the values; chunks: read and check these, too.")
    ] = Level.metadata,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", min=1, help="Check N chunks only, chosen at random.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check everything that snapshots need: that it is there, undamaged, and means what it should.

    Each finding names the object, the snapshots and arrays that it affects, and what to do. Exit status: 0 if nothing
    is wrong, 3 if there are only warnings, 4 if something that was committed cannot be read, 5 if virtual chunks
    could not be read because their sources cannot be reached from here.
    """
    repository = open_repository(url)
    deep = Level.chunks if sample is not None else level
    with progress_bar("Verifying") as progress:
        report = repository.verify(level=deep.value, sample=sample, progress=progress)
    _tell(report, as_json)


def repair(url: Url, yes: Yes = False, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Rebuild what can be derived from the log: hints, history pages, checkpoints and lost records.

    What is there of commits and values is never touched. What is left is told as `arraystore verify` tells it, with the
    same exit status.
    """
    repository = open_repository(url)
    if not dry_run:
        confirm(f"rebuild hints, history pages, checkpoints and lost records of {repository.storage.location}", yes=yes)
    with progress_bar("Repairing") as progress:
        report = repository.repair(dry_run=dry_run, progress=progress)
    _tell(report, as_json)


def _tell(report: VerifyReport | RepairReport, as_json: bool) -> None:
    """Print a report, and end with the exit code that it asks for."""
    if as_json:
        print_json(report)
    else:
        make_console().print(literal(report), soft_wrap=True)
    if report.exit_code:
        raise typer.Exit(report.exit_code)
