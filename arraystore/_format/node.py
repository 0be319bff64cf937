"""Nodes of a hierarchy: groups and arrays by their path, and files, which are keys that belong to neither."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from arraystore._format.layer import Layer
from arraystore.errors import FormatError

__all__ = ["DOCUMENT_NAMES", "Documents", "Node", "NodeKind", "ancestors", "check_path", "node_key"]

MAX_PATH = 4096
"""Longest path of a node, in characters."""

DOCUMENT_NAMES = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")

Documents = dict[str, bytes]
"""Metadata documents of a node by name: ``zarr.json``, or ``.zarray``, ``.zgroup``, ``.zattrs``, ``.zmetadata``."""


class NodeKind(enum.IntEnum):
    """What a node is."""

    GROUP = 0
    ARRAY = 1
    FILE = 2
    """A key of its own; its value is its only chunk."""


@dataclass(frozen=True)
class Node:
    """A node, with the layers of its chunks where it is an array or a file.

    Parameters
    ----------
    id
        Stays the same when the node is moved, changes when it is created anew.
    path
        Without slashes at its ends; the root group has the empty one.
    kind
        What it is.
    documents
        Its metadata, byte for byte as written; a file has none.
    layers
        Oldest first.
    """

    id: bytes
    path: str
    kind: NodeKind
    documents: Documents
    layers: tuple[Layer, ...] = ()

    @property
    def key(self) -> str:
        """What it is found under in a snapshot."""
        return node_key(self.path, self.kind)


def node_key(path: str, kind: NodeKind = NodeKind.GROUP) -> str:
    """Return the key of a node in a snapshot: files have names of their own, so ``a`` may be both."""
    return "\0" + path if kind == NodeKind.FILE else path


def ancestors(path: str) -> Iterator[str]:
    """Yield the paths above one, the nearest first and the root group's last; the root has none."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def check_path(name: str, path: Any, kind: NodeKind) -> str:
    """Check a path that came from a bucket; raises `FormatError`."""
    if type(path) is not str or len(path) > MAX_PATH or "\0" in path:
        raise FormatError(name, "a path is no text, too long or contains NUL")
    if path == "":
        if kind == NodeKind.FILE:
            raise FormatError(name, "a file without a name")
        return path
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise FormatError(name, f"path {path[:80]!r} has an empty part, '.' or '..'")
    return path
