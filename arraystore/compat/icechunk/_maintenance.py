"""Methods of `Repository` for expiry, garbage collection, sizes and inspection."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from typing import Any

from arraystore._runtime import run
from arraystore.compat.icechunk import _inspection as inspection
from arraystore.compat.icechunk._base import RepositoryBase
from arraystore.compat.icechunk._forward import refining
from arraystore.compat.icechunk._metadata import plain
from arraystore.compat.icechunk.ops import GCSummary
from arraystore.compat.icechunk.snapshots import ChunkStorageStats
from arraystore.compat.icechunk.types import CommitMethod

_MiB = 1 << 20


class MaintenanceMethods(RepositoryBase):
    """Expiry, garbage collection, sizes, inspection.

    Limits of memory and of concurrency are accepted and have no effect: arraystore bounds both by itself.
    """

    def expire_snapshots(
        self,
        older_than: datetime,
        *,
        delete_expired_branches: bool = False,
        delete_expired_tags: bool = False,
    ) -> set[str]:
        """Expire old snapshots."""
        return run(
            self.expire_snapshots_async(
                older_than, delete_expired_branches=delete_expired_branches, delete_expired_tags=delete_expired_tags
            )
        )

    async def expire_snapshots_async(
        self,
        older_than: datetime,
        *,
        delete_expired_branches: bool = False,
        delete_expired_tags: bool = False,
    ) -> set[str]:
        """Asynchronous twin of `expire_snapshots`."""
        with refining():
            return await self._core.expire_snapshots_async(
                older_than, delete_expired_branches=delete_expired_branches, delete_expired_tags=delete_expired_tags
            )

    def garbage_collect(
        self,
        delete_object_older_than: datetime,
        *,
        dry_run: bool = False,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 * _MiB,
        max_decoded_manifest_mem_bytes: int = 4096 * _MiB,
        max_concurrent_manifest_fetches: int = 500,
        max_concurrent_deletes: int = 10,
        max_consecutive_delete_failures: int = 50,
        max_concurrent_listings: int | None = None,
    ) -> GCSummary:
        """Delete objects that no retained snapshot references."""
        return run(self.garbage_collect_async(delete_object_older_than, dry_run=dry_run))

    async def garbage_collect_async(
        self,
        delete_object_older_than: datetime,
        *,
        dry_run: bool = False,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 * _MiB,
        max_decoded_manifest_mem_bytes: int = 4096 * _MiB,
        max_concurrent_manifest_fetches: int = 500,
        max_concurrent_deletes: int = 10,
        max_consecutive_delete_failures: int = 50,
        max_concurrent_listings: int | None = None,
    ) -> GCSummary:
        """Asynchronous twin of `garbage_collect`."""
        with refining():
            cutoff = _not_in_future(delete_object_older_than)
            return GCSummary.of(await self._core.garbage_collect_async(cutoff, dry_run=dry_run))

    def rewrite_manifests(
        self,
        message: str,
        *,
        branch: str,
        metadata: dict[str, Any] | None = None,
        commit_method: CommitMethod = "new_commit",
    ) -> str:
        """Fold the manifests of a branch, and make a snapshot that says so."""
        return run(self.rewrite_manifests_async(message, branch=branch, metadata=metadata, commit_method=commit_method))

    async def rewrite_manifests_async(
        self,
        message: str,
        *,
        branch: str,
        metadata: dict[str, Any] | None = None,
        commit_method: CommitMethod = "new_commit",
    ) -> str:
        """Asynchronous twin of `rewrite_manifests`."""
        with refining():
            await self._core.compact_async(branch=branch)
            session = await self._core.writable_session_async(branch)
            if commit_method == "amend":
                return await session.amend_async(message, metadata=plain(metadata), allow_empty=True)
            return await session.commit_async(message, plain(metadata), allow_empty=True)

    # -- sizes ----------------------------------------------------------------------------------------------------

    def chunk_storage_stats(
        self,
        *,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 * _MiB,
        max_decoded_manifest_mem_bytes: int = 4096 * _MiB,
        max_concurrent_manifest_fetches: int = 500,
    ) -> ChunkStorageStats:
        """Return the bytes of the chunks of all snapshots that are retained."""
        return run(self.chunk_storage_stats_async())

    async def chunk_storage_stats_async(
        self,
        *,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 * _MiB,
        max_decoded_manifest_mem_bytes: int = 4096 * _MiB,
        max_concurrent_manifest_fetches: int = 500,
    ) -> ChunkStorageStats:
        """Asynchronous twin of `chunk_storage_stats`."""
        with refining():
            found = await self._core.chunk_storage_stats_async()
        return ChunkStorageStats(found.native_bytes, found.virtual_bytes, found.inlined_bytes)

    def total_chunks_storage(
        self,
        *,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 * _MiB,
        max_decoded_manifest_mem_bytes: int = 4096 * _MiB,
        max_concurrent_manifest_fetches: int = 500,
    ) -> int:
        """Return the bytes of chunks in packs; deprecated, as in Icechunk."""
        warnings.warn("total_chunks_storage is deprecated: use chunk_storage_stats", DeprecationWarning, stacklevel=2)
        return self.chunk_storage_stats().native_bytes

    async def total_chunks_storage_async(
        self,
        *,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 * _MiB,
        max_decoded_manifest_mem_bytes: int = 4096 * _MiB,
        max_concurrent_manifest_fetches: int = 500,
    ) -> int:
        """Asynchronous twin of `total_chunks_storage`."""
        warnings.warn(
            "total_chunks_storage_async is deprecated: use chunk_storage_stats_async", DeprecationWarning, stacklevel=2
        )
        return (await self.chunk_storage_stats_async()).native_bytes

    # -- inspection -----------------------------------------------------------------------------------------------

    def inspect_snapshot(self, snapshot_id: str) -> dict[str, Any]:
        """Return the nodes of a snapshot, for people."""
        return run(self.inspect_snapshot_async(snapshot_id))

    async def inspect_snapshot_async(self, snapshot_id: str) -> dict[str, Any]:
        """Asynchronous twin of `inspect_snapshot`."""
        with refining():
            return await inspection.snapshot(self._core, await self._known_id(snapshot_id), snapshot_id)

    def inspect_repo_info(self) -> dict[str, Any]:
        """Return branches, tags and snapshots, for people."""
        return run(self.inspect_repo_info_async())

    async def inspect_repo_info_async(self) -> dict[str, Any]:
        """Asynchronous twin of `inspect_repo_info`."""
        with refining():
            return await inspection.repository(self._core)

    def inspect_manifest(self, manifest_id: str) -> dict[str, Any]:
        """Return the size of the references of an array, for people."""
        return run(self.inspect_manifest_async(manifest_id))

    async def inspect_manifest_async(self, manifest_id: str) -> dict[str, Any]:
        """Asynchronous twin of `inspect_manifest`."""
        with refining():
            return await inspection.manifest(self._core, manifest_id)

    def inspect_transaction_log(self, snapshot_id: str) -> dict[str, Any]:
        """Return what a snapshot changed, for people."""
        return run(self.inspect_transaction_log_async(snapshot_id))

    async def inspect_transaction_log_async(self, snapshot_id: str) -> dict[str, Any]:
        """Asynchronous twin of `inspect_transaction_log`."""
        with refining():
            return await inspection.transaction_log(self._core, await self._known_id(snapshot_id))


def _not_in_future(cutoff: datetime) -> datetime:
    """Return a time, or now for one that is yet to come, with which Icechunk collects all that there is."""
    return cutoff if cutoff.tzinfo is None else min(cutoff, datetime.now(UTC))
