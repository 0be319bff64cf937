"""Checkpoints, history pages and hints.

All of them are functions of the log: any process that misses one can write it, and writing one twice is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from arraystore._commit.prepare import upload
from arraystore._format.history import HistoryPage, SnapshotRow, encode_history, history_key, page_span
from arraystore._format.ids import ID_BYTES, CheckpointId, SnapshotId
from arraystore._format.record import LONG_SKIP
from arraystore._format.refs import Hint, encode_hint, hint_key
from arraystore._format.snapshot import PageRef, checkpoint_key, encode_checkpoint
from arraystore._log.ancestry import covered, read_page, rows_of_records
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip, load_checkpoint, load_tip
from arraystore._log.state import CheckpointRef, SnapshotState
from arraystore._maintenance.due import checkpoint_due, last_multiple
from arraystore.errors import FormatError, ObjectNotFoundError

_HIGHEST_LEVEL = 2
"""Level of pages of 4096 snapshots, some 300 KB; larger ones make finding one snapshot slow."""


async def write_checkpoint(log: BranchLog, state: SnapshotState) -> CheckpointRef:
    """Write a checkpoint of a state, and the hint to it."""
    reference = CheckpointRef(state.sequence, CheckpointId(log.environment.new_id()))
    key = checkpoint_key(reference.id)
    await upload(log.storage, [(key, await encode_state(log, key, state))])
    await _put_hint(log, reference)
    return reference


async def encode_state(log: BranchLog, key: str, state: SnapshotState) -> bytes:
    """Encode a state as a checkpoint, with the digest of its record where it can be loaded."""
    return encode_checkpoint(key, replace(state.to_checkpoint(state.pages), digest=await _digest(log, state)))


async def _digest(log: BranchLog, state: SnapshotState) -> bytes | None:
    """Load the digest of the log up to the record of a state; None where the record has expired or is damaged."""
    at = state.checkpoint
    if at is not None and at.digest is not None and at.sequence == state.sequence:
        return at.digest
    digest = log.chain.digest(state.sequence)
    if digest is not None:
        return digest
    try:
        return (await log.read(state.sequence)).digest
    except (ObjectNotFoundError, FormatError):
        return None


async def _put_hint(log: BranchLog, to: CheckpointRef) -> None:
    await log.storage.put(hint_key(log.branch), encode_hint(Hint(to.sequence, to.id, log.settings, log.repository)))


async def put_hint_of(log: BranchLog, state: SnapshotState) -> None:
    """Overwrite the hint with the newest checkpoint of a tip."""
    if state.checkpoint is None:
        await write_checkpoint(log, state)
    else:
        await _put_hint(log, state.checkpoint)


async def write_periodic(log: BranchLog, tip: Tip) -> SnapshotState | None:
    """Write the checkpoint, history pages and hint due at the last multiple of 64, unless another process has.

    Returns the state of that record with its checkpoint and pages, None if nothing was due.
    """
    if not checkpoint_due(tip):
        return None
    target = last_multiple(tip)
    if target <= tip.state.life.expired:
        return None  # records before it may be missing, and readers begin behind it
    checkpoint = tip.state.checkpoint
    written = await _written_by_others(log, target)
    if written is not None:
        return written
    if tip.sequence == target:
        state = tip.state
    else:
        hint = None if checkpoint is None else Hint(checkpoint.sequence, checkpoint.id)
        state = (await load_tip(log, hint, at=target)).state
    identifier = CheckpointId(log.environment.new_id())
    state = replace(state, pages=_consecutive(state.pages, tip.state.life.expired))
    pages = await _new_pages(log, state, identifier, tip.state.life.expired + 1)
    directory = _directory(state.pages, [page_ref(page) for page in pages])
    state = replace(state, pages=directory, checkpoint=CheckpointRef(target, identifier))
    key = checkpoint_key(identifier)
    await upload(log.storage, [(key, await encode_state(log, key, state))])
    for page in pages:
        key = history_key(log.history_prefix, page.level, page.index)
        await log.storage.put_if_absent(key, encode_history(page))
    await _put_hint(log, CheckpointRef(target, identifier))
    return state


async def _written_by_others(log: BranchLog, target: int) -> SnapshotState | None:
    """Load the state that the hint names, if it makes a new checkpoint redundant."""
    hint = await log.hint()
    if hint is None or hint.sequence < target:
        return None
    try:
        state = await load_checkpoint(log.storage, hint.checkpoint)
    except (ObjectNotFoundError, FormatError):
        return None
    fits = (state.branch, state.sequence) == (log.branch, hint.sequence) and covered(state.pages) >= target
    return state if fits else None


async def _new_pages(log: BranchLog, state: SnapshotState, identifier: CheckpointId, shown: int) -> list[HistoryPage]:
    """Make the history pages up to a state that its directory lacks; records before `shown` may be missing."""
    pages: list[HistoryPage] = []
    before = state.checkpoint
    for index in range(max(covered(state.pages), shown - 1, 0) // LONG_SKIP, state.sequence // LONG_SKIP):
        first, last = page_span(1, index)
        rows = await _rows_of_page(log, first, last, shown)
        checkpoints: list[tuple[int, CheckpointId]] = []
        if before is not None and before.sequence <= last:
            checkpoints.append((before.sequence, before.id))
        if last == state.sequence:
            checkpoints.append((last, identifier))
        pages.append(HistoryPage(log.branch, 1, index, tuple(rows), tuple(checkpoints)))
    refs = list(state.pages)
    by_ref = {}
    for page in list(pages):
        ref = page_ref(page)
        by_ref[ref] = page
        refs.append(ref)
        level = 1
        while level < _HIGHEST_LEVEL and (refs[-1].index + 1) % LONG_SKIP == 0:
            group = [r for r in refs if r.level == level and r.index // LONG_SKIP == refs[-1].index // LONG_SKIP]
            merged = await _merge(log, group, by_ref, shown)
            pages.append(merged)
            refs = [*(r for r in refs if r not in group), page_ref(merged)]
            by_ref[refs[-1]] = merged
            level += 1
    return pages


async def _rows_of_page(log: BranchLog, first: int, last: int, shown: int) -> list[SnapshotRow]:
    """Load the rows of a page, without those that no history shows once their records are deleted."""
    try:
        return await rows_of_records(log, first, last)
    except ObjectNotFoundError:
        return await rows_of_records(log, max(first, shown), last)


async def _page(log: BranchLog, ref: PageRef, shown: int) -> HistoryPage:
    """Read a history page; a collection may have deleted it where no history shows anything of it."""
    try:
        return await read_page(log, ref)
    except ObjectNotFoundError:
        rows = await _rows_of_page(log, *page_span(ref.level, ref.index), shown)
        return HistoryPage(log.branch, ref.level, ref.index, tuple(rows), ())


async def _merge(
    log: BranchLog, refs: Sequence[PageRef], at_hand: Mapping[PageRef, HistoryPage], shown: int
) -> HistoryPage:
    rows: list[SnapshotRow] = []
    checkpoints: dict[int, CheckpointId] = {}
    for ref in refs:
        page = at_hand.get(ref) or await _page(log, ref, shown)
        rows += page.rows
        checkpoints.update(page.checkpoints)
    last = refs[-1]
    return HistoryPage(
        log.branch, last.level + 1, last.index // LONG_SKIP, tuple(rows), tuple(sorted(checkpoints.items()))
    )


def page_ref(page: HistoryPage) -> PageRef:
    """Return the entry of a page in a directory of pages."""
    ids = [row.id for row in page.rows]
    nothing = SnapshotId(bytes(ID_BYTES))
    return PageRef(page.level, page.index, min(ids, default=nothing), max(ids, default=nothing))


def _consecutive(pages: tuple[PageRef, ...], expired: int) -> tuple[PageRef, ...]:
    """Return pages that follow each other, without the older ones before a gap of expired records."""
    if covered(pages) < expired // LONG_SKIP * LONG_SKIP:
        return ()
    at = len(pages) - 1
    while at > 0 and covered(pages[:at]) + 1 == page_span(pages[at].level, pages[at].index)[0]:
        at -= 1
    return pages[max(at, 0) :]


def _directory(old: tuple[PageRef, ...], new: list[PageRef]) -> tuple[PageRef, ...]:
    """Append new pages, replacing the pages that those of a higher level merge."""
    directory = list(old)
    for ref in new:
        first, _ = page_span(ref.level, ref.index)
        directory = [kept for kept in directory if page_span(kept.level, kept.index)[0] < first]
        directory.append(ref)
    return tuple(directory)
