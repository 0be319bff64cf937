"""An Icechunk repository comes over with its history, its branches and its tags."""

from __future__ import annotations

import random
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr

from arraystore import MemoryStorage, Repository, local_filesystem_storage
from arraystore._runtime import run
from arraystore.copying import CopyDivergedError, CopyError, CopyTargetError, import_icechunk
from arraystore.errors import ArrayStoreError, InvalidInputError, StorageError
from arraystore.storage import CountingStorage, Fault, FaultyStorage
from tests.copying.support import contents, new_repository, random_history


def new_icechunk() -> icechunk.Repository:
    return icechunk.Repository.create(icechunk.in_memory_storage())


def held(repo: icechunk.Repository, snapshot: str) -> dict[str, bytes]:
    """Return all keys and values of a snapshot."""
    from zarr.core.buffer import default_buffer_prototype

    async def read() -> dict[str, bytes]:
        store = (await repo.readonly_session_async(snapshot_id=snapshot)).store
        keys = [key async for key in store.list_prefix("")]
        values = [await store.get(key, default_buffer_prototype()) for key in keys]
        return {key: value.to_bytes() for key, value in zip(keys, values, strict=True) if value is not None}

    return run(read())


def step(session: icechunk.Session, rng: random.Random, number: int) -> None:
    root = zarr.open_group(session.store, mode="a")
    arrays = [name for name, _ in root.arrays()]
    choice = rng.choice(
        ["create", "write", "write", "write", "delete", "recreate", "resize", "attrs", "group", "erase"]
    )
    name = rng.choice(arrays) if arrays else ""
    if choice == "create" or not arrays:
        root.create_array(f"n{number}", shape=(12, 3), chunks=(2, 3), dtype="i4")[:5] = number
    elif choice == "write":
        low = rng.randrange(root[name].shape[0])
        root[name][low : low + 4] = rng.randrange(1, 100)
    elif choice == "erase":
        root[name][:3] = 0
    elif choice == "delete":
        del root[name]
    elif choice == "recreate":
        root.create_array(name, shape=(6,), chunks=(4,), dtype="u1", overwrite=True)[:2] = 1
    elif choice == "resize":
        shape = root[name].shape
        root[name].resize((max(1, shape[0] + rng.choice([-5, -3, 4])), *shape[1:]))
    elif choice == "attrs":
        root[name].attrs["number"] = number
    else:
        group = root.require_group("g/deep")
        group.attrs["n"] = number
        group.create_array(f"x{number}", data=np.float32(number))
        if rng.random() < 0.3:
            del root["g"]


def fill(repo: icechunk.Repository, seed: int, commits: int, branch: str = "main") -> list[str]:
    rng = random.Random(seed)
    made = []
    for number in range(commits):
        if (
            hasattr(repo, "rearrange_session")
            and number % 5 == 4
            and (names := [n for n, _ in zarr.open_group(repo.readonly_session(branch).store, mode="r").arrays()])
        ):
            session = repo.rearrange_session(branch)
            session.move(f"/{names[0]}", f"/moved{seed}_{number}")
        else:
            session = repo.writable_session(branch)
            for part in range(rng.randrange(1, 4)):
                step(session, rng, 1000 * seed + 10 * number + part)
        if not session.has_uncommitted_changes:  # not every release commits nothing
            root = zarr.open_group(session.store, mode="a")
            root.attrs["number"] = number
        made.append(session.commit(f"commit {number}", {"number": number}))
    return made


def same(theirs: icechunk.Repository, ours: Repository, branch: str) -> None:
    """Compare all snapshots of a branch."""
    originals, copies = list(theirs.ancestry(branch=branch))[:-1], list(ours.ancestry(branch=branch))[:-1]
    assert [info.message for info in originals] == [info.message for info in copies]
    for original, copy in zip(originals, copies, strict=True):
        assert copy.metadata == {
            **original.metadata,
            "arraystore.copied_from": original.id,
            "arraystore.written_at": original.written_at.isoformat(),
        }
        assert contents(ours.readonly_session(snapshot_id=copy.id)) == held(theirs, original.id), original.message


@pytest.mark.parametrize("seed", range(6))
def test_each_snapshot_of_an_import_holds_the_same_keys_and_bytes(seed: int) -> None:
    theirs, ours = new_icechunk(), new_repository()
    fill(theirs, seed, 12)
    report = import_icechunk(theirs, ours)
    same(theirs, ours, "main")
    assert (report.snapshots, report.known, report.branches) == (12, 0, {"main": ours.lookup_branch("main")})


def test_branches_share_the_snapshots_that_they_have_in_common_and_tags_name_theirs() -> None:
    theirs = new_icechunk()
    made = fill(theirs, 1, 5)
    theirs.create_branch("dev", made[2])
    dev = fill(theirs, 2, 3, "dev")
    theirs.create_branch("gone", dev[0])
    lost = fill(theirs, 3, 2, "gone")
    theirs.create_tag("shared", made[1])
    theirs.create_tag("lost", lost[1])
    theirs.create_tag("start", list(theirs.ancestry(branch="main"))[-1].id)
    theirs.delete_branch("gone")
    storage = MemoryStorage()
    report = import_icechunk(theirs, storage)
    ours = Repository.open(storage)
    same(theirs, ours, "main")
    same(theirs, ours, "dev")
    assert report.snapshots == 5 + 3 + 2
    assert ours.list_branches() == {"main", "dev"}
    assert ours.list_tags() == {"shared", "lost", "start"}
    for tag in ("shared", "lost", "start"):
        assert contents(ours.readonly_session(tag=tag)) == held(theirs, theirs.lookup_tag(tag))
    assert {info.id for info in ours.ancestry(branch="dev")} & {info.id for info in ours.ancestry(branch="main")}
    again = import_icechunk(theirs, ours)
    assert (again.snapshots, again.known, again.tags) == (0, 10, report.tags)


