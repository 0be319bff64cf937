"""Changes of refs during a verification after which what it looks for may have been deleted."""

from __future__ import annotations

from arraystore._environment import Environment
from arraystore._format.record import Commit, Rewrite
from arraystore._maintenance.verification.inventory import list_all
from arraystore._maintenance.verification.roots import LogRoot, Refs, sort_refs
from arraystore._runtime.concurrency import bounded
from arraystore.errors import FormatError, ObjectNotFoundError
from arraystore.storage.protocol import Storage

_PARALLEL = 16


async def is_outdated(storage: Storage, environment: Environment, before: Refs) -> bool:
    """Tell whether snapshots may have expired, or been collected, since refs were listed."""
    now = sort_refs(await list_all(storage, "refs/"), storage, before.id, environment)
    if now.repository[-1:] != before.repository[-1:] or now.logs.keys() != before.logs.keys():
        return True

    async def lets_go(name: str) -> bool:
        return await _lets_go(before.logs[name], now.logs[name])

    return any(await bounded(lets_go, now.logs, _PARALLEL))


async def _lets_go(before: LogRoot, now: LogRoot) -> bool:
    """Tell whether a log has lost records, or got any that change more than data."""
    if now.first != before.first:
        return True
    if now.last <= before.last:
        return False
    try:
        span = await now.log.span(before.last + 1, now.last)
        entries = [now.log.decode(number, body) for number, body in span.bodies.items()]
    except (FormatError, ObjectNotFoundError):  # damaged, which the verification reports
        return False
    return not all(isinstance(entry, Commit | Rewrite) for entry in entries)
