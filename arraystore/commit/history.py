"""The history of a branch: listing its snapshots, finding one by id."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from arraystore.commit.branch import INITIAL_MESSAGE, Tip, load_checkpoint
from arraystore.commit.log import BranchLog
from arraystore.errors import ObjectNotFoundError
from arraystore.format.history import HistoryPage, SnapshotRow, decode_history, history_key, page_span
from arraystore.format.record import Birth, Commit, Origin, encode_note
from arraystore.format.refs import Hint, name_in_key
from arraystore.format.snapshot import PageRef
from arraystore.storage.protocol import Storage

__all__ = ["Place", "ancestry", "covered", "find_snapshot", "list_branches", "read_page", "rows_of_records"]


@dataclass(frozen=True)
class Place:
    """Where a snapshot is in a log, and the nearest checkpoint at or before it."""

    branch: str
    row: SnapshotRow
    hint: Hint | None


async def rows_of_records(log: BranchLog, first: int, last: int) -> tuple[list[SnapshotRow], Origin | None]:
    """Read the snapshots of some neighbouring records from the records themselves, oldest first.

    Returns
    -------
    list of SnapshotRow
    Origin or None
        Where the branch comes from, if its birth is among the records.
    """
    if last < first:
        return [], None
    span = await log.span(first, last)
    rows: list[SnapshotRow] = []
    origin: Origin | None = None
    for number, body in span.bodies.items():
        entry = log.decode(number, body)
        if isinstance(entry, Birth):
            origin = entry.origin
            if origin is None:
                note = encode_note(INITIAL_MESSAGE, {})
                rows.append(SnapshotRow(number, entry.snapshot, entry.parent, entry.time, note))
        elif isinstance(entry, Commit):
            for item in entry.transactions:
                note = await log.note(number, item, span.records)
                rows.append(SnapshotRow(number, item.id, item.parent, item.time, note))
    return rows, origin


async def read_page(log: BranchLog, ref: PageRef) -> HistoryPage:
    """Read a history page; one that is missing is made from the records, as its writer would have."""
    key = history_key(name_in_key(log.branch), ref.level, ref.index)
    try:
        return decode_history(key, await log.storage.get(key), log.branch, ref.level, ref.index)
    except ObjectNotFoundError:
        rows, _ = await rows_of_records(log, *page_span(ref.level, ref.index))
        return HistoryPage(log.branch, ref.level, ref.index, tuple(rows), ())


def covered(pages: tuple[PageRef, ...]) -> int:
    """Return the newest record that is in a page, -1 if there is no page."""
    return page_span(pages[-1].level, pages[-1].index)[1] if pages else -1


async def ancestry(log: BranchLog, tip: Tip) -> AsyncIterator[list[SnapshotRow]]:
    """List snapshots newest first, a page at a time, through the origins of branches.

    Parameters
    ----------
    log
        The branch.
    tip
        Where to start.
    """
    state = tip.state
    at = state.sequence
    while True:
        origin: Origin | None = None
        pages = tuple(page for page in state.pages if page_span(page.level, page.index)[1] <= at)
        rows, origin = await rows_of_records(log, covered(pages) + 1, at)
        yield _from(rows, at, state.snapshot)[::-1]
        for ref in reversed(pages):
            page = await read_page(log, ref)
            yield _from(list(page.rows), at, state.snapshot)[::-1]
        if pages:
            _, origin = await rows_of_records(log, 0, 0)
        if origin is None:
            return
        state = await load_checkpoint(log.storage, origin.checkpoint)
        log = BranchLog(log.storage, origin.branch, log.environment)
        at = origin.sequence


def _from(rows: list[SnapshotRow], sequence: int, snapshot: bytes) -> list[SnapshotRow]:
    """Leave out what stands after a snapshot in its own record, which may hold several."""
    ids = [row.id for row in rows if row.sequence == sequence]
    return rows[: len(rows) - len(ids) + ids.index(snapshot) + 1] if snapshot in ids else rows


async def find_snapshot(log: BranchLog, tip: Tip, snapshot: bytes) -> Place | None:
    """Find a snapshot in the log of a branch (not of its origins); None if it is not there.

    The directory of pages in the checkpoint tells which page can hold the id, so this takes a request or two.
    """
    state = tip.state
    first = covered(state.pages) + 1
    rows, _ = await rows_of_records(log, first, state.sequence)
    hint = None if state.checkpoint is None else Hint(state.checkpoint.sequence, state.checkpoint.id)
    for at, row in enumerate(rows):
        if row.id == snapshot:
            newest = _newest_start(rows, at)
            return Place(log.branch, row, hint if hint is not None and hint.sequence <= newest else None)
    for ref in reversed(state.pages):
        if not ref.lowest <= snapshot <= ref.highest:
            continue
        page = await read_page(log, ref)
        for at, row in enumerate(page.rows):
            if row.id == snapshot:
                newest = _newest_start(page.rows, at)
                before = [c for c in page.checkpoints if c[0] <= newest]
                return Place(log.branch, row, Hint(*max(before)) if before else None)
    return None


def _newest_start(rows: Sequence[SnapshotRow], at: int) -> int:
    """Return the newest record whose checkpoint leads to a snapshot: its own if it is the last one in there."""
    sequence = rows[at].sequence
    return sequence - 1 if at + 1 < len(rows) and rows[at + 1].sequence == sequence else sequence


async def list_branches(storage: Storage) -> list[str]:
    """List the keys' form of the names of all branches."""
    names: list[str] = []
    prefix = "refs/branch/"
    after = ""
    while True:
        found = None
        async for page in storage.list(prefix, after):
            if page:
                found = page[0].key[len(prefix) :].split("/")[0]
                break
        if found is None:
            return names
        names.append(found)
        after = f"{prefix}{found}/\U0010ffff"
