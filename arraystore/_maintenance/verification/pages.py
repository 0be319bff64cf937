"""Verification of history pages: they list the snapshots of the records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from arraystore._format.history import HistoryPage, SnapshotRow, decode_history, page_span
from arraystore._format.ids import CheckpointId
from arraystore._format.snapshot import PageRef
from arraystore._maintenance.checkpoints import page_ref
from arraystore._maintenance.verification.findings import Collector
from arraystore._maintenance.verification.inventory import Audit
from arraystore._runtime.concurrency import bounded
from arraystore.errors import FormatError, ObjectNotFoundError

_PARALLEL = 16
_REPAIR = "run repair, which writes the page again from the records"


@dataclass(frozen=True)
class PageDigest:
    """Digest of a page for the comparison with the log."""

    key: str
    ref: PageRef
    rows: tuple[tuple[int, int], ...]
    """Number and hash of each row."""
    checkpoints: tuple[tuple[int, CheckpointId], ...]


class RowDigest:
    """Hashes of the snapshots of records, by number."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._hashes: list[int] = []

    def add(self, row: SnapshotRow) -> None:
        """Add a snapshot later than those before."""
        self._numbers.append(row.sequence)
        self._hashes.append(hash(row))

    def between(self, first: int, last: int) -> tuple[tuple[int, int], ...]:
        """Return the rows of some records."""
        start, end = bisect_left(self._numbers, first), bisect_right(self._numbers, last)
        return tuple(zip(self._numbers[start:end], self._hashes[start:end], strict=True))


@dataclass(frozen=True)
class PageLocation:
    """Location of a page."""

    key: str
    level: int
    index: int


def pages_of(prefix: str, keys: list[str]) -> list[PageLocation]:
    """Return the pages of a branch among keys below ``history/``."""
    pages: list[PageLocation] = []
    for key in keys:
        level, _, index = key.removeprefix(prefix).partition("/")
        if key.startswith(prefix) and level.isdigit() and index.isdigit() and len(index) == 12:
            pages.append(PageLocation(key, int(level), int(index)))
    return pages


async def read_pages(audit: Audit, branch: str, pages: list[PageLocation]) -> dict[tuple[int, int], PageDigest]:
    """Read all pages of a branch, and return their digests."""

    async def read(location: PageLocation) -> PageDigest | None:
        key = location.key
        try:
            page = decode_history(key, await audit.storage.get(key), branch, location.level, location.index)
        except (FormatError, ObjectNotFoundError) as error:
            reason = error.reason if isinstance(error, FormatError) else "has vanished since it was listed"
            audit.collector.error(key, f"the history page cannot be read: {reason}", _REPAIR)
            return None
        audit.counts["history_pages"] += 1
        return digest_page(key, page)

    digests = await bounded(read, pages, _PARALLEL)
    return {(page.ref.level, page.ref.index): page for page in digests if page is not None}


def digest_page(key: str, page: HistoryPage) -> PageDigest:
    """Return the digest of a page."""
    rows = tuple([(row.sequence, hash(row)) for row in page.rows])
    return PageDigest(key, page_ref(page), rows, page.checkpoints)


def compare_page(
    page: PageDigest, rows: RowDigest, read_from: int, shown_from: int, tip: int, collector: Collector
) -> bool:
    """Compare a page with the rows of the records from `read_from` to `tip`, and tell whether it is right.

    A page that was written late lacks rows before `shown_from`, the oldest record whose snapshots the branch retains.
    """
    first, last = _first(page), _last(page)
    if not page.ref.index:
        first = 0
    if last > tip:
        collector.error(page.key, f"the history page covers record {last}, which does not exist", _REPAIR)
        return False
    expected = rows.between(max(first, read_from), last)
    actual = tuple([row for row in page.rows if row[0] >= read_from])
    left_out = len(expected) - len(actual)
    late = left_out > 0 and actual == expected[left_out:] and expected[left_out - 1][0] < shown_from
    if actual != expected and not late:
        collector.error(page.key, "the history page does not list the snapshots of the records that it covers", _REPAIR)
    return actual == expected or late


def cover(pages: dict[tuple[int, int], PageDigest], sequence: int, shown_from: int) -> tuple[PageRef, ...]:
    """Return consecutive pages up to a record, as a checkpoint names them: from the first record that is shown on."""
    there = [page for page in pages.values() if _last(page) <= sequence]
    starts = {_first(page) for page in there if _first(page) <= shown_from}
    runs = [_run(there, start) for start in sorted(starts)]
    longest = max(runs, key=lambda run: _last(run[-1]), default=[])
    return tuple([page.ref for page in longest])


def _run(pages: list[PageDigest], start: int) -> list[PageDigest]:
    """Return the pages that follow one another from a record on, the widest of each place."""
    run: list[PageDigest] = []
    while here := [page for page in pages if _first(page) == start]:
        run.append(max(here, key=_last))
        start = _last(run[-1]) + 1
    return run


def _first(page: PageDigest) -> int:
    return page_span(page.ref.level, page.ref.index)[0]


def _last(page: PageDigest) -> int:
    return page_span(page.ref.level, page.ref.index)[1]


def check_directory(
    key: str,
    directory: tuple[PageRef, ...],
    sequence: int,
    shown_from: int,
    pages: dict[tuple[int, int], PageDigest],
    collector: Collector,
) -> bool:
    """Check that the pages that a checkpoint names are consecutive, up to it, and have the ids that it holds.

    Where no snapshot before `shown_from` is shown, the first of them may begin there or earlier.
    """
    start: int | None = None
    for ref in directory:
        first, last = page_span(ref.level, ref.index)
        follows = first <= shown_from if start is None else first == start
        if not follows or last > sequence:
            collector.error(key, "the history pages that it names do not follow each other", _CHECKPOINT_REPAIR)
            return False
        start = last + 1
        page = pages.get((ref.level, ref.index))
        if page is not None and page.ref != ref:
            collector.error(key, f"history page {page.key} has other ids than the checkpoint says", _CHECKPOINT_REPAIR)
            return False
    return True


_CHECKPOINT_REPAIR = "run repair, which writes a checkpoint again from the records, and points the hint to it"
