"""Sources of virtual chunks that change after the commit: never read as wrong values, wherever they are."""

from __future__ import annotations

import os
import pickle
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import arraystore as ars
from arraystore._format.locations import concat_locations, locations_from_urls
from arraystore._runtime import run
from tests.storage.conftest import obstore_on, s3fs_on

VALUES = np.arange(100, dtype="<i8")
OLD, NEW = VALUES.tobytes(), (VALUES + 1000).tobytes()


class Source:
    """A place of objects that virtual chunks refer to, with one object `numbers.bin`."""

    def __init__(self, prefix: str, storage: ars.Storage) -> None:
        self.prefix = prefix
        self.storage = storage
        self.write(OLD)

    @property
    def url(self) -> str:
        return self.prefix + "numbers.bin"

    def write(self, data: bytes) -> None:
        self.storage.put_sync("numbers.bin", data)

    async def state(self) -> ars.ObjectInfo:
        return (await self.storage.get_source_ranges("numbers.bin", []))[1]


@pytest.fixture(params=["memory", "local", "fsspec-memory", "s3", "s3fs"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    if request.param == "local":
        return Source(f"file://{tmp_path}/archive/", ars.local_filesystem_storage(tmp_path / "archive"))
    if request.param == "fsspec-memory":
        return Source("memory://archive/", ars.fsspec_storage(f"memory://{uuid.uuid4().hex}"))
    if request.param == "s3":
        return Source("s3://archive/some/", obstore_on(request.getfixturevalue("s3_server")))
    if request.param == "s3fs":
        return Source("s3://archive/some/", s3fs_on(request.getfixturevalue("s3_server")))
    return Source("memory://archive/", ars.in_memory_storage())


def repository_on(*sources: Source, storage: ars.Storage | None = None) -> ars.Repository:
    containers = {source.prefix: source.storage for source in sources}
    return ars.Repository.create(storage or ars.in_memory_storage(), authorize_virtual_chunk_access=containers)


def new_array(repo: ars.Repository, length: int = 100) -> tuple[ars.Session, ars.ArrayStore, zarr.Array]:
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="g/a", shape=(length,), chunks=(10,), dtype="<i8", compressors=None)
    return session, session.store, array


OFFSETS = 80 * np.arange(10)


def referring(source: Source, **checksum: Any) -> tuple[ars.Repository, zarr.Array]:
    """Commit an array of virtual chunks, one of each way to write them."""
    repo = repository_on(source)
    session, store, array = new_array(repo)
    store.set_virtual_ref("g/a/c/0", source.url, offset=0, length=80, **checksum)
    store.set_virtual_refs("g/a", [ars.VirtualChunkSpec((1,), source.url, 80, 80)], **checksum)
    store.set_virtual_refs_arr("g/a", (8,), [source.url] * 8, OFFSETS[2:], [80] * 8, arr_offset=(2,), **checksum)
    np.testing.assert_array_equal(array[:], VALUES)
    session.commit("virtual")
    found = zarr.open_array(repo.readonly_session("main").store, path="g/a", mode="r")
    np.testing.assert_array_equal(found[:], VALUES)
    return repo, found


# -- sources that change ------------------------------------------------------------------------------------------


def test_a_source_that_is_overwritten_is_never_read_as_wrong_values(source: Source) -> None:
    repo, array = referring(source)
    source.write(NEW)
    for values in (array, zarr.open_array(repo.readonly_session("main").store, path="g/a", mode="r")):
        for chunk in range(10):
            with pytest.raises(ars.SourceChangedError) as caught:
                values[10 * chunk : 10 * chunk + 10]
            assert (caught.value.url, caught.value.path, caught.value.chunk) == (source.url, "g/a", (chunk,))
            assert source.url in str(caught.value)
            assert "expected ETag" in str(caught.value)
            assert "found ETag" in str(caught.value)
            assert "/g/a" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.expected, again.found) == (str(caught.value), caught.value.expected, caught.value.found)


def test_a_source_that_was_read_before_it_changed_is_not_remembered(source: Source) -> None:
    _, array = referring(source)
    assert array[5] == 5
    source.write(NEW)
    with pytest.raises(ars.SourceChangedError):
        array[5]


def test_a_source_that_becomes_shorter_or_disappears_has_changed(source: Source) -> None:
    _, array = referring(source)
    source.write(OLD[:100])
    for place in (0, 95):
        with pytest.raises(ars.SourceChangedError, match="found"):
            array[place]
    run(source.storage.delete(["numbers.bin"]))
    with pytest.raises(ars.SourceChangedError, match="no such object"):
        array[0]


