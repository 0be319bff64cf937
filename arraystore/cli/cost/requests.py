"""Requests that operations take; `tests/cli/test_cost.py` counts each of them on a storage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Requests:
    """Numbers of requests by kind, as services charge them: a HEAD is a GET."""

    put: float = 0.0
    get: float = 0.0
    list: float = 0.0
    delete: float = 0.0

    def __add__(self, other: Requests) -> Requests:
        return Requests(self.put + other.put, self.get + other.get, self.list + other.list, self.delete + other.delete)

    def __mul__(self, factor: float) -> Requests:
        return Requests(self.put * factor, self.get * factor, self.list * factor, self.delete * factor)

    @property
    def total(self) -> float:
        """Number of requests of all kinds."""
        return self.put + self.get + self.list + self.delete


OPEN = Requests(get=5, list=1)
"""Open a repository and a session on the newest snapshot of a branch, in a process that knows nothing."""

REOPEN = Requests(get=1)
"""Open the next session in a process that has followed the branch."""

COMMIT = Requests(put=1, list=1)
"""Make changes visible, packs apart; the listing is that of a session which is older than ten seconds."""

LOST_RACE = Requests(put=1, get=4, list=1)
"""What a commit takes more when another one was faster."""

UPKEEP = Requests(put=10, get=6, list=2)
"""What the writer of every 64th record does in the background: checkpoint, history page, hint, folded manifests."""

RECORDS_BETWEEN_UPKEEP = 64

OPEN_ARRAY = Requests(get=1)
"""Read the manifest of an array that a session has not read yet."""

MAINTAIN = Requests(put=6, get=30, list=30, delete=2)
"""A run of ``maintain`` that finds nothing to do, but for the listing of all objects and the sample of chunks."""

CHUNKS_VERIFIED = 100
"""Chunks that ``maintain`` reads and verifies, each by a GET."""

OBJECTS_A_LISTING = 1000
"""Objects that one LIST returns, and keys that one DELETE of S3 takes."""

CONTIGUOUS_BYTES = 1 << 20
"""Bytes of neighbouring small chunks that one GET reads at least, on average."""

PART_BYTES = 16 << 20
LARGEST_SINGLE_PUT = 64 << 20
"""Beyond this size an object is uploaded in parts, with a request to begin and one to end."""

RECORD_BYTES = 600
"""Bytes of storage that a commit takes besides its chunks, with all that follows from it."""


def upload_requests(size: float) -> float:
    """Count the PUTs and POSTs that an object of a size takes."""
    return 1 if size <= LARGEST_SINGLE_PUT else 2 + -(-size // PART_BYTES)
