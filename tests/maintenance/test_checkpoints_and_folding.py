"""Checkpoints, history pages, hints and folding: functions of the log, written off everyone's critical path."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import zarr

from arraystore import Repository, Storage, in_memory_storage, local_filesystem_storage
from arraystore._format.ids import id_from_text
from arraystore._format.refs import Hint, decode_hint, encode_hint
from arraystore._format.snapshot import checkpoint_key
from arraystore._log.loading import load_checkpoint
from arraystore.errors import StorageError
from arraystore.storage import CountingStorage, Fault, FaultyStorage
from tests.commit.support import (
    ROWS,
    commit_number,
    commit_rows,
    commits_in,
    create_repository,
    delete,
    keys,
    layer_counts,
    number,
    objects,
    put,
    put_bytes,
    put_number,
    reopened,
    repository_at,
    rewrites_in,
    run_alone,
    size_of,
    tip_of,
    without_maintenance,
)
from tests.commit.workers import commit_64th
from tests.maintenance.model import now

HINT = "hints/main"


def _numbers(repository: Repository, last: int) -> list[int | None]:
    session = repository.readonly_session("main")
    return [number(session, row) for row in range(last + 2)]


def _kept(storage: Storage) -> list[int]:
    """Numbers of the records that have a checkpoint, one for each checkpoint."""
    ids = [key.removeprefix("snapshots/") for key in keys(storage, "snapshots/")]
    return sorted(run_alone(load_checkpoint(storage, id_from_text(text))).sequence for text in ids)


def _hint(storage: Storage) -> Hint:
    return decode_hint(HINT, storage.get_sync(HINT))


# -- size ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [4, 512])
def test_a_commit_of_one_chunk_takes_at_most_4_kib_with_everything_that_follows_from_it(chunk: int) -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    zarr.create_group(session.store).create_array("a", shape=(ROWS,), chunks=(1,), dtype="i4", compressors=None)
    session.commit("create a")
    random = np.random.default_rng(0)
    size = {}
    for count in range(1, 2001):
        session = repository.writable_session("main")
        put_bytes(session, int(random.integers(ROWS)), random.bytes(chunk))
        session.commit(f"commit {count} of somebody", {"run": count})
        if count % 500 == 0:
            repository.wait_for_maintenance()
            size[count] = size_of(storage)
    assert size[2000] <= 4096 * 2000
    assert size[2000] <= 2.3 * size[1000]  # linear, but for folding's logarithm


def test_the_number_of_layers_grows_with_the_logarithm_of_the_number_of_commits() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    most = {}
    for last in (250, 500, 1000, 2000):
        first = tip_of(repository).sequence
        for row in range(first, last):
            commit_number(repository, row, row)
            if tip_of(repository).sequence % 64 == 0:
                repository.wait_for_maintenance()
            most[last] = max(most.get(last, 0), len(layer_counts(tip_of(repository))))
    assert most[2000] <= 64 + 12
    assert most[2000] - most[1000] <= 4
    assert sum(layer_counts(tip_of(repository))) == len(commits_in(storage)) - 1


def test_arrays_too_many_for_one_record_are_all_folded() -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    group = zarr.create_group(session.store)
    names = [f"array{i}" for i in range(200)]
    for name in names:
        group.create_array(name, shape=(1000,), chunks=(1,), dtype="i4", compressors=None)
    session.commit("create")
    for row in range(1, 65):
        session = repository.writable_session("main")
        for name in names:
            put_number(session, row, row, name)
        session.commit(f"row {row}")
        repository.wait_for_maintenance()
    tip = reopened(storage)
    assert len(rewrites_in(storage)) > 1
    assert max(len(layer_counts(tip, name)) for name in names) < 16
    reader = Repository.open(storage).readonly_session("main")
    assert all(number(reader, row, name) == row for name in names for row in (1, 33, 64))


def test_a_fold_forgets_deletions_only_where_nothing_lies_below() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    session = repository.writable_session("main")
    for row in range(1000):
        put_number(session, row, row)
    session.commit("many rows below")
    for row in range(200):
        session = repository.writable_session("main")
        session.store.delete_sync(f"a/c/{row}")
        session.commit(f"delete {row}")
    repository.wait_for_maintenance()
    assert rewrites_in(storage)
    reader = Repository.open(storage).readonly_session("main")
    assert [row for row in range(1000) if number(reader, row) is None] == list(range(200))


# -- functions of the log -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lost", [("hints/",), ("history/",), ("snapshots/",), ("hints/", "history/"), ("hints/", "history/", "snapshots/")]
)
def test_a_repository_reads_the_same_without_what_maintenance_wrote(lost: tuple[str, ...]) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commit_rows(repository, 1, 200)
    repository.wait_for_maintenance()
    history = list(repository.ancestry(branch="main"))
    assert all(delete(storage, prefix) for prefix in lost)
    again = Repository.open(storage)
    assert _numbers(again, 200) == [None, *range(1, 201), None]
    assert list(again.ancestry(branch="main")) == history
    assert again.lookup_snapshot(history[100].id) == history[100]
    old = again.readonly_session(snapshot_id=history[100].id)
    assert (number(old, 100), number(old, 101)) == (100, None)
    commit_number(again, 201, 201)
    assert _numbers(Repository.open(storage), 201) == [None, *range(1, 202), None]


def test_a_missing_checkpoint_page_and_hint_are_written_by_a_later_commit() -> None:
    storage = in_memory_storage()
    repository_at(storage, 150)
    for prefix in ("hints/", "history/", "snapshots/"):
        delete(storage, prefix)
    repository = Repository.open(storage)
    commit_number(repository, 1, 1)
    repository.wait_for_maintenance()
    assert _kept(storage) == [128]
    assert _hint(storage).sequence == 128
    assert len(keys(storage, "history/")) == 2


def test_the_work_of_a_writer_that_died_before_its_checkpoint_is_done_by_the_next_one() -> None:
    storage = in_memory_storage()
    repository = without_maintenance(create_repository(storage))
    commit_rows(repository, 1, 100)
    assert keys(storage, "snapshots/") == []
    next_one = Repository.open(storage)
    commit_number(next_one, 101, 101)
    next_one.wait_for_maintenance()
    assert _kept(storage) == [64]
    assert _numbers(Repository.open(storage), 101) == [None, *range(1, 102), None]


def test_one_checkpoint_is_written_for_64_commits_whoever_and_however_many_write_them() -> None:
    storage = in_memory_storage()
    repositories = [create_repository(storage), *(Repository.open(storage) for _ in range(7))]
    for row in range(1, 300):
        repository = repositories[row % 8]
        commit_number(repository, row, row)
        repository.wait_for_maintenance()
    assert _kept(storage) == [64, 128, 192, 256]


def test_change_logs_that_a_reader_has_to_fetch_one_by_one_bring_a_checkpoint_early() -> None:
    storage = CountingStorage(in_memory_storage())
    repository = Repository.create(storage)
    for i in range(60):
        session = repository.writable_session("main")
        root = zarr.open_group(session.store, mode="a")
        root.create_array(f"array{i}", shape=(10,), chunks=(5,), dtype="i4", attributes={"units": "K", "number": i})
        session.commit(f"array {i}")
        repository.wait_for_maintenance()
    storage.reset()
    session = Repository.open(storage).readonly_session("main")
    assert len(session.base_tip.state.nodes) == 61
    assert sum(operation == "get" for operation, _ in storage.log) <= 6 + 8


def test_a_change_log_in_an_object_of_its_own_brings_a_checkpoint_at_once() -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    group = zarr.create_group(session.store)
    random = np.random.default_rng(0)
    for i in range(300):
        group.create_group(f"group{i}", attributes={"noise": random.bytes(1000).hex()})
    session.commit("large")
    repository.wait_for_maintenance()
    assert len(keys(storage, "transactions/")) == 1
    assert _kept(storage) == [1]
    assert delete(storage, "transactions/") == 1
    assert len(Repository.open(storage).readonly_session("main")._tip.state.nodes) == 301


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_process_of_multiprocessing_that_ends_after_its_commit_still_writes_the_checkpoint(
    tmp_path: Path, method: str
) -> None:
    storage = local_filesystem_storage(tmp_path / "repository")
    repository_at(storage, 63)
    process = multiprocessing.get_context(method).Process(target=commit_64th, args=(str(tmp_path / "repository"),))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert len(commits_in(storage)) == 64
    assert keys(storage, "snapshots/")


def test_a_program_that_ends_after_its_commit_still_writes_the_checkpoint(tmp_path: Path) -> None:
    storage = local_filesystem_storage(tmp_path / "repository", fsync=False)
    without_maintenance(create_repository(storage))
    commit_rows(without_maintenance(Repository.open(storage)), 1, 62)
    program = f"""
