"""Creation of storages from URLs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from arraystore._runtime import lazy_module
from arraystore.errors import InvalidInputError
from arraystore.storage.local import LocalStorage, local_filesystem_storage
from arraystore.storage.memory import named_memory_storage
from arraystore.storage.protocol import Storage, check_listing_lag

if TYPE_CHECKING:
    from arraystore.storage import constructors, filesystem, settings
    from arraystore.storage.filesystem import FsspecStorage
    from arraystore.storage.settings import StorageSettings
else:
    constructors = lazy_module("arraystore.storage.constructors")
    filesystem = lazy_module("arraystore.storage.filesystem")
    settings = lazy_module("arraystore.storage.settings")

__all__ = ["fsspec_storage", "storage_from_url"]

_LAG = "listing_lag"
_CLASSES = frozenset({"chunks_storage_class", "metadata_storage_class"})
_SETTINGS = _CLASSES | {_LAG}
"""Options that are fields of `StorageSettings`."""
_STRINGS = _CLASSES | {"region", "endpoint_url", "checksum_algorithm"}
_FLAGS = frozenset({"allow_http", "anonymous", "from_env", "force_path_style", "requester_pays", "fsync"})
_OF_ALL = frozenset({"allow_http", "anonymous", "from_env"}) | _SETTINGS
_OF_S3 = (_STRINGS | _FLAGS | {_LAG}) - {"fsync"}


def storage_from_url(url: str | os.PathLike[str], **options: Any) -> Storage:
    """Create a storage from a URL or a path.

    ======================================  ==================================================
    ``s3://bucket/prefix?region=…``         `s3_storage`
    ``gs://bucket/prefix``                  `gcs_storage`
    ``az://account/container/prefix``       `azure_storage`
    ``file:///path``, ``/path``, ``path``   `local_filesystem_storage`
    ``memory://name``                       in memory; equal names give the same storage
    any other scheme                        `fsspec_storage`
    ======================================  ==================================================

    Parameters
    ----------
    url
        URL or path.  Its query may set ``region``, ``endpoint_url``, ``allow_http``, ``anonymous``, ``from_env``,
        ``force_path_style``, ``requester_pays``, ``checksum_algorithm``, ``listing_lag``, ``chunks_storage_class``,
        ``metadata_storage_class`` and, for directories, ``fsync`` and ``listing_lag``, but not credentials: URLs end up
        in logs.
    **options
        Arguments of the function that creates the storage; they override the query.

    Raises
    ------
    InvalidInputError
        If the URL contains credentials or an unknown option.
    """
    text = os.fspath(url)
    if "://" not in text:
        return local_filesystem_storage(text, **options)
    parts = _split(text)
    create = _CONSTRUCTORS.get(parts.scheme)
    if create is None:
        return fsspec_storage(text, **_with_settings(options))
    return create(parts, _query(parts) | options)


def _s3(parts: SplitResult, options: dict[str, Any]) -> Storage:
    return constructors.s3_storage(bucket=parts.netloc, prefix=_path(parts), **_with_settings(options))


def _gcs(parts: SplitResult, options: dict[str, Any]) -> Storage:
    return constructors.gcs_storage(bucket=parts.netloc, prefix=_path(parts), **_with_settings(options))


def _azure(parts: SplitResult, options: dict[str, Any]) -> Storage:
    container, _, prefix = _path(parts).partition("/")
    if not container:
        raise InvalidInputError("an Azure URL must name account and container: az://account/container/prefix")
    return constructors.azure_storage(
        account=parts.netloc, container=container, prefix=prefix, **_with_settings(options)
    )


def _with_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Move options that are fields of the settings there."""
    changed = {name: value for name, value in options.items() if name in _SETTINGS}
    if not changed:
        return options
    rest = {name: value for name, value in options.items() if name not in changed}
    return {**rest, "settings": replace(rest.get("settings") or settings.StorageSettings(), **changed)}


def _local(parts: SplitResult, options: dict[str, Any]) -> Storage:
    if parts.netloc not in ("", "localhost"):
        raise InvalidInputError(f"a file URL must not have a host, and this one has {parts.netloc!r}: use file:///path")
    return local_filesystem_storage(unquote(parts.path), **options)


def _memory(parts: SplitResult, options: dict[str, Any]) -> Storage:
    if options:
        raise InvalidInputError(f"a storage in memory takes no options: remove {sorted(options)}")
    return named_memory_storage(parts.netloc + parts.path)


