"""Histories that Icechunk has changed afterwards come over as it reads them: expired, amended, rearranged, reset."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import icechunk
import pytest
import zarr

from arraystore import ArrayStoreError, MemoryStorage, Repository, SnapshotNotFoundError, local_filesystem_storage
from arraystore.copying import import_icechunk
from tests.copying.icechunk_support import fill, held, new_icechunk, same
from tests.copying.support import contents, new_repository

EARLIER = datetime(2001, 1, 1, tzinfo=UTC)


def write(repo: icechunk.Repository, start: int, value: int, *, branch: str = "main", name: str = "a") -> str:
    """Commit two chunks of an array, and an attribute."""
    session = repo.writable_session(branch)
    array = zarr.open_group(session.store, mode="a").require_array(name, shape=(8,), chunks=(2,), dtype="i4")
    array[start : start + 4] = value
    array.attrs["value"] = value
    return session.commit(f"write {value}")


def imported(theirs: icechunk.Repository) -> Repository:
    """Import a repository and compare all of its branches."""
    storage = MemoryStorage()
    import_icechunk(theirs, storage)
    ours = Repository.open(storage)
    for branch in theirs.list_branches():
        same(theirs, ours, branch)
    for tag in theirs.list_tags():
        assert contents(ours.readonly_session(tag=tag)) == held(theirs, theirs.lookup_tag(tag))
    return ours


def test_pruned_snapshots_are_bridged() -> None:
    theirs = new_icechunk()
    write(theirs, 0, 1)
    kept = write(theirs, 2, 2)
    theirs.create_tag("kept", kept)
    theirs.create_branch("dev", kept)
    write(theirs, 4, 3)
    write(theirs, 4, 4, name="b")
    write(theirs, 0, 5, branch="dev")
    time.sleep(0.002)
    border = datetime.now(UTC)
    write(theirs, 2, 6)
    write(theirs, 0, 7, branch="dev")
    assert len(theirs.expire_snapshots(older_than=border)) >= 3
    write(theirs, 0, 8)
    ours = imported(theirs)
    assert [info.message for info in ours.ancestry(branch="main")][:3] == [
        "write 8",
        "write 6",
        "Repository initialized",
    ]


def test_a_repository_without_transaction_logs_is_imported_from_its_states(tmp_path: Path) -> None:
    theirs = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    fill(theirs, 3, 6)
    shutil.rmtree(tmp_path / "transactions")
    imported(icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path))))


def test_amended_rearranged_and_reset_histories_come_over_as_they_are_now() -> None:
    theirs = new_icechunk()
    write(theirs, 0, 1)
    session = theirs.writable_session("main")
    zarr.open_array(session.store, path="a")[6:] = 2
    session.amend("amended")
    group = theirs.writable_session("main")
    zarr.open_group(group.store, mode="a").create_group("g")
    group.commit("group")
    rearranged = theirs.rearrange_session("main")
    rearranged.move("/a", "/g/a")
    rearranged.commit("moved")
    shifted = theirs.writable_session("main")
    shifted.shift_array("/g/a", (1,))
    shifted.commit("shifted")
    here = theirs.lookup_branch("main")
    write(theirs, 0, 9)
    theirs.reset_branch("main", here)
    write(theirs, 0, 4)
    write(theirs, 2, 5, name="g/a")
    imported(theirs)


def test_a_tag_of_a_snapshot_on_no_branch_comes_over_and_other_such_snapshots_do_not() -> None:
    theirs = new_icechunk()
    write(theirs, 0, 1)
    flushed = []
    for value in (2, 3):
        session = theirs.writable_session("main")
        zarr.open_array(session.store, path="a")[:4] = value
        flushed.append(session.flush(f"flushed {value}"))
    theirs.create_tag("kept", flushed[0])
    ours = imported(theirs)
    assert ours.lookup_snapshot(flushed[0]).message == "flushed 2"
    with pytest.raises((SnapshotNotFoundError, ValueError)):
        ours.lookup_snapshot(flushed[1])


def test_a_time_finds_the_snapshot_that_the_branch_had_then() -> None:
    theirs = new_icechunk()
    for value in range(3):
        write(theirs, 0, value)
    storage = MemoryStorage()
    import_icechunk(theirs, storage)
    ours = Repository.open(storage)
    session = ours.writable_session("main")
    zarr.open_array(session.store, path="a")[:] = 7
    last = session.commit("written here")
    for info in theirs.ancestry(branch="main"):
        assert ours.readonly_session("main", as_of=info.written_at).snapshot_id == ours.lookup_snapshot(info.id).id
    assert ours.readonly_session("main", as_of=datetime.now(UTC)).snapshot_id == last
    with pytest.raises(SnapshotNotFoundError, match="or before"):
        ours.readonly_session("main", as_of=info.written_at - timedelta(microseconds=1))
    entries = [update for update in ours.ops_log() if update.kind.value == "NewCommit"]
    assert all(update.updated_at >= info.written_at for update in entries if update.updated_at is not None)


def test_a_time_finds_its_snapshot_in_long_imported_histories() -> None:
    ours = new_repository()
    start = datetime(2020, 1, 1, tzinfo=UTC)
    made = []
    for day in range(300):
        session = ours.writable_session("main")
        session.written = int((start + timedelta(days=day)).timestamp()) * 1_000_000
        made.append(session.commit(f"day {day}", {"arraystore.copied_from": f"{day:019}G"}, allow_empty=True))
    for day in (0, 1, 62, 63, 64, 65, 127, 128, 129, 191, 193, 255, 257, 299):
        for late in (timedelta(0), timedelta(hours=23)):
            session = ours.readonly_session("main", as_of=start + timedelta(days=day) + late)
            assert session.snapshot_id == made[day]
    assert [ours.lookup_snapshot(f"{day:019}G").id for day in (0, 100, 299)] == [made[day] for day in (0, 100, 299)]


def test_checksums_of_virtual_chunks_are_read_from_the_manifests(tmp_path: Path) -> None:
    source, place = tmp_path / "files", tmp_path / "ice"
    source.mkdir()
    file = source / "data.bin"
    file.write_bytes(bytes(range(100)))
    prefix = f"file://{source}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(source)))
    )
    theirs = icechunk.Repository.create(icechunk.local_filesystem_storage(str(place)), config)
    session = theirs.writable_session("main")
    zarr.create_array(session.store, name="other", shape=(4,), chunks=(1,), dtype="u1")[:] = 1
    zarr.create_array(session.store, name="v", shape=(4, 4), chunks=(1, 4), dtype="u1", compressors=None)
    checksums = {0: None, 1: '"an-etag"', 2: datetime.fromtimestamp(int(file.stat().st_mtime), UTC), 3: EARLIER}
    for row, checksum in checksums.items():
        session.store.set_virtual_ref(f"v/c/{row}/0", prefix + file.name, offset=row, length=4, checksum=checksum)
    session.commit("virtual")
    storage = MemoryStorage()
    report = import_icechunk(theirs, storage, files=local_filesystem_storage(place))
    assert (report.virtual, report.unchecked) == (4, 1)
    ours = Repository.open(storage, authorize_virtual_chunk_access={prefix: local_filesystem_storage(source)})
    array = zarr.open_array(ours.readonly_session("main").store, path="v", mode="r")
    assert [array[row].tolist() for row in (0, 2)] == [[0, 1, 2, 3], [2, 3, 4, 5]]
    for row in (1, 3):
        with pytest.raises(ArrayStoreError, match=r"data\.bin"):
            array[row]
