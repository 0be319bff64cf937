"""Two sides of a conflict, and solvers made of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zarr

from arraystore import (
    Conflict,
    ConflictSolver,
    Repository,
    Session,
    Storage,
    Versions,
    VersionSelection,
    in_memory_storage,
)
from tests.commit.rivals import impatient
from tests.commit.support import create_repository

FAIL, OURS, THEIRS = VersionSelection.Fail, VersionSelection.UseOurs, VersionSelection.UseTheirs
Solve = Callable[[Conflict, Versions[Session]], Any]


class By(ConflictSolver):
    """A solver made of a function, which notes what it was asked."""

    def __init__(self, solve: Solve) -> None:
        self.function = solve
        self.asked: list[Conflict] = []

    def solve(self, conflict: Conflict, versions: Versions[Session]) -> Any:
        self.asked.append(conflict)
        return self.function(conflict, versions)


def sides_repository() -> tuple[Storage, Repository]:
    """Return a repository with a compressed array ``v`` of 16 chunks of 4 numbers, all 0, and a group ``g``."""
    storage = in_memory_storage()
    repository = create_repository(storage)
    with repository.transaction("main", message="more") as store:
        root = zarr.open_group(store)
        root.create_array("v", shape=(64,), chunks=(4,), dtype="f8", fill_value=0)
        root.create_group("g").create_array("x", shape=(8,), chunks=(4,), dtype="i4", fill_value=0)
    return storage, repository


def by_others(storage: Storage, change: Callable[[Session], None]) -> str:
    session = impatient(storage).writable_session("main")
    change(session)
    return session.commit("theirs")


def fill(part: slice, value: float, path: str = "v") -> Callable[[Session], None]:
    def change(session: Session) -> None:
        zarr.open_array(session.store, path=path)[part] = value

    return change
