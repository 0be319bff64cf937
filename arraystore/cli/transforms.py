"""Transforms of arrays: ``transform``, ``rechunk`` and ``pyramid``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from arraystore.cli.computation import Computation, parse_counts, parse_names, parse_numbers
from arraystore.cli.console import print_result
from arraystore.cli.engine import EngineName, Master, On, open_engine
from arraystore.cli.options import Authorize, Branch, DryRun, Json, Message, Url
from arraystore.cli.progress import progress_bar
from arraystore.cli.resolve import open_repository
from arraystore.cli.sizes import parse_size
from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    from arraystore import Session

ArrayPath = Annotated[str, typer.Argument(metavar="ARRAY", help="Path of the array.")]
Result = Annotated[str, typer.Argument(metavar="RESULT", help="Path of the result.")]
Memory = Annotated[str, typer.Option("--memory", metavar="SIZE", help="Most bytes of values that a task may hold.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing node.")]
Factors = Annotated[
    str | None, typer.Option("--factors", metavar="DIM=N,…", help="Cells of a window by dimension, e.g. y=2,x=2.")
]


def rechunk(
    url: Url,
    array: ArrayPath,
    chunks: Annotated[
        str,
        typer.Option(
            "--chunks",
            metavar="SIDES",
            help="By dimension, time=-1,lat=10, where the others stay, or of all, 365,10,10; -1 is a whole dimension.",
        ),
    ],
    shards: Annotated[
        str | None, typer.Option("--shards", metavar="SIDES", help="Sides of shards; without shards by default.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="PATH", help="Path of the result; the array itself by default.")
    ] = None,
    branch: Branch = "main",
    memory: Memory = "512MiB",
    overwrite: Overwrite = False,
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew instead of resuming.")] = False,
    message: Message = None,
    engine: On = EngineName.threads,
    master: Master = None,
    authorize: Authorize = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Copy an array into other chunks, in bounded memory and one commit.

    Run it again to continue after an interruption. --dry-run prints the plan: stages, boxes, bytes and memory.
    """
    from arraystore.transforms import plan_rechunk
    from arraystore.transforms import rechunk as copy

    repository = open_repository(url, authorize)
    sides, outer = _sides(chunks, "--chunks"), None if shards is None else _sides(shards, "--shards")
    size, workers = parse_size(memory, option="--memory"), open_engine(engine, master)
    if dry_run:
        plan = plan_rechunk(repository, array, sides, branch=branch, shards=outer, memory=size, engine=workers)
        print_result(as_json, str(plan), plan=plan)
        return
    with progress_bar("Copying") as progress:
        report = copy(
            repository, array, sides, branch=branch, target=target, shards=outer, memory=size, overwrite=overwrite,
            message=message, engine=workers, restart=restart, progress=progress,
        )  # fmt: skip
    if report.snapshot_id is None:
        text = f"{array} has these chunks already; nothing was committed."
    else:
        resumed = " (resumed)" if report.resumed else ""
        text = f"{report.plan}\nCommitted snapshot {report.snapshot_id}{resumed}."
    print_result(
        as_json, text, snapshot=report.snapshot_id, resumed=report.resumed, boxes=report.boxes, tasks=report.tasks,
        bytes=report.nbytes, plan=report.plan,
    )  # fmt: skip


