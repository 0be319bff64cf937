"""Random histories beside a model of them, and what is left in the storage once all garbage is collected."""

from __future__ import annotations

import asyncio
import random

import pytest

from arraystore import CountingStorage, Repository, in_memory_storage
from arraystore._format.ids import id_to_text
from arraystore._format.record import Rewrite
from tests.commit.support import keys
from tests.history.worlds import commit, put, world
from tests.maintenance.model import Model, now, read_all

SEEDS = range(12)
STEPS = 30


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_each_kept_snapshot_reads_as_it_was_written_and_no_garbage_stays(
    seed: int, long_run: bool
) -> None:
    for number in range(seed, seed + (len(SEEDS) * 25 if long_run else 1), len(SEEDS)):
        model = Model(in_memory_storage(), random.Random(number))
        done = [model.step() for _ in range(STEPS)]
        model.check(model.repository)
        model.settle()
        model.check(model.repository)
        model.check()
        _check_nothing_is_left_over(model, done)


def _check_nothing_is_left_over(model: Model, done: list[str]) -> None:
    """Assert that there is no pack that reading all that is kept does not take.

    But for those that only entries of kept records name: of commits that others amended, and of rewrites after which
    others came before the next commit.
    """
    counting = CountingStorage(model.storage)
    repository = Repository.open(counting)
    for snapshot in model.kept():
        read_all(repository.readonly_session(snapshot_id=snapshot))
    read = {key for _, key in counting.log}
    left = set(keys(model.storage))
    packs = {key for key in left if key.startswith("chunks/")}
    assert packs <= read | model.packs_of_amended | _packs_of_rewrites(repository), done
    kinds = {"chunks", "snapshots", "manifests", "refs", "history", "hints", "repo", "collections", "transactions"}
    assert {key.split("/")[0] for key in left} <= kinds
    assert len([key for key in left if key.startswith("collections/")]) == 1


def _packs_of_rewrites(repository: Repository) -> set[str]:
    async def find() -> set[str]:
        context, found = repository.context, set[str]()
        for branch in (await context.repository_log.table()).branches:
            state = await context.newest_state(branch)
            span = await context.log(branch).span(state.life.expired + 1, state.sequence)
            for number, body in span.bodies.items():
                entry = context.log(branch).decode(number, body)
                if isinstance(entry, Rewrite):
                    packs = entry.packs or b""
                    found |= {f"chunks/{id_to_text(packs[at : at + 12])}" for at in range(0, len(packs), 12)}
        return found

    return asyncio.run(find())


@pytest.mark.parametrize("later", [1, 70])
def test_an_expiry_removes_nothing_younger_that_a_reset_branch_no_longer_shows(later: int) -> None:
    """Somebody may be about to create a branch there, and then shows what the expiry did not know of."""
    storage = in_memory_storage()
    repository = world(storage)
    commit(repository, put("g/a", 0, 1))
    old = repository.lookup_branch("main")
    moment = now()
    young = [commit(repository, put("g/a", 0, 2 + value)) for value in range(later)]
    repository.reset_branch("main", old)
    commit(repository, put("g/b", 0, 1))
    expired = Repository.open(storage).expire_snapshots(moment)
    assert old in expired
    repository = Repository.open(storage)
    repository.create_branch("three", young[-1])
    assert [info.id for info in repository.ancestry(branch="three")][:later] == young[::-1]
    assert repository.lookup_snapshot(young[0]).id == young[0]
    assert Repository.open(storage).expire_snapshots(now()) >= set(young[:-1])


def test_an_expiry_ends_where_what_is_younger_follows_a_reset_that_a_collection_has_taken() -> None:
    storage = in_memory_storage()
    repository = world(storage)
    old = commit(repository, put("g/a", 0, 1))
    repository.reset_branch("main", old)
    moment = now()
    commit(repository, put("g/a", 0, 2))
    repository.reset_branch("main", old)
    newest = commit(repository, put("g/b", 0, 1))
    Repository.open(storage).garbage_collect(now(), full=True)
    assert old in Repository.open(storage).expire_snapshots(moment)
    repository = Repository.open(storage)
    assert next(iter(repository.ancestry(branch="main"))).id == newest
    read_all(repository.readonly_session("main"))
    Repository.open(storage).garbage_collect(now(), full=True)
    read_all(Repository.open(storage).readonly_session("main"))
