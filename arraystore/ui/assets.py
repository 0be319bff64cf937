"""The files of the page: HTML, CSS and modules of JavaScript, as they are in the package."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["Asset", "page_assets"]

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Asset:
    """One file."""

    data: bytes
    media_type: str


@cache
def page_assets() -> dict[str, Asset]:
    """Return the files of the page by name; there are no folders."""
    found: dict[str, Asset] = {}
    for entry in files("arraystore.ui").joinpath("static").iterdir():
        suffix = "." + entry.name.rpartition(".")[2]
        if suffix in _TYPES:
            found[entry.name] = Asset(entry.read_bytes(), _TYPES[suffix])
    return found
