"""Keys reserved for the library in a hierarchy: committed and branched with the data, but not listed."""

from __future__ import annotations

from collections.abc import Iterable

from arraystore._format.node import Node

HIDDEN = ".arraystore"
"""Path of the group of reserved keys."""


def is_hidden(path: str) -> bool:
    """Return whether a path, key or prefix without a leading slash is reserved."""
    return path == HIDDEN or path.startswith(HIDDEN + "/")


def visible(nodes: Iterable[Node], path: str) -> list[Node]:
    """Return the nodes without reserved ones, unless the requested path or prefix is reserved."""
    return list(nodes) if is_hidden(path) else [node for node in nodes if not is_hidden(node.path)]


def has_visible_files(keys: Iterable[str]) -> bool:
    """Return whether the keys of nodes include files that are not reserved."""
    return any(key.startswith("\0") and not is_hidden(key[1:]) for key in keys)
