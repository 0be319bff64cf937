"""What tests see of the inside: logs, caches, the commits that wait for a record, what is prepared for one, clients."""

from __future__ import annotations

from arraystore import Repository, Session
from arraystore._commit.prepared import Prepared
from arraystore._context.context import Context
from arraystore.storage import ObstoreStorage
from arraystore.storage.bucket_client import BucketClient

__all__ = ["client_of", "context_of", "prepare", "waiting_commits"]


def context_of(repository: Repository) -> Context:
    """Return what the sessions of a repository share."""
    return repository.context


def waiting_commits(repository: Repository, branch: str = "main") -> int:
    """Return how many commits of this process wait for the next record of a branch."""
    return len(repository.context.committer(branch)._waiting)


async def prepare(session: Session, note: bytes) -> Prepared:
    """Return what a commit of a session asks the committer to commit."""
    return await session._prepare(note)


def client_of(storage: ObstoreStorage) -> BucketClient:
    """Return the client through which a storage sends its requests."""
    return storage._client()
