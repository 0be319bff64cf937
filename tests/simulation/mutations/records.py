"""Wrong ways to put records: what the answers of the storage mean, which number is next, when somebody is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from arraystore._chunks.pack_writer import PackWriter
from arraystore._commit import rebase_request
from arraystore._commit.batch import Batch
from arraystore._commit.prepare import upload
from arraystore._commit.prepared import Prepared
from arraystore._commit.rebase_request import rebase_request as rebase
from arraystore._environment import Environment
from arraystore._format.digest import chained
from arraystore._format.envelope import pack_body, unpack_body
from arraystore._format.ids import SnapshotId
from arraystore._format.record import Body, Record, Transaction, encode_body, encode_record
from arraystore._format.snapshot import Checkpoint, PageRef
from arraystore._log.branch_entries import append_entry
from arraystore._log.branch_log import BranchLog
from arraystore._log.conditional_put import put_surely
from arraystore._log.loading import Tip
from arraystore._log.spans import previous_bodies
from arraystore._log.state import SnapshotState
from arraystore.errors import ObjectNotFoundError, StorageError
from arraystore.storage.protocol import Storage
from tests.simulation.mutations.patching import Change, Mutation, all_outside, everywhere

__all__ = ["MUTATIONS"]

_TRIES = 6


def _no_own(*_: Any) -> None:
    """Look for no record of one's own."""
    return