def transform(
    url: Url,
    array: ArrayPath,
    result: Result,
    function: Annotated[
        str,
        typer.Option(
            "--function",
            "-f",
            metavar="NAME",
            help="mean, sum, min, max, std, var, count, quantile or histogram; with --factors mean, sum, min, max, "
            "median or first; or MODULE:FUNCTION of numpy arrays, for a result that exists.",
        ),
    ] = "mean",
    dims: Annotated[
        str | None, typer.Option("--dims", metavar="DIM,…", help="Dimensions to reduce; all by default.")
    ] = None,
    factors: Factors = None,
    quantiles: Annotated[
        str | None, typer.Option("--quantiles", metavar="Q,…", help="Quantiles from 0 to 1, of --function quantile.")
    ] = None,
    bins: Annotated[
        str | None, typer.Option("--bins", metavar="EDGE,…", help="Edges of bins, ascending, of --function histogram.")
    ] = None,
    halo: Annotated[
        str | None, typer.Option("--halo", metavar="DIM=N,…", help="Cells around each box, of MODULE:FUNCTION.")
    ] = None,
    branch: Branch = "main",
    memory: Memory = "256MiB",
    overwrite: Overwrite = False,
    message: Message = None,
    engine: On = EngineName.threads,
    master: Master = None,
    authorize: Authorize = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Reduce an array along dimensions, coarsen it, or compute one with a function of chunks, in one commit.

    --dry-run prints what would be read and written.
    """
    from arraystore import ConflictDetector

    size = parse_size(memory, option="--memory")
    computation = Computation(
        function, parse_names(dims), parse_counts(factors, "--factors"), parse_numbers(quantiles, "--quantiles"),
        parse_numbers(bins, "--bins"), parse_counts(halo, "--halo"), overwrite,
    )  # fmt: skip
    session = open_repository(url, authorize).writable_session(branch)
    if dry_run:
        _print_plan(session, array, result, computation, size, as_json)
        return
    options: dict[str, Any] = {"memory": size, "engine": open_engine(engine, master)}
    with progress_bar("Computing") as progress:
        report = computation.run(session, array, result, progress=progress, **options)
        snapshot = session.commit(message or f"Compute {result} from {array}", rebase_with=ConflictDetector())
    print_result(as_json, f"{report}\nCommitted snapshot {snapshot}.", snapshot=snapshot, report=report)


def _print_plan(
    session: Session, array: str, result: str, computation: Computation, memory: int, as_json: bool
) -> None:
    """Print what a transform would read and write, without doing it."""
    from arraystore.transforms.arrays import describe_array
    from arraystore.transforms.reduction_plan import plan_reduction

    source = describe_array(session, array)
    computation.check(session, array, result)
    if not computation.is_reduction:
        print_result(
            as_json, f"Would read {array} ({source.nbytes:,} bytes) and write {result}.", read_bytes=source.nbytes
        )
        return
    plan = plan_reduction(source, computation.dims, 16, None, memory)
    if computation.quantiles is not None and plan.kept:
        plan = plan.holding_all(memory)
    text = (
        f"Would read {array} ({source.nbytes:,} bytes) in {len(plan.boxes)} x {len(plan.blocks)} blocks and write "
        f"{result}, of shape {plan.kept_shape} and chunks {plan.chunks}."
    )
    print_result(
        as_json, text, read_bytes=source.nbytes, boxes=len(plan.boxes), blocks=len(plan.blocks), shape=plan.kept_shape,
        chunks=plan.chunks,
    )  # fmt: skip


def pyramid(
    url: Url,
    array: ArrayPath,
    factors: Factors = None,
    levels: Annotated[
        int | None,
        typer.Option("--levels", metavar="N", min=1, help="Levels; until there is one chunk by default."),
    ] = None,
    function: Annotated[
        str, typer.Option("--function", "-f", metavar="NAME", help="mean, sum, min, max, median or first.")
    ] = "mean",
    branch: Branch = "main",
    memory: Memory = "256MiB",
    overwrite: Overwrite = False,
    message: Message = None,
    engine: On = EngineName.threads,
    master: Master = None,
    authorize: Authorize = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Build coarser levels of an array with metadata of the multiscales convention, in one commit."""
    from arraystore import ConflictDetector
    from arraystore.transforms import build_pyramid
    from arraystore.transforms.arrays import describe_array
    from arraystore.transforms.pyramids import plan_levels

    session = open_repository(url, authorize).writable_session(branch)
    windows = parse_counts(factors, "--factors")
    if windows is None:
        raise InvalidInputError("--factors is needed: for instance --factors y=2,x=2")
    if dry_run:
        shapes = plan_levels(describe_array(session, array), windows, levels)
        print_result(as_json, "\n".join(f"level {n}: {shape}" for n, shape in enumerate(shapes, 1)), levels=shapes)
        return
    with progress_bar("Computing") as progress:
        report = build_pyramid(
            session, array, windows, levels=levels, function=function, overwrite=overwrite,
            memory=parse_size(memory, option="--memory"), engine=open_engine(engine, master), progress=progress,
        )  # fmt: skip
        snapshot = session.commit(message or f"Build a pyramid of {array}", rebase_with=ConflictDetector())
    text = "\n".join([*map(str, report.reports), f"Committed snapshot {snapshot}."])
    print_result(as_json, text, snapshot=snapshot, report=report)


# -- options ----------------------------------------------------------------------------------------------------


def _sides(text: str, option: str) -> dict[str, int] | tuple[int, ...]:
    """Parse sides of chunks: by dimension, or of all."""
    if "=" in text:
        return parse_counts(text, option) or {}
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidInputError(f"{option} {text!r} must be like time=-1,lat=10 or 365,10,10") from None
