"""What solvers choose, over all pairs of operations: whatever it is, the hierarchy stays valid and ours is done."""

from __future__ import annotations

from typing import Any

import pytest
import zarr
from zarr.errors import ZarrUserWarning

from arraystore import (
    BasicConflictSolver,
    Conflict,
    ConflictDetector,
    ConflictSolver,
    RebaseFailedError,
    Versions,
    VersionSelection,
)
from arraystore._session.session import Session
from tests.commit.bench import Bench, codes_of
from tests.commit.expected import expected
from tests.commit.model import check_valid, raw
from tests.commit.operations import (
    Operation,
    array_operations,
    hierarchy_operations,
    open_array,
    reading_operations,
)

pytestmark = pytest.mark.filterwarnings(
    f"ignore:Object at .* is not recognized as a component:{ZarrUserWarning.__module__}.{ZarrUserWarning.__name__}",
)

ALIKE = {"codecs", "names", "write2", "append½", "re-create empty", "nested group", "nested file", "file"}
"""Operations that collide as some other one does, as the table says."""
THEIRS = [o for o in [*array_operations("g/a"), *hierarchy_operations()] if o.name not in ALIKE]
OURS = [*THEIRS, *reading_operations("g/a")[:1]]
BY_NAME = {o.name: o for o in [*array_operations("g/a"), *hierarchy_operations()]}


class Always(ConflictSolver):
    """Chooses the same side always."""

    def __init__(self, selection: VersionSelection) -> None:
        self.selection = selection

    def solve(self, conflict: Conflict, versions: Versions[Any]) -> VersionSelection:
        return self.selection


class ByKind(ConflictSolver):
    """Keeps theirs of arrays and files, and ours of all else."""

    def solve(self, conflict: Conflict, versions: Versions[Any]) -> VersionSelection:
        of_array = "Array" in conflict.conflict_type.name or "Chunk" in conflict.conflict_type.name
        return VersionSelection.UseTheirs if of_array else VersionSelection.UseOurs


SOLVERS = {
    "by kind": ByKind(),
    "ours": Always(VersionSelection.UseOurs),
    "theirs": Always(VersionSelection.UseTheirs),
    "basic": BasicConflictSolver(),
}


@pytest.mark.parametrize("choice", SOLVERS)
@pytest.mark.parametrize("ours", OURS, ids=lambda operation: operation.name)
def test_whatever_a_solver_chooses_the_hierarchy_is_valid_or_nothing_has_happened(ours: Operation, choice: str) -> None:
    bench, problems = Bench(), []
    for number, theirs in enumerate(THEIRS):
        if not expected(ours.name, theirs.name):
            continue  # there is nothing to solve
        try:
            _check_choice(bench, ours, theirs, SOLVERS[choice], by_rebase=bool(number % 2))
        except Exception as error:  # noqa: BLE001 - all pairs are looked at, and all told of
            problems.append(f"{ours.name!r} after {theirs.name!r}: {type(error).__name__}: {error}")
    assert not problems, "\n".join(problems)


def _check_choice(bench: Bench, ours: Operation, theirs: Operation, solver: ConflictSolver, *, by_rebase: bool) -> None:
    pair = bench.open(ours, theirs)
    before = raw(pair.ours)
    pair.theirs.commit("theirs")
    try:
        if by_rebase:
            pair.ours.rebase(solver)
        pair.ours.commit("ours", rebase_with=solver, allow_empty=True)
    except RebaseFailedError:
        assert raw(pair.ours) == before, "our session has changed"
        assert raw(bench.fresh(pair.branch)) == raw(pair.theirs), "the branch is not what theirs made it"
        return
    fresh = bench.fresh(pair.branch)
    check_valid(fresh)
    assert raw(fresh) == raw(pair.ours), "our session and a fresh one differ"


INSIDE = [
    "delete",
    "re-create",
    "to group",
    "del empty",
    "del file",
    "attrs",
    "write",
    "append",
    "nested array",
    "nested file",
    "into empty",
    "sub attrs",
    "move sub",
    "move into",
]


@pytest.mark.parametrize("name", INSIDE)
def test_a_group_that_is_deleted_is_gone_whatever_theirs_has_done_in_it(name: str) -> None:
    bench = Bench()
    pair = bench.open(BY_NAME["del group"], BY_NAME[name])
    pair.theirs.commit("theirs")
    pair.ours.commit("ours", rebase_with=BasicConflictSolver())
    assert [key for key in raw(bench.fresh(pair.branch)) if key.startswith("g/")] == []


# -- chunks that are not there ------------------------------------------------------------------------------------


def _doing(change: Any) -> Operation:
    return Operation("a change", "", lambda session, _: change(session), lambda model, view, label: None)


def _values(session: Session) -> list[int]:
    return [int(value) for value in zarr.open_array(session.store, path="g/a", mode="r")[:]]


@pytest.mark.parametrize("name", ["new chunk", "write2"])
def test_what_is_cut_off_and_grown_again_collides_with_chunks_written_there(name: str) -> None:
    def shrink_and_grow(session: Session) -> None:
        open_array(session, "g/a").resize((4,))
        open_array(session, "g/a").resize((8,))

    bench = Bench()
    pair = bench.open(_doing(shrink_and_grow), BY_NAME[name])
    pair.theirs.commit("theirs")
    if name == "write2":  # it is not in the part that was cut off
        pair.ours.commit("ours", rebase_with=ConflictDetector())
        assert _values(bench.fresh(pair.branch)) == [10, 11, 2000, 2001, 0, 0, 0, 0]
        return
    with pytest.raises(RebaseFailedError):
        pair.ours.commit("ours", rebase_with=ConflictDetector())


@pytest.mark.parametrize("empty_chunks", [False, True])
def test_fill_values_written_where_no_chunk_is_are_written_for_those_who_come_later(empty_chunks: bool) -> None:
    def write_zeros(session: Session) -> None:
        with zarr.config.set({"array.write_empty_chunks": empty_chunks}):
            open_array(session, "g/a")[6:8] = 0

    bench = Bench()
    pair = bench.open(_doing(write_zeros), BY_NAME["new chunk"])
    pair.theirs.commit("theirs")
    with pytest.raises(RebaseFailedError) as caught:
        pair.ours.commit("ours", rebase_with=ConflictDetector())
    assert codes_of(caught.value.conflicts) == "C"
