"""History of snapshots and of the repository: ``log``, ``show``, ``diff``, ``ops``, ``reflog``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arraystore._runtime.formatting import time_text
from arraystore.cli.console import literal, make_console, plain, print_json, print_pairs, safe, stream_json
from arraystore.cli.options import BranchName, Json, Limit, Ref, Snapshot, Url
from arraystore.cli.resolve import MOVES, ResolvedRef, moves_of, open_repository, resolve
from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.text import Text

    from arraystore import Diff, Repository, SnapshotInfo
    from arraystore._history.operations_log import Update

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
    oneline: Annotated[bool, typer.Option("--oneline", help="Print a line for each snapshot.")] = False,
    as_json: Json = False,
) -> None:
    """Show the history of a branch, tag or snapshot, newest first, with the branches and tags that are there.

    REF defaults to main. Only the printed part of the history is read, so that --limit is fast.
    """
    repository = open_repository(url)
    place = _start(repository, ref, branch, tag)
    if graph:
        start = place if ref or branch or tag else ResolvedRef("", "", "")
        drawing = repository.ancestry_graph(
            branch=start.branch, tag=start.tag, snapshot_id=start.id, limit=limit or _DRAWN, plain=not _unicode()
        )
        print_json(drawing.rows) if as_json else print(safe(str(drawing)))
        return
    history = repository.ancestry(branch=place.branch, tag=place.tag, snapshot_id=place.id)
    shown = itertools.islice(history, limit)
    if as_json:
        stream_json(map(plain, shown))
        return
    names = _names(repository)
    if oneline:
        _print_lines(_HEADER, (_snapshot_line(each, names) for each in shown))
    else:
        _print_lines("", itertools.chain.from_iterable(_snapshot_lines(each, names) for each in shown))


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


_HEADER = f"{'snapshot':<20}  {'written (UTC)':<19}  message"


def _print_lines(header: str, lines: Iterable[Text]) -> None:
    """Print lines one by one, as soon as they are available."""
    console = make_console()
    if header:
        console.print(literal(header, "bold dim"), soft_wrap=True)
    for line in lines:
        console.print(line, soft_wrap=True)


def print_history(snapshots: Iterable[SnapshotInfo]) -> None:
    """Print snapshots, a line each."""
    _print_lines(_HEADER, (_snapshot_line(each, {}) for each in snapshots))


def _names(repository: Repository) -> dict[str, list[str]]:
    """Return the branches and tags that point to each snapshot."""
    from arraystore._repository.ref_tips import newest_of

    found: dict[str, list[str]] = {}
    for kind, names in (("branch", repository.list_branches()), ("tag", repository.list_tags())):
        for name, info in newest_of(repository, kind, names).items():
            found.setdefault(info.id, []).append(f"{kind} {name}")
    return found


def _decorated(snapshot: SnapshotInfo, names: Mapping[str, list[str]]) -> Text:
    there = names.get(snapshot.id)
    return literal(f" ({', '.join(there)})", "green") if there else literal("")


def _snapshot_line(snapshot: SnapshotInfo, names: Mapping[str, list[str]]) -> Text:
    line = literal("") + literal(snapshot.id, "yellow") + literal(f"  {time_text(snapshot.written_at)}  ", "dim")
    return line + literal(" ".join(snapshot.message.split())) + _decorated(snapshot, names)


def _snapshot_lines(snapshot: SnapshotInfo, names: Mapping[str, list[str]]) -> Iterator[Text]:
    """Yield a snapshot with all lines of its message."""
    yield literal("") + literal(f"snapshot {snapshot.id}", "yellow") + _decorated(snapshot, names)
    yield literal(f"written  {time_text(snapshot.written_at)} UTC", "dim")
    yield literal("")
    for line in snapshot.message.splitlines() or [""]:
        yield literal(f"    {line}" if line else "")
    yield literal("")


def ops(url: Url, limit: Limit = None, as_json: Json = False) -> None:
    """Show the operations log, newest first: commits, branches, tags, settings, expiry, garbage collection.

    It ends where the logs do: records of expired snapshots are deleted eventually.
    """
    updates = itertools.islice(open_repository(url).ops_log(), limit)
    if as_json:
        stream_json(updates)
    else:
        _print_lines(f"{'time (UTC)':<19}  {'operation':<18}  details", map(_update_line, updates))


def _update_line(update: Update) -> Text:
    when = "-" if update.updated_at is None else time_text(update.updated_at)
    details = {"branch": update.branch, **update.details} if update.branch else update.details
    text = ", ".join(f"{name}: {' '.join(str(value).split())}" for name, value in details.items())
    return literal("") + literal(f"{when:<19}  ", "dim") + literal(f"{update.kind.value:<18}  ", "cyan") + literal(text)


def reflog(url: Url, branch: BranchName = "main", limit: Limit = None, as_json: Json = False) -> None:
    """Show where a branch has been, newest first: commits, amendments, resets, its creation and deletion.

    Each place, such as main@{1}, is a name of its snapshot in other commands: `arraystore reset URL main main@{1}`
    undoes a reset, until garbage is collected.
    """
    shown = itertools.islice(enumerate(moves_of(open_repository(url), branch)), limit)
    if as_json:
        stream_json({"number": number, **plain(update)} for number, update in shown)
    else:
        _print_lines(
            f"{'place':<12}  {'snapshot':<20}  {'time (UTC)':<19}  {'move':<6}  message",
            (_move_line(branch, number, update) for number, update in shown),
        )


def _move_line(branch: str, number: int, update: Update) -> Text:
    when = "-" if update.updated_at is None else time_text(update.updated_at)
    snapshot, message = update.details.get("snapshot", "-"), update.details.get("message", "")
    line = literal("") + literal(f"{f'{branch}@{{{number}}}':<12}  ", "bold") + literal(f"{snapshot:<20}  ", "yellow")
    return (
        line + literal(f"{when:<19}  ", "dim") + literal(f"{MOVES[update.kind.value]:<6}  {' '.join(message.split())}")
    )


def show(url: Url, snapshot: Snapshot = "main", as_json: Json = False) -> None:
    """Show a snapshot: time, message, metadata, refs and changes."""
    repository = open_repository(url)
    info = repository.lookup_snapshot(resolve(repository, snapshot).snapshot_id)
    changes = None
    if info.parent_id is not None:
        changes = repository.diff(from_snapshot_id=info.parent_id, to_snapshot_id=info.id)
    if as_json:
        print_json({**plain(info), "changes": changes})
        return
    names = _names(repository).get(info.id, [])
    rows: list[tuple[str, object]] = [
        ("snapshot", info.id),
        ("parent", info.parent_id or "none (first snapshot)"),
        ("written", f"{time_text(info.written_at)} UTC"),
        *([] if info.imported_at is None else [("imported", f"{time_text(info.imported_at)} UTC")]),
        *([] if info.base_id in (None, info.parent_id) else [("made on", f"{info.base_id}, and rebased")]),
        *([("forks", f"{info.merged_forks:,} merged")] if info.merged_forks else []),
        ("message", info.message),
        *((f"  {key}", _short(value)) for key, value in sorted(info.metadata.items())),
        *([("refs", ", ".join(names))] if names else []),
    ]
    print_pairs(rows)
    if changes is not None:
        _print_diff(changes)


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
        print(safe(difference.to_markdown()))
    else:
        _print_diff(difference)


def _print_diff(difference: Diff) -> None:
    make_console().print(difference if hasattr(difference, "__rich__") else literal(repr(difference)), soft_wrap=True)
