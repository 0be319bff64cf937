"""Snapshots of a change feed: those of a branch after one, up to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from arraystore._format.ids import id_from_text, id_to_text
from arraystore._format.record import decode_note
from arraystore._log.ancestry import ancestry
from arraystore._log.branch_log import BranchLog
from arraystore._repository.repository import Repository
from arraystore._runtime import run
from arraystore._session.session import Session
from arraystore.errors import SnapshotExpiredError, SnapshotNotFoundError


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """A snapshot of the history."""

    snapshot: str
    parent: str | None
    """Ids of it and of the one before it, with which it is compared; None before the first one that is kept."""
    sequence: int
    """Number of the record of the branch that made it."""
    time: int
    """When it was committed, microseconds since 1970, by the writer's clock."""
    message: str
    """Message of the commit."""


class NewestStep(NamedTuple):
    """The newest snapshot of a branch, and the number of its record."""

    snapshot: str
    sequence: int


def newest_step(repo: Repository, branch: str) -> NewestStep:
    """Return the newest snapshot of a branch; raise `RefNotFoundError`."""
    state = run(repo.context.tip(branch)).state
    return NewestStep(id_to_text(state.snapshot), state.sequence)


def steps_between(repo: Repository, branch: str, after: str | None, until: str) -> list[HistoryStep]:
    """Return the snapshots after one, up to and including another, oldest first.

    Expired snapshots are skipped: their changes are those of the next one that is left.
    """
    return [] if after == until else run(_steps(repo, branch, after, until))


async def _steps(repo: Repository, branch: str, after: str | None, until: str) -> list[HistoryStep]:
    start = None if after is None else id_from_text(after)
    session = await _open_snapshot(repo, until)
    tip = session.base_tip
    context = repo.context
    log = BranchLog(repo.storage, context.repository, tip.state.branch, context.environment)
    steps: list[HistoryStep] = []
    async for rows in ancestry(log, tip, context.newest_state):
        for row in rows:
            if row.id == start:
                return steps[::-1]
            message, _ = decode_note(f"note of snapshot {id_to_text(row.id)}", row.note)
            parent = None if row.parent is None else id_to_text(row.parent)
            steps.append(HistoryStep(id_to_text(row.id), parent, row.sequence, row.time, message))
    if after is None:
        return steps[::-1]
    await _open_snapshot(repo, after)
    raise SnapshotNotFoundError(
        f"snapshot {after}, after which changes are to be read, is not in the history of snapshot {until}, where they "
        f"end: the end lies before the beginning, or branch {branch!r} was reset since to a snapshot before it or to "
        "another history, which undoes what was read after that. Begin with a snapshot of the branch as it is, a "
        "stream with a new checkpoint and the option startingSnapshot"
    )


async def _open_snapshot(repo: Repository, snapshot: str) -> Session:
    try:
        return await repo.readonly_session_async(snapshot_id=snapshot)
    except SnapshotNotFoundError as error:
        raise SnapshotExpiredError(
            f"snapshot {snapshot}, where the changes begin or end, does not exist or has expired: "
            f"{error.message}. Begin with an existing snapshot, a stream with a new checkpoint and the option "
            "startingSnapshot"
        ) from error


def slices(steps: Sequence[HistoryStep], tasks: int) -> Iterator[tuple[HistoryStep, ...]]:
    """Yield runs of neighbouring snapshots, of nearly equal length, for at most `tasks` tasks."""
    count = max(1, min(tasks, len(steps)))
    for task in range(count if steps else 0):
        yield tuple(steps[len(steps) * task // count : len(steps) * (task + 1) // count])
