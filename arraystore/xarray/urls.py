"""URLs of repositories for xarray: those of the storage with ``arraystore+`` in front."""

from __future__ import annotations

import re
from typing import Any

_PREFIX = "arraystore+"

_AS_PATH = re.compile(r".*/arraystore\+([a-z0-9]+):/(?!/)(.*)", re.DOTALL)
"""What `xarray.open_mfdataset` makes of such a URL: it knows no schemes with a plus, and takes it for a path."""


def is_repository_url(place: object) -> bool:
    """Tell whether a place is a URL that says that a repository is there, or was one before xarray made it a path."""
    return repository_url(place) is not None


def repository_url(place: Any) -> str | None:
    """Return the URL that says that a repository is there; None for any other place."""
    if not isinstance(place, str):
        return None
    if place.startswith(_PREFIX):
        return place
    match = _AS_PATH.fullmatch(place)
    if match is None:
        return None
    root = "/" if match[1] in ("file", "local") else ""
    return f"{_PREFIX}{match[1]}://{root}{match[2]}"


def plain_url(place: str) -> str:
    """Return the URL of the storage, or the path that a place is."""
    return (repository_url(place) or place).removeprefix(_PREFIX)
