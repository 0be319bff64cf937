"""What keeps a repository small: expiry of snapshots and garbage collection."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from arraystore._format.history import SnapshotRow
from arraystore._format.ids import id_to_text
from arraystore._format.repository_log import FIRST_BRANCH, Tag
from arraystore._history.time_travel import microseconds_of
from arraystore._log.branch_log import LONGEST_PAUSE, BranchLog
from arraystore._log.status import check_allowed
from arraystore._maintenance.collection.collect import RECORD_GRACE, collect
from arraystore._maintenance.collection.fence import watermark_at
from arraystore._maintenance.collection.summary import GCSummary, Progress
from arraystore._maintenance.expire import GivenUp, expire
from arraystore._maintenance.retention_policy import RetentionPolicy, parse_policy
from arraystore._maintenance.scope import Grounds
from arraystore._repository.refs import RefsMixin
from arraystore._runtime import run
from arraystore.errors import ConflictError, InvalidInputError, RefNotFoundError
from arraystore.storage.counting import CountingStorage

__all__ = ["CareMixin"]


class CareMixin(RefsMixin):
    """Expiring snapshots, collecting garbage."""

    def _grounds(self) -> Grounds:
        context = self._context
        return Grounds(context.storage, context.environment, context.repository_log, context.log, context.known_tip)

    def _counted_grounds(self) -> tuple[Grounds, CountingStorage]:
        """Return the same with every request counted."""
        context = self._context
        storage = CountingStorage(context.storage)
        logs: dict[str, BranchLog] = {}

        def log(name: str) -> BranchLog:
            if name not in logs:
                logs[name] = BranchLog(storage, context.repository, name, context.environment)
            return logs[name]

        repository_log = context.repository_log.over(storage)
        return Grounds(storage, context.environment, repository_log, log, context.known_tip), storage

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
        """Let old snapshots go: they are in no history any more, and what only they need is garbage.

        Kept are the newest snapshot of each branch, those that tags name, and the very first one.  Branches, tags and
        sessions go on as before; a snapshot whose parent has expired has the next older one that is left as its
        parent.  Nothing is deleted before `garbage_collect`.

        Parameters
        ----------
        older_than
            Snapshots expire that were committed before this moment, which has a time zone.
        keep_last
            How many of the newest snapshots of each branch stay, however old they are.
        policy
            Which of the others stay: ``"daily for 30 days, weekly for a year"``, for instance.
        delete_expired_branches
            Whether to delete branches whose newest snapshot is older; never the first one, and none that is committed
            to, or reset, meanwhile.
        delete_expired_tags
            Whether to delete tags of snapshots that are older.
        dry_run
            Whether only to tell what would expire.

        Returns
        -------
        set of str
            Ids of the snapshots that have expired, those included that went with a branch or a tag.

        Raises
        ------
        InvalidInputError
            If an argument makes no sense.
        ReadOnlyError
            If the repository is read-only.
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
        moment = microseconds_of(older_than, "older_than")
        rules = policy if policy is None or isinstance(policy, RetentionPolicy) else parse_policy(policy)
        if keep_last is not None and (type(keep_last) is not int or keep_last < 1):
            raise InvalidInputError(f"keep_last={keep_last!r}: at least the newest snapshot of a branch is kept")
        check_allowed(await self._context.repository_log.table(), "expire_snapshots")
        tags = await self._old_tags(moment) if delete_expired_tags else {}
        branches = await self._old_branches(moment) if delete_expired_branches else {}
        if not dry_run:
            tags = {name: tag for name, tag in tags.items() if await self._deleted_tag(name)}
            branches = {name: tip for name, tip in branches.items() if await self._deleted_branch(name, tip)}
        now = datetime.fromtimestamp(self._context.environment.now_us() / 1_000_000, UTC)

        def keeps(rows: Sequence[SnapshotRow]) -> set[bytes]:
            kept = set() if rules is None else rules.keeps(rows, now)
            return kept | {row.id for row in rows[: keep_last or 1]}

        wants_history = rules is not None or keep_last is not None
        given_up = GivenUp(frozenset(branches), tags)
        gone = await expire(
            self._grounds(), moment, keeps if wants_history else None, dry_run=dry_run, given_up=given_up
        )
        return {id_to_text(each) for each in gone}

    async def _old_tags(self, moment: int) -> dict[str, Tag]:
        """Return the tags of snapshots that are older than a moment."""
        found: dict[str, Tag] = {}
        for name, tag in (await self._context.repository_log.table()).tags.items():
            with suppress(RefNotFoundError):
                if (await self._tip_of(None, name, None)).state.time < moment:
                    found[name] = tag
        return found

    async def _deleted_tag(self, tag: str) -> bool:
        """Delete a tag, which never names another snapshot; tell whether that was done here."""
        try:
            await self.delete_tag_async(tag)
        except RefNotFoundError:  # somebody else has deleted it
            return False
        return True

    async def _old_branches(self, moment: int) -> dict[str, bytes]:
        """Return the branches, but for the first one, whose newest snapshot is older than a moment, and that one."""
        found: dict[str, bytes] = {}
        for name in await self.list_branches_async() - {FIRST_BRANCH}:
            with suppress(RefNotFoundError):
                state = (await self._context.tip(name)).state
                if state.time < moment:
                    found[name] = state.snapshot
        return found

    async def _deleted_branch(self, branch: str, snapshot: bytes) -> bool:
        """Delete a branch if it is still at the snapshot that is old; tell whether that was done here."""
        try:
            await self.delete_branch_async(branch, from_snapshot_id=id_to_text(snapshot))
        except (RefNotFoundError, ConflictError):  # somebody has deleted it, or made it younger
            return False
        return True

    # -- garbage --------------------------------------------------------------------------------------------

    def garbage_collect(
        self,
        delete_object_older_than: datetime,
        *,
        full: bool = False,
        dry_run: bool = False,
        record_grace: timedelta = timedelta(seconds=RECORD_GRACE),
        nobody_writes: bool = False,
        progress: Progress | None = None,
    ) -> GCSummary:
        """Delete objects that no snapshot needs.

        Safe at any moment and for any `delete_object_older_than`, the present moment included, whatever runs
        meanwhile: sessions that wrote something before that moment and have not committed it get a
        `SessionExpiredError` when they try, and have to start again.

        Parameters
        ----------
        delete_object_older_than
            Only objects that were written before this moment are deleted, or before that of an earlier collection,
            which this one completes; it has a time zone.
        full
            Whether to look at everything.  By default a collection looks at what was written since the last one, and
            at everything only if snapshots have expired, or branches or tags were deleted or reset since.
        dry_run
            Whether only to tell what would be deleted.
        record_grace
            For how long records of branches' logs are left whose snapshots have expired; twenty minutes at least.
        nobody_writes
            Allows less: promises that no process is open that may still write.  Writers look at the log every ten
            minutes, and whoever comes back later to where records are missing could be told that a commit succeeded
            which nobody will ever see.
        progress
            Told how far it is.

        Raises
        ------
        InvalidInputError
            If the moment has no time zone, or is yet to come; if `record_grace` is no length of time, or
            too short while somebody may write.
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

    async def garbage_collect_async(
        self,
        delete_object_older_than: datetime,
        *,
        full: bool = False,
        dry_run: bool = False,
        record_grace: timedelta = timedelta(seconds=RECORD_GRACE),
        nobody_writes: bool = False,
        progress: Progress | None = None,
    ) -> GCSummary:
        """Asynchronous twin of `garbage_collect`."""
        moment = microseconds_of(delete_object_older_than, "delete_object_older_than")
        if not isinstance(record_grace, timedelta) or record_grace < timedelta(0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError(
                f"record_grace={record_grace!r} is no length of time, which a timedelta of 0 or more is"
            )
        if record_grace.total_seconds() < 2 * LONGEST_PAUSE and not nobody_writes:
            raise InvalidInputError(
                f"record_grace={record_grace!r} is less than twenty minutes, which is safe only while nobody writes; "
                "nobody_writes=True promises that"
            )
        grounds, counting = self._counted_grounds()
        watermark = watermark_at(grounds, moment)
        if not dry_run:
            check_allowed(await grounds.repository_log.table(), "garbage_collect")
        grace = record_grace.total_seconds()
        summary = await collect(grounds, watermark, full=full, dry_run=dry_run, grace=grace, progress=progress)
        self._context.repository_log.learn(grounds.repository_log)
        return replace(summary, requests=counting.counts.total)
