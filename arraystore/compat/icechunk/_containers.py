"""Containers of virtual chunks: the storages of arraystore that their configuration and credentials make."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from arraystore import storage as core
from arraystore.compat.icechunk._object_stores import (
    S3Options,
    azure_arguments,
    gcs_arguments,
    http_arguments,
    s3_arguments,
)
from arraystore.compat.icechunk.config import RepositoryConfig
from arraystore.compat.icechunk.virtual import ObjectStoreConfig, VirtualChunkContainer
from arraystore.errors import InvalidInputError, VirtualReferenceError

__all__ = ["check_container", "expand", "has_container", "open_containers", "warn_of_no_credentials"]

_RELATIVE = "vcc://"
"""Scheme of URLs relative to a container by its name."""


def open_containers(config: RepositoryConfig, access: Mapping[str, Any] | None) -> dict[str, core.Storage]:
    """Return the storages of the containers that are authorized, by prefix of URLs."""
    containers = {_folder(prefix): each for prefix, each in (config.virtual_chunk_containers or {}).items()}
    granted = {_folder(prefix): credentials for prefix, credentials in (access or {}).items()}
    return {
        prefix: _storage(containers[prefix], credentials)
        for prefix, credentials in granted.items()
        if prefix in containers
    }


def warn_of_no_credentials(access: Mapping[str, Any] | None) -> None:
    """Warn of None in place of credentials, as Icechunk does."""
    for prefix in (prefix for prefix, credentials in (access or {}).items() if credentials is None):
        warnings.warn(
            f"Passing `None` in `authorize_virtual_chunk_access` for container `{prefix}` is deprecated: pass "
            "credentials, anonymous ones, LocalFileSystemAccess or HttpAccess",
            DeprecationWarning,
            stacklevel=3,
        )


def _folder(prefix: str) -> str:
    return prefix if prefix.endswith("/") else prefix + "/"


def _storage(container: VirtualChunkContainer, credentials: Any) -> core.Storage:
    url, store = urlsplit(container.url_prefix), container.store
    inner = getattr(credentials, "credentials", credentials)
    path = url.path.strip("/") or None
    if isinstance(store, ObjectStoreConfig.LocalFileSystem):
        return core.local_filesystem_storage(url.path)
    if isinstance(store, ObjectStoreConfig.S3 | ObjectStoreConfig.S3Compatible | ObjectStoreConfig.Tigris):
        options: S3Options = store.options
        return core.s3_storage(bucket=url.netloc, prefix=path, **s3_arguments(options, inner))
    if isinstance(store, ObjectStoreConfig.Gcs):
        return core.gcs_storage(bucket=url.netloc, prefix=path, **gcs_arguments(inner, store.opts))
    if isinstance(store, ObjectStoreConfig.Azure):
        opts = dict(store.opts or {})
        account = opts.pop("account", "")
        return core.azure_storage(account=account, container=url.netloc, prefix=path, **azure_arguments(inner, opts))
    if isinstance(store, ObjectStoreConfig.Http):
        return core.http_storage(**http_arguments(_folder(container.url_prefix), store.opts, store.headers))
    return core.in_memory_storage()


def expand(config: RepositoryConfig, url: str) -> str:
    """Return the absolute URL of one that is relative to a container by its name."""
    if not url.startswith(_RELATIVE):
        return url
    name, _, rest = url[len(_RELATIVE) :].partition("/")
    for container in (config.virtual_chunk_containers or {}).values():
        if container.name == name:
            return _folder(container.url_prefix) + rest
    raise InvalidInputError(f"there is no virtual chunk container named {name!r}", "no-container-for-virtual-chunk")


def check_container(config: RepositoryConfig, url: str) -> None:
    """Check that a URL is in a container of the configuration, whether or not that is authorized."""
    prefixes = sorted(config.virtual_chunk_containers or ())
    if not any(url.startswith(prefix) for prefix in prefixes):
        shown = ", ".join(prefixes) or "there are none"
        raise VirtualReferenceError(
            f"invalid chunk location, no matching virtual chunk container: {url[:200]!r} is in none of {shown}; "
            "add one with config.set_virtual_chunk_container",
            "no-container-for-virtual-chunk",
        )


def has_container(config: RepositoryConfig, url: str) -> bool:
    """Tell whether a URL is in a container of the configuration."""
    return any(url.startswith(prefix) for prefix in config.virtual_chunk_containers or ())
