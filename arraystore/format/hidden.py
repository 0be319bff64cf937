"""Keys that the library keeps in a hierarchy for itself: committed and branched with the data, but not listed."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["HIDDEN", "has_visible_files", "is_hidden"]

HIDDEN = ".arraystore"
"""Path below which they are."""


def is_hidden(path: str) -> bool:
    """Tell whether a path, key or prefix (without a slash in front) is one of the library's own."""
    return path == HIDDEN or path.startswith(HIDDEN + "/")


def has_visible_files(keys: Iterable[str]) -> bool:
    """Tell whether there are files, besides the library's own, among the keys of nodes."""
    return any(key.startswith("\0") and not is_hidden(key[1:]) for key in keys)
