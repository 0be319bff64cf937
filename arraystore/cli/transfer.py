"""Copies, and import from and export to other formats: ``clone``, ``copy``, ``import``, ``export``."""

from __future__ import annotations

from typing import Annotated

import typer

from arraystore._runtime.redaction import redact
from arraystore.cli.confirmation import confirm
from arraystore.cli.console import print_report
from arraystore.cli.engine import EngineName, Master, On, open_engine
from arraystore.cli.group import CommandGroup
from arraystore.cli.options import Authorize, Branch, Json, Message, RefOption, Url, Yes
from arraystore.cli.progress import progress_bar
from arraystore.cli.resolve import open_repository, open_storage, resolve
from arraystore.errors import InvalidInputError

imports = CommandGroup("Import plain Zarr hierarchies, or Icechunk repositories with their history.")

Group = Annotated[str, typer.Option("--group", "-g", metavar="PATH", help="Group; the root by default.")]
Into = Annotated[str, typer.Argument(metavar="URL", help="Target repository; created if it does not exist.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing nodes.")]
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Source repository: a path or URL.")]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="Target repository: a path or URL.")]
OverwriteBranch = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace the content of a branch that is not a copy; it stays in history."),
]


def clone(
    source: Source,
    target: Target,
    verify: Annotated[bool, typer.Option(help="Verify at the end that no object is missing.")] = True,
    engine: On = EngineName.threads,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Copy a repository byte for byte, with all branches, tags and history.

    Safe during commits to the source. Run it again to continue after an interruption, or to copy new commits.
    """
    from arraystore.copying import clone_repository

    with progress_bar("Cloning") as progress:
        report = clone_repository(
            open_storage(source), open_storage(target), verify=verify, engine=open_engine(engine, master),
            progress=progress,
        )  # fmt: skip
    print_report(as_json, report)


def copy(
    source: Source,
    target: Target,
    ref: RefOption = "main",
    to_branch: Annotated[
        str | None,
        typer.Option("--to-branch", metavar="NAME", help="Branch of the target; the same name, or main, by default."),
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="Copy the history, one commit per snapshot.")] = False,
    message: Message = None,
    overwrite: OverwriteBranch = False,
    engine: On = EngineName.threads,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Copy a branch, tag or snapshot to a branch of another repository, which is created if it does not exist.

    Run it again to copy new changes.
    """
    from arraystore.copying import copy_branch

    if history and message is not None:
        raise InvalidInputError(
            "--message applies to the single commit of a copy without --history: leave one of them out"
        )
    repository = open_repository(source)
    source_ref = resolve(repository, ref)
    with progress_bar("Copying") as progress:
        report = copy_branch(
            repository, open_storage(target), branch=source_ref.branch, tag=source_ref.tag, snapshot_id=source_ref.id,
            to_branch=to_branch, history=history, message=message, overwrite=overwrite,
            engine=open_engine(engine, master), progress=progress,
        )  # fmt: skip
    print_report(as_json, report)


@imports.command("zarr")
def import_zarr(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Path or URL of a Zarr v2 or v3 hierarchy.")],
    url: Into,
    branch: Branch = "main",
    group: Group = "",
    message: Message = None,
    overwrite: Overwrite = False,
    engine: On = EngineName.threads,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Import a plain Zarr hierarchy into a group, in one commit, without recoding chunks.

    Nodes replaced by --overwrite stay in history.
    """
    from arraystore import copying

    with progress_bar("Importing") as progress:
        report = copying.import_zarr(
            source, open_storage(url), branch=branch, group=group, message=message, overwrite=overwrite,
            engine=open_engine(engine, master), progress=progress,
        )  # fmt: skip
    print_report(as_json, report)


@imports.command("icechunk")
def import_icechunk(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Icechunk repository: s3://…, gs://…, az://…, or a path.")
    ],
    url: Into,
    branches: Annotated[
        list[str] | None,
        typer.Option("--branch", "-b", metavar="NAME", help="Import only this branch (may be repeated)."),
    ] = None,
    tags: Annotated[bool, typer.Option(help="Import tags.")] = True,
    as_json: Json = False,
) -> None:
    """Import an Icechunk repository with its history, one commit per snapshot. Needs the package icechunk.

    Run it again to continue after an interruption, or to import new snapshots.
    """
    from arraystore import copying
    from arraystore.cli.icechunk import icechunk_storage
    from arraystore.storage import storage_from_url

    with progress_bar("Importing") as progress:
        report = copying.import_icechunk(
            icechunk_storage(source), open_storage(url), branches=branches or None, tags=tags,
            files=storage_from_url(source), progress=progress,
        )  # fmt: skip
    print_report(as_json, report)


def export(
    url: Url,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Directory or URL of the plain Zarr hierarchy.")],
    ref: RefOption = "main",
    group: Group = "",
    overwrite: Overwrite = False,
    authorize: Authorize = None,
    engine: On = EngineName.threads,
    master: Master = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Export a group or array of a snapshot as a plain Zarr hierarchy.

    Run it again to continue after an interruption.
    """
    from arraystore import copying

    repository = open_repository(url, authorize)
    source = resolve(repository, ref)
    if overwrite:
        confirm(f"delete any existing Zarr hierarchy at {redact(target)}", yes=yes)
    with progress_bar("Exporting") as progress:
        report = copying.export_zarr(
            repository, target, branch=source.branch, tag=source.tag, snapshot_id=source.id, group=group,
            overwrite=overwrite, engine=open_engine(engine, master), progress=progress,
        )  # fmt: skip
    print_report(as_json, report)
