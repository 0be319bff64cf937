"""What commits changed, row by row: as the snapshots differ, resumable, and said clearly where it cannot be told."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.core.buffer import cpu

from arraystore import (
    CountingStorage,
    InvalidInputError,
    RefNotFoundError,
    Repository,
    Session,
    SnapshotExpiredError,
    SnapshotNotFoundError,
    in_memory_storage,
)
from arraystore.spark.streams import change_feed_rows
from arraystore.spark.streams.change_feed import plan_changes
from arraystore.spark.streams.change_feed_history import HistoryStep, newest_step, slices, steps_between
from arraystore.spark.streams.change_feed_rows import ARROW_SCHEMA, batches_of, regions_of
from arraystore.spark.streams.change_feed_stream import ChangePartition, ChangeStreamReader
from arraystore.spark.streams.progress import note_batch

Row = dict[str, Any]


@pytest.fixture
def repo() -> Repository:
    return Repository.create(in_memory_storage())


def commit(repo: Repository, message: str, *changes: Any, branch: str = "main") -> str:
    session = repo.writable_session(branch)
    for change in changes:
        change(session)
    return session.commit(message, allow_empty=True)


def create(path: str, shape: tuple[int, ...] = (7, 4), chunks: tuple[int, ...] = (3, 2)) -> Any:
    return lambda session: zarr.create_array(session.store, name=path, shape=shape, chunks=chunks, dtype="i4")


def write(path: str, where: Any, value: int = 1) -> Any:
    def change(session: Session) -> None:
        zarr.open_array(session.store, path=path)[where] = value

    return change


def rows_between(
    repo: Repository, after: str | None, until: str | None = None, paths: Sequence[str] | None = None, tasks: int = 1
) -> list[Row]:
    shares = plan_changes(repo, "main", after, until, tasks)
    return [row for share in shares for batch in batches_of(repo, share, paths) for row in batch.to_pylist()]


def brief(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return sorted((row["change"], row["path"], tuple(row["chunk"] or ())) for row in rows)


# -- rows -------------------------------------------------------------------------------------------------------


def test_each_commit_is_told_with_its_chunks_and_where_they_lie(repo: Repository) -> None:
    first = commit(repo, "made", create("a"))
    second = commit(repo, "wrote", write("a", np.s_[2:4, 1]), write("a", np.s_[6, 3]))
    rows = rows_between(repo, first)
    assert {(r["snapshot_id"], r["parent_id"], r["message"]) for r in rows} == {(second, first, "wrote")}
    assert all(r["change"] == "chunk" and r["path"] == "/a" and r["old_path"] is None for r in rows)
    assert [(r["chunk"], r["region_start"], r["region_stop"]) for r in rows] == [
        ([0, 0], [0, 0], [3, 2]),
        ([1, 0], [3, 0], [6, 2]),
        ([2, 1], [6, 2], [7, 4]),
    ]
    (when,) = {r["committed_at"] for r in rows}
    assert abs((when - datetime.now(UTC)).total_seconds()) < 3600


def test_from_the_beginning_everything_is_created(repo: Repository) -> None:
    commit(repo, "made", create("g/a"), write("g/a", np.s_[0, 0]))
    rows = rows_between(repo, None)
    assert brief(rows) == [
        ("chunk", "/g/a", (0, 0)), ("created_array", "/g/a", ()),
        ("created_group", "/", ()), ("created_group", "/g", ()),
    ]  # fmt: skip
    (made,) = [row for row in rows if row["change"] == "created_array"]
    assert (made["chunk"], made["region_start"], made["region_stop"]) == (None, [0, 0], [7, 4])


def test_every_kind_of_change_has_its_name(repo: Repository) -> None:
    def put(key: str, value: bytes) -> Any:
        return lambda session: session.store.set_sync(key, cpu.Buffer.from_bytes(value))

    base = commit(repo, "base", create("a"), create("b"), create("g/c"), create("d"), put("f", b"1"), put("gone", b"1"))
    after = commit(
        repo, "all",
        lambda s: zarr.open_array(s.store, path="a").resize((9, 4)),
        lambda s: zarr.open_array(s.store, path="b").attrs.update(units="K"),
        lambda s: s.move("g", "h"), lambda s: s.store.delete_sync("d/zarr.json"), lambda s: s.store.delete_sync("gone"),
        put("f", b"2"), put("new", b"1"), lambda s: zarr.create_group(s.store, path="e"),
    )  # fmt: skip
    rows = rows_between(repo, base)
    assert {row["snapshot_id"] for row in rows} == {after}
    assert brief(rows) == [
        ("created_file", "/new", ()), ("created_group", "/e", ()), ("deleted_array", "/d", ()),
        ("deleted_file", "/gone", ()), ("moved", "/h", ()), ("resized", "/a", ()), ("updated_file", "/f", ()),
        ("updated_metadata", "/b", ()),
    ]  # fmt: skip
    told = {row["change"]: row for row in rows}
    assert told["moved"]["old_path"] == "/g"
    assert told["resized"]["region_stop"] == [9, 4]


def test_an_append_is_a_resize_and_the_new_chunks(repo: Repository) -> None:
    base = commit(repo, "made", create("a", (6, 4)), write("a", np.s_[:]))
    commit(repo, "grew", lambda s: zarr.open_array(s.store, path="a").append(np.ones((3, 4), "i4")))
    rows = brief(rows_between(repo, base))
    assert rows == [("chunk", "/a", (2, 0)), ("chunk", "/a", (2, 1)), ("resized", "/a", ())]


def test_an_array_that_is_resized_and_described_anew_says_both(repo: Repository) -> None:
    base = commit(repo, "made", create("a"))
    commit(repo, "both", lambda s: zarr.open_array(s.store, path="a").resize((9, 4)),
           lambda s: zarr.open_array(s.store, path="a").attrs.update(units="K"))  # fmt: skip
    assert [row[0] for row in brief(rows_between(repo, base))] == ["resized", "updated_metadata"]


def test_only_the_paths_that_are_asked_for_are_told(repo: Repository) -> None:
    base = commit(repo, "made", create("g/a"), create("g/ab"), create("b"))
    commit(repo, "wrote", *(write(path, np.s_[0, 0]) for path in ("g/a", "g/ab", "b")))
    commit(repo, "moved", lambda s: s.move("g/a", "c"))
    assert brief(rows_between(repo, base, paths=["/g/a/"])) == [("chunk", "/g/a", (0, 0)), ("moved", "/c", ())]
    assert brief(rows_between(repo, base, paths=["b", "nothing"])) == [("chunk", "/b", (0, 0))]
    assert len(rows_between(repo, base, paths=[""])) == 4


def test_what_the_library_keeps_for_itself_is_not_told(repo: Repository) -> None:
    base = commit(repo, "made", create("a"))
    commit(repo, "batch", lambda s: note_batch(s, "s", 0))
    assert rows_between(repo, base) == []


def test_chunks_of_any_number_come_in_bounded_batches_of_the_very_schema(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed_rows, "_ROWS", 100)
    commit(repo, "many", create("a", (700,), (2,)), create("b", (3, 4), (1, 1)), write("a", np.s_[:]), write("b", 1))
    (share,) = plan_changes(repo, "main", None, None, 1)
    batches = list(batches_of(repo, share, None))
    assert all(batch.schema == ARROW_SCHEMA for batch in batches)
    assert [batch.num_rows for batch in batches] == [100, 100, 100, 57]
    table = pa.Table.from_batches(batches)
    table.validate(full=True)
    rows = {path: [row for row in table.to_pylist() if row["path"] == path] for path in ("/a", "/b")}
    assert [row["chunk"] for row in rows["/a"]] == [None, *([number] for number in range(350))]
    assert [row["region_stop"] for row in rows["/a"]][1:] == [[number] for number in range(2, 701, 2)]
    assert [row["chunk"] for row in rows["/b"]] == [None, *([1, column] for column in range(4))]


def documents(shape: Sequence[int], grid: dict[str, Any]) -> dict[str, bytes]:
    encoding = {"name": "default", "configuration": {"separator": "/"}}
    value = {"zarr_format": 3, "node_type": "array", "shape": list(shape), "chunk_grid": grid,
             "chunk_key_encoding": encoding, "data_type": "int8", "fill_value": 0, "codecs": []}  # fmt: skip
    return {"zarr.json": json.dumps(value).encode()}


@given(st.integers(0, 40), st.integers(1, 9))
def test_regions_of_regular_chunks_are_what_slices_say(length: int, side: int) -> None:
    coords = np.arange(-(-length // side), dtype=np.int64)[:, None]
    start, stop = regions_of(documents([length], {"name": "regular", "configuration": {"chunk_shape": [side]}}), coords)
    items = list(range(length))
    assert [items[a:b] for (a,), (b,) in zip(start.tolist(), stop.tolist(), strict=True)] == [
        items[i : i + side] for i in range(0, length, side)
    ]


@given(st.lists(st.one_of(st.integers(1, 9), st.tuples(st.integers(1, 9), st.integers(1, 4)).map(list)), min_size=1))
def test_regions_of_chunks_of_any_sides_are_their_edges(runs: list[Any]) -> None:
    sides = [side for run in runs for side in ([run] if isinstance(run, int) else [run[0]] * run[1])]
    edges = np.concatenate(([0], np.cumsum(sides)))
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [runs]}}
    coords: npt.NDArray[np.int64] = np.arange(len(sides), dtype=np.int64)[:, None]
    start, stop = regions_of(documents([int(edges[-1])], grid), coords)
    assert start[:, 0].tolist() == edges[:-1].tolist()
    assert stop[:, 0].tolist() == edges[1:].tolist()


# -- history ----------------------------------------------------------------------------------------------------


def numbers(repo: Repository, count: int) -> list[str]:
    commit(repo, "made", create("a", (64,), (1,)))
    return [commit(repo, str(number), write("a", number % 64, number + 1)) for number in range(count)]


def test_the_feed_in_pieces_is_the_feed(repo: Repository) -> None:
    snapshots = numbers(repo, 9)
    whole = rows_between(repo, snapshots[0])
    assert [row["message"] for row in whole] == [str(number) for number in range(1, 9)]
    for cut in range(1, 8):
        pieces = rows_between(repo, snapshots[0], snapshots[cut]) + rows_between(repo, snapshots[cut])
        assert pieces == whole
    for tasks in (2, 3, 100):
        assert rows_between(repo, snapshots[0], tasks=tasks) == whole
    assert rows_between(repo, snapshots[-1]) == rows_between(repo, snapshots[3], snapshots[3]) == []


def test_the_plan_of_a_few_commits_costs_the_same_however_long_the_history_is() -> None:
    def requests(count: int) -> int:
        storage = CountingStorage(in_memory_storage())
        snapshots = numbers(Repository.create(storage), count)
        repo = Repository.open(storage)
        before = storage.counts
        assert len(steps_between(repo, "main", snapshots[-3], newest_step(repo, "main").snapshot)) == 2
        return (storage.counts - before).total

    assert requests(300) <= requests(20) + 6


def test_a_branch_that_was_reset_below_the_start_says_so(repo: Repository) -> None:
    snapshots = numbers(repo, 4)
    repo.reset_branch("main", snapshots[1])
    last = commit(repo, "other", write("a", 9))
    with pytest.raises(SnapshotNotFoundError, match=r"reset.*startingSnapshot") as caught:
        rows_between(repo, snapshots[3])
    assert not isinstance(caught.value, SnapshotExpiredError)
    with pytest.raises(SnapshotNotFoundError, match="reset"):
        rows_between(repo, None, snapshots[3])
    assert [row["message"] for row in rows_between(repo, snapshots[0])] == ["1", "other"]
    assert rows_between(repo, last) == []


def test_a_start_that_has_expired_or_never_was_says_so(repo: Repository) -> None:
    snapshots = numbers(repo, 5)
    repo.expire_snapshots(older_than=repo.lookup_snapshot(snapshots[3]).written_at)
    with pytest.raises(SnapshotExpiredError, match="startingSnapshot"):
        rows_between(repo, snapshots[1])
    with pytest.raises(SnapshotExpiredError):
        rows_between(repo, snapshots[4], snapshots[1])
    with pytest.raises(SnapshotExpiredError):
        rows_between(repo, "0" * 20)
    with pytest.raises(InvalidInputError, match="not a valid id"):
        rows_between(repo, "nonsense")
    kept = rows_between(repo, None)
    assert {row["snapshot_id"]: row["parent_id"] for row in kept}[snapshots[4]] == snapshots[3]
    of_oldest = {row["change"] for row in kept if row["snapshot_id"] == snapshots[3]}
    assert {row["snapshot_id"] for row in kept} == set(snapshots[3:])
    assert "created_array" in of_oldest  # what the expired ones have changed is told of the next one that is left


def test_a_branch_that_is_not_there_says_so(repo: Repository) -> None:
    with pytest.raises(RefNotFoundError, match="nobody"):
        plan_changes(repo, "nobody", None, None, 1)


@given(st.integers(0, 50), st.integers(1, 60))
def test_slices_are_neighbours_of_about_the_same_number(count: int, tasks: int) -> None:
    steps = [HistoryStep(str(number), None, number, 0, "") for number in range(count)]
    found = list(slices(steps, tasks))
    assert [step for part in found for step in part] == steps
    assert len(found) == min(count, tasks)
    assert all(found)
    assert max(map(len, found), default=0) - min(map(len, found), default=0) <= 1


# -- offsets of a stream ------------------------------------------------------------------------------------------


class Limit:
    """A limit of Spark's, as the reader gets it."""

    def __init__(self, max_files: int) -> None:
        self.max_files = max_files


