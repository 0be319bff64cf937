"""Storage statistics of a repository: ``stat``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from arraystore._runtime.formatting import bytes_text, count_text
from arraystore.cli.console import add_row, make_console, make_table, print_json
from arraystore.cli.options import Json, Url
from arraystore.cli.resolve import open_repository

if TYPE_CHECKING:
    from rich.table import Table

    from arraystore._maintenance.verification.statistics import RepositoryStatistics

_MOST_ARRAYS = 50


def stat(
    url: Url,
    branch: Annotated[
        str, typer.Option("--branch", "-b", metavar="NAME", help="Branch whose arrays and snapshots to show.")
    ] = "main",
    snapshots: Annotated[
        int, typer.Option("--snapshots", "-n", metavar="N", min=0, help="Analyse the newest N snapshots.")
    ] = 10,
    requests: Annotated[
        bool,
        typer.Option("--requests", help="Show what reading commands cost: requests and bytes."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show storage statistics: objects by kind, live fraction of packs, sizes of arrays and snapshots.

    Objects and packs are those of the whole repository. With --requests, show instead what commands that read cost in
    this repository: requests by kind, and bytes. Each is run once, as by a new process; nothing is written.
    """
    if requests:
        _print_costs(url, branch, snapshots, as_json)
        return
    statistics = open_repository(url).statistics(branch=branch, limit=snapshots)
    if as_json:
        print_json(statistics)
        return
    console = make_console()
    for title, table in (
        (f"{bytes_text(statistics.total_bytes)} in total", _objects(statistics)),
        (_packs_text(statistics), None),
        (f"arrays of branch {branch}", _arrays(statistics)),
        (_rate_text(statistics), _snapshots(statistics)),
    ):
        console.print(title, style="bold", markup=False)
        if table is not None:
            console.print(table)
        console.print()


def _print_costs(url: str, branch: str, snapshots: int, as_json: bool) -> None:
    from arraystore.cli.request_costs import cost_table, measure_costs

    costs = measure_costs(url, branch, lambda: open_repository(url).statistics(branch=branch, limit=snapshots))
    if as_json:
        print_json(costs)
    else:
        make_console().print(cost_table(costs))


def _objects(statistics: RepositoryStatistics) -> Table:
    table = make_table("kind", "objects", "size", right=("objects", "size"))
    for kind, each in statistics.objects.items():
        if each.count:
            add_row(table, kind.replace("_", " "), f"{each.count:,}", bytes_text(each.bytes))
    return table


def _packs_text(statistics: RepositoryStatistics) -> str:
    packs = statistics.packs
    if not packs.count:
        return "no packs: all chunks are inlined"
    live = f"{100 * packs.live_fraction:.0f} % of {bytes_text(packs.bytes)} referenced by branch tips and tags"
    return f"{count_text(packs.count, 'pack')}: {live}, {count_text(packs.unused, 'pack')} unreferenced"


def _arrays(statistics: RepositoryStatistics) -> Table:
    numbers = "chunks", "in packs", "in manifests", "elsewhere", "layers"
    table = make_table("array", *numbers, right=numbers)
    for each in statistics.arrays[:_MOST_ARRAYS]:
        sizes = map(bytes_text, (each.native_bytes, each.inlined_bytes, each.virtual_bytes))
        add_row(table, f"/{each.path.lstrip('/')}", f"{each.chunks:,}", *sizes, each.layers)
    if len(statistics.arrays) > _MOST_ARRAYS:
        add_row(table, f"… and {count_text(len(statistics.arrays) - _MOST_ARRAYS, 'more array')}; --json shows them")
    return table


def _rate_text(statistics: RepositoryStatistics) -> str:
    newest = f"newest {count_text(len(statistics.snapshots), 'snapshot')} of branch {statistics.branch}"
    return f"{newest}; {statistics.rate.text}"


def _snapshots(statistics: RepositoryStatistics) -> Table:
    numbers = "unique", "shared with older ones"
    table = make_table("snapshot", *numbers, right=numbers)
    for each in statistics.snapshots:
        add_row(table, each.id, bytes_text(each.unique_bytes), bytes_text(each.shared_bytes))
    return table
