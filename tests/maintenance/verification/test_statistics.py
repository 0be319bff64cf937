"""Statistics say what is there: compared with listings and with what was written."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
import zarr

from arraystore import Repository, in_memory_storage
from arraystore.errors import InvalidInputError, RefNotFoundError
from arraystore.storage import CountingStorage
from tests.commit.support import create_repository, objects, size_of
from tests.maintenance.verification.support import SMALL, commit_all, create_arrays, long_repository, small_repository


def test_objects_are_those_of_a_listing() -> None:
    repository = long_repository(135)
    found = repository.statistics().objects
    for kind, prefix in (("packs", "chunks/"), ("manifests", "manifests/"), ("checkpoints", "snapshots/"),
                         ("history", "history/"), ("hints", "hints/"), ("records", "refs/")):  # fmt: skip
        infos = objects(repository.storage, prefix)
        assert (found[kind].count, found[kind].bytes) == (len(infos), sum(info.size for info in infos))
    repo = objects(repository.storage, "repo")[0]
    assert repository.statistics().total_bytes == size_of(repository.storage) - repo.size


def _written(rows: int) -> Repository:
    repository = Repository.create(in_memory_storage(), SMALL)
    session = repository.writable_session("main")
    zarr.create_group(session.store).create_array("a", shape=(64, 16), chunks=(1, 16), dtype="i4", compressors=None)
    zarr.open_array(session.store, path="a", mode="r+")[:rows] = 1
    session.commit("rows")
    return repository


def test_arrays_tell_their_chunks_bytes_and_layers() -> None:
    repository = _written(10)
    (array,) = repository.statistics().arrays
    assert (array.path, array.chunks, array.native_bytes, array.layers, array.references) == ("a", 10, 640, 1, 10)
    assert (array.virtual_bytes, array.inlined_bytes) == (0, 0)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+")[8:12] = 2
    session.commit("more")
    (array,) = repository.statistics().arrays
    assert (array.chunks, array.native_bytes, array.layers, array.references) == (12, 768, 2, 14)


def test_snapshots_tell_what_they_brought_in_and_what_they_share() -> None:
    repository = _written(10)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+")[20:25] = 2
    newest = session.commit("more")
    second, first = repository.statistics().snapshots
    assert second.id == newest
    assert (first.shared_bytes, second.shared_bytes) == (0, 640)
    assert first.unique_bytes >= 640
    assert 320 <= second.unique_bytes < 640
    assert [each.id for each in repository.statistics(limit=1).snapshots] == [newest]
    assert repository.statistics(limit=0).snapshots == ()


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_the_newest_snapshot_is_there_when_the_newest_record_is_no_commit(limit: int) -> None:
    repository = _written(10)
    repository.garbage_collect(datetime.now(UTC))
    (before,) = repository.statistics(limit=limit).snapshots
    assert before.unique_bytes >= 640
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+")[20:25] = 2
    newest = session.commit("more")
    repository.garbage_collect(datetime.now(UTC))
    repository.garbage_collect(datetime.now(UTC))
    found = repository.statistics(limit=limit).snapshots
    assert [each.id for each in found] == [newest, before.id][:limit]


def test_sums_of_what_snapshots_brought_in_are_the_packs() -> None:
    repository = Repository.create(in_memory_storage(), SMALL)
    session = repository.writable_session("main")
    create_arrays(session)
    session.commit("create")
    for number in range(80):
        commit_all(repository, number)
    repository.wait_for_maintenance()
    found = repository.statistics(limit=1000)
    assert len(found.snapshots) == 81
    packs = found.objects["packs"].bytes
    manifests = found.objects["manifests"].bytes
    assert packs <= sum(each.unique_bytes for each in found.snapshots) <= packs + manifests + 81 * 4 * 160


def test_packs_are_live_as_far_as_tips_and_tags_use_them() -> None:
    repository = _written(10)
    assert repository.statistics().packs.live_fraction == 1
    before = repository.lookup_branch("main")
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+")[:5] = 3
    session.commit("half of it")
    packs = repository.statistics().packs
    assert (packs.bytes, packs.live_bytes) == (720 + 360, 720)  # with checksums
    assert sum(packs.by_live_fraction) + packs.unused == packs.count
    repository.create_tag("before", before)
    assert repository.statistics().packs.live_fraction == 1
    repository.create_branch("copy", before)
    assert repository.statistics().packs.live_bytes == 1080


def test_the_rate_is_that_of_the_newest_snapshots() -> None:
    rate = small_repository().statistics(limit=4).rate
    assert (rate.snapshots, rate.last_hour, rate.last_day) == (4, 4, 4)
    assert rate.per_day is not None
    assert rate.per_day > 3


def test_requests_are_told_where_they_are_counted() -> None:
    storage = CountingStorage(in_memory_storage())
    repository = create_repository(storage)
    assert create_repository().statistics().requests is None
    requests = repository.statistics().requests
    assert requests is not None
    assert requests["get"] > 0


def test_statistics_take_requests_for_what_they_look_at_and_no_more() -> None:
    storage = CountingStorage(in_memory_storage())
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    group = zarr.create_group(session.store)
    group.create_array("a", shape=(4096,), chunks=(1,), dtype="f8", compressors=None)[:] = np.arange(4096)
    session.commit("many")
    storage.reset()
    Repository.open(storage).statistics(limit=1)
    free = ("list", "head")  # where asking costs next to nothing, lost records are looked for
    assert sum(operation not in free for operation, _ in storage.log) <= 8


def test_chunk_storage_counts_what_retained_snapshots_have() -> None:
    repository = _written(10)
    found = repository.chunk_storage_stats()
    assert (found.native_bytes, found.virtual_bytes, found.inlined_bytes) == (720, 0, 0)  # with checksums
    repository.storage.put_sync("chunks/00D1ZXH3M7PR7THQ5VAC", bytes(1000))  # of nobody
    assert repository.chunk_storage_stats() == found
    assert repository.total_chunks_storage() == found.non_virtual_bytes() == found.total_bytes() == 720
    assert repository.verify().leaks["packs"].bytes == 1000


def test_wrong_arguments_are_refused() -> None:
    repository = create_repository()
    with pytest.raises(InvalidInputError, match="limit"):
        repository.statistics(limit=-1)
    with pytest.raises(RefNotFoundError, match="nowhere"):
        repository.statistics(branch="nowhere")
    with pytest.raises(InvalidInputError, match="level"):
        repository.verify("everything")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="sample"):
        repository.verify("chunks", sample=-1)
