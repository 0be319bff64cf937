"""Containers of virtual chunks: URL prefixes that the user has opened to a repository."""

from __future__ import annotations

from collections.abc import Mapping

from arraystore.errors import InvalidInputError, VirtualReferenceError
from arraystore.storage.protocol import Storage
from arraystore.storage.source_urls import path_problem, url_problem


class VirtualContainers:
    """Storages by URL prefix, which ends with a slash; keys are the rest of a URL.

    A repository never reads a URL outside of these containers, since references come from a bucket that others may
    write to.
    """

    def __init__(self, containers: Mapping[str, Storage] | None = None) -> None:
        self._containers = dict(containers or {})
        for prefix in self._containers:
            if "://" not in prefix or not prefix.endswith("/"):
                raise InvalidInputError(f"virtual container {prefix!r} must be a URL prefix that ends with a slash")
            problem = url_problem(prefix + "x")
            if problem is not None:
                raise InvalidInputError(f"virtual container {prefix!r} must be a prefix of valid URLs: {problem}")

    def __bool__(self) -> bool:
        return bool(self._containers)

    @property
    def prefixes(self) -> list[str]:
        """The URL prefixes that may be read."""
        return sorted(self._containers)

    def prefix_of(self, url: str) -> str | None:
        """Return the longest prefix of a container that a URL starts with; None if there is none."""
        return max((p for p in self._containers if url.startswith(p)), key=len, default=None)

    def find(self, url: str) -> tuple[Storage, str]:
        """Return the storage and the key for a URL."""
        prefix = self.prefix_of(url)
        if prefix is None:
            raise VirtualReferenceError(
                f"the virtual chunk {url[:200]!r} is in none of the containers opened to this repository "
                f"({self.enumeration}); pass its prefix in authorize_virtual_chunk_access={{prefix: storage}} when "
                "opening the repository"
            )
        key = url[len(prefix) :]
        self.check_path(url, key)
        return self._containers[prefix], key

    @property
    def enumeration(self) -> str:
        """The prefixes as a string for errors."""
        return ", ".join(self.prefixes) or "there are none"

    def check_path(self, url: str, path: str) -> None:
        """Refuse a path that is empty, or could lead out of its container."""
        problem = path_problem(path)
        if problem is not None:
            raise VirtualReferenceError(
                f"the URL {url[:200]!r} of a virtual chunk is not valid: {problem}; name an object within one of the "
                f"containers opened to this repository ({self.enumeration})"
            )
