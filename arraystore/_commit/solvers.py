"""Solvers decide what becomes of conflicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from arraystore._conflicts import Conflict, ConflictType, VersionSelection
from arraystore.errors import InvalidInputError

S = TypeVar("S")


@dataclass(frozen=True)
class Versions(Generic[S]):
    """The three versions that a solver may look into; nothing is read unless it does.

    Parameters
    ----------
    base
        A session that reads what our session was based on.
    ours
        One that reads what our session holds, changes included.
    theirs
        One that reads the newest snapshot of the branch.
    """

    base: S
    ours: S
    theirs: S


@dataclass(frozen=True)
class Solution:
    """Decision about a conflict.

    Parameters
    ----------
    selection
        Whose version counts where nothing merged is given.
    chunks
        Merged chunks by grid coordinates: encoded bytes, or an array of a whole chunk's values, which is encoded as
        the array's metadata says.
    metadata
        A merged metadata document, as JSON values by the name of the document (``zarr.json``).
    """

    selection: VersionSelection = VersionSelection.UseOurs
    chunks: Mapping[tuple[int, ...], bytes | npt.NDArray[Any]] = field(default_factory=dict)
    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class ConflictSolver(ABC):
    """Base class of solvers; write your own by overriding `solve`.

    An answer holds for one conflict.  If any conflict stays unsolved, nothing is committed.
    """

    @abstractmethod
    def solve(self, conflict: Conflict, versions: Versions[Any]) -> Solution | VersionSelection | None:
        """Decide one conflict.

        Parameters
        ----------
        conflict
            What collides, and where.
        versions
            Read-only sessions of the base, of ours and of theirs: open arrays on their stores to compare values.

        Returns
        -------
        Solution, VersionSelection or None
            Whose version counts, or a merged one; None or ``Fail`` leaves the conflict unsolved.
        """


class ConflictDetector(ConflictSolver):
    """Solves nothing: changes that do not collide are rebased, any conflict stops the commit."""

    def solve(self, conflict: Conflict, versions: Versions[Any]) -> None:
        """Leave every conflict unsolved."""


class BasicConflictSolver(ConflictSolver):
    """Solves what can be solved by choosing a side.

    Parameters
    ----------
    on_chunk_conflict
        Whose version counts of a chunk that both wrote.  Where one side has let the array grow into it, the part that
        is new is that side's in any case.
    fail_on_delete_of_updated_array
        Whether deleting an array that theirs changed is a conflict; otherwise it is deleted.
    fail_on_delete_of_updated_group
        The same for a group; what theirs has put into it is deleted with it.
    """

    def __init__(
        self,
        *,
        on_chunk_conflict: VersionSelection = VersionSelection.UseOurs,
        fail_on_delete_of_updated_array: bool = False,
        fail_on_delete_of_updated_group: bool = False,
    ) -> None:
        self.on_chunk_conflict = VersionSelection(on_chunk_conflict)
        self.fail_on_delete_of_updated_array = fail_on_delete_of_updated_array
        self.fail_on_delete_of_updated_group = fail_on_delete_of_updated_group

    def solve(self, conflict: Conflict, versions: Versions[Any]) -> VersionSelection:
        """Choose a side as the parameters say; what they do not speak of stays unsolved."""
        fail, delete = VersionSelection.Fail, VersionSelection.UseOurs
        choices = {
            ConflictType.ChunkDoubleUpdate: self.on_chunk_conflict,
            ConflictType.DeleteOfUpdatedArray: fail if self.fail_on_delete_of_updated_array else delete,
            ConflictType.DeleteOfUpdatedGroup: fail if self.fail_on_delete_of_updated_group else delete,
            ConflictType.DeleteOfDeletedNode: delete,
        }
        return choices.get(conflict.conflict_type, fail)


def check_solver(solver: Any) -> None:
    """Check that something is a solver, or None; raises `InvalidInputError`."""
    if solver is not None and not isinstance(solver, ConflictSolver):
        raise InvalidInputError(
            f"{solver!r} is not a valid ConflictSolver: pass ConflictDetector(), BasicConflictSolver(), or an instance "
            "of your own subclass of ConflictSolver"
        )


def answer_of(answer: Any) -> Solution | None:
    """Return a solver's answer as a solution, None for unsolved; raises `TypeError` for anything else."""
    if answer is None or answer is VersionSelection.Fail:
        return None
    if isinstance(answer, VersionSelection):
        return Solution(answer)
    if not isinstance(answer, Solution):
        raise TypeError(f"a solver must return a Solution, a VersionSelection or None, not {type(answer).__name__}")
    if answer.selection is VersionSelection.Fail:
        return None
    for coords, value in answer.chunks.items():
        if not isinstance(coords, tuple) or not isinstance(value, bytes | np.ndarray):
            raise TypeError("merged chunks must be bytes or arrays, by tuples of grid coordinates")
    return answer
