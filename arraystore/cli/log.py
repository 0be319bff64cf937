"""``arraystore log``: the history of a branch or tag as a table."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table

from arraystore import Repository, SnapshotInfo, storage_from_url
from arraystore.cli.console import make_console

__all__ = ["history_table", "run_log"]


def run_log(options: argparse.Namespace) -> None:
    """Do what the command line asks for."""
    repository = Repository.open(storage_from_url(options.repo))
    if options.tag is not None:
        snapshots = repository.ancestry(tag=options.tag)
    else:
        snapshots = repository.ancestry(branch=options.branch or "main")
    make_console().print(history_table(itertools.islice(snapshots, options.limit)))


def history_table(snapshots: Iterable[SnapshotInfo]) -> Table:
    """Snapshots as a table, in the order given."""
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    table.add_column("snapshot", no_wrap=True)
    table.add_column("written (UTC)", no_wrap=True)
    table.add_column("message")
    for snapshot in snapshots:
        table.add_row(snapshot.id, f"{snapshot.written_at:%Y-%m-%d %H:%M:%S}", escape(snapshot.message))
    return table
