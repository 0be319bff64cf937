"""All commands, and where they stand in the help."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from arraystore.cli import (
    care,
    changes,
    checks,
    compaction,
    hierarchies,
    history,
    ingest,
    inspect,
    metadata,
    operations,
    refs,
    settings,
    statistics,
    transfer,
    upkeep,
)
from arraystore.cli.group import Commands
from arraystore.cli.options import CARE, CHANGING, LOOKING, MOVING, SETTING

__all__ = ["command", "make_app"]

_ABOUT = """Versioned, transactional arrays on object storage.

A repository lives under a URL: s3://bucket/prefix, gs://bucket/prefix, az://account/container/prefix, or a directory.
It holds Zarr groups and arrays as a history of snapshots; branches move along it, tags do not.

Credentials come from where the cloud's own tools take them, never from the URL.

Begin with init, tree and log; `arraystore COMMAND --help` tells all about one.

Every command takes --json for programs. Exit status: 0 fine, 1 error, 2 wrong usage, 130 interrupted.
"""

_COMMANDS: dict[str, tuple[tuple[str, Any], ...]] = {
    LOOKING: (
        ("log", history.log),
        ("show", history.show),
        ("diff", history.diff),
        ("tree", inspect.tree),
        ("ls", inspect.ls),
        ("stat", statistics.stat),
        ("ops", operations.ops),
    ),
    CHANGING: (
        ("branch", refs.branches),
        ("tag", refs.tags),
        ("reset", refs.reset),
        ("revert", changes.revert),
        ("cherry-pick", changes.cherry_pick),
    ),
    CARE: (
        ("expire", care.expire),
        ("gc", care.gc),
        ("compact", compaction.compact),
        ("verify", checks.verify),
        ("repair", checks.repair),
        ("maintain", upkeep.maintain),
    ),
    MOVING: (
        ("ingest", ingest.ingest),
        ("clone", transfer.clone),
        ("copy", transfer.copy),
        ("import", hierarchies.imports),
        ("export", hierarchies.export),
    ),
    SETTING: (
        ("init", settings.init),
        ("config", settings.config),
        ("status", settings.status),
        ("retention", upkeep.retention),
        ("metadata", metadata.metadata),
        ("flag", metadata.flags),
    ),
}


def _print_version(asked: bool) -> None:
    if asked:
        from arraystore import __version__

        print(f"arraystore {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")]


def _root(version: Version = False) -> None:
    """Take the options that stand before the command."""


def make_app() -> typer.Typer:
    """Return the command line."""
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
    """Return the command line as something that can be run."""
    group: Any = typer.main.get_command(make_app())
    group.commands = {name: group.commands[name] for entries in _COMMANDS.values() for name, _ in entries}
    return group
