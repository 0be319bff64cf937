"""Whether the records of a log go on from one another."""

from __future__ import annotations

from collections.abc import Callable

from arraystore._format.digest import chained
from arraystore._format.record import Record
from arraystore.errors import LogForkError

__all__ = ["LogChain"]

_DIGESTS_KEPT = 512


class LogChain:
    """Digests of a log up to some of its records, as they were read.

    Parameters
    ----------
    key
        Returns the key of a record.
    start
        Digest of the log without records.
    """

    def __init__(self, key: Callable[[int], str], start: bytes) -> None:
        self.key = key
        self._digests = {-1: start}

    def link(self, record: Record) -> None:
        """Check that a record goes on from those that are known here, and remember where it leaves the log.

        Raises
        ------
        LogForkError
            If it was written on top of another record than the one that is there.
        """
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
            f"goes on from another record {record.sequence - 1} than the one that is there: it names the digest "
            f"{record.before.hex()}, and the log up to record {anchor} and what this one repeats give {digest.hex()}. "
            "Run arraystore verify, which names the records, and restore the one that is meant from a backup",
        )

    def anchor(self, sequence: int, digest: bytes) -> None:
        """Take note of the digest of the log up to a record, as a checkpoint of that tells it."""
        known = self._digests.get(sequence, digest)
        if known != digest:
            raise LogForkError(self.key(sequence), "is another record than the one that its checkpoint was made of")
        self._remember(sequence, digest)

    def known(self, sequence: int) -> bytes | None:
        """Return the digest of the log up to a record; None if that is not known here."""
        return self._digests.get(sequence)

    def _remember(self, sequence: int, digest: bytes) -> None:
        self._digests[sequence] = digest
        if len(self._digests) > 2 * _DIGESTS_KEPT:
            for old in sorted(self._digests)[1:_DIGESTS_KEPT]:  # all but that of the log's beginning
                del self._digests[old]

    def forget(self, sequence: int) -> None:
        """Drop the digest of a record that was taken back."""
        self._digests.pop(sequence, None)
