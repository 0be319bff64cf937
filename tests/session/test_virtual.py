"""Chunks that are bytes of objects elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import cpu

from arraystore import InvalidInputError, InvalidKeyError, ReadOnlyError, Repository, StorageError, VirtualChunkSpec
from arraystore.storage import in_memory_storage, local_filesystem_storage
from tests.session import workers
from tests.storage.workers import call_in_process

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

VALUES = np.arange(100, dtype="<i8")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A directory with a file of a header and a hundred numbers."""
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "numbers.bin").write_bytes(b"header!!" + VALUES.tobytes())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "secret.bin").write_bytes(VALUES.tobytes())
    return tmp_path / "archive"


@pytest.fixture
def repo(tmp_path: Path, archive: Path) -> Repository:
    storage = local_filesystem_storage(tmp_path / "repository", fsync=False)
    Repository.create(storage)
    return open_with(storage, archive)


def open_with(storage: object, archive: Path) -> Repository:
    containers = {f"file://{archive}/": local_filesystem_storage(archive)}
    return Repository.open(storage, authorize_virtual_chunk_access=containers)  # type: ignore[arg-type]


def url(archive: Path) -> str:
    return f"file://{archive}/numbers.bin"


def new_array(repo: Repository, length: int = 100) -> tuple[object, zarr.Array]:
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="g/a", shape=(length,), chunks=(10,), dtype="<i8", compressors=None)
    return session, array


def test_a_reference_is_read_before_and_after_the_commit(repo: Repository, archive: Path) -> None:
    session, array = new_array(repo)
    store = array.store_path.store
    store.set_virtual_ref("g/a/c/3", url(archive), offset=8 + 240, length=80)
    for _ in range(2):
        np.testing.assert_array_equal(zarr.open_array(store, path="g/a", mode="r")[30:40], VALUES[30:40])
        assert not array[:30].any()
        for wanted, expected in [
            (RangeByteRequest(8, 24), VALUES[31:33]),
            (OffsetByteRequest(72), VALUES[39:40]),
            (SuffixByteRequest(16), VALUES[38:40]),
        ]:
            found = store.get_sync("g/a/c/3", byte_range=wanted)
            assert found is not None
            assert found.to_bytes() == expected.tobytes()
        assert store._sync(store.getsize("g/a/c/3")) == 80
        if session.has_uncommitted_changes:
            session.commit("virtual")


def test_many_references_come_as_specs_or_as_columns(repo: Repository, archive: Path) -> None:
    session, array = new_array(repo)
    store = array.store_path.store
    specs = [VirtualChunkSpec((number,), url(archive), 8 + 80 * number, 80) for number in range(4)]
    assert store.set_virtual_refs("g/a", specs) is None
    offsets = 8 + 80 * np.arange(4, 10)
    assert store.set_virtual_refs_arr("/g/a/", (6,), [url(archive)] * 6, offsets, [80] * 6, arr_offset=(4,)) is None
    session.commit("all")
    np.testing.assert_array_equal(array[:], VALUES)


def test_an_empty_location_leaves_a_chunk_as_it_is(repo: Repository, archive: Path) -> None:
    session, array = new_array(repo)
    array[:10] = 5
    array.store_path.store.set_virtual_refs_arr("g/a", (2,), ["", url(archive)], [0, 88], [80, 80])
    session.commit("one")
    assert array[:10].tolist() == [5] * 10
    np.testing.assert_array_equal(array[10:20], VALUES[10:20])


def test_writing_and_deleting_replace_a_reference(repo: Repository, archive: Path) -> None:
    session, array = new_array(repo)
    store = array.store_path.store
    store.set_virtual_refs_arr("g/a", (3,), [url(archive)] * 3, [8, 88, 168], [80] * 3)
    array[:10] = 1
    store.delete_sync("g/a/c/1")
    for _ in range(2):
        assert array[:20].tolist() == [1] * 10 + [0] * 10
        np.testing.assert_array_equal(array[20:30], VALUES[20:30])
        if session.has_uncommitted_changes:
            session.commit("mixed")


def test_a_url_that_is_not_unicode_is_refused_and_nothing_is_written(repo: Repository, archive: Path) -> None:
    session, array = new_array(repo)
    before = session.status()
    with pytest.raises(InvalidInputError, match="not valid Unicode"):
        array.store_path.store.set_virtual_ref("g/a/c/1", url(archive) + "\ud800", offset=0, length=8)
    assert session.status() == before


def test_without_the_container_a_reference_is_not_followed(repo: Repository, archive: Path) -> None:
    session, array = new_array(repo)
    array.store_path.store.set_virtual_ref("g/a/c/0", url(archive), offset=8, length=80)
    session.commit("virtual")
    plain = Repository.open(repo.storage).readonly_session("main").store
    assert plain._sync(plain.getsize("g/a/c/0")) == 80
    with pytest.raises(StorageError, match="authorize_virtual_chunk_access"):
        plain.get_sync("g/a/c/0")


