"""Functions that create a storage on an object store, under the names that users of versioned array stores know."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import compress
from typing import Any, Literal
from urllib.parse import urlsplit

from arraystore.errors import InvalidInputError
from arraystore.storage.credentials import (
    AnyCredentials,
    GcsBearerCredential,
    S3StaticCredentials,
    SecretCredentials,
    fetch_credentials,
)
from arraystore.storage.keys import check_key
from arraystore.storage.object_attributes import check_storage_classes, split_headers
from arraystore.storage.objectstore import ObstoreStorage
from arraystore.storage.obstore_config import ObstoreConfig
from arraystore.storage.secret import Secret
from arraystore.storage.settings import StorageSettings

__all__ = ["azure_storage", "gcs_storage", "http_storage", "r2_storage", "s3_storage"]


def s3_storage(
    *,
    bucket: str,
    prefix: str | None = None,
    region: str | None = None,
    endpoint_url: str | None = None,
    allow_http: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool = False,
    from_env: bool = False,
    get_credentials: Callable[[], Any] | None = None,
    scatter_initial_credentials: bool = False,
    force_path_style: bool = False,
    network_stream_timeout_seconds: int | None = None,
    requester_pays: bool = False,
    checksum_algorithm: str | None = None,
    headers: Mapping[str, str] | None = None,
    pickle_credentials: bool = False,
    settings: StorageSettings | None = None,
) -> ObstoreStorage:
    """Create a storage on S3 or on an S3-compatible service.

    The service must honour ``If-None-Match: *`` on PUT, as S3, MinIO, SeaweedFS, Ceph and R2 do.

    Parameters
    ----------
    bucket, prefix
        Location of the repository.
    region
        Region of the bucket; from the environment by default.
    endpoint_url
        Endpoint of a service other than AWS.
    allow_http
        Whether the endpoint may be unencrypted.
    access_key_id, secret_access_key, session_token, expires_after
        Fixed credentials.
    anonymous
        Whether to send unsigned requests.
    from_env
        Whether to take credentials from the environment, which is also the default.
    get_credentials
        Callable without arguments that returns `S3StaticCredentials`, called again before they expire.  It must be
        picklable if the storage is to be pickled.  Storages of one bucket with equal callables share a client, and its
        credentials: what answers differently from caller to caller must not be equal.
    scatter_initial_credentials
        Whether to call `get_credentials` now, and to keep and pickle the credentials that it returns.
    force_path_style
        Whether to use path-style requests with AWS too; an `endpoint_url` always implies them.
    network_stream_timeout_seconds
        Read timeout: longest pause within a response; 0 for no timeout.  Replaces ``settings.timeouts.read``.
    requester_pays
        Whether the requester pays for requests to the bucket.
    checksum_algorithm
        ``"SHA256"`` or ``"CRC64NVME"``: checksum that the service verifies on upload.
    headers
        Headers to send with every request, unsigned.  Of those that start with ``x-amz-``, which S3 wants signed, only
        ``x-amz-meta-`` is supported: metadata of the objects that are written.
    pickle_credentials
        Whether pickles of the storage may contain fixed credentials.
    settings
        Timeouts, retries, concurrency and storage classes.
    """
    keys = _s3_static_credentials(access_key_id, secret_access_key, session_token, expires_after)
    _check_one_credential_source(keys is not None, anonymous, from_env, get_credentials)
    _check_endpoint(endpoint_url, allow_http)
    options = _given(
        virtual_hosted_style_request=endpoint_url is None and not force_path_style and "." not in bucket,
        conditional_put="etag",
        region=region,
        endpoint=None if endpoint_url is None else endpoint_url.rstrip("/"),
        skip_signature=anonymous or None,
        request_payer=requester_pays or None,
        checksum_algorithm=checksum_algorithm,
    )
    return _obstore(
        "s3",
        bucket,
        prefix,
        f"s3://{bucket}",
        endpoint_url=endpoint_url,
        options=options,
        credentials=keys,
        get_credentials=get_credentials,
        scatter_initial_credentials=scatter_initial_credentials,
        headers=headers,
        allow_http=allow_http,
        pickle_credentials=pickle_credentials,
        settings=_with_stream_timeout(settings, network_stream_timeout_seconds),
    )


def r2_storage(
    *,
    bucket: str,
    prefix: str | None = None,
    account_id: str | None = None,
    endpoint_url: str | None = None,
    region: str | None = None,
    allow_http: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool = False,
    from_env: bool = False,
    get_credentials: Callable[[], Any] | None = None,
    scatter_initial_credentials: bool = False,
    network_stream_timeout_seconds: int | None = None,
    pickle_credentials: bool = False,
    settings: StorageSettings | None = None,
) -> ObstoreStorage:
    """Create a storage on Cloudflare R2.

    Parameters that are not listed here are as for `s3_storage`.

    Parameters
    ----------
    bucket, prefix
        Location of the repository.
    account_id
        Account that owns the bucket.
    endpoint_url
        Endpoint to use instead of the one derived from `account_id`.
    region
        Region of the bucket; ``"auto"`` by default.
    """
    if (account_id is None) == (endpoint_url is None):
        raise InvalidInputError("r2_storage needs exactly one of account_id and endpoint_url")
    return s3_storage(
        bucket=bucket,
        prefix=prefix,
        region=region or "auto",
        endpoint_url=endpoint_url or f"https://{account_id}.r2.cloudflarestorage.com",
        allow_http=allow_http,
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
        session_token=session_token,
        expires_after=expires_after,
        anonymous=anonymous,
        from_env=from_env,
        get_credentials=get_credentials,
        scatter_initial_credentials=scatter_initial_credentials,
        force_path_style=True,
        network_stream_timeout_seconds=network_stream_timeout_seconds,
        pickle_credentials=pickle_credentials,
        settings=settings,
    )


def gcs_storage(
    *,
    bucket: str,
    prefix: str | None = None,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
    anonymous: bool = False,
    from_env: bool = False,
    config: Mapping[str, str] | None = None,
    get_credentials: Callable[[], Any] | None = None,
    scatter_initial_credentials: bool = False,
    headers: Mapping[str, str] | None = None,
    allow_http: bool = False,
    pickle_credentials: bool = False,
    settings: StorageSettings | None = None,
) -> ObstoreStorage:
    """Create a storage on Google Cloud Storage.

    Parameters
    ----------
    bucket, prefix
        Location of the repository.
    service_account_file
        Path of a service account file; it must exist in every process that uses the storage.
    service_account_key
        Content of such a file.
    application_credentials
        Path of an application credentials file.
    bearer_token
        Bearer token that stays valid for as long as the storage is used.
    anonymous
        Whether to send unsigned requests.
    from_env
        Whether to take credentials from the environment, which is also the default.
    config
        Further client settings, such as ``base_url``; treated as secrets.
    get_credentials
        Callable without arguments that returns `GcsBearerCredential`, called again before it expires.
    scatter_initial_credentials, headers, pickle_credentials, settings
        As for `s3_storage`.
    allow_http
        Whether an endpoint in `config` may be unencrypted.
    """
    fixed = [service_account_file, service_account_key, application_credentials, bearer_token]
    fixed_count = sum(value is not None for value in fixed)
    if fixed_count > 1:
        raise InvalidInputError("gcs_storage: give only one kind of credentials")
    _check_one_credential_source(bool(fixed_count), anonymous, from_env, get_credentials)
    options = _given(
        skip_signature=anonymous or None,
        service_account=None if service_account_file is None else os.fspath(service_account_file),
        application_credentials=None if application_credentials is None else os.fspath(application_credentials),
    )
    return _obstore(
        "gcs",
        bucket,
        prefix,
        f"gs://{bucket}",
        options=options,
        secret_options={**(config or {}), **_given(service_account_key=service_account_key)},
        credentials=None if bearer_token is None else GcsBearerCredential(bearer_token),
        get_credentials=get_credentials,
        scatter_initial_credentials=scatter_initial_credentials,
        headers=headers,
        allow_http=allow_http,
        pickle_credentials=pickle_credentials,
        settings=settings,
    )


def azure_storage(
    *,
    account: str,
    container: str,
    prefix: str | None = None,
    access_key: str | None = None,
    sas_token: str | None = None,
    bearer_token: str | None = None,
    from_env: bool = False,
    anonymous: bool = False,
    config: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    allow_http: bool = False,
    pickle_credentials: bool = False,
    settings: StorageSettings | None = None,
) -> ObstoreStorage:
    """Create a storage on Azure Blob Storage, in an account without a hierarchical namespace.

    Parameters
    ----------
    account, container, prefix
        Location of the repository.
    access_key, sas_token, bearer_token
        Fixed credentials; at most one of them.
    from_env
        Whether to take credentials from the environment, which is also the default.
    anonymous
        Whether to send unsigned requests.
    config
        Further client settings, such as ``endpoint``; treated as secrets.
    headers, pickle_credentials, settings
        As for `s3_storage`.
    allow_http
        Whether an endpoint in `config` may be unencrypted.
    """
    fixed = _given(account_key=access_key, sas_key=sas_token, token=bearer_token)
    if len(fixed) > 1:
        raise InvalidInputError("azure_storage: give only one of access_key, sas_token and bearer_token")
    _check_one_credential_source(bool(fixed), anonymous, from_env, None)
    return _obstore(
        "azure",
        container,
        prefix,
        f"az://{account}/{container}",
        options=_given(account_name=account, skip_signature=anonymous or None),
        secret_options={**(config or {}), **fixed},
        headers=headers,
        allow_http=allow_http,
        pickle_credentials=pickle_credentials,
        settings=settings,
    )


def http_storage(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    allow_http: bool = False,
    pickle_credentials: bool = False,
    settings: StorageSettings | None = None,
) -> ObstoreStorage:
    """Create a storage that reads objects from a web server, of virtual chunks for instance; nothing is written to it.

    Parameters
    ----------
    url
        URL below which the objects are, such as ``https://host/path/``; the server must honour ranges.
    headers
        Headers to send with every request; treated as secrets.
    allow_http
        Whether the server may be unencrypted.
    pickle_credentials
        Whether pickles of the storage may contain the headers.
    settings
        Timeouts, retries and concurrency.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInputError(
            f"the URL of a web server must be https://host/path, and its scheme is {parts.scheme!r}"
        )
    if "@" in parts.netloc:
        raise InvalidInputError("the URL contains credentials, and URLs end up in logs: pass them in headers")
    if parts.scheme == "http" and not allow_http:
        raise InvalidInputError(f"{url!r} is unencrypted: use https, or pass allow_http=True")
    root = f"{parts.scheme}://{parts.netloc}"
    return _obstore(
        "http",
        root,
        parts.path,
        root,
        options={},
        headers=headers,
        allow_http=allow_http,
        pickle_credentials=pickle_credentials,
        settings=settings,
    )


