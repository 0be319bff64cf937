"""Every pair of operations, run for real: the verdict, the hierarchy and the data.

`ours` commits after `theirs`, from the same base.  Each test takes one operation of ours against all of theirs, and
tells of every pair that is not as it should be.  Beside that, a pair is either rebased first or committed at once, in
turn; with --long both.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from zarr.errors import ZarrUserWarning

from arraystore import ConflictDetector, RebaseFailedError
from arraystore._session.session import Session
from tests.commit.bench import Bench, Pair, check, codes_of
from tests.commit.expected import ROWS, expected
from tests.commit.matrix_page import PAGE, documented, part_of, rendered
from tests.commit.model import raw
from tests.commit.operations import (
    Operation,
    array_operations,
    hierarchy_operations,
    reading_operations,
)

pytestmark = pytest.mark.filterwarnings(
    # files, and groups that are there only as the beginning of a path, are no members
    f"ignore:Object at .* is not recognized as a component:{ZarrUserWarning.__module__}.{ZarrUserWarning.__name__}",
)

NESTED, TOP = "g/a", "a"
THEIRS = [*array_operations(NESTED), *hierarchy_operations()]
OURS = [*THEIRS, *reading_operations(NESTED)]
TOP_THEIRS = array_operations(TOP)
TOP_OURS = [*TOP_THEIRS, *reading_operations(TOP)[:2]]
APPENDS = {"append", "append½"}


def rows(operations: list[Operation]) -> list[Any]:
    """Return one parameter an operation; tests of one row go to one process, which runs a pair in order only once."""
    return [pytest.param(o, id=o.name, marks=pytest.mark.xdist_group(f"matrix {o.name}")) for o in operations]


one_of_ours = pytest.mark.parametrize("ours", rows(OURS))


@cache
def shared_bench() -> Bench:
    """Return the bench on which pairs are run that several tests compare with."""
    return Bench()


@cache
def in_order(ours: Operation, theirs: Operation) -> tuple[str, dict[str, bytes]]:
    """Return verdict and hierarchy of a pair that commits one after the other, and is as its model says."""
    return checked_pair(shared_bench(), ours, theirs)


class Problems:
    """Pairs that are not as they should be."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def of(self, ours: Operation, theirs: Operation) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - all pairs are looked at, and all told of
            self.lines.append(f"{ours.name!r} after {theirs.name!r}: {type(error).__name__}: {error}")

    def check(self) -> None:
        assert not self.lines, "\n".join(self.lines)


def against(ours: Operation, theirs: list[Operation], look: Callable[[Operation, Operation], object]) -> None:
    problems = Problems()
    for other in theirs:
        with problems.of(ours, other):
            look(ours, other)
    problems.check()


def half_of_theirs(ours: Operation, half: int, *, long_run: bool) -> list[Operation]:
    """Return every other operation of theirs, those that the other half leaves out; with --long all."""
    first = OURS.index(ours) + half
    return THEIRS if long_run else [other for number, other in enumerate(THEIRS, first) if number % 2]


def test_the_table_speaks_of_every_operation_and_of_no_other() -> None:
    names = {operation.name for operation in OURS}
    assert len(names) == len(OURS)
    assert ROWS.keys() == names
    assert {name for row in ROWS.values() for columns in row.values() for name in columns} <= {o.name for o in THEIRS}


@pytest.mark.parametrize("operation", [*OURS, *TOP_OURS], ids=lambda operation: operation.name)
def test_an_operation_alone_does_what_its_model_says(operation: Operation) -> None:
    bench = Bench()
    session = bench.repository.writable_session("main", isolation=operation.isolation)  # type: ignore[arg-type]
    operation.run(session, "ours")
    check(session, bench.model((operation, "ours")))
    session.commit("alone")
    check(bench.fresh("main"), bench.model((operation, "ours")))


# -- one after the other ------------------------------------------------------------------------------------------


@one_of_ours
def test_a_pair_commits_or_conflicts_as_the_table_says_and_its_data_are_what_both_meant(ours: Operation) -> None:
    against(ours, THEIRS, in_order)


@pytest.mark.parametrize("ours", TOP_OURS, ids=lambda operation: operation.name)
def test_an_array_of_the_root_group_behaves_as_one_of_any_other(ours: Operation) -> None:
    bench = Bench()
    against(ours, TOP_THEIRS, lambda mine, other: checked_pair(bench, mine, other))


def checked_pair(bench: Bench, ours: Operation, theirs: Operation) -> tuple[str, dict[str, bytes]]:
    """Commit a pair one after the other, check all of it, and return verdict and hierarchy."""
    pair = bench.open(ours, theirs)
    before = raw(pair.ours)
    pair.theirs.commit("theirs")
    result = raw(pair.theirs)
    try:
        pair.ours.commit("ours", rebase_with=ConflictDetector())
    except RebaseFailedError as error:
        pair.conflicts = tuple(error.conflicts)
    assert pair.codes == expected(ours.name, theirs.name)
    fresh = bench.fresh(pair.branch)
    found = raw(fresh)
    if pair.conflicts:
        assert {conflict.snapshot for conflict in pair.conflicts} == {pair.theirs.snapshot_id}
        assert bench.repository.lookup_branch(pair.branch) == pair.theirs.snapshot_id
        assert found == result, "the branch is not what theirs made it"
        assert raw(pair.ours) == before, "our session has changed"
        assert pair.ours.has_uncommitted_changes
    else:
        check(fresh, bench.model((theirs, "theirs"), (ours, "ours")))
        assert raw(pair.ours) == found, "our session and a fresh one differ"
        history = [info.message for info in bench.repository.ancestry(branch=pair.branch)]
        assert history[:3] == ["ours", "theirs", "base"]
    return pair.codes, found


