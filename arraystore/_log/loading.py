"""Loading of snapshots, of a branch's tip or any record, from checkpoints and logs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import NamedTuple

from arraystore._format.ids import CheckpointId, SnapshotId
from arraystore._format.lifecycle import BranchLife, Deleted, Expiry, Origin, Reset
from arraystore._format.record import (
    LONG_SKIP,
    LONGEST_SKIP,
    Birth,
    Body,
    Commit,
    Record,
    Rewrite,
    encode_note,
    first_carried,
)
from arraystore._format.refs import Hint
from arraystore._format.snapshot import checkpoint_key, decode_checkpoint
from arraystore._format.transaction import TransactionLog
from arraystore._log.branch_log import BranchLog
from arraystore._log.spans import Span
from arraystore._log.state import (
    CheckpointRef,
    Resolved,
    SnapshotState,
    StateBuilder,
    empty_state,
    state_from_checkpoint,
)
from arraystore._runtime.values import dataclass
from arraystore.errors import FormatError, ObjectNotFoundError, SessionExpiredError
from arraystore.storage.protocol import Storage

INITIAL_MESSAGE = "Repository initialized"


@dataclass(frozen=True)
class Tip:
    """Snapshot of a record, and the bodies that its successor has to carry."""

    state: SnapshotState
    bodies: dict[int, bytes]
    """Encoded bodies by number, at least those since the last multiple of 64, this record's included."""

    @property
    def sequence(self) -> int:
        """Number of the record."""
        return self.state.sequence

    def followed_by(self, state: SnapshotState, body: bytes) -> Tip:
        """Return the tip after one more record."""
        return Tip(state, {**_kept(self.bodies, state.sequence), state.sequence: body})


@dataclass(frozen=True)
class Passed:
    """Entry between one record and a newer one."""

    sequence: int
    entry: Body
    transactions: tuple[Resolved, ...] = ()
    """Transactions of a commit, with their logs and notes."""


def _kept(bodies: dict[int, bytes], sequence: int) -> dict[int, bytes]:
    """Return the bodies that a record after `sequence` may have to carry."""
    start = sequence // LONGEST_SKIP * LONGEST_SKIP + 1
    if not bodies or next(iter(bodies)) >= start:
        return bodies
    return {number: body for number, body in bodies.items() if number >= start}


def window_start(sequence: int) -> int:
    """Return the oldest record whose body the next ones have to carry, except for multiples of 64."""
    return max(0, sequence) // LONG_SKIP * LONG_SKIP + 1


async def load_checkpoint(storage: Storage, identifier: CheckpointId) -> SnapshotState:
    """Read a checkpoint; raises `ObjectNotFoundError` if it is missing, `FormatError` if it is damaged."""
    key = checkpoint_key(identifier)
    return state_from_checkpoint(decode_checkpoint(key, await storage.get(key)), identifier)


async def load_tip(
    log: BranchLog, hint: Hint | None = None, *, at: int | None = None, snapshot: SnapshotId | None = None
) -> Tip:
    """Load the newest record of a branch, or the one `at` a number: two rounds of requests after the hint.

    Of a record with several transactions, the snapshot is the last one by default. Raises `RefNotFoundError` if there
    is no such branch, and `LogHoleError` if records are lost.
    """
    if at is not None:
        return await _load(log, _start_of(hint, at), at, snapshot)
    sequence = await log.tip(None if hint is None else hint.sequence)
    if hint is not None and hint.sequence > sequence:
        await _check_hinted(log, hint, sequence)
    tip = await load_newest(log, hint, sequence, snapshot)
    log.check_holes(tip.state.life.expired)
    return tip


async def load_newest(
    log: BranchLog, hint: Hint | None, sequence: int, snapshot: SnapshotId | None = None, expired: int = -1
) -> Tip:
    """Load what was the newest record, or a later one: a collection may have deleted what only that one was read from.

    A hole noted before, beyond the expired records, is reported as such.
    """
    while True:
        try:
            return await _load(log, _start_of(hint, sequence), sequence, snapshot)
        except ObjectNotFoundError:
            newest = await log.tip(sequence)
            if newest <= sequence:
                log.check_holes(expired)
                raise
            sequence = newest


def _start_of(hint: Hint | None, sequence: int) -> CheckpointRef | None:
    """Return the checkpoint that a hint names, if it is not of a later record."""
    return None if hint is None or hint.sequence > sequence else CheckpointRef(hint.sequence, hint.checkpoint)


