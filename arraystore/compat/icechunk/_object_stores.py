"""Storages of arraystore for what Icechunk's options and credentials say."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from arraystore import storage as core
from arraystore.compat.icechunk._display import Numbered, Record
from arraystore.compat.icechunk._exceptions import ErrorKind, InvalidInputError
from arraystore.compat.icechunk.credentials import (
    AzureCredentials,
    AzureStaticCredentials,
    GcsBearerCredential,
    GcsCredentials,
    GcsStaticCredentials,
    S3Credentials,
    S3StaticCredentials,
)

__all__ = ["ChecksumAlgorithm", "S3Options", "azure_arguments", "gcs_arguments", "http_arguments", "s3_arguments"]


class ChecksumAlgorithm(Numbered):
    """Checksums that S3 may verify on upload."""

    Crc32 = 0
    Crc32c = 1
    Crc64Nvme = 2
    Sha1 = 3
    Sha256 = 4


_CHECKSUMS = {ChecksumAlgorithm.Crc64Nvme: "CRC64NVME", ChecksumAlgorithm.Sha256: "SHA256"}


@dataclass(repr=False, unsafe_hash=True)
class S3Options(Record):
    """Options of an S3-compatible service."""

    _title: ClassVar[str] = "icechunk.storage.S3Options"

    region: str | None = None
    endpoint_url: str | None = None
    allow_http: bool = False
    anonymous: bool = False
    force_path_style: bool = False
    network_stream_timeout_seconds: int | None = None
    requester_pays: bool = False
    checksum_algorithm: ChecksumAlgorithm | None = None


_MARGIN = timedelta(minutes=2)


@dataclass(frozen=True, eq=False)
class _Refresh:
    """A user's callable, and the class that it must return.

    Equal to another one, so that their storages share a client, only where both carry the same first credentials: a
    callable may answer the next storage, or a copy of this one, with the credentials of somebody else.
    """

    pickled: bytes
    wanted: type
    current: Any = None
    """What it returned when the storage was made, to be used as long as it is valid."""

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, _Refresh)
            and self.current is not None
            and (self.pickled, self.wanted, self.current) == (other.pickled, other.wanted, other.current)
        )

    def __hash__(self) -> int:
        return hash((self.pickled, self.wanted))

    def __call__(self) -> Any:
        expiry = getattr(self.current, "expires_after", None)
        if self.current is not None and (expiry is None or expiry > datetime.now(UTC) + _MARGIN):
            return _core_credentials(self.current)
        function = pickle.loads(self.pickled)  # noqa: S301 - of this program, not of the repository
        if not callable(function):
            raise InvalidInputError(
                f"{type(function).__name__!r} object is not callable", ErrorKind.INVALID_CREDENTIALS
            )
        returned = function()
        if not isinstance(returned, self.wanted):
            raise InvalidInputError(
                f"the function for credentials must return {self.wanted.__name__}, not {type(returned).__name__}",
                ErrorKind.INVALID_CREDENTIALS,
            )
        return _core_credentials(returned)


def _refresh(credentials: Any, wanted: type) -> _Refresh:
    return _Refresh(credentials.pickled_function, wanted, credentials.current)


def _core_credentials(credentials: Any) -> core.S3StaticCredentials | core.GcsBearerCredential:
    if isinstance(credentials, GcsBearerCredential):
        return core.GcsBearerCredential(credentials.bearer, credentials.expires_after)
    return core.S3StaticCredentials(
        credentials.access_key_id,
        credentials.secret_access_key,
        credentials.session_token,
        credentials.expires_after,
    )


def s3_arguments(options: S3Options, credentials: Any) -> dict[str, Any]:
    """Return the arguments of `arraystore.s3_storage`."""
    arguments: dict[str, Any] = {
        "region": options.region,
        "endpoint_url": options.endpoint_url,
        "allow_http": options.allow_http,
        "force_path_style": options.force_path_style,
        "network_stream_timeout_seconds": options.network_stream_timeout_seconds,
        "requester_pays": options.requester_pays,
        "checksum_algorithm": _checksum(options.checksum_algorithm),
        "pickle_credentials": True,
    }
    if options.anonymous or isinstance(credentials, S3Credentials.Anonymous):
        return arguments | {"anonymous": True}
    if isinstance(credentials, S3Credentials.Static):
        keys = credentials.credentials
        names = ("access_key_id", "secret_access_key", "session_token", "expires_after")
        return arguments | {name: getattr(keys, name) for name in names}
    if isinstance(credentials, S3Credentials.Refreshable):
        return arguments | {"get_credentials": _refresh(credentials, S3StaticCredentials)}
    return arguments


def _checksum(algorithm: ChecksumAlgorithm | None) -> str | None:
    if algorithm is None:
        return None
    if algorithm not in _CHECKSUMS:
        raise InvalidInputError(
            f"checksum_algorithm={algorithm} is not supported: choose {' or '.join(map(str, _CHECKSUMS))}",
            ErrorKind.STORAGE_CONFIG,
        )
    return _CHECKSUMS[algorithm]


_GCS_STATIC = {
    GcsStaticCredentials.ServiceAccount: ("service_account_file", "path"),
    GcsStaticCredentials.ServiceAccountKey: ("service_account_key", "key"),
    GcsStaticCredentials.ApplicationCredentials: ("application_credentials", "path"),
    GcsStaticCredentials.BearerToken: ("bearer_token", "token"),
}
_AZURE_STATIC = {
    AzureStaticCredentials.AccessKey: ("access_key", "key"),
    AzureStaticCredentials.SasToken: ("sas_token", "token"),
    AzureStaticCredentials.BearerToken: ("bearer_token", "token"),
}


def gcs_arguments(credentials: Any, config: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the arguments of `arraystore.gcs_storage`."""
    arguments: dict[str, Any] = {
        "config": config,
        "allow_http": str((config or {}).get("allow_http", "")).lower() == "true",
        "pickle_credentials": True,
    }
    if isinstance(credentials, GcsCredentials.Anonymous):
        return arguments | {"anonymous": True}
    if isinstance(credentials, GcsCredentials.Refreshable):
        return arguments | {"get_credentials": _refresh(credentials, GcsBearerCredential)}
    return arguments | _static(credentials, _GCS_STATIC)


def azure_arguments(credentials: Any, config: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the arguments of `arraystore.azure_storage`."""
    if isinstance(credentials, AzureCredentials.Refreshable):
        raise InvalidInputError(
            "refreshable credentials for Azure are not supported: pass a token, or take them from the environment",
            ErrorKind.INVALID_CREDENTIALS,
        )
    arguments: dict[str, Any] = {
        "config": config,
        "allow_http": str((config or {}).get("allow_http", "")).lower() == "true",
        "pickle_credentials": True,
    }
    if isinstance(credentials, AzureCredentials.Anonymous):
        return arguments | {"anonymous": True}
    return arguments | _static(credentials, _AZURE_STATIC)


def http_arguments(url: str, opts: Mapping[str, str] | None, headers: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the arguments of `arraystore.http_storage`."""
    unencrypted = str((opts or {}).get("allow_http", "")).lower() == "true" or url.startswith("http://")
    return {"url": url, "headers": headers, "allow_http": unencrypted, "pickle_credentials": True}


def _static(credentials: Any, kinds: Mapping[Any, tuple[str, str]]) -> dict[str, Any]:
    value = getattr(credentials, "credentials", None)
    if type(value) not in kinds:
        return {}
    name, attribute = kinds[type(value)]
    return {name: getattr(value, attribute)}