def test_a_reference_without_checksum_is_only_written_when_that_is_said(source: Source) -> None:
    _, array = referring(source, checksum=None)
    source.write(NEW)
    np.testing.assert_array_equal(array[:], VALUES + 1000)


async def test_an_entity_tag_that_is_given_is_checked(source: Source) -> None:
    etag = (await source.state()).etag
    assert etag is not None
    _, array = referring(source, checksum=etag)
    _, bare = referring(source, checksum=etag.strip('"'))
    source.write(NEW)
    for values in (array, bare):
        with pytest.raises(ars.SourceChangedError):
            values[0]


@pytest.mark.parametrize("kind", ["datetime", "numpy", "integer", "float"])
def test_a_source_that_was_modified_after_a_time_that_is_given_has_changed(kind: str) -> None:
    source = Source("memory://archive/", ars.in_memory_storage())
    now = datetime.now(UTC) + timedelta(hours=1)
    forms: dict[str, Any] = {
        "datetime": lambda time: time,
        "numpy": lambda time: np.datetime64(time.replace(tzinfo=None)),
        "integer": lambda time: int(time.timestamp()),
        "float": lambda time: time.timestamp(),
    }
    _, array = referring(source, checksum=forms[kind](now))
    source.write(NEW)  # still before that time, as was said
    assert array[0] == 1000
    repo = repository_on(source)
    session, store, array = new_array(repo)
    early = forms[kind](now - timedelta(hours=2))
    store.set_virtual_ref("g/a/c/0", source.url, offset=0, length=80, checksum=early)
    session.commit("too early")
    with pytest.raises(ars.SourceChangedError, match="not modified after"):
        array[0]


def test_a_time_that_is_a_whole_second_stands_for_all_of_it(tmp_path: Path) -> None:
    source = Source(f"file://{tmp_path}/", ars.local_filesystem_storage(tmp_path))
    second = 1_700_000_000
    os.utime(tmp_path / "numbers.bin", ns=(0, second * 10**9 + 999_999_999))
    referring(source, checksum=datetime.fromtimestamp(second, UTC))
    exact = datetime.fromtimestamp(second, UTC).replace(microsecond=999_998)
    _, store, array = new_array(repository_on(source))
    store.set_virtual_ref("g/a/c/0", source.url, offset=0, length=80, checksum=exact)
    with pytest.raises(ars.SourceChangedError, match="not modified after"):
        array[0]


def test_a_local_file_counts_by_size_and_time_so_that_copies_that_keep_both_are_the_same(tmp_path: Path) -> None:
    source = Source(f"file://{tmp_path}/", ars.local_filesystem_storage(tmp_path))
    file = tmp_path / "numbers.bin"
    times = file.stat()
    _, array = referring(source)
    file.write_bytes(OLD + b"one byte more")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(ars.SourceChangedError, match="813 bytes"):
        array[0]
    file.unlink()
    file.write_bytes(OLD)  # another inode
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    np.testing.assert_array_equal(array[:], VALUES)


def test_a_local_file_that_was_renamed_away_and_replaced_is_noticed_although_it_is_open(tmp_path: Path) -> None:
    source = Source(f"file://{tmp_path}/", ars.local_filesystem_storage(tmp_path))
    _, array = referring(source)
    assert array[0] == 0
    (tmp_path / "numbers.bin").rename(tmp_path / "kept.bin")
    source.write(NEW)
    with pytest.raises(ars.SourceChangedError):
        array[0]


# -- what is kept -------------------------------------------------------------------------------------------------


def test_each_chunk_may_have_a_checksum_of_its_own() -> None:
    source = Source("memory://archive/", ars.in_memory_storage())
    for name in "abc":
        source.storage.put_sync(name, OLD[:80])
    tags = {name: run(source.storage.get_source_ranges(name, []))[1].etag for name in "abc"}
    late = datetime.now(UTC) + timedelta(days=1)
    session, store, array = new_array(repository_on(source))
    specs = [
        ars.VirtualChunkSpec((0,), source.prefix + "a", 0, 80, etag_checksum=tags["a"]),
        ars.VirtualChunkSpec((1,), source.prefix + "b", 0, 80, last_updated_at_checksum=late),
        ars.VirtualChunkSpec((2,), source.prefix + "c", 0, 80),
    ]
    store.set_virtual_refs("g/a", specs, checksum=None)
    urls = [source.prefix + name for name in "abc"]
    by_url = dict(zip(urls, (tags["a"], late, None), strict=True))
    store.set_virtual_refs_arr("g/a", (3,), urls, [0] * 3, [80] * 3, arr_offset=(3,), checksum=by_url)
    with pytest.raises(ars.InvalidInputError, match="no entry"):
        store.set_virtual_refs_arr("g/a", (1,), ["memory://archive/x"], [0], [80], checksum=by_url)
    session.commit("mixed")
    for name in "abc":
        source.storage.put_sync(name, NEW[:80])
    for first in (0, 3):
        with pytest.raises(ars.SourceChangedError):
            array[10 * first]
        assert array[10 * first + 10] == array[10 * first + 20] == 1000


