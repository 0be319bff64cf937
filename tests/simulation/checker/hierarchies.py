"""Rule "hierarchy": every snapshot is a hierarchy that Zarr can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.simulation.checker.arrays import array_of, kind_of
from tests.simulation.checker.decoder import Commit
from tests.simulation.checker.logs import Logs
from tests.simulation.checker.model import inside
from tests.simulation.checker.states import ARRAY, FILE, GROUP, Key, Node, above
from tests.simulation.checker.violations import Violation

__all__ = ["broken_hierarchies"]

_RULE = "hierarchy"


def broken_hierarchies(logs: Logs) -> Iterator[Violation]:
    """Check what each commit has left."""
    for commit in logs.commits():
        for what in _problems(commit):
            yield Violation(_RULE, what, commit.after.message)


def _problems(commit: Commit) -> Iterator[str]:
    nodes, before = commit.after.nodes, commit.before.nodes
    stays = not (commit.touched.created or commit.touched.deleted or commit.touched.moved)
    for key, node in nodes.items():
        known = before.get(key) is node
        if not known:
            yield from _node(node)
        if not (stays and known):
            yield from _place(nodes, before, node)


def _node(node: Node) -> Iterator[str]:
    name = "/" + node.path
    if node.kind == FILE:
        if node.chunks.keys() - {()}:
            yield f"file {name!r} has chunks"
        return
    try:
        kind = kind_of(node.documents)
        grid = array_of(node.documents).grid if kind == ARRAY else ()
    except (KeyError, TypeError, ValueError) as error:
        yield f"documents of {name!r} cannot be read: {error!r}"
        return
    if kind != node.kind:
        yield f"documents of {name!r} make it another kind of node than the log"
    if node.kind == GROUP and node.chunks:
        yield f"group {name!r} has chunks"
    if node.kind == ARRAY:
        beyond = [c for c in node.chunks if len(c) != len(grid) or not inside(c, grid)]
        if beyond:
            yield f"array {name!r} has chunks {sorted(beyond)[:3]} outside of its grid {grid}"


def _place(nodes: Mapping[Key, Node], before: Mapping[Key, Node], node: Node) -> Iterator[str]:
    """Check what is above a node; Zarr allows to leave groups out, but no actor does, unless it begins without root."""
    if not node.path or node.kind == FILE:
        return
    for path in above(node.path):
        there = nodes.get((path, False))
        if there is not None and there.kind != GROUP:
            yield f"{'/' + node.path!r} is below {'/' + path!r}, which is no group"
    parent = node.path.rpartition("/")[0], False
    if parent not in nodes and (parent[0] or parent in before):
        yield f"{'/' + node.path!r} has lost its group {'/' + parent[0]!r}"
