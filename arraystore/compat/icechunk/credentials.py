"""Credentials of object stores, for repositories and for the sources of virtual chunks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from arraystore.compat.icechunk._display import Record, Shown
from arraystore.compat.icechunk._exceptions import ErrorKind, InvalidInputError

__all__ = [
    "AnyAzureCredential",
    "AnyAzureStaticCredential",
    "AnyCredential",
    "AnyGcsCredential",
    "AnyGcsStaticCredential",
    "AnyS3Credential",
    "AzureCredentials",
    "AzureRefreshableCredential",
    "AzureStaticCredentials",
    "Credentials",
    "GcsBearerCredential",
    "GcsCredentials",
    "GcsStaticCredentials",
    "HttpAccess",
    "LocalFileSystemAccess",
    "S3Credentials",
    "S3StaticCredentials",
    "azure_anonymous_credentials",
    "azure_credentials",
    "azure_from_env_credentials",
    "azure_refreshable_credentials",
    "azure_static_credentials",
    "containers_credentials",
    "gcs_anonymous_credentials",
    "gcs_credentials",
    "gcs_from_env_credentials",
    "gcs_refreshable_credentials",
    "gcs_static_credentials",
    "s3_anonymous_credentials",
    "s3_credentials",
    "s3_from_env_credentials",
    "s3_refreshable_credentials",
    "s3_static_credentials",
]


def _hidden(value: str | None, first: int = 0) -> str | None:
    return None if value is None else value[:first] + "****"


@dataclass(eq=True, unsafe_hash=True, repr=False)
class S3StaticCredentials(Shown):
    """Access keys for S3."""

    _title: ClassVar[str] = "icechunk.credentials.S3StaticCredentials"

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None
    expires_after: datetime | None = None

    def _rows(self) -> Mapping[str, Any]:
        return {
            "access_key_id": _hidden(self.access_key_id, 4),
            "secret_access_key": _hidden(self.secret_access_key),
            "session_token": _hidden(self.session_token),
            "expires_after": self.expires_after,
        }


@dataclass(frozen=True)
class GcsBearerCredential:
    """A bearer token for Google Cloud Storage."""

    bearer: str = field(repr=False)
    expires_after: datetime | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class _Nothing(Record):
    """Credentials without values."""


@dataclass(frozen=True)
class _Refreshable:
    """Credentials from a callable, as a pickle, and those that it returned last."""

    pickled_function: bytes = field(repr=False)
    current: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class _Path:
    path: str


@dataclass(frozen=True)
class _Key:
    key: str = field(repr=False)


@dataclass(frozen=True)
class _Token:
    token: str = field(repr=False)


@dataclass(frozen=True)
class _Wrapped:
    credentials: Any


@dataclass(frozen=True)
class _KeyWithExpiry(_Key):
    expires_after: datetime | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class _TokenWithExpiry(_Token):
    expires_after: datetime | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class _BearerWithExpiry:
    bearer: str = field(repr=False)
    expires_after: datetime | None = field(default=None, kw_only=True)


class S3Credentials:
    """Kinds of credentials for S3."""

    class FromEnv(_Nothing):
        """From the environment."""

    class Anonymous(_Nothing):
        """None: requests are not signed."""

    class Static(_Wrapped):
        """Access keys."""

    class Refreshable(_Refreshable):
        """From a callable."""


class GcsStaticCredentials:
    """Kinds of fixed credentials for Google Cloud Storage."""

    class ServiceAccount(_Path):
        """Path of a service account file."""

    class ServiceAccountKey(_Key):
        """Content of such a file."""

    class ApplicationCredentials(_Path):
        """Path of an application credentials file."""

    class BearerToken(_Token):
        """A bearer token."""


class GcsCredentials:
    """Kinds of credentials for Google Cloud Storage."""

    class FromEnv(_Nothing):
        """From the environment."""

    class Anonymous(_Nothing):
        """None: requests are not signed."""

    class Static(_Wrapped):
        """Fixed ones."""

    class Refreshable(_Refreshable):
        """From a callable."""


class AzureRefreshableCredential:
    """Kinds of what a callable may return for Azure."""

    class AccessKey(_KeyWithExpiry):
        """An access key."""

    class SasToken(_TokenWithExpiry):
        """A shared access signature."""

    class BearerToken(_BearerWithExpiry):
        """A bearer token."""


class AzureStaticCredentials:
    """Kinds of fixed credentials for Azure."""

    class AccessKey(_Key):
        """An access key."""

    class SasToken(_Token):
        """A shared access signature."""

    class BearerToken(_Token):
        """A bearer token."""


class AzureCredentials:
    """Kinds of credentials for Azure."""

    class FromEnv(_Nothing):
        """From the environment."""

    class Anonymous(_Nothing):
        """None: requests are not signed."""

    class Static(_Wrapped):
        """Fixed ones."""

    class Refreshable(_Refreshable):
        """From a callable."""


class Credentials:
    """Credentials for the sources of virtual chunks, by kind of their object store."""

    class S3(_Wrapped):
        """For S3."""

    class Gcs(_Wrapped):
        """For Google Cloud Storage."""

    class Azure(_Wrapped):
        """For Azure."""

    class LocalFileSystemAccess(_Nothing):
        """Access to local files."""

    class HttpAccess(_Nothing):
        """Access by HTTP."""


AnyS3Credential = S3Credentials.Static | S3Credentials.Anonymous | S3Credentials.FromEnv | S3Credentials.Refreshable
AnyGcsStaticCredential = (
    GcsStaticCredentials.ServiceAccount
    | GcsStaticCredentials.ServiceAccountKey
    | GcsStaticCredentials.ApplicationCredentials
    | GcsStaticCredentials.BearerToken
)
AnyGcsCredential = (
    GcsCredentials.Anonymous | GcsCredentials.FromEnv | GcsCredentials.Static | GcsCredentials.Refreshable
)
AnyAzureStaticCredential = (
    AzureStaticCredentials.AccessKey | AzureStaticCredentials.SasToken | AzureStaticCredentials.BearerToken
)
AnyAzureCredential = (
    AzureCredentials.FromEnv | AzureCredentials.Anonymous | AzureCredentials.Static | AzureCredentials.Refreshable
)
AnyCredential = (
    Credentials.S3 | Credentials.Gcs | Credentials.Azure | Credentials.LocalFileSystemAccess | Credentials.HttpAccess
)

LocalFileSystemAccess = Credentials.LocalFileSystemAccess()
HttpAccess = Credentials.HttpAccess()

# -- S3 -----------------------------------------------------------------------------------------------------------


def s3_refreshable_credentials(
    get_credentials: Callable[[], S3StaticCredentials], scatter_initial_credentials: bool = False
) -> S3Credentials.Refreshable:
    """Return credentials from a callable that can be pickled."""
    return S3Credentials.Refreshable(
        pickle.dumps(get_credentials), get_credentials() if scatter_initial_credentials else None
    )


def s3_static_credentials(
    *,
    access_key_id: str,
    secret_access_key: str,
    session_token: str | None = None,
    expires_after: datetime | None = None,
) -> S3Credentials.Static:
    """Return access keys."""
    return S3Credentials.Static(S3StaticCredentials(access_key_id, secret_access_key, session_token, expires_after))


def s3_anonymous_credentials() -> S3Credentials.Anonymous:
    """Return credentials of nobody."""
    return S3Credentials.Anonymous()


def s3_from_env_credentials() -> S3Credentials.FromEnv:
    """Return credentials from the environment."""
    return S3Credentials.FromEnv()


def s3_credentials(
    *,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], S3StaticCredentials] | None = None,
    scatter_initial_credentials: bool = False,
) -> AnyS3Credential:
    """Return credentials for S3 from one source; from the environment where none is named."""
    fixed = any(value is not None for value in (access_key_id, secret_access_key, session_token, expires_after))
    source = _source("s3", fixed=fixed, anonymous=anonymous, from_env=from_env, get_credentials=get_credentials)
    if source == "get_credentials" and get_credentials is not None:
        return s3_refreshable_credentials(get_credentials, scatter_initial_credentials)
    if source == "anonymous":
        return s3_anonymous_credentials()
    if source == "from_env":
        return s3_from_env_credentials()
    if access_key_id is None or secret_access_key is None:
        raise InvalidInputError(
            "Conflicting arguments to s3_credentials function: access_key_id and secret_access_key go together",
            ErrorKind.INVALID_CREDENTIALS,
        )
    return s3_static_credentials(
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
        session_token=session_token,
        expires_after=expires_after,
    )


def _source(kind: str, **sources: Any) -> str:
    """Return the name of the one source of credentials that is given."""
    given = [name for name, value in sources.items() if value]
    if len(given) > 1:
        raise InvalidInputError(
            f"Conflicting arguments to {kind}_credentials function: choose one of {' and '.join(given)}",
            ErrorKind.INVALID_CREDENTIALS,
        )
    return given[0] if given else "from_env"


# -- Google Cloud Storage -----------------------------------------------------------------------------------------


def gcs_refreshable_credentials(
    get_credentials: Callable[[], GcsBearerCredential], scatter_initial_credentials: bool = False
) -> GcsCredentials.Refreshable:
    """Return credentials from a callable that can be pickled."""
    return GcsCredentials.Refreshable(
        pickle.dumps(get_credentials), get_credentials() if scatter_initial_credentials else None
    )


def gcs_static_credentials(
    *,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
) -> AnyGcsStaticCredential:
    """Return fixed credentials of one kind."""
    kinds: dict[str, tuple[Any, str | None]] = {
        "service_account_file": (GcsStaticCredentials.ServiceAccount, service_account_file),
        "service_account_key": (GcsStaticCredentials.ServiceAccountKey, service_account_key),
        "application_credentials": (GcsStaticCredentials.ApplicationCredentials, application_credentials),
        "bearer_token": (GcsStaticCredentials.BearerToken, bearer_token),
    }
    chosen: AnyGcsStaticCredential = _the_one("gcs", kinds)
    return chosen


def _the_one(kind: str, kinds: Mapping[str, tuple[Any, str | None]]) -> Any:
    given = [(build, value) for build, value in kinds.values() if value is not None]
    if len(given) != 1:
        raise InvalidInputError(
            f"Conflicting arguments to {kind}_static_credentials function: give exactly one of {', '.join(kinds)}",
            ErrorKind.INVALID_CREDENTIALS,
        )
    build, value = given[0]
    return build(value)


def gcs_anonymous_credentials() -> GcsCredentials.Anonymous:
    """Return credentials of nobody."""
    return GcsCredentials.Anonymous()


def gcs_from_env_credentials() -> GcsCredentials.FromEnv:
    """Return credentials from the environment."""
    return GcsCredentials.FromEnv()


def gcs_credentials(
    *,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
    from_env: bool | None = None,
    anonymous: bool | None = None,
    get_credentials: Callable[[], GcsBearerCredential] | None = None,
    scatter_initial_credentials: bool = False,
) -> AnyGcsCredential:
    """Return credentials for Google Cloud Storage from one source; from the environment where none is named."""
    fixed = {
        "service_account_file": service_account_file,
        "service_account_key": service_account_key,
        "application_credentials": application_credentials,
        "bearer_token": bearer_token,
    }
    any_fixed = any(value is not None for value in fixed.values())
    source = _source("gcs", fixed=any_fixed, anonymous=anonymous, from_env=from_env, get_credentials=get_credentials)
    if source == "get_credentials" and get_credentials is not None:
        return gcs_refreshable_credentials(get_credentials, scatter_initial_credentials)
    if source == "anonymous":
        return gcs_anonymous_credentials()
    if source == "from_env":
        return gcs_from_env_credentials()
    return GcsCredentials.Static(gcs_static_credentials(**fixed))


# -- Azure --------------------------------------------------------------------------------------------------------


def azure_refreshable_credentials(
    get_credentials: Callable[[], Any], scatter_initial_credentials: bool = False
) -> AzureCredentials.Refreshable:
    """Return credentials from a callable that can be pickled."""
    return AzureCredentials.Refreshable(
        pickle.dumps(get_credentials), get_credentials() if scatter_initial_credentials else None
    )


def azure_static_credentials(
    *, access_key: str | None = None, sas_token: str | None = None, bearer_token: str | None = None
) -> AnyAzureStaticCredential:
    """Return fixed credentials of one kind."""
    kinds: dict[str, tuple[Any, str | None]] = {
        "access_key": (AzureStaticCredentials.AccessKey, access_key),
        "sas_token": (AzureStaticCredentials.SasToken, sas_token),
        "bearer_token": (AzureStaticCredentials.BearerToken, bearer_token),
    }
    chosen: AnyAzureStaticCredential = _the_one("azure", kinds)
    return chosen


def azure_anonymous_credentials() -> AzureCredentials.Anonymous:
    """Return credentials of nobody."""
    return AzureCredentials.Anonymous()


def azure_from_env_credentials() -> AzureCredentials.FromEnv:
    """Return credentials from the environment."""
    return AzureCredentials.FromEnv()


def azure_credentials(
    *,
    access_key: str | None = None,
    sas_token: str | None = None,
    bearer_token: str | None = None,
    from_env: bool | None = None,
    anonymous: bool | None = None,
    get_credentials: Callable[[], Any] | None = None,
    scatter_initial_credentials: bool = False,
) -> AnyAzureCredential:
    """Return credentials for Azure from one source; from the environment where none is named."""
    fixed = {"access_key": access_key, "sas_token": sas_token, "bearer_token": bearer_token}
    any_fixed = any(value is not None for value in fixed.values())
    source = _source("azure", fixed=any_fixed, anonymous=anonymous, from_env=from_env, get_credentials=get_credentials)
    if source == "get_credentials" and get_credentials is not None:
        return azure_refreshable_credentials(get_credentials, scatter_initial_credentials)
    if source == "anonymous":
        return azure_anonymous_credentials()
    if source == "from_env":
        return azure_from_env_credentials()
    return AzureCredentials.Static(azure_static_credentials(**fixed))


# -- sources of virtual chunks ------------------------------------------------------------------------------------


def containers_credentials(m: Mapping[str, Any]) -> dict[str, AnyCredential | None]:
    """Return credentials by prefix of URLs in the form that repositories are opened with."""
    return {prefix: _of_container(prefix, credentials) for prefix, credentials in m.items()}


def _of_container(prefix: str, credentials: Any) -> AnyCredential | None:
    if credentials is None or isinstance(credentials, AnyCredential):
        return credentials
    for kinds, wrap in ((AnyS3Credential, Credentials.S3), (AnyGcsCredential, Credentials.Gcs)):
        if isinstance(credentials, kinds):
            return wrap(credentials)
    if isinstance(credentials, AnyAzureCredential):
        return Credentials.Azure(credentials)
    raise InvalidInputError(
        f"Unknown credential type {type(credentials).__name__} for container {prefix!r}", ErrorKind.INVALID_CREDENTIALS
    )
