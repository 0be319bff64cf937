"""Accounting of the caches of a repository."""

from __future__ import annotations

from dataclasses import dataclass, field

from arraystore.storage.cache_usage import CacheUsage

__all__ = ["CacheStats"]


@dataclass(frozen=True)
class CacheStats:
    """Caches of a repository in this process, since it was opened there.

    Threads count without a lock, so that few look-ups may be missing.

    Parameters
    ----------
    manifests
        Decoded manifests: at most `RepositoryConfig.manifest_cache_bytes`.
    chunks
        Parts of packs: at most `RepositoryConfig.chunk_cache_bytes`; none where a storage is as fast as memory.
    records
        Records of logs and values decoded from them: at most `RepositoryConfig.log_cache_bytes` for each branch in
        use.
    disk
        Files of `CachedStorage`, of all repositories and processes that use its directory, as of the last look; hits
        and misses are those of this process.
    process
        All caches in the memory of this process, of whichever repository: at most what `limit_caches` says.  Entries
        are caches, and no hits are counted.
    """

    manifests: CacheUsage
    chunks: CacheUsage
    records: CacheUsage
    disk: CacheUsage = field(default_factory=CacheUsage)
    process: CacheUsage = field(default_factory=CacheUsage)