_CONSTRUCTORS: Mapping[str, Callable[[SplitResult, dict[str, Any]], Storage]] = {
    "s3": _s3,
    "s3a": _s3,
    "gs": _gcs,
    "gcs": _gcs,
    "az": _azure,
    "azure": _azure,
    "file": _local,
    "local": _local,
    "memory": _memory,
}

_QUERY_OPTIONS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("s3", "s3a"), _OF_S3),
    **dict.fromkeys(("gs", "gcs", "az", "azure"), _OF_ALL),
    **dict.fromkeys(("file", "local"), frozenset({"fsync", _LAG})),
    "memory": frozenset[str](),
}
"""Options allowed in the query, by scheme."""


def _path(parts: SplitResult) -> str:
    return unquote(parts.path).strip("/")


def _query(parts: SplitResult) -> dict[str, Any]:
    options: dict[str, Any] = {}
    allowed = _QUERY_OPTIONS[parts.scheme]
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in allowed:
            # Without the value and without the URL, as either may contain a secret.
            raise InvalidInputError(
                f"the query of the {parts.scheme} URL sets {name!r}, and may only set {sorted(allowed)}; pass other "
                "options, credentials above all, as arguments"
            )
        if name in _STRINGS:
            options[name] = value
        elif name == _LAG:
            options[name] = _seconds(name, value)
        else:
            options[name] = _flag(name, value)
    return options


def _seconds(name: str, value: str) -> float:
    try:
        return check_listing_lag(float(value))
    except (ValueError, InvalidInputError):
        raise InvalidInputError(f"{name} in the query of a URL must be a number of seconds >= 0") from None


def _flag(name: str, value: str) -> bool:
    flags = {"true": True, "1": True, "yes": True, "": True, "false": False, "0": False, "no": False}
    try:
        return flags[value.lower()]
    except KeyError:
        raise InvalidInputError(f"{name} in the query of a URL must be true or false") from None


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidInputError(f"the URL is not valid: {type(error).__name__}; check its brackets") from None
    if url.partition("?")[0].count("://") > 1:
        raise InvalidInputError(f"the path of the {parts.scheme} URL contains another URL: pass one URL")
    if ":" in parts.netloc.rpartition("@")[0]:
        raise InvalidInputError(
            f"the {parts.scheme} URL contains a password: URLs end up in logs, so pass credentials as arguments"
        )
    return parts


def fsspec_storage(
    url: str, *, pickle_credentials: bool = False, settings: StorageSettings | None = None, **options: Any
) -> FsspecStorage | LocalStorage:
    """Create a storage on any filesystem that fsspec supports.

    Any filesystem can be read.  Commits need s3fs, gcsfs, adlfs or fsspec's memory filesystem; local directories
    become a `local_filesystem_storage`.

    Parameters
    ----------
    url
        URL for fsspec, such as ``sftp://host/path``.
    pickle_credentials
        Whether pickles of the storage may contain options that look like secrets.
    settings
        Settings, of which the retries and the listing lag apply.
    **options
        Arguments of the filesystem.
    """
    protocol, separator, path = url.partition("://")
    if not separator:
        protocol, path = "file", url
    _split(url)
    if protocol in ("file", "local"):
        lag = 0.0 if settings is None else settings.listing_lag
        return local_filesystem_storage(path, fsync=bool(options.pop("fsync", True)), listing_lag=lag)
    if "::" in url:
        raise InvalidInputError(
            "chained fsspec URLs are not supported: use the URL of the filesystem that holds the objects"
        )
    if settings is not None and (settings.chunks_storage_class or settings.metadata_storage_class):
        raise InvalidInputError(
            f"a filesystem of fsspec writes in no storage class: use a URL that is not {protocol}://"
        )
    clean = path.rstrip("/")
    endpoint = options.get("endpoint_url") or (options.get("client_kwargs") or {}).get("endpoint_url")
    location = f"{protocol}://{clean.partition('?')[0]}" + (
        f"?endpoint_url={endpoint}" if endpoint and "@" not in endpoint else ""
    )
    return filesystem.FsspecStorage(
        protocol,
        _root(protocol, clean, url),
        options,
        location,
        pickle_credentials=pickle_credentials,
        retries=None if settings is None else settings.retries,
        listing_lag=0.0 if settings is None else settings.listing_lag,
    )


def _root(protocol: str, path: str, url: str) -> str:
    """Return the root of all keys: the whole URL if the filesystem's paths are URLs."""
    return url.rstrip("/") if protocol in ("http", "https") else path
