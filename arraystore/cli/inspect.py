"""What is in a snapshot: ``tree``, ``ls``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from arraystore.cli.console import (
    add_row,
    count_text,
    literal,
    make_console,
    make_table,
    print_json,
)
from arraystore.cli.opening import open_repository, session_at
from arraystore.cli.options import AsOf, Json, Path, Url

if TYPE_CHECKING:
    from rich.tree import Tree

    from arraystore.cli.nodes import NodeView

__all__ = ["ls", "tree"]

At = Annotated[
    str, typer.Option("--ref", "-r", metavar="REF", help="Branch, tag or snapshot id to look at, main unless given.")
]

Quick = Annotated[bool, typer.Option("--quick", help="Leave out how much is initialised, which may take reading.")]


def tree(
    url: Url,
    path: Path = "",
    ref: At = "main",
    as_of: AsOf = None,
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Show groups and arrays with their shapes, types, chunks, and how much of them is initialised."""
    from arraystore.cli.nodes import nodes_below

    views = nodes_below(session_at(open_repository(url), ref, as_of), path, count=not quick)
    if as_json:
        print_json(views)
        return
    console = make_console()
    console.print(_drawing(views), soft_wrap=True)


def _drawing(views: list[NodeView]) -> Tree:
    from rich.tree import Tree

    branches: dict[str, Tree] = {}
    root = Tree(_label(views[0]), guide_style="dim")
    branches[views[0].path] = root
    for view in views[1:]:
        above = view.path.rpartition("/")[0] or "/"
        while above not in branches:
            above = above.rpartition("/")[0] or "/"
        branches[view.path] = branches[above].add(_label(view))
    return root


def _label(view: NodeView) -> Any:
    name = view.path.rpartition("/")[2] or "/"
    label = literal(name, "bold" if view.kind == "group" else "")
    if view.kind == "array":
        label += literal(f"  {view.dtype} {_sizes(view.shape)}", "cyan")
        if view.chunks is not None:
            label += literal(f"  chunks {_sizes(view.chunks)}", "dim")
        if view.initialised is not None:
            label += literal(f"  {_fraction(view)}", "green")
    return label


def _sizes(sizes: tuple[int, ...] | None) -> str:
    return "×".join(map(str, sizes)) if sizes else "scalar"


def _fraction(view: NodeView) -> str:
    assert view.initialised is not None
    if not view.grid_size:
        return "empty"
    share = view.initialised / view.grid_size
    percent = f"{100 * share:.0f} %" if share in (0, 1) or 0.01 <= share <= 0.99 else f"{100 * share:.3g} %"
    return f"{percent} of {count_text(view.grid_size, 'chunk')}"


def ls(url: Url, path: Path = "", ref: At = "main", as_of: AsOf = None, as_json: Json = False) -> None:
    """List what is right below a group: arrays, groups and files."""
    from arraystore.cli.nodes import children

    views = children(session_at(open_repository(url), ref, as_of), path)
    if as_json:
        print_json(views)
        return
    table = make_table("name", "kind", "type", "shape", "chunks")
    for view in views:
        add_row(
            table, view.path.rpartition("/")[2], view.kind, view.dtype or "",
            "" if view.shape is None else _sizes(view.shape), "" if view.chunks is None else _sizes(view.chunks),
        )  # fmt: skip
    make_console().print(table)