async def _check_hinted(log: BranchLog, hint: Hint, newest: int) -> None:
    """Check that a hint to a record beyond the newest one is wrong: a checkpoint is of a record that did exist."""
    state = await _checkpoint_or_none(log, CheckpointRef(hint.sequence, hint.checkpoint))
    if state is not None and (state.branch, state.sequence) == (log.branch, hint.sequence):
        raise log.lost(newest + 1, f"there is a checkpoint of record {hint.sequence}, to which the hint leads")


async def _load(log: BranchLog, start: CheckpointRef | None, sequence: int, snapshot: SnapshotId | None) -> Tip:
    try:
        if start is not None:
            tip = await _load_after(log, start, sequence, snapshot)
            if tip is not None:
                return tip
        return (await _replay(log, None, await log.span(0, sequence), snapshot))[0]
    except ObjectNotFoundError as error:  # expired records may be missing: start from the base of the expiry
        return await _load_from_base(log, sequence, snapshot, error)


async def _load_after(log: BranchLog, start: CheckpointRef, sequence: int, snapshot: SnapshotId | None) -> Tip | None:
    """Load a record from a checkpoint at or before it; None if there is no such checkpoint."""
    first = min(window_start(sequence), start.sequence + 1)
    span, state = await asyncio.gather(_span_or_none(log, first, sequence), _checkpoint_or_none(log, start))
    if state is None or (state.branch, state.sequence) != (log.branch, start.sequence):
        return None  # the hint is wrong
    if start.sequence == sequence and snapshot not in (None, state.snapshot):
        return None  # the checkpoint is of a later snapshot of the same record
    if span is None:  # a survivor whose record was deleted is in its checkpoint
        return Tip(state, {}) if start.sequence == sequence else None
    _link_again(log, span.records)
    return (await _replay(log, state, span, snapshot))[0]


def _link_again(log: BranchLog, records: dict[int, Record]) -> None:
    """Check records once more, now that the chain has the digest of a checkpoint before them."""
    for number in sorted(records):
        log.chain.link(records[number])


def _anchor(log: BranchLog, state: SnapshotState) -> None:
    """Add the digest in the checkpoint of a state to the chain."""
    at = state.checkpoint
    if at is not None and at.digest is not None and (state.branch, state.sequence) == (log.branch, at.sequence):
        log.chain.anchor(at.sequence, at.digest)


async def _span_or_none(log: BranchLog, first: int, last: int) -> Span | None:
    try:
        return await log.span(first, last)
    except ObjectNotFoundError:
        return None


async def _load_from_base(
    log: BranchLog, sequence: int, snapshot: SnapshotId | None, error: ObjectNotFoundError
) -> Tip:
    """Load a record from where a log can be read from: its newest reset or deletion, or the base of an expiry."""
    span = await _back_to_base(log, sequence)
    number, entry = next((begin for begin in span.begins if begin[0] <= sequence), (0, None))
    if isinstance(entry, Reset):
        before = empty_state(log.branch, number, entry.snapshot, entry.parent, entry.time, b"")
        state = await _reset(log, number, entry, before)
    elif isinstance(entry, Deleted):  # objects of the branch may be deleted, and nothing reads them any more
        nothing = empty_state(log.branch, number, entry.snapshot, entry.parent, entry.time, b"")
        state = replace(nothing, life=entry.before).lived(number, entry)
    elif isinstance(entry, Expiry):
        state = await load_checkpoint(log.storage, entry.base)
        if (state.branch, state.sequence) != (log.branch, number):
            raise FormatError(checkpoint_key(entry.base), f"is not that of record {number} of branch {log.branch!r}")
        _anchor(log, state)
        _link_again(log, span.records)
    else:
        raise error
    bodies = {n: span.bodies[n] for n in range(number + 1, sequence + 1)}
    return (await _replay(log, state, Span(bodies, span.records), snapshot))[0]


@dataclass(frozen=True)
class _End:
    """Newest part of a log."""

    bodies: dict[int, bytes]
    records: dict[int, Record]
    begins: list[tuple[int, Reset | Deleted | Expiry]]
    """Records from which the log can be read without those before, newest first, with the entries that say so."""


async def _back_to_base(log: BranchLog, sequence: int) -> _End:
    """Read backwards from the newest record to one from which the log can be read, at least down to `sequence`."""
    end = _End({}, {}, [])
    at, least = await log.tip(sequence), 0
    while at >= least:
        record = end.records[at] = await log.read(at)
        for number, body in sorted(record.bodies().items(), reverse=True):
            if number in end.bodies:
                continue
            end.bodies[number] = body
            entry = log.decode(number, body)
            if isinstance(entry, Reset | Deleted | Expiry):
                end.begins.append((entry.upto if isinstance(entry, Expiry) else number, entry))
                end.begins.sort(key=lambda each: each[0], reverse=True)
                fitting = [n for n, _ in end.begins if n <= sequence]
                least = max(fitting, default=-1) + 1
        at = first_carried(at) - 1
    return end


