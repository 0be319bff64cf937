"""Reports and errors of transforms."""

from __future__ import annotations

from dataclasses import dataclass

from arraystore.errors import ArrayStoreError


class TransformError(ArrayStoreError):
    """The values of a box of cells could not be computed, or do not fit; names array and box."""


@dataclass(frozen=True, slots=True)
class TransformReport:
    """Result of a transform; it is in the session, and visible to others once that is committed.

    Parameters
    ----------
    array
        Path of the array that was written to.
    boxes
        Boxes of cells that were computed.
    skipped
        Boxes that were left out because no input has a chunk there.
    read_bytes, nbytes
        Sizes of the values that the boxes need, and of those that were written, in bytes, before compression.
    tasks
        Tasks that ran.
    attempts_wasted
        Attempts of these tasks that failed before one succeeded.
    seconds
        Duration from the check of the arguments to the merge.
    """

    array: str
    boxes: int
    skipped: int
    read_bytes: int
    nbytes: int
    tasks: int
    attempts_wasted: int
    seconds: float

    def __str__(self) -> str:
        skipped = f" ({self.skipped:,} without input left out)" if self.skipped else ""
        again = f", {self.attempts_wasted} attempts of tasks failed" if self.attempts_wasted else ""
        return (
            f"{self.array}: {self.boxes:,} boxes{skipped}, {self.nbytes:,} bytes in {self.tasks} "
            f"task{'s' if self.tasks != 1 else ''}, {self.seconds:.2f} s{again}"
        )
