"""Commits made from other commits: ``revert``, ``cherry-pick``."""

from __future__ import annotations

from arraystore.cli.console import answer
from arraystore.cli.opening import open_repository, resolve
from arraystore.cli.options import Branch, Json, Message, Snapshot, Url

__all__ = ["cherry_pick", "revert"]


def revert(
    url: Url, snapshot: Snapshot, branch: Branch = "main", message: Message = None, as_json: Json = False
) -> None:
    """Undo one commit with a new commit; history stays.

    Where later commits changed the same chunks or nodes, nothing is committed, and the conflicts are listed.
    """
    repository = open_repository(url)
    undone = resolve(repository, snapshot, strict=True).snapshot_id
    made = repository.revert(undone, branch=branch, message=message)
    answer(as_json, f"Committed {made} to branch {branch}: it undoes {undone}.", snapshot=made, reverts=undone)


def cherry_pick(
    url: Url, snapshot: Snapshot, branch: Branch = "main", message: Message = None, as_json: Json = False
) -> None:
    """Repeat one commit, of another branch for instance, on a branch; no chunk is copied.

    Where the branch differs in the same chunks or nodes, nothing is committed, and the conflicts are listed.
    """
    repository = open_repository(url)
    picked = resolve(repository, snapshot, strict=True).snapshot_id
    made = repository.cherry_pick(picked, branch=branch, message=message)
    answer(as_json, f"Committed {made} to branch {branch}: it repeats {picked}.", snapshot=made, cherry_picked=picked)