def test_specifications_of_icechunk_are_taken_with_their_checksums() -> None:
    icechunk = pytest.importorskip("icechunk")
    source = Source("memory://archive/", ars.in_memory_storage())
    session, store, array = new_array(repository_on(source))
    etag = run(source.state()).etag
    early = datetime(2020, 1, 1, tzinfo=UTC)
    specs = [
        icechunk.VirtualChunkSpec([0], source.url, 0, 80),
        icechunk.VirtualChunkSpec([1], source.url, 80, 80, etag_checksum=etag),
        icechunk.VirtualChunkSpec([2], source.url, 160, 80, last_updated_at_checksum=early),
    ]
    store.set_virtual_refs("g/a", specs)
    session.commit("three")
    np.testing.assert_array_equal(array[:20], VALUES[:20])
    with pytest.raises(ars.SourceChangedError, match="not modified after 2020"):
        array[20]
    source.write(NEW)
    for place in (0, 10):
        with pytest.raises(ars.SourceChangedError, match="ETag"):
            array[place]


def test_each_source_is_looked_at_once_and_only_where_no_checksum_is_given() -> None:
    counting = ars.CountingStorage(ars.in_memory_storage())
    source = Source("memory://archive/", counting)
    for name in "ab":
        counting.put_sync(name, OLD)
    _, store, _ = new_array(repository_on(source))
    urls = [source.prefix + name for name in "ab"] * 5
    before = counting.counts
    store.set_virtual_refs_arr("g/a", (10,), urls, [0] * 10, [80] * 10)
    store.set_virtual_refs("g/a", [ars.VirtualChunkSpec((i,), urls[i], 0, 80) for i in range(10)])
    assert (counting.counts - before).requests == {"head": 4}
    before = counting.counts
    store.set_virtual_refs_arr("g/a", (10,), urls, [0] * 10, [80] * 10, checksum=None)
    store.set_virtual_refs_arr("g/a", (10,), urls, [0] * 10, [80] * 10, checksum="tag")
    assert (counting.counts - before).requests == {}


def test_checksums_cost_no_request_when_chunks_are_read() -> None:
    counting = ars.CountingStorage(ars.in_memory_storage())
    _, array = referring(Source("memory://archive/", counting))
    before = counting.counts
    array[:]
    assert (counting.counts - before).requests == {"get_ranges": 10}


def _manifest_bytes(checksum: Any, *, files: int = 50, count: int = 50_000, one_by_one: bool = False) -> int:
    storage, container = ars.in_memory_storage(), ars.in_memory_storage()
    repo = ars.Repository.create(storage, authorize_virtual_chunk_access={"s3://bucket/": container})
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(count,), chunks=(1,), dtype="u1", compressors=None)
    urls = [f"s3://bucket/model/run-{i * files // count:05d}.nc" for i in range(count)]
    lengths = np.random.default_rng(0).integers(1000, 2000, count)
    offsets = np.cumsum(lengths) - lengths
    for at in range(count) if one_by_one else ():
        session.store.set_virtual_ref(
            f"a/c/{at}", urls[at], offset=int(offsets[at]), length=int(lengths[at]), checksum=checksum
        )
    if not one_by_one:
        session.store.set_virtual_refs_arr("a", (count,), urls, offsets, lengths, checksum=checksum)
    session.commit("virtual")
    return sum(len(storage.get_sync(key)) for key in _keys(storage))


def _keys(storage: ars.Storage) -> list[str]:
    async def listed() -> list[str]:
        return [info.key async for page in storage.list("") for info in page]

    return list(run(listed()))


def test_checksums_take_no_room_for_each_reference() -> None:
    plain = _manifest_bytes(None)
    tagged = _manifest_bytes('"0123456789abcdef0123456789abcdef"')
    timed = _manifest_bytes(datetime(2026, 1, 1, 12, 30, 59, 123456, tzinfo=UTC))
    assert tagged - plain < 50 * 40
    assert timed - plain < 100
    assert plain / 50_000 < 3


