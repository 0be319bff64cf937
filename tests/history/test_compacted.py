"""A compaction copies chunks into other packs: a diff over it still shows what was written, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import zarr

from arraystore import (
    ConflictDetector,
    CountingStorage,
    Diff,
    InvalidInputError,
    RebaseFailedError,
    Repository,
    RepositoryConfig,
    in_memory_storage,
)
from arraystore._format.ids import PackId, id_to_text
from arraystore._format.layer import Layer
from arraystore._format.manifest import encode_manifest
from arraystore._format.pack import pack_seed, padded_size, trailer
from arraystore._format.record import Record, Replacement, Rewrite, encode_body
from arraystore._format.references import to_manifests
from arraystore._history.compare import compare
from arraystore._history.equal_chunks import batches
from arraystore._log.branch_log import BranchLog
from arraystore._log.spans import previous_bodies
from arraystore._repository.snapshots import load_snapshot
from arraystore._runtime import run
from tests.commit.support import DistantStorage, put_bytes, run_alone

ROWS = 40


def _put(repository: Repository, rows: range, value: int, branch: str = "main") -> str:
    session = repository.writable_session(branch)
    for row in rows:
        put_bytes(session, row, np.full(300, value * 1000 + row, dtype="<i4").tobytes())
    return session.commit(f"{value}")


def _flush(repository: Repository, rows: range, value: int, branch: str = "main") -> str:
    session = repository.writable_session(branch)
    for row in rows:
        put_bytes(session, row, np.full(300, value * 1000 + row, dtype="<i4").tobytes())
    return session.flush(f"{value}")


def _created() -> tuple[Repository, str]:
    """Make an array whose chunks are in many small packs."""
    repository = Repository.create(DistantStorage(in_memory_storage()))
    session = repository.writable_session("main")
    zarr.create_array(
        session.store,
        name="a",
        shape=(ROWS * 300,),
        chunks=(300,),
        dtype="i4",
        compressors=None,
        dimension_names=["time"],
    )
    session.commit("created")
    for row in range(0, ROWS, 4):
        first = _put(repository, range(row, row + 4), 1)
    repository.wait_for_maintenance()
    return repository, first


def _compact(repository: Repository, branch: str = "main") -> None:
    """Copy all chunks of a branch into one pack, and let a rewrite say so."""
    context = repository.context

    async def work() -> None:
        log, tip, pack = context.log(branch), await context.tip(branch), context.environment.new_id()
        node = tip.state.nodes["a"]
        found = await context.reader.present(node.layers)
        assert found is not None
        rows = zip(found.source.tolist(), found.offset.tolist(), found.length.tolist(), strict=True)
        keys = ["chunks/" + id_to_text(each) for each in found.packs]
        chunks = [(await repository.storage.get_ranges(keys[at], [(low, low + size)]))[0] for at, low, size in rows]
        sizes = padded_size(found.length)
        offsets = np.cumsum(sizes) - sizes
        placed = zip(offsets.tolist(), chunks, strict=True)
        framed = [bytes(chunk) + trailer(pack_seed(PackId(pack)), offset, chunk) for offset, chunk in placed]
        await repository.storage.put("chunks/" + id_to_text(pack), b"".join(framed))
        copied = replace(found, source=np.zeros_like(found.source), offset=offsets, packs=(pack,))
        (manifest,) = to_manifests(copied)
        new = context.environment.new_id()
        layer = Layer(new, manifest.box, manifest.count, inline=encode_manifest(manifest))
        run = Replacement(node.id, node.layers[0].id, node.layers[-1].id, len(node.layers), (layer,))
        number = tip.sequence + 1
        body = encode_body(number, Rewrite((run,), pack), branch)
        carried = previous_bodies(number, tip.bodies)
        assert carried is not None
        assert await log.append(Record(branch, number, body, (), carried))

    run_alone(work())


def _changed(diff: Diff) -> list[int]:
    coords = diff.updated_chunks.pop("/a", np.empty((0, 1), dtype=np.int64))
    diff.updated_arrays.discard("/a")
    assert diff.is_empty()
    return [row for (row,) in coords.tolist()]


def _both_ways(repository: Repository, first: str, last: str) -> list[int]:
    changed = _changed(repository.diff(from_snapshot_id=first, to_snapshot_id=last))
    assert _changed(repository.diff(from_snapshot_id=last, to_snapshot_id=first)) == changed
    return changed


def test_chunks_that_were_only_copied_have_not_changed() -> None:
    repository, first = _created()
    _compact(repository)
    last = _put(repository, range(3, 5), 2)
    assert _both_ways(repository, first, last) == [3, 4]
    assert _both_ways(repository, last, _put(repository, range(9, 11), 3)) == [9, 10]


def test_chunks_that_were_written_and_then_copied_have_changed() -> None:
    repository, first = _created()
    _put(repository, range(3, 5), 2)
    _compact(repository)
    assert _both_ways(repository, first, repository.lookup_branch("main")) == [3, 4]


def test_a_compaction_alone_changes_nothing() -> None:
    repository, first = _created()
    _compact(repository)
    session = repository.writable_session("main")
    last = session.commit("nothing", allow_empty=True)
    assert _both_ways(repository, first, last) == []


def _put_elsewhere(repository: Repository, array: str) -> None:
    session = repository.writable_session("main")
    if array not in zarr.open_group(session.store):
        zarr.create_array(session.store, name=array, shape=(ROWS,), chunks=(1,), dtype="i4", compressors=None)
    put_bytes(session, 0, b"\1\0\0\0", array)
    session.commit(f"{array} written")


@pytest.mark.parametrize("new", [False, True], ids=["to an array of before", "to a new array"])
def test_a_revert_passes_over_a_compaction_and_what_others_wrote_elsewhere(new: bool) -> None:
    repository, _ = _created()
    _put_elsewhere(repository, "b")
    undone = _put(repository, range(3, 5), 2)
    _put_elsewhere(repository, "c" if new else "b")
    _compact(repository)
    last = repository.lookup_branch("main")
    repository.revert(undone)
    assert _both_ways(repository, last, repository.lookup_branch("main")) == [3, 4]


def test_a_revert_over_a_compaction_conflicts_with_what_others_wrote_before_it() -> None:
    repository, _ = _created()
    undone = _put(repository, range(3, 5), 2)
    _put(repository, range(4, 6), 3)
    _compact(repository)
    with pytest.raises(RebaseFailedError) as caught:
        repository.revert(undone)
    chunks = [conflict.conflicted_chunks for conflict in caught.value.conflicts]
    assert [each.tolist() for each in chunks if each is not None] == [[[4]]]


def _picked_to_dev() -> tuple[Repository, str]:
    """Make a branch that has a snapshot of the other one, in packs of its own."""
    repository, first = _created()
    repository.create_branch("dev", first)
    snapshot = _put(repository, range(3, 5), 2)
    repository.cherry_pick(snapshot, branch="dev")
    _compact(repository, "dev")
    return repository, snapshot


def test_what_was_picked_and_then_copied_is_not_picked_again() -> None:
    repository, snapshot = _picked_to_dev()
    with pytest.raises(InvalidInputError, match="has already all that snapshot"):
        repository.cherry_pick(snapshot, branch="dev")


def test_an_array_that_was_picked_and_then_copied_is_not_picked_again() -> None:
    repository = Repository.create(in_memory_storage())
    repository.create_branch("dev", repository.lookup_branch("main"))
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", data=np.arange(ROWS * 300, dtype="i4"), chunks=(300,), compressors=None)
    snapshot = session.commit("an array")
    picked = repository.cherry_pick(snapshot, branch="dev")
    _compact(repository, "dev")
    with pytest.raises(InvalidInputError, match="has already all that snapshot"):
        repository.cherry_pick(snapshot, branch="dev")
    repository.revert(picked, branch="dev")
    repository.cherry_pick(snapshot, branch="dev")
    assert np.array_equal(zarr.open_array(repository.readonly_session("dev").store, path="a"), np.arange(ROWS * 300))


def test_what_both_branches_wrote_alike_is_no_conflict_and_the_rest_of_it_is_picked() -> None:
    repository, first = _created()
    repository.create_branch("dev", first)
    snapshot = _put(repository, range(3, 9), 2)
    _put(repository, range(3, 5), 2, "dev")
    before = repository.lookup_branch("dev")
    picked = repository.cherry_pick(snapshot, branch="dev")
    assert _both_ways(repository, before, picked) == [5, 6, 7, 8]


def test_what_both_branches_wrote_alike_is_compared_in_batches() -> None:
    repository, first = _created()
    repository.create_branch("dev", first)
    snapshot = _put(repository, range(ROWS), 2)
    _put(repository, range(ROWS), 2, "dev")
    with pytest.raises(InvalidInputError, match="has already all that snapshot"):
        repository.cherry_pick(snapshot, branch="dev")
    _put(repository, range(ROWS - 1, ROWS), 3, "dev")
    with pytest.raises(RebaseFailedError):
        repository.cherry_pick(snapshot, branch="dev")


def test_an_inlined_chunk_is_compared_with_one_in_a_pack() -> None:
    repository, first = _created()
    repository.create_branch("dev", first)
    snapshot = _put(repository, range(3, 4), 2)
    inlining = Repository.open(repository.storage, config=RepositoryConfig(inline_chunk_threshold_bytes=4096))
    _put(inlining, range(3, 4), 2, "dev")
    with pytest.raises(InvalidInputError, match="has already all that snapshot"):
        repository.cherry_pick(snapshot, branch="dev")
    _put(inlining, range(3, 4), 3, "dev")
    with pytest.raises(RebaseFailedError):
        repository.cherry_pick(snapshot, branch="dev")


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([], []),
        ([0], [(0, 1)]),
        ([1 << 30], [(0, 1)]),
        ([1] * 70, [(0, 1), (1, 33), (33, 65), (65, 70)]),
        ([10 << 20] * 6, [(0, 1), (1, 4), (4, 6)]),
        ([1, 1 << 30, 1], [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_batches_of_chunks_are_bounded_in_count_and_bytes(lengths: list[int], expected: list[tuple[int, int]]) -> None:
    found = batches(np.array(lengths, dtype=np.int64))
    assert [(each.start, each.stop) for each in found] == expected


def test_what_was_written_and_put_back_before_a_compaction_is_no_conflict() -> None:
    repository, first = _created()
    repository.create_branch("dev", first)
    snapshot = _put(repository, range(3, 5), 2)
    undone = _put(repository, range(3, 5), 3, "dev")
    repository.revert(undone, branch="dev")
    _compact(repository, "dev")
    before = repository.lookup_branch("dev")
    picked = repository.cherry_pick(snapshot, branch="dev")
    assert _both_ways(repository, before, picked) == [3, 4]


def test_an_array_whose_chunks_were_put_back_before_a_compaction_is_deleted() -> None:
    repository, first = _created()
    repository.create_branch("dev", first)
    with repository.transaction("main", message="deleted") as store:
        del zarr.open_group(store)["a"]
    undone = _put(repository, range(3, 5), 3, "dev")
    repository.revert(undone, branch="dev")
    _compact(repository, "dev")
    repository.cherry_pick(repository.lookup_branch("main"), branch="dev")
    assert "a" not in zarr.open_group(repository.readonly_session("dev").store, mode="r")


def test_an_array_that_was_written_to_is_not_deleted() -> None:
    repository, first = _created()
    repository.create_branch("dev", first)
    with repository.transaction("main", message="deleted") as store:
        del zarr.open_group(store)["a"]
    _put(repository, range(3, 5), 3, "dev")
    _compact(repository, "dev")
    with pytest.raises(RebaseFailedError):
        repository.cherry_pick(repository.lookup_branch("main"), branch="dev")


def test_what_was_picked_copied_and_written_again_is_a_conflict() -> None:
    repository, snapshot = _picked_to_dev()
    _put(repository, range(4, 5), 3, "dev")
    newest = repository.lookup_branch("dev")
    with pytest.raises(RebaseFailedError):
        repository.cherry_pick(snapshot, branch="dev")
    assert repository.lookup_branch("dev") == newest


@pytest.mark.parametrize("rows", [range(3, 5), range(ROWS)], ids=["two chunks", "all chunks"])
def test_of_chunks_that_differ_three_are_read(rows: range) -> None:
    repository, first = _created()
    repository.create_branch("dev", first)
    snapshot = _put(repository, rows, 2)
    _put(repository, rows, 3, "dev")
    repository.wait_for_maintenance()
    counting = CountingStorage(repository.storage)
    again = Repository.open(counting)
    counting.reset()
    with pytest.raises(RebaseFailedError):
        again.cherry_pick(snapshot, branch="dev")
    assert sum(key.startswith("chunks/") for _, key in counting.log) == 3


def test_branches_that_were_compacted_each_for_itself_differ_in_what_was_written_to_either() -> None:
    repository, first = _created()
    base = _put(repository, range(2), 2)
    repository.create_branch("dev", first)
    _compact(repository)
    _compact(repository, "dev")
    ours, theirs = _put(repository, range(20, 22), 3), _put(repository, range(30, 32), 4, "dev")
    assert _both_ways(repository, ours, theirs) == [0, 1, 20, 21, 30, 31]
    assert _both_ways(repository, base, theirs) == [0, 1, 30, 31]
    assert _both_ways(repository, first, theirs) == [30, 31]


def test_a_branch_that_was_put_back_differs_from_what_it_was_in_what_was_written() -> None:
    repository, first = _created()
    left = _put(repository, range(4), 2)
    repository.create_tag("left", left)
    _compact(repository)
    repository.reset_branch("main", first)
    _compact(repository)
    last = _put(repository, range(20, 22), 3)
    assert _both_ways(repository, left, last) == [0, 1, 2, 3, 20, 21]
    assert _both_ways(repository, first, last) == [20, 21]


def test_what_was_appended_is_found_where_it_ended_up() -> None:
    repository, first = _created()
    session, other = repository.writable_session("main"), repository.writable_session("main")
    session.append({"a": np.arange(300, dtype="i4")}, "time")
    other.append({"a": np.arange(300, dtype="i4")}, "time")
    session.commit("an append")
    other.rebase(ConflictDetector())
    middle = other.commit("an append after it")
    _compact(repository)
    last = _put(repository, range(ROWS + 1, ROWS + 2), 2)
    assert _both_ways(repository, first, last) == [ROWS, ROWS + 1]
    assert _both_ways(repository, middle, last) == [ROWS + 1]


def test_where_the_log_does_not_tell_any_more_what_was_copied_counts_as_changed() -> None:
    repository, first = _created()
    _compact(repository)
    last = _put(repository, range(3, 5), 2)
    before, after = (
        run_alone(load_snapshot(repository.context, snapshot_id=snapshot)).state for snapshot in (first, last)
    )
    empty = BranchLog(in_memory_storage(), bytes(12), "main", repository.context.environment)
    found = run_alone(compare(before, after, repository.context.manifests, lambda _: empty))
    assert [row for _, coords in found.chunks for (row,) in coords.tolist()] == list(range(ROWS))


@pytest.mark.parametrize("written", [1, 2])
def test_snapshots_of_one_record_are_told_apart(written: int) -> None:
    """Sessions of one process share records: what the last one wrote is no change of those before it."""
    repository, first = _created()
    sessions = [repository.writable_session("main") for _ in range(written + 1)]
    for row, session in enumerate(sessions):
        put_bytes(session, row, np.full(300, 7000 + row, dtype="<i4").tobytes())

    async def together() -> list[str]:
        return list(await asyncio.gather(*(s.commit_async("x", rebase_with=ConflictDetector()) for s in sessions)))

    ids = run(together())
    rows = {info.id: info for info in repository.ancestry(branch="main")}
    order = sorted(ids, key=lambda identifier: list(rows).index(identifier))[::-1]
    at = {identifier: ids.index(identifier) for identifier in order}
    _compact(repository)
    flushed, last = _flush(repository, range(20, 21), 4), _put(repository, range(20, 21), 3)
    for i, identifier in enumerate(order):
        for newer in (flushed, last):
            assert _both_ways(repository, identifier, newer) == sorted([*(at[later] for later in order[i + 1 :]), 20])
        assert _both_ways(repository, first, identifier) == sorted(at[earlier] for earlier in order[: i + 1])


# -- snapshots on no branch --------------------------------------------------------------------------------------------


def test_a_snapshot_on_no_branch_differs_from_those_before_a_compaction_in_what_was_written() -> None:
    repository, first = _created()
    middle = _put(repository, range(3, 5), 2)
    _compact(repository)
    flushed = _flush(repository, range(4, 6), 3)
    assert _both_ways(repository, middle, flushed) == [4, 5]
    assert _both_ways(repository, first, flushed) == [3, 4, 5]


def test_a_snapshot_on_no_branch_differs_from_those_after_a_compaction_in_what_was_written() -> None:
    repository, _ = _created()
    flushed, other = _flush(repository, range(4, 6), 3), _flush(repository, range(9, 11), 4)
    _compact(repository)
    last = _put(repository, range(5, 7), 5)
    assert _both_ways(repository, flushed, last) == [4, 5, 6]
    late = _flush(repository, range(20, 21), 6)
    assert _both_ways(repository, flushed, late) == [4, 5, 6, 20]
    assert _both_ways(repository, other, late) == [5, 6, 9, 10, 20]


def test_a_branch_that_begins_with_a_snapshot_on_no_branch_differs_in_what_was_written() -> None:
    repository, first = _created()
    _compact(repository)
    flushed = _flush(repository, range(4, 6), 3)
    repository.create_branch("dev", flushed)
    repository.create_tag("flushed", flushed)
    _compact(repository, "dev")
    last = _put(repository, range(9, 11), 4, "dev")
    assert _both_ways(repository, flushed, last) == [9, 10]
    assert _both_ways(repository, first, last) == [4, 5, 9, 10]
    assert _changed(repository.diff(from_snapshot_id=first, to_tag="flushed")) == [4, 5]
    repository.reset_branch("main", flushed)
    _compact(repository)
    assert _both_ways(repository, flushed, _put(repository, range(20, 21), 5)) == [20]
    assert _changed(repository.diff(from_branch="main", to_branch="dev")) == [9, 10, 20]


def test_a_snapshot_on_no_branch_that_deletes_and_creates_differs_in_what_was_written() -> None:
    repository, first = _created()
    _put_elsewhere(repository, "b")
    session = repository.writable_session("main")
    del zarr.open_group(session.store)["b"]
    put_bytes(session, 7, np.full(300, 7, dtype="<i4").tobytes())
    flushed = session.flush("without b")
    _compact(repository)
    _put_elsewhere(repository, "b")
    last = repository.lookup_branch("main")
    assert repository.diff(from_snapshot_id=flushed, to_snapshot_id=last).updated_chunks["/a"].tolist() == [[7]]
    assert _both_ways(repository, first, flushed) == [7]


@pytest.mark.parametrize("way", ["revert", "cherry_pick"])
def test_what_a_snapshot_on_no_branch_changed_is_undone_or_repeated_over_a_compaction(way: str) -> None:
    repository, _ = _created()
    _compact(repository)
    flushed = _flush(repository, range(4, 6), 3)
    repository.create_branch("dev", flushed)
    tip = _put(repository, range(6, 8), 4, "dev" if way == "revert" else "main")
    merged = repository.revert(flushed, branch="dev") if way == "revert" else repository.cherry_pick(flushed)
    assert _both_ways(repository, tip, merged) == [4, 5]
