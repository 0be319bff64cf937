"""Containers that a repository keeps: none is read unless its opener authorises it, and no credentials are kept."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import arraystore as ars
from arraystore import Repository, RepositoryConfig, VirtualChunkContainer, VirtualReferenceError
from arraystore._chunks.container_storage import open_container

VALUES = np.arange(30, dtype="<i8")
KEYS = ars.S3StaticCredentials("an-id", "hidden", "a-token")


def refer(repo: Repository, url: str, **checksum: Any) -> None:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(30,), chunks=(10,), dtype="<i8", compressors=None, overwrite=True)
    session.store.set_virtual_refs_arr("a", (3,), [url] * 3, [0, 80, 160], [80] * 3, **checksum)
    session.commit("refer")


def read(repo: Repository) -> np.ndarray[Any, Any]:
    return np.asarray(zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[:])


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A directory, with a name that no URL would leave as it is, that has a file of numbers."""
    directory = tmp_path / "an archive of 100%"
    (directory / "private").mkdir(parents=True)
    (directory / "numbers.bin").write_bytes(VALUES.tobytes())
    (directory / "private" / "numbers.bin").write_bytes(VALUES.tobytes())
    return directory


def saved_with(*prefixes: str) -> ars.Storage:
    storage = ars.in_memory_storage()
    containers = tuple(VirtualChunkContainer(prefix) for prefix in prefixes)
    Repository.create(storage, RepositoryConfig(virtual_chunk_containers=containers))
    return storage


def test_a_saved_container_is_read_by_who_authorises_it_and_by_nobody_else(archive: Path) -> None:
    prefix = f"file://{archive}/"
    storage = saved_with(prefix)
    refer(Repository.open(storage), prefix + "numbers.bin", checksum=None)  # to write needs no access
    np.testing.assert_array_equal(read(Repository.open(storage, authorize_virtual_chunk_access={prefix: None})), VALUES)
    with pytest.raises(VirtualReferenceError, match="not authorised") as caught:
        read(Repository.open(storage))
    assert prefix in str(caught.value)
    assert "authorize_virtual_chunk_access={" in str(caught.value)
    with pytest.raises(VirtualReferenceError, match="not authorised"):  # the state of the source is looked up
        refer(Repository.open(storage), prefix + "numbers.bin")


def test_the_longest_prefix_counts_authorised_or_not(archive: Path) -> None:
    outer, inner = f"file://{archive}/", f"file://{archive}/private/"
    storage = saved_with(outer, inner)
    refer(Repository.open(storage), inner + "numbers.bin", checksum=None)
    with pytest.raises(VirtualReferenceError, match=r"private.*which is saved"):
        read(Repository.open(storage, authorize_virtual_chunk_access={outer: None}))
    np.testing.assert_array_equal(read(Repository.open(storage, authorize_virtual_chunk_access={inner: None})), VALUES)


def test_containers_are_saved_fetched_and_left_out_where_there_are_none() -> None:
    containers = (VirtualChunkContainer("s3://b/x/", region="eu", anonymous=True), VirtualChunkContainer("gs://c/"))
    config = RepositoryConfig(virtual_chunk_containers=containers)
    storage = ars.in_memory_storage()
    repo = Repository.create(storage)
    assert "virtual_chunk_containers" not in repo.config.to_dict()  # so that older releases open it
    repo.save_config(config)
    assert Repository.fetch_config(storage) == config
    assert Repository.open(storage).config.virtual_chunk_containers == containers


@pytest.mark.parametrize(
    ("prefix", "options", "access", "shown"),
    [
        ("s3://bucket/data/", {"region": "eu-west-1"}, None, "s3://bucket/data"),
        ("s3://bucket/", {"endpoint_url": "https://host:9000"}, KEYS, "s3://bucket?endpoint_url=https://host:9000"),
        ("s3://bucket/", {"anonymous": True}, KEYS, "s3://bucket"),
        ("s3://bucket/", {}, {"access_key_id": "a", "secret_access_key": "b"}, "s3://bucket"),
        ("s3://bucket/", {}, lambda: KEYS, "s3://bucket"),
        ("gs://bucket/a/", {}, ars.GcsBearerCredential("hidden"), "gs://bucket/a"),
        ("az://account/box/a/", {"anonymous": True}, None, "az://account/box/a"),
        ("az://box/a/", {"account": "account"}, {"sas_token": "hidden"}, "az://account/box/a"),
        ("https://host/a/b/", {}, {"headers": {"Authorization": "hidden"}}, "https://host/a/b"),
    ],
)
def test_each_service_is_opened_by_its_prefix(prefix: str, options: Any, access: Any, shown: str) -> None:
    storage = open_container(VirtualChunkContainer(prefix, **options), access)
    assert storage.location == shown
    assert "hidden" not in repr(vars(storage))


