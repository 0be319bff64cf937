"""Retirement of the logs of deleted branches that nothing references: all that is in them expires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arraystore._format.ids import CheckpointId
from arraystore._format.lifecycle import Expiry
from arraystore._format.record import Body
from arraystore._format.snapshot import checkpoint_key
from arraystore._log.branch_entries import append_when
from arraystore._log.loading import Tip
from arraystore._log.retained_snapshots import RetainedHistory
from arraystore._maintenance.checkpoints import encode_state
from arraystore._maintenance.scope import MaintenanceScope
from arraystore._runtime.concurrency import bounded

FEW_RECORDS = 8
"""Records that may stay: taking them away costs two objects, and each collection adds a fence to every log."""

_AT_ONCE = 16


def idle_logs(retained: Mapping[str, RetainedHistory], tips: Mapping[str, Tip]) -> list[Tip]:
    """Return the newest records of the logs of deleted branches that nothing references."""
    return [tip for name, tip in tips.items() if _is_idle(retained[name], tip)]


async def retire_logs(scope: MaintenanceScope, idle: Sequence[Tip]) -> dict[str, Tip]:
    """Expire logs of deleted branches that nothing references; returns the newest records of those that had more."""
    retired = await bounded(lambda tip: _retire(scope, tip), idle, _AT_ONCE)
    return {
        before.state.branch: after
        for before, after in zip(idle, retired, strict=True)
        if after.state.life.expired > before.state.life.expired
    }


def _is_idle(retained: RetainedHistory, tip: Tip) -> bool:
    """Tell whether a log is only there so that its numbers are not given again, and has more than that takes."""
    life = tip.state.life
    if not life.deleted or retained.ends:
        return False
    return life.survivors is not None or tip.sequence - life.expired > FEW_RECORDS


async def _retire(scope: MaintenanceScope, tip: Tip) -> Tip:
    log, environment = scope.log(tip.state.branch), scope.environment
    life = tip.state.life
    base = CheckpointId(environment.new_id())
    key = checkpoint_key(base)
    await scope.storage.put(key, await encode_state(log, key, tip.state))
    await scope.storage.sync()

    def expire(newest: Tip) -> Body | None:
        unchanged = newest.state.life == life and base >= newest.state.life.fence
        return Expiry(environment.now_us(), tip.sequence, base, None) if unchanged else None

    return await append_when(log, tip, expire)
