"""Runs pairs of operations for real: on one base, in a repository in memory, one branch a pair."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, Literal

from arraystore import Conflict, ConflictDetector, RebaseFailedError, Repository, in_memory_storage
from arraystore._session.session import Session
from tests.commit.expected import CODES
from tests.commit.model import Model, check_valid, contents_of, raw
from tests.commit.operations import Operation, base_model, build
from tests.commit.support import objects

Way = Literal["commit", "rebase", "group"]
NAMES = {kind: code for code, kind in CODES.items()}


@dataclass
class Pair:
    """Two sessions of one base that have done something; theirs goes first.

    Parameters
    ----------
    ours, theirs
        The sessions.
    branch
        To which both commit.
    conflicts
        What came of ours; none if it was committed.
    """

    ours: Session
    theirs: Session
    branch: str
    conflicts: tuple[Conflict, ...] = ()

    @property
    def codes(self) -> str:
        return codes_of(self.conflicts)


def codes_of(conflicts: Any) -> str:
    """Return the codes of conflicts, each once, in alphabetical order."""
    return " ".join(sorted({NAMES[conflict.conflict_type] for conflict in conflicts}))


_BRANCHES = 44
"""Branches that every bench begins with: most pairs need none of their own."""


@cache
def _beginning() -> tuple[dict[str, bytes], str]:
    """Return the objects of a repository with the base and some branches, made once a process, and the snapshot."""
    storage = in_memory_storage()
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    build(session, base_model())
    snapshot = session.commit("base")
    for number in range(_BRANCHES):
        repository.create_branch(f"pair-{number}", snapshot)
    repository.wait_for_maintenance()
    return {info.key: bytes(storage.get_sync(info.key)) for info in objects(storage)}, snapshot


class Bench:
    """A repository with the base."""

    def __init__(self) -> None:
        self.storage = in_memory_storage()
        beginning, self.snapshot = _beginning()
        for key, data in beginning.items():
            self.storage.put_sync(key, data)
        self.repository = Repository.open(self.storage)
        self.base = base_model()
        self._numbers = count()

    def pair(
        self, ours: Operation, theirs: Operation, way: Way = "commit", labels: tuple[str, str] = ("ours", "theirs")
    ) -> Pair:
        """Run both operations, then commit theirs, then ours."""
        found = self.open(ours, theirs, labels)
        found.conflicts = self._finish(found, way)
        return found

    def open(self, ours: Operation, theirs: Operation, labels: tuple[str, str] = ("ours", "theirs")) -> Pair:
        """Run both operations on a branch of its own."""
        number = next(self._numbers)
        branch = f"pair-{number}"
        if number >= _BRANCHES:
            self.repository.create_branch(branch, self.snapshot)
        found = Pair(self._session(branch, ours), self._session(branch, theirs), branch)
        ours.run(found.ours, labels[0])
        theirs.run(found.theirs, labels[1])
        return found

    def _session(self, branch: str, operation: Operation) -> Session:
        return self.repository.writable_session(branch, isolation=operation.isolation)  # type: ignore[arg-type]

    def _finish(self, pair: Pair, way: Way) -> tuple[Conflict, ...]:
        detector = ConflictDetector()
        if way == "group":
            return asyncio.run(_together(pair))
        pair.theirs.commit("theirs")
        try:
            if way == "rebase":
                pair.ours.rebase(detector)
                pair.ours.commit("ours")
            else:
                pair.ours.commit("ours", rebase_with=detector)
        except RebaseFailedError as error:
            return tuple(error.conflicts)
        return ()

    def fresh(self, branch: str) -> Session:
        """Open a branch by another repository object, which has nothing in memory."""
        return Repository.open(self.storage).readonly_session(branch)

    def model(self, *operations: tuple[Operation, str]) -> Model:
        """Return the base with operations applied, each as a session of the base meant it."""
        model = self.base.copy()
        for operation, label in operations:
            operation.happens(model, self.base, label)
        return model


async def _together(pair: Pair) -> tuple[Conflict, ...]:
    """Commit both at once; theirs is the first in the queue."""
    detector = ConflictDetector()
    theirs = asyncio.create_task(pair.theirs.commit_async("theirs", rebase_with=detector))
    ours = asyncio.create_task(pair.ours.commit_async("ours", rebase_with=detector))
    first, second = await asyncio.gather(theirs, ours, return_exceptions=True)
    if isinstance(first, BaseException):
        raise first
    if isinstance(second, RebaseFailedError):
        return tuple(second.conflicts)
    if isinstance(second, BaseException):
        raise second
    return ()


def check(session: Session, model: Model) -> None:
    """Check that a hierarchy is valid, and that zarr reads what a model says."""
    read, meant = contents_of(session), model.contents()
    for path in sorted(read.keys() | meant.keys()):
        assert read.get(path) == meant.get(path), f"{path!r} is {read.get(path)}, not {meant.get(path)}"
    assert sorted(raw(session)) == model.keys()
    check_valid(session, read)
