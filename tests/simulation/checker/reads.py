"""Rule "reads": what was read is what the history has at that snapshot, with the reader's own changes on top."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import inf

from tests.simulation.checker.arrays import DOCUMENTS, same_json
from tests.simulation.checker.decoding import id_text
from tests.simulation.checker.lifetimes import Lifetimes
from tests.simulation.checker.logs import Logs, id_bytes, short
from tests.simulation.checker.meant import Replay
from tests.simulation.checker.model import ModelError
from tests.simulation.checker.states import Key, Node, Snapshot, listing, lookup
from tests.simulation.checker.violations import Violation
from tests.simulation.observations import (
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


def wrong_ancestries(logs: Logs, notes: Observations, lifetimes: Lifetimes) -> Iterator[Violation]:
    """Check every listing of a snapshot's ancestors."""
    for seen in notes.seen:
        if isinstance(seen, Ancestry):
            what = _wrong_ancestry(list(logs.ancestry(id_bytes(seen.snapshot))), seen, lifetimes.lapsed)
            if what is not None:
                yield Violation(_RULE, f"{seen.process} saw {what}", seen.snapshot)


def _wrong_ancestry(expected: list[Snapshot], seen: Ancestry, lapsed: Mapping[bytes, float]) -> str | None:
    """Return what is wrong with a list of ancestors: it may leave out those that have expired by then.

    Of a snapshot that has expired itself, nothing leads on to what is left of its history.
    """
    parents = [*[identifier for identifier, _, _ in seen.entries[1:]], None]
    gone = {each.id for each in expected if lapsed.get(each.id, inf) <= seen.ended}
    left = iter(expected)
    for at, ((identifier, parent, message), after) in enumerate(zip(seen.entries, parents, strict=True)):
        missing: list[Snapshot] = []
        for found in left:
            if id_text(found.id) == identifier:
                break
            missing.append(found)
        else:
            return f"{identifier} as ancestor {at}, which it is not"
        forgotten = [id_text(each.id) for each in missing if each.id not in gone]
        if forgotten:
            return f"{identifier} as ancestor {at}, not {forgotten[0]}"
        if (parent, message) != (after, found.message):
            return f"parent {parent} and message {message!r} of ancestor {at}, not {after} and {found.message!r}"
    if id_bytes(seen.snapshot) in gone:
        return None
    forgotten = [id_text(each.id) for each in left if each.id not in gone]
    return f"no ancestor {len(seen.entries)}, which is {forgotten[0]}" if forgotten else None
