"""Copies of repositories and branches: ``clone``, ``copy``."""

from __future__ import annotations

from typing import Annotated

import typer

from arraystore.cli.console import print_fields, print_json
from arraystore.cli.options import Json, Message
from arraystore.cli.progress import progress_bar
from arraystore.cli.resolve import open_repository, open_storage, resolve
from arraystore.errors import InvalidInputError

__all__ = ["clone", "copy"]

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Source repository: a path or URL.")]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="Target repository: a path or URL.")]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace the content of a branch that is not a copy; it stays in history."),
]


def clone(
    source: Source,
    target: Target,
    verify: Annotated[bool, typer.Option(help="Verify at the end that no object is missing.")] = True,
    as_json: Json = False,
) -> None:
    """Copy a repository byte for byte, with all branches, tags and history.

    Safe during commits to the source. Run it again to continue after an interruption, or to copy new commits.
    """
    from arraystore.copying import clone_repository

    with progress_bar("Cloning") as progress:
        report = clone_repository(open_storage(source), open_storage(target), verify=verify, progress=progress)
    print_json(report) if as_json else print_fields(report)


def copy(
    source: Source,
    target: Target,
    ref: Annotated[
        str, typer.Option("--ref", "-r", metavar="REF", help="Branch, tag or snapshot id to copy.")
    ] = "main",
    to_branch: Annotated[
        str | None,
        typer.Option("--to-branch", metavar="NAME", help="Branch of the target; the same name, or main, by default."),
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="Copy the history, one commit per snapshot.")] = False,
    message: Message = None,
    overwrite: Overwrite = False,
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
            to_branch=to_branch, history=history, message=message, overwrite=overwrite, progress=progress,
        )  # fmt: skip
    print_json(report) if as_json else print_fields(report)
