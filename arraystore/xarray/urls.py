"""URLs of repositories for xarray: those of the storage with ``arraystore+`` in front."""

from __future__ import annotations

_PREFIX = "arraystore+"


def is_repository_url(place: object) -> bool:
    """Tell whether a place is a URL that says that a repository is there."""
    return isinstance(place, str) and place.startswith(_PREFIX)


def plain_url(url: str) -> str:
    """Return the URL of the storage."""
    return url.removeprefix(_PREFIX)