def test_references_that_are_written_one_at_a_time_share_locations_as_well() -> None:
    together = _manifest_bytes("tag", files=5, count=500)
    apart = _manifest_bytes("tag", files=5, count=500, one_by_one=True)
    assert apart <= together + 16


def test_equal_locations_of_different_calls_forks_and_commits_are_kept_once() -> None:
    first = locations_from_urls(["s3://b/x/1", "s3://b/x/2"], ["a", "b"], [1, 2])
    second = locations_from_urls(["s3://b/x/2", "s3://b/y/1"], ["b", "b"], [2, 2])
    third = locations_from_urls(
        ["s3://b/x/2", "s3://b/x/2", "s3://b/x/1"], ["b", "c", "a"], [3, 2, 1], prefix="s3://b/"
    )
    assert concat_locations([first, second, third]).first_equal().tolist() == [0, 1, 1, 3, 4, 5, 0]
    plain = [locations_from_urls(["s3://b/é", "s3://b/e"]), locations_from_urls(["s3://b/e"])]
    assert concat_locations(plain).first_equal().tolist() == [0, 1, 1]


def test_a_fold_keeps_checksums_and_each_location_once() -> None:
    source = Source("memory://archive/", ars.in_memory_storage())
    storage = ars.in_memory_storage()
    repo = repository_on(source, storage=storage)
    _, store, array = new_array(repo)
    store.session.commit("array")
    for chunk in range(10):
        session = repo.writable_session("main")
        session.store.set_virtual_ref(f"g/a/c/{chunk}", source.url, offset=80 * chunk, length=80)
        session.commit(f"chunk {chunk}")
    repo.compact()
    session = repo.readonly_session("main")
    (node,) = (node for node in session.hierarchy.state.nodes.values() if node.layers)
    (layer,) = node.layers
    manifest = session.context.manifests.load_sync(layer)
    assert (manifest.count, len(manifest.locations)) == (10, 1)
    array = zarr.open_array(session.store, path="g/a", mode="r")
    np.testing.assert_array_equal(array[:], VALUES)
    source.write(NEW)
    with pytest.raises(ars.SourceChangedError):
        array[0]


def test_references_of_forks_keep_their_checksums() -> None:
    source = Source("memory://archive/", ars.in_memory_storage())
    session, _, array = new_array(repository_on(source))
    forks = [session.fork() for _ in range(2)]
    for number, fork in enumerate(forks):
        fork.store.set_virtual_ref(f"g/a/c/{number}", source.url, offset=80 * number, length=80)
    session.merge(*(fork.changes() for fork in forks))
    session.commit("two")
    np.testing.assert_array_equal(array[:20], VALUES[:20])
    source.write(NEW)
    for number in range(2):
        with pytest.raises(ars.SourceChangedError):
            array[10 * number]


# -- what cannot be a checksum ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    ["", "a\nb", "x" * 2000, "\ud800", datetime(2026, 1, 1), np.datetime64("NaT", "us"), 0, -1, True, 1 << 60, b"tag"],  # noqa: DTZ001
)
def test_what_is_no_checksum_is_refused_and_nothing_is_written(wrong: Any) -> None:
    source = Source("memory://archive/", ars.in_memory_storage())
    session, store, _ = new_array(repository_on(source))
    before = session.status()
    with pytest.raises(ars.InvalidInputError, match="checksum"):
        store.set_virtual_ref("g/a/c/0", source.url, offset=0, length=80, checksum=wrong)
    with pytest.raises(ars.InvalidInputError, match="checksum"):
        store.set_virtual_refs_arr("g/a", (1,), [source.url], [0], [80], checksum=wrong)
    assert session.status() == before


def test_a_source_that_cannot_be_looked_at_needs_a_checksum_or_none() -> None:
    faulty = ars.FaultyStorage(ars.in_memory_storage(), [ars.Fault("head", times=None)])
    source = Source("memory://archive/", faulty)
    session, store, _ = new_array(repository_on(source))
    before = session.status()
    with pytest.raises(ars.StorageError, match="checksum=None"):
        store.set_virtual_ref("g/a/c/0", source.url, offset=0, length=80)
    with pytest.raises(ars.VirtualReferenceError, match="checksum=None"):  # in no container
        store.set_virtual_ref("g/a/c/0", "s3://other/x", offset=0, length=80, validate_container=False)
    assert session.status() == before
    store.set_virtual_ref("g/a/c/0", source.url, offset=0, length=80, checksum=None)
    store.set_virtual_ref("g/a/c/1", "s3://other/x", offset=0, length=80, validate_container=False, checksum="tag")


