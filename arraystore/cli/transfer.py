"""Repositories and branches to other places: ``clone``, ``copy``."""

from __future__ import annotations

from typing import Annotated

import typer

from arraystore.cli.console import print_fields, print_json
from arraystore.cli.opening import open_repository, open_storage, resolve
from arraystore.cli.options import Json, Message
from arraystore.cli.progress import progress_bar
from arraystore.errors import InvalidInputError

__all__ = ["clone", "copy"]

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Repository to copy from: a path or URL.")]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="Where to copy to: a path or URL.")]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace what the branch shows, though it is no copy; it stays in its history."),
]


def clone(
    source: Source,
    target: Target,
    verify: Annotated[bool, typer.Option(help="Check in the end that nothing is missing.")] = True,
    as_json: Json = False,
) -> None:
    """Copy a whole repository, byte for byte, with all branches, tags and history.

    Writers may go on meanwhile. Called again, it goes on where it was interrupted, and takes over what was committed
    since.
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
        typer.Option("--to-branch", metavar="NAME", help="Branch of the target; else the same name, or main."),
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Make a commit for each snapshot, in place of a single one.")
    ] = False,
    message: Message = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Copy a branch, tag or snapshot to a branch of another repository, which is made if there is none.

    Called again, it copies what has changed since.
    """
    from arraystore.copying import copy_branch

    if history and message is not None:
        raise InvalidInputError("--message is for the single commit of a copy without --history")
    repository = open_repository(source)
    place = resolve(repository, ref)
    with progress_bar("Copying") as progress:
        report = copy_branch(
            repository, open_storage(target), branch=place.branch, tag=place.tag, snapshot_id=place.id,
            to_branch=to_branch, history=history, message=message, overwrite=overwrite, progress=progress,
        )  # fmt: skip
    print_json(report) if as_json else print_fields(report)
