"""Garbage collection: the deletion of unreferenced objects."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from arraystore._context.context import Context
from arraystore._history.time_travel import microseconds_of
from arraystore._log.branch_log import LONGEST_PAUSE
from arraystore._log.status import check_allowed
from arraystore._maintenance.collection.collect import collect
from arraystore._maintenance.collection.fence import watermark_at
from arraystore._maintenance.collection.summary import GCSummary, StageProgress
from arraystore._maintenance.due import RECORD_GRACE
from arraystore._repository.scope import counted_scope
from arraystore.errors import InvalidInputError


async def garbage_collect(
    context: Context,
    delete_object_older_than: datetime,
    *,
    full: bool = False,
    dry_run: bool = False,
    record_grace: timedelta = RECORD_GRACE,
    nobody_writes: bool = False,
    progress: StageProgress | None = None,
) -> GCSummary:
    """Delete unreferenced objects."""
    time = microseconds_of(delete_object_older_than, "delete_object_older_than")
    _check_grace(record_grace, nobody_writes=nobody_writes)
    scope, counting = counted_scope(context)
    watermark = watermark_at(scope, time)
    if not dry_run:
        check_allowed(await scope.repository_log.table(), "garbage_collect")
    grace = record_grace.total_seconds()
    summary = await collect(scope, watermark, full=full, dry_run=dry_run, grace=grace, progress=progress)
    context.repository_log.learn(scope.repository_log)
    return replace(summary, requests=counting.counts.total)


def _check_grace(grace: timedelta, *, nobody_writes: bool) -> None:
    if not isinstance(grace, timedelta) or grace < timedelta(0):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"record_grace={grace!r} must be a timedelta >= 0")
    if grace.total_seconds() < 2 * LONGEST_PAUSE and not nobody_writes:
        raise InvalidInputError(
            f"record_grace={grace!r} must be >= 20 minutes, unless nothing writes to the repository, which "
            "nobody_writes=True promises"
        )
