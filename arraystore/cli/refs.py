"""Branches and tags, and commits derived from others: ``branch``, ``tag``, ``reset``, ``revert``, ``cherry-pick``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from arraystore._runtime.formatting import time_text
from arraystore.cli.confirmation import confirm
from arraystore.cli.console import print_json, print_result, print_table
from arraystore.cli.group import CommandGroup
from arraystore.cli.options import Branch, BranchName, DryRun, Json, Message, Snapshot, Url, Yes
from arraystore.cli.resolve import open_repository, resolve
from arraystore.errors import ConflictError

if TYPE_CHECKING:
    from arraystore import Repository, SnapshotInfo

branches = CommandGroup("List, create and delete branches.")
tags = CommandGroup("List, create and delete tags: immutable names of snapshots.")

TagName = Annotated[str, typer.Argument(metavar="TAG", help="Name of the tag.")]
At = Annotated[str, typer.Argument(metavar="REF", help="Branch, tag or snapshot id to start at; main by default.")]
Named = Annotated[str, typer.Argument(metavar="REF", help="Branch, tag or snapshot id to tag; main by default.")]


Keep = Annotated[
    str | None, typer.Option("--keep-as", metavar="TAG", help="Tag the tip first, so that its snapshots are kept.")
]


@branches.command("list")
def list_branches(url: Url, as_json: Json = False) -> None:
    """List the branches with their tips."""
    from arraystore._repository.ref_tips import newest_of

    repository = open_repository(url)
    _print_names(newest_of(repository, "branch", repository.list_branches()), "branch", as_json)


@branches.command("create")
def create_branch(url: Url, branch: BranchName, ref: At = "main", as_json: Json = False) -> None:
    """Create a branch at a snapshot."""
    repository = open_repository(url)
    place = resolve(repository, ref)
    repository.create_branch(branch, place.snapshot_id)
    print_result(as_json, f"Created branch {branch} at {place.snapshot_id}.", branch=branch, snapshot=place.snapshot_id)


@branches.command("delete")
def delete_branch(
    url: Url,
    branch: BranchName,
    keep_as: Keep = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete a branch; the next garbage collection deletes the snapshots that only it referenced.

    With --keep-as they stay referenced by a tag, from which the branch can be created again.
    """
    repository = open_repository(url)
    at = repository.lookup_branch(branch)
    if not dry_run:
        confirm(f"delete branch {branch!r}, which is at {at}", yes=yes)
        _create_tag(repository, keep_as, at)
        repository.delete_branch(branch)
    text = f"{_action(dry_run, 'delete')} branch {branch}, which was at {at}."
    print_result(as_json, text, branch=branch, snapshot=at, dry_run=dry_run)


@tags.command("list")
def list_tags(url: Url, as_json: Json = False) -> None:
    """List the tags with their snapshots."""
    from arraystore._repository.ref_tips import newest_of

    repository = open_repository(url)
    _print_names(newest_of(repository, "tag", repository.list_tags()), "tag", as_json)


@tags.command("create")
def create_tag(url: Url, tag: TagName, ref: Named = "main", as_json: Json = False) -> None:
    """Create a tag, which never moves and protects its snapshot from expiry."""
    repository = open_repository(url)
    place = resolve(repository, ref)
    repository.create_tag(tag, place.snapshot_id)
    print_result(as_json, f"Created tag {tag} at {place.snapshot_id}.", tag=tag, snapshot=place.snapshot_id)


@tags.command("delete")
def delete_tag(url: Url, tag: TagName, yes: Yes = False, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Delete a tag; its name cannot be used again."""
    repository = open_repository(url)
    at = repository.lookup_tag(tag)
    if not dry_run:
        confirm(f"delete tag {tag!r}, which names {at}; the name cannot be used again", yes=yes)
        repository.delete_tag(tag)
    print_result(
        as_json, f"{_action(dry_run, 'delete')} tag {tag}, which named {at}.", tag=tag, snapshot=at, dry_run=dry_run
    )


def reset(
    url: Url,
    branch: BranchName,
    ref: Annotated[str, typer.Argument(metavar="REF", help="Branch, tag or snapshot id to reset the branch to.")],
    expected: Annotated[
        str | None,
        typer.Option("--from", metavar="SNAPSHOT", help="Fail unless the branch is at this snapshot."),
    ] = None,
    keep_as: Keep = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Reset a branch to another snapshot; later snapshots are removed from its history.

    The next garbage collection deletes snapshots that are no longer referenced; with --keep-as they stay referenced by
    a tag. Use `arraystore revert` to undo a commit without changing history.
    """
    repository = open_repository(url)
    target = resolve(repository, ref, strict=True).snapshot_id
    before = repository.lookup_branch(branch)
    if expected is not None and expected != before:
        raise ConflictError(expected, before, branch)
    if not dry_run:
        confirm(f"move branch {branch!r} from {before} to {target}", yes=yes)
        _create_tag(repository, keep_as, before)
        # Only from the confirmed snapshot: a commit meanwhile must not be lost.
        repository.reset_branch(branch, target, from_snapshot_id=before)
    text = f"{_action(dry_run, 'move')} branch {branch} from {before} to {target}."
    print_result(as_json, text, branch=branch, from_snapshot=before, snapshot=target, dry_run=dry_run)


def revert(
    url: Url, snapshot: Snapshot, branch: Branch = "main", message: Message = None, as_json: Json = False
) -> None:
    """Revert a commit by a new commit.

    If later commits changed the same chunks or nodes, nothing is committed and the conflicts are listed.
    """
    repository = open_repository(url)
    reverted = resolve(repository, snapshot, strict=True).snapshot_id
    made = repository.revert(reverted, branch=branch, message=message)
    text = f"Committed {made} to branch {branch}: reverts {reverted}."
    print_result(as_json, text, snapshot=made, reverts=reverted)


def cherry_pick(
    url: Url, snapshot: Snapshot, branch: Branch = "main", message: Message = None, as_json: Json = False
) -> None:
    """Apply the changes of a commit to a branch, without copying chunks.

    If the branch differs in the same chunks or nodes, nothing is committed and the conflicts are listed.
    """
    repository = open_repository(url)
    picked = resolve(repository, snapshot, strict=True).snapshot_id
    made = repository.cherry_pick(picked, branch=branch, message=message)
    text = f"Committed {made} to branch {branch}: cherry-picks {picked}."
    print_result(as_json, text, snapshot=made, cherry_picked=picked)


def _create_tag(repository: Repository, tag: str | None, snapshot: str) -> None:
    if tag is not None:
        repository.create_tag(tag, snapshot)


def _print_names(infos: dict[str, SnapshotInfo], kind: str, as_json: bool) -> None:
    if as_json:
        print_json({name: info.id for name, info in infos.items()})
        return
    if not infos:
        print("No tags." if kind == "tag" else "No branches.")
        return
    rows = [(name, info.id, time_text(info.written_at), info.message) for name, info in infos.items()]
    print_table((kind, "snapshot", "written (UTC)", "message"), rows)


def _action(dry_run: bool, verb: str) -> str:
    done = f"{verb}d" if verb.endswith("e") else f"{verb}ed"
    return f"Dry run: would {verb}" if dry_run else done.capitalize()
