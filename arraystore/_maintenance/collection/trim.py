"""Records of expired snapshots, history pages and decided intents to delete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from arraystore._format.envelope import bind_object
from arraystore._format.history import page_span, survivors_key
from arraystore._format.intent import PATIENCE, read_intent_key
from arraystore._format.layer import Layer
from arraystore._format.record import LONGEST_SKIP, decode_record, read_record_key
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip
from arraystore._log.spans import carriers
from arraystore._maintenance.scope import MaintenanceScope
from arraystore._runtime.concurrency import bounded
from arraystore.errors import FormatError, ObjectNotFoundError
from arraystore.storage.protocol import ObjectInfo


@dataclass
class Trimmed:
    """Keys of unreferenced objects, and their total size in bytes."""

    keys: list[str] = field(default_factory=list[str])
    size: int = 0

    def add(self, info: ObjectInfo) -> None:
        """Add an object."""
        self.keys.append(info.key)
        self.size += info.size

    def extend(self, other: Trimmed) -> None:
        """Add all of other ones."""
        self.keys += other.keys
        self.size += other.size


async def detach(scope: MaintenanceScope, layers: Iterable[Layer]) -> None:
    """Copy manifests attached to records into objects of their own, so that the records can be deleted."""

    async def one(layer: Layer) -> None:
        at = layer.attachment
        assert at is not None
        log = scope.log(at.branch)
        key = log.key(at.sequence)
        try:
            record = decode_record(key, await scope.storage.get(key), at.branch, at.sequence, log.repository)
        except ObjectNotFoundError:
            return  # detached by an earlier collection
        if at.index >= len(record.attachments):
            raise FormatError(key, f"has no attachment {at.index}")
        # Another collection may have done so: objects are written once.
        await scope.storage.put_if_absent(layer.key, bind_object(layer.key, record.attachments[at.index]))

    await bounded(one, layers)
    await scope.storage.sync()


async def trimmed_records(log: BranchLog, tip: Tip, seen: int, grace: float) -> Trimmed:
    """List records that no reader needs, and intents that no record may commit any more.

    No intents are left before the record `seen`. Records are retained for `grace` seconds; a session that has not read
    the log for a sixth of that checks whether its snapshot has expired.
    """
    trimmed = Trimmed()
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
            trimmed.add(info)
    async for page in log.storage.list(log.prefix, log.key(max(0, seen - PATIENCE))):
        for info in page:
            intent = read_intent_key(log.prefix, info.key)
            if intent is not None and intent[0] + PATIENCE < tip.sequence:
                trimmed.add(info)
    return trimmed


def _oldest_carrier(sequence: int) -> int:
    """Return the oldest record whose body a later record may need."""
    return min([sequence, *carriers(sequence // LONGEST_SKIP * LONGEST_SKIP + 1, sequence)])


async def _written(log: BranchLog, sequence: int) -> float | None:
    """Load the time at which a record was written, by the clock of the storage."""
    async for page in log.storage.list(log.key(sequence)):
        for info in page:
            return info.modified
    return None


async def trimmed_history(log: BranchLog, tip: Tip, watermark: bytes) -> Trimmed:
    """List history pages of expired snapshots, and lists of survivors that later ones have replaced."""
    life = tip.state.life
    current = None if life.survivors is None else survivors_key(log.history_prefix, life.survivors)
    kept_prefix = f"{log.history_prefix}kept/"
    edge = survivors_key(log.history_prefix, watermark)
    trimmed = Trimmed()
    if life.expired < 0:
        return trimmed
    async for page in log.storage.list(log.history_prefix):
        for info in page:
            if info.key.startswith(kept_prefix):
                if info.key != current and info.key < edge:
                    trimmed.add(info)
            elif _last_of_page(info.key) <= life.expired:
                trimmed.add(info)
    return trimmed


def _last_of_page(key: str) -> int:
    """Return the newest record that a history page covers."""
    level, index = key.split("/")[-2:]
    if not (level.isdigit() and index.isdigit() and 0 < int(level) < 11):
        return 1 << 62
    return page_span(int(level), int(index))[1]
