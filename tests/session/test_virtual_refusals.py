"""Virtual references that could lead elsewhere: refused when written, and an error where they are there already."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import arraystore as ars
from arraystore._chunks.chunk_table import ChunkReference
from arraystore._format.locations import locations_from_urls
from arraystore.storage.source_urls import all_paths_plain, path_problem

VALUES = np.arange(10, dtype="u1")
PREFIX = "s3://bucket/data/"

BAD = [
    PREFIX + "../secret",
    PREFIX + "a/../../secret",
    PREFIX + "a/..",
    PREFIX + "..?x",
    PREFIX + "./a",
    PREFIX + "%2e%2e/secret",
    PREFIX + "%2E./secret",
    PREFIX + "a%2f..%2Fsecret",
    PREFIX + "%252e%252e/secret",
    PREFIX + "..%5csecret",
    PREFIX + "a\\..\\secret",
    PREFIX + "a\0",
    PREFIX + "a%00",
    PREFIX + "a\nb",
    PREFIX + "a//b",
    PREFIX + "a/",
    PREFIX + "x" * 2000,
    PREFIX,
]
NO_OBJECT = ["no url", "://x", "s3://", "s3://bucket", "s3://bucket/"]
OUTSIDE = [
    "s3://bucket/other/x",
    "s3://bucket/data",
    "s3://buckets/data/x",
    "S3://bucket/data/x",
    "file:///etc/passwd",
    "no url",
    "://x",
    "s3://",
    "/data/x",
]


@pytest.fixture
def container() -> ars.Storage:
    storage = ars.in_memory_storage()
    for name in ("x", "y"):
        storage.put_sync(name, VALUES.tobytes())
    return storage


@pytest.fixture
def repo(container: ars.Storage) -> ars.Repository:
    return ars.Repository.create(ars.in_memory_storage(), authorize_virtual_chunk_access={PREFIX: container})


def new_array(repo: ars.Repository, chunks: int = 3) -> tuple[ars.Session, zarr.Array]:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(10 * chunks,), chunks=(10,), dtype="u1", compressors=None)
    session.commit("array")
    session = repo.writable_session("main")
    return session, zarr.open_array(session.store, path="a")


def _one(store: ars.ArrayStore, url: str, **options: Any) -> None:
    store.set_virtual_ref("a/c/1", url, offset=0, length=10, **options)


def _specs(store: ars.ArrayStore, url: str, validate_container: bool = True, **options: Any) -> None:
    specs = [ars.VirtualChunkSpec((i,), where, 0, 10) for i, where in enumerate([PREFIX + "x", url, PREFIX + "y"])]
    store.set_virtual_refs("a", specs, validate_containers=validate_container, **options)


def _columns(store: ars.ArrayStore, url: str, validate_container: bool = True, **options: Any) -> None:
    urls = [PREFIX + "x", url, PREFIX + "y"]
    store.set_virtual_refs_arr("a", (3,), urls, [0] * 3, [10] * 3, validate_containers=validate_container, **options)


WRITES = pytest.mark.parametrize("write", [_one, _specs, _columns])
Write = Callable[..., None]


@WRITES
@pytest.mark.parametrize("checksum", [ars.FROM_SOURCE, None, "tag"])
@pytest.mark.parametrize("url", BAD + OUTSIDE, ids=lambda url: ascii(url[:40]))
def test_a_bad_reference_is_refused_and_none_of_its_call_is_written(
    repo: ars.Repository, write: Write, url: str, checksum: Any
) -> None:
    session, array = new_array(repo)
    with pytest.raises(ars.VirtualReferenceError) as caught:
        write(session.store, url, checksum=checksum)
    assert isinstance(caught.value, ars.InvalidInputError)
    assert repr(url[:100])[1:-1] in str(caught.value)
    assert PREFIX in str(caught.value)
    assert not session.has_uncommitted_changes
    assert not array[:].any()


@WRITES
@pytest.mark.parametrize(
    "url", [*BAD, "no url", "://x", "s3://", "s3://bucket", "s3://bucket/"], ids=lambda u: ascii(u[:40])
)
def test_without_a_look_at_containers_a_reference_must_still_name_an_object(
    repo: ars.Repository, write: Write, url: str
) -> None:
    session, _ = new_array(repo)
    with pytest.raises(ars.VirtualReferenceError):
        write(session.store, url, validate_container=False, checksum=None)
    assert not session.has_uncommitted_changes


ODD = ["with space", "a+b&c=d", "..hidden", "a..b/c...d", "é/日本", "100%", "http%3A%2F%2Fhost%2Ffile", "a?b#c"]


@WRITES
def test_odd_names_that_lead_nowhere_else_are_taken(repo: ars.Repository, container: ars.Storage, write: Write) -> None:
    session, array = new_array(repo)
    for name in (
        "with space",
        "a+b&c=d",
        "..hidden",
        "a..b/c...d",
        "é/日本",
        "100%",
        "http%3A%2F%2Fhost%2Ffile",
        "a?b#c",
    ):
        container.put_sync(name, VALUES.tobytes())
        write(session.store, PREFIX + name)
        np.testing.assert_array_equal(array[10:20], VALUES)


@pytest.mark.parametrize("access", [[PREFIX], PREFIX, {PREFIX}])
def test_containers_that_are_no_mapping_are_refused(access: Any) -> None:
    with pytest.raises(ars.InvalidInputError, match=r"must be a mapping of URL prefixes"):
        ars.Repository.create(ars.in_memory_storage(), authorize_virtual_chunk_access=access)


READS: dict[str, Callable[[ars.Session, zarr.Array], Any]] = {
    "one chunk": lambda _, array: array[10:20],
    "some chunks": lambda _, array: array[5:25],
    "all chunks": lambda _, array: array[...],
    "a list": lambda _, array: array.oindex[[1, 15, 45]],
    "a region": lambda session, _: session.read("a"),
    "regions": lambda session, _: session.read_many([("a", ...), ("a", slice(10, 12))]),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("codec", [None, "gzip"])
def test_what_is_no_chunk_is_named_when_it_is_read(repo: ars.Repository, codec: str | None, read: str) -> None:
    session = repo.writable_session("main")
    options: Any = {"compressors": None if codec is None else zarr.codecs.GzipCodec()}
    array = zarr.create_array(session.store, name="a", shape=(50,), chunks=(10,), dtype="u1", **options)
    array[...] = 1
    session.store.set_virtual_ref("a/c/1", PREFIX + "x", offset=2, length=5)
    with pytest.raises(Exception, match=r"reshape|gzip") as caught:
        READS[read](session, array)
    notes = getattr(caught.value, "__notes__", [])
    if codec is None:
        assert ["Chunk 'a/c/1' has 5 stored bytes, where chunks of the array have 10" in note for note in notes] == [
            True
        ]
    else:  # of many, none can be told without reading them
        assert len(notes) == (read == "one chunk")


def test_the_errors_survive_a_pickle() -> None:
    error = ars.VirtualReferenceError("what")
    assert str(pickle.loads(pickle.dumps(error))) == "what"
    assert isinstance(error, ars.StorageError)


@pytest.mark.parametrize("url", BAD, ids=lambda url: ascii(url[:40]))
def test_many_paths_at_once_are_never_called_plain_where_one_is_bad(url: str) -> None:
    path = url.removeprefix(PREFIX)
    assert path_problem(path) is not None
    for paths in ([path], ["x", path], [path, "x"], ["x", path, "y"]):
        assert not all_paths_plain(paths)
    assert all_paths_plain(["x", "y/z.nc", "a b"])


# -- references that are there already ----------------------------------------------------------------------------


def with_old_reference(repo: ars.Repository, url: str) -> None:
    """Commit a reference as a release would have that checked nothing."""
    session = repo.writable_session("main")
    node = session.hierarchy.node("a")
    assert node is not None
    changes = session.hierarchy.writable()
    with changes.lock:
        source = changes.put_locations(locations_from_urls([url]))
        changes.put_chunk(node, (1,), ChunkReference(source, 0, 10))
        session.hierarchy.forget()
    session.commit("an old reference")


@pytest.mark.parametrize("url", BAD + OUTSIDE, ids=lambda url: ascii(url[:40]))
def test_an_old_bad_reference_is_an_error_for_its_chunk_alone(repo: ars.Repository, url: str) -> None:
    session, array = new_array(repo)
    array[:] = 7
    session.commit("values")
    with_old_reference(repo, url)
    array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    assert array[:10].tolist() == array[20:].tolist() == [7] * 10
    with pytest.raises(ars.VirtualReferenceError) as caught:
        array[10:20]
    assert repr(url[:100])[1:-1] in str(caught.value)


# -- symbolic links -----------------------------------------------------------------------------------------------


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A directory with a file, beside one with a secret, and links of every kind."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(VALUES.tobytes())
    root = tmp_path / "archive"
    (root / "deep").mkdir(parents=True)
    (root / "file").write_bytes(VALUES.tobytes())
    (root / "inside").symlink_to("file")
    (root / "deep" / "up").symlink_to("../file")
    (root / "escape").symlink_to("../outside/secret")
    (root / "absolute").symlink_to(tmp_path / "outside" / "secret")
    (root / "directory").symlink_to(tmp_path / "outside")
    (root / "twice").symlink_to("escape")
    (tmp_path / "archive-too").mkdir()
    (tmp_path / "archive-too" / "secret").write_bytes(VALUES.tobytes())
    (root / "sibling").symlink_to("../archive-too/secret")
    return root


ESCAPES = ["escape", "absolute", "directory/secret", "twice", "sibling"]


def on_archive(archive: Path, **options: Any) -> tuple[ars.ArrayStore, zarr.Array]:
    containers = {f"file://{archive}/": ars.CountingStorage(ars.local_filesystem_storage(archive, **options))}
    repo = ars.Repository.create(ars.in_memory_storage(), authorize_virtual_chunk_access=containers)
    session, array = new_array(repo)
    return session.store, array


@pytest.mark.parametrize("name", ESCAPES)
def test_a_link_that_leads_out_of_its_container_is_refused_when_written_and_when_read(archive: Path, name: str) -> None:
    store, array = on_archive(archive)
    url = f"file://{archive}/{name}"
    with pytest.raises(ars.VirtualReferenceError, match="symbolic link") as caught:
        _one(store, url)
    assert "follow_symlinks=True" in str(caught.value)
    _one(store, url, checksum=None)  # nobody looks
    for _ in range(2):
        with pytest.raises(ars.VirtualReferenceError, match="symbolic link"):
            array[10:20]


@pytest.mark.parametrize("name", ["file", "inside", "deep/up"])
def test_a_link_within_its_container_is_followed(archive: Path, name: str) -> None:
    store, array = on_archive(archive)
    _one(store, f"file://{archive}/{name}")
    np.testing.assert_array_equal(array[10:20], VALUES)


@pytest.mark.parametrize("name", ESCAPES)
def test_a_container_may_allow_links_that_lead_out_of_it(archive: Path, name: str) -> None:
    store, array = on_archive(archive, follow_symlinks=True)
    _one(store, f"file://{archive}/{name}")
    np.testing.assert_array_equal(array[10:20], VALUES)
    copy = pickle.loads(pickle.dumps(ars.local_filesystem_storage(archive, follow_symlinks=True)))
    assert len(copy.get_sync(name))


def test_a_file_that_becomes_a_link_after_it_was_read_is_refused(archive: Path) -> None:
    store, array = on_archive(archive)
    _one(store, f"file://{archive}/file", checksum=None)
    np.testing.assert_array_equal(array[10:20], VALUES)
    os.replace(archive / "escape", archive / "file")
    with pytest.raises(ars.VirtualReferenceError, match="symbolic link"):
        array[10:20]


def test_a_container_that_is_a_link_itself_is_the_directory_that_it_leads_to(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(archive)
    store, array = on_archive(tmp_path / "alias")
    _one(store, f"file://{tmp_path}/alias/inside")
    np.testing.assert_array_equal(array[10:20], VALUES)


@pytest.mark.parametrize("name", ["file", "inside", *ESCAPES])
def test_without_proc_the_path_is_resolved_instead(archive: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    readlink = os.readlink

    def without_proc(path: str, **options: Any) -> str:
        if path.startswith("/proc/"):
            raise FileNotFoundError(path)
        return readlink(path, **options)

    monkeypatch.setattr("arraystore.storage.local_sources.os.readlink", without_proc)
    store, array = on_archive(archive)
    _one(store, f"file://{archive}/{name}", checksum=None)
    if name in ESCAPES:
        with pytest.raises(ars.VirtualReferenceError, match="symbolic link"):
            array[10:20]
    else:
        np.testing.assert_array_equal(array[10:20], VALUES)


def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(archive: Path) -> None:
    os.mkfifo(archive / "pipe")
    store, array = on_archive(archive)
    with pytest.raises(ars.VirtualReferenceError, match="not a regular file"):
        _one(store, f"file://{archive}/pipe")
    _one(store, f"file://{archive}/pipe", checksum=None)
    with pytest.raises(ars.VirtualReferenceError, match="not a regular file"):
        array[10:20]


def test_a_repository_may_have_its_own_objects_behind_links(tmp_path: Path) -> None:
    repo = ars.Repository.create(ars.local_filesystem_storage(tmp_path / "repository", fsync=False))
    session, array = new_array(repo)
    array[:] = np.random.default_rng(0).integers(0, 255, 30)
    session.commit("values")
    for directory in list((tmp_path / "repository").iterdir()):
        if directory.is_dir():
            directory.rename(tmp_path / directory.name)
            directory.symlink_to(tmp_path / directory.name)
    found = zarr.open_array(ars.Repository.open(repo.storage).readonly_session("main").store, path="a", mode="r")
    np.testing.assert_array_equal(found[:], array[:])
