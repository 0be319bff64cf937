"""The branch, tag or snapshot that a name refers to."""

from __future__ import annotations

from dataclasses import dataclass

from arraystore._repository.repository import Repository
from arraystore.errors import InvalidInputError, RefNotFoundError, SnapshotExpiredError, SnapshotNotFoundError

__all__ = ["NamedSnapshot", "find_named"]


@dataclass(frozen=True)
class NamedSnapshot:
    """A branch, a tag or the id of a snapshot: at most one of them."""

    branch: str | None = None
    tag: str | None = None
    snapshot_id: str | None = None


def find_named(repo: Repository, ref: str) -> NamedSnapshot:
    """Return the branch, tag or snapshot that a name refers to."""
    is_branch, is_tag = ref in repo.list_branches(), ref in repo.list_tags()
    if is_branch and is_tag:
        raise InvalidInputError(f"{ref!r} is a branch and a tag: pass branch={ref!r} or tag={ref!r}")
    if is_branch:
        return NamedSnapshot(branch=ref)
    if is_tag:
        return NamedSnapshot(tag=ref)
    try:
        repo.lookup_snapshot(ref)
    except SnapshotExpiredError:
        raise
    except (SnapshotNotFoundError, InvalidInputError):
        names = ", ".join(repr(name) for name in [*sorted(repo.list_branches()), *sorted(repo.list_tags())][:20])
        raise RefNotFoundError(f"there is no branch, tag or snapshot {ref!r}, but {names}") from None
    return NamedSnapshot(snapshot_id=ref)