def test_a_reference_beyond_the_end_of_its_object_is_an_error(repo: Repository, archive: Path) -> None:
    _, array = new_array(repo)
    array.store_path.store.set_virtual_ref("g/a/c/0", url(archive), offset=8 + 760, length=80)
    with pytest.raises(StorageError):
        array[:10]


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_containers_travel_with_sessions_and_forks(repo: Repository, archive: Path, method: str) -> None:
    session, array = new_array(repo)
    array.store_path.store.set_virtual_ref("g/a/c/0", url(archive), offset=8, length=80)
    for thing in (session.fork(), session):
        if method == "fork" or thing is not session:
            found = call_in_process(method, workers.read_session, thing, "g/a")
            np.testing.assert_array_equal(found[:10], VALUES[:10])
    session.commit("virtual")
    found = call_in_process(method, workers.read_repository, repo, "g/a")
    np.testing.assert_array_equal(found[:10], VALUES[:10])


def test_references_written_through_a_fork_are_merged(repo: Repository, archive: Path) -> None:
    session, array = new_array(repo)
    array.store_path.store.set_virtual_ref("g/a/c/0", url(archive), offset=8, length=80)
    forks = [session.fork() for _ in range(2)]
    for number, fork in enumerate(forks, start=1):
        fork.store.set_virtual_ref(f"g/a/c/{number}", url(archive), offset=8 + 80 * number, length=80)
    session.merge(*(fork.changes() for fork in forks))
    session.commit("three")
    np.testing.assert_array_equal(array[:30], VALUES[:30])


def test_what_cannot_be_a_reference_is_refused(repo: Repository, archive: Path) -> None:
    _, array = new_array(repo)
    store, good = array.store_path.store, url(archive)
    with pytest.raises(InvalidInputError, match="must be in 0"):
        store.set_virtual_ref("g/a/c/0", good, offset=-1, length=80)
    with pytest.raises(InvalidInputError, match="must be in 0"):
        store.set_virtual_ref("g/a/c/0", good, offset=0, length=-80)
    with pytest.raises(InvalidInputError, match="outside of the grid"):
        store.set_virtual_ref("g/a/c/10", good, offset=0, length=80)
    with pytest.raises(InvalidInputError, match="no array"):
        store.set_virtual_refs("g", [VirtualChunkSpec((0,), good, 0, 80)])
    with pytest.raises(InvalidInputError, match="not a valid chunk key"):
        store.set_virtual_ref("g/zarr.json", good, offset=0, length=80)
    with pytest.raises(InvalidInputError, match="fill"):
        store.set_virtual_refs_arr("g/a", (2,), [good], [0], [80])
    with pytest.raises(InvalidInputError):
        store.set_virtual_refs_arr("g/a", (1,), [good], [0, 1], [80])
    for shape in ((1, 1), (-1,), (1.0,), 1, "1"):
        with pytest.raises(InvalidInputError, match="chunk_grid_shape must"):
            store.set_virtual_refs_arr("g/a", shape, [good], [0], [80])  # type: ignore[arg-type]
    for offset in ((0, 0), (0.5,), 0):
        with pytest.raises(InvalidInputError, match="arr_offset must"):
            store.set_virtual_refs_arr("g/a", (1,), [good], [0], [80], arr_offset=offset)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        store.set_virtual_refs("g/a", [VirtualChunkSpec((0, 0), good, 0, 80)])
    with pytest.raises(InvalidKeyError):
        store.set_virtual_ref("../x", good, offset=0, length=80)
    with pytest.raises(ReadOnlyError):
        repo.readonly_session("main").store.set_virtual_refs("g/a", [])
    assert not array[:].any()


def test_a_container_needs_a_prefix_that_ends_with_a_slash() -> None:
    storage = in_memory_storage()
    Repository.create(storage)
    with pytest.raises(InvalidInputError, match="slash"):
        Repository.open(storage, authorize_virtual_chunk_access={"s3://bucket": in_memory_storage()})
    for prefix in ("s3://bucket/../", "s3://bucket/a//", "s3://bucket/%2e%2e/", "://bucket/"):
        with pytest.raises(InvalidInputError, match="must be a prefix of valid URLs"):
            Repository.open(storage, authorize_virtual_chunk_access={prefix: in_memory_storage()})


def test_any_storage_serves_as_container() -> None:
    source, storage = in_memory_storage(), in_memory_storage()
    source.put_sync("deep/file", b"x" * 100)
    Repository.create(storage)
    repo = Repository.open(storage, authorize_virtual_chunk_access={"s3://bucket/data/": source})
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(10,), chunks=(10,), dtype="u1", compressors=None)
    session.store.set_virtual_ref("a/c/0", "s3://bucket/data/deep/file", offset=90, length=10)
    assert session.store.get_sync("a/c/0") == cpu.Buffer.from_bytes(b"x" * 10)
