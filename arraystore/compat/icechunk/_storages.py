"""Storages, made from options and credentials of Icechunk."""

from __future__ import annotations

import re
import urllib.request
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from arraystore import storage as core
from arraystore._runtime import run
from arraystore.compat.icechunk._display import html_of, lines_of
from arraystore.compat.icechunk._object_stores import (
    S3Options,
    azure_arguments,
    gcs_arguments,
    http_arguments,
    s3_arguments,
)
from arraystore.compat.icechunk._settings import StorageSettings, core_settings, default_settings
from arraystore.errors import ArrayStoreError, InvalidInputError, StorageError
from arraystore.storage import Storage as CoreStorage

__all__ = ["Storage", "StorageObjectInfo"]

_SECONDS_TO_REDIRECT = 30
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")


@dataclass(frozen=True)
class StorageObjectInfo:
    """An object in a storage."""

    key: str
    size_bytes: int
    created_at: datetime


class Storage:
    """A storage of arraystore, made when it is first used, with the settings that are given then."""

    def __init__(self, build: Callable[[StorageSettings | None, str], CoreStorage], rows: Mapping[str, Any]) -> None:
        self._build = build
        self._shown = dict(rows)
        self._plain: CoreStorage | None = None

    def core(self, settings: StorageSettings | None = None, agent: str = "") -> CoreStorage:
        """Return the storage of arraystore, whose requests have an agent as their user agent, if one is given."""
        if settings is not None or agent:
            return self._build(settings, agent)
        if self._plain is None:
            self._plain = self._build(None, "")
        return self._plain

    def __reduce__(self) -> tuple[Any, ...]:
        return Storage, (self._build, self._shown)

    def __repr__(self) -> str:
        return lines_of("icechunk.Storage", self._shown)

    def _repr_html_(self) -> str:
        return html_of("icechunk.Storage", self._shown)

    def default_settings(self) -> StorageSettings:
        """Return the settings that hold where nothing is said."""
        return default_settings()

    def list_objects(self, settings: StorageSettings | None = None, prefix: str | None = None) -> list[tuple[str, int]]:
        """List keys and sizes of objects; deprecated, as in Icechunk."""
        warnings.warn("list_objects is deprecated: use list_objects_metadata", DeprecationWarning, stacklevel=2)
        return [(info.key, info.size_bytes) for info in self.list_objects_metadata(settings, prefix)]

    def list_objects_metadata(
        self, settings: StorageSettings | None = None, prefix: str | None = None
    ) -> list[StorageObjectInfo]:
        """List objects."""
        return run(self._list(self.core(settings), prefix or ""))

    async def _list(self, storage: CoreStorage, prefix: str) -> list[StorageObjectInfo]:
        return [
            StorageObjectInfo(info.key, info.size, datetime.fromtimestamp(info.modified or 0, UTC))
            async for page in storage.list(prefix)
            for info in page
        ]

    # -- kinds --------------------------------------------------------------------------------------------------

    @classmethod
    def new_in_memory(cls) -> Storage:
        """Return a storage in the memory of this process."""
        return cls(partial(_fixed, core.in_memory_storage()), {"type": "in-memory"})

    @classmethod
    def new_local_filesystem(cls, path: str) -> Storage:
        """Return a storage in a local directory."""
        return cls(partial(_local, str(path)), {"type": "local filesystem", "path": path})

    @classmethod
    def new_s3(
        cls,
        config: S3Options,
        bucket: str,
        prefix: str | None,
        credentials: Any = None,
        legacy_rooted_keys: bool | None = None,
        *,
        read_headers: dict[str, str] | None = None,
        write_headers: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        kind: str = "S3",
    ) -> Storage:
        """Return a storage on S3."""
        _check_rooted_keys(legacy_rooted_keys)
        arguments = s3_arguments(config, credentials) | {"bucket": bucket, "prefix": prefix}
        arguments["headers"] = _headers(headers, read_headers, write_headers)
        shown = {name: value for name, value in vars(config).items() if value is not None}
        return cls(partial(_s3, arguments), {"type": kind, "bucket": bucket, "prefix": prefix, **shown})

    @classmethod
    def new_s3_object_store(
        cls,
        config: S3Options,
        bucket: str,
        prefix: str | None,
        credentials: Any = None,
        *,
        read_headers: dict[str, str] | None = None,
        write_headers: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Storage:
        """Return a storage on S3, which is the same as the other one here."""
        return cls.new_s3(
            config,
            bucket,
            prefix,
            credentials,
            read_headers=read_headers,
            write_headers=write_headers,
            headers=headers,
        )

    @classmethod
    def new_tigris(
        cls,
        config: S3Options,
        bucket: str,
        prefix: str | None,
        use_weak_consistency: bool,
        credentials: Any = None,
        legacy_rooted_keys: bool | None = None,
        *,
        read_headers: dict[str, str] | None = None,
        write_headers: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Storage:
        """Return a storage on Tigris, whose reads are consistent unless told otherwise."""
        options = _with(config, endpoint_url=config.endpoint_url or "https://t3.storage.dev", region=config.region)
        if not use_weak_consistency:
            headers = {"X-Tigris-Consistent": "true", **(headers or {})}
        return cls.new_s3(
            options,
            bucket,
            prefix,
            credentials,
            legacy_rooted_keys,
            read_headers=read_headers,
            write_headers=write_headers,
            headers=headers,
            kind="Tigris",
        )

    @classmethod
    def new_r2(
        cls,
        config: S3Options,
        bucket: str | None = None,
        prefix: str | None = None,
        account_id: str | None = None,
        credentials: Any = None,
        legacy_rooted_keys: bool | None = None,
        *,
        read_headers: dict[str, str] | None = None,
        write_headers: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Storage:
        """Return a storage on Cloudflare R2; without a bucket, the prefix begins with it."""
        if bucket is None:
            bucket, _, rest = (prefix or "").partition("/")
            prefix = rest or None
        if not bucket:
            raise InvalidInputError("r2_storage needs a bucket", "storage-config")
        if config.endpoint_url is None and account_id is None:
            raise InvalidInputError("r2_storage needs account_id or endpoint_url", "storage-config")
        endpoint = config.endpoint_url or f"https://{account_id}.r2.cloudflarestorage.com"
        return cls.new_s3(
            _with(config, endpoint_url=endpoint, region=config.region or "auto", force_path_style=True),
            bucket,
            prefix,
            credentials,
            legacy_rooted_keys,
            read_headers=read_headers,
            write_headers=write_headers,
            headers=headers,
            kind="R2",
        )

    @classmethod
    def new_hf(
        cls,
        config: S3Options,
        bucket: str,
        prefix: str | None,
        namespace: str,
        credentials: Any = None,
        legacy_rooted_keys: bool | None = None,
        *,
        read_headers: dict[str, str] | None = None,
        write_headers: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Storage:
        """Return a storage in a bucket of Hugging Face."""
        endpoint = f"https://s3.hf.co/{namespace}"
        return cls.new_s3(
            _with(config, endpoint_url=endpoint, region="us-east-1", force_path_style=True),
            bucket,
            prefix,
            credentials,
            legacy_rooted_keys,
            read_headers=read_headers,
            write_headers=write_headers,
            headers=headers,
            kind="Hugging Face",
        )

    @classmethod
    def new_gcs(
        cls,
        bucket: str,
        prefix: str | None,
        credentials: Any = None,
        *,
        config: dict[str, str] | None = None,
        read_headers: dict[str, str] | None = None,
        write_headers: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Storage:
        """Return a storage on Google Cloud Storage."""
        arguments = gcs_arguments(credentials, config) | {"bucket": bucket, "prefix": prefix}
        arguments["headers"] = _headers(headers, read_headers, write_headers)
        return cls(partial(_gcs, arguments), {"type": "GCS", "bucket": bucket, "prefix": prefix})

    @classmethod
    def new_azure_blob(
        cls, account: str, container: str, prefix: str, credentials: Any = None, *, config: dict[str, str] | None = None
    ) -> Storage:
        """Return a storage on Azure Blob Storage."""
        where = {"account": account, "container": container, "prefix": prefix}
        return cls(partial(_azure, azure_arguments(credentials, config) | where), {"type": "Azure", **where})

    @classmethod
    def new_http(
        cls, base_url: str, config: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> Storage:
        """Return a storage that is read by HTTP."""
        arguments = http_arguments(base_url, config, headers)
        return cls(partial(_http, arguments), {"type": "HTTP", "url": base_url})

    @classmethod
    def new_redirect(cls, base_url: str) -> Storage:
        """Return the storage that a URL redirects to."""
        return cls(partial(_redirected, base_url), {"type": "redirect", "url": base_url})


def _fixed(storage: CoreStorage, _settings: StorageSettings | None, _agent: str) -> CoreStorage:
    return storage


def _local(path: str, _settings: StorageSettings | None, _agent: str) -> CoreStorage:
    return core.local_filesystem_storage(path)


def _s3(arguments: Mapping[str, Any], settings: StorageSettings | None, agent: str) -> CoreStorage:
    return core.s3_storage(**_sent(arguments, agent), settings=core_settings(settings))


def _gcs(arguments: Mapping[str, Any], settings: StorageSettings | None, agent: str) -> CoreStorage:
    return core.gcs_storage(**_sent(arguments, agent), settings=core_settings(settings))


def _azure(arguments: Mapping[str, Any], settings: StorageSettings | None, agent: str) -> CoreStorage:
    return core.azure_storage(**_sent(arguments, agent), settings=core_settings(settings))


def _http(arguments: Mapping[str, Any], settings: StorageSettings | None, agent: str) -> CoreStorage:
    return core.http_storage(**_sent(arguments, agent), settings=core_settings(settings))


class _Stop(urllib.request.HTTPRedirectHandler):
    """Stops at the first redirect, whose target may be of any scheme."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        """Return nothing: the response itself is the result."""

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """Return the response."""
        return fp

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _redirected(base_url: str, _settings: StorageSettings | None, _agent: str) -> CoreStorage:
    try:
        with urllib.request.build_opener(_Stop).open(base_url, timeout=_SECONDS_TO_REDIRECT) as response:
            target = response.headers.get("Location")
    except (OSError, ValueError) as error:
        raise StorageError(f"{base_url} cannot be asked where it redirects to: {error}", "bad-redirect") from error
    if target is None:
        raise ArrayStoreError(f"{base_url} does not redirect: it must answer with a Location", "bad-redirect")
    return core.storage_from_url(target)


def _sent(arguments: Mapping[str, Any], agent: str) -> dict[str, Any]:
    """Return arguments with an agent as the user agent, behind one that is among their headers."""
    if not agent:
        return dict(arguments)
    headers = arguments.get("headers") or {}
    named = [value for name, value in headers.items() if name.lower() == "user-agent"]
    others = {name: value for name, value in headers.items() if name.lower() != "user-agent"}
    return {**arguments, "headers": {**others, "User-Agent": " ".join([*named, agent])}}


def _headers(
    headers: Mapping[str, str] | None, read: Mapping[str, str] | None, write: Mapping[str, str] | None
) -> dict[str, str] | None:
    """Return headers for all requests: those of reads and of writes are not told apart here."""
    together = {**(headers or {}), **(read or {}), **(write or {})}
    for name, value in together.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise InvalidInputError(
                f"invalid HTTP header {name!r}: a name is a token, a value printable ASCII", "storage-config"
            )
    return together or None


def _check_rooted_keys(legacy_rooted_keys: bool | None) -> None:
    if legacy_rooted_keys:
        raise InvalidInputError(
            "legacy_rooted_keys is about keys of old Icechunk repositories: import these with `arraystore import "
            "icechunk`",
            "storage-config",
        )


def _with(options: S3Options, **changed: Any) -> S3Options:
    return S3Options(**(vars(options) | changed))