def _obstore(
    kind: Literal["s3", "gcs", "azure", "http"],
    bucket: str,
    prefix: str | None,
    location: str,
    *,
    options: Mapping[str, str | bool],
    endpoint_url: str | None = None,
    secret_options: Mapping[str, str] | None = None,
    credentials: AnyCredentials | None = None,
    get_credentials: Callable[[], Any] | None = None,
    scatter_initial_credentials: bool = False,
    headers: Mapping[str, str] | None,
    allow_http: bool,
    pickle_credentials: bool,
    settings: StorageSettings | None,
) -> ObstoreStorage:
    if not bucket or ("/" in bucket and kind != "http"):
        raise InvalidInputError(
            f"{bucket!r} is not a valid bucket name: it must not be empty or contain a slash; pass a path below the "
            "bucket as prefix"
        )
    plain, metadata = split_headers(kind, headers)
    chosen = settings or StorageSettings()
    check_storage_classes(kind, chosen)
    clean = (prefix or "").strip("/")
    if clean:
        check_key(clean)
        location += f"/{clean}"
    if endpoint_url is not None:
        location += f"?endpoint_url={endpoint_url.rstrip('/')}"
    if scatter_initial_credentials:
        if get_credentials is None:
            raise InvalidInputError("scatter_initial_credentials needs get_credentials")
        credentials = fetch_credentials(get_credentials)
    return ObstoreStorage(
        ObstoreConfig(
            kind=kind,
            bucket=bucket,
            prefix=clean,
            location=location,
            options=tuple(options.items()),
            secret_options=_secrets(secret_options),
            credentials=None if credentials is None else SecretCredentials.wrap(credentials),
            get_credentials=get_credentials,
            headers=_secrets(plain),
            metadata=_secrets(metadata),
            allow_http=allow_http,
            pickle_credentials=pickle_credentials or scatter_initial_credentials,
            settings=chosen,
        )
    )


