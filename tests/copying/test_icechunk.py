"""An Icechunk repository comes over with its history, its branches and its tags."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import icechunk
import pytest
import zarr

from arraystore import (
    MemoryStorage,
    RepoAvailability,
    Repository,
    RepositoryConfig,
    VirtualChunkContainer,
    in_memory_storage,
    local_filesystem_storage,
)
from arraystore.copying import CopyDivergedError, CopyError, CopyTargetError, import_icechunk
from arraystore.errors import AlreadyExistsError, ArrayStoreError, InvalidInputError, StorageError
from arraystore.storage import Storage, StorageRequest, WrapperStorage
from tests.copying.icechunk_support import fill, held, new_icechunk, same
from tests.copying.support import contents, new_repository, random_history
from tests.tiers import mostly_thorough


@pytest.mark.parametrize("seed", mostly_thorough(range(6), every=3))
def test_each_snapshot_of_an_import_holds_the_same_keys_and_bytes(seed: int) -> None:
    theirs, ours = new_icechunk(), new_repository()
    fill(theirs, seed, 12)
    report = import_icechunk(theirs, ours)
    same(theirs, ours, "main")
    assert (report.snapshots, report.known, report.branches) == (13, 0, {"main": ours.lookup_branch("main")})


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
    assert report.snapshots == 1 + 5 + 3 + 2
    assert ours.list_branches() == {"main", "dev"}
    assert ours.list_tags() == {"shared", "lost", "start"}
    for tag in ("shared", "lost", "start"):
        assert contents(ours.readonly_session(tag=tag)) == held(theirs, theirs.lookup_tag(tag))
    assert {info.id for info in ours.ancestry(branch="dev")} & {info.id for info in ours.ancestry(branch="main")}
    again = import_icechunk(theirs, ours)
    assert (again.snapshots, again.known, again.tags) == (0, 11, report.tags)


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
    assert (report.snapshots, report.chunks, report.known) == (1, 1, 2)
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


def test_containers_and_flags_come_over_and_the_status_stays_behind() -> None:
    config = icechunk.RepositoryConfig.default()
    stores = {
        "s3://data/model/": icechunk.s3_store(region="eu", endpoint_url="http://host:1", allow_http=True),
        "gs://data/": icechunk.gcs_store(),
        "file:///data/": icechunk.local_filesystem_store("/data"),
    }
    for prefix, store in stores.items():
        config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
    theirs = icechunk.Repository.create(icechunk.in_memory_storage(), config)
    theirs.save_config()
    theirs.set_feature_flag("create_tag", False)
    theirs.set_feature_flag("delete_tag", True)
    theirs.set_status(icechunk.RepoStatus(icechunk.RepoAvailability.read_only, datetime.now(UTC), "it moves"))
    own = VirtualChunkContainer("gs://data/", anonymous=True)
    ours = Repository.create(in_memory_storage(), RepositoryConfig(virtual_chunk_containers=(own,)))
    for _ in range(2):
        import_icechunk(theirs, ours)
        saved = Repository.fetch_config(ours.storage)
        assert saved is not None
        assert set(saved.virtual_chunk_containers) == {
            own,
            VirtualChunkContainer("s3://data/model/", region="eu", endpoint_url="http://host:1", allow_http=True),
            VirtualChunkContainer("file:///data/"),
        }
        flags = {flag.name: flag.setting for flag in ours.feature_flags()}
        assert (flags["create_tag"], flags["delete_tag"], flags["move_node"]) == (False, True, None)
        assert ours.get_status().availability == RepoAvailability.online


def test_something_else_is_refused() -> None:
    for source in ("path", MemoryStorage(), None):
        with pytest.raises(InvalidInputError, match="icechunk"):
            import_icechunk(source, MemoryStorage())  # type: ignore[arg-type]


def test_what_is_not_of_icechunk_is_refused_before_a_repository_is_created(tmp_path: Path) -> None:
    Repository.create(local_filesystem_storage(tmp_path / "ours"))
    target = MemoryStorage()
    for place in ("ours", "nothing"):
        with pytest.raises(InvalidInputError, match="not a repository of Icechunk"):
            import_icechunk(icechunk.local_filesystem_storage(str(tmp_path / place)), target)
    with pytest.raises(InvalidInputError, match="no branch 'dev'"):
        import_icechunk(new_icechunk(), target, branches=["dev"])
    assert not Repository.exists(target)


def test_a_source_that_icechunk_cannot_read_is_an_error_of_copies(tmp_path: Path) -> None:
    theirs = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    session = theirs.writable_session("main")
    zarr.create_group(session.store)
    lost = session.commit("lost")
    (tmp_path / "snapshots" / lost).unlink()
    with pytest.raises(CopyError, match="import again to continue"):
        import_icechunk(icechunk.local_filesystem_storage(str(tmp_path)), MemoryStorage())


def _with_everything() -> icechunk.Repository:
    """Return a repository with a branch, a tag of what no branch has, a deleted tag, and metadata."""
    theirs = new_icechunk()

    def commit(branch: str, value: int) -> str:
        session = theirs.writable_session(branch)
        array = zarr.open_group(session.store, mode="a").require_array("a", shape=(4,), chunks=(2,), dtype="i4")
        array[value % 4] = value
        return session.commit(f"write {value}")

    first, last = commit("main", 1), commit("main", 2)
    theirs.create_branch("dev", first)
    commit("dev", 3)
    theirs.create_branch("gone", last)
    theirs.create_tag("lost", commit("gone", 4))
    theirs.delete_branch("gone")
    theirs.create_tag("never again", last)
    theirs.delete_tag("never again")
    theirs.set_metadata({"owner": "ice", "grid": [1, 2]})
    return theirs


class _CutOff(WrapperStorage):
    """A storage that can no longer be reached once it has taken so many writes, the last without an answer."""

    def __init__(self, inner: Storage, writes: int) -> None:
        super().__init__(inner)
        self.left = writes

    def around(self, request: StorageRequest) -> Generator[float, Any, None]:
        if self.left <= 0:
            raise StorageError("cut off")
        yield 0.0
        if request.operation in ("put", "put_if_absent", "delete"):
            self.left -= 1
            if self.left <= 0:
                raise StorageError("cut off")
        yield 0.0


def _fail_and_import_again(theirs: icechunk.Repository, writes: int) -> bool:
    """Lose the storage after some writes, import again, and compare all that there is; tell whether it was lost."""
    storage = MemoryStorage()
    Repository.create(storage)
    cut_off = _CutOff(storage, writes)
    with suppress(ArrayStoreError):
        import_icechunk(theirs, Repository.open(cut_off))
    import_icechunk(theirs, storage)
    ours = Repository.open(storage)
    for branch in ("main", "dev"):
        copies = [info.metadata["arraystore.copied_from"] for info in list(ours.ancestry(branch=branch))[:-1]]
        assert copies == [info.id for info in theirs.ancestry(branch=branch)]
        assert contents(ours.readonly_session(branch)) == held(theirs, theirs.lookup_branch(branch))
    assert contents(ours.readonly_session(tag="lost")) == held(theirs, theirs.lookup_tag("lost"))
    assert (ours.list_tags(), ours.list_branches()) == ({"lost"}, {"main", "dev"})
    assert ours.get_metadata() == {"owner": "ice", "grid": [1, 2]}
    with pytest.raises(AlreadyExistsError, match="was deleted"):
        ours.create_tag("never again", ours.lookup_branch("main"))
    return cut_off.left <= 0


@pytest.mark.parametrize("writes", [2, 7])
def test_an_import_that_fails_goes_on_where_it_was(impatient: None, writes: int) -> None:
    assert _fail_and_import_again(_with_everything(), writes)


@pytest.mark.thorough
def test_an_import_that_fails_at_any_write_goes_on_where_it_was(impatient: None) -> None:
    theirs = _with_everything()
    failed = list(takewhile(lambda writes: _fail_and_import_again(theirs, writes), count(1)))
    assert len(failed) > 15
