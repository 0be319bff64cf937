"""A compaction copies chunks into other packs: a diff over it still shows what was written, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import zarr

from arraystore import ConflictDetector, Diff, RebaseFailedError, Repository, in_memory_storage
from arraystore._format.ids import id_to_text
from arraystore._format.layer import Layer
from arraystore._format.manifest import encode_manifest
from arraystore._format.record import Record, Replacement, Rewrite, encode_body
from arraystore._format.references import to_manifests
from arraystore._history.compare import compare
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
        await repository.storage.put("chunks/" + id_to_text(pack), b"".join(chunks))
        offsets = np.cumsum(found.length) - found.length
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
