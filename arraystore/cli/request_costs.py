"""Requests and bytes that reading commands cost, measured by running them: ``stat --requests``."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arraystore.cli import history, inspect, refs
from arraystore.cli.resolve import count_requests, open_repository

if TYPE_CHECKING:
    from rich.table import Table

    from arraystore._maintenance.verification.statistics import ArrayStatistics, RepositoryStatistics
    from arraystore.storage import Counts

__all__ = ["CommandCost", "cost_table", "measure_costs"]

_SNAPSHOTS = 10
_KINDS = {"GET": ("get", "get_ranges"), "LIST": ("list",), "HEAD": ("head",)}
"""Operations of the storage by kind of request; commands that only read send no others."""


@dataclass(frozen=True)
class CommandCost:
    """Requests of a command in a process that knows nothing yet, and the bytes that they carry."""

    command: str
    requests: Mapping[str, int]
    """Requests by operation."""
    total: int
    bytes_read: int
    bytes_written: int


def measure_costs(url: str, branch: str, statistics: Callable[[], RepositoryStatistics]) -> list[CommandCost]:
    """Run commands that only read, and return what each costs; `statistics` is what ``stat`` itself does."""
    found: list[RepositoryStatistics] = []
    commands: dict[str, Callable[[], object]] = {
        "branch list": lambda: refs.list_branches(url),
        f"log -n {_SNAPSHOTS}": lambda: history.log(url, branch=branch, limit=_SNAPSHOTS),
        "show": lambda: history.show(url, branch),
        "tree --quick": lambda: inspect.tree(url, ref=branch, quick=True),
        "tree": lambda: inspect.tree(url, ref=branch),
        "stat": lambda: found.append(statistics()),
    }
    costs = [_measure(command, run) for command, run in commands.items()]
    arrays = [each for each in found[0].arrays if each.native_bytes and not each.virtual_bytes]
    if arrays:
        largest = max(arrays, key=lambda each: each.native_bytes)
        costs.append(_measure(f"a chunk of /{largest.path}", lambda: _read_chunk(url, branch, largest)))
    return costs


def _measure(command: str, run: Callable[[], object]) -> CommandCost:
    with count_requests() as counted, contextlib.redirect_stdout(io.StringIO()):
        run()
    counts: Counts = counted()
    return CommandCost(command, counts.requests, counts.total, counts.bytes_read, counts.bytes_written)


def _read_chunk(url: str, branch: str, array: ArrayStatistics) -> None:
    """Read one chunk of an array, with its metadata and its manifest, without decoding it."""
    from arraystore._format.zarr_metadata import array_info
    from arraystore._session.listing import visible_nodes

    session = open_repository(url).readonly_session(branch)
    node = next(each for each in visible_nodes(session.hierarchy, array.path) if each.path == array.path)
    coordinates = session.chunk_coordinates(array.path)[0]
    key = array_info(node.documents).key(tuple(coordinates.tolist()))
    session.hierarchy.get_sync(f"{array.path}/{key}" if array.path else key)


def cost_table(costs: list[CommandCost]) -> Table:
    """Return costs as a table."""
    from arraystore._runtime.formatting import bytes_text
    from arraystore.cli.console import add_row, make_table

    table = make_table("command", *_KINDS, "requests", "read", right=(*_KINDS, "requests", "read"))
    for cost in costs:
        counts = [sum(cost.requests.get(each, 0) for each in operations) for operations in _KINDS.values()]
        add_row(table, cost.command, *counts, cost.total, bytes_text(cost.bytes_read))
    return table
