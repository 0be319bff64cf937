"""Credentials, fixed or refreshed by a callable, in the form of the object store client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from arraystore.errors import InvalidInputError
from arraystore.storage.forking import ForkSafeLock
from arraystore.storage.secret import Secret

__all__ = ["AnyCredentials", "CredentialProvider", "GcsBearerCredential", "S3StaticCredentials"]


@dataclass(frozen=True, slots=True)
class S3StaticCredentials:
    """Access keys for S3, as returned by `get_credentials`.

    Parameters
    ----------
    access_key_id, secret_access_key, session_token
        Access keys; none of them is shown by `repr`.
    expires_after
        Time of expiry, with a time zone; they are refreshed before it.  None if they do not expire.
    """

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_after: datetime | None = None

    def to_client(self) -> dict[str, Any]:
        """Return the credentials in the form of the client's credential providers."""
        return {
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "token": self.session_token,
            "expires_at": _aware(self.expires_after),
        }


@dataclass(frozen=True, slots=True)
class GcsBearerCredential:
    """Bearer token for Google Cloud Storage, as returned by `get_credentials`.

    Parameters
    ----------
    bearer
        Token; it is not shown by `repr`.
    expires_after
        Time of expiry, with a time zone; it is refreshed before it.  None if it does not expire.
    """

    bearer: str = field(repr=False)
    expires_after: datetime | None = None

    def to_client(self) -> dict[str, Any]:
        """Return the credentials in the form of the client's credential providers."""
        return {"token": self.bearer, "expires_at": _aware(self.expires_after)}


AnyCredentials = S3StaticCredentials | GcsBearerCredential


def _aware(time: datetime | None) -> datetime | None:
    if time is not None and time.tzinfo is None:
        raise InvalidInputError(
            f"expires_after={time.isoformat()} must have a time zone, for example datetime.timezone.utc"
        )
    return time


class CredentialProvider:
    """Credential provider of the client: the initial credentials while they are valid, then the user's callable."""

    # A token must not expire while a request is in flight.
    _MARGIN = timedelta(minutes=1)

    def __init__(self, get_credentials: Callable[[], Any] | None, initial: AnyCredentials | None) -> None:
        self._get_credentials = get_credentials
        self._initial = initial
        self._lock = ForkSafeLock()

    def __repr__(self) -> str:
        return f"CredentialProvider({self._get_credentials!r})"

    def __call__(self) -> dict[str, Any]:
        """Return valid credentials in the client's form."""
        if self._initial is not None and (self._get_credentials is None or _valid(self._initial, self._MARGIN)):
            return self._initial.to_client()
        if self._get_credentials is None:
            raise InvalidInputError("a credential provider needs credentials or get_credentials")
        with self._lock:  # one refresh at a time
            return fetch_credentials(self._get_credentials).to_client()


def _valid(credentials: AnyCredentials, margin: timedelta) -> bool:
    expiry = _aware(credentials.expires_after)
    return expiry is None or datetime.now(UTC) + margin < expiry


def fetch_credentials(get_credentials: Callable[[], Any]) -> AnyCredentials:
    """Call the user's callable; accepts the classes of the same name of other libraries, too."""
    credentials = get_credentials()
    if isinstance(credentials, S3StaticCredentials | GcsBearerCredential):
        return credentials
    if hasattr(credentials, "secret_access_key"):
        token, expiry = getattr(credentials, "session_token", None), getattr(credentials, "expires_after", None)
        return S3StaticCredentials(credentials.access_key_id, credentials.secret_access_key, token, expiry)
    if hasattr(credentials, "bearer"):
        return GcsBearerCredential(credentials.bearer, getattr(credentials, "expires_after", None))
    raise InvalidInputError(
        f"get_credentials returned {type(credentials).__name__}: it must return S3StaticCredentials or "
        "GcsBearerCredential"
    )


@dataclass(frozen=True, slots=True)
class SecretCredentials:
    """Credentials with every string wrapped in a `Secret`."""

    kind: Callable[..., AnyCredentials]
    strings: tuple[Secret | None, ...]
    expires_after: datetime | None

    @classmethod
    def wrap(cls, credentials: AnyCredentials) -> SecretCredentials:
        """Wrap the strings of `credentials`."""
        strings: tuple[str | None, ...]
        if isinstance(credentials, S3StaticCredentials):
            strings = (credentials.access_key_id, credentials.secret_access_key, credentials.session_token)
        else:
            strings = (credentials.bearer,)
        secrets = tuple(None if value is None else Secret(value) for value in strings)
        return cls(type(credentials), secrets, _aware(credentials.expires_after))

    def reveal(self) -> AnyCredentials:
        """Return the credentials in plain form."""
        arguments: list[Any] = [None if secret is None else secret.reveal() for secret in self.strings]
        return self.kind(*arguments, self.expires_after)
