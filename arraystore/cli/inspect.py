"""Contents of a snapshot: ``tree``, ``ls``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from arraystore._runtime.formatting import count_text
from arraystore.cli.console import literal, make_console, print_json, print_table
from arraystore.cli.options import AsOf, Json, Path, RefOption, Url
from arraystore.cli.resolve import open_repository, open_session

if TYPE_CHECKING:
    from rich.tree import Tree

    from arraystore._session.node_views import NodeView

Quick = Annotated[bool, typer.Option("--quick", help="Do not count initialised chunks, which may need requests.")]


def tree(
    url: Url,
    path: Path = "",
    ref: RefOption = "main",
    as_of: AsOf = None,
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Show groups and arrays with shapes, data types, chunk shapes, and the fraction of initialised chunks."""
    from arraystore._session.node_views import nodes_below

    views = nodes_below(open_session(open_repository(url), ref, as_of), path, count=not quick)
    if as_json:
        print_json(views)
        return
    console = make_console()
    console.print(_build_tree(views), soft_wrap=True)
    if len(views) == 1 and views[0].kind == "group":
        console.print("(empty)", markup=False)


def _build_tree(views: list[NodeView]) -> Tree:
    from rich.tree import Tree

    subtrees: dict[str, Tree] = {}
    root = Tree(_label(views[0]), guide_style="dim")
    subtrees[views[0].path] = root
    for view in views[1:]:
        parent = view.path.rpartition("/")[0] or "/"
        while parent not in subtrees:
            parent = parent.rpartition("/")[0] or "/"
        subtrees[view.path] = subtrees[parent].add(_label(view))
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


def ls(url: Url, path: Path = "", ref: RefOption = "main", as_of: AsOf = None, as_json: Json = False) -> None:
    """List the arrays, groups and files directly below a group."""
    from arraystore._session.node_views import children

    views = children(open_session(open_repository(url), ref, as_of), path)
    if as_json:
        print_json(views)
        return
    if not views:
        print("(empty)")
        return
    rows = [
        (view.path.rpartition("/")[2], view.kind, view.dtype or "", *map(_cell, (view.shape, view.chunks)))
        for view in views
    ]
    print_table(("name", "kind", "type", "shape", "chunks"), rows)


def _cell(sizes: tuple[int, ...] | None) -> str:
    return "" if sizes is None else _sizes(sizes)
