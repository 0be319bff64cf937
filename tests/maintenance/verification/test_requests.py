"""What a verification asks of the storage, and what it tells on the way."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import zarr

from arraystore import Repository, RepositoryConfig, in_memory_storage
from arraystore.storage import CountingStorage
from tests.commit.support import keys, put
from tests.maintenance.verification.support import commit_all, copied, create_arrays, damage, missing, small_repository


def test_packs_are_held_against_a_listing_with_no_request_for_any_of_them() -> None:
    storage = CountingStorage(in_memory_storage())
    config = RepositoryConfig(own_object_threshold_bytes=256, inline_chunk_threshold_bytes=0)
    session = Repository.create(storage, config).writable_session("main")
    zarr.create_group(session.store).create_array("a", shape=(500, 64), chunks=(1, 64), dtype="i8", compressors=None)
    zarr.open_array(session.store, path="a", mode="r+")[:] = np.arange(500 * 64).reshape(500, 64) + 1
    session.commit("500 packs")
    assert len(keys(storage, "chunks/")) == 500
    repository = Repository.open(storage)
    repository.wait_for_maintenance()
    storage.reset()
    assert repository.verify().counts["packed_chunks"] == 500
    asked = Counter(operation for operation, _ in storage.log)
    assert asked["head"] == asked["get_ranges"] == asked["put"] == 0
    assert asked["get"] <= 12
    assert asked["list"] <= 24


def test_each_manifest_is_read_once_though_many_snapshots_and_branches_have_it() -> None:
    storage = CountingStorage(in_memory_storage())
    repository = Repository.create(storage, RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repository.writable_session("main")
    create_arrays(session)
    session.commit("create")
    for number in range(10):
        commit_all(repository, number)
    for number in range(3):
        repository.create_branch(f"branch {number}", repository.lookup_branch("main"))
    repository.wait_for_maintenance()
    fresh = Repository.open(storage)
    storage.reset()
    assert fresh.verify().ok
    read = Counter(key for operation, key in storage.log if operation == "get" and key.startswith("manifests/"))
    assert set(read.values()) <= {1}


def test_a_sample_reads_so_many_chunks() -> None:
    repository = small_repository()
    every = repository.verify("chunks").counts["chunks_read"]
    assert every > 30
    assert repository.verify("chunks", sample=30).counts["chunks_read"] == 30
    assert repository.verify("chunks", sample=10 * every).counts["chunks_read"] == every
    assert repository.verify("chunks", sample=0).counts.get("chunks_read", 0) == 0


def test_progress_is_told_from_the_listing_to_the_end() -> None:
    told: list[tuple[str, int, int | None]] = []
    small_repository().verify(progress=lambda stage, done, total: told.append((stage, done, total)))
    assert told[0] == ("listing", 0, None)
    assert ("branch main", 1, 2) in told
    assert told[-1] == ("done", 1, 1)


def test_a_report_is_told_as_text_and_as_json() -> None:
    storage = copied(small_repository().storage)
    key = keys(storage, "chunks/")[0]
    damage(storage, key, missing)
    put(storage, "notes/by-hand.txt", b"of nobody")
    report = Repository.open(storage).verify()
    told = json.loads(json.dumps(report.to_dict()))
    assert (told["ok"], told["level"]) == (False, "metadata")
    assert [finding["key"] for finding in told["findings"]] == [key]
    assert told["leaks"]["unknown"] == {"objects": 1, "bytes": 9}
    text = str(report)
    assert f"error: {key}: the pack does not exist" in text
    assert "snapshots: " in text
    assert "arrays: /" in text
    assert "repair: restore" in text
    assert text.endswith("1 errors, 0 warnings")
    assert str(small_repository().verify()).endswith("nothing is wrong")
