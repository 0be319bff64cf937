"""Rule "commits": what was acknowledged is there, once; what was refused is not; nothing is there that nobody meant.

Nobody is refused for no reason either.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checker.decoding import id_text
from tests.simulation.checker.effects import effects_of
from tests.simulation.checker.logs import Logs
from tests.simulation.checker.meant import Replay
from tests.simulation.checker.model import ModelError
from tests.simulation.checker.noted import wrong_metadata
from tests.simulation.checker.violations import Violation
from tests.simulation.observations import Committed, Observations, Refused, Transaction

__all__ = ["wrong_outcomes"]

_RULE = "commits"


def wrong_outcomes(logs: Logs, notes: Observations) -> Iterator[Violation]:
    """Compare outcomes with the logs."""
    for transaction in notes.transactions.values():
        yield from _outcome(logs, transaction)
    for transaction in notes.transactions.values():
        yield from _groundless(logs, transaction)
    for label, commits in logs.labelled.items():
        if label not in notes.transactions:
            where = f"record {commits[0].number} of {commits[0].branch!r}"
            yield Violation(_RULE, f"nobody meant to commit {label!r}", where)


def _groundless(logs: Logs, transaction: Transaction) -> Iterator[Violation]:
    """Find refusals because of others where there were none, or none that wrote the same chunk."""
    outcome = transaction.outcome
    if transaction.transplants is not None:
        return  # which a module of its own knows
    if not isinstance(outcome, Refused) or outcome.error not in ("ConflictError", "RebaseFailedError"):
        return
    try:
        replay = Replay(logs, transaction)
        replay.to(len(transaction.operations))
    except ModelError as error:
        yield Violation(_RULE, f"it cannot have done what it noted: {error}", transaction.label)
        return
    branch = logs.branches[transaction.branch]
    end = len(branch.commits)
    starts = [logs.started(branch, era) for era in branch.eras[1:]]
    if any(at is None or at > transaction.began for at in starts):
        return  # the branch was reset since, or deleted and created anew
    if replay.start == end:
        yield Violation(_RULE, "it was refused because of others, and nobody has committed since", transaction.label)
        return
    kinds = {kind for kind, _ in outcome.conflicts}
    if kinds != {"ChunkDoubleUpdate"} or replay.guessed:
        return
    effects, theirs = effects_of(replay.view), logs.between(transaction.branch, replay.start, end).chunks
    both = any(theirs.get(node, set()) & cells.keys() for node, cells in effects.chunks.items())
    if not both and not effects.cuts:
        what = "it was refused because of chunks that both wrote, and nobody else wrote any of its chunks"
        yield Violation(_RULE, what, transaction.label)


def _outcome(logs: Logs, transaction: Transaction) -> Iterator[Violation]:
    label, outcome = transaction.label, transaction.outcome
    found = logs.labelled.get(label, [])
    ids = [id_text(commit.id) for commit in found]
    if len(found) > 1:
        yield Violation(_RULE, f"it was committed {len(found)} times: {', '.join(ids)}", label)
    if transaction.flushes:
        if ids:
            yield Violation(_RULE, f"it was to be on no branch, and is there as {ids[0]}", label)
        return
    if isinstance(outcome, Committed) and ids != [outcome.snapshot]:
        there = "nothing of it is there" if not ids else f"it is there as {ids[0]}"
        yield Violation(_RULE, f"it was acknowledged as {outcome.snapshot}, and {there}", label)
    if isinstance(outcome, Refused) and ids:
        yield Violation(_RULE, f"it was refused ({outcome.error}), and is there as {ids[0]}", label)
    for commit in found:
        if commit.branch != transaction.branch:
            what = f"it was meant for branch {transaction.branch!r}, and is on {commit.branch!r}"
            yield Violation(_RULE, what, label)
        if (commit.amends is not None) != transaction.amends:
            meant = (
                "take the place of the newest snapshot" if transaction.amends else "stand behind the newest snapshot"
            )
            yield Violation(_RULE, f"it was to {meant}, and does not", label)
        if (commit.isolation == 1) != (transaction.isolation == "serializable"):
            yield Violation(_RULE, f"its record says isolation {commit.isolation}", label)
        yield from (Violation(_RULE, what, label) for what in wrong_metadata(transaction, commit.after.metadata))
