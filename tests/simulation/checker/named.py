"""Rule "references": a name belongs to one creator, deleted tags stay deleted, and whoever looks sees what there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from tests.simulation.checker.decoding import id_text
from tests.simulation.checker.lifetimes import Lifetimes
from tests.simulation.checker.logs import Logs, id_bytes
from tests.simulation.checker.repository import Entry, Ref
from tests.simulation.checker.states import Snapshot
from tests.simulation.checker.violations import DecodingError, Violation
from tests.simulation.observations import (
    Committed,
    Observations,
    RefChange,
    RefCreation,
    RefListing,
    RefLook,
    Refused,
    Upkeep,
)

__all__ = ["wrong_references"]

_RULE = "references"
_MAIN = "main"


@dataclass
class _Spell:
    """Something that a name stood for, or nothing, for a while.

    Parameters
    ----------
    snapshot
        Text of its id; None for nothing.
    since, until
        From the earliest moment to the latest one at which it may have been so.
    """

    snapshot: str | None
    since: float = -inf
    until: float = inf


@dataclass
class _Names:
    """What each name stood for, one after the other, seen through listings that are behind by a lag."""

    lag: float = 0.0
    spells: dict[Ref, list[_Spell]] = field(default_factory=dict[Ref, list[_Spell]])

    def of(self, ref: Ref) -> list[_Spell]:
        """Return the spells of a name."""
        first = _Spell("" if ref == ("branch", _MAIN) else None)
        return self.spells.setdefault(ref, [first])

    def add(self, ref: Ref, snapshot: str | None, earliest: float, latest: float) -> None:
        """Add what a name stood for from a moment on."""
        spells = self.of(ref)
        spells[-1].until = latest
        spells.append(_Spell(snapshot, earliest))

    def within(self, ref: Ref, began: float, ended: float) -> list[_Spell]:
        """Return what a name may have stood for between two moments."""
        return [spell for spell in self.of(ref) if spell.since <= ended and spell.until >= began - self.lag]


def wrong_references(logs: Logs, notes: Observations, lifetimes: Lifetimes, lag: float = 0.0) -> Iterator[Violation]:
    """Compare all branches and tags with what was done and seen."""
    for key, what in lifetimes.refs.broken:
        yield Violation(_RULE, what, key)
    names = _Names(lag)
    for entry in lifetimes.refs.entries:
        yield from _places(logs, entry)
        yield from _meant(notes, entry)
        if entry.ref is not None:
            snapshot = id_text(entry.snapshot) if entry.creates and entry.snapshot is not None else None
            names.add(entry.ref, snapshot, *_when(notes, lifetimes, entry))
    yield from _births(logs, lifetimes)
    yield from _deaths(logs, notes, lifetimes)
    yield from _acknowledged(notes, lifetimes)
    for seen in notes.seen:
        if isinstance(seen, RefLook):
            yield from _look(names, seen)
        elif isinstance(seen, RefListing):
            yield from _listing(names, seen)
        elif isinstance(seen, RefCreation | RefChange):
            yield from _refused(names, lifetimes, seen)


def _when(notes: Observations, lifetimes: Lifetimes, entry: Entry) -> tuple[float, float]:
    """Return the earliest and the latest moment at which an entry may have come about."""
    at = lifetimes.since_entry(entry.number)
    if at > -inf:
        return at, at
    causes = list(_causes(notes, entry))
    ends = [cause.ended for cause in causes if isinstance(cause.outcome, Committed) and cause.ended is not None]
    return min((cause.began for cause in causes), default=-inf), min(ends, default=inf)


def _causes(notes: Observations, entry: Entry) -> Iterator[RefCreation | RefChange]:
    """Return what may have brought an entry about."""
    for seen in notes.seen:
        if isinstance(seen, RefCreation) and entry.creates:
            fits = entry.snapshot is not None and seen.snapshot == id_text(entry.snapshot)
        else:
            fits = isinstance(seen, RefChange) and not entry.creates and seen.snapshot is None
        if fits and isinstance(seen, RefCreation | RefChange) and (seen.kind, seen.name) == entry.ref:
            yield seen


def _places(logs: Logs, entry: Entry) -> Iterator[Violation]:
    """Check that a checkpoint is that of the snapshot that its branch or tag names."""
    if not entry.creates or entry.origin is None or entry.ref is None:
        return
    branch, number, identifier = entry.origin
    where = f"{entry.ref[0]} {entry.name!r}"
    try:
        state = logs.reader.checkpoint(identifier)
    except DecodingError as error:
        yield Violation(_RULE, error.what, error.key)
        return
    if (state.id, state.branch, state.number) != (entry.snapshot, branch, number):
        yield Violation(_RULE, "its checkpoint is that of another snapshot", where)


def _meant(notes: Observations, entry: Entry) -> Iterator[Violation]:
    """Check that somebody meant an entry."""
    if entry.ref is None:
        return
    tried = [cause for cause in _causes(notes, entry) if not isinstance(cause.outcome, Refused)]
    expiring = any(getattr(seen, "what", "") == "expire" for seen in notes.seen)  # which deletes what is old
    allowed = expiring and not entry.creates
    if not tried and not allowed:
        at = f" at {id_text(entry.snapshot)}" if entry.snapshot is not None else ""
        what = f"nobody {'created' if entry.creates else 'deleted'} it{at}"
        yield Violation(_RULE, what, f"{entry.ref[0]} {entry.name!r}")


def _births(logs: Logs, lifetimes: Lifetimes) -> Iterator[Violation]:
    """Check that branches begin where the repository log says, and that there are no others."""
    created = {(e.name, e.number): e.snapshot for e in lifetimes.refs.entries if e.ref and e.ref[0] == "branch"}
    for name, log in logs.branches.items():
        for era in log.eras:
            cause = log.lives[era.number].cause
            plain = era.number > 0 and cause == log.lives[era.number - 1].cause
            if plain or (name == _MAIN and era.number == 0):
                continue
            if (
                0 < cause < len(lifetimes.refs.tables)
                and log.lives[era.number].fence < lifetimes.refs.tables[cause].watermark
            ):
                what = f"record {era.number} lets it begin below the watermark that there was when it was created"
                yield Violation(_RULE, what, f"branch {name!r}")
            if created.get((name, cause), b"") != era.first.id:
                what = f"record {era.number} lets it begin at {id_text(era.first.id)}, which nobody created it at"
                yield Violation(_RULE, what, f"branch {name!r}")


def _deaths(logs: Logs, notes: Observations, lifetimes: Lifetimes) -> Iterator[Violation]:
    """Check that each deletion in a branch's log was meant, and of the snapshot that the branch stood at."""
    for name, log in logs.branches.items():
        times = lifetimes.times(name)
        for number in log.ends():
            ended = log.states[number - 1]
            if not any(_deletes(seen, name, ended, times[number]) for seen in notes.seen):
                what = f"record {number} deletes it at {id_text(ended.id)}, which nobody asked for"
                yield Violation(_RULE, what, f"branch {name!r}")


