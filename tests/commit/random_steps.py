"""Random moves, creations, deletions and writes in the same few groups, and a solver that answers by chance."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import zarr

from arraystore import ConflictSolver, Session, VersionSelection
from arraystore.errors import ArrayStoreError
from tests.commit.trees import array_at, tree_of

__all__ = ["Anything", "Step", "do", "play", "search"]

NAMES = ("g", "h", "m", "x", "deep", "new", "top")
Step = tuple[str, str, Any]


class Anything(ConflictSolver):
    """Answers each conflict by chance."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def solve(self, conflict: Any, versions: Any) -> VersionSelection:
        return self.rng.choice([VersionSelection.UseOurs, VersionSelection.UseTheirs])


def draw(rng: random.Random, nodes: dict[str, int | None]) -> Step:
    """Choose a step, given the groups and arrays that there are; it may be an impossible one."""
    groups = ["", *(path for path, value in nodes.items() if value is None)]
    place = f"{rng.choice(groups)}/{rng.choice(NAMES)}".strip("/")
    kind = rng.choice(["move", "move", "move", "array", "array", "group", "delete", "write"])
    named = kind in {"move", "delete", "write"}
    return kind, rng.choice(list(nodes) or ["g"]) if named else place, place if kind == "move" else rng.randrange(100)


def do(session: Session, step: Step) -> None:
    kind, path, value = step
    if kind == "move":
        session.move(path, value)
    elif kind == "array":
        array_at(session.store, path, value)
    elif kind == "group":
        zarr.create_group(session.store, path=path)
    elif kind == "delete":
        del zarr.open_group(session.store)[path]
    else:
        zarr.open_array(session.store, path=path, mode="r+")[:] = value


def play(rng: random.Random, session: Session, most: int) -> list[Step]:
    """Do some steps, and return those that were possible."""
    done = []
    for _ in range(rng.randint(1, most)):
        step = draw(rng, tree_of(session))
        with contextlib.suppress(ArrayStoreError, ValueError, KeyError, FileNotFoundError):  # what Zarr and we refuse
            do(session, step)
            done.append(step)
    return done


def search(meet: Callable[[random.Random], str], seeds: Iterable[int]) -> None:
    """Let two writers meet once for each seed, and check that all comes of it that can."""
    outcomes = Counter[str]()
    for seed in seeds:
        try:
            outcomes[meet(random.Random(seed))] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert min(outcomes[each] for each in ("rebased", "refused", "solved")) >= 2, outcomes
