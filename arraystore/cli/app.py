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
    retention,
    settings,
    statistics,
    transfer,
    transforms,
    ui,
    verify,
    virtual,
)
from arraystore.cli.cost.command import cost
from arraystore.cli.failures import EXIT_STATUSES, VERIFY_STATUSES
from arraystore.cli.group import Commands
from arraystore.cli.options import CHANGE, COMPUTE, CONFIGURE, INSPECT, MAINTENANCE, START, TRANSFER
from arraystore.cli.repository_argument import REPOSITORY_VARIABLE, RepositoryCommand, RepositoryOption

_ABOUT = f"""Versioned, transactional arrays on object storage.

A repository is located by a URL: s3://bucket/prefix, gs://bucket/prefix, az://account/container/prefix, or a directory.
It stores Zarr groups and arrays as a history of snapshots; branches point to its tips, tags to fixed snapshots.

Commands take the URL as an argument, by -R, or from the environment variable {REPOSITORY_VARIABLE}. Credentials are
taken from the environment, as by the tools of the cloud providers, and must not be part of the URL.

Start with init; ingest or import data; look at it with tree and log. Run `arraystore COMMAND --help` for the options of
a command.

All commands accept --json. {EXIT_STATUSES} verify and repair: 3 warnings, 4 damage, 5 sources not read.
"""

_COMMANDS: dict[str, tuple[tuple[str, Any], ...]] = {
    START: (
        ("init", settings.init),
        ("ingest", ingest.ingest),
        ("virtualize", virtual.virtualize),
        ("status", settings.status),
    ),
    INSPECT: (
        ("log", history.log),
        ("show", history.show),
        ("diff", history.diff),
        ("tree", inspect.tree),
        ("ls", inspect.ls),
        ("stat", statistics.stat),
        ("cost", cost),
        ("ui", ui.ui),
        ("ops", history.ops),
        ("reflog", history.reflog),
    ),
    COMPUTE: (
        ("transform", transforms.transform),
        ("rechunk", transforms.rechunk),
        ("pyramid", transforms.pyramid),
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
        ("retention", retention.retention),
    ),
    TRANSFER: (
        ("materialize", virtual.materialize),
        ("clone", transfer.clone),
        ("copy", transfer.copy),
        ("import", transfer.imports),
        ("export", transfer.export),
    ),
    CONFIGURE: (
        ("config", settings.config),
        ("set-status", settings.set_status),
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


def _root(ctx: typer.Context, version: Version = False, repository: RepositoryOption = None) -> None:
    """Parse the options before the command."""
    ctx.obj = {"repository": repository}


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
                epilog = VERIFY_STATUSES if entry in (verify.verify, verify.repair) else EXIT_STATUSES
                app.command(name, rich_help_panel=panel, cls=RepositoryCommand, epilog=epilog)(entry)
    return app


def command() -> Any:
    """Build the runnable command, with commands in order."""
    group: Any = typer.main.get_command(make_app())
    group.commands = {name: group.commands[name] for entries in _COMMANDS.values() for name, _ in entries}
    return group
