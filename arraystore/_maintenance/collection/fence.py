"""The fence: from here on no branch takes a commit that brings in what this collection may delete."""

from __future__ import annotations

import asyncio

from arraystore._format.record import Body, Fence
from arraystore._format.repository_log import RepositoryEntry, RepositoryOperation, RepositoryTable
from arraystore._log.branch_entries import append_when
from arraystore._log.loading import Tip
from arraystore._maintenance.scope import MaintenanceScope
from arraystore.errors import InvalidInputError

__all__ = ["raise_fence", "watermark_at"]

_SLACK = 2_000_000
"""Microseconds that a moment may lie ahead: it was taken from the clock just now, perhaps by another program."""


def watermark_at(scope: MaintenanceScope, moment: int) -> bytes:
    """Return the id below which everything was made before a moment, in microseconds since 1970.

    Raises
    ------
    InvalidInputError
        If the moment is yet to come.
    """
    now = scope.environment.now_us()
    if moment > now + _SLACK:
        raise InvalidInputError("garbage can be collected up to the present moment, not up to one that is yet to come")
    return max(0, min(moment, now) // 1000).to_bytes(6, "big") + bytes(6)


async def raise_fence(scope: MaintenanceScope, watermark: bytes) -> tuple[RepositoryTable, dict[str, Tip]]:
    """Publish a watermark, then put it into the log of every branch.

    A repository's watermark never falls: where a higher one is published already, by another clock, that is the one.
    Whoever published it may have died at any point, and what is below it can be made reachable by nobody.  Branches
    that are created later begin with the watermark that is published by then.

    Returns
    -------
    RepositoryTable
        With the watermark, which is at least the one that was asked for.
    dict
        The newest record of every branch, all of them behind the fence.
    """
    now = scope.environment.now_us()

    def publish(table: RepositoryTable) -> RepositoryEntry | None:
        if table.watermark >= watermark:
            return None
        return RepositoryEntry(RepositoryOperation.WATERMARK, now, watermark=watermark)

    table = await scope.repository_log.append(publish, fresh=scope.repository_log.known.number == 0)

    def fence(tip: Tip) -> Body | None:
        life = tip.state.life
        if life.fence >= table.watermark and life.fenced >= max(life.start, life.ended):
            return None  # nothing was given up that a collection has not seen
        return Fence(max(table.watermark, life.fence), now, life.read_only)

    tips = await scope.tips(table)
    fenced = await asyncio.gather(*(append_when(scope.log(name), tip, fence) for name, tip in tips.items()))
    return table, dict(zip(tips, fenced, strict=True))
