"""Storages under Icechunk's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from arraystore.compat.icechunk._object_stores import ChecksumAlgorithm, S3Options
from arraystore.compat.icechunk._settings import (
    StorageConcurrencySettings,
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
)
from arraystore.compat.icechunk._storages import Storage, StorageObjectInfo
from arraystore.compat.icechunk.config import AnyObjectStoreConfig, ObjectStoreConfig
from arraystore.compat.icechunk.credentials import (
    GcsBearerCredential,
    S3StaticCredentials,
    azure_credentials,
    gcs_credentials,
    s3_credentials,
)
from arraystore.compat.icechunk.types import ChunkType

__all__ = [
    "AnyObjectStoreConfig",
    "ChecksumAlgorithm",
    "ChunkType",
    "ObjectStoreConfig",
    "S3Options",
    "Storage",
    "StorageConcurrencySettings",
    "StorageObjectInfo",
    "StorageRetriesSettings",
    "StorageSettings",
    "StorageTimeoutSettings",
    "azure_storage",
    "azure_store",
    "gcs_storage",
    "gcs_store",
    "hf_storage",
    "http_storage",
    "http_store",
    "in_memory_storage",
    "local_filesystem_storage",
    "local_filesystem_store",
    "r2_storage",
    "redirect_storage",
    "s3_object_store_storage",
    "s3_storage",
    "s3_store",
    "tigris_storage",
]


# -- functions ----------------------------------------------------------------------------------------------------


def in_memory_storage() -> Storage:
    """Return a storage in the memory of this process."""
    return Storage.new_in_memory()


def local_filesystem_storage(path: str) -> Storage:
    """Return a storage in a local directory; safe for concurrent commits, unlike Icechunk's."""
    return Storage.new_local_filesystem(path)


def http_storage(base_url: str, opts: dict[str, str] | None = None, headers: dict[str, str] | None = None) -> Storage:
    """Return a storage that is read by HTTP."""
    return Storage.new_http(base_url, opts, headers)


def redirect_storage(base_url: str) -> Storage:
    """Return the storage that a URL redirects to."""
    return Storage.new_redirect(base_url)


def http_store(opts: dict[str, str] | None = None, headers: dict[str, str] | None = None) -> ObjectStoreConfig.Http:
    """Return sources of virtual chunks that are read by HTTP."""
    return ObjectStoreConfig.Http(opts, headers)


def local_filesystem_store(path: str) -> ObjectStoreConfig.LocalFileSystem:
    """Return sources of virtual chunks in a local directory."""
    return ObjectStoreConfig.LocalFileSystem(path)


def gcs_store(opts: dict[str, str] | None = None) -> ObjectStoreConfig.Gcs:
    """Return sources of virtual chunks on Google Cloud Storage."""
    return ObjectStoreConfig.Gcs(opts)


def azure_store(*, account: str, config: dict[str, str] | None = None) -> ObjectStoreConfig.Azure:
    """Return sources of virtual chunks on Azure."""
    return ObjectStoreConfig.Azure({"account": account, **(config or {})})


def s3_store(
    region: str | None = None,
    endpoint_url: str | None = None,
    allow_http: bool = False,
    anonymous: bool = False,
    s3_compatible: bool = False,
    force_path_style: bool = False,
    network_stream_timeout_seconds: int = 60,
    requester_pays: bool = False,
    checksum_algorithm: ChecksumAlgorithm | None = None,
) -> ObjectStoreConfig.S3Compatible | ObjectStoreConfig.S3:
    """Return sources of virtual chunks on S3."""
    options = S3Options(
        region,
        endpoint_url,
        allow_http,
        anonymous,
        force_path_style,
        network_stream_timeout_seconds,
        requester_pays,
        checksum_algorithm,
    )
    return ObjectStoreConfig.S3Compatible(options) if s3_compatible else ObjectStoreConfig.S3(options)


def s3_storage(
    *,
    bucket: str,
    prefix: str | None,
    region: str | None = None,
    endpoint_url: str | None = None,
    allow_http: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], S3StaticCredentials] | None = None,
    scatter_initial_credentials: bool = False,
    force_path_style: bool = False,
    network_stream_timeout_seconds: int = 60,
    requester_pays: bool = False,
    checksum_algorithm: ChecksumAlgorithm | None = None,
    legacy_rooted_keys: bool | None = None,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Storage:
    """Return a storage on S3 or a compatible service."""
    options, credentials = _s3_like(locals())
    return Storage.new_s3(
        options,
        bucket,
        prefix,
        credentials,
        legacy_rooted_keys,
        read_headers=read_headers,
        write_headers=write_headers,
        headers=headers,
    )


