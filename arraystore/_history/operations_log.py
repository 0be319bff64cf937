"""Operations on a repository: the logs of its branches and the repository log, merged by time."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from arraystore._format.ids import id_to_text
from arraystore._format.lifecycle import Deleted, Expiry, Fence, Reset
from arraystore._format.record import Birth, Commit, Rewrite, decode_note, first_carried
from arraystore._format.repository_log import FIRST_BRANCH, RepositoryEntry, RepositoryOperation
from arraystore._history.imports import imported_at
from arraystore._log.ancestry import rows_of_records
from arraystore._log.branch_log import BranchLog
from arraystore.errors import ObjectNotFoundError

_BLOCK = 512


class UpdateType(enum.StrEnum):
    """Kind of an operation."""

    RepoInitialized = "RepoInitialized"
    NewCommit = "NewCommit"
    CommitAmended = "CommitAmended"
    BranchCreated = "BranchCreated"
    BranchDeleted = "BranchDeleted"
    BranchReset = "BranchReset"
    TagCreated = "TagCreated"
    TagDeleted = "TagDeleted"
    ConfigChanged = "ConfigChanged"
    MetadataChanged = "MetadataChanged"
    RepoStatusChanged = "RepoStatusChanged"
    FeatureFlagChanged = "FeatureFlagChanged"
    RetentionChanged = "RetentionChanged"
    ExpirationRan = "ExpirationRan"
    GCRan = "GCRan"
    Rewritten = "Rewritten"


@dataclass(frozen=True)
class Update:
    """One thing that was done.

    Parameters
    ----------
    kind
        What.
    updated_at
        When, by the clock of whoever did it, in UTC; None for a rewrite, which notes no time.
    branch
        Of which branch; None for the repository.
    details
        Names, ids and counts, as JSON has them.
    """

    kind: UpdateType
    updated_at: datetime | None
    branch: str | None = None
    details: dict[str, Any] = field(default_factory=dict[str, Any])


_SETTINGS = {
    "config": UpdateType.ConfigChanged,
    "metadata": UpdateType.MetadataChanged,
    "status": UpdateType.RepoStatusChanged,
    "flags": UpdateType.FeatureFlagChanged,
    "retention": UpdateType.RetentionChanged,
}
_REPOSITORY = {
    RepositoryOperation.TAG_CREATED: UpdateType.TagCreated,
    RepositoryOperation.TAG_DELETED: UpdateType.TagDeleted,
    RepositoryOperation.BRANCH_CREATED: UpdateType.BranchCreated,
    RepositoryOperation.BRANCH_DELETED: UpdateType.BranchDeleted,
    RepositoryOperation.COLLECTED: UpdateType.GCRan,
    RepositoryOperation.EXPIRED: UpdateType.ExpirationRan,
}


def _as_datetime(time: int) -> datetime:
    return datetime.fromtimestamp(time / 1_000_000, UTC)


async def updates_of_repository(
    pages: AsyncIterator[Sequence[tuple[int, RepositoryEntry]]],
) -> AsyncIterator[Update]:
    """Yield the operations in the repository log, newest first."""
    async for page in pages:
        for _, entry in page:
            update = _of_entry(entry)
            if update is not None:
                yield update


def _of_entry(entry: RepositoryEntry) -> Update | None:
    operation = entry.operation
    if operation == RepositoryOperation.SETTING:
        kind = _SETTINGS.get(entry.name)
        return None if kind is None else Update(kind, _as_datetime(entry.time), None, {"value": entry.value})
    kind = _REPOSITORY.get(operation)
    if kind is None:
        return None  # a watermark is a part of a collection
    details: dict[str, Any] = dict(entry.value) if isinstance(entry.value, dict) else {}
    if entry.name:
        details["name"] = entry.name
    if entry.snapshot is not None:
        details["snapshot"] = id_to_text(entry.snapshot)
    is_branch = operation in (RepositoryOperation.BRANCH_CREATED, RepositoryOperation.BRANCH_DELETED)
    return Update(kind, _as_datetime(entry.time), entry.name if is_branch else None, details)


async def updates_of_log(log: BranchLog, newest: int) -> AsyncIterator[Update]:
    """Yield the operations in a branch's log, newest first, as far back as its records exist."""
    last = newest
    while last >= 0:
        first = first_carried(last) if last % _BLOCK else max(0, last - _BLOCK + 1)
        try:
            async for update in _of_span(log, first, last):
                yield update
        except ObjectNotFoundError:
            return  # older records have expired, and are deleted
        last = first - 1


async def _of_span(log: BranchLog, first: int, last: int) -> AsyncIterator[Update]:
    span = await log.span(first, last)
    notes = {row.id: row.note for row in await rows_of_records(log, first, last)}
    for number in sorted(span.bodies, reverse=True):
        entry = log.decode(number, span.bodies[number])
        if isinstance(entry, Commit):
            for item in reversed(entry.transactions):
                message, metadata = decode_note(log.key(number), notes[item.id])
                kind = UpdateType.NewCommit if item.amends is None else UpdateType.CommitAmended
                details = {"snapshot": id_to_text(item.id), "message": message}
                if item.amends is not None:
                    details["amends"] = id_to_text(item.amends)
                done = imported_at(item.id, metadata) or _as_datetime(item.time)
                yield Update(kind, done, log.branch, details)
        elif isinstance(entry, Reset) and not entry.cause:
            yield Update(
                UpdateType.BranchReset, _as_datetime(entry.time), log.branch, {"snapshot": id_to_text(entry.snapshot)}
            )
        elif isinstance(entry, Rewrite):
            yield Update(UpdateType.Rewritten, None, log.branch, {"arrays": len(entry.replacements)})
        elif isinstance(entry, Birth) and entry.origin is None and log.branch == FIRST_BRANCH:
            yield Update(UpdateType.RepoInitialized, _as_datetime(entry.time), None, {})
        else:
            assert isinstance(entry, Birth | Reset | Deleted | Fence | Expiry)  # the repository log tells of these


async def merged(sources: Sequence[AsyncIterator[Update]]) -> AsyncIterator[Update]:
    """Merge the operations of several logs, newest first; within a log the order is the log's, whatever its clocks."""
    heads: list[tuple[Update, AsyncIterator[Update]]] = []
    for source in sources:
        first = await anext(source, None)
        if first is not None:
            heads.append((first, source))
    while heads:
        at = max(range(len(heads)), key=lambda i: _order(heads[i][0]))
        update, source = heads[at]
        yield update
        following = await anext(source, None)
        if following is None:
            del heads[at]
        else:
            heads[at] = following, source


def _order(update: Update) -> float:
    """Return the sort key of an update; one without a time comes as soon as it is the newest of its log."""
    return float("inf") if update.updated_at is None else update.updated_at.timestamp()