async def _checkpoint_or_none(log: BranchLog, at: CheckpointRef) -> SnapshotState | None:
    try:
        state = await load_checkpoint(log.storage, at.id)
        if state.sequence == at.sequence:
            _anchor(log, state)
    except (ObjectNotFoundError, FormatError):
        return None
    return state


async def passed_between(log: BranchLog, after: int, until: int) -> list[Passed]:
    """Return the entries of the records after one, up to another; raises `SessionExpiredError` if some have expired."""
    try:
        span = await log.span(after + 1, until)
        entries = [(number, log.decode(number, body)) for number, body in span.bodies.items()]
        commits = [(number, entry) for number, entry in entries if isinstance(entry, Commit)]
        logs = await asyncio.gather(*(log.resolve(number, entry, span.records) for number, entry in commits))
    except ObjectNotFoundError as error:
        raise SessionExpiredError(
            f"branch {log.branch!r} has moved on since record {after}, and what was committed in between has expired "
            f"({error}), so nobody can tell whether it collides with the changes of this session. Nothing was "
            "committed. Open a new session and write the changes again."
        ) from error
    resolved = {number: tuple(items) for (number, _), items in zip(commits, logs, strict=True)}
    return [Passed(number, entry, resolved.get(number, ())) for number, entry in entries]


@dataclass(frozen=True, eq=False)
class Step:
    """One record, and the snapshots before and after it."""

    passed: Passed
    before: SnapshotState
    after: SnapshotState

    def snapshot(self, identifier: SnapshotId) -> SnapshotState | None:
        """Return a snapshot that the record creates; None if it does not create it."""
        made = _up_to(list(self.passed.transactions), identifier)
        if not made or made[-1][0].id != identifier:
            return None
        return (
            self.after
            if len(made) == len(self.passed.transactions)
            else self.before.committed(self.passed.sequence, made)
        )


class Steps(NamedTuple):
    """Way from one record to a newer one, with the snapshots around each record between."""

    tip: Tip
    steps: list[Step]


class Advance(NamedTuple):
    """Way from one record to a newer one."""

    tip: Tip
    passed: list[Passed]


async def steps_to(log: BranchLog, tip: Tip, sequence: int) -> Steps:
    """Follow a log from one record to a newer one, with the snapshots around each."""
    steps: list[Step] = []
    span = await log.span(tip.sequence + 1, sequence)
    for number, body in span.bodies.items():
        entry = log.decode(number, body)
        if isinstance(entry, Birth):
            raise FormatError(log.key(number), "a birth within a log")
        if isinstance(entry, Commit):
            passed = Passed(number, entry, tuple(await log.resolve(number, entry, span.records)))
        else:
            passed = Passed(number, entry)
        if isinstance(entry, Reset):
            state = await _reset(log, number, entry, tip.state)
        else:
            state = _after(log, tip.state, body, passed)
        steps.append(Step(passed, tip.state, state))
        tip = tip.followed_by(state, body)
    return Steps(tip, steps)


def _after(log: BranchLog, state: SnapshotState, body: bytes, passed: Passed) -> SnapshotState:
    """Return the state after one more record; computed once for all clients that share a memo."""
    number, entry, memo = passed.sequence, passed.entry, log.memo
    cached = None if memo is None else memo.states.get(number)
    if cached is not None and cached[:2] == (body, state.snapshot):
        successor: SnapshotState = cached[2]
        detached = state.detached + _detached(passed)
        return replace(successor, pages=state.pages, checkpoint=state.checkpoint, detached=detached)
    if isinstance(entry, Rewrite):
        made = state.rewritten(number, entry.replacements)
    elif isinstance(entry, Commit):
        made = state.committed(number, passed.transactions)
    elif isinstance(entry, Birth | Reset):
        raise FormatError(log.key(number), "a snapshot of another log")
    else:
        made = state.lived(number, entry)
    if memo is not None:
        memo.states[number] = body, state.snapshot, made
    return made


def _detached(passed: Passed) -> int:
    return sum(not isinstance(item.log, TransactionLog) for item, _, _ in passed.transactions)


