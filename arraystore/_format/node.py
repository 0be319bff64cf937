"""Nodes of a hierarchy: groups, arrays, and files, which are keys that belong to neither."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from arraystore._format.ids import NodeId
from arraystore._format.layer import Layer
from arraystore._format.layer_bounds import FEW, LayerBounds
from arraystore._runtime.values import dataclass
from arraystore.errors import FormatError

MAX_PATH = 4096
"""Maximum length of the path of a node, in characters."""

Documents = dict[str, bytes]
"""Metadata documents of a node by name: ``zarr.json``, or ``.zarray``, ``.zgroup``, ``.zattrs``, ``.zmetadata``."""


class NodeKind(enum.IntEnum):
    """Kind of a node."""

    GROUP = 0
    ARRAY = 1
    FILE = 2
    """Key outside of groups and arrays, with its value as the only chunk."""


@dataclass(frozen=True)
class Node:
    """Group, array or file of a snapshot."""

    id: NodeId
    """Id, which survives a move and changes when the node is created again."""
    path: str
    """Path without leading and trailing slash; empty for the root group."""
    kind: NodeKind
    """Kind."""
    documents: Documents
    """Metadata documents, byte for byte as written; empty for a file."""
    layers: tuple[Layer, ...] = ()
    """Layers of chunks, oldest first."""

    @property
    def key(self) -> str:
        """Key of the node in a snapshot."""
        return node_key(self.path, self.kind)

    def layers_around(self, low: Sequence[int], high: Sequence[int]) -> Sequence[Layer]:
        """Return at least the layers with a cell from `low` to `high` (exclusive), oldest first."""
        return self.layers if len(self.layers) <= FEW else self._bounds.around(low, high)

    @cached_property
    def _bounds(self) -> LayerBounds:
        return LayerBounds(self.layers)


def node_key(path: str, kind: NodeKind = NodeKind.GROUP) -> str:
    """Return the key of a node in a snapshot; files have a namespace of their own."""
    return "\0" + path if kind == NodeKind.FILE else path


def ancestors(path: str) -> Iterator[str]:
    """Yield the paths of the ancestors, nearest first, the root group last."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def check_path(name: str, path: Any, kind: NodeKind) -> str:
    """Check an untrusted path; raises `FormatError`."""
    if type(path) is not str or len(path) > MAX_PATH or "\0" in path:
        raise FormatError(name, f"a path must be a string without NUL, of <= {MAX_PATH} characters")
    if path == "":
        if kind == NodeKind.FILE:
            raise FormatError(name, "a file must have a name")
        return path
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise FormatError(name, f"path {path[:80]!r} must not have an empty part, '.' or '..'")
    return path
