"""Rebuilding of lost records of the repository log from the entries that later ones repeat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from arraystore._format.digest import log_start
from arraystore._format.repository_log import TABLE_EVERY, RepositoryRecord, carried_from, entry_digest


def rebuild_records(
    lost: Iterable[int], present: Mapping[int, RepositoryRecord], repository: bytes
) -> dict[int, RepositoryRecord]:
    """Rebuild lost records, by number, without those of which a part is unavailable or does not fit."""
    available = dict(present)
    rebuilt: dict[int, RepositoryRecord] = {}
    for number in sorted(lost):
        record = _rebuilt(number, available, repository)
        if record is not None:
            available[number] = rebuilt[number] = record
    return rebuilt


def _rebuilt(number: int, available: Mapping[int, RepositoryRecord], repository: bytes) -> RepositoryRecord | None:
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
