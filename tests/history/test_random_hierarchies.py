"""Random hierarchies on two branches: whatever is reverted or cherry-picked, each node stays in its groups."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from arraystore import InvalidInputError, RebaseFailedError, Repository
from tests.commit.random_steps import play
from tests.commit.trees import find_orphans, repository_with_tree
from tests.tiers import mostly_thorough

HISTORIES = 25


def happens(rng: random.Random, repository: Repository, branch: str, snapshots: list[str]) -> str:
    """Commit something new, or undo or repeat a snapshot; tell which, or what refused it."""
    session, chance = repository.writable_session(branch), rng.random()
    if chance < 0.5 or not snapshots:
        play(rng, session, 3)
        snapshots.append(session.commit("new", allow_empty=True))
        return "committed"
    transplant = repository.revert if chance < 0.75 else repository.cherry_pick
    try:
        snapshots.append(transplant(rng.choice(snapshots), branch=branch))
    except (RebaseFailedError, InvalidInputError) as error:
        assert repository.lookup_branch(branch) == session.snapshot_id
        return type(error).__name__
    return transplant.__name__


@pytest.mark.parametrize("first", mostly_thorough([number * HISTORIES for number in range(20)]))
def test_what_is_reverted_and_picked_leaves_each_node_in_its_groups(first: int, long_run: bool) -> None:
    outcomes = Counter[str]()
    for seed in range(first, first + HISTORIES * (20 if long_run else 1)):
        rng, snapshots = random.Random(seed), list[str]()
        storage, repository = repository_with_tree()
        repository.create_branch("dev", repository.lookup_branch("main"))
        for _ in range(rng.randint(4, 10)):
            branch = rng.choice(["main", "dev"])
            outcomes[happens(rng, repository, branch, snapshots)] += 1
            assert find_orphans(storage, branch) == [], f"seed {seed}"
    assert min(outcomes[each] for each in ("revert", "cherry_pick", "RebaseFailedError")) >= 3, outcomes
