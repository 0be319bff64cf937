"""Lease on the maintenance of a repository, which saves two jobs from doing the same work.

Safety does not depend on it: expiry, compaction and collection may run concurrently. Leases are numbered; the process
that creates the next number holds it and releases it when done. A lease that is not released expires.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from arraystore._environment import Environment
from arraystore._format.ids import id_to_text
from arraystore._log.conditional_put import put_surely
from arraystore.errors import ArrayStoreError, ObjectNotFoundError
from arraystore.storage.protocol import Storage

_PREFIX = "leases/maintenance/"


class LeaseTakenError(ArrayStoreError):
    """Another process is maintaining the repository."""


@dataclass(frozen=True)
class Lease:
    """Lease as stored."""

    number: int
    """Number in its key."""
    holder: str
    """Id of the run that holds it."""
    until: int
    """Microseconds since 1970 at which it expires, by the holder's clock."""


@asynccontextmanager
async def leased(storage: Storage, environment: Environment, seconds: float) -> AsyncIterator[Lease]:
    """Hold the lease; others may take it over after `seconds` if this process ends without releasing it."""
    lease = await _take(storage, environment, seconds)
    try:
        yield lease
    finally:
        await storage.put(_key(lease.number) + "-done", b"")


def _key(number: int) -> str:
    return f"{_PREFIX}{number:012d}"


async def _take(storage: Storage, environment: Environment, seconds: float) -> Lease:
    keys = [info.key async for page in storage.list(_PREFIX) for info in page]
    numbers = [int(text) for text in (key[len(_PREFIX) : len(_PREFIX) + 12] for key in keys) if text.isdigit()]
    newest = max(numbers, default=-1)
    if newest >= 0 and _key(newest) + "-done" not in keys:
        held = await _read(storage, newest)
        if held is not None and held.until > environment.now_us():
            raise LeaseTakenError(
                f"{storage.location} is being maintained by {held.holder}; its lease expires in "
                f"{(held.until - environment.now_us()) / 1e6:.0f} s at most; try again then"
            )
    lease = Lease(newest + 1, id_to_text(environment.new_id()), environment.now_us() + round(seconds * 1e6))
    data = json.dumps({"holder": lease.holder, "until": lease.until}).encode()
    if not await put_surely(storage, environment, _key(lease.number), data):
        raise LeaseTakenError(f"{storage.location}: another process has just begun to maintain it; try again later")
    await storage.delete(keys)
    return lease


async def _read(storage: Storage, number: int) -> Lease | None:
    """Read a lease; None if it is missing or not valid."""
    try:
        fields = json.loads(bytes(await storage.get(_key(number))))
        return Lease(number, str(fields["holder"]), int(fields["until"]))
    except (ObjectNotFoundError, ValueError, KeyError, TypeError):
        return None