def test_a_source_that_does_not_exist_is_refused_unless_nothing_is_to_be_kept_of_it() -> None:
    source = Source("memory://archive/", ars.in_memory_storage())
    _, store, array = new_array(repository_on(source))
    with pytest.raises(ars.VirtualReferenceError, match="does not exist"):
        store.set_virtual_ref("g/a/c/0", source.prefix + "later", offset=0, length=80)
    store.set_virtual_ref("g/a/c/0", source.prefix + "later", offset=0, length=80, checksum=None)
    source.storage.put_sync("later", OLD)
    assert array[5] == 5


# -- servers ------------------------------------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """A web server, or an S3 for whoever asks as S3 does, that counts requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data = OLD
        self.etag: str | None = '"one"'
        self.modified = 1_700_000_000
        self.requests: list[str] = []
        self.ranges = True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_HEAD(self) -> None:
        self._answer(200, self.server.data, {}, body=False)

    def do_GET(self) -> None:
        data = self.server.data
        if not self.server.ranges:
            return self._answer(200, data, {})
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        if first >= len(data):
            return self._answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        part = data[first : last + 1]
        span = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
        return self._answer(206, part, {"Content-Range": span})

    def _answer(self, status: int, data: bytes, headers: dict[str, str], *, body: bool = True) -> None:
        self.server.requests.append(self.command)
        self.send_response(status)
        tag = {} if self.server.etag is None else {"ETag": self.server.etag}
        stated = {"Last-Modified": formatdate(self.server.modified, usegmt=True), "Content-Length": str(len(data))}
        for name, value in (headers | tag | stated).items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _as_web(server: Server) -> ars.Storage:
    pytest.importorskip("aiohttp")
    return ars.fsspec_storage(f"http://127.0.0.1:{server.server_address[1]}/data")


def _as_s3(server: Server) -> ars.Storage:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    return ars.s3_storage(bucket="bucket", region="eu", endpoint_url=url, allow_http=True, anonymous=True)


def _referring_to(server: Server, storage: ars.Storage) -> zarr.Array:
    containers = {"https://archive/": storage}
    repo = ars.Repository.create(ars.in_memory_storage(), authorize_virtual_chunk_access=containers)
    session, store, array = new_array(repo)
    urls = np.full(10, "https://archive/numbers.bin")
    store.set_virtual_refs_arr("g/a", (10,), urls, OFFSETS, [80] * 10)
    session.commit("virtual")
    np.testing.assert_array_equal(array[:], VALUES)
    return array


@pytest.mark.parametrize("made", [_as_web, _as_s3])
@pytest.mark.parametrize("etag", ['"one"', 'W/"one"', None])
def test_a_source_on_a_server_that_is_overwritten_has_changed(
    server: Server, made: Callable[[Server], ars.Storage], etag: str | None
) -> None:
    server.etag = etag
    array = _referring_to(server, made(server))
    server.data = NEW
    if etag is None:
        server.modified += 1
    else:
        server.etag = etag.replace("one", "two")
    with pytest.raises(ars.SourceChangedError, match=r"https://archive/numbers\.bin"):
        array[0]


@pytest.mark.parametrize("made", [_as_web, _as_s3])
def test_without_entity_tags_another_size_within_the_same_second_is_noticed(
    server: Server, made: Callable[[Server], ars.Storage]
) -> None:
    server.etag = None
    array = _referring_to(server, made(server))
    server.data = NEW + b"x"
    with pytest.raises(ars.SourceChangedError):
        array[0]


@pytest.mark.parametrize("made", [_as_web, _as_s3])
def test_a_server_that_ignores_ranges_gives_an_error_and_no_other_bytes(
    server: Server, made: Callable[[Server], ars.Storage]
) -> None:
    array = _referring_to(server, made(server))
    server.ranges = False
    for place in (0, 50):
        with pytest.raises(ars.StorageError):
            array[place]


def test_on_an_object_store_the_state_comes_with_the_bytes_in_one_request(server: Server) -> None:
    array = _referring_to(server, _as_s3(server))
    assert server.requests.count("HEAD") == 1
    server.requests.clear()
    array[:]
    assert server.requests == ["GET"] * 10