def test_credentials_are_neither_saved_nor_shown_nor_pickled_unasked() -> None:
    prefix = "s3://bucket/data/"
    storage = saved_with(prefix)
    repo = Repository.open(storage, authorize_virtual_chunk_access={prefix: KEYS})
    repo.save_config()
    assert "hidden" not in repr([repo.config, repo.context.containers, vars(repo.context.containers)])
    assert all(b"hidden" not in bytes(storage.get_sync(key)) for key in keys_of(storage))
    with pytest.raises(ars.StorageError, match="pickle_credentials=True"):
        pickle.dumps(repo.context.containers)
    asked = {"access_key_id": "a", "secret_access_key": "hidden", "pickle_credentials": True}
    again = Repository.open(storage, authorize_virtual_chunk_access={prefix: asked}).context.containers
    assert pickle.loads(pickle.dumps(again)).prefixes == [prefix]


def keys_of(storage: Any) -> list[str]:
    async def listed() -> list[str]:
        return [info.key async for page in storage.list("") for info in page]

    return ars._runtime.run(listed())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: VirtualChunkContainer("s3://bucket"), "ends with a slash"),
        (lambda: VirtualChunkContainer("https://me:hidden@host/"), "user or password"),
        (lambda: VirtualChunkContainer("s3://b/", endpoint_url="https://me:hidden@host"), "never saved"),
        (lambda: VirtualChunkContainer("s3://b/", anonymous="yes"), "true or false"),  # type: ignore[arg-type]
        (lambda: RepositoryConfig(virtual_chunk_containers=(VirtualChunkContainer("s3://b/"),) * 2), "twice"),
        (lambda: RepositoryConfig.from_dict({"virtual_chunk_containers": {"s3://b/": {"key": "x"}}}), "unknown opt"),
        (lambda: RepositoryConfig.from_dict({"virtual_chunk_containers": "s3://b/"}), "map of prefixes"),
        (lambda: open_container(VirtualChunkContainer("gs://b/", region="x"), None), "without a meaning for gs"),
        (lambda: open_container(VirtualChunkContainer("gs://b/"), KEYS), "does not open the container"),
        (lambda: open_container(VirtualChunkContainer("http://b/"), None), "allow_http"),
    ],
)
def test_what_is_no_container_is_refused_without_a_secret(make: Any, reason: str) -> None:
    with pytest.raises(ars.InvalidInputError, match=reason) as caught:
        make()
    assert "hidden" not in str(caught.value)


class Web(BaseHTTPRequestHandler):
    """Serves the numbers with ranges and an entity tag."""

    etag = '"one"'

    def do_GET(self) -> None:
        data = VALUES.tobytes()
        first, last = 0, len(data) - 1
        asked = self.headers.get("Range")
        if asked:
            first, last = (int(each) for each in asked.removeprefix("bytes=").split("-"))
        known = self.path == "/data/numbers%20of%202026.bin"
        self.send_response((206 if asked else 200) if known else 404)
        self.send_header("ETag", self.etag)
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(last - first + 1 if known else 0))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.end_headers()
        if known and self.command == "GET":
            self.wfile.write(data[first : last + 1])

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def web() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_web_server_is_read_with_ranges_and_its_changes_are_noticed(web: str, monkeypatch: Any) -> None:
    storage = ars.in_memory_storage()
    config = RepositoryConfig(virtual_chunk_containers=(VirtualChunkContainer(web, allow_http=True),))
    repo = Repository.create(storage, config, authorize_virtual_chunk_access={web: None})
    refer(repo, web + "data/numbers of 2026.bin")
    np.testing.assert_array_equal(read(repo), VALUES)
    monkeypatch.setattr(Web, "etag", '"two"')
    with pytest.raises(ars.SourceChangedError, match="two"):
        read(Repository.open(storage, authorize_virtual_chunk_access={web: None}))