def _deletes(seen: object, name: str, ended: Snapshot, at: float) -> bool:
    """Tell whether something that was to be done may have deleted a branch at a snapshot."""
    if not isinstance(seen, RefChange | Upkeep):
        return False
    if isinstance(seen.outcome, Refused) and isinstance(seen, RefChange):
        return False  # an expiry may be refused when it has deleted the first of several
    told = seen.ended if isinstance(seen.outcome, Committed) and seen.ended is not None else inf
    if not (at == -inf or seen.began <= at <= told):
        return False
    if isinstance(seen, Upkeep):
        return seen.what == "expire" and ended.time < seen.older_than
    fits = (seen.kind, seen.name, seen.snapshot) == ("branch", name, None)
    return fits and seen.expected in (None, id_text(ended.id))


def _acknowledged(notes: Observations, lifetimes: Lifetimes) -> Iterator[Violation]:
    """Check that what was acknowledged came about, once for each."""
    left: dict[tuple[Ref, str | None], int] = {}
    for entry in lifetimes.refs.entries:
        if entry.ref is not None:
            snapshot = id_text(entry.snapshot) if entry.creates and entry.snapshot is not None else None
            left[entry.ref, snapshot] = left.get((entry.ref, snapshot), 0) + 1
    for seen in notes.seen:
        if not isinstance(seen, RefCreation | RefChange) or not isinstance(seen.outcome, Committed):
            continue
        if isinstance(seen, RefChange) and seen.snapshot is not None:
            yield from _was_reset(lifetimes, seen)
            continue
        ref = seen.kind, seen.name
        left[ref, seen.snapshot] = left.get((ref, seen.snapshot), 0) - 1
        if left[ref, seen.snapshot] < 0:
            did = "created it" if isinstance(seen, RefCreation) else "deleted it"
            at = f" at {seen.snapshot}" if seen.snapshot else ""
            yield Violation(_RULE, f"{seen.process} {did}{at}, which did not happen", f"{seen.kind} {seen.name!r}")


