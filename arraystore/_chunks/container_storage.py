"""Storages of containers of virtual chunks, by the scheme of their prefix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from arraystore._chunks.virtual_chunk_container import ContainerAccess, VirtualChunkContainer
from arraystore.errors import InvalidInputError
from arraystore.storage.constructors import azure_storage, gcs_storage, http_storage, s3_storage
from arraystore.storage.credentials import GcsBearerCredential, S3StaticCredentials
from arraystore.storage.local import local_filesystem_storage
from arraystore.storage.protocol import Storage
from arraystore.storage.urls import storage_from_url

_SERVICES = {
    "s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "azure": "azure", "http": "http",
    "https": "http", "file": "file",
}  # fmt: skip
_OPTIONS = {
    "s3": {"region", "endpoint_url", "allow_http", "anonymous", "force_path_style", "requester_pays"},
    "gcs": {"anonymous"},
    "azure": {"anonymous", "account"},
    "http": {"allow_http", "anonymous"},
}


def open_container(container: VirtualChunkContainer, access: ContainerAccess) -> Storage:
    """Return the storage that reads a container with the credentials, or other arguments, of its reader."""
    scheme = container.url_prefix.partition("://")[0]
    service = _SERVICES.get(scheme, "")
    options: dict[str, Any] = container.options()
    meaningless = options.keys() - _OPTIONS.get(service, set())
    if meaningless:
        raise InvalidInputError(
            f"the container {container.url_prefix!r} has options without a meaning for {scheme}: leave out "
            f"{', '.join(sorted(meaningless))}"
        )
    arguments = _arguments(container.url_prefix, service, access)
    if arguments:
        options.pop("anonymous", None)  # who has credentials signs
    return _OPENERS.get(service, _open_other)(container.url_prefix, options | arguments)


def _arguments(prefix: str, service: str, access: ContainerAccess) -> dict[str, Any]:
    """Return credentials as arguments of the function that creates the storage."""
    if access is None:
        return {}
    if isinstance(access, Mapping):
        return dict(access)
    if isinstance(access, S3StaticCredentials) and service == "s3":
        return {
            "access_key_id": access.access_key_id,
            "secret_access_key": access.secret_access_key,
            "session_token": access.session_token,
            "expires_after": access.expires_after,
        }
    if isinstance(access, GcsBearerCredential) and service == "gcs":
        return {"bearer_token": access.bearer}
    if callable(access) and service in ("s3", "gcs"):
        return {"get_credentials": access}
    raise InvalidInputError(
        f"a {type(access).__name__} does not open the container {prefix!r}: pass None for credentials of the "
        "environment, a storage, a mapping of arguments of its storage, or for S3 and GCS credentials of their own kind"
    )


def _open_s3(prefix: str, options: dict[str, Any]) -> Storage:
    bucket, path = _split(prefix)
    return s3_storage(bucket=bucket, prefix=path, **options)


def _open_gcs(prefix: str, options: dict[str, Any]) -> Storage:
    bucket, path = _split(prefix)
    return gcs_storage(bucket=bucket, prefix=path, **options)


def _open_azure(prefix: str, options: dict[str, Any]) -> Storage:
    first, path = _split(prefix)
    account = options.pop("account", None)
    if account is None:
        account, (first, _, path) = first, path.partition("/")
    return azure_storage(account=account, container=first, prefix=path, **options)


def _open_http(prefix: str, options: dict[str, Any]) -> Storage:
    options.pop("anonymous", None)
    return http_storage(prefix, **options)


def _open_directory(prefix: str, options: dict[str, Any]) -> Storage:
    host, path = _split(prefix)
    if host not in ("", "localhost"):
        raise InvalidInputError(f"the container {prefix!r} must not have a host: use file:///path/")
    return local_filesystem_storage("/" + path, **options)


def _open_other(prefix: str, options: dict[str, Any]) -> Storage:
    return storage_from_url(prefix, **options)


_OPENERS: Mapping[str, Callable[[str, dict[str, Any]], Storage]] = {
    "s3": _open_s3,
    "gcs": _open_gcs,
    "azure": _open_azure,
    "http": _open_http,
    "file": _open_directory,
}


def _split(prefix: str) -> tuple[str, str]:
    """Return the host and the path of a prefix; paths are never decoded."""
    host, _, path = prefix.partition("://")[2].partition("/")
    return host, path