async def advance(log: BranchLog, tip: Tip, sequence: int, snapshot: SnapshotId | None = None) -> Advance:
    """Follow a log from one record to a newer one, or to one of its snapshots."""
    if sequence <= tip.sequence:
        return Advance(tip, [])
    span = await log.span(tip.sequence + 1, sequence)
    moved, passed = await _replay(log, tip.state, span, snapshot)
    return Advance(replace(moved, bodies={**_kept(tip.bodies, sequence), **moved.bodies}), passed)


async def refresh(log: BranchLog, tip: Tip) -> Tip:
    """Follow a log to its newest record; one request where there is none newer."""
    return await follow(log, tip, await log.newer(tip.sequence))


async def follow(log: BranchLog, tip: Tip, sequence: int) -> Tip:
    """Follow a log from one record to what is the newest one, or a later one, even if records between have expired."""
    try:
        moved = (await advance(log, tip, sequence)).tip
    except ObjectNotFoundError:
        moved = await load_newest(log, None, sequence, expired=tip.state.life.expired)
    log.check_holes(moved.state.life.expired)
    return moved


async def _replay(
    log: BranchLog, state: SnapshotState | None, span: Span, snapshot: SnapshotId | None = None
) -> tuple[Tip, list[Passed]]:
    """Apply the records of a span after a state; of the last one, the transactions up to a snapshot."""
    after = -1 if state is None else state.sequence
    entries = [(number, log.decode(number, body)) for number, body in span.bodies.items() if number > after]
    commits = {number: entry for number, entry in entries if isinstance(entry, Commit)}
    resolved = dict(
        zip(
            commits,
            await asyncio.gather(*(log.resolve(number, entry, span.records) for number, entry in commits.items())),
            strict=True,
        )
    )
    builder = None if state is None else StateBuilder(state)
    last = max(span.bodies, default=-1)
    for number, entry in entries:
        if isinstance(entry, Birth):
            builder = StateBuilder(await _born(log, number, entry))
        elif builder is None:
            raise FormatError(log.key(number), "the log does not start with the birth of its branch")
        elif isinstance(entry, Reset):
            builder = StateBuilder(await _reset(log, number, entry, builder.build()))
        elif log.memo is not None and (number < last or snapshot is None):
            passed_here = Passed(number, entry, tuple(resolved.get(number, ())))
            builder = StateBuilder(_after(log, builder.build(), span.bodies[number], passed_here))
        elif isinstance(entry, Commit):
            builder.commit(number, resolved[number] if number < last else _up_to(resolved[number], snapshot))
        elif isinstance(entry, Rewrite):
            builder.rewrite(number, entry.replacements)
        else:
            builder.live(number, entry)
    if builder is None:
        raise FormatError(log.key(0), "the log is empty")
    passed = [Passed(number, entry, tuple(resolved.get(number, ()))) for number, entry in entries]
    return Tip(builder.build(), span.bodies), passed


def _up_to(transactions: list[Resolved], snapshot: SnapshotId | None) -> list[Resolved]:
    ids = [item.id for item, _, _ in transactions]
    return transactions[: ids.index(snapshot) + 1] if snapshot is not None and snapshot in ids else transactions


async def _born(log: BranchLog, sequence: int, birth: Birth) -> SnapshotState:
    life = BranchLife().after_start(sequence, birth.origin, birth.fence, birth.cause)
    if birth.origin is None:
        note = encode_note(INITIAL_MESSAGE, {})
        state = empty_state(log.branch, sequence, birth.snapshot, birth.parent, birth.time, note)
        return replace(state, life=life)
    state = await _state_at(log, sequence, birth.origin, birth.snapshot)
    return replace(state, pages=(), life=life)


async def _reset(log: BranchLog, sequence: int, reset: Reset, before: SnapshotState) -> SnapshotState:
    """Return the state after a reset: the data of another snapshot, in the same log."""
    state = await _state_at(log, sequence, reset.origin, reset.snapshot)
    life = reset.before.after_start(sequence, reset.origin, reset.fence, reset.cause)
    return replace(state, pages=before.pages, checkpoint=before.checkpoint, detached=before.detached, life=life)


async def _state_at(log: BranchLog, sequence: int, origin: Origin, snapshot: SnapshotId) -> SnapshotState:
    """Return another log's snapshot as the state of a record of this one."""
    state = await load_checkpoint(log.storage, origin.checkpoint)
    if state.snapshot != snapshot:
        raise FormatError(log.key(sequence), "the checkpoint that the branch starts from is another snapshot's")
    return replace(state, branch=log.branch, sequence=sequence, checkpoint=None)
