"""What a run is to consist of: who takes part, and what they do how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from arraystore._context.config import RepositoryConfig

__all__ = ["OPERATIONS", "SMALL_CONFIG", "Workload"]

SMALL_CONFIG = RepositoryConfig(
    inline_chunk_threshold_bytes=48, own_object_threshold_bytes=600, pack_target_bytes=1200, max_bytes_in_flight=4800
)
"""Everything is scaled down, so that few bytes lead down every path: inlined, packed, an object of its own."""

OPERATIONS: Mapping[str, float] = {
    "write": 10.0,
    "erase": 2.0,
    "attributes": 2.0,
    "grow": 1.0,
    "shrink": 1.0,
    "append": 2.0,
    "create": 2.0,
    "delete": 1.0,
    "replace": 0.5,
    "move": 1.0,
    "file": 1.0,
    "look": 3.0,
    "list": 1.0,
    "rebase": 0.7,
    "fork": 0.7,
    "refer": 0.0,
}
"""How often a step of a transaction is what; a run of its own weights need not name those that it does not want.

There is nothing to refer to but in runs with sources.
"""


@dataclass(frozen=True)
class Workload:
    """What actors do; everything that happens is drawn from this and the seed.

    Parameters
    ----------
    writers, readers, referrers
        How many actors of each kind: writers commit, readers read, referrers make branches and tags.
    operators, expirers, collectors, compactors
        How many delete and reset what referrers have made, let snapshots expire, collect garbage, compact.
    shared
        How many writers live in one process, and so share caches and group commit.
    turns
        Fewest and most transactions (rounds of reading, refs) of an actor.
    steps
        Fewest and most steps of a transaction.
    operations
        Weights of what a step does, by the names of `OPERATIONS`.
    arrays, chunks
        How many arrays there are in the beginning, and of how many chunks at most each.
    groups
        How many groups there are in the beginning.
    think
        Mean seconds between two steps, and between two turns.
    serializable
        Share of transactions of that isolation.
    solvers
        Weights of what decides about conflicts: ``none``, ``detector``, ``basic``, ``custom``.
    redo
        How many times a refused transaction is done again on the newest snapshot.
    insist
        How many times ``commit`` is called again while its outcome is unknown.
    impatient
        Share of commits that are cancelled after a while, and called again.
    second_solver
        Share of refused transactions that are given to another solver.
    lingering
        Share of sessions, of readers and writers, that are held open for `linger`.
    linger
        Mean seconds.
    other_branches
        Share of transactions on other branches than main, where there are any.
    amending
        Share of transactions that take the place of the newest snapshot.
    flushing
        Share of transactions that become snapshots on no branch.
    unique
        Share of steps that append values which must not repeat, to an array that is there for that.
    transplanters
        How many actors undo snapshots, or repeat them on another branch.
    overwriters
        How many overwrite and delete the sources of virtual chunks; without any there are no sources.
    config
        Of the repository.
    """

    writers: int = 4
    readers: int = 1
    referrers: int = 0
    operators: int = 0
    expirers: int = 0
    collectors: int = 0
    compactors: int = 0
    shared: int = 1
    turns: tuple[int, int] = (3, 6)
    steps: tuple[int, int] = (1, 4)
    operations: Mapping[str, float] = field(default_factory=lambda: dict(OPERATIONS))
    arrays: int = 3
    chunks: int = 4
    groups: int = 2
    think: float = 0.1
    serializable: float = 0.3
    solvers: Mapping[str, float] = field(
        default_factory=lambda: {"none": 1.0, "detector": 5.0, "basic": 2.0, "custom": 1.0}
    )
    redo: int = 3
    insist: int = 8
    impatient: float = 0.03
    second_solver: float = 0.3
    lingering: float = 0.0
    linger: float = 3.0
    other_branches: float = 0.2
    amending: float = 0.0
    flushing: float = 0.0
    unique: float = 0.0
    transplanters: int = 0
    overwriters: int = 0
    config: RepositoryConfig = SMALL_CONFIG

    @property
    def forgets(self) -> bool:
        """Whether anything is deleted, so that somebody has to clean up in the end."""
        return bool(self.operators or self.expirers or self.collectors)
