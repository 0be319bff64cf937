"""Keys that the library keeps in a hierarchy for itself: committed and branched with the data, but not listed."""

from __future__ import annotations

from collections.abc import Iterable

from arraystore._format.node import Node

__all__ = ["HIDDEN", "has_visible_files", "is_hidden", "visible"]

HIDDEN = ".arraystore"
"""Path below which they are."""


def is_hidden(path: str) -> bool:
    """Tell whether a path, key or prefix (without a slash in front) is one of the library's own."""
    return path == HIDDEN or path.startswith(HIDDEN + "/")


def visible(nodes: Iterable[Node], path: str) -> list[Node]:
    """Return nodes without the library's own, unless the path or prefix that is asked for is one of them."""
    return list(nodes) if is_hidden(path) else [node for node in nodes if not is_hidden(node.path)]


def has_visible_files(keys: Iterable[str]) -> bool:
    """Tell whether there are files, besides the library's own, among the keys of nodes."""
    return any(key.startswith("\0") and not is_hidden(key[1:]) for key in keys)
