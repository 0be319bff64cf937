"""Containers of virtual chunks: URL prefixes, saved in the repository, that the user opens to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from arraystore._chunks.virtual_chunk_container import ContainerAccess, VirtualChunkContainer, check_prefix
from arraystore._runtime import lazy_module
from arraystore.errors import InvalidInputError, VirtualReferenceError
from arraystore.storage.protocol import Storage
from arraystore.storage.source_urls import path_problem

if TYPE_CHECKING:
    from arraystore._chunks import container_storage
else:
    container_storage = lazy_module("arraystore._chunks.container_storage")


def _checked(access: Mapping[str, ContainerAccess]) -> Mapping[str, ContainerAccess]:
    if not isinstance(access, Mapping):
        raise InvalidInputError(
            "authorize_virtual_chunk_access must be a mapping of URL prefixes to storages, credentials, or None for "
            f"those of the environment, {{'s3://bucket/data/': None}} for instance, not {type(access).__name__}"
        )
    return access


class VirtualContainers:
    """Storages by URL prefix, which ends with a slash; keys are the rest of a URL.

    A repository never reads a URL outside of the containers that its user has authorised, since references and saved
    containers come from a bucket that others may write to.  Of the prefixes of a URL the longest counts, authorised or
    not: who authorises a bucket does not authorise a container that is saved for a part of it.
    """

    def __init__(
        self,
        access: Mapping[str, ContainerAccess] | None = None,
        saved: Iterable[VirtualChunkContainer] = (),
    ) -> None:
        self._saved = {container.url_prefix: container for container in saved}
        self._containers: dict[str, Storage] = {}
        for prefix, grant in _checked(access or {}).items():
            check_prefix(prefix)
            self._containers[prefix] = (
                grant
                if isinstance(grant, Storage)
                else container_storage.open_container(self._saved.get(prefix) or VirtualChunkContainer(prefix), grant)
            )
        self._prefixes = sorted({*self._saved, *self._containers}, key=len, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._containers)

    @property
    def prefixes(self) -> list[str]:
        """The URL prefixes that may be read."""
        return sorted(self._containers)

    def prefix_of(self, url: str) -> str | None:
        """Return the longest prefix of a container, authorised or not, that a URL starts with; None without one."""
        return next((prefix for prefix in self._prefixes if url.startswith(prefix)), None)

    def check_contained(self, url: str) -> str:
        """Return the prefix of the container of a URL; raise `VirtualReferenceError` if it is in none."""
        prefix = self.prefix_of(url)
        if prefix is None:
            raise VirtualReferenceError(
                f"the virtual chunk {url[:200]!r} is in none of the containers of this repository "
                f"({self.enumeration}); pass its prefix in authorize_virtual_chunk_access={{prefix: storage}} when "
                "opening the repository, or edit the repository configuration to save a VirtualChunkContainer for it"
            )
        self.check_path(url, url[len(prefix) :])
        return prefix

    def find(self, url: str) -> tuple[Storage, str]:
        """Return the storage and the key for a URL."""
        prefix = self.check_contained(url)
        storage = self._containers.get(prefix)
        if storage is None:
            raise VirtualReferenceError(
                f"the virtual chunk {url[:200]!r} is in the container {prefix!r}, which is saved in this repository "
                f"but not authorised; pass authorize_virtual_chunk_access={{{prefix!r}: None}} when opening "
                "the repository to read it with the credentials of the environment, or credentials or a storage in "
                f"place of None; commands, the page among them, take --authorize {prefix}"
            )
        return storage, url[len(prefix) :]

    @property
    def enumeration(self) -> str:
        """The prefixes as a string for errors."""
        return ", ".join(sorted(self._prefixes)) or "there are none"

    def check_path(self, url: str, path: str) -> None:
        """Refuse a path that is empty, or could lead out of its container."""
        problem = path_problem(path)
        if problem is not None:
            raise VirtualReferenceError(
                f"the URL {url[:200]!r} of a virtual chunk is not valid: {problem}; name an object within one of the "
                f"containers of this repository ({self.enumeration})"
            )