def told(reader: ChangeStreamReader, start: Any, end: Any) -> list[str]:
    parts = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    copy: ChangeStreamReader = pickle.loads(pickle.dumps(reader))
    return [row["message"] for part in parts for batch in copy.read(part) for row in batch.to_pylist()]


def through_json(offset: Any) -> Any:
    return json.loads(json.dumps(offset))


def test_a_stream_reads_everything_once_in_batches_of_the_size_asked_for(repo: Repository) -> None:
    snapshots = numbers(repo, 7)
    reader = ChangeStreamReader(repo, "main", starting=snapshots[0], most=4)
    assert reader.getDefaultReadLimit().max_files == 4
    start, batches = reader.initialOffset(), []
    while (end := through_json(reader.latestOffset(start, Limit(4)))) != start:
        batches.append(told(reader, start, end))
        start = end
    assert batches == [["1", "2", "3", "4"], ["5", "6"]]
    commit(repo, "more", write("a", 60))
    end = reader.latestOffset(start, Limit(4))
    assert told(reader, start, end) == ["more"]
    assert reader.reportLatestOffset() == end


def test_a_stream_begins_where_it_is_told_to(repo: Repository) -> None:
    snapshots = numbers(repo, 3)
    latest = ChangeStreamReader(repo, "main", starting="latest")
    assert latest.latestOffset(latest.initialOffset(), None) == latest.initialOffset()
    earliest = ChangeStreamReader(repo)
    messages = told(earliest, earliest.initialOffset(), earliest.latestOffset(earliest.initialOffset(), None))
    assert list(dict.fromkeys(messages)) == ["made", "0", "1", "2"]
    assert earliest.initialOffset() == {"snapshot": "", "sequence": -1}
    assert latest.initialOffset()["snapshot"] == snapshots[-1]
    assert earliest.latestOffset() == latest.initialOffset()  # as older releases of Spark ask