import arraystore, numpy, zarr
from arraystore.storage import LatencyStorage
storage = LatencyStorage(arraystore.local_filesystem_storage({str(tmp_path / "repository")!r}, fsync=False), 0, 0.1)
session = arraystore.Repository.open(storage).writable_session("main")
zarr.open_array(session.store, path="a")[63] = 63
session.commit("the 64th record")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert _kept(storage) == [64]


def test_maintenance_that_fails_leaves_the_commit_alone_and_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    inner = in_memory_storage()
    without_maintenance(repository_at(inner, 63))
    storage = FaultyStorage(inner, [Fault("put", "snapshots/*", times=2)])
    repository = Repository.open(storage)
    commit_number(repository, 63, 63)
    repository.wait_for_maintenance()
    assert "a later commit tries it again" in caplog.text
    assert _kept(storage) == []
    commit_rows(repository, 64, 80)
    repository.wait_for_maintenance()
    assert len(storage.injected) == 2
    assert _kept(storage) == [64]


# -- hints --------------------------------------------------------------------------------------------------------


def _garbage(_: Hint) -> bytes:
    return b"this is no hint"


def _empty(_: Hint) -> bytes:
    return b""


def _stale(_: Hint) -> bytes:
    return encode_hint(Hint(64, bytes(12)))


