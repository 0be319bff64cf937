"""Looking into a repository: verification, repair, statistics."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from arraystore._log.loading import load_checkpoint
from arraystore._log.state import State
from arraystore._maintenance.verification.findings import VerifyReport
from arraystore._maintenance.verification.repair import RepairReport, repair
from arraystore._maintenance.verification.statistics import RepositoryStatistics, gather_statistics
from arraystore._maintenance.verification.verify import Progress, Verification, verify
from arraystore._repository.base import RepositoryBase
from arraystore._runtime import run
from arraystore.errors import InvalidInputError, RefNotFoundError

__all__ = ["ChunkStorageStats", "InspectionMixin"]


@dataclass(frozen=True)
class ChunkStorageStats:
    """Bytes of the chunks of all snapshots that are retained.

    Parameters
    ----------
    native_bytes
        Packs that hold them, whole.
    virtual_bytes
        In objects elsewhere, as often as commits have referred to them.
    inlined_bytes
        In manifests, as often as commits have written them.
    """

    native_bytes: int
    virtual_bytes: int
    inlined_bytes: int

    def non_virtual_bytes(self) -> int:
        """Return what is in the repository."""
        return self.native_bytes + self.inlined_bytes

    def total_bytes(self) -> int:
        """Return all."""
        return self.native_bytes + self.virtual_bytes + self.inlined_bytes


class InspectionMixin(RepositoryBase):
    """Verifying, repairing, measuring."""

    def verify(
        self,
        level: Literal["metadata", "chunks"] = "metadata",
        *,
        sample: int | None = None,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Look at everything that branches and tags lead to, and tell what is wrong.

        Nothing is changed.  What is committed meanwhile is left for the next time.

        Parameters
        ----------
        level
            ``"metadata"``: everything but the bytes of chunks, of which it is only checked that they are there.
            ``"chunks"``: chunks are read and compared with their checksums, too, which needs no codec; virtual ones,
            which have none, are decoded.
        sample
            With ``"chunks"``, how many chunks to read, drawn at random; None for all.
        progress
            Called with what is being done, how much of it is done, and how much there is or None.

        Returns
        -------
        VerifyReport
            Damage never raises: each damaged object is a finding, with the snapshots and arrays that have it.

        Raises
        ------
        InvalidInputError
            If `level` or `sample` is none.
        StorageError
            If the storage fails.
        """
        return run(self.verify_async(level, sample=sample, progress=progress))

    async def verify_async(
        self,
        level: Literal["metadata", "chunks"] = "metadata",
        *,
        sample: int | None = None,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Asynchronous twin of `verify`."""
        context = self._context
        return await verify(
            self.storage,
            context.repository,
            context.environment,
            context.reader,
            level,
            sample=sample,
            progress=progress,
        )

    def repair(self, *, dry_run: bool = False, progress: Progress | None = None) -> RepairReport:
        """Verify the metadata, and make anew what can be made from the logs: checkpoints, history pages and hints.

        A lost record is written again if later ones repeat all that it held.  Records that are there, manifests, change
        logs and packs are never touched.

        Parameters
        ----------
        dry_run
            Whether to change nothing, and only to tell.
        progress
            As for `verify`.

        Returns
        -------
        RepairReport
            What was done, and what is left.
        """
        return run(self.repair_async(dry_run=dry_run, progress=progress))

    async def repair_async(self, *, dry_run: bool = False, progress: Progress | None = None) -> RepairReport:
        """Asynchronous twin of `repair`."""
        context = self._context
        return await repair(self.storage, context.repository, context.environment, dry_run=dry_run, progress=progress)

    def statistics(self, *, branch: str = "main", limit: int = 100) -> RepositoryStatistics:
        """Tell what takes how much room, how much of it is in use, and how often a branch is committed to.

        Parameters
        ----------
        branch
            The branch whose arrays and snapshots are looked at; objects and packs are those of the repository.
        limit
            How many of its newest snapshots to look at.

        Raises
        ------
        InvalidInputError
            If `limit` is negative.
        RefNotFoundError
            If there is no such branch.
        """
        return run(self.statistics_async(branch=branch, limit=limit))

    async def statistics_async(self, *, branch: str = "main", limit: int = 100) -> RepositoryStatistics:
        """Asynchronous twin of `statistics`."""
        if type(limit) is not int or limit < 0:
            raise InvalidInputError(f"limit={limit!r} is no number of snapshots")
        context = self._context
        tip = await context.tip(branch)
        table = await context.repository_log.table()
        others: list[State] = []
        for name, row in sorted(table.branches.items()):
            if name != branch and not row.deleted:
                with suppress(RefNotFoundError):  # deleted just now
                    others.append((await context.tip(name)).state)
        others += [await load_checkpoint(self.storage, tag.origin.checkpoint) for tag in table.tags.values()]
        return await gather_statistics(self.storage, context.reader, context.log(branch), tip, others, limit)

    def chunk_storage_stats(self) -> ChunkStorageStats:
        """Return the bytes of the chunks of all snapshots that are retained; reads all metadata, as `verify` does."""
        return run(self.chunk_storage_stats_async())

    async def chunk_storage_stats_async(self) -> ChunkStorageStats:
        """Asynchronous twin of `chunk_storage_stats`."""
        verification = Verification(self.storage, self._context.repository, self._context.environment)
        await verification.run()
        packs, counts = verification.inventory.packs, verification.counts
        native = int(packs.sizes[packs.reached].sum())
        return ChunkStorageStats(native, counts["virtual_bytes"], counts["inlined_bytes"])

    def total_chunks_storage(self) -> int:
        """Return the bytes of chunks that are in the repository itself; see `chunk_storage_stats`."""
        return self.chunk_storage_stats().non_virtual_bytes()

    async def total_chunks_storage_async(self) -> int:
        """Asynchronous twin of `total_chunks_storage`."""
        return (await self.chunk_storage_stats_async()).non_virtual_bytes()