def test_a_query_of_what_is_available_now_does_not_see_what_comes_later(repo: Repository) -> None:
    numbers(repo, 3)
    reader = ChangeStreamReader(repo)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    commit(repo, "later", write("a", 60))
    end = reader.latestOffset(start, None)
    assert told(reader, start, end)[-1] == "2"
    assert reader.latestOffset(end, None) == end


def test_a_batch_that_is_planned_is_read_again_the_same_after_a_reset(repo: Repository) -> None:
    snapshots = numbers(repo, 4)
    reader = ChangeStreamReader(repo, "main", starting=snapshots[0])
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    before = told(reader, start, end)
    repo.reset_branch("main", snapshots[0])
    assert told(reader, start, end) == before == ["1", "2", "3"]
    with pytest.raises(RuntimeError, match=r"ARRAYSTORE.*reset"):
        reader.latestOffset(end, None)


def test_partitions_hold_a_few_snapshots_each_and_nothing_is_nothing(repo: Repository) -> None:
    numbers(repo, 40)
    reader = ChangeStreamReader(repo)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, None))
    assert len(parts) == 3
    assert all(isinstance(part, ChangePartition) and len(part.steps) <= 16 for part in parts)
    assert reader.partitions(start, start) == []
    assert list(reader.read(None)) == []


@pytest.mark.parametrize("offset", [None, 7, [], {}, {"snapshot": 7}, {"value": "x"}])
def test_an_offset_of_something_else_is_refused(repo: Repository, offset: Any) -> None:
    with pytest.raises(RuntimeError, match="not an offset"):
        ChangeStreamReader(repo).partitions(offset, offset)
