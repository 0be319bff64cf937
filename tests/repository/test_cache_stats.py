"""Figures of the caches that a repository has in a process."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import zarr

from arraystore import CacheUsage, Repository, RepositoryConfig, in_memory_storage
from tests.commit.support import DistantStorage


def repository(**settings: int) -> Repository:
    """Return a repository on a storage that is worth caching, with an array in packs."""
    storage = DistantStorage(in_memory_storage())
    config = RepositoryConfig(inline_chunk_threshold_bytes=0, **settings)
    session = Repository.create(storage, config).writable_session("main")
    for name in ("x", "y"):
        zarr.create_array(session.store, name=name, data=np.arange(40_000), chunks=(1000,), compressors=None)
    session.commit("numbers")
    return Repository.open(storage, config)


def read(opened: Repository, name: str = "x") -> None:
    array = zarr.open_array(opened.readonly_session("main").store, path=name, mode="r")
    np.testing.assert_array_equal(array[:], np.arange(40_000))


def test_what_was_read_is_held_and_the_next_look_up_is_a_hit() -> None:
    opened = repository()
    assert (opened.cache_stats().manifests, opened.cache_stats().chunks.entries) == (CacheUsage(limit=256 << 20), 0)
    read(opened)
    first = opened.cache_stats()
    read(opened)
    second = opened.cache_stats()
    for usage, again in ((first.manifests, second.manifests), (first.chunks, second.chunks)):
        assert usage.entries > 0
        assert 0 < usage.bytes <= usage.limit
        assert usage.misses > 0
        assert (again.entries, again.bytes, again.misses) == (usage.entries, usage.bytes, usage.misses)
        assert again.hits > usage.hits
    assert first.records.entries > 0
    assert 0 < first.records.bytes <= first.records.limit <= 16 << 20


def test_what_is_dropped_to_make_room_counts_as_evicted_and_the_limit_holds() -> None:
    opened = repository(chunk_cache_bytes=330_000, manifest_cache_bytes=2_000)
    for _ in range(2):
        read(opened)
        read(opened, "y")
    figures = opened.cache_stats()
    assert figures.chunks.evictions > 0
    assert figures.chunks.bytes <= figures.chunks.limit == 330_000
    assert figures.manifests.evictions > 0
    assert figures.manifests.entries == 1


def test_figures_cost_no_request_and_cannot_be_changed() -> None:
    opened = repository()
    read(opened)
    with pytest.raises(FrozenInstanceError):
        opened.cache_stats().chunks.hits = 0  # type: ignore[misc]
    assert opened.cache_stats() == opened.cache_stats()
