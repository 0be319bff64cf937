"""Compaction: the same data and the same history, in fewer layers and packs."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu

from arraystore import ConflictDetector, Repository, in_memory_storage
from arraystore._format.snapshot import checkpoint_key
from arraystore._maintenance import full_fold
from arraystore.errors import InvalidInputError, RefNotFoundError
from arraystore.storage import CountingStorage, Storage
from tests.commit.support import DistantStorage, keys, objects, rewrites_in
from tests.maintenance.worlds import (
    CHUNK,
    COLUMNS,
    LITTLE_PACKS,
    PADDED,
    KiB,
    Meanwhile,
    World,
    array,
    create,
    expire,
    layer_counts,
    packs_used,
    run_alone,
    tip_of,
    with_rows,
)
from tests.seams import context_of


def puts(storage: CountingStorage) -> int:
    counts = storage.counts
    return counts["put"] + counts["put_if_absent"] + counts["delete"]


def sizes(storage: Storage) -> dict[str, int]:
    return {info.key: info.size for info in objects(storage, "chunks/")}


# -- what it promises ---------------------------------------------------------------------------------------------


def test_layers_become_one_and_small_packs_become_few_and_no_snapshot_changes() -> None:
    world = with_rows(names=("a", "b"))
    history = list(world.repository.ancestry(branch="main"))
    assert len(layer_counts(world.storage)) == 32
    assert len(packs_used(world.storage)) == 32
    summary = world.repository.compact()
    assert summary.complete
    assert layer_counts(world.storage) == layer_counts(world.storage, "b") == [256]
    assert (summary.arrays, summary.arrays_folded, summary.arrays_left) == (2, 2, ())
    assert (summary.layers_before, summary.layers_after) == (64, 2)
    assert len(packs_used(world.storage)) == summary.packs_written == 512 // 128
    assert (summary.packs_before, summary.packs_rewritten) == (32, 32)
    assert summary.chunks_copied == 512
    assert 512 * (PADDED - 4) < summary.bytes_read < 512 * PADDED  # but for zeros behind the last one of a read
    assert summary.records == len(rewrites_in(world.storage))
    assert list(world.repository.ancestry(branch="main")) == history
    world.check(list(world.held))


def test_a_second_run_does_nothing() -> None:
    storage = CountingStorage(in_memory_storage())
    world = with_rows(storage)
    assert world.repository.compact().complete
    storage.reset()
    again = world.repository.compact()
    assert puts(storage) == 0
    assert again.complete
    assert (again.arrays_folded, again.packs_rewritten, again.bytes_written) == (0, 0, 0)


def test_a_repository_in_which_nothing_was_written_is_left_alone() -> None:
    storage = CountingStorage(in_memory_storage())
    repository = Repository.create(storage)
    storage.reset()
    assert repository.compact().complete
    assert puts(storage) == 0


def test_reading_a_column_takes_a_request_for_each_pack_in_place_of_each_chunk() -> None:
    storage = CountingStorage(in_memory_storage())
    world = with_rows(storage)

    def requests() -> int:
        distant = CountingStorage(DistantStorage(storage))
        store = Repository.open(distant).readonly_session("main").store
        found = array(zarr.open_group(store, mode="r"), "a")
        distant.reset()
        np.testing.assert_array_equal(found[:, :CHUNK], list(world.held.values())[-1]["a"][:, :CHUNK])
        return sum(operation == "get_ranges" for operation, _ in distant.log)

    before = requests()
    world.repository.compact()
    assert before >= 32
    assert requests() <= 8


def test_chunks_stand_in_their_packs_in_the_order_of_the_grid() -> None:
    world = create()
    for row in (7, 3, 31, 12, 0, 19, 25, 8, 4, 30):
        world.write_row(row)
    world.repository.compact()
    context = context_of(world.repository)
    (layer,) = tip_of(world.storage).state.nodes["a"].layers
    manifest = context.manifests.load_sync(layer)
    ids = [manifest.pack_id(int(source)) for source in manifest.source]
    places = list(zip(ids, manifest.offset.tolist(), strict=True))
    assert places == sorted(places)
    assert np.all(np.diff(manifest.numbers()) > 0)


def test_overwritten_and_deleted_chunks_are_left_out_of_the_newest_snapshot() -> None:
    world = with_rows(rows=16)

    def shrink_and_grow(group: zarr.Group, rng: np.random.Generator) -> None:
        found = array(group, "a")
        found.resize((8, COLUMNS * CHUNK))
        found.resize((32, COLUMNS * CHUNK))
        found[2:4] = rng.random((2, COLUMNS * CHUNK))

    world.write(shrink_and_grow)
    world.write_row(20)
    world.repository.compact()
    assert layer_counts(world.storage) == [9 * COLUMNS]
    world.check()


def test_an_array_of_which_all_chunks_were_deleted_has_no_layers() -> None:
    world = with_rows(rows=4)

    def clear(group: zarr.Group, _: np.random.Generator) -> None:
        array(group, "a").resize((0, COLUMNS * CHUNK))

    world.write(clear)
    world.repository.compact()
    assert layer_counts(world.storage) == []
    world.check()


def test_inlined_and_virtual_chunks_and_files_stay_as_they_are() -> None:
    files = in_memory_storage()
    files.put_sync("file", bytes(range(200)))
    world = World(in_memory_storage())
    repository = Repository.create(world.storage, authorize_virtual_chunk_access={"memory://files/": files})
    for row in range(12):
        session = repository.writable_session("main")
        group = zarr.open_group(session.store, mode="a")
        if "v" not in group:
            group.create_array("v", shape=(12, 8), chunks=(1, 1), dtype="i4", compressors=None, fill_value=-1)
        store = session.store
        store.set_sync(f"v/c/{row}/0", cpu.Buffer.from_bytes(np.int32(row).tobytes()))
        store.set_virtual_ref(f"v/c/{row}/1", "memory://files/file", offset=row * 4, length=4)
        store.set_sync("README", cpu.Buffer.from_bytes(b"%d" % row * 700))
        session.commit(f"{row}")
    repository.wait_for_maintenance()
    before = array(zarr.open_group(repository.readonly_session("main").store, mode="r"), "v")[:]
    chunks = set(keys(world.storage, "chunks/"))
    summary = repository.compact(min_live=0)
    assert summary.complete
    assert layer_counts(world.storage, "v") == [24]
    again = Repository.open(world.storage, authorize_virtual_chunk_access={"memory://files/": files})
    session = again.readonly_session("main")
    np.testing.assert_array_equal(array(zarr.open_group(session.store, mode="r"), "v")[:], before)
    assert session.store.get_sync("README").to_bytes() == b"11" * 700  # type: ignore[union-attr]
    assert set(keys(world.storage, "chunks/")) == chunks


def test_appended_chunks_which_are_shifted_are_folded_where_they_are() -> None:
    world = create()
    repository = world.repository
    sessions = [repository.writable_session("main") for _ in range(5)]
    for number, session in enumerate(sessions):
        session.append({"a": np.full((2, COLUMNS * CHUNK), float(number))}, "time")
    for session in sessions:
        session.commit("append", rebase_with=ConflictDetector())
    before = array(zarr.open_group(world.repository.readonly_session("main").store, mode="r"), "a")[:]
    world.repository.compact()
    assert layer_counts(world.storage) == [10 * COLUMNS]
    after = array(zarr.open_group(world.repository.readonly_session("main").store, mode="r"), "a")[:]
    np.testing.assert_array_equal(after, before)


# -- dead packs ---------------------------------------------------------------------------------------------------


def full_packs(names: tuple[str, ...] = ("a",)) -> World:
    """Create a repository with packs of 16 KiB, of which later commits overwrite three rows in four."""
    world = create(names=names, config=LITTLE_PACKS)

    def fill(group: zarr.Group, rng: np.random.Generator) -> None:
        for name in names:
            array(group, name)[:] = rng.random((32, COLUMNS * CHUNK))

    def overwrite(group: zarr.Group, rng: np.random.Generator) -> None:
        for name in names:
            for start in range(0, 32, 4):
                array(group, name)[start : start + 3] = rng.random((3, COLUMNS * CHUNK))

    world.write(fill)
    world.write(overwrite)
    world.write(lambda group, _: group.attrs.update(done=True))
    return world


def test_a_pack_that_an_older_snapshot_keeps_alive_is_not_copied() -> None:
    world = full_packs()
    before = packs_used(world.storage)
    summary = world.repository.compact()
    assert (summary.packs_rewritten, summary.chunks_copied) == (0, 0)
    assert packs_used(world.storage) == before


def test_a_pack_that_is_mostly_dead_once_snapshots_have_expired_is_given_up() -> None:
    world = full_packs()
    newest = list(world.held)[-1]
    old = set(packs_used(world.storage))
    expire(world.storage, 2)
    dry = world.repository.compact(dry_run=True)
    assert dry.packs_rewritten == 0  # the state that the expiry leaves as the oldest one still uses them
    expire(world.storage, 3)
    summary = world.repository.compact()
    assert summary.packs_rewritten == 8
    assert summary.chunks_copied == 8 * COLUMNS
    assert summary.dead_bytes == 24 * COLUMNS * PADDED
    left = packs_used(world.storage)
    assert len(left & old) == 6
    assert len(left - old) == 2
    world.check([newest])
    assert world.repository.compact().packs_rewritten == 0


def test_bytes_that_were_overwritten_before_their_commit_are_dead_at_once() -> None:
    world = create(config=LITTLE_PACKS)

    def twice(group: zarr.Group, rng: np.random.Generator) -> None:
        found = array(group, "a")
        for _ in range(3):
            found[:] = rng.random((32, COLUMNS * CHUNK))

    world.write(twice)
    total = sum(sizes(world.storage).values())
    summary = world.repository.compact(min_live=0.9)
    used = sum(sizes(world.storage)[key] for key in packs_used(world.storage))
    assert used == 256 * PADDED
    assert total >= used
    assert summary.complete
    world.check()


def test_a_lower_live_fraction_rewrites_less() -> None:
    world = full_packs()
    expire(world.storage, 3)
    assert world.repository.compact(dry_run=True, min_live=0.1).packs_rewritten == 0
    assert world.repository.compact(dry_run=True, min_live=0.5).packs_rewritten == 8
    assert world.repository.compact(dry_run=True, min_live=1.0).packs_rewritten == 8


@pytest.mark.parametrize("by", ["branch", "tag"])
def test_a_pack_that_another_branch_or_a_tag_keeps_is_not_copied(by: str) -> None:
    world = full_packs()
    old = list(world.held)[1]
    if by == "tag":
        world.repository.create_tag("v1", old)
    else:
        world.repository.create_branch("other", old)
    world.repository.expire_snapshots(datetime.now(UTC))
    summary = world.repository.compact()
    assert (summary.packs_rewritten, summary.complete) == (0, True)
    if by == "tag":
        world.repository.delete_tag("v1")
    else:
        world.repository.delete_branch("other")
    world.repository.expire_snapshots(datetime.now(UTC))
    assert world.repository.compact().packs_rewritten == 8
    world.check([])


def test_a_tag_that_is_deleted_and_collected_while_its_snapshot_is_looked_at_is_passed_over() -> None:
    world = full_packs()
    world.repository.create_tag("v1", list(world.held)[1])
    world.repository.expire_snapshots(datetime.now(UTC))
    world.repository.compact(min_live=0)
    (tag,) = run_alone(context_of(world.repository).repository_log.table()).tags.values()

    def forget() -> None:
        world.repository.delete_tag("v1")
        run_alone(world.storage.delete([checkpoint_key(tag.origin.checkpoint)]))

    storage = Meanwhile(world.storage, "get", checkpoint_key(tag.origin.checkpoint), forget)
    assert Repository.open(storage).compact().complete
    assert storage.happened
    world.check([])


def test_the_other_branch_may_be_compacted_and_shares_what_it_kept() -> None:
    world = full_packs()
    world.repository.create_branch("other", list(world.held)[1])
    before = packs_used(world.storage)
    summary = world.repository.compact(branch="other")
    assert (summary.packs_rewritten, summary.complete) == (0, True)
    assert packs_used(world.storage) == before
    world.check()


# -- dry runs and budgets -----------------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing_and_tells_what_would_be_done() -> None:
    storage = CountingStorage(in_memory_storage())
    world = with_rows(storage, names=("a", "b"))
    storage.reset()
    dry = world.repository.compact(dry_run=True)
    assert puts(storage) == 0
    assert dry.dry_run
    assert not dry.complete
    done = world.repository.compact()
    for name in ("arrays", "arrays_folded", "layers_before", "layers_after", "packs_before", "packs_rewritten"):
        assert getattr(dry, name) == getattr(done, name), name
    assert dry.packs_written == done.packs_written
    assert world.repository.compact(dry_run=True).complete


def test_runs_of_a_small_budget_do_together_what_one_run_does() -> None:
    world = with_rows()
    runs = 0
    while not (summary := world.repository.compact(max_bytes=128 * KiB)).complete:
        assert summary.bytes_read + summary.bytes_written <= 128 * KiB + 32 * KiB
        runs += 1
        world.check([])
        assert runs < 20
    assert runs >= 2
    assert layer_counts(world.storage) == [256]
    assert len(packs_used(world.storage)) <= 10
    world.check()


def test_a_run_without_time_does_nothing_and_says_so() -> None:
    storage = CountingStorage(in_memory_storage())
    world = with_rows(storage)
    storage.reset()
    assert not world.repository.compact(max_seconds=0).complete
    assert puts(storage) == 0


def test_a_run_whose_time_ends_while_it_copies_commits_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_rows()
    late = Meanwhile(world.storage, "get_ranges", "chunks/", lambda: None)
    repository = Repository.open(late)
    context = context_of(repository)
    clock = context.environment.now_us
    object.__setattr__(context.environment, "now_us", lambda: clock() + (10**12 if late.happened else 0))
    summary = repository.compact(max_seconds=1000)
    assert not summary.complete
    assert 0 < summary.chunks_copied < 256
    assert summary.packs_rewritten == 0
    world.check()
    assert world.repository.compact().complete
    world.check()


def test_no_more_is_read_before_it_is_written_than_may_be_in_flight() -> None:
    storage = CountingStorage(in_memory_storage())
    world = with_rows(storage)
    storage.reset()
    world.repository.compact()
    ahead = most = 0
    written = sizes(world.storage)
    for operation, key in storage.log:
        if operation == "get_ranges":
            ahead += COLUMNS * PADDED
        elif operation == "put" and key.startswith("chunks/"):
            ahead -= written[key]
        most = max(most, ahead)
    assert 0 < most <= 2 * 130 * PADDED


@pytest.mark.parametrize("wrong", [{"min_live": 1.5}, {"min_live": -0.1}, {"max_bytes": -1}, {"max_seconds": -1}])
def test_a_limit_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    world = create()
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        world.repository.compact(**wrong)  # type: ignore[arg-type]


def test_a_branch_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(RefNotFoundError, match="nowhere"):
        create().repository.compact(branch="nowhere")


# -- large arrays -------------------------------------------------------------------------------------------------


def test_an_array_of_many_manifests_is_folded_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_rows(names=("a", "b"), rows=24)
    world.write_row(3)
    monkeypatch.setattr(full_fold, "_AT_ONCE", 16)
    monkeypatch.setattr(full_fold, "to_manifests", _in_manifests_of(8))
    assert world.repository.compact().complete
    assert layer_counts(world.storage) == [8] * 24
    world.check()
    world.write_row(5)
    summary = world.repository.compact()
    assert (summary.layers_before, summary.layers_after) == (49, 48)
    world.check()


def test_little_layers_on_top_of_a_large_array_cost_the_manifests_that_they_reach_into(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = with_rows()
    monkeypatch.setattr(full_fold, "to_manifests", _in_manifests_of(8))
    world.repository.compact()
    before = {layer.id for layer in tip_of(world.storage).state.nodes["a"].layers}
    assert len(before) == 32
    world.write_row(5)
    world.repository.compact()
    after = {layer.id for layer in tip_of(world.storage).state.nodes["a"].layers}
    assert (len(after), len(after & before)) == (32, 31)
    world.check()


def test_an_array_of_more_references_than_fit_one_record_is_folded_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_rows()
    for row in (0, 9, 31):
        world.write_row(row)
    monkeypatch.setattr(full_fold, "_IN_WINDOW", 64)
    world.repository.compact()
    assert layer_counts(world.storage) == [64, 64, 64, 64, 24]
    world.check()


def test_an_array_that_is_scattered_over_too_many_manifests_is_left_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = CountingStorage(in_memory_storage())
    world = with_rows(storage)
    world.repository.compact(min_live=0)
    world.write_row(5)
    monkeypatch.setattr(full_fold, "to_manifests", _in_manifests_of(8))
    monkeypatch.setattr(full_fold, "LARGEST_EXCHANGE", 512)
    storage.reset()
    summary = world.repository.compact()
    assert summary.arrays_left == ("a",)
    assert puts(storage) == 0
    world.check()


def _in_manifests_of(limit: int):  # type: ignore[no-untyped-def]
    from arraystore._format.references import to_manifests

    return lambda references: to_manifests(references, limit)


# -- for programs that expect a commit ----------------------------------------------------------------------------


def test_rewrite_manifests_folds_and_makes_a_snapshot_with_a_message() -> None:
    world = with_rows()
    before = packs_used(world.storage)
    identifier = world.repository.rewrite_manifests("fold", branch="main", metadata={"by": "cron"})
    newest = next(iter(world.repository.ancestry(branch="main")))
    assert (newest.id, newest.message, newest.metadata) == (identifier, "fold", {"by": "cron"})
    world.held[identifier] = list(world.held.values())[-1]
    assert layer_counts(world.storage) == [256]
    assert packs_used(world.storage) == before
    world.check()


def test_rewrite_manifests_can_amend_the_newest_snapshot() -> None:
    world = with_rows(rows=10)
    parent = next(iter(world.repository.ancestry(branch="main"))).parent_id
    identifier = world.repository.rewrite_manifests("fold", branch="main", commit_method="amend")
    newest = next(iter(world.repository.ancestry(branch="main")))
    assert (newest.id, newest.message, newest.parent_id) == (identifier, "fold", parent)
    with pytest.raises(InvalidInputError, match="commit_method"):
        world.repository.rewrite_manifests("fold", branch="main", commit_method="other")  # type: ignore[arg-type]
