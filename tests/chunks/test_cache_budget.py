"""Budget of the caches of a process: what they hold together is bounded, and counted."""

from __future__ import annotations

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import arraystore
from arraystore import InvalidInputError, Repository, RepositoryConfig, in_memory_storage
from arraystore._chunks import cache_budget
from arraystore._chunks.cache_budget import PROCESS, CacheBudget
from arraystore._log.record_cache import RecordCache
from tests.commit.support import DistantStorage


def cache(budget: CacheBudget, entries: int, size: int, first: int = 0) -> RecordCache[int]:
    kept: RecordCache[int] = RecordCache({}, 1000, 1 << 40, budget)
    for number in range(first, first + entries):
        kept.put(number, number, size)
    return kept


def test_the_cache_that_holds_most_gives_way_and_small_ones_stay() -> None:
    budget = CacheBudget(100)
    small = cache(budget, 3, 10)
    large = cache(budget, 20, 10)
    assert budget.bytes == small.bytes + large.bytes <= 100
    assert len(small) == 3
    assert large.get(19) == 19, "the newest is kept"
    assert large.get(0) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60)), max_size=60), st.integers(0, 300))
def test_caches_together_hold_no_more_than_the_budget_and_one_entry_each(
    puts: list[tuple[int, int]], limit: int
) -> None:
    budget = CacheBudget(limit)
    caches: list[RecordCache[int]] = [RecordCache({}, 1000, 1 << 40, budget) for _ in range(4)]
    for number, (at, size) in enumerate(puts):
        caches[at].put(number, number, size)
        assert caches[at].get(number) == number
        assert budget.bytes == sum(each.bytes for each in caches)
        assert budget.bytes <= limit or all(len(each) <= 1 for each in caches)
    dropped = sum(each.usage.evictions for each in caches)
    assert budget.usage.evictions == dropped == len(puts) - sum(map(len, caches))


def test_a_cache_that_is_gone_counts_no_more() -> None:
    budget = CacheBudget(1000)
    kept, other = cache(budget, 5, 10), cache(budget, 5, 20)
    del other
    gc.collect()
    assert (budget.bytes, budget.usage.entries) == (kept.bytes, 1) == (50, 1)


def test_threads_keep_the_account() -> None:
    budget = CacheBudget(500)
    caches: list[RecordCache[int]] = [RecordCache({}, 1000, 1 << 40, budget) for _ in range(4)]
    start = threading.Barrier(4)

    def work(at: int) -> None:
        start.wait()
        for number in range(300):
            caches[(at + number) % 4].put(1000 * at + number, number, number % 17 + 1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    budget.settle()
    assert budget.bytes == sum(each.bytes for each in caches) <= 500
    for each in caches:
        each.clear()
    assert budget.bytes == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_counts_though_the_lock_was_held() -> None:
    budget = CacheBudget(100)
    kept = cache(budget, 4, 10)
    with budget._lock, budget._settling:
        child = os.fork()
        if not child:
            kept.put(99, 99, 90)
            os._exit(0 if budget.bytes == kept.bytes <= 100 else 1)
    assert os.waitpid(child, 0)[1] == 0


def repository() -> Repository:
    storage = DistantStorage(in_memory_storage())
    config = RepositoryConfig(inline_chunk_threshold_bytes=0)
    session = Repository.create(storage, config).writable_session("main")
    zarr.create_array(session.store, name="x", data=np.arange(40_000), chunks=(1000,), compressors=None)
    session.commit("numbers")
    return Repository.open(storage, config)


def read(repo: Repository) -> None:
    array = zarr.open_array(repo.readonly_session("main").store, path="x", mode="r")
    for at in range(39_500, 0, -2000):  # backwards, so that nothing is read ahead: twenty blocks
        assert array[at] == at


def test_all_repositories_of_a_process_share_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    monkeypatch.setattr(PROCESS, "limit", PROCESS.limit)
    repos = [repository() for _ in range(4)]
    for repo in repos:
        read(repo)
    held = repos[0].cache_stats().process.bytes
    assert held >= sum(repo.cache_stats().chunks.bytes for repo in repos) > 4 * 20 * 8000
    arraystore.limit_caches(held // 2)
    figures = repos[0].cache_stats().process
    assert figures.bytes <= figures.limit == held // 2
    assert figures.evictions > 0
    for repo in repos:
        read(repo)
        assert repo.cache_stats().process.bytes <= held // 2


@pytest.mark.parametrize("wrong", [-1, True, 1.5, "1 GiB", None])
def test_a_limit_is_an_integer_of_bytes(wrong: object) -> None:
    with pytest.raises(InvalidInputError, match="max_bytes"):
        arraystore.limit_caches(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "limit"), [("", 1 << 30), ("12345", 12345), ("much", 1 << 30)])
def test_the_environment_sets_the_limit(text: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRAYSTORE_CACHE_BYTES", text)
    assert cache_budget._initial() == limit
