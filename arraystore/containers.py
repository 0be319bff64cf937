"""Where virtual chunks may be read from: URL prefixes that the user has opened to a repository."""

from __future__ import annotations

from collections.abc import Mapping

from arraystore.errors import InvalidInputError, StorageError
from arraystore.storage.protocol import Storage

__all__ = ["VirtualContainers"]


class VirtualContainers:
    """Storages by URL prefix.

    A repository never reads a URL that no container of the user's allows: references come from a bucket that others
    may write to.

    Parameters
    ----------
    containers
        Storage per URL prefix, which ends with a slash; keys are what follows the prefix.
    """

    def __init__(self, containers: Mapping[str, Storage] | None = None) -> None:
        self._containers = dict(containers or {})
        for prefix in self._containers:
            if "://" not in prefix or not prefix.endswith("/"):
                raise InvalidInputError(f"virtual container {prefix!r}: a URL prefix that ends with a slash is needed")

    def __bool__(self) -> bool:
        return bool(self._containers)

    @property
    def prefixes(self) -> list[str]:
        """The URL prefixes that may be read."""
        return sorted(self._containers)

    def allows(self, url: str) -> bool:
        """Tell whether some container holds a URL."""
        return any(url.startswith(prefix) for prefix in self._containers)

    def find(self, url: str) -> tuple[Storage, str]:
        """Return the storage and the key for a URL.

        Raises
        ------
        StorageError
            If no container holds it.
        """
        longest = max((p for p in self._containers if url.startswith(p)), key=len, default=None)
        if longest is None:
            raise StorageError(
                f"the virtual chunk {url} is in none of the containers opened to this repository "
                f"({', '.join(self.prefixes) or 'there are none'}); pass its prefix in "
                "authorize_virtual_chunk_access={prefix: storage} when opening the repository"
            )
        return self._containers[longest], url[len(longest) :]
