"""Random moves, creations and deletions in the same few groups, and solvers that answer anything.

Whatever is committed is a valid hierarchy: each node is in groups all the way up. Nothing but a conflict is raised.
"""

from __future__ import annotations

import random

import pytest

from arraystore import ConflictDetector, RebaseFailedError, Repository
from tests.commit.random_steps import Anything, Step, do, play, search
from tests.commit.rivals import latest
from tests.commit.trees import check_valid, repository_with_tree, tree_of
from tests.tiers import mostly_thorough

PROGRAMS = 40


def meet(rng: random.Random) -> str:
    """Let two writers change a hierarchy, and tell what came of the second one."""
    storage, repository = repository_with_tree()
    ours = repository.writable_session("main")
    mine = play(rng, ours, 6)
    others: list[Step] = []
    for _ in range(rng.randint(1, 2)):
        theirs = Repository.open(storage).writable_session("main")
        others += play(rng, theirs, 4)
        theirs.commit("theirs", allow_empty=True)
    seen, later = tree_of(latest(storage)), repository.writable_session("main")
    if not ours.has_uncommitted_changes:
        return "nothing"
    try:
        if rng.random() < 0.3:
            ours.rebase(ConflictDetector())
        ours.commit("ours", rebase_with=ConflictDetector())
    except RebaseFailedError:
        assert tree_of(latest(storage)) == seen
    else:
        check_valid(storage)
        if all(kind == "array" for kind, _, _ in others):  # what is elsewhere by now is another one in a second run
            for step in mine:
                do(later, step)
            assert tree_of(latest(storage)) == tree_of(later)
        return "rebased"
    try:
        ours.commit("ours", rebase_with=Anything(rng))
    except RebaseFailedError:
        assert tree_of(latest(storage)) == seen
        return "refused"
    check_valid(storage)
    return "solved"


@pytest.mark.parametrize("first", mostly_thorough([number * PROGRAMS for number in range(15)]))
def test_whatever_two_writers_do_to_a_hierarchy_and_a_solver_answers_it_stays_valid(first: int, long_run: bool) -> None:
    search(meet, range(first, first + PROGRAMS * (20 if long_run else 1)))
