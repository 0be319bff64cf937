"""A report: the page as one file, with the views that it needs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from arraystore import __version__
from arraystore._repository.repository import Repository
from arraystore._runtime import run
from arraystore._runtime.extras import check_extra
from arraystore.errors import InvalidInputError
from arraystore.storage.protocol import Storage
from arraystore.ui.bundle import bundled_page, json_in_markup
from arraystore.ui.opening import open_to_look
from arraystore.ui.server.answers import answer

__all__ = ["ExportedReport", "export_report"]

_COMMITS = 2_000
_COMPARED = 20
"""Newest snapshots that are compared with their parents."""

_SLICES = 24
"""Indices along the first dimension of an array that a report holds."""

_ARRAYS = 200


class ExportedReport(NamedTuple):
    """Result of `export_report`."""

    size: int
    """Size of the file in bytes."""
    complete: bool
    """Whether everything had room."""


@dataclass(eq=False)
class _Report:
    """Views of a report, of so many bytes at most."""

    repository: Repository
    room: int
    views: dict[str, Any] = field(default_factory=dict[str, Any])
    full: bool = False

    async def add(self, name: str, **parameters: str) -> Any:
        """Compute a view and keep it while there is room; returns its result, None for an error."""
        values = {each.rstrip("_"): value for each, value in parameters.items()}
        if (key := _key(name, values)) in self.views:
            return self.views[key].get("result")
        found = await answer(self.repository, name, values)
        body = {key: value for key, value in found.body.items() if key != "cost"}
        size = len(json_in_markup(body))
        if self.room < size:
            self.full = True
        else:
            self.room -= size
            self.views[key] = body
        return body.get("result")


def _key(name: str, values: Mapping[str, str]) -> str:
    """Return the key that the page asks for; see `keyOf` in api.js."""
    return "&".join([name, *(f"{key}={value}" for key, value in sorted(values.items()))])


def export_report(
    storage: Storage,
    path: str | Path,
    *,
    branch: str = "main",
    max_bytes: int = 32 << 20,
    authorize: Sequence[str] = (),
) -> ExportedReport:
    """Write the page into one file that needs no server and sends no request.

    It holds the history, and of the newest snapshot of a branch all arrays with their chunk maps and some slices of
    their values; the newest snapshots are compared with those before them.

    Parameters
    ----------
    storage
        Where the repository is; nothing is written to it.
    path
        File to write; one that exists is replaced as a whole.
    branch
        Branch whose newest snapshot is shown.
    max_bytes
        Size of the views in the file at most; what has no room is left out, and the page says so.
    authorize
        Containers of virtual chunks that previews may read, with the credentials of the environment.

    Returns
    -------
    ExportedReport
        Size of the file, and whether everything had room.

    Raises
    ------
    RefNotFoundError
        If there is no such branch.
    InvalidInputError
        If `max_bytes` is negative, or `path` is not a file in a directory that exists.
    """
    check_extra("arraystore.ui.export_report", "ui", "cftime")
    if max_bytes < 0:
        raise InvalidInputError(f"max_bytes={max_bytes} must be >= 0")
    file = Path(path)
    if file.is_dir() or not file.parent.is_dir():
        raise InvalidInputError(f"path={str(path)!r} must be a file in a directory that exists")
    repository = open_to_look(storage, authorize)
    tip = repository.lookup_branch(branch)
    report = _Report(repository, max_bytes)
    run(_gather(report, branch, tip))
    made = datetime.now(UTC).isoformat(sep=" ", timespec="minutes")[:16]
    text = bundled_page(
        {"made": f"{made} UTC", "version": __version__, "branch": branch, "tip": tip, "views": report.views},
        f"arraystore: {repository.storage.location}",
    )
    data = text.encode(errors="replace")
    _replace(file, data)
    return ExportedReport(len(data), complete=not report.full)


def _replace(path: Path, data: bytes) -> None:
    """Write a file at once, with the permissions of any new file: nobody sees a half of it."""
    name = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with name.open("xb") as file:
        try:
            file.write(data)
            file.close()
            name.replace(path)
        except BaseException:
            with suppress(OSError):
                name.unlink()
            raise


async def _gather(report: _Report, branch: str, tip: str) -> None:
    overview = await report.add("overview")
    history = await report.add("history", limit="200")
    if history is not None and not history["complete"]:
        history = await report.add("history", limit=str(_COMMITS))
        if (body := report.views.pop(_key("history", {"limit": str(_COMMITS)}), None)) is not None:
            report.views["history"] = body  # the page asks for all
    tips = {each["name"]: each["snapshot"] for each in overview["branches"]} if overview is not None else {}
    await _snapshot(report, tip)
    if history is None:
        return
    for at in [row for row, _ in zip(range(len(history["ids"])), range(_COMPARED), strict=False)]:
        parent = history["parents"][at]
        await report.add("snapshot", id=history["ids"][at])
        if parent >= 0:
            await _comparison(report, history["ids"][parent], history["ids"][at])
    names = [name for name in tips if name != branch and tips[name]]
    for name in names[:4]:
        await _comparison(report, tip, tips[name])
    for identifier in history["ids"][_COMPARED:]:
        await report.add("snapshot", id=identifier)


async def _snapshot(report: _Report, at: str) -> None:
    tree = await report.add("tree", at=at)
    await report.add("storage", at=at)
    arrays = [row for row in tree["rows"] if row["kind"] == "array"][:_ARRAYS] if tree else []
    for row in tree["rows"][:2_000] if tree else ():
        await report.add("node", at=at, path=row["path"])
    for row in arrays:
        await report.add("preview", at=at, path=row["path"], axes="", index="")
        await report.add("chunks", at=at, path=row["path"], axes="", index="")
    for row in arrays:
        for index in _indices(row["shape"] or ()):
            await report.add("preview", at=at, path=row["path"], axes="", index=index)


def _indices(shape: Sequence[int]) -> Iterator[str]:
    """Yield some indices along the first dimension of an array of more than two."""
    if len(shape) < 3 or 0 in shape:
        return
    step = max(1, -(-shape[0] // _SLICES))
    for at in range(step, shape[0], step):
        yield ",".join(map(str, (at, *(0,) * (len(shape) - 1))))


async def _comparison(report: _Report, before: str, after: str) -> None:
    found = await report.add("diff", from_=before, to=after)
    if found is None:
        return
    kinds = ("chunks", "updated", "created", "deleted", "moved")
    paths = dict.fromkeys(row["path"] for kind in kinds for row in found[kind][:8])
    changed = {row["path"] for row in found["chunks"][:8]}
    for path in paths:
        node = await report.add("diff-node", from_=before, to=after, path=path)
        if node is not None and node["kind"] == "array" and node["side"] != "both":
            at = before if node["side"] == "before" else after
            await report.add("node", at=at, path=path)
            await report.add("preview", at=at, path=path, axes="", index="")
        elif path in changed and node is not None:
            index = ",".join(map(str, node["index"])) if any(node["index"]) else ""
            await report.add("node", at=after, path=path)
            await report.add("diff-values", from_=before, to=after, path=path, axes="", index=index)
