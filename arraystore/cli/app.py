"""Commands of the command line, and their panels in the help."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from arraystore.cli import (
    history,
    ingest,
    inspect,
    maintain,
    metadata,
    refs,
    settings,
    statistics,
    transfer,
    verify,
)
from arraystore.cli.group import Commands
from arraystore.cli.options import CHANGE, CONFIGURE, INSPECT, MAINTENANCE, TRANSFER

_ABOUT = """Versioned, transactional arrays on object storage.

A repository is located by a URL: s3://bucket/prefix, gs://bucket/prefix, az://account/container/prefix, or a directory.
It stores Zarr groups and arrays as a history of snapshots; branches point to its tips, tags to fixed snapshots.

Credentials are taken from the environment, as by the tools of the cloud providers, and must not be part of the URL.

Start with init, tree and log. Run `arraystore COMMAND --help` for the options of a command.

All commands accept --json. Exit status: 0 on success, 1 on error, 2 on invalid usage, 130 if interrupted.
"""

_COMMANDS: dict[str, tuple[tuple[str, Any], ...]] = {
    INSPECT: (
        ("log", history.log),
        ("show", history.show),
        ("diff", history.diff),
        ("tree", inspect.tree),
        ("ls", inspect.ls),
        ("stat", statistics.stat),
        ("ops", history.ops),
    ),
    CHANGE: (
        ("branch", refs.branches),
        ("tag", refs.tags),
        ("reset", refs.reset),
        ("revert", refs.revert),
        ("cherry-pick", refs.cherry_pick),
    ),
    MAINTENANCE: (
        ("expire", maintain.expire),
        ("gc", maintain.gc),
        ("compact", maintain.compact),
        ("verify", verify.verify),
        ("repair", verify.repair),
        ("maintain", maintain.maintain),
    ),
    TRANSFER: (
        ("ingest", ingest.ingest),
        ("clone", transfer.clone),
        ("copy", transfer.copy),
        ("import", transfer.imports),
        ("export", transfer.export),
    ),
    CONFIGURE: (
        ("init", settings.init),
        ("config", settings.config),
        ("status", settings.status),
        ("retention", maintain.retention),
        ("metadata", metadata.metadata),
        ("flag", metadata.flags),
    ),
}


def _print_version(requested: bool) -> None:
    if requested:
        from arraystore import __version__

        print(f"arraystore {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
]


def _root(version: Version = False) -> None:
    """Parse the options before the command."""


def make_app() -> typer.Typer:
    """Build the Typer application."""
    app = typer.Typer(
        name="arraystore",
        cls=Commands,
        add_completion=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help=_ABOUT)(_root)
    for panel, entries in _COMMANDS.items():
        for name, entry in entries:
            if isinstance(entry, typer.Typer):
                app.add_typer(entry, name=name, rich_help_panel=panel)
            else:
                app.command(name, rich_help_panel=panel)(entry)
    return app


def command() -> Any:
    """Build the runnable command, with commands in order."""
    group: Any = typer.main.get_command(make_app())
    group.commands = {name: group.commands[name] for entries in _COMMANDS.values() for name, _ in entries}
    return group
