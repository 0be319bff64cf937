"""Records of what has expired, history pages, and proposals that nobody waits for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from arraystore._concurrency import bounded
from arraystore._format.envelope import bind_object
from arraystore._format.history import page_span, survivors_key
from arraystore._format.intent import PATIENCE, read_intent_key
from arraystore._format.layer import Layer
from arraystore._format.record import LONGEST_SKIP, decode_record, read_record_key
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip
from arraystore._log.spans import carriers
from arraystore._maintenance.scope import MaintenanceScope
from arraystore.errors import FormatError, ObjectNotFoundError
from arraystore.storage.protocol import ObjectInfo

__all__ = ["Trimmed", "detach", "trimmed_history", "trimmed_records"]


@dataclass
class Trimmed:
    """Objects that are not needed any more.

    Parameters
    ----------
    keys
        Of the objects.
    size
        Bytes of all.
    """

    keys: list[str] = field(default_factory=list[str])
    size: int = 0

    def add(self, info: ObjectInfo) -> None:
        """Add an object."""
        self.keys.append(info.key)
        self.size += info.size


async def detach(scope: MaintenanceScope, layers: Iterable[Layer]) -> None:
    """Give manifests that are attached to records objects of their own, so that the records may go."""

    async def one(layer: Layer) -> None:
        at = layer.attachment
        assert at is not None
        log = scope.log(at.branch)
        key = log.key(at.sequence)
        try:
            record = decode_record(key, await scope.storage.get(key), at.branch, at.sequence, log.repository)
        except ObjectNotFoundError:
            return  # done before
        if at.index >= len(record.attachments):
            raise FormatError(key, f"has no attachment {at.index}")
        await scope.storage.put(layer.key, bind_object(layer.key, record.attachments[at.index]))

    await bounded(one, layers)
    await scope.storage.sync()


async def trimmed_records(log: BranchLog, tip: Tip, seen: int, grace: float) -> Trimmed:
    """Find records that nothing will ever read, and proposals that no record may take any more.

    Parameters
    ----------
    log
        The branch.
    tip
        Its newest record.
    seen
        Number of a record before which no proposals are left.
    grace
        Seconds for which a record is left after it was written.  Whoever has not looked at the log for a sixth of that
        looks whether what it knows was forgotten meanwhile.
    """
    found = Trimmed()
    last = min(tip.state.life.expired, _oldest_carrier(tip.sequence) - 1)
    if last >= 0:
        expired: list[ObjectInfo] = []
        async for page in log.storage.list(log.prefix):
            for info in page:
                number = read_record_key(log.prefix, info.key)
                if number is not None and number <= last:
                    expired.append(info)
            if page and (read_record_key(log.prefix, page[-1].key) or 0) > last:
                break
        latest = await _written(log, tip.sequence) if grace and expired else None
        for info in expired:  # from the oldest on without gaps, so that whoever sees a record sees all after it
            if grace and (info.modified is None or latest is None or latest - info.modified < grace):
                break
            found.add(info)
    async for page in log.storage.list(log.prefix, log.key(max(0, seen - PATIENCE))):
        for info in page:
            intent = read_intent_key(log.prefix, info.key)
            if intent is not None and intent[0] + PATIENCE < tip.sequence:
                found.add(info)
    return found


def _oldest_carrier(sequence: int) -> int:
    """Return the oldest record from which a later one may have to take bodies."""
    return min([sequence, *carriers(sequence // LONGEST_SKIP * LONGEST_SKIP + 1, sequence)])


async def _written(log: BranchLog, sequence: int) -> float | None:
    """Return when a record was written, by the clock of the storage."""
    async for page in log.storage.list(log.key(sequence)):
        for info in page:
            return info.modified
    return None


async def trimmed_history(log: BranchLog, tip: Tip, watermark: bytes) -> Trimmed:
    """Find history pages of what has expired, and lists of survivors that others took the place of."""
    life = tip.state.life
    current = None if life.survivors is None else survivors_key(log.history_prefix, life.survivors)
    kept_prefix = f"{log.history_prefix}kept/"
    edge = survivors_key(log.history_prefix, watermark)
    found = Trimmed()
    if life.expired < 0:
        return found
    async for page in log.storage.list(log.history_prefix):
        for info in page:
            if info.key.startswith(kept_prefix):
                if info.key != current and info.key < edge:
                    found.add(info)
            elif _last_of_page(info.key) <= life.expired:
                found.add(info)
    return found


def _last_of_page(key: str) -> int:
    """Return the newest record that a history page covers."""
    level, index = key.split("/")[-2:]
    if not (level.isdigit() and index.isdigit() and 0 < int(level) < 11):
        return 1 << 62
    return page_span(int(level), int(index))[1]
