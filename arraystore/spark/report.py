"""Reports of writes."""

from __future__ import annotations

from dataclasses import dataclass

from arraystore.spark.creation.new_arrays import CreatedArray


@dataclass(frozen=True, slots=True)
class WriteReport:
    """Result of a parallel write; it is in the session, and visible to others once that is committed.

    Parameters
    ----------
    arrays
        Paths of the arrays that were written to.
    rows
        Rows of the DataFrame; 0 where regions were written.
    chunks
        Chunks that were written, of all arrays.
    nbytes
        Size of the values that were written, in bytes, before compression.
    tasks
        Tasks that ran.
    attempts_wasted
        Attempts of these tasks that failed before one succeeded.
    spilled
        Change sets that were too large for task results and were sent through the storage.
    seconds
        Duration from the check of the arguments to the merge.
    created
        Arrays and coordinates that the write has created, with the chunks that were chosen.
    """

    arrays: tuple[str, ...]
    rows: int
    chunks: int
    nbytes: int
    tasks: int
    attempts_wasted: int
    spilled: int
    seconds: float
    created: tuple[CreatedArray, ...] = ()

    def __str__(self) -> str:
        rows = f"{self.rows:,} rows, " if self.rows else ""
        tasks = f"{self.tasks} task{'s' if self.tasks != 1 else ''}"
        again = f", {self.attempts_wasted} attempts of tasks failed" if self.attempts_wasted else ""
        new = f"; created {', '.join(map(str, self.created))}" if self.created else ""
        return (
            f"{', '.join(self.arrays)}: {rows}{self.chunks:,} chunks, {self.nbytes:,} bytes in {tasks}, "
            f"{self.seconds:.2f} s{again}{new}"
        )