def _in_background(work: Any) -> None:
    """Let something go on that nobody waits for, nor hears of."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


_transaction = Prepared.transaction


def _behind(self: Prepared, parent: SnapshotId, branch: str, sequence: int, first: int) -> Transaction:
    if self.amends is None:
        return _transaction(self, parent, branch, sequence, first)
    return replace(_transaction(self, parent, branch, sequence, first), amends=None, parent=self.amends)


# -- what an answer means -----------------------------------------------------------------------------------------


async def _lost_is_lost(storage: Storage, environment: Environment, key: str, data: bytes, *_: Any) -> bool:
    try:
        return await storage.put_new(key, data)
    except StorageError:
        return False


async def _refusal_is_final(storage: Storage, environment: Environment, key: str, data: bytes, *_: Any) -> bool:
    for attempt in range(_TRIES):
        try:
            if attempt and await _is_there(storage, key):
                return False
            return await storage.put_new(key, data)
        except StorageError:
            if attempt == _TRIES - 1:
                raise
            await environment.sleep(0.05)
    raise AssertionError


async def _is_there(storage: Storage, key: str) -> bool:
    try:
        await storage.head(key)
    except ObjectNotFoundError:
        return False
    return True


async def _refusal_is_success(storage: Storage, environment: Environment, key: str, data: bytes, *_: Any) -> bool:
    await put_surely(storage, environment, key, data)
    return True


async def _plain(storage: Storage, environment: Environment, key: str, data: bytes, *_: Any) -> bool:
    await storage.put(key, data)
    return True


async def _with_another_id(request: Any, passages: Any) -> Any:
    base = request.base
    found = await rebase(request, passages)
    if request.base is not base:
        prepared = replace(request.prepared, id=passages.log.environment.new_id())
        request.transaction = replace(request.transaction, prepared=prepared)
    return found


# -- which number is next, what a record holds -------------------------------------------------------------------------


async def _skipping(
    log: BranchLog, tip: Tip, body: Body, attachments: tuple[bytes, ...] = (), *, settle: bool = True
) -> bytes | None:
    if tip.sequence % 3:
        return await append_entry(log, tip, body, attachments, settle=settle)
    sequence = tip.sequence + 2
    encoded = encode_body(sequence, body, log.branch)
    missing = encode_body(tip.sequence + 1, body, log.branch)
    previous = previous_bodies(sequence, {**tip.bodies, tip.sequence + 1: missing})
    before = chained(await log._digest(tip.sequence), missing)
    record = Record(log.branch, sequence, encoded, attachments, previous or (), log.repository, before)
    won = await log.append(record, settle=settle)
    return encoded if won else None


async def _over_the_tip(
    log: BranchLog, tip: Tip, body: Body, attachments: tuple[bytes, ...] = (), *, settle: bool = True
) -> bytes | None:
    if tip.sequence % 4 != 3:
        return await append_entry(log, tip, body, attachments, settle=settle)
    encoded = encode_body(tip.sequence, body, log.branch)
    previous = previous_bodies(tip.sequence, tip.bodies) or ()
    record = Record(log.branch, tip.sequence, encoded, attachments, previous)
    await log.storage.put(log.key(tip.sequence), encode_record(record))
    return encoded


def _wrongly_carried(sequence: int, bodies: dict[int, bytes]) -> tuple[bytes, ...] | None:
    found = previous_bodies(sequence, bodies)
    if found is None or len(found) < 2:
        return found
    _, *older = unpack_body("a body", found[-2])
    number, *_ = unpack_body("a body", found[-1])
    return (*found[:-1], pack_body((number, *older)))


def _stale(state: SnapshotState, pages: tuple[PageRef, ...]) -> Checkpoint:
    found = _to_checkpoint(state, pages)
    return replace(found, nodes=tuple(replace(n, layers=n.layers[:-1]) if n.layers[1:] else n for n in found.nodes))


_to_checkpoint = SnapshotState.to_checkpoint


async def _trusting(log: BranchLog, known: int | None) -> int:
    return await _tip(log, None) if known is None else known


_tip = BranchLog.tip


# -- when somebody is told ---------------------------------------------------------------------------------------------


async def _told_early(
    log: BranchLog, tip: Tip, body: Body, attachments: tuple[bytes, ...] = (), *, settle: bool = True
) -> bytes | None:
    _in_background(append_entry(log, tip, body, attachments, settle=settle))
    return encode_body(tip.sequence + 1, body, log.branch)


async def _not_waited_for(writer: PackWriter) -> None:
    _in_background(_flush(writer))


_flush = PackWriter.flush


async def _later(storage: Storage, objects: list[tuple[str, bytes]]) -> None:
    if objects:
        _in_background(upload(storage, objects))


def _without_a_look() -> Iterator[Change]:
    yield rebase_request, "find_own", _no_own
    yield Batch, "found_in", _no_own


def _lost_acknowledgement() -> Iterator[Change]:
    yield from everywhere(put_surely, _lost_is_lost)
    yield from _without_a_look()


def _attempted_anew() -> Iterator[Change]:
    yield from _lost_acknowledgement()
    yield from everywhere(rebase, _with_another_id)


def _refused_by_itself() -> Iterator[Change]:
    yield from everywhere(put_surely, _refusal_is_final)
    yield from _without_a_look()


MUTATIONS = (
    Mutation(
        "lost acknowledgement is failure",
        "a record whose PUT got no answer counts as not written; nobody looks",
        _lost_acknowledgement,
        ("faults", "mixed"),
        explored=("disjoint; lost answer",),
        runs=(("faults", 4),),
        breaks="commits",
    ),
    Mutation(
        "attempt anew",
        "after a lost acknowledgement the transaction is tried again under another id",
        _attempted_anew,
        ("faults", "mixed"),
        explored=("disjoint; lost answer",),
        runs=(("faults", 1), ("faults", 4)),
        breaks="commits",
    ),
    Mutation(
        "412 is failure",
        "a refusal of a repeated PUT means that somebody else's record is there; nobody compares",
        _refused_by_itself,
        ("faults", "mixed"),
        explored=("same chunk; lost answer",),
        runs=(("mixed", 2), ("mixed", 9)),
        breaks="commits",
    ),
    Mutation(
        "412 is success",
        "a refused PUT counts as done",
        lambda: everywhere(put_surely, _refusal_is_success),
        ("busy", "mixed"),
        explored=("disjoint",),
        runs=(("busy", 0), ("busy", 1)),
        breaks="history",
    ),
    Mutation(
        "plain PUT",
        "records overwrite what is there",
        lambda: everywhere(put_surely, _plain),
        ("busy", "mixed"),
        explored=("disjoint",),
        runs=(("busy", 0), ("busy", 1)),
        breaks="objects",
    ),
    Mutation(
        "skip a number",
        "every third record leaves a gap",
        lambda: everywhere(append_entry, _skipping),
        ("calm",),
        explored=("disjoint",),
        runs=(("calm", 0), ("calm", 1)),
        breaks="history",
    ),
    Mutation(
        "reuse a number",
        "every fourth record is written over the one before it",
        lambda: everywhere(append_entry, _over_the_tip),
        ("calm",),
        explored=("three",),
        runs=(("calm", 0), ("calm", 1)),
        breaks="history",
    ),
    Mutation(
        "wrong carried bodies",
        "a record carries the entry before the last twice",
        lambda: everywhere(previous_bodies, _wrongly_carried),
        ("calm",),
        explored=("disjoint",),
        runs=(("calm", 0), ("calm", 1)),
        breaks="history",
    ),
    Mutation(
        "stale checkpoint",
        "a checkpoint leaves out the newest layer of each array",
        lambda: [(SnapshotState, "to_checkpoint", _stale)],
        ("calm",),
        settings=all_outside,
        explored=("disjoint",),
        runs=(("calm", 0), ("calm", 1)),
        breaks="reads",
    ),
    Mutation(
        "hint is the tip",
        "what a hint names, or was the tip a while ago, counts as the newest record",
        lambda: [(BranchLog, "tip", _trusting)],
        ("calm", "mixed"),
        runs=(("calm", 0), ("calm", 1)),
        breaks="real time",
    ),
    Mutation(
        "an amendment is a commit",
        "what is to take the place of the newest snapshot stands behind it",
        lambda: [(Prepared, "transaction", _behind)],
        ("amends",),
        runs=(("amends", 0), ("amends", 1)),
        breaks="commits",
    ),
    Mutation(
        "acknowledged too early",
        "a commit returns before its record is written",
        lambda: everywhere(append_entry, _told_early),
        ("busy", "crashes"),
        explored=("disjoint",),
        runs=(("busy", 0), ("busy", 1)),
        breaks="commits",
    ),
    Mutation(
        "packs too late",
        "a record is written while the chunks that it refers to are on their way",
        lambda: [(PackWriter, "flush", _not_waited_for)],
        ("crashes", "faults"),
        runs=(("faults", 22),),
        breaks="history",
    ),
    Mutation(
        "manifests too late",
        "a record is written while manifests and change logs that it refers to are on their way",
        lambda: everywhere(upload, _later),
        ("crashes", "faults", "mixed"),
        settings=all_outside,
        explored=("disjoint",),
        runs=(("faults", 0), ("faults", 12)),
        breaks="retention",
    ),
)
"""Wrong ways to put records."""
