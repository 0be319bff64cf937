"""Rebasing the transactions of this process onto a newer record, as the queue of commits and `Session.rebase` do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from arraystore._commit.fencing import admission_error
from arraystore._commit.rebase_step import Conflicts, Invalid, Passage, step
from arraystore._commit.request import Committed, Obstacle, Request
from arraystore._format.ids import SnapshotId, id_to_text
from arraystore._format.lifecycle import Reset
from arraystore._format.record import Birth, Commit
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Passed, Tip, advance, passed_between
from arraystore._log.state import SnapshotState, follows
from arraystore._runtime import lazy_module
from arraystore.errors import SessionExpiredError, SessionStateError

if TYPE_CHECKING:
    from arraystore._commit import intent_tracking, rewrite
else:
    intent_tracking = lazy_module("arraystore._commit.intent_tracking")
    rewrite = lazy_module("arraystore._commit.rewrite")


class Passages:
    """Records since each base, up to a tip; read once for all who are based on the same snapshot."""

    def __init__(self, log: BranchLog, tip: Tip) -> None:
        self.log = log
        self.tip = tip
        self._known: dict[tuple[int, SnapshotId], Passage] = {}

    async def since(self, base: Tip) -> Passage:
        """Return what was committed since a base; raises `SessionExpiredError` if some of it has expired.

        Not by the number alone: a base that is no record of the branch would spoil the check of those that are.
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
    if not base.state.recorded:  # first: who is based on the record itself would get its passage
        return Invalid(_unrecorded_error(base.state))
    try:
        passage = await passages.since(base)
    except SessionExpiredError as error:
        return Invalid(_lost_track(error) if request.uncertain or request.outstanding else error)
    own = find_own(passage.records, request.prepared.id)
    if own is not None:
        mine = (await advance(log, base, own.sequence, request.prepared.id)).tip
        return Committed(mine, max(request.attempts, 1), len(own.transactions))
    strange = foreign_base_error(base.state, tip.state, passage.records)
    if strange is not None:
        return Invalid(strange)
    request.uncertain = False
    if request.outstanding is not None:
        proposed = await intent_tracking.still_proposed(log, request.outstanding, tip, passage.records)
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
        prepared = await rewrite.rewrite_nodes(request.prepared, verdict.nodes, log.storage, log.environment)
        request.transaction = replace(request.transaction, prepared=prepared)
        error = admission_error(request.prepared, tip.state)  # a slow clock may have made ids that are too small
        if error is not None:
            return Invalid(error)
    request.base = tip
    request.note_rebases()
    return None


async def rebase_uncommitted(log: BranchLog, request: Request, tip: Tip) -> Obstacle | None:
    """Rebase a transaction onto a record without committing it; returns the conflicts if there are any.

    Raises an `ArrayStoreError` if it can never be committed behind that record.
    """
    answer = await rebase_request(request, Passages(log, tip))
    if isinstance(answer, Invalid):
        raise answer.error
    assert not isinstance(answer, Committed)  # what may have been committed takes no changes, and is not rebased
    return answer


def check_recorded(base: SnapshotState) -> None:
    """Check that a record of its branch made a snapshot, so that commits on top of it can be read.

    Raises `SessionStateError` for one with uncommitted changes, or on no branch.
    """
    if not base.recorded:
        raise _unrecorded_error(base)


def _unrecorded_error(base: SnapshotState) -> SessionStateError:
    return SessionStateError(
        f"nothing can be committed on snapshot {id_to_text(base.snapshot)} with changes that are in no record of "
        f"branch {base.branch!r}. Nothing was committed. Merge forks into their session, and commit that; make a "
        "branch of a snapshot that is on none."
    )


def foreign_base_error(base: SnapshotState, tip: SnapshotState, passed: Iterable[Passed]) -> SessionStateError | None:
    """Return the error of a base that the log, with the records passed since, does not hold at its place, if so."""
    if base.branch == tip.branch and _leads_on(base, tip, passed):
        return None
    return SessionStateError(
        f"snapshot {id_to_text(base.snapshot)} is not what record {base.sequence} of branch {tip.branch!r} holds. "
        "Nothing was committed. Open a new session and write the changes again."
    )


def _leads_on(base: SnapshotState, tip: SnapshotState, passed: Iterable[Passed]) -> bool:
    """Tell whether a snapshot is the tip's, or the one that the first commit after it follows."""
    for each in passed:
        if isinstance(each.entry, Birth | Reset):
            return True  # which has an error of its own
        if isinstance(each.entry, Commit):
            return follows(each.entry.transactions[0], base.snapshot, base.parent)
    return base.sequence <= tip.sequence and base.snapshot == tip.snapshot


def find_own(records: Sequence[Passed], identifier: SnapshotId) -> Passed | None:
    """Return the record that commits a transaction; None if none does."""
    return next((each for each in records if any(item.id == identifier for item, _, _ in each.transactions)), None)


def _lost_track(error: SessionExpiredError) -> SessionExpiredError:
    """Return what there is to say where an attempt was made whose record would be among those that have expired."""
    return SessionExpiredError(
        f"what was committed since this session began has expired ({error.__cause__}), and with it any trace of "
        "whether its changes arrived: they may have been committed before that. Look at the newest snapshot, then open "
        "a new session and write again what is missing."
    )
