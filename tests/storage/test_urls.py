"""Storages from URLs, and what fsspec can and cannot do."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arraystore.errors import InvalidInputError, StorageError, UnsupportedStorageError
from arraystore.storage import (
    CountingStorage,
    FsspecStorage,
    LocalStorage,
    MemoryStorage,
    ObstoreStorage,
    Storage,
    StorageSettings,
    fsspec_storage,
    local_filesystem_storage,
    r2_storage,
    s3_storage,
    storage_from_url,
)


@pytest.mark.parametrize(
    ("url", "kind", "location"),
    [
        ("s3://bucket/some/prefix/", ObstoreStorage, "s3://bucket/some/prefix"),
        ("s3://bucket?region=eu-north-1&anonymous=true", ObstoreStorage, "s3://bucket"),
        ("s3://b/p?endpoint_url=http://h:1&allow_http=true", ObstoreStorage, "s3://b/p?endpoint_url=http://h:1"),
        ("gs://bucket/p", ObstoreStorage, "gs://bucket/p"),
        ("az://account/container/p", ObstoreStorage, "az://account/container/p"),
        ("memory://shared/name", MemoryStorage, "memory://shared/name"),
        ("ftp://host/path", FsspecStorage, "ftp://host/path"),
        ("http://host/path?x=1", FsspecStorage, "http://host/path"),
    ],
)
def test_a_url_becomes_the_storage_of_its_scheme(url: str, kind: type[Any], location: str) -> None:
    storage = storage_from_url(url)
    assert isinstance(storage, kind)
    assert storage.location == location


def test_the_query_reaches_the_client() -> None:
    storage = storage_from_url("s3://bucket/p?region=eu-north-1&anonymous=true&requester_pays=1", region="eu-west-1")
    assert isinstance(storage, ObstoreStorage)
    options = dict(storage.config.options)
    assert options["region"] == "eu-west-1"
    assert options["skip_signature"] is True
    assert options["request_payer"] is True


def test_paths_and_file_urls_are_directories(tmp_path: Path) -> None:
    spaced = tmp_path / "with space"
    for url in (spaced, str(spaced), spaced.as_uri()):
        storage = storage_from_url(url)
        assert isinstance(storage, LocalStorage)
        assert storage.path == str(spaced)
    assert repr(storage_from_url(f"{tmp_path.as_uri()}?fsync=false")) == f"LocalStorage({str(tmp_path)!r}, fsync=False)"


def test_the_same_name_in_memory_is_the_same_storage() -> None:
    storage_from_url("memory://one").put_sync("a", b"1")
    assert storage_from_url("memory://one").get_sync("a") == b"1"
    assert storage_from_url("memory://two") is not storage_from_url("memory://one")


@pytest.mark.parametrize(
    "url",
    ["s3:///prefix", "az://account", "file://host/path", "s3://b/../c", "s3://b?unknown=1", "s3://b?allow_http=maybe",
     "memory://a?region=x", "simplecache::s3://b/p", "nul\0l", "file:///%00", "lone \ud800 surrogate",
     "http://h://user:secret@host/path", "gs://b/p?region=x", "file:///x?anonymous=true", "s3://b?fsync=true", "s3://b/p?endpoint_url=https://[::1",
     "s3://b/http://c"],
)  # fmt: skip
def test_a_url_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError):
        storage_from_url(url)


def test_r2_is_found_by_account() -> None:
    storage = r2_storage(bucket="b", prefix="p", account_id="acc", from_env=True)
    assert storage.location == "s3://b/p?endpoint_url=https://acc.r2.cloudflarestorage.com"
    with pytest.raises(InvalidInputError):
        r2_storage(bucket="b")


async def test_a_filesystem_without_conditional_writes_can_be_read_but_not_committed_to(tmp_path: Path) -> None:
    storage = FsspecStorage("file", str(tmp_path), {}, "file://as-fsspec-has-it")
    (tmp_path / "a").write_bytes(b"0123")
    assert bytes(await storage.get("a")) == b"0123"
    assert bytes(storage.get_range_sync("a", 1, 3)) == b"12"
    with pytest.raises(UnsupportedStorageError, match="local_filesystem_storage"):
        await storage.put_if_absent("b", b"x")
    assert not (tmp_path / "b").exists()


def test_local_files_through_fsspec_are_local_storage(tmp_path: Path) -> None:
    assert isinstance(fsspec_storage(f"file://{tmp_path}"), LocalStorage)


async def test_a_filesystem_that_is_not_there_is_an_error_with_a_remedy() -> None:
    with pytest.raises(StorageError, match="install the package"):
        await storage_from_url("nosuchscheme://host/path").get("a")


def test_a_filesystem_storage_without_secrets_pickles() -> None:
    storage = fsspec_storage("memory://some/where")
    assert repr(pickle.loads(pickle.dumps(storage))) == repr(storage) == "FsspecStorage('memory://some/where')"


LAGGING: dict[str, Callable[[Path], Storage]] = {
    "s3 by settings": lambda _: s3_storage(bucket="b", from_env=True, settings=StorageSettings(listing_lag=2.5)),
    "s3 by its URL": lambda _: storage_from_url("s3://bucket/p?listing_lag=2.5"),
    "s3 by an argument": lambda _: storage_from_url("s3://bucket/p?listing_lag=9", listing_lag=2.5),
    "gs by its URL": lambda _: storage_from_url("gs://bucket/p?listing_lag=2.5"),
    "az by its URL": lambda _: storage_from_url("az://account/container/p?listing_lag=2.5"),
    "fsspec by settings": lambda _: fsspec_storage("ftp://host/path", settings=StorageSettings(listing_lag=2.5)),
    "fsspec by an argument": lambda _: storage_from_url("ftp://host/path", listing_lag=2.5),
    "directory": lambda path: local_filesystem_storage(path, listing_lag=2.5),
    "directory by its URL": lambda path: storage_from_url(f"{path.as_uri()}?listing_lag=2.5"),
    "directory through fsspec": lambda path: fsspec_storage(str(path), settings=StorageSettings(listing_lag=2.5)),
}


@pytest.mark.parametrize("how", LAGGING)
def test_a_listing_lag_is_kept_by_the_storage_its_pickles_and_wrappers(how: str, tmp_path: Path) -> None:
    storage = LAGGING[how](tmp_path)
    assert storage.listing_lag == 2.5
    assert pickle.loads(pickle.dumps(storage)).listing_lag == 2.5
    wrapped = CountingStorage(storage)
    assert pickle.loads(pickle.dumps(wrapped)).listing_lag == 2.5
    wrapped.listing_lag = 7.0  # as the attribute of any storage
    assert pickle.loads(pickle.dumps(storage)).listing_lag == 7.0
    wrapped.listing_lag = 0.0
    assert pickle.loads(pickle.dumps(wrapped)).listing_lag == 0.0


@pytest.mark.parametrize("lag", [-1, float("inf"), float("nan"), True, "5"])
def test_a_listing_lag_that_is_no_number_of_seconds_is_refused(lag: Any, tmp_path: Path) -> None:
    for make in (
        lambda: StorageSettings(listing_lag=lag),
        lambda: local_filesystem_storage(tmp_path, listing_lag=lag),
        lambda: storage_from_url("s3://bucket/p", listing_lag=lag),
    ):
        with pytest.raises(InvalidInputError, match="listing_lag"):
            make()


@pytest.mark.parametrize("text", ["-1", "inf", "nan", "", "soon"])
def test_a_listing_lag_in_a_url_that_is_no_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="listing_lag"):
        storage_from_url(f"s3://bucket/p?listing_lag={text}")
