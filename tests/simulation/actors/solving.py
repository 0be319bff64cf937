"""Solvers as transactions use them, and what is noted of them."""

from __future__ import annotations

import random
from typing import Any

from arraystore._commit.solvers import BasicConflictSolver, ConflictDetector, ConflictSolver, Solution, Versions
from arraystore._conflicts import Conflict, ConflictType, VersionSelection
from tests.simulation.actors.hand import Hand
from tests.simulation.actors.scene import draw
from tests.simulation.observations import Merge, Solver

__all__ = ["MergingSolver", "drawn_solver", "solver_of"]

_SELECTIONS = {
    "fail": VersionSelection.Fail,
    "ours": VersionSelection.UseOurs,
    "theirs": VersionSelection.UseTheirs,
}


class MergingSolver(ConflictSolver):
    """Somebody's own solver: merges chunks into bytes that tell so, or takes theirs, by chance.

    Parameters
    ----------
    hand
        Notes what it answers.
    rng
        Chance.
    waives_reads
        Whether it vouches for what was read, too.
    """

    def __init__(self, hand: Hand, rng: random.Random, waives_reads: bool) -> None:
        self._hand = hand
        self._rng = rng
        self._waives_reads = waives_reads

    def solve(self, conflict: Conflict, versions: Versions[Any]) -> Solution | VersionSelection | None:
        """Merge chunks; leave anything else."""
        if conflict.conflict_type is ConflictType.ReadConflict and self._waives_reads:
            return VersionSelection.UseOurs
        if conflict.conflict_type is not ConflictType.ChunkDoubleUpdate or conflict.conflicted_chunks is None:
            return None
        path, theirs = conflict.path.strip("/"), str(versions.theirs.snapshot_id)
        chunks: dict[tuple[int, ...], bytes] = {}
        for row in conflict.conflicted_chunks.tolist():
            coords = tuple(row)
            size = self._rng.choice((10, 100))
            merged = self._hand.fresh(size, f"merged {path}{row}") if self._rng.random() < 0.6 else None
            if merged is not None:
                chunks[coords] = merged
            self._hand.noted.merges.append(Merge(path, coords, merged, theirs))
        return Solution(VersionSelection.UseTheirs, chunks)


def drawn_solver(hand: Hand, rng: random.Random, *, without: bool = True) -> Solver:
    """Draw what decides about conflicts.

    Parameters
    ----------
    hand
        The transaction.
    rng
        Chance.
    without
        Whether it may be none at all.
    """
    weights = {name: weight for name, weight in hand.scene.workload.solvers.items() if without or name != "none"}
    kind = draw(rng, weights or {"detector": 1.0})
    if kind == "basic":
        return Solver(kind, rng.choice(list(_SELECTIONS)), rng.random() < 0.4, rng.random() < 0.4)
    return Solver(kind, waives_reads=kind == "custom" and rng.random() < 0.3)


def solver_of(noted: Solver, hand: Hand, rng: random.Random) -> ConflictSolver | None:
    """Return what was noted, as the library takes it."""
    if noted.kind == "detector":
        return ConflictDetector()
    if noted.kind == "basic":
        return BasicConflictSolver(
            on_chunk_conflict=_SELECTIONS[noted.on_chunk_conflict],
            fail_on_delete_of_updated_array=noted.fail_on_delete_of_updated_array,
            fail_on_delete_of_updated_group=noted.fail_on_delete_of_updated_group,
        )
    if noted.kind == "custom":
        return MergingSolver(hand, rng, noted.waives_reads)
    return None
