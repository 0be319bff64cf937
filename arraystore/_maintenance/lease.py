"""A lease on a repository's maintenance, so that two jobs do not do the same work twice.

Nothing depends on it: expiry, compaction and collection are safe however many run.  Leases are numbered; whoever
creates the next number has it, and whoever has it says when it is done.  A lease that was not given back runs out.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from arraystore._environment import Environment
from arraystore._format.ids import id_to_text
from arraystore._log.branch_log import put_surely
from arraystore.errors import ArrayStoreError, ObjectNotFoundError
from arraystore.storage.protocol import Storage

__all__ = ["Lease", "LeaseTakenError", "leased"]

_PREFIX = "leases/maintenance/"


class LeaseTakenError(ArrayStoreError):
    """Somebody else maintains the repository at the moment."""


@dataclass(frozen=True)
class Lease:
    """A lease as stored.

    Parameters
    ----------
    number
        Its number.
    holder
        Whose it is; a new id for each run.
    until
        When it runs out, in microseconds since 1970, by the holder's clock.
    """

    number: int
    holder: str
    until: int


@asynccontextmanager
async def leased(storage: Storage, environment: Environment, seconds: float) -> AsyncIterator[Lease]:
    """Hold the lease.

    Parameters
    ----------
    storage, environment
        Of the repository.
    seconds
        After which others may take it over, should this process end without giving it back.

    Raises
    ------
    LeaseTakenError
        If somebody else holds it.
    """
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
                f"{storage.location} is being maintained by {held.holder}; its lease runs out in "
                f"{(held.until - environment.now_us()) / 1e6:.0f} s at most"
            )
    lease = Lease(newest + 1, id_to_text(environment.new_id()), environment.now_us() + round(seconds * 1e6))
    data = json.dumps({"holder": lease.holder, "until": lease.until}).encode()
    if not await put_surely(storage, environment, _key(lease.number), data):
        raise LeaseTakenError(f"{storage.location}: somebody else has begun to maintain it just now")
    await storage.delete(keys)
    return lease


async def _read(storage: Storage, number: int) -> Lease | None:
    """Read a lease; None if it is gone, or no lease."""
    try:
        found = json.loads(bytes(await storage.get(_key(number))))
        return Lease(number, str(found["holder"]), int(found["until"]))
    except (ObjectNotFoundError, ValueError, KeyError, TypeError):
        return None
