"""Credentials show nowhere and travel only when told to."""

from __future__ import annotations

import copy
import pickle
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from arraystore.errors import InvalidInputError, StorageError
from arraystore.storage import (
    CountingStorage,
    GcsBearerCredential,
    S3StaticCredentials,
    Storage,
    azure_storage,
    fsspec_storage,
    gcs_storage,
    r2_storage,
    s3_storage,
    storage_from_url,
)
from arraystore.storage.credentials import CredentialProvider
from arraystore.storage.secret import Secret
from tests.s3server import S3Server
from tests.storage.conftest import obstore_on

HIDDEN = "c3VwZXItc2VjcmV0"
SERVICE_ACCOUNT = '{"private_key": "' + HIDDEN + '"}'

MAKERS: dict[str, Callable[..., Storage]] = {
    "s3": lambda **o: s3_storage(bucket="b", access_key_id=HIDDEN, secret_access_key=HIDDEN, session_token=HIDDEN, **o),
    "s3-headers": lambda **o: s3_storage(bucket="b", headers={"authorization": HIDDEN}, **o),
    "r2": lambda **o: r2_storage(bucket="b", account_id="acc", access_key_id=HIDDEN, secret_access_key=HIDDEN, **o),
    "gcs-bearer": lambda **o: gcs_storage(bucket="b", bearer_token=HIDDEN, **o),
    "gcs-account": lambda **o: gcs_storage(bucket="b", service_account_key=SERVICE_ACCOUNT, **o),
    "azure-key": lambda **o: azure_storage(account="a", container="c", access_key=HIDDEN, **o),
    "azure-sas": lambda **o: azure_storage(account="a", container="c", sas_token=f"sv=1&sig={HIDDEN}", **o),
    "fsspec": lambda **o: fsspec_storage("s3://b/p", key="x", client_kwargs={"aws_secret_access_key": HIDDEN}, **o),
}


@pytest.fixture(params=list(MAKERS))
def make(request: pytest.FixtureRequest) -> Callable[..., Storage]:
    return MAKERS[request.param]


def test_no_secret_shows_in_a_representation(make: Callable[..., Storage]) -> None:
    storage = make()
    config = getattr(storage, "config", None)
    for text in (repr(storage), str(storage), f"{storage}", storage.location, repr(config), f"{config}"):
        assert HIDDEN not in text
    assert HIDDEN not in repr(CountingStorage(storage))


def test_secrets_are_not_pickled_unasked(make: Callable[..., Storage]) -> None:
    with pytest.raises(StorageError, match=r"^pickle_credentials=True was not passed") as caught:
        pickle.dumps(make())
    assert HIDDEN not in "".join(traceback.format_exception(caught.value))


def test_secrets_are_pickled_when_asked(make: Callable[..., Storage]) -> None:
    again = pickle.loads(pickle.dumps(make(pickle_credentials=True)))
    assert HIDDEN.encode() in pickle.dumps(again)
    assert HIDDEN not in repr(getattr(again, "config", again))


async def test_no_secret_shows_in_an_error_or_its_traceback() -> None:
    storage = azure_storage(
        account="a",
        container="c",
        sas_token=f"sv=1&sig={HIDDEN}",
        config={"endpoint": "http://127.0.0.1:1"},
        allow_http=True,
        settings=None,
    )
    bad = gcs_storage(bucket="b", service_account_key=SERVICE_ACCOUNT)
    from dataclasses import replace

    from arraystore.storage import ObstoreStorage, StorageRetriesSettings, StorageSettings

    quick = StorageSettings(retries=StorageRetriesSettings(max_tries=1))
    for one in (ObstoreStorage(replace(storage.config, settings=quick)), bad):
        with pytest.raises(StorageError) as caught:
            await one.get("a")
        assert HIDDEN not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("query", ["X-Amz-Signature=" + HIDDEN, "sig=" + HIDDEN, "a=1&token=" + HIDDEN])
def test_a_signature_in_a_url_is_not_pickled_unasked(query: str) -> None:
    storage = storage_from_url(f"https://example.org/data?{query}")
    with pytest.raises(StorageError, match="pickle_credentials=True was not passed") as caught:
        pickle.dumps(storage)
    assert HIDDEN not in str(caught.value)
    pickle.dumps(storage_from_url("https://example.org/data?version=3"))