def _given(**options: str | bool | None) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _secrets(values: Mapping[str, str] | None) -> tuple[tuple[str, Secret], ...]:
    return tuple((name, Secret(value)) for name, value in (values or {}).items())


def _s3_static_credentials(
    access_key_id: str | None, secret_access_key: str | None, session_token: str | None, expires_after: datetime | None
) -> S3StaticCredentials | None:
    if access_key_id is None and secret_access_key is None:
        if session_token is not None or expires_after is not None:
            raise InvalidInputError("session_token and expires_after go with access_key_id and secret_access_key")
        return None
    if access_key_id is None or secret_access_key is None:
        raise InvalidInputError("access_key_id and secret_access_key go together: give both or none")
    return S3StaticCredentials(access_key_id, secret_access_key, session_token, expires_after)


def _check_one_credential_source(fixed: bool, anonymous: bool, from_env: bool, get_credentials: Any) -> None:
    names = ("fixed credentials", "anonymous", "from_env", "get_credentials")
    sources = list(compress(names, (fixed, anonymous, from_env, get_credentials is not None)))
    if len(sources) > 1:
        raise InvalidInputError(f"credentials must have one source: choose one of {' and '.join(sources)}")


def _check_endpoint(endpoint_url: str | None, allow_http: bool) -> None:
    if endpoint_url is None:
        return
    try:
        parts = urlsplit(endpoint_url)
    except ValueError as error:
        raise InvalidInputError(
            f"the endpoint_url is not a valid URL: {type(error).__name__}; check its brackets"
        ) from None
    if "@" in parts.netloc:
        raise InvalidInputError(
            "the endpoint_url contains credentials: give them as access_key_id and secret_access_key"
        )
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidInputError(f"endpoint_url={endpoint_url!r} must start with https:// or http://")
    if parts.scheme == "http" and not allow_http:
        raise InvalidInputError(f"endpoint_url={endpoint_url!r} is unencrypted: use https, or pass allow_http=True")


def _with_stream_timeout(settings: StorageSettings | None, seconds: int | None) -> StorageSettings | None:
    if seconds is None:
        return settings
    base = settings or StorageSettings()
    return replace(base, timeouts=replace(base.timeouts, read=seconds or None))
