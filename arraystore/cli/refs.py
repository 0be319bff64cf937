"""Names for snapshots: ``branch``, ``tag``, ``reset``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from arraystore.cli.asking import confirm
from arraystore.cli.console import add_row, answer, make_console, make_table, print_json, time_text
from arraystore.cli.group import Commands
from arraystore.cli.opening import newest_of, open_repository, resolve
from arraystore.cli.options import DryRun, Json, Url, Yes
from arraystore.errors import ConflictError

if TYPE_CHECKING:
    from arraystore import Repository, SnapshotInfo

__all__ = ["branches", "reset", "tags"]

branches = typer.Typer(cls=Commands, help="List, create and delete branches.")
tags = typer.Typer(cls=Commands, help="List, create and delete tags: names of snapshots that never move.")

BranchName = Annotated[str, typer.Argument(metavar="BRANCH", help="Name of the branch.")]
TagName = Annotated[str, typer.Argument(metavar="TAG", help="Name of the tag.")]
At = Annotated[str, typer.Argument(metavar="REF", help="Branch, tag or snapshot id where it starts; else main.")]
Named = Annotated[str, typer.Argument(metavar="REF", help="Branch, tag or snapshot id to name; else main.")]


Keep = Annotated[
    str | None, typer.Option("--keep-as", metavar="TAG", help="Name the newest snapshot with a tag first: it stays.")
]


@branches.command("list")
def list_branches(url: Url, as_json: Json = False) -> None:
    """List the branches, with the newest snapshot of each."""
    repository = open_repository(url)
    _print_names(newest_of(repository, "branch", repository.list_branches()), "branch", as_json)


@branches.command("create")
def create_branch(url: Url, branch: BranchName, ref: At = "main", as_json: Json = False) -> None:
    """Create a branch that starts at a snapshot."""
    repository = open_repository(url)
    place = resolve(repository, ref)
    repository.create_branch(branch, place.snapshot_id)
    answer(as_json, f"Created branch {branch} at {place.snapshot_id}.", branch=branch, snapshot=place.snapshot_id)


@branches.command("delete")
def delete_branch(
    url: Url,
    branch: BranchName,
    keep_as: Keep = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete a branch; snapshots that only it led to go with the next collection.

    With --keep-as they stay, under a tag, from which a branch can be made again.
    """
    repository = open_repository(url)
    at = repository.lookup_branch(branch)
    if not dry_run:
        confirm(f"delete branch {branch!r}, which is at {at}", yes=yes)
        _keep(repository, keep_as, at)
        repository.delete_branch(branch)
    text = f"{_would(dry_run, 'delete')} branch {branch}, which was at {at}."
    answer(as_json, text, branch=branch, snapshot=at, dry_run=dry_run)


@tags.command("list")
def list_tags(url: Url, as_json: Json = False) -> None:
    """List the tags, with the snapshot of each."""
    repository = open_repository(url)
    _print_names(newest_of(repository, "tag", repository.list_tags()), "tag", as_json)


@tags.command("create")
def create_tag(url: Url, tag: TagName, ref: Named = "main", as_json: Json = False) -> None:
    """Name a snapshot for ever: tags never move, and expiry spares what they name."""
    repository = open_repository(url)
    place = resolve(repository, ref)
    repository.create_tag(tag, place.snapshot_id)
    answer(as_json, f"Created tag {tag} at {place.snapshot_id}.", tag=tag, snapshot=place.snapshot_id)


@tags.command("delete")
def delete_tag(url: Url, tag: TagName, yes: Yes = False, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Delete a tag; its name can never be used again."""
    repository = open_repository(url)
    at = repository.lookup_tag(tag)
    if not dry_run:
        confirm(f"delete tag {tag!r}, which names {at}, and never use that name again", yes=yes)
        repository.delete_tag(tag)
    answer(as_json, f"{_would(dry_run, 'delete')} tag {tag}, which named {at}.", tag=tag, snapshot=at, dry_run=dry_run)


def reset(
    url: Url,
    branch: BranchName,
    ref: Annotated[str, typer.Argument(metavar="REF", help="Branch, tag or snapshot id where the branch is to stand.")],
    expected: Annotated[
        str | None,
        typer.Option("--from", metavar="SNAPSHOT", help="Only if the branch is at this snapshot still."),
    ] = None,
    keep_as: Keep = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Put a branch at another snapshot; what came after it leaves the branch's history.

    Snapshots that nothing else leads to go with the next collection; with --keep-as they stay, under a tag. To undo a
    commit and keep history, use `arraystore revert`.
    """
    repository = open_repository(url)
    target = resolve(repository, ref, strict=True).snapshot_id
    before = repository.lookup_branch(branch)
    if expected is not None and expected != before:
        raise ConflictError(expected, before, branch)
    if not dry_run:
        confirm(f"move branch {branch!r} from {before} to {target}", yes=yes)
        _keep(repository, keep_as, before)
        # What was asked about is what is done: a commit in between is somebody's work.
        repository.reset_branch(branch, target, from_snapshot_id=before)
    text = f"{_would(dry_run, 'move')} branch {branch} from {before} to {target}."
    answer(as_json, text, branch=branch, from_snapshot=before, snapshot=target, dry_run=dry_run)


def _keep(repository: Repository, tag: str | None, snapshot: str) -> None:
    if tag is not None:
        repository.create_tag(tag, snapshot)


def _print_names(found: dict[str, SnapshotInfo], kind: str, as_json: bool) -> None:
    if as_json:
        print_json({name: info.id for name, info in found.items()})
        return
    if not found:
        print("There are no tags." if kind == "tag" else "There are no branches.")
        return
    table = make_table(kind, "snapshot", "written (UTC)", "message")
    for name, info in found.items():
        add_row(table, name, info.id, time_text(info.written_at), info.message)
    make_console().print(table)


def _would(dry_run: bool, verb: str) -> str:
    done = f"{verb}d" if verb.endswith("e") else f"{verb}ed"
    return f"Dry run: would {verb}" if dry_run else done.capitalize()
