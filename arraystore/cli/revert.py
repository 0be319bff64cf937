"""Commits derived from other commits: ``revert``, ``cherry-pick``."""

from __future__ import annotations

from arraystore.cli.console import print_result
from arraystore.cli.options import Branch, Json, Message, Snapshot, Url
from arraystore.cli.resolve import open_repository, resolve

__all__ = ["cherry_pick", "revert"]


def revert(
    url: Url, snapshot: Snapshot, branch: Branch = "main", message: Message = None, as_json: Json = False
) -> None:
    """Revert a commit by a new commit.

    If later commits changed the same chunks or nodes, nothing is committed and the conflicts are listed.
    """
    repository = open_repository(url)
    reverted = resolve(repository, snapshot, strict=True).snapshot_id
    snapshot_id = repository.revert(reverted, branch=branch, message=message)
    print_result(
        as_json,
        f"Committed {snapshot_id} to branch {branch}: reverts {reverted}.",
        snapshot=snapshot_id,
        reverts=reverted,
    )


def cherry_pick(
    url: Url, snapshot: Snapshot, branch: Branch = "main", message: Message = None, as_json: Json = False
) -> None:
    """Apply the changes of a commit to a branch, without copying chunks.

    If the branch differs in the same chunks or nodes, nothing is committed and the conflicts are listed.
    """
    repository = open_repository(url)
    picked = resolve(repository, snapshot, strict=True).snapshot_id
    snapshot_id = repository.cherry_pick(picked, branch=branch, message=message)
    print_result(
        as_json,
        f"Committed {snapshot_id} to branch {branch}: cherry-picks {picked}.",
        snapshot=snapshot_id,
        cherry_picked=picked,
    )