def _was_reset(lifetimes: Lifetimes, seen: RefChange) -> Iterator[Violation]:
    log = lifetimes.logs.branches.get(seen.name)
    if log is not None:
        times = lifetimes.times(seen.name)
        ended = inf if seen.ended is None else seen.ended
        fitting = [e for e in log.eras[1:] if id_text(e.first.id) == seen.snapshot and times[e.number] <= ended]
        if any(times[era.number] >= seen.began or times[era.number] == -inf for era in fitting):
            return
    yield Violation(_RULE, f"{seen.process} reset it to {seen.snapshot}, which did not happen", f"branch {seen.name!r}")


def _look(names: _Names, seen: RefLook) -> Iterator[Violation]:
    possible = {spell.snapshot for spell in names.within(("tag", seen.name), seen.began, seen.ended)}
    if seen.snapshot not in possible:
        what = f"{seen.process} saw {seen.snapshot}, it was {' or '.join(map(str, possible))}"
        yield Violation(_RULE, what, f"tag {seen.name!r}")


def _listing(names: _Names, seen: RefListing) -> Iterator[Violation]:
    where = f"list of {'branches' if seen.kind == 'branch' else 'tags'} of {seen.process}"
    known = {name for kind, name in names.spells if kind == seen.kind} | set(seen.names)
    for name in sorted(known | ({_MAIN} if seen.kind == "branch" else set())):
        spells = names.within((seen.kind, name), seen.began, seen.ended)
        if name in seen.names and all(spell.snapshot is None for spell in spells):
            yield Violation(_RULE, f"{name!r} is in it, and was not there", where)
        if name not in seen.names and all(spell.snapshot is not None for spell in spells):
            yield Violation(_RULE, f"{name!r} was there, and is not in it", where)


def _refused(names: _Names, lifetimes: Lifetimes, seen: RefCreation | RefChange) -> Iterator[Violation]:
    """Check that there was a reason to refuse something."""
    if not isinstance(seen.outcome, Refused) or seen.ended is None:
        return
    error, where = seen.outcome.error, f"{seen.kind} {seen.name!r}"
    spells = names.within((seen.kind, seen.name), seen.began, seen.ended)
    if error == "AlreadyExistsError":
        burnt = seen.kind == "tag" and any(spell.since > -inf for spell in spells)
        groundless = not burnt and all(spell.snapshot is None for spell in spells)
    elif error == "RefNotFoundError":
        groundless = all(spell.snapshot is not None for spell in spells) and not _was_ended(lifetimes, seen)
    elif error in ("SnapshotNotFoundError", "SnapshotExpiredError", "ObjectNotFoundError"):
        lapsed = inf if seen.snapshot is None else lifetimes.lapsed.get(id_bytes(seen.snapshot), inf)
        unlisted = seen.snapshot is not None and lifetimes.may_be_unlisted(seen.snapshot, seen.began)
        groundless = lapsed > seen.ended and not unlisted
    else:
        groundless = False
    if groundless:
        yield Violation(_RULE, f"{seen.process} was refused with {error}, for which there is no reason", where)


def _was_ended(lifetimes: Lifetimes, seen: RefCreation | RefChange) -> bool:
    """Tell whether a branch's own log may have ended it while somebody looked, whatever the other log says yet."""
    log = lifetimes.logs.branches.get(seen.name) if seen.kind == "branch" else None
    if log is None or seen.ended is None:
        return False
    times = lifetimes.times(seen.name)
    until = [*times[1:], inf]
    return any(
        life.deleted and times[number] <= (seen.ended or inf) and until[number] >= seen.began
        for number, life in enumerate(log.lives)
    )
