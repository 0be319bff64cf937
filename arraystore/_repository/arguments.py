"""Check of the repository that a function works on."""

from __future__ import annotations

from arraystore._repository.repository import Repository
from arraystore.errors import InvalidInputError

__all__ = ["check_repository"]


def check_repository(value: object) -> None:
    """Check that this is an open repository; raise `InvalidInputError`."""
    if not isinstance(value, Repository):
        raise InvalidInputError(
            f"the repository must be a Repository, not {type(value).__name__}: open one with "
            "Repository.open(storage_from_url(url))"
        )
