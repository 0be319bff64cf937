"""Wrong ways to commit for others: who may be taken, who is decided, what a verdict means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from arraystore.commit import group
from arraystore.commit.branch import Tip
from arraystore.commit.line import Line
from arraystore.commit.request import Committed
from arraystore.simulation.actors.workload import Workload
from arraystore.simulation.mutations.patching import Mutation

__all__ = ["MUTATIONS"]

_WHERE = ("busy", "mixed")


def _no_own(*_: Any) -> None:
    """Look for no record of one's own."""
    return


_decide, _is_over = Line._decide, Line._is_over


def _appends_only(workload: Workload) -> Workload:
    """Have transactions that do not collide with themselves."""
    return replace(workload, writers=10, shared=1, operations={"append": 1.0}, turns=(3, 5), think=0.1)


def _gives_up_early(self: Line, mine: Any) -> bool:
    mine.last = min(mine.last, mine.sequence + 1)
    return _is_over(self, mine)


def _own_only(self: Line, entry: Any, passage: Any) -> None:
    if entry.request is not None:
        _decide(self, entry, passage)


def _refused_is_committed(self: Line, entry: Any, passage: Any) -> None:
    if entry.request is None or entry.prepared.id not in passage.refused:
        _decide(self, entry, passage)
        return
    entry.decided = True
    if not entry.request.done:
        entry.request.answer.set_result(Committed(Tip(passage.step.after, self._at.bodies), 1, 1))


def _unchecked(self: Line, known: Any) -> None:
    for number in range(known.checked + 1, self._at.sequence + 1):
        for entry in known.entries or ():
            if not entry.decided:
                self._decide(entry, self._passages[number])
    known.checked = self._at.sequence


def _committed_is_refused(self: Line, entry: Any, passage: Any) -> None:
    if entry.request is not None and entry.prepared.id in passage.ids:
        self._refuse(entry)
        return
    _decide(self, entry, passage)


MUTATIONS = (
    Mutation(
        "gives up too early",
        "a writer commits by itself while others may still take its intent, and looks for no record with it",
        lambda: [(Line, "_is_over", _gives_up_early), (group, "_find", _no_own)],
        _WHERE,
    ),
    Mutation(
        "decided intents are taken again",
        "a leader does not look whether a record has decided about an intent",
        lambda: [(Line, "_decide", _own_only)],
        ("crowd",),
        tuned=_appends_only,
        explored=("line, appends",),
    ),
    Mutation(
        "refused is committed",
        "a writer takes a refusal for a commit",
        lambda: [(Line, "_decide", _refused_is_committed)],
        _WHERE,
    ),
    Mutation(
        "committed is refused",
        "a writer takes a commit of its intent for a refusal, tries again, and looks for no record with it",
        lambda: [(Line, "_decide", _committed_is_refused), (group, "_find", _no_own)],
        _WHERE,
        explored=("line",),
    ),
    Mutation(
        "intents are not checked",
        "a leader does not check intents against the records since they were made",
        lambda: [(Line, "_check", _unchecked)],
        _WHERE,
        explored=("line, same chunk",),
    ),
)
"""Wrong ways to commit for others."""
