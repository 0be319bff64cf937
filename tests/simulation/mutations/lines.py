"""Wrong ways to commit for others: who may be taken, who is decided, what a verdict means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from arraystore._commit import rebase_request
from arraystore._commit.intent_queue import IntentQueue
from arraystore._commit.request import Committed
from arraystore._log.loading import Tip
from tests.simulation.actors.workload import Workload
from tests.simulation.mutations.patching import Mutation

__all__ = ["MUTATIONS"]

_WHERE = ("busy", "mixed")


def _no_own(*_: Any) -> None:
    """IntentListing for no record of one's own."""
    return


_decide, _is_over = IntentQueue._decide, IntentQueue._is_over


def _appends_only(workload: Workload) -> Workload:
    """Have transactions that do not collide with themselves."""
    return replace(workload, writers=10, shared=1, operations={"append": 1.0}, turns=(3, 5), think=0.1)


def _gives_up_early(self: IntentQueue, mine: Any) -> bool:
    mine.last = min(mine.last, mine.sequence + 1)
    return _is_over(self, mine)


def _own_only(self: IntentQueue, entry: Any, passage: Any) -> None:
    if entry.request is not None:
        _decide(self, entry, passage)


def _refused_is_committed(self: IntentQueue, entry: Any, passage: Any) -> None:
    if entry.request is None or entry.prepared.id not in passage.refused:
        _decide(self, entry, passage)
        return
    entry.decided = True
    if not entry.request.done:
        entry.request.answer.set_result(Committed(Tip(passage.after, self._at.bodies), 1, 1))


def _unchecked(self: IntentQueue, known: Any) -> None:
    for number in range(known.checked + 1, self._at.sequence + 1):
        for entry in known.entries or ():
            if not entry.decided:
                self._decide(entry, self._passages[number])
    known.checked = self._at.sequence


def _committed_is_refused(self: IntentQueue, entry: Any, passage: Any) -> None:
    if entry.request is not None and entry.prepared.id in passage.ids:
        self._refuse(entry)
        return
    _decide(self, entry, passage)


MUTATIONS = (
    Mutation(
        "gives up too early",
        "a writer commits by itself while others may still take its intent, and looks for no record with it",
        lambda: [(IntentQueue, "_is_over", _gives_up_early), (rebase_request, "find_own", _no_own)],
        _WHERE,
        runs=(("mixed", 2), ("mixed", 12)),
        breaks="commits",
    ),
    Mutation(
        "decided intents are taken again",
        "a leader does not look whether a record has decided about an intent",
        lambda: [(IntentQueue, "_decide", _own_only)],
        ("crowd",),
        tuned=_appends_only,
        explored=("line, appends",),
        runs=(("crowd", 12), ("crowd", 27)),
        breaks="history",
    ),
    Mutation(
        "refused is committed",
        "a writer takes a refusal for a commit",
        lambda: [(IntentQueue, "_decide", _refused_is_committed)],
        _WHERE,
        runs=(("busy", 0), ("busy", 1)),
        breaks="commits",
    ),
    Mutation(
        "committed is refused",
        "a writer takes a commit of its intent for a refusal, tries again, and looks for no record with it",
        lambda: [(IntentQueue, "_decide", _committed_is_refused), (rebase_request, "find_own", _no_own)],
        _WHERE,
        explored=("line",),
        runs=(("busy", 0), ("busy", 1)),
        breaks="history",
    ),
    Mutation(
        "intents are not checked",
        "a leader does not check intents against the records since they were made",
        lambda: [(IntentQueue, "_check", _unchecked)],
        _WHERE,
        explored=("line, same chunk",),
        runs=(("busy", 0), ("busy", 1)),
        breaks="isolation",
    ),
)
"""Wrong ways to commit for others."""
