"""A container of virtual chunks as it is saved, and how its reader may open it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from arraystore.errors import InvalidInputError
from arraystore.storage.protocol import Storage
from arraystore.storage.source_urls import url_problem

if TYPE_CHECKING:
    from arraystore.storage.credentials import AnyCredentials

ContainerAccess: TypeAlias = "Storage | AnyCredentials | Callable[[], Any] | Mapping[str, Any] | None"
"""How a container is read: through a storage, or with credentials, a callable that returns some, arguments of the
function that creates its storage, or None for credentials of the environment."""


@dataclass(frozen=True)
class VirtualChunkContainer:
    """A place that virtual chunks may be in, saved in the repository, without credentials.

    Parameters
    ----------
    url_prefix
        Start of the URLs of all its objects; it ends with a slash.
    region, endpoint_url, allow_http, force_path_style, requester_pays
        As for `s3_storage`; without a meaning for other services.
    anonymous
        Whether requests are unsigned.
    account
        Account of Azure; the prefix is then ``az://container/…``, else ``az://account/container/…``.
    """

    url_prefix: str
    region: str | None = None
    endpoint_url: str | None = None
    allow_http: bool = False
    anonymous: bool = False
    force_path_style: bool = False
    requester_pays: bool = False
    account: str | None = None

    def __post_init__(self) -> None:
        check_prefix(self.url_prefix)
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if type(value) is not bool if field.default is False else not isinstance(value, str | None):
                kind = "true or false" if field.default is False else "a string"
                raise InvalidInputError(f"{field.name}={value!r} of container {self.url_prefix!r} must be {kind}")
        if "@" in (self.endpoint_url or ""):
            raise InvalidInputError(
                f"the endpoint_url of container {self.url_prefix!r} contains credentials, which are never saved: pass "
                "them in authorize_virtual_chunk_access when opening the repository"
            )

    def options(self) -> dict[str, str | bool]:
        """Return the options that differ from their defaults, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        return {name: value for name, value in values.items() if value}


def check_prefix(prefix: object) -> None:
    """Raise `InvalidInputError` unless a prefix is one that a container may have."""
    if not isinstance(prefix, str) or "://" not in prefix or not prefix.endswith("/"):
        raise InvalidInputError(f"virtual container {prefix!r} must be a URL prefix that ends with a slash")
    if "@" in prefix.partition("://")[2].partition("/")[0]:
        raise InvalidInputError(
            f"virtual container {prefix.partition('://')[0]}://*** must not contain a user or password: pass "
            "credentials in authorize_virtual_chunk_access when opening the repository"
        )
    problem = url_problem(prefix + "x")
    if problem is not None:
        raise InvalidInputError(f"virtual container {prefix!r} must be a prefix of valid URLs: {problem}")
