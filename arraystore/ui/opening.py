"""Repositories opened to be looked at: nothing can be written, and caches are small."""

from __future__ import annotations

from collections.abc import Sequence

from arraystore._repository.repository import Repository
from arraystore.storage.protocol import Storage
from arraystore.storage.read_only import ReadOnlyStorage
from arraystore.ui.tally import TalliedStorage

__all__ = ["open_to_look"]

_MANIFESTS = 16 << 20
_CHUNKS = 8 << 20
_LOGS = 8 << 20
"""Bytes of caches: a page looks at little at a time."""


def open_to_look(storage: Storage, authorize: Sequence[str] = ()) -> Repository:
    """Open a repository through a storage that refuses writes and counts requests, with some containers authorised."""
    look = TalliedStorage(ReadOnlyStorage(storage))
    access = dict.fromkeys(authorize)
    repository = Repository.open(look, authorize_virtual_chunk_access=access)
    config = repository.config.merge(
        manifest_cache_bytes=min(_MANIFESTS, repository.config.manifest_cache_bytes),
        chunk_cache_bytes=min(_CHUNKS, repository.config.chunk_cache_bytes),
        log_cache_bytes=min(_LOGS, repository.config.log_cache_bytes),
    )
    return Repository.open(look, config, authorize_virtual_chunk_access=access)
