"""Fencing: the record that refuses later commits of references to objects that this collection may delete."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from arraystore._format.lifecycle import Fence
from arraystore._format.record import Body
from arraystore._format.repository_log import RepositoryEntry, RepositoryOperation, RepositoryTable
from arraystore._log.branch_entries import append_when
from arraystore._log.loading import Tip
from arraystore._maintenance.scope import MaintenanceScope
from arraystore.errors import InvalidInputError

_SLACK = 2_000_000
"""Microseconds that a time may be ahead of the clock, since another program may have read it just now."""


class FencedBranches(NamedTuple):
    """The table with the watermark, and the newest record of every branch, by name."""

    table: RepositoryTable
    tips: dict[str, Tip]


def watermark_at(scope: MaintenanceScope, time: int) -> bytes:
    """Return the id below which all objects were created before a time, in microseconds since 1970."""
    now = scope.environment.now_us()
    if time > now + _SLACK:
        raise InvalidInputError("delete_object_older_than must be <= now; pass a time that is not in the future")
    return max(0, min(time, now) // 1000).to_bytes(6, "big") + bytes(6)


async def raise_fence(scope: MaintenanceScope, watermark: bytes) -> FencedBranches:
    """Publish a watermark and fence every branch with it.

    A watermark never falls: a higher one that another clock has published is used instead, since whoever published it
    may have failed at any point. Branches created later begin with the watermark published by then.
    """
    now = scope.environment.now_us()

    def publish(table: RepositoryTable) -> RepositoryEntry | None:
        if table.watermark >= watermark:
            return None
        return RepositoryEntry(RepositoryOperation.WATERMARK, now, watermark=watermark)

    table = await scope.repository_log.append(publish, fresh=scope.repository_log.cached_table.number == 0)

    def fence(tip: Tip) -> Body | None:
        life = tip.state.life
        if life.fence >= table.watermark and life.fenced >= max(life.start, life.ended):
            return None  # the branch was not deleted or reset since its fence
        return Fence(max(table.watermark, life.fence), now, life.read_only)

    tips = await scope.tips(table)
    fenced = await asyncio.gather(*(append_when(scope.log(name), tip, fence) for name, tip in tips.items()))
    return FencedBranches(table, dict(zip(tips, fenced, strict=True)))
