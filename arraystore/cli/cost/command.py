"""Cost of a workload: ``cost``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arraystore._runtime.formatting import bytes_text
from arraystore.cli.console import add_row, make_console, make_table, print_json
from arraystore.cli.cost.prices import DEFAULT_PRICES, find_prices, read_object
from arraystore.cli.options import Json
from arraystore.cli.resolve import open_repository

if TYPE_CHECKING:
    from rich.table import Table

    from arraystore._context.config import RepositoryConfig
    from arraystore.cli.cost.estimate import Estimate, Item
    from arraystore.cli.cost.workload import Workload

_WRITING, _READING, _KEEPING, _PRICES = "What is written", "What is read", "What is kept", "Prices"
_KNOWN = "s3-standard, s3-standard-ia, gcs-standard, r2-standard, r2-infrequent-access"
_NO_FIELDS = {"url", "workload", "prices", "price", "as_json"}
"""Parameters of the command that do not change a field of the workload."""


def _option(name: str, metavar: str, help: str, panel: str, **more: Any) -> Any:  # noqa: A002 - as Typer calls it
    return typer.Option(name, metavar=metavar, help=help, rich_help_panel=panel, **more)


def _is_given(ctx: typer.Context, name: str) -> bool:
    """Tell whether an option is on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


Number = float | None
Url = Annotated[
    str | None,
    typer.Argument(metavar="URL", help="Repository whose statistics are the workload.", show_default=False),
]


def cost(
    ctx: typer.Context,
    url: Url = None,
    size: Annotated[str | None, _option("--size", "SIZE", "Bytes that are stored, e.g. 10TiB.", _KEEPING)] = None,
    retention_days: Annotated[
        Number, _option("--retention-days", "N", "Days for which replaced chunks are kept. [30]", _KEEPING)
    ] = None,
    maintain_per_day: Annotated[Number, _option("--maintain-per-day", "N", "Runs of maintain. [1]", _KEEPING)] = None,
    chunk_size: Annotated[
        str | None, _option("--chunk-size", "SIZE", "Bytes of a chunk, as encoded. [4MiB]", _WRITING)
    ] = None,
    commits_per_day: Annotated[Number, _option("--commits-per-day", "N", "Commits. [1]", _WRITING)] = None,
    chunks_per_commit: Annotated[
        Number, _option("--chunks-per-commit", "N", "Chunks that a commit writes. [100]", _WRITING)
    ] = None,
    workers: Annotated[
        Number, _option("--workers", "N", "Processes that write the chunks of a commit. [1]", _WRITING)
    ] = None,
    commits_per_process: Annotated[
        Number, _option("--commits-per-process", "N", "Commits that a process makes. [1]", _WRITING)
    ] = None,
    lost_races: Annotated[
        Number, _option("--lost-races", "N", "Races that a commit loses to others, on average. [0]", _WRITING)
    ] = None,
    overwrite: Annotated[
        Number, _option("--overwrite", "FRACTION", "Fraction of the chunks written that replace others. [0]", _WRITING)
    ] = None,
    reads_per_day: Annotated[
        Number, _option("--reads-per-day", "N", "Processes that open the repository to read. [0]", _READING)
    ] = None,
    chunks_per_read: Annotated[
        Number, _option("--chunks-per-read", "N", "Chunks that each of them reads. [100]", _READING)
    ] = None,
    contiguous: Annotated[
        bool,
        typer.Option(
            "--contiguous/--scattered",
            help="Neighbouring chunks, or any. [scattered]",
            rich_help_panel=_READING,
            show_default=False,
        ),
    ] = False,
    outside: Annotated[
        Number, _option("--outside", "FRACTION", "Fraction of the bytes read that leave the region. [0]", _READING)
    ] = None,
    workload: Annotated[
        str | None, _option("--workload", "FILE", "Workload as JSON, with the names that --json prints.", _KEEPING)
    ] = None,
    prices: Annotated[str, _option("--prices", "NAME", f"{_KNOWN}, or a JSON file.", _PRICES)] = DEFAULT_PRICES,
    price: Annotated[
        list[str] | None, _option("--price", "NAME=VALUE", "Change a price (may be repeated).", _PRICES)
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate requests and dollars of a month, from a workload or for a repository.

    With URL, size, chunks and commits are those of the repository and its branch main, and options change them. Without
    URL no request is made. Prices have a date and a source: compare them with your bill.
    """
    from arraystore.cli.cost.estimate import estimate
    from arraystore.cli.cost.workload import Workload, changed

    given = {name: value for name, value in ctx.params.items() if _is_given(ctx, name) and name not in _NO_FIELDS}
    if url is None and workload is None and size is None:
        raise typer.BadParameter("give a repository (URL), or a workload: --size, or --workload FILE", param_hint="URL")
    charged = find_prices(prices, price or ())
    from_file = {} if workload is None else read_object(workload, "a workload")
    base, config = (Workload(), None) if url is None else _observed(url)
    result = estimate(changed(changed(base, from_file), given), charged, config)
    if as_json:
        print_json(result)
    else:
        _print(result)


def _observed(url: str) -> tuple[Workload, RepositoryConfig]:
    from arraystore.cli.cost.workload import SNAPSHOTS_EXAMINED, observed

    repository = open_repository(url)
    return observed(repository.statistics(limit=SNAPSHOTS_EXAMINED)), repository.config


def _print(result: Estimate) -> None:
    console = make_console()
    prices = result.prices
    console.print(f"{prices.service}, {prices.region}: prices of {prices.as_of}, {prices.source}", markup=False)
    console.print(_workload_text(result.workload), markup=False)
    console.print()
    console.print(_table(result))
    console.print()
    growth = f"The storage grows by {bytes_text(int(result.growth_bytes))} in the month"
    console.print(f"{growth}, which adds {_dollars(result.growth_dollars)} to each month that follows.", markup=False)


def _workload_text(workload: Workload) -> str:
    written = f"{_number(workload.commits_per_day)} commits a day of {_number(workload.chunks_per_commit)} chunks"
    chunk = bytes_text(int(workload.chunk_size))
    read = f"{_number(workload.reads_per_day)} reads a day of {_number(workload.chunks_per_read)} chunks"
    return f"{bytes_text(int(workload.size))} in chunks of {chunk}; {written}; {read}"


def _table(result: Estimate) -> Table:
    kinds = ["put", "get", "list", *(["delete"] if result.prices.delete_1000 else [])]
    numbers = (*map(str.upper, kinds), "stored", "read", "dollars")
    table = make_table("a month of", *numbers, right=numbers)
    for item in (*result.items, result.total):
        add_row(table, "total" if item is result.total else item.what, *_cells(item, kinds))
    return table


def _cells(item: Item, kinds: Sequence[str]) -> Iterator[str]:
    for kind in kinds:
        count = getattr(item.requests, kind)
        yield f"{count:,.0f}" if count else ""
    for size in (item.stored_bytes, item.read_bytes):
        yield bytes_text(int(size)) if size else ""
    yield _dollars(item.dollars)


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
