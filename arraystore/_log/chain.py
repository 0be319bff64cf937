"""Chain of digests that links the records of a log."""

from __future__ import annotations

from collections.abc import Callable

from arraystore._format.digest import chained
from arraystore._format.record import Record
from arraystore.errors import LogForkError

_DIGESTS_KEPT = 512


class LogChain:
    """Digests of a log up to some of its records, starting with that of the empty log."""

    def __init__(self, key: Callable[[int], str], start: bytes) -> None:
        self.key = key
        self._digests = {-1: start}

    def link(self, record: Record) -> None:
        """Check that a record continues those before it, and keep its digest; raises `LogForkError` if it does not."""
        first = record.sequence - len(record.previous)
        anchor = next((at for at in range(record.sequence - 1, first - 2, -1) if at in self._digests), None)
        if anchor is not None:
            digest = self._digests[anchor]
            for body in record.previous[anchor + 1 - first :]:
                digest = chained(digest, body)
            if digest != record.before:
                raise self._fork(record, anchor, digest)
        self._remember(record.sequence, record.digest)

    def _fork(self, record: Record, anchor: int, digest: bytes) -> LogForkError:
        return LogForkError(
            self.key(record.sequence),
            f"goes on from another record {record.sequence - 1} than the one in the log: it has the digest "
            f"{record.before.hex()}, and the log up to record {anchor} with the bodies that this one repeats has "
            f"{digest.hex()}. Run arraystore verify, which lists the records, and restore the right one from a backup",
        )

    def anchor(self, sequence: int, digest: bytes) -> None:
        """Keep the digest of the log up to a record that a checkpoint of it contains."""
        kept = self._digests.get(sequence, digest)
        if kept != digest:
            raise LogForkError(self.key(sequence), "is another record than the one of its checkpoint")
        self._remember(sequence, digest)

    def digest(self, sequence: int) -> bytes | None:
        """Return the digest of the log up to a record; None if it is not kept."""
        return self._digests.get(sequence)

    def _remember(self, sequence: int, digest: bytes) -> None:
        self._digests[sequence] = digest
        if len(self._digests) > 2 * _DIGESTS_KEPT:
            for old in sorted(self._digests)[1:_DIGESTS_KEPT]:  # all but that of the empty log
                del self._digests[old]

    def forget(self, sequence: int) -> None:
        """Drop the digest of a record that was deleted again."""
        self._digests.pop(sequence, None)