def s3_object_store_storage(
    *,
    bucket: str,
    prefix: str | None,
    region: str | None = None,
    endpoint_url: str | None = None,
    allow_http: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    force_path_style: bool = False,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Storage:
    """Return a storage on S3: the same as `s3_storage`."""
    return s3_storage(**locals())


_S3_OPTIONS = (
    "region",
    "endpoint_url",
    "allow_http",
    "force_path_style",
    "network_stream_timeout_seconds",
    "requester_pays",
    "checksum_algorithm",
)
_S3_CREDENTIALS = (
    "access_key_id",
    "secret_access_key",
    "session_token",
    "expires_after",
    "anonymous",
    "from_env",
    "get_credentials",
    "scatter_initial_credentials",
)


def _s3_like(arguments: Mapping[str, Any]) -> tuple[S3Options, Any]:
    """Return the options and the credentials among the arguments of a function for a service like S3."""
    credentials = s3_credentials(**{name: arguments.get(name) for name in _S3_CREDENTIALS})  # type: ignore[arg-type]
    options = {name: arguments[name] for name in _S3_OPTIONS if name in arguments}
    return S3Options(**options, anonymous=bool(arguments.get("anonymous"))), credentials


def tigris_storage(
    *,
    bucket: str,
    prefix: str | None,
    region: str | None = None,
    endpoint_url: str | None = None,
    use_weak_consistency: bool = False,
    allow_http: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], S3StaticCredentials] | None = None,
    scatter_initial_credentials: bool = False,
    network_stream_timeout_seconds: int = 60,
    checksum_algorithm: ChecksumAlgorithm | None = None,
    legacy_rooted_keys: bool | None = None,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Storage:
    """Return a storage on Tigris."""
    options, credentials = _s3_like(locals())
    return Storage.new_tigris(
        options,
        bucket,
        prefix,
        use_weak_consistency,
        credentials,
        legacy_rooted_keys,
        read_headers=read_headers,
        write_headers=write_headers,
        headers=headers,
    )


def r2_storage(
    *,
    bucket: str | None = None,
    prefix: str | None = None,
    account_id: str | None = None,
    endpoint_url: str | None = None,
    region: str | None = None,
    allow_http: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], S3StaticCredentials] | None = None,
    scatter_initial_credentials: bool = False,
    network_stream_timeout_seconds: int = 60,
    checksum_algorithm: ChecksumAlgorithm | None = None,
    legacy_rooted_keys: bool | None = None,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Storage:
    """Return a storage on Cloudflare R2."""
    options, credentials = _s3_like(locals())
    return Storage.new_r2(
        options,
        bucket,
        prefix,
        account_id,
        credentials,
        legacy_rooted_keys,
        read_headers=read_headers,
        write_headers=write_headers,
        headers=headers,
    )


def hf_storage(
    *,
    bucket: str,
    prefix: str | None,
    namespace: str,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], S3StaticCredentials] | None = None,
    scatter_initial_credentials: bool = False,
    network_stream_timeout_seconds: int = 60,
    legacy_rooted_keys: bool | None = None,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Storage:
    """Return a storage in a bucket of Hugging Face."""
    options, credentials = _s3_like(locals())
    return Storage.new_hf(
        options,
        bucket,
        prefix,
        namespace,
        credentials,
        legacy_rooted_keys,
        read_headers=read_headers,
        write_headers=write_headers,
        headers=headers,
    )


def gcs_storage(
    *,
    bucket: str,
    prefix: str | None,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    config: dict[str, str] | None = None,
    get_credentials: Callable[[], GcsBearerCredential] | None = None,
    scatter_initial_credentials: bool = False,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Storage:
    """Return a storage on Google Cloud Storage."""
    credentials = gcs_credentials(
        service_account_file=service_account_file,
        service_account_key=service_account_key,
        application_credentials=application_credentials,
        bearer_token=bearer_token,
        from_env=from_env,
        anonymous=anonymous,
        get_credentials=get_credentials,
        scatter_initial_credentials=scatter_initial_credentials,
    )
    return Storage.new_gcs(
        bucket,
        prefix,
        credentials,
        config=config,
        read_headers=read_headers,
        write_headers=write_headers,
        headers=headers,
    )


def azure_storage(
    *,
    account: str,
    container: str,
    prefix: str,
    access_key: str | None = None,
    sas_token: str | None = None,
    bearer_token: str | None = None,
    from_env: bool | None = None,
    anonymous: bool | None = None,
    config: dict[str, str] | None = None,
) -> Storage:
    """Return a storage on Azure Blob Storage."""
    credentials = azure_credentials(
        access_key=access_key,
        sas_token=sas_token,
        bearer_token=bearer_token,
        from_env=from_env,
        anonymous=anonymous,
    )
    return Storage.new_azure_blob(account, container, prefix, credentials, config=config)
