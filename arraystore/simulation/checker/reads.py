"""Rule "reads": what was read is what the history has at that snapshot, with the reader's own changes on top."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from arraystore.simulation.checker.arrays import DOCUMENTS, same_json
from arraystore.simulation.checker.decoding import id_text
from arraystore.simulation.checker.logs import Logs, short
from arraystore.simulation.checker.meant import Replay
from arraystore.simulation.checker.model import ModelError
from arraystore.simulation.checker.states import Key, Node, listing, lookup
from arraystore.simulation.checker.violations import Violation
from arraystore.simulation.observations import (
    Ancestry,
    ListingRead,
    Observations,
    Transaction,
    ValueRead,
)

__all__ = ["Read", "shown", "unexpected", "wrong_ancestries", "wrong_reads"]

Read = ValueRead | ListingRead
_RULE = "reads"


def unexpected(nodes: Mapping[Key, Node], read: Read) -> str | None:
    """Return what a read should have returned of a hierarchy, for people; None if it has."""
    if isinstance(read, ListingRead):
        names = listing(nodes, read.prefix, deep=read.deep)
        return None if names == read.names else str(list(names))
    data = lookup(nodes, read.key)
    # an append writes documents anew, so a session may see another text of what comes to the same
    is_document = read.key.rpartition("/")[2] in DOCUMENTS
    alike = is_document and data is not None and read.data is not None and same_json(data, read.data)
    return None if alike or data == read.data else short(data)


def shown(read: Read) -> str:
    """Return a read and what came of it, for people."""
    if isinstance(read, ListingRead):
        return f"{read.process} listed {read.prefix!r} and got {list(read.names)}"
    return f"{read.process} read {read.key!r} and got {short(read.data)}"


def wrong_reads(logs: Logs, notes: Observations) -> Iterator[Violation]:
    """Check every read."""
    own: dict[str, list[Read]] = defaultdict(list)
    for read in notes.reads():
        if read.transaction is not None and read.position:
            own[read.transaction].append(read)
            continue
        snapshot = logs.snapshot(read.snapshot)
        if snapshot is None:
            yield Violation(_RULE, f"{shown(read)} of a snapshot that was never committed", read.snapshot)
        else:
            yield from _compare(snapshot.nodes, read, read.snapshot)
    for label, reads in own.items():
        yield from _own_reads(logs, notes.transactions[label], reads)


def _compare(nodes: Mapping[Key, Node], read: Read, where: str) -> Iterator[Violation]:
    expected = unexpected(nodes, read)
    if expected is not None:
        yield Violation(_RULE, f"{shown(read)}, not {expected}", where)


def _own_reads(logs: Logs, transaction: Transaction, reads: list[Read]) -> Iterator[Violation]:
    """Check reads of a session with changes, as far as no custom solver has put these on top of something else."""
    try:
        replay = Replay(logs, transaction)
        for read in sorted(reads, key=lambda read: read.position):
            replay.to(read.position)
            if replay.guessed:
                return
            yield from _compare(replay.view.nodes, read, transaction.label)
    except ModelError as error:
        yield Violation(_RULE, f"it cannot have done what it noted: {error}", transaction.label)


def wrong_ancestries(logs: Logs, notes: Observations) -> Iterator[Violation]:
    """Check every listing of a snapshot's ancestors."""
    for seen in notes.seen:
        if not isinstance(seen, Ancestry):
            continue
        expected = _ancestry(logs, seen.snapshot)
        if list(seen.entries) != expected:
            pairs = zip(seen.entries, expected, strict=False)
            at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(expected), len(seen.entries)))
            what = f"{seen.process} saw {list(seen.entries)[at : at + 1]} as ancestor {at}, not {expected[at : at + 1]}"
            yield Violation(_RULE, what, seen.snapshot)


def _ancestry(logs: Logs, text: str) -> list[tuple[str, str | None, str]]:
    found: list[tuple[str, str | None, str]] = []
    at = logs.snapshot(text)
    seen: set[bytes] = set()
    while at is not None and at.id not in seen:  # a damaged log may go round in a circle
        seen.add(at.id)
        parent = None if at.parent is None else id_text(at.parent)
        found.append((id_text(at.id), parent, at.message))
        at = None if parent is None else logs.snapshot(parent)
    return found
