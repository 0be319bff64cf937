"""Rebuilding of lost records from the bodies that later records repeat.

A record holds its body, the bodies of some records before it, the digest of the log up to it, and attachments. All but
the attachments are available where a later record repeats its body, and the digest in the next record verifies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from arraystore._format.digest import chained, log_start
from arraystore._format.layer import Layer
from arraystore._format.record import Body, Commit, Record, Rewrite, Transaction, first_carried
from arraystore._format.repository_log import TABLE_EVERY, RepositoryRecord, carried_from, entry_digest
from arraystore._format.transaction import TransactionLog


def attached_to(entry: Body, branch: str, number: int) -> tuple[str, ...]:
    """Describe the parts of an entry that were attached to its record, which no other record repeats."""
    kinds: dict[str, None] = {}
    if isinstance(entry, Commit):
        for item in entry.transactions:
            kinds |= dict.fromkeys(_attached_to_transaction(item, branch, number))
    added = (layer for item in entry.replacements for layer in item.added) if isinstance(entry, Rewrite) else ()
    if _has_attached(added, branch, number):
        kinds["manifests"] = None
    return tuple(kinds)


def _attached_to_transaction(item: Transaction, branch: str, number: int) -> Iterable[str]:
    if isinstance(item.note, int):
        yield "message and metadata"
    if isinstance(item.log, int):
        yield "change log"
    elif isinstance(item.log, TransactionLog):
        layers = (change.layer for change in item.log.chunks if change.layer is not None)
        if _has_attached(layers, branch, number):
            yield "manifests"


def _has_attached(layers: Iterable[Layer], branch: str, number: int) -> bool:
    places = (layer.attachment for layer in layers)
    return any(at is not None and (at.branch, at.sequence) == (branch, number) for at in places)


@dataclass(frozen=True)
class KnownLog:
    """Available parts of a stretch of a log."""

    repository: bytes
    branch: str
    bodies: Mapping[int, bytes]
    """Encoded bodies by number, those of lost records as others repeat them."""
    links: Mapping[int, tuple[bytes, bytes]]
    """Digests of the log up to the record before, and up to the record itself, by number."""
    present: frozenset[int]
    """Numbers of the records that exist and can be read."""

    def rebuilt(self, number: int) -> Record | None:
        """Rebuild a lost record without attachments; None if a part is unavailable or does not fit."""
        numbers = range(first_carried(number), number)
        if number not in self.links or any(each not in self.bodies for each in (*numbers, number)):
            return None
        if not self._goes_on_from(number, numbers) or not self._leads_on(number):
            return None
        before, previous = self.links[number][0], tuple([self.bodies[each] for each in numbers])
        return Record(self.branch, number, self.bodies[number], (), previous, self.repository, before)

    def _goes_on_from(self, number: int, carried: range) -> bool:
        """Tell whether the bodies that a record carries give the digest before it, as far back as one is available."""
        start = next((at for at in range(carried.start - 1, number) if at in self.links), None)
        if start is None:
            return False
        digest = self.links[start][1]
        for each in range(start + 1, number):
            digest = chained(digest, self.bodies[each])
        return digest == self.links[number][0]

    def _leads_on(self, number: int) -> bool:
        """Tell whether the next existing record continues the log from it."""
        following = min((each for each in self.present if each > number), default=None)
        if following is None or following - 1 not in self.links:
            return False
        digest = self.links[number][1]
        for each in range(number + 1, following):
            if each not in self.bodies:
                return False
            digest = chained(digest, self.bodies[each])
        return digest == self.links[following][0]


def rebuild_records(
    lost: Iterable[int], present: Mapping[int, RepositoryRecord], repository: bytes
) -> dict[int, RepositoryRecord]:
    """Rebuild lost records of the repository log, by number, as far as all of their parts are available and fit."""
    available = dict(present)
    rebuilt: dict[int, RepositoryRecord] = {}
    for number in sorted(lost):
        record = _rebuild(number, available, repository)
        if record is not None:
            available[number] = rebuilt[number] = record
    return rebuilt


def _rebuild(number: int, available: Mapping[int, RepositoryRecord], repository: bytes) -> RepositoryRecord | None:
    first = carried_from(number)
    carrier = next((at for at in range(number + 1, first + TABLE_EVERY) if at in available), None)
    below = next((at for at in range(number - 1, first - 2, -1) if at == 0 or at in available), None)
    if number % TABLE_EVERY == 0 or carrier is None or below is None:
        return None
    entries = available[carrier].entries
    digests = [log_start(repository, "") if below == 0 else _digest(available[below])]
    for at in range(below + 1, carrier):
        digests.append(entry_digest(digests[-1], entries[at - first]))
    if digests[-1] != available[carrier].before:
        return None
    return RepositoryRecord(number, entries[: number - first + 1], None, repository, digests[number - below - 1])


def _digest(record: RepositoryRecord) -> bytes:
    return entry_digest(record.before, record.entries[-1])
