"""History of snapshots: ``log``, ``show``, ``diff``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arraystore.cli.console import (
    add_row,
    literal,
    make_console,
    make_table,
    plain,
    print_json,
    stream_json,
    time_text,
)
from arraystore.cli.options import Json, Limit, Ref, Snapshot, Url
from arraystore.cli.resolve import ResolvedRef, newest_of, open_repository, resolve
from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    from arraystore import Diff, Repository, SnapshotInfo

__all__ = ["diff", "log", "print_history", "show"]


_DRAWN = 100
"""Default number of snapshots in a graph."""


def log(
    url: Url,
    ref: Ref = "",
    branch: Annotated[str | None, typer.Option("--branch", "-b", metavar="NAME", help="Start at this branch.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="NAME", help="Start at this tag.")] = None,
    limit: Limit = None,
    graph: Annotated[
        bool, typer.Option("--graph", help="Draw a graph; without REF, of all branches and tags.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the history of a branch, tag or snapshot, newest first.

    REF defaults to main. Only the printed part of the history is read, so that --limit is fast.
    """
    repository = open_repository(url)
    place = _start(repository, ref, branch, tag)
    if graph:
        start = place if ref or branch or tag else ResolvedRef("", "", "")
        drawing = repository.ancestry_graph(
            branch=start.branch, tag=start.tag, snapshot_id=start.id, limit=limit or _DRAWN, plain=not _unicode()
        )
        print_json(drawing.rows) if as_json else print(drawing)
        return
    history = repository.ancestry(branch=place.branch, tag=place.tag, snapshot_id=place.id)
    shown = itertools.islice(history, limit)
    if as_json:
        stream_json(map(_as_json, shown))
    else:
        print_history(shown)


def _start(repository: Repository, ref: str, branch: str | None, tag: str | None) -> ResolvedRef:
    refs = [value for value in (ref or None, branch, tag) if value is not None]
    if len(refs) > 1:
        raise InvalidInputError("pass only one of REF, --branch and --tag")
    if branch is not None:
        return ResolvedRef("branch", branch, "")
    if tag is not None:
        return ResolvedRef("tag", tag, "")
    return resolve(repository, ref) if ref else ResolvedRef("branch", "main", "")


def _unicode() -> bool:
    return make_console().encoding.lower().startswith("utf")


def print_history(snapshots: Iterable[SnapshotInfo]) -> None:
    """Print snapshots one by one."""
    console = make_console()
    console.print(literal(f"{'snapshot':<20}  {'written (UTC)':<19}  message", "bold dim"), soft_wrap=True)
    for snapshot in snapshots:
        line = literal(snapshot.id, "yellow") + literal(f"  {time_text(snapshot.written_at)}  ", "dim")
        console.print(line + literal(" ".join(snapshot.message.split())), soft_wrap=True)


def _as_json(snapshot: SnapshotInfo) -> dict[str, Any]:
    fields: dict[str, Any] = plain(snapshot)
    return fields


def show(url: Url, snapshot: Snapshot = "main", as_json: Json = False) -> None:
    """Show a snapshot: time, message, metadata, refs and changes."""
    repository = open_repository(url)
    info = repository.lookup_snapshot(resolve(repository, snapshot).snapshot_id)
    changes = None if info.parent_id is None else _changes(repository, info.parent_id, info.id)
    if as_json:
        print_json({**_as_json(info), "changes": changes})
        return
    console = make_console()
    table = make_table("", "")
    table.show_header = False
    names = _names_of(repository, info.id)
    rows = [
        ("snapshot", info.id),
        ("parent", info.parent_id or "none (first snapshot)"),
        ("written", f"{time_text(info.written_at)} UTC"),
        ("message", info.message),
        *((f"  {key}", _short(value)) for key, value in sorted(info.metadata.items())),
        *([("refs", ", ".join(names))] if names else []),
    ]
    for name, value in rows:
        add_row(table, name, value)
    console.print(table)
    if changes is not None:
        print_diff(changes)


def _changes(repository: Repository, before: str, after: str) -> Diff:
    return repository.diff(from_snapshot_id=before, to_snapshot_id=after)


def _names_of(repository: Repository, snapshot: str) -> list[str]:
    """Return the branches and tags that point to a snapshot."""
    branches = newest_of(repository, "branch", repository.list_branches())
    tags = newest_of(repository, "tag", repository.list_tags())
    kinds = ("branch", branches), ("tag", tags)
    return [f"{kind} {name}" for kind, infos in kinds for name, info in infos.items() if info.id == snapshot]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(plain(value))
    return text if len(text) <= 200 else f"{text[:200]}…"


def diff(
    url: Url,
    before: Annotated[str, typer.Argument(metavar="FROM", help="Branch, tag or snapshot id to compare from.")],
    after: Annotated[str, typer.Argument(metavar="TO", help="Branch, tag or snapshot id to compare with.")] = "main",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: Json = False,
) -> None:
    """Show the differences between two snapshots: groups, arrays, and coordinates of chunks.

    FROM and TO may be unrelated; TO defaults to main. main~1 is the parent of the tip of main.
    """
    repository = open_repository(url)
    old, new = resolve(repository, before), resolve(repository, after)
    difference = repository.diff(
        from_branch=old.branch, from_tag=old.tag, from_snapshot_id=old.id,
        to_branch=new.branch, to_tag=new.tag, to_snapshot_id=new.id,
    )  # fmt: skip
    if as_json:
        print_json(difference)
    elif markdown:
        print(difference.to_markdown())
    else:
        print_diff(difference)


def print_diff(difference: Diff) -> None:
    """Print a diff."""
    make_console().print(difference if hasattr(difference, "__rich__") else literal(repr(difference)), soft_wrap=True)
