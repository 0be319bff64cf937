"""Credentials that a callable hands out and renews, and how they reach the object store client."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from arraystore.errors import InvalidInputError
from arraystore.storage.forking import renew_locks_after_fork
from arraystore.storage.secret import Secret

__all__ = ["AnyCredentials", "CredentialProvider", "GcsBearerCredential", "S3StaticCredentials"]


@dataclass(frozen=True, slots=True)
class S3StaticCredentials:
    """Keys for S3, as `get_credentials` returns them.

    Parameters
    ----------
    access_key_id, secret_access_key, session_token
        The keys; none of them shows in the representation.
    expires_after
        When they expire, with a time zone; they are renewed before.  None if they do not.
    """

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_after: datetime | None = None

    def as_client_sees_it(self) -> dict[str, Any]:
        """The form that the client's credential provider returns."""
        return {
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "token": self.session_token,
            "expires_at": _aware(self.expires_after),
        }


@dataclass(frozen=True, slots=True)
class GcsBearerCredential:
    """A token for Google Cloud Storage, as `get_credentials` returns it.

    Parameters
    ----------
    bearer
        The token; it does not show in the representation.
    expires_after
        When it expires, with a time zone; it is renewed before.  None if it does not.
    """

    bearer: str = field(repr=False)
    expires_after: datetime | None = None

    def as_client_sees_it(self) -> dict[str, Any]:
        """The form that the client's credential provider returns."""
        return {"token": self.bearer, "expires_at": _aware(self.expires_after)}


AnyCredentials = S3StaticCredentials | GcsBearerCredential


def _aware(moment: datetime | None) -> datetime | None:
    if moment is not None and moment.tzinfo is None:
        raise InvalidInputError(
            f"expires_after={moment.isoformat()}: give it a time zone, datetime.timezone.utc for one"
        )
    return moment


class CredentialProvider:
    """What the client calls when it needs credentials: the user's callable, or credentials that are fixed.

    Parameters
    ----------
    get_credentials
        Returns credentials; called again when they are about to expire.
    initial
        Used as long as they are valid; without a callable, for ever.
    """

    # A token that runs out while the request is under way is of no use.
    _MARGIN = timedelta(minutes=1)

    def __init__(self, get_credentials: Callable[[], Any] | None, initial: AnyCredentials | None) -> None:
        self._get_credentials = get_credentials
        self._initial = initial
        self._lock = threading.Lock()
        renew_locks_after_fork(self)

    def renew_locks(self) -> None:
        """Replace the lock, in a forked child."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"CredentialProvider({self._get_credentials!r})"

    def __call__(self) -> dict[str, Any]:
        """Return credentials in the client's form."""
        if self._initial is not None and (self._get_credentials is None or _valid(self._initial, self._MARGIN)):
            return self._initial.as_client_sees_it()
        if self._get_credentials is None:
            raise InvalidInputError("there are neither credentials nor a callable that gets them")
        with self._lock:  # one renewal at a time
            return fetch(self._get_credentials).as_client_sees_it()


def _valid(credentials: AnyCredentials, margin: timedelta) -> bool:
    expiry = _aware(credentials.expires_after)
    return expiry is None or datetime.now(UTC) + margin < expiry


def fetch(get_credentials: Callable[[], Any]) -> AnyCredentials:
    """Call the user's callable; what it returns may also be the like-named class of another library."""
    found = get_credentials()
    if isinstance(found, S3StaticCredentials | GcsBearerCredential):
        return found
    if hasattr(found, "secret_access_key"):
        token, expiry = getattr(found, "session_token", None), getattr(found, "expires_after", None)
        return S3StaticCredentials(found.access_key_id, found.secret_access_key, token, expiry)
    if hasattr(found, "bearer"):
        return GcsBearerCredential(found.bearer, getattr(found, "expires_after", None))
    raise InvalidInputError(
        f"get_credentials returned {type(found).__name__}: return S3StaticCredentials or GcsBearerCredential"
    )


@dataclass(frozen=True, slots=True)
class HeldCredentials:
    """Credentials as a storage holds them: every text a `Secret`."""

    kind: Callable[..., AnyCredentials]
    texts: tuple[Secret | None, ...]
    expires_after: datetime | None

    @classmethod
    def hold(cls, credentials: AnyCredentials) -> HeldCredentials:
        """Wrap the texts of `credentials`."""
        texts: tuple[str | None, ...]
        if isinstance(credentials, S3StaticCredentials):
            texts = (credentials.access_key_id, credentials.secret_access_key, credentials.session_token)
        else:
            texts = (credentials.bearer,)
        held = tuple(None if text is None else Secret(text) for text in texts)
        return cls(type(credentials), held, _aware(credentials.expires_after))

    def reveal(self) -> AnyCredentials:
        """The credentials themselves."""
        arguments: list[Any] = [None if text is None else text.reveal() for text in self.texts]
        return self.kind(*arguments, self.expires_after)
