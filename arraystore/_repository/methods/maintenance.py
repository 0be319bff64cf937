"""Methods of `Repository` for maintenance: expiry, garbage collection, compaction, verification."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from arraystore._maintenance.due import RECORD_GRACE
from arraystore._repository.base import RepositoryBase
from arraystore._runtime import lazy_module, run
from arraystore._runtime.progress import callback_of, shows_progress

if TYPE_CHECKING:
    from arraystore._maintenance.collection.summary import GCSummary, StageProgress
    from arraystore._maintenance.compact import CompactionSummary
    from arraystore._maintenance.retention_policy import RetentionPolicy
    from arraystore._maintenance.verification.findings import VerifyReport
    from arraystore._maintenance.verification.repair import RepairReport
    from arraystore._maintenance.verification.statistics import RepositoryStatistics
    from arraystore._repository import compaction, expiry, garbage, maintenance, verification
    from arraystore._repository.maintenance import MaintenanceReport, UpkeepOptions
    from arraystore._repository.verification import ChunkStorageStats
    from arraystore._runtime import engine as engines
    from arraystore._runtime.engine import EngineOption
else:
    compaction = lazy_module("arraystore._repository.compaction")
    expiry = lazy_module("arraystore._repository.expiry")
    garbage = lazy_module("arraystore._repository.garbage")
    maintenance = lazy_module("arraystore._repository.maintenance")
    verification = lazy_module("arraystore._repository.verification")
    engines = lazy_module("arraystore._runtime.engine")


class MaintenanceMethods(RepositoryBase):
    """Keeping a repository small and sound."""

    # -- maintenance ----------------------------------------------------------------------------------------

    def maintain(self, options: UpkeepOptions | None = None) -> MaintenanceReport:
        """Run one round of maintenance: expire by policy, compact, collect garbage, verify a sample.

        Safe at any time and in any number of processes; a lease keeps two of them from doing the same work.

        Parameters
        ----------
        options
            Its steps and their limits.
        """
        return run(self.maintain_async(options))

    async def maintain_async(self, options: UpkeepOptions | None = None) -> MaintenanceReport:
        """Asynchronous twin of `maintain`."""
        return await maintenance.maintain(self._context, maintenance.UpkeepOptions() if options is None else options)

    def wait_for_maintenance(self) -> None:
        """Wait until the background work that commits of this process left (checkpoints, folding) is done."""
        run(self.wait_for_maintenance_async())

    async def wait_for_maintenance_async(self) -> None:
        """Asynchronous twin of `wait_for_maintenance`."""
        await self._context.idle()

    # -- expiry ---------------------------------------------------------------------------------------------

    def expire_snapshots(
        self,
        older_than: datetime,
        *,
        keep_last: int | None = None,
        policy: RetentionPolicy | str | None = None,
        delete_expired_branches: bool = False,
        delete_expired_tags: bool = False,
        dry_run: bool = False,
    ) -> set[str]:
        """Expire old snapshots: remove them from history.

        Garbage collection can then delete the objects that only they reference; nothing is deleted before.

        Kept are the newest snapshot of each branch, those that tags name, and the very first one.  Branches, tags and
        sessions go on as before; a snapshot whose parent has expired has the next older one that is left as its
        parent.

        Parameters
        ----------
        older_than
            Snapshots expire that were committed before this time, which has a time zone.
        keep_last
            Count of the newest snapshots of each branch that stay, however old they are.
        policy
            Policy for the others: ``"daily for 30 days, weekly for a year"``, for instance.
        delete_expired_branches
            Whether to delete branches whose newest snapshot is older; never the first one, and none that is committed
            to, or reset, meanwhile.
        delete_expired_tags
            Whether to delete tags of snapshots that are older.
        dry_run
            Whether only to report what would expire.

        Returns
        -------
        set of str
            Ids of the snapshots that have expired, those included that went with a branch or a tag.

        Raises
        ------
        InvalidInputError
            If an argument is not valid.
        ReadOnlyError
            If the repository is read-only, or is closed meanwhile.

        Notes
        -----
        An error that ends it half-way has notes (``__notes__``) which say what was deleted and has expired before that.
        """
        return run(
            self.expire_snapshots_async(
                older_than,
                keep_last=keep_last,
                policy=policy,
                delete_expired_branches=delete_expired_branches,
                delete_expired_tags=delete_expired_tags,
                dry_run=dry_run,
            )
        )

    async def expire_snapshots_async(
        self,
        older_than: datetime,
        *,
        keep_last: int | None = None,
        policy: RetentionPolicy | str | None = None,
        delete_expired_branches: bool = False,
        delete_expired_tags: bool = False,
        dry_run: bool = False,
    ) -> set[str]:
        """Asynchronous twin of `expire_snapshots`."""
        return await expiry.expire_snapshots(
            self._context,
            older_than,
            keep_last=keep_last,
            policy=policy,
            delete_expired_branches=delete_expired_branches,
            delete_expired_tags=delete_expired_tags,
            dry_run=dry_run,
        )

    # -- garbage --------------------------------------------------------------------------------------------

    @shows_progress("Collecting")
    def garbage_collect(
        self,
        delete_object_older_than: datetime,
        *,
        full: bool = False,
        dry_run: bool = False,
        record_grace: timedelta = RECORD_GRACE,
        nobody_writes: bool = False,
        progress: StageProgress | bool = False,
    ) -> GCSummary:
        """Delete objects that no snapshot references.

        Safe at any time and for any `delete_object_older_than`, the present included, whatever runs meanwhile: a
        session that wrote something before that time and has not committed it fails with `SessionExpiredError` when
        it tries, and has to start again.

        Parameters
        ----------
        delete_object_older_than
            Only objects that were written before this time are deleted, or before that of an earlier collection,
            which this one completes; it has a time zone.
        full
            Whether to look at everything.  By default a collection looks at what was written since the last one, and
            at everything only if snapshots have expired, or branches or tags were deleted or reset since.
        dry_run
            Whether only to report what would be deleted.
        record_grace
            For how long records of branches' logs are left whose snapshots have expired; twenty minutes at least.
        nobody_writes
            Allows less: promises that no process is open that may still write.  Writers look at the log every ten
            minutes, and one that continues later where records are missing could report the success of a commit
            that is not in the history.
        progress
            True to show a progress bar (extra ``progress``), or a callable.  That is called with what is being done,
            how much of it is done, and how much there is or None.

        Raises
        ------
        InvalidInputError
            If the time has no time zone, or is in the future; if `record_grace` is negative, or too
            short without `nobody_writes`.
        ReadOnlyError
            If the repository is read-only.
        """
        return run(
            self.garbage_collect_async(
                delete_object_older_than,
                full=full,
                dry_run=dry_run,
                record_grace=record_grace,
                nobody_writes=nobody_writes,
                progress=progress,
            )
        )

    @shows_progress("Collecting")
    async def garbage_collect_async(
        self,
        delete_object_older_than: datetime,
        *,
        full: bool = False,
        dry_run: bool = False,
        record_grace: timedelta = RECORD_GRACE,
        nobody_writes: bool = False,
        progress: StageProgress | bool = False,
    ) -> GCSummary:
        """Asynchronous twin of `garbage_collect`."""
        return await garbage.garbage_collect(
            self._context,
            delete_object_older_than,
            full=full,
            dry_run=dry_run,
            record_grace=record_grace,
            nobody_writes=nobody_writes,
            progress=callback_of(progress),
        )

    @shows_progress("Compacting")
    def compact(
        self,
        *,
        branch: str = "main",
        max_bytes: int | None = None,
        max_seconds: float | None = None,
        min_live: float = 0.5,
        dry_run: bool = False,
        engine: EngineOption = "threads",
        progress: StageProgress | bool = False,
    ) -> CompactionSummary:
        """Make reading a branch faster and its storage smaller, without changing data or history.

        Manifests of each array are folded into as few as hold its references.  What the newest snapshot uses is copied
        out of packs that are mostly dead, and out of small ones; in the new packs neighbours in the grid are
        neighbours.  The old packs go with the next garbage collection after the snapshots have expired that use them.

        Safe at any time, next to anything else; what others write meanwhile wins.  A run that its budget ends is
        continued by the next one.

        Parameters
        ----------
        branch
            Its name.
        max_bytes
            About how many bytes to read and write at most; None for no limit.
        max_seconds
            After how many seconds to begin nothing new; None for no limit.
        min_live
            A pack of which retained snapshots use less than this part is written anew.
        dry_run
            Whether to write nothing, and only to report what would be done.
        engine
            Where chunks are copied, as for `verify`; this process folds manifests and commits.
        progress
            True to show a progress bar (extra ``progress``), or a callable.  That is called with what is being done,
            how much of it is done, and how much there is or None.

        Raises
        ------
        RefNotFoundError
            If there is no such branch.
        ReadOnlyError
            If the repository is read-only.
        InvalidInputError
            If a limit is negative, or `min_live` not from 0 to 1.
        """
        return run(
            self.compact_async(
                branch=branch,
                max_bytes=max_bytes,
                max_seconds=max_seconds,
                min_live=min_live,
                dry_run=dry_run,
                engine=engines.caller_engine(engine),
                progress=progress,
            )
        )

    @shows_progress("Compacting")
    async def compact_async(
        self,
        *,
        branch: str = "main",
        max_bytes: int | None = None,
        max_seconds: float | None = None,
        min_live: float = 0.5,
        dry_run: bool = False,
        engine: EngineOption = "threads",
        progress: StageProgress | bool = False,
    ) -> CompactionSummary:
        """Asynchronous twin of `compact`."""
        return await compaction.compact(
            self._context,
            branch,
            max_bytes=max_bytes,
            max_seconds=max_seconds,
            min_live=min_live,
            dry_run=dry_run,
            engine=engine,
            progress=callback_of(progress),
        )

    def rewrite_manifests(
        self,
        message: str,
        *,
        branch: str,
        metadata: dict[str, Any] | None = None,
        commit_method: Literal["new_commit", "amend"] = "new_commit",
    ) -> str:
        """Fold the manifests of a branch, and commit nothing with a message.

        `compact` does this and more without a commit; this is for programs that expect a snapshot of it.

        Parameters
        ----------
        message, metadata
            For the history.
        branch
            Its name.
        commit_method
            ``"new_commit"``, or ``"amend"`` to give the branch's newest snapshot this message.

        Returns
        -------
        str
            Id of the new snapshot, which holds the same data as the one before.

        Raises
        ------
        RefNotFoundError
            If there is no such branch.
        """
        return run(self.rewrite_manifests_async(message, branch=branch, metadata=metadata, commit_method=commit_method))

    async def rewrite_manifests_async(
        self,
        message: str,
        *,
        branch: str,
        metadata: dict[str, Any] | None = None,
        commit_method: Literal["new_commit", "amend"] = "new_commit",
    ) -> str:
        """Asynchronous twin of `rewrite_manifests`."""
        return await compaction.rewrite_manifests(
            self._context,
            message,
            branch=branch,
            metadata=metadata,
            commit_method=commit_method,
            default_metadata=self._default_metadata,
        )

    @shows_progress("Verifying")
    def verify(
        self,
        level: Literal["metadata", "chunks"] = "metadata",
        *,
        sample: int | None = None,
        engine: EngineOption = "threads",
        progress: StageProgress | bool = False,
    ) -> VerifyReport:
        """Verify everything that branches and tags lead to, and report damage.

        Nothing is changed.  Snapshots that are committed meanwhile are not looked at.

        Parameters
        ----------
        level
            ``"metadata"``: everything but the bytes of chunks, of which it is only checked that they are there.
            ``"chunks"``: chunks are read and compared with their checksums, too, which needs no codec; virtual ones,
            which have none, are decoded.
        sample
            With ``"chunks"``, how many chunks to read, drawn at random; None for all.
        engine
            Where chunks are read: ``"threads"`` of this process, ``"spark"`` for the executors of the active session,
            or an engine (`arraystore.spark.engine`).
        progress
            True to show a progress bar (extra ``progress``), or a callable.  That is called with what is being done,
            how much of it is done, and how much there is or None.

        Returns
        -------
        VerifyReport
            Damage never raises: each damaged object is a finding, with the snapshots and arrays that have it.

        Raises
        ------
        InvalidInputError
            If `level` or `sample` is not valid.
        StorageError
            If the storage fails.
        """
        return run(self.verify_async(level, sample=sample, engine=engines.caller_engine(engine), progress=progress))

    @shows_progress("Verifying")
    async def verify_async(
        self,
        level: Literal["metadata", "chunks"] = "metadata",
        *,
        sample: int | None = None,
        engine: EngineOption = "threads",
        progress: StageProgress | bool = False,
    ) -> VerifyReport:
        """Asynchronous twin of `verify`."""
        return await verification.verify(
            self._context, level, sample=sample, engine=engine, progress=callback_of(progress)
        )

    @shows_progress("Repairing")
    def repair(self, *, dry_run: bool = False, progress: StageProgress | bool = False) -> RepairReport:
        """Verify the metadata, and rebuild what the logs can rebuild: checkpoints, history pages and hints.

        A lost record is written again if later ones repeat all that it held.  Records that are there, manifests, change
        logs and packs are never touched.

        Parameters
        ----------
        dry_run
            Whether to change nothing, and only to report.
        progress
            As for `verify`.

        Returns
        -------
        RepairReport
            What was done, and what is left.
        """
        return run(self.repair_async(dry_run=dry_run, progress=progress))

    @shows_progress("Repairing")
    async def repair_async(self, *, dry_run: bool = False, progress: StageProgress | bool = False) -> RepairReport:
        """Asynchronous twin of `repair`."""
        return await verification.repair(self._context, dry_run=dry_run, progress=callback_of(progress))

    def statistics(self, *, branch: str = "main", limit: int = 100) -> RepositoryStatistics:
        """Measure what takes space, how much of it is in use, and how often a branch is committed to.

        Parameters
        ----------
        branch
            The branch whose arrays and snapshots are looked at; objects and packs are those of the repository.
        limit
            How many of its newest snapshots to look at.

        Raises
        ------
        InvalidInputError
            If `limit` is not an integer >= 0.
        RefNotFoundError
            If there is no such branch.
        """
        return run(self.statistics_async(branch=branch, limit=limit))

    async def statistics_async(self, *, branch: str = "main", limit: int = 100) -> RepositoryStatistics:
        """Asynchronous twin of `statistics`."""
        return await verification.statistics(self._context, branch, limit)

    def chunk_storage_stats(self) -> ChunkStorageStats:
        """Return the bytes of the chunks of all snapshots that are retained; reads all metadata, as `verify` does."""
        return run(self.chunk_storage_stats_async())

    async def chunk_storage_stats_async(self) -> ChunkStorageStats:
        """Asynchronous twin of `chunk_storage_stats`."""
        return await verification.chunk_storage_stats(self._context)

    def total_chunks_storage(self) -> int:
        """Return the bytes of chunks that are in the repository itself; see `chunk_storage_stats`."""
        return self.chunk_storage_stats().non_virtual_bytes()

    async def total_chunks_storage_async(self) -> int:
        """Asynchronous twin of `total_chunks_storage`."""
        return (await self.chunk_storage_stats_async()).non_virtual_bytes()
