"""Reads of a repository's storage outside of its logs: whether the repository still exists, and hints."""

from __future__ import annotations

from arraystore._format.ids import id_to_text
from arraystore._format.refs import REPOSITORY_KEY, Hint, decode_hint, decode_repository, hint_key
from arraystore.errors import FormatError, ObjectNotFoundError, RepositoryGoneError
from arraystore.storage.protocol import Storage


async def check_repository(storage: Storage, repository: bytes) -> None:
    """Check that the storage still has a repository; raises `RepositoryGoneError` if it was deleted or replaced."""
    try:
        current = decode_repository(REPOSITORY_KEY, await storage.get(REPOSITORY_KEY)).id
    except ObjectNotFoundError:
        what = "was deleted"
    else:
        if current == repository:
            return
        what = f"was deleted, and {id_to_text(current)} was created in its place"
    raise RepositoryGoneError(
        f"repository {id_to_text(repository)} at {storage.location} {what} since this session was opened. Nothing was "
        "committed. Open the repository again, and write the changes again"
    ) from None


async def read_hint(storage: Storage, branch: str) -> Hint | None:
    """Read the hint of a branch, of any repository; None where it is missing or unreadable."""
    key = hint_key(branch)
    try:
        return decode_hint(key, await storage.get(key))
    except (ObjectNotFoundError, FormatError):
        return None