def test_a_storage_without_credentials_of_its_own_pickles() -> None:
    for storage in (s3_storage(bucket="b", from_env=True), s3_storage(bucket="b", get_credentials=current_credentials)):
        assert pickle.loads(pickle.dumps(storage)).location == "s3://b"


def test_a_secret_is_opaque() -> None:
    secret = Secret(HIDDEN)
    assert HIDDEN not in repr([secret]) + str(secret) + f"{secret} {secret:>20} {secret!r}"
    assert copy.deepcopy(secret) == secret == copy.copy(secret)
    with pytest.raises(StorageError):
        pickle.dumps(secret)
    assert HIDDEN not in repr(S3StaticCredentials(HIDDEN, HIDDEN, HIDDEN)) + repr(GcsBearerCredential(HIDDEN))


@pytest.mark.parametrize(
    "url",
    [
        f"s3://key:{HIDDEN}@bucket/p",
        f"sftp://user:{HIDDEN}@host/p",
        f"s3://bucket/p?secret_access_key={HIDDEN}",
        f"az://a/c/p?sig={HIDDEN}",
        f"gs://b/p?token={HIDDEN}",
        f"s3://bucket/p?anonymous={HIDDEN}",
        f"s3://[{HIDDEN}/p",
    ],
)
def test_a_url_with_credentials_is_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        storage_from_url(url)
    assert HIDDEN not in "".join(traceback.format_exception(caught.value))


def test_an_endpoint_with_credentials_is_refused_without_repeating_them() -> None:
    with pytest.raises(InvalidInputError) as caught:
        s3_storage(bucket="b", endpoint_url=f"https://user:{HIDDEN}@host")
    assert HIDDEN not in str(caught.value)


calls: list[int] = []


def current_credentials() -> S3StaticCredentials:
    calls.append(1)
    return S3StaticCredentials("id", HIDDEN, expires_after=datetime.now(UTC) + timedelta(hours=1))


def test_scattered_credentials_are_fetched_once_and_travel() -> None:
    calls.clear()
    storage = s3_storage(bucket="b", get_credentials=current_credentials, scatter_initial_credentials=True)
    assert len(calls) == 1
    again = pickle.loads(pickle.dumps(storage))
    assert again.config.credentials == storage.config.credentials
    assert HIDDEN not in repr(again.config)


def test_credentials_are_used_until_shortly_before_they_expire() -> None:
    calls.clear()
    now = datetime.now(UTC)
    fresh = S3StaticCredentials("first", "x", expires_after=now + timedelta(hours=1))
    stale = S3StaticCredentials("first", "x", expires_after=now + timedelta(seconds=5))
    assert CredentialProvider(current_credentials, fresh)()["access_key_id"] == "first"
    assert CredentialProvider(current_credentials, stale)()["access_key_id"] == "id"
    assert CredentialProvider(None, stale)()["access_key_id"] == "first"
    assert len(calls) == 1


async def test_a_callable_provides_credentials_for_requests(s3_server: S3Server) -> None:
    asked: list[int] = []

    def get_credentials() -> S3StaticCredentials:
        asked.append(1)
        return S3StaticCredentials(s3_server.access_key_id, s3_server.secret_access_key)

    storage = obstore_on(
        s3_server, access_key_id=None, secret_access_key=None, get_credentials=get_credentials, pickle_credentials=False
    )
    await storage.put("a", b"1")
    assert bytes(storage.get_sync("a")) == b"1"
    assert len(asked) == 1


async def test_wrong_keys_are_told_apart_from_a_missing_object(s3_server: S3Server) -> None:
    storage = obstore_on(s3_server, secret_access_key=HIDDEN)
    with pytest.raises(StorageError, match="secret key") as caught:
        await storage.get("a")
    assert HIDDEN not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "arguments",
    [
        {"access_key_id": "a"},
        {"session_token": "t"},
        {"anonymous": True, "from_env": True},
        {"access_key_id": "a", "secret_access_key": "b", "anonymous": True},
        {"access_key_id": "a", "secret_access_key": "b", "expires_after": datetime(2030, 1, 1)},  # noqa: DTZ001
        {"scatter_initial_credentials": True},
        {"endpoint_url": "http://host"},
        {"endpoint_url": "host"},
        {"headers": {"x-amz-acl": "private"}},
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        s3_storage(bucket="b", **arguments)
