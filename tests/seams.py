"""What tests see of a repository's inside: its logs and caches, and the commits that wait for a record."""

from __future__ import annotations

from arraystore import Repository
from arraystore._context import Context

__all__ = ["context_of", "waiting_commits"]


def context_of(repository: Repository) -> Context:
    """Return what the sessions of a repository share."""
    return repository._context


def waiting_commits(repository: Repository, branch: str = "main") -> int:
    """Return how many commits of this process wait for the next record of a branch."""
    return len(repository._context.committer(branch)._waiting)
