"""Rebuilding records of the repository log that are lost, from the entries that later ones repeat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from arraystore._format.digest import log_start
from arraystore._format.repository_log import TABLE_EVERY, RepositoryRecord, carried_from, entry_digest

__all__ = ["rebuild_records"]


def rebuild_records(
    lost: Iterable[int], present: Mapping[int, RepositoryRecord], repository: bytes
) -> dict[int, RepositoryRecord]:
    """Make lost records anew, by number; without those of which something is unknown or does not fit."""
    known = dict(present)
    found: dict[int, RepositoryRecord] = {}
    for number in sorted(lost):
        record = _rebuilt(number, known, repository)
        if record is not None:
            known[number] = found[number] = record
    return found


def _rebuilt(number: int, known: Mapping[int, RepositoryRecord], repository: bytes) -> RepositoryRecord | None:
    first = carried_from(number)
    carrier = next((at for at in range(number + 1, first + TABLE_EVERY) if at in known), None)
    below = next((at for at in range(number - 1, first - 2, -1) if at == 0 or at in known), None)
    if number % TABLE_EVERY == 0 or carrier is None or below is None:
        return None
    entries = known[carrier].entries
    digests = [log_start(repository, "") if below == 0 else _digest(known[below])]
    for at in range(below + 1, carrier):
        digests.append(entry_digest(digests[-1], entries[at - first]))
    if digests[-1] != known[carrier].before:
        return None
    return RepositoryRecord(number, entries[: number - first + 1], None, repository, digests[number - below - 1])


def _digest(record: RepositoryRecord) -> bytes:
    return entry_digest(record.before, record.entries[-1])
