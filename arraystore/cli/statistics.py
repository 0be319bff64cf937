"""What a repository consists of, and what it costs: ``stat``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from arraystore.cli.console import add_row, bytes_text, count_text, make_console, make_table, print_json
from arraystore.cli.opening import open_repository
from arraystore.cli.options import Json, Url

if TYPE_CHECKING:
    from rich.table import Table

    from arraystore._maintenance.verification.statistics import RepositoryStatistics

__all__ = ["stat"]

_MOST_ARRAYS = 50


def stat(
    url: Url,
    branch: Annotated[
        str, typer.Option("--branch", "-b", metavar="NAME", help="Branch whose arrays and snapshots are shown.")
    ] = "main",
    snapshots: Annotated[
        int, typer.Option("--snapshots", "-n", metavar="N", min=0, help="Look at the newest N snapshots.")
    ] = 10,
    as_json: Json = False,
) -> None:
    """Show what takes how much storage: kinds of objects, packs and how much of them is in use, arrays, snapshots.

    Objects and packs are those of the whole repository.
    """
    found = open_repository(url).statistics(branch=branch, limit=snapshots)
    if as_json:
        print_json(found)
        return
    console = make_console()
    for title, table in (
        (f"{bytes_text(found.total_bytes)} in all", _objects(found)),
        (_packs_text(found), None),
        (f"arrays of branch {branch}", _arrays(found)),
        (_rate_text(found), _snapshots(found)),
    ):
        console.print(title, style="bold", markup=False)
        if table is not None:
            console.print(table)
        console.print()


def _objects(found: RepositoryStatistics) -> Table:
    table = make_table("kind", "objects", "size", right=("objects", "size"))
    for kind, each in found.objects.items():
        if each.count:
            add_row(table, kind.replace("_", " "), f"{each.count:,}", bytes_text(each.bytes))
    return table


def _packs_text(found: RepositoryStatistics) -> str:
    packs = found.packs
    if not packs.count:
        return "no packs: all chunks are small enough to travel in records and manifests"
    used = f"{count_text(packs.count, 'pack')}: the newest snapshots and tags use {100 * packs.live_fraction:.0f} %"
    return f"{used} of {bytes_text(packs.bytes)}, and nothing of {count_text(packs.unused, 'pack')}"


def _arrays(found: RepositoryStatistics) -> Table:
    numbers = "chunks", "in packs", "in manifests", "elsewhere", "layers"
    table = make_table("array", *numbers, right=numbers)
    for each in found.arrays[:_MOST_ARRAYS]:
        sizes = map(bytes_text, (each.native_bytes, each.inlined_bytes, each.virtual_bytes))
        add_row(table, f"/{each.path.lstrip('/')}", f"{each.chunks:,}", *sizes, each.layers)
    if len(found.arrays) > _MOST_ARRAYS:
        add_row(table, f"… and {count_text(len(found.arrays) - _MOST_ARRAYS, 'more array')}; --json shows them")
    return table


def _rate_text(found: RepositoryStatistics) -> str:
    rate = found.rate.per_day
    often = "" if rate is None else f", {rate:,.0f} a day" if rate >= 10 else f", {rate:.2g} a day"
    return f"newest {count_text(len(found.snapshots), 'snapshot')} of branch {found.branch}{often}"


def _snapshots(found: RepositoryStatistics) -> Table:
    numbers = "brought in", "shared with older ones"
    table = make_table("snapshot", *numbers, right=numbers)
    for each in found.snapshots:
        add_row(table, each.id, bytes_text(each.unique_bytes), bytes_text(each.shared_bytes))
    return table
