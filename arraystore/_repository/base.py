"""Identity of a repository: its id, storage and configuration, without its operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arraystore._chunks.cache_usage import CacheStats
from arraystore._context.config import RepositoryConfig
from arraystore._context.context import Context
from arraystore._format.ids import id_to_text
from arraystore._format.refs import RepositoryInfo
from arraystore._runtime import lazy_module
from arraystore.storage.protocol import Storage

if TYPE_CHECKING:
    from arraystore._repository import views
else:
    views = lazy_module("arraystore._repository.views")


class RepositoryBase:
    """Identity of a repository: what its sessions share, and what the object ``repo`` says."""

    def __init__(self, context: Context, info: RepositoryInfo) -> None:
        self._context = context
        self._info = info
        self._default_metadata: dict[str, Any] = {}

    @property
    def context(self) -> Context:
        """Return what sessions of the repository share in this process."""
        return self._context

    @property
    def id(self) -> str:
        """Id of the repository."""
        return id_to_text(self._info.id)

    @property
    def storage(self) -> Storage:
        """Storage that the repository is on."""
        return self._context.storage

    @property
    def config(self) -> RepositoryConfig:
        """Configuration that it was opened with."""
        return self._context.config

    @property
    def authorized_virtual_container_prefixes(self) -> set[str]:
        """URL prefixes that virtual chunks may be read from."""
        return set(self._context.containers.prefixes)

    def cache_stats(self) -> CacheStats:
        """Return what the caches of this repository hold in this process, and how often they helped.

        No request is made.  All sessions of this object share its caches; forks have their own.
        """
        return self._context.cache_stats()

    def __dask_tokenize__(self) -> str:
        """Return what names of dask arrays are made of: each time another, since branches move."""
        return self._context.environment.new_id().hex()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.storage.location}>"

    def _repr_html_(self) -> str:
        return views.look_at_repository(self._context, self.id).to_html()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RepositoryBase):
            return NotImplemented
        return self._info.id == other._info.id and self.storage.location == other.storage.location

    def __hash__(self) -> int:
        return hash(self._info.id)