def test_a_second_import_takes_over_only_what_is_new() -> None:
    theirs, ours = new_icechunk(), new_repository()
    session = theirs.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(50,), chunks=(1,), dtype="i8")[:] = 1
    session.commit("fifty")
    assert import_icechunk(theirs, ours).chunks == 50
    session = theirs.writable_session("main")
    zarr.open_array(session.store, path="a")[7] = 9
    session.commit("one")
    theirs.create_branch("later", theirs.lookup_branch("main"))
    report = import_icechunk(theirs, ours)
    assert (report.snapshots, report.chunks, report.known) == (1, 1, 1)
    assert ours.lookup_branch("later") == ours.lookup_branch("main")
    same(theirs, ours, "main")


def test_only_the_branches_that_are_named_are_imported() -> None:
    theirs, ours = new_icechunk(), new_repository()
    made = fill(theirs, 1, 3)
    theirs.create_branch("dev", made[1])
    fill(theirs, 2, 1, "dev")
    import_icechunk(theirs, ours, branches=["dev"], tags=False)
    same(theirs, ours, "dev")
    assert len(list(ours.ancestry(branch="main"))) == 1
    with pytest.raises(InvalidInputError, match="no branch 'missing'"):
        import_icechunk(theirs, ours, branches=["missing"])


def test_virtual_chunks_stay_references(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(bytes(range(100)))
    prefix = f"file://{tmp_path}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(tmp_path)))
    )
    theirs = icechunk.Repository.create(
        icechunk.in_memory_storage(), config, authorize_virtual_chunk_access={prefix: None}
    )
    session = theirs.writable_session("main")
    zarr.create_array(session.store, name="v", shape=(5, 4), chunks=(1, 4), dtype="u1", compressors=None)[0] = 200
    for row in (1, 3):
        session.store.set_virtual_ref(f"v/c/{row}/0", prefix + "data.bin", offset=10 * row, length=4)
    session.commit("virtual")
    session = theirs.writable_session("main")
    session.store.set_virtual_ref("v/c/4/0", prefix + "data.bin", offset=40, length=4)
    session.commit("one more")
    storage = MemoryStorage()
    if not hasattr(icechunk.IcechunkStore, "array_chunk_iterator"):  # what older releases do not tell
        with pytest.raises(CopyError, match="install release"):
            import_icechunk(theirs, storage)
        return
    report = import_icechunk(theirs, storage)
    assert (report.virtual, report.chunks) == (3, 1)
    ours = Repository.open(storage, authorize_virtual_chunk_access={prefix: local_filesystem_storage(tmp_path)})
    expected = [[200] * 4, [10, 11, 12, 13], [0] * 4, [30, 31, 32, 33], [40, 41, 42, 43]]
    assert zarr.open_array(ours.readonly_session("main").store, path="v")[:].tolist() == expected
    same(theirs, ours, "main")


def test_what_is_no_import_is_not_overwritten() -> None:
    theirs, ours = new_icechunk(), new_repository()
    fill(theirs, 1, 2)
    random_history(ours, 1, 2)
    before = ours.lookup_branch("main")
    with pytest.raises(CopyTargetError, match="not an import"):
        import_icechunk(theirs, ours)
    assert ours.lookup_branch("main") == before


def test_a_branch_that_was_reset_since_is_not_continued() -> None:
    theirs, ours = new_icechunk(), new_repository()
    made = fill(theirs, 1, 3)
    import_icechunk(theirs, ours)
    theirs.reset_branch("main", made[0])
    fill(theirs, 7, 1)
    with pytest.raises(CopyDivergedError, match="not in its history"):
        import_icechunk(theirs, ours)


def test_something_else_is_refused() -> None:
    for source in ("path", MemoryStorage(), None):
        with pytest.raises(InvalidInputError, match="icechunk"):
            import_icechunk(source, MemoryStorage())  # type: ignore[arg-type]


def test_an_import_that_fails_at_any_request_goes_on_where_it_was(impatient: None) -> None:
    theirs = new_icechunk()
    made = fill(theirs, 4, 4)
    theirs.create_branch("dev", made[1])
    fill(theirs, 5, 1, "dev")
    theirs.create_tag("v1", made[0])
    counting = CountingStorage(MemoryStorage())
    import_icechunk(theirs, Repository.create(counting))
    for first in range(1, counting.counts.total, 4):
        storage = MemoryStorage()
        Repository.create(storage)
        broken = FaultyStorage(storage, [Fault(first=first, times=None, when="after")])
        with pytest.raises((StorageError, ArrayStoreError), match="on purpose"):
            import_icechunk(theirs, Repository.open(broken))
        import_icechunk(theirs, storage)
        ours = Repository.open(storage)
        same(theirs, ours, "main")
        same(theirs, ours, "dev")
        assert ours.list_tags() == {"v1"}
        assert ours.list_branches() == {"main", "dev"}
