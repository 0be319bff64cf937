"""Checks what a run has left in the bucket against what its actors meant and saw.

Nothing of the code under test is imported: objects are decoded anew after docs/format.md, and the semantics of
operations is written down a second time, as plain as it can be.  `docs/verification.md` says which property is checked
how.

>>> check(world.bucket.objects, notes, events=world.trace)
[]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.simulation.checker.content import wrong_content
from tests.simulation.checker.decoder import Commit, Reader
from tests.simulation.checker.derived import wrong_derivatives
from tests.simulation.checker.detached import find_detached, wrong_flushes
from tests.simulation.checker.hierarchies import broken_hierarchies
from tests.simulation.checker.isolation import concurrent_changes
from tests.simulation.checker.keeping import leaks, missed, taken_away
from tests.simulation.checker.lifetimes import Lifetimes
from tests.simulation.checker.logs import Logs
from tests.simulation.checker.meant import meant_by
from tests.simulation.checker.model import ModelError
from tests.simulation.checker.moments import Moments
from tests.simulation.checker.named import wrong_references
from tests.simulation.checker.outcomes import wrong_outcomes
from tests.simulation.checker.reads import wrong_ancestries, wrong_reads
from tests.simulation.checker.realtime import late_sights
from tests.simulation.checker.records import broken_history
from tests.simulation.checker.repeats import wrong_repeats
from tests.simulation.checker.repository import read_repository
from tests.simulation.checker.serial import dependency_cycles, stale_reads
from tests.simulation.checker.sources import Sources, groundless_losses
from tests.simulation.checker.transplanted import groundless_transplants, transplanted
from tests.simulation.checker.violations import RULES, DecodingError, Violation
from tests.simulation.checker.written import Happening, rewritten_objects
from tests.simulation.observations import Observations, SourceVersion, Transaction, Unfinished, Upkeep

__all__ = ["RULES", "DecodingError", "Violation", "check"]


def check(
    objects: Mapping[str, bytes],
    notes: Observations,
    sources: Sequence[SourceVersion] = (),
    events: Iterable[Happening] = (),
    gone: Mapping[str, bytes] = {},
    lag: float = 0.0,
) -> list[Violation]:
    """Check a run.

    Parameters
    ----------
    objects
        Everything in the bucket, by key.
    notes
        What the actors noted.
    sources
        All that sources of virtual chunks ever were, in order.
    events
        The trace, to see that no object was changed, and what was kept when.
    gone
        What was deleted, by key: history is checked as a whole, and what is left of it by itself.
    lag
        Seconds of writes that listings may have missed: whoever looked for a tip may have got one that old.

    Returns
    -------
    list of Violation
        Everything that must never be; empty for a correct run.
    """
    everything = {**gone, **objects}
    origins = Sources(sources)
    reader = Reader(everything, origins.read)
    told = list(events)
    logs = Logs.read(reader, Moments.of(told))
    lifetimes = Lifetimes(logs, read_repository(reader), logs.moments, lag)
    never_written = [*find_detached(logs, notes)]
    collectors = {seen.process for seen in notes.seen if isinstance(seen, Upkeep) and seen.what == "collect"}
    return [
        *rewritten_objects(told, collectors),
        *logs.broken,
        *broken_history(logs),
        *wrong_outcomes(logs, notes),
        *never_written,
        *wrong_flushes(logs, notes),
        *_committed(logs, notes, lifetimes),
        *_groundless(logs, notes, lifetimes),
        *wrong_repeats(logs, notes),
        *broken_hierarchies(logs),
        *wrong_reads(logs, notes),
        *groundless_losses(logs, notes, origins),
        *_readable(wrong_ancestries(logs, notes, lifetimes)),
        *stale_reads(logs, notes),
        *dependency_cycles(logs, notes),
        *late_sights(logs, notes, lag),
        *wrong_derivatives(logs),
        *_readable(wrong_references(logs, notes, lifetimes, lag)),
        *_readable(_kept(logs, notes, lifetimes, objects)),
        *_unfinished(notes),
    ]


def _committed(logs: Logs, notes: Observations, lifetimes: Lifetimes) -> Iterator[Violation]:
    """Compare each commit with what its transaction meant."""
    for commit in logs.commits():
        transaction = notes.transactions.get(commit.after.message)
        if transaction is not None:
            yield from _one(logs, transaction, commit, lifetimes)


def _one(logs: Logs, transaction: Transaction, commit: Commit, lifetimes: Lifetimes) -> Iterator[Violation]:
    try:
        if transaction.transplants is None:
            meant = meant_by(logs, transaction, commit)
        else:
            meant = transplanted(logs, transaction, commit, lifetimes)
    except ModelError as error:
        yield Violation("content", f"it cannot have done what it noted: {error}", transaction.label)
        return
    yield from concurrent_changes(logs, transaction, commit, meant)
    yield from wrong_content(logs, transaction, commit, meant)


def _groundless(logs: Logs, notes: Observations, lifetimes: Lifetimes) -> Iterator[Violation]:
    """Check who was refused to undo or to repeat something."""
    for transaction in notes.transactions.values():
        if transaction.transplants is not None:
            yield from groundless_transplants(logs, transaction, lifetimes)


def _readable(found: Iterator[Violation]) -> Iterator[Violation]:
    """Return what a rule finds, and what it cannot read."""
    try:
        yield from found
    except DecodingError as error:
        yield Violation("derived", error.what, error.key)


def _kept(logs: Logs, notes: Observations, lifetimes: Lifetimes, objects: Mapping[str, bytes]) -> Iterator[Violation]:
    """Check what was kept, as far as all logs could be read."""
    if not logs.broken and not lifetimes.refs.broken:
        yield from taken_away(lifetimes, objects)
        yield from missed(logs, notes, lifetimes)
        yield from leaks(logs, notes, lifetimes, objects)


def _unfinished(notes: Observations) -> Iterator[Violation]:
    for seen in notes.seen:
        if isinstance(seen, Unfinished):
            yield Violation("liveness", f"{seen.what} never ended; it began at {seen.since:.3f}", seen.process)
