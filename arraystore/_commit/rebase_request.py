"""Rebasing the transactions of this process onto a newer record, as the queue of commits and `Session.rebase` do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from arraystore._commit.admission import check_recorded, objection, stranger
from arraystore._commit.intent_tracking import still_proposed
from arraystore._commit.prepare import rewrite_transaction
from arraystore._commit.rebase_step import Conflicts, Invalid, Passage, step
from arraystore._commit.request import Committed, Obstacle, Request
from arraystore._format.transaction import NodeChange
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Passed, Tip, advance, passed_between
from arraystore.errors import SessionExpiredError

__all__ = ["Passages", "find_own", "rebase_request", "rebase_uncommitted"]


class Passages:
    """The records since each base, up to a tip; read once for all who are based on the same snapshot.

    Parameters
    ----------
    log
        The branch.
    tip
        The record.
    """

    def __init__(self, log: BranchLog, tip: Tip) -> None:
        self.log = log
        self.tip = tip
        self._known: dict[tuple[int, bytes], Passage] = {}

    async def since(self, base: Tip) -> Passage:
        """Return what was committed since a base.

        Not by the number alone: a base that is no record of the branch would spoil the check of those that are.

        Raises
        ------
        SessionExpiredError
            If some of it has expired.
        """
        at = base.sequence, base.state.snapshot
        if at not in self._known:
            newer = base.sequence < self.tip.sequence
            records = await passed_between(self.log, base.sequence, self.tip.sequence) if newer else []
            self._known[at] = Passage(base.state, records, self.tip.state)
        return self._known[at]


async def rebase_request(request: Request, passages: Passages) -> Committed | Obstacle | Invalid | None:
    """Rebase a request onto a tip; returns its answer where it has one now, None where it can be attempted.

    A record of its own that is found first, whoever wrote it, commits it.
    """
    log, tip, base = passages.log, passages.tip, request.base
    try:
        passage = await passages.since(base)
    except SessionExpiredError as error:
        return Invalid(_lost_track(error) if request.uncertain or request.outstanding else error)
    own = find_own(passage.records, request.prepared.id)
    if own is not None:
        mine, _ = await advance(log, base, own.sequence, request.prepared.id)
        return Committed(mine, max(request.attempts, 1), len(own.transactions))
    strange = stranger(base.state, tip.state, passage.records)
    if strange is not None:
        return Invalid(strange)
    request.uncertain = False
    if request.outstanding is not None:
        proposed = await still_proposed(log, request.outstanding, tip)
        if proposed is not None:  # somebody may commit it yet, so there is no "no": it goes on as it was proposed
            request.transaction, request.base = proposed, tip
            return None
        request.outstanding = None
    return await _step(request, passage, passages)


async def _step(request: Request, passage: Passage, passages: Passages) -> Obstacle | Invalid | None:
    log, tip = passages.log, passages.tip
    verdict = step(request.transaction, passage, may_rebase=request.may_rebase)
    if isinstance(verdict, Invalid):
        return verdict
    request.rebased += passage.commits
    if isinstance(verdict, Conflicts):
        return Obstacle(verdict.conflicts, passage.footprint, passage.before, tip, request.attempts)
    if verdict.nodes is not None:
        await rewrite_request(log, request, verdict.nodes)
        error = objection(request.prepared, tip.state)  # ids of what was written, by a slow clock, may be too small
        if error is not None:
            return Invalid(error)
    request.base = tip
    return None


async def rewrite_request(log: BranchLog, request: Request, nodes: Sequence[NodeChange]) -> None:
    """Write the transaction of a request with other changes of nodes."""
    old = request.prepared
    new = await rewrite_transaction(old, nodes, old.log.chunks, (), log.storage, log.environment)
    request.transaction = replace(request.transaction, prepared=new)


async def rebase_uncommitted(log: BranchLog, request: Request, tip: Tip) -> Obstacle | None:
    """Rebase a transaction onto a record without committing it; returns the conflicts if there are any.

    Raises
    ------
    ArrayStoreError
        If it can never be committed behind that record.
    """
    check_recorded(request.base.state)
    found = await rebase_request(request, Passages(log, tip))
    if isinstance(found, Invalid):
        raise found.error
    assert not isinstance(found, Committed)  # what may have been committed takes no changes, and is not rebased
    return found


def find_own(records: Sequence[Passed], identifier: bytes) -> Passed | None:
    """Return the record that commits a transaction; None if none does."""
    return next((each for each in records if any(item.id == identifier for item, _, _ in each.transactions)), None)


def _lost_track(error: SessionExpiredError) -> SessionExpiredError:
    """Return what there is to say where an attempt was made whose record would be among those that have expired."""
    return SessionExpiredError(
        f"what was committed since this session began has expired ({error.__cause__}), and with it any trace of "
        "whether its changes arrived: they may have been committed before that. Look at the newest snapshot, then open "
        "a new session and write again what is missing."
    )
