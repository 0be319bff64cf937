"""Keys of a repository's logs, which name its id."""

from __future__ import annotations

from arraystore._format.record import record_key
from arraystore._format.refs import REPOSITORY_KEY, branch_prefix, decode_repository, history_prefix, refs_prefix
from arraystore._format.repository_log import repository_log_prefix
from arraystore.storage import Storage

__all__ = ["history_of", "id_of", "log_of", "logged", "record", "refs_of"]


def id_of(storage: Storage) -> bytes:
    """Return the id of the repository that is on a storage."""
    return decode_repository(REPOSITORY_KEY, storage.get_sync(REPOSITORY_KEY)).id


def refs_of(storage: Storage) -> str:
    """Return what the keys of all its logs start with."""
    return refs_prefix(id_of(storage))


def log_of(storage: Storage, branch: str = "main") -> str:
    """Return what the keys of a branch's records start with."""
    return branch_prefix(id_of(storage), branch)


def record(storage: Storage, number: int, branch: str = "main") -> str:
    """Return the key of a record of a branch."""
    return record_key(log_of(storage, branch), number)


def logged(storage: Storage, number: int) -> str:
    """Return the key of a record of the repository log."""
    return record_key(repository_log_prefix(id_of(storage)), number)


def history_of(storage: Storage, branch: str = "main") -> str:
    """Return what the keys of a branch's history pages start with."""
    return history_prefix(id_of(storage), branch)
