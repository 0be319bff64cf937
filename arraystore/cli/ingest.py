"""Ingest of files: ``ingest``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from arraystore._runtime.formatting import bytes_text, count_text
from arraystore.cli.console import literal, make_console, make_table, print_json
from arraystore.cli.options import Branch, DryRun, Json, Message
from arraystore.cli.progress import progress_bar
from arraystore.cli.repository_argument import REPOSITORY_VARIABLE

if TYPE_CHECKING:
    from rich.console import Console

    from arraystore.ingest import IngestPlan, IngestReport
    from arraystore.ingest.model import ArrayPlan

Sources = Annotated[list[str], typer.Argument(metavar="SOURCE…", help="Files, or directories or URLs of Zarr groups.")]
Repo = Annotated[
    str,
    typer.Option(
        "--repository", "-R", "--repo", metavar="URL", envvar=REPOSITORY_VARIABLE, show_envvar=False,
        help=f"Repository, created if it does not exist; {REPOSITORY_VARIABLE} does the same.",
    ),
]  # fmt: skip
Group = Annotated[str, typer.Option("--group", metavar="PATH", help="Target group of the variables.")]
AppendDim = Annotated[
    str | None,
    typer.Option(
        "--append-dim", metavar="DIM", help="Dimension along which to concatenate sources and to append to arrays."
    ),
]
Chunks = Annotated[
    str, typer.Option("--chunks", metavar="DIM=N,…", help="Chunk shape of new arrays, e.g. time=60,lat=37.")
]
Skip = Annotated[list[str] | None, typer.Option("--skip", metavar="NAME", help="Skip a variable (may be repeated).")]
SourceGroup = Annotated[
    str | None, typer.Option("--source-group", metavar="PATH", help="Group in the sources; the root by default.")
]
Tasks = Annotated[
    int | None, typer.Option("--tasks", metavar="N", help="Maximum number of tasks; 3 per slot by default.")
]
Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="Spark master; local[*] by default.")]


def ingest(
    sources: Sources,
    repo: Repo,
    branch: Branch = "main",
    group: Group = "",
    append_dim: AppendDim = None,
    chunks: Chunks = "",
    skip: Skip = None,
    source_group: SourceGroup = None,
    message: Message = None,
    tasks: Tasks = None,
    master: Master = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Ingest NetCDF-3, NetCDF-4, HDF5 and Zarr files into a group with Spark, in one commit.

    Values and attributes are stored without decoding. With --append-dim, sources are concatenated along that dimension
    in the order of the arguments, and appended to existing arrays. Without it, every variable becomes a new array. All
    sources are checked before the first task starts.
    """
    from arraystore.cli.resolve import open_storage
    from arraystore.ingest import carry_out, parse_chunks, prepare
    from arraystore.spark import start_session

    console = make_console()
    prepared = prepare(
        sources, open_storage(repo), group=group, branch=branch, append_dim=append_dim, chunks=parse_chunks(chunks),
        tasks=tasks, skip=skip or (), source_group=source_group, master=master,
    )  # fmt: skip
    if not as_json:
        show_plan(console, prepared.plan, prepared.storage.location, branch, prepared.session is None)
    if dry_run:
        if as_json:
            print_json({**_plan_json(prepared.plan), "dry_run": True})
        else:
            console.print("Dry run: nothing was changed.")
        return
    if prepared.plan.tasks:
        with make_console(stderr=True).status("Starting Spark …"):
            spark = start_session(master)
        with progress_bar("Writing") as progress:
            report = carry_out(prepared, message=message, spark=spark, progress=progress)
    else:
        report = carry_out(prepared, message=message)
    if as_json:
        done = {"snapshot": report.snapshot_id, "message": report.message, "seconds": report.seconds}
        print_json({**done, "retried": report.retried, **_plan_json(report.plan)})
    else:
        show_report(console, report)


def _plan_json(plan: IngestPlan) -> dict[str, object]:
    arrays = [
        {"name": array.name, "shape": array.variable.shape, "chunks": array.chunks, "new": array.is_new}
        for array in plan.arrays
    ]
    return {
        "group": plan.group.path, "sources": len(plan.sources), "arrays": arrays, "bytes": plan.nbytes,
        "tasks": len(plan.tasks), "notes": plan.notes,
    }  # fmt: skip


def show_plan(console: Console, plan: IngestPlan, location: str, branch: str, is_new: bool) -> None:
    """Print the plan of an ingest."""
    where = location + (" (new)" if is_new else "")
    line = (
        literal("")
        + literal(_sources_text(plan), "bold")
        + literal(f" → {where}, branch {branch}, group {plan.group.path}")
    )
    console.print(line, soft_wrap=True)
    names = "array", "dimensions", "type", "shape", "chunks", "written by", "regions", "size"
    table = make_table(*names, right=("regions", "size"))
    for array in plan.arrays:
        table.add_row(*map(literal, _row(plan, array)))
    console.print(table)
    console.print(f"{bytes_text(plan.nbytes)}; {_work_text(plan)}")
    for text in plan.notes:
        console.print(literal("") + literal("note:", "yellow") + literal(f" {text}"), soft_wrap=True)


def _work_text(plan: IngestPlan) -> str:
    if not plan.tasks:
        return "small enough for the driver alone, without Spark"
    regions, tasks = count_text(plan.region_count, "region"), count_text(len(plan.tasks), "task")
    return f"for executors: {regions} of whole chunks in {tasks}"


def _sources_text(plan: IngestPlan) -> str:
    names = [source.name for source in plan.sources]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} … {names[-1]} ({len(names)} sources)"


def _row(plan: IngestPlan, array: ArrayPlan) -> Sequence[str]:
    from arraystore.ingest.checks import describe_type

    variable = array.variable
    written = "driver" if array.on_driver else "executors"
    count = sum(region.array == array.name for task in plan.tasks for region in task)
    return (
        array.name, ", ".join(variable.dims), describe_type(variable.dtype), _shape_text(array),
        "×".join(map(str, array.chunks)), written, str(count or ""), bytes_text(array.nbytes),
    )  # fmt: skip


def _shape_text(array: ArrayPlan) -> str:
    """Format the resulting shape, with the previous length of a growing dimension."""
    sizes = list(map(str, array.variable.shape))
    if array.axis is not None and not array.is_new:
        sizes[array.axis] = f"{array.start}→{sizes[array.axis]}"
    return "×".join(sizes)


def show_report(console: Console, report: IngestReport) -> None:
    """Print the report of an ingest."""
    retried = f", {report.retried} retried" if report.retried else ""
    line = literal("") + literal("Committed", "green") + literal(f" {report.snapshot_id} “{report.message}”: ")
    size = bytes_text(report.plan.nbytes)
    console.print(line + literal(f"{size} in {report.seconds:.2f} s{retried}"), soft_wrap=True)