@one_of_ours
def test_rebasing_and_then_committing_is_as_committing_with_a_solver(ours: Operation, long_run: bool) -> None:
    bench = Bench()

    def look(mine: Operation, other: Operation) -> None:
        pair = bench.open(mine, other)
        before = raw(pair.ours)
        pair.theirs.commit("theirs")
        try:
            pair.ours.rebase(ConflictDetector())
        except RebaseFailedError as error:
            pair.conflicts = tuple(error.conflicts)
            assert raw(pair.ours) == before, "our session has changed"
        assert pair.codes == expected(mine.name, other.name)
        if not pair.conflicts:
            rebased = raw(pair.ours)
            pair.ours.commit("ours")
            fresh = raw(bench.fresh(pair.branch))
            assert rebased == fresh, "the session showed something else than what it committed"
            assert fresh == in_order(mine, other)[1]

    against(ours, half_of_theirs(ours, 0, long_run=long_run), look)


# -- at once --------------------------------------------------------------------------------------------------------


@one_of_ours
def test_committing_both_at_once_is_as_committing_one_after_the_other(ours: Operation, long_run: bool) -> None:
    bench = Bench()

    def look(mine: Operation, other: Operation) -> None:
        pair = bench.pair(mine, other, "group")
        assert pair.codes == expected(mine.name, other.name)
        last = pair.theirs if pair.conflicts else pair.ours
        assert raw(bench.fresh(pair.branch)) == raw(last)
        if not pair.conflicts:
            assert raw(pair.ours) == in_order(mine, other)[1]

    against(ours, half_of_theirs(ours, 1, long_run=long_run), look)


@pytest.mark.parametrize("name", ["append", "write", "delete", "move", "array", "into empty", "move group"])
def test_committing_from_two_threads_gives_the_verdicts_of_one_of_the_two_orders(name: str) -> None:
    bench = Bench()
    ours = next(operation for operation in THEIRS if operation.name == name)

    def look(mine: Operation, other: Operation) -> None:
        pair = bench.open(mine, other)
        with ThreadPoolExecutor(2) as threads:
            second, first = threads.map(_commit, (pair.ours, pair.theirs))
        assert (first, second) in {("", expected(mine.name, other.name)), (expected(other.name, mine.name), "")}
        check_result(bench, pair, mine, other, first, second)

    against(ours, THEIRS, look)


def _commit(session: Session) -> str:
    try:
        asyncio.run(session.commit_async("at once", rebase_with=ConflictDetector()))
    except RebaseFailedError as error:
        return codes_of(error.conflicts)
    return ""


def check_result(bench: Bench, pair: Pair, ours: Operation, theirs: Operation, first: str, second: str) -> None:
    steps = {pair.theirs.snapshot_id: (theirs, "theirs"), pair.ours.snapshot_id: (ours, "ours")}
    committed = [info.id for info in bench.repository.ancestry(branch=pair.branch) if info.message == "at once"]
    assert len(committed) == 2 - bool(first) - bool(second)
    check(bench.fresh(pair.branch), bench.model(*[steps[snapshot] for snapshot in reversed(committed)]))


# -- both orders ----------------------------------------------------------------------------------------------------

ORDER_MATTERS = {frozenset({"nested file", "move group"})}
"""A file has no group that it belongs to: it goes along with a group that is moved, but stays if it came later."""


@pytest.mark.parametrize("ours", rows(THEIRS))
def test_pairs_that_commit_in_either_order_make_the_same_hierarchy_but_for_appends(ours: Operation) -> None:
    bench = Bench()

    def look(mine: Operation, other: Operation) -> None:
        names = frozenset({mine.name, other.name})
        if expected(mine.name, other.name) or expected(other.name, mine.name):
            return
        one = _parsed(in_order(mine, other)[1])
        two = _parsed(raw(bench.pair(other, mine, labels=("theirs", "ours")).ours))
        assert (one == two) is (names not in ORDER_MATTERS and not names <= APPENDS)

    against(ours, THEIRS, look)


def _parsed(found: dict[str, bytes]) -> dict[str, Any]:
    """Return values with metadata parsed: an append writes it anew, with other white space."""
    return {key: json.loads(value) if key.endswith("zarr.json") else value for key, value in found.items()}


# -- the page ---------------------------------------------------------------------------------------------------------


@one_of_ours
def test_the_page_shows_what_really_happens(ours: Operation) -> None:
    def look(mine: Operation, other: Operation) -> None:
        assert documented(mine.name, other.name) == in_order(mine, other)[0]

    against(ours, THEIRS, look)


def test_the_page_is_as_it_is_written_from_the_runs() -> None:
    # run `python -m tests.commit.matrix_page` to write it anew
    shown = rendered(lambda ours, theirs: documented(ours.name, theirs.name) or "")
    assert part_of(PAGE.read_text(encoding="utf-8")) == shown