def _other_id(hint: Hint) -> bytes:
    return encode_hint(Hint(hint.sequence, bytes(range(12))))


def _other_sequence(hint: Hint) -> bytes:
    return encode_hint(Hint(hint.sequence - 7, hint.checkpoint))


def _future(hint: Hint) -> bytes:
    return encode_hint(Hint(hint.sequence + 1000, hint.checkpoint))


def _beyond_all_keys(hint: Hint) -> bytes:
    return encode_hint(Hint(10**15, hint.checkpoint))


@pytest.mark.parametrize("make", [_garbage, _empty, _stale, _other_id, _other_sequence, _future, _beyond_all_keys])
@pytest.mark.parametrize("distant", [False, True])
def test_a_hint_that_lies_breaks_nothing(make, distant: bool) -> None:  # type: ignore[no-untyped-def]
    storage = in_memory_storage()
    repository_at(storage, 150)
    put(storage, HINT, make(_hint(storage)))
    if distant:
        storage.cheap_probes = False
    repository = Repository.open(storage)
    assert tip_of(repository).sequence == 150
    assert _numbers(repository, 150) == [None, None, *range(2, 151), None]
    commit_number(repository, 151, 151)
    repository.wait_for_maintenance()
    assert len(commits_in(storage)) == 151
    assert number(Repository.open(storage).readonly_session("main"), 151) == 151


def test_a_hint_to_the_checkpoint_of_another_branch_is_ignored() -> None:
    storage = in_memory_storage()
    repository = repository_at(storage, 64)
    repository.create_branch("other", repository.lookup_branch("main"))
    for row in range(1000, 1065):
        commit_number(repository, row, row, "other")
    repository.wait_for_maintenance()
    put(storage, HINT, bytes(storage.get_sync("hints/other")))
    session = Repository.open(storage).readonly_session("main")
    assert (number(session, 1000), number(session, 64)) == (None, 64)


def test_a_damaged_checkpoint_costs_time_but_nothing_else() -> None:
    storage = in_memory_storage()
    repository_at(storage, 70)
    key = checkpoint_key(_hint(storage).checkpoint)
    put(storage, key, bytes(storage.get_sync(key))[:-9])
    assert _numbers(Repository.open(storage), 70) == [None, None, *range(2, 71), None]


def test_a_storage_that_fails_is_no_missing_hint() -> None:
    storage = in_memory_storage()
    repository_at(storage, 3)
    with pytest.raises(StorageError, match="on purpose"):
        Repository.open(FaultyStorage(storage, [Fault("get", HINT)]))


def test_records_are_read_in_the_same_way_after_folds_at_any_place() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commit_rows(repository, 1, 400)
    repository.wait_for_maintenance()
    folds = rewrites_in(storage)
    assert folds
    history = [info.message for info in Repository.open(storage).ancestry(branch="main")]
    assert history == [f"row {row}" for row in range(400, 0, -1)] + ["create a", "Repository initialized"]
    assert sum(info.size for info in objects(storage, "manifests/")) < 64 * 1024


def _empty_commits(repository: Repository, count: int) -> None:
    for _ in range(count):
        repository.writable_session("main").commit("nothing", allow_empty=True)
    repository.wait_for_maintenance()


def _forget(repository: Repository) -> int:
    """Let all but the newest snapshot expire, and collect; returns how many records went."""
    repository.expire_snapshots(now())
    return repository.garbage_collect(now(), record_grace=timedelta(0), nobody_writes=True).records_deleted


@pytest.mark.parametrize("missed", [0, 200], ids=["on time", "after checkpoints that were missed"])
def test_pages_of_4096_records_are_merged_where_the_oldest_ones_have_expired_and_are_collected(missed: int) -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage)
    _empty_commits(repository, 300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("arraystore._context.context.checkpoint_due", lambda _: False)
        _empty_commits(repository, missed)
    assert _forget(repository) > 250
    _empty_commits(repository, 100)
    assert repository.verify().findings == ()
    _empty_commits(repository, 4100 - 400 - missed)
    tip = repository.context.known_tip("main")
    assert tip is not None
    assert tip.state.checkpoint is not None
    assert tip.state.checkpoint.sequence == 4096
    assert [(page.level, page.index) for page in tip.state.pages] == [(2, 0)]
    assert repository.verify().findings == ()
    assert len(list(Repository.open(storage).ancestry(branch="main"))) == 4100 - 300 - missed + 2
