"""Storage classes and metadata of objects reach the service with every kind of write, and with no other request."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from arraystore._chunks.pack_writer import pack_key
from arraystore._format.ids import PackId
from arraystore.compat import icechunk
from arraystore.errors import InvalidInputError
from arraystore.storage import ObstoreStorage, StorageSettings, azure_storage, gcs_storage, s3_storage, storage_from_url
from arraystore.storage.bucket_client import client_of
from arraystore.storage.object_attributes import CHUNKS
from arraystore.storage.part_stream import PartStream
from tests.s3server import S3Server
from tests.storage.conftest import obstore_on
from tests.storage.test_uploads import DATA, IN_PARTS, PART, Answer, MultipartHandler, MultipartServer

SETTINGS = replace(IN_PARTS, chunks_storage_class="STANDARD_IA", metadata_storage_class="INTELLIGENT_TIERING")


class RecordingServer(MultipartServer):
    """Keeps what requests say about attributes of objects."""

    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = RecordingHandler
        self.attributes: list[tuple[str, str, dict[str, str]]] = []


class RecordingHandler(MultipartHandler):
    server: RecordingServer

    def _do(self, body: bytes) -> Answer:
        named = {name.lower(): value for name, value in self.headers.items()}
        signed = named.get("authorization", "")
        sent = {name: named[name] for name in ("x-amz-storage-class", "x-amz-meta-team") if name in named}
        assert all(name in signed for name in sent), "a header of S3 that is not signed"
        self.server.attributes.append((self.command, self.path, sent))
        return super()._do(body)


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    with RecordingServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def storage_on(server: RecordingServer, settings: StorageSettings = SETTINGS, **options: Any) -> ObstoreStorage:
    return s3_storage(
        bucket="b",
        region="us-east-1",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        allow_http=True,
        access_key_id="key",
        secret_access_key="secret",
        settings=settings,
        **options,
    )


async def test_every_write_names_the_class_of_its_object_and_no_read_does(server: RecordingServer) -> None:
    storage = storage_on(server, headers={"x-amz-meta-team": "ocean", "x-plain": "1"})
    await storage.put("chunks/a", b"1")
    storage.put_sync("chunks/b", b"2")
    await storage.put("chunks/large", DATA)
    storage.put_sync("chunks/large-too", DATA)
    await storage.put_stream("chunks/stream", PartStream.of(DATA, PART))
    await storage.put_if_absent("log/1", b"3")
    await storage.put("manifests/m", b"4")
    await storage.get("log/1")

    seen = server.attributes
    creating = [(path, sent) for command, path, sent in seen if command in ("PUT", "POST") and "uploadId" not in path]
    assert len(creating) == 7
    for path, sent in creating:
        expected = "STANDARD_IA" if "/chunks/" in path else "INTELLIGENT_TIERING"
        assert sent == {"x-amz-storage-class": expected, "x-amz-meta-team": "ocean"}, path
    assert all(not sent for command, path, sent in seen if command == "GET" or "uploadId" in path)


async def test_without_a_class_nothing_is_sent(server: RecordingServer) -> None:
    await storage_on(server, IN_PARTS).put("chunks/a", b"1")
    assert server.attributes == [("PUT", "/b/chunks/a", {})]


def test_packs_are_in_the_directory_of_chunks() -> None:
    assert pack_key(PackId(bytes(12))).startswith(CHUNKS)


def test_storages_of_different_classes_share_a_client(server: RecordingServer) -> None:
    first, second = storage_on(server).config, storage_on(server, IN_PARTS, headers={"x-amz-meta-a": "b"}).config
    client = client_of(first)
    assert client_of(second) is client


async def test_a_pickled_storage_keeps_class_and_metadata(server: RecordingServer) -> None:
    storage = storage_on(server, headers={"x-amz-meta-team": "ocean"}, pickle_credentials=True)
    await pickle.loads(pickle.dumps(storage)).put("chunks/a", b"1")
    assert server.attributes[0][2] == {"x-amz-storage-class": "STANDARD_IA", "x-amz-meta-team": "ocean"}


def test_classes_are_set_by_the_query_of_a_url() -> None:
    url = "s3://bucket/p?region=us-east-1&chunks_storage_class=GLACIER_IR&metadata_storage_class=STANDARD"
    storage = storage_from_url(url, anonymous=True)
    assert isinstance(storage, ObstoreStorage)
    settings = storage.config.settings
    assert (settings.chunks_storage_class, settings.metadata_storage_class) == ("GLACIER_IR", "STANDARD")


@pytest.mark.parametrize("name", ["GLACIER", "DEEP_ARCHIVE", "deep_archive"])
def test_a_class_whose_objects_cannot_be_read_is_refused(name: str) -> None:
    for field in ("chunks_storage_class", "metadata_storage_class"):
        with pytest.raises(InvalidInputError, match=f"{name} cannot be read until"):
            s3_storage(bucket="b", region="us-east-1", settings=StorageSettings(**{field: name}))


def test_archives_are_told_apart_by_provider() -> None:
    settings = StorageSettings(chunks_storage_class="ARCHIVE")
    assert gcs_storage(bucket="b", settings=settings).config.settings == settings
    with pytest.raises(InvalidInputError, match="cannot be read until"):
        azure_storage(account="a", container="c", settings=settings)


@pytest.mark.parametrize("name", ["", "STANDARD IA", "A\r\nx-evil: 1"])
def test_what_is_no_name_of_a_class_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a valid storage class"):
        StorageSettings(chunks_storage_class=name)


@pytest.mark.parametrize("value", ["\u00fcber", "a\r\nx-evil: 1", " a", "\x00"])
def test_metadata_that_no_header_can_have_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(InvalidInputError, match="must be printable ASCII") as caught:
        s3_storage(bucket="b", region="us-east-1", headers={"x-amz-meta-a": value})
    assert value not in str(caught.value) or value == " a"


def test_filesystems_of_fsspec_refuse_classes() -> None:
    with pytest.raises(InvalidInputError, match="writes in no storage class"):
        storage_from_url("sftp://host/path", chunks_storage_class="STANDARD_IA")


@pytest.mark.parametrize("name", ["x-amz-acl", "X-Amz-Storage-Class", "x-amz-meta-", "x-amz-meta-a b"])
def test_other_headers_of_s3_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="must be signed"):
        s3_storage(bucket="b", region="us-east-1", headers={name: "v"})


def test_metadata_arrives_at_a_server(s3_server: S3Server) -> None:
    storage = obstore_on(s3_server, prefix="p", headers={"X-Amz-Meta-Team": "ocean"})
    storage.put_sync("chunks/a", b"1")
    found = s3_server.client().head_object(Bucket=storage.config.bucket, Key="p/chunks/a")
    assert found["Metadata"] == {"team": "ocean"}


def test_classes_of_icechunk_are_those_of_the_storage() -> None:
    settings = icechunk.StorageSettings(storage_class="STANDARD_IA", metadata_storage_class="STANDARD")
    storage = icechunk.s3_storage(bucket="b", prefix="p", region="us-east-1", anonymous=True).core(settings)
    assert isinstance(storage, ObstoreStorage)
    chosen = storage.config.settings
    assert (chosen.chunks_storage_class, chosen.metadata_storage_class) == ("STANDARD_IA", "STANDARD")
