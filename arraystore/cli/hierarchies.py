"""Hierarchies from and to other formats: ``import``, ``export``."""

from __future__ import annotations

from typing import Annotated

import typer

from arraystore.cli.asking import confirm
from arraystore.cli.console import print_fields, print_json
from arraystore.cli.failures import redacted
from arraystore.cli.group import Commands
from arraystore.cli.opening import open_repository, open_storage, resolve
from arraystore.cli.options import Branch, Json, Message, Url, Yes
from arraystore.cli.progress import progress_bar

__all__ = ["export", "imports"]

imports = typer.Typer(
    cls=Commands, help="Bring in plain Zarr hierarchies, or Icechunk repositories with their history."
)

Group = Annotated[str, typer.Option("--group", "-g", metavar="PATH", help="Group; the root unless given.")]
Into = Annotated[str, typer.Argument(metavar="URL", help="The repository to bring it into; made if there is none.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


@imports.command("zarr")
def import_zarr(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A Zarr v2 or v3 hierarchy: a path or URL.")],
    url: Into,
    branch: Branch = "main",
    group: Group = "",
    message: Message = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Copy a plain Zarr hierarchy into a group, in one commit; chunks stay encoded as they are.

    What --overwrite replaces stays in history.
    """
    from arraystore import Repository, copying

    with progress_bar("Importing") as progress:
        report = copying.import_zarr(
            source, Repository.open_or_create(open_storage(url)), branch=branch, group=group, message=message,
            overwrite=overwrite, progress=progress,
        )  # fmt: skip
    _tell(report, as_json)


@imports.command("icechunk")
def import_icechunk(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="An Icechunk repository: s3://…, gs://…, az://…, a path.")
    ],
    url: Into,
    branches: Annotated[
        list[str] | None, typer.Option("--branch", "-b", metavar="NAME", help="Only this branch (may be repeated).")
    ] = None,
    tags: Annotated[bool, typer.Option(help="Whether tags are taken over.")] = True,
    as_json: Json = False,
) -> None:
    """Copy an Icechunk repository with its history: a commit for each snapshot. Needs the package icechunk.

    Called again, it goes on where it was interrupted, or takes over what is new.
    """
    from arraystore import copying
    from arraystore.cli.icechunk import icechunk_storage

    with progress_bar("Importing") as progress:
        report = copying.import_icechunk(
            icechunk_storage(source), open_storage(url), branches=branches or None, tags=tags, progress=progress
        )
    _tell(report, as_json)


def export(
    url: Url,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Directory or URL for the plain Zarr hierarchy.")],
    ref: Annotated[str, typer.Option("--ref", "-r", metavar="REF", help="Branch, tag or snapshot id.")] = "main",
    group: Group = "",
    overwrite: Overwrite = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Write a group or array of a snapshot as a plain Zarr hierarchy, which any Zarr library reads.

    After an interruption, the same command goes on where it stopped.
    """
    from arraystore import copying

    repository = open_repository(url)
    place = resolve(repository, ref)
    if overwrite:
        confirm(f"delete the Zarr hierarchy at {redacted(target)} first, if there is one", yes=yes)
    with progress_bar("Exporting") as progress:
        report = copying.export_zarr(
            repository, target, branch=place.branch, tag=place.tag, snapshot_id=place.id, group=group,
            overwrite=overwrite, progress=progress,
        )  # fmt: skip
    _tell(report, as_json)


def _tell(report: object, as_json: bool) -> None:
    if as_json:
        print_json(report)
    else:
        print_fields(report)
