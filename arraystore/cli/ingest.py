"""``arraystore ingest``: the plan as a table, a progress bar, and what came of it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from arraystore import storage_from_url
from arraystore.cli.console import bytes_text, make_console
from arraystore.ingest import IngestPlan, IngestReport, carry_out, parse_chunks, prepare
from arraystore.ingest.checks import describe_type
from arraystore.ingest.model import ArrayPlan
from arraystore.spark import start_session

__all__ = ["run_ingest", "show_plan", "show_report"]


def run_ingest(options: argparse.Namespace) -> None:
    """Do what the command line asks for."""
    console = make_console()
    prepared = prepare(
        options.sources,
        storage_from_url(options.repo),
        group=options.group,
        branch=options.branch,
        append_dim=options.append_dim,
        chunks=parse_chunks(options.chunks),
        tasks=options.tasks,
        skip=options.skip,
        source_group=options.source_group,
        master=options.master,
    )
    show_plan(console, prepared.plan, prepared.storage.location, options.branch, prepared.session is None)
    if options.dry_run:
        console.print("Dry run: nothing was changed.")
        return
    if not prepared.plan.tasks:
        show_report(console, carry_out(prepared, message=options.message))
        return
    with console.status("Starting Spark …"):
        spark = start_session(options.master)
    with Progress(
        TextColumn("Writing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
        console=console,
    ) as bar:
        task = bar.add_task("write", total=len(prepared.plan.tasks))
        report = carry_out(
            prepared, message=options.message, spark=spark,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )  # fmt: skip
    show_report(console, report)


def show_plan(console: Console, plan: IngestPlan, location: str, branch: str, is_new: bool) -> None:
    """Print what will be written, and where."""
    sources, where = escape(_sources_text(plan)), escape(location) + (" (new)" if is_new else "")
    target = f"{where}, branch {escape(branch)}, group {escape(plan.group.path)}"
    console.print(f"[bold]{sources}[/bold] → {target}", soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    for name in ("array", "dimensions", "type", "shape", "chunks", "written by"):
        table.add_column(name)
    table.add_column("regions", justify="right")
    table.add_column("size", justify="right")
    for array in plan.arrays:
        table.add_row(*_row(plan, array))
    console.print(table)
    console.print(f"{bytes_text(plan.nbytes)}; {_work_text(plan)}")
    for note in plan.notes:
        console.print(f"[yellow]note:[/yellow] {escape(note)}", soft_wrap=True)


def _work_text(plan: IngestPlan) -> str:
    if not plan.tasks:
        return "small enough for the driver alone, without Spark"
    regions, tasks = _counted(plan.region_count, "region"), _counted(len(plan.tasks), "task")
    return f"for executors: {regions} of whole chunks in {tasks}"


def _counted(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _sources_text(plan: IngestPlan) -> str:
    names = [source.name for source in plan.sources]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} … {names[-1]} ({len(names)} sources)"


def _row(plan: IngestPlan, array: ArrayPlan) -> Sequence[str]:
    variable = array.variable
    written = "driver" if array.on_driver else "executors"
    count = sum(region.array == array.name for task in plan.tasks for region in task)
    return (
        escape(array.name), escape(", ".join(variable.dims)), describe_type(variable.dtype), _shape_text(array),
        "×".join(map(str, array.chunks)), written, str(count or ""), bytes_text(array.nbytes),
    )  # fmt: skip


def _shape_text(array: ArrayPlan) -> str:
    """The shape as it will be; where the array grows, from what."""
    sizes = list(map(str, array.variable.shape))
    if array.axis is not None and not array.is_new:
        sizes[array.axis] = f"{array.start}→{sizes[array.axis]}"
    return "×".join(sizes)


def show_report(console: Console, report: IngestReport) -> None:
    """Print what an ingest has done."""
    retried = f", {report.retried} retried" if report.retried else ""
    console.print(
        f"[green]Committed[/green] {report.snapshot_id} “{escape(report.message)}”: {bytes_text(report.plan.nbytes)} "
        f"in {report.seconds:.2f} s{retried}",
        soft_wrap=True,
    )
