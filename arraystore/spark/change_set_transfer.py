"""How change sets get from tasks to the driver: in the result itself, or through the storage if they are large.

Results of tasks go through the memory of the driver's Java process, which refuses more than a gigabyte by default
(``spark.driver.maxResultSize``).  A change set above `MOST_INLINE` bytes is therefore written as an object under a name
of its own, and only that travels.  The object is garbage as soon as it is merged, and a collection takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgpack

from arraystore._concurrency import bounded
from arraystore._format.ids import ID_BYTES, id_to_text
from arraystore._runtime import run
from arraystore._session.fork import ForkSession
from arraystore.errors import FormatError, ObjectNotFoundError, SessionExpiredError

if TYPE_CHECKING:
    from arraystore._context import Context

__all__ = ["MOST_INLINE", "is_spilled", "receive_change_sets", "send_change_set"]

MOST_INLINE = 1 << 20
"""Bytes of a change set that travel in the result of a task: some 250,000 references."""

_NAME = "change set of a task"
_AT_ONCE = 16


def send_change_set(fork: ForkSession, most: int = MOST_INLINE) -> bytes:
    """Make durable what a fork wrote, and return what the driver needs to merge it."""
    return run(_send(fork, most))


async def _send(fork: ForkSession, most: int) -> bytes:
    changes = await fork.changes_async()
    if len(changes) <= most:
        return _packed(changes)
    identifier = fork.context.environment.new_id()
    await fork.context.storage.put(spilled_key(identifier), changes)
    await fork.context.storage.sync()
    return _packed(identifier, len(changes))


def spilled_key(identifier: bytes) -> str:
    """Return the key of a change set that travels through the storage: collections look after what lies there."""
    return "transactions/" + id_to_text(identifier)


def _packed(*values: Any) -> bytes:
    found = msgpack.packb(values, use_bin_type=True)
    assert isinstance(found, bytes)
    return found


def _read(change_set: bytes) -> bytes | tuple[bytes, int]:
    """Return the change set, or the id of the object that holds it and its size."""
    try:
        found = msgpack.unpackb(change_set, use_list=False, raw=False, max_ext_len=0)
    except Exception as error:
        raise FormatError(_NAME, f"cannot be read ({type(error).__name__})") from error
    match found:
        case (bytes() as changes,):
            return changes
        case (bytes() as identifier, int() as size) if len(identifier) == ID_BYTES and size > 0:
            return identifier, size
        case _:
            raise FormatError(_NAME, "it is neither a change set nor the name of one")


def is_spilled(change_set: bytes) -> bool:
    """Tell whether a change set travels through the storage."""
    return isinstance(_read(change_set), tuple)


def receive_change_sets(context: Context, sent: Sequence[bytes]) -> list[bytes]:
    """Return the change sets of many tasks, in their order; those that were spilled are read, so many at a time.

    Raises
    ------
    SessionExpiredError
        If a garbage collection has taken one of them away.
    FormatError
        If one is damaged.
    """
    return run(_receive(context, sent))


async def _receive(context: Context, sent: Sequence[bytes]) -> list[bytes]:
    found = [_read(change_set) for change_set in sent]
    spilled = [entry for entry in found if isinstance(entry, tuple)]
    fetched = iter(await bounded(lambda entry: _fetched(context, *entry), spilled, _AT_ONCE))
    return [next(fetched) if isinstance(entry, tuple) else entry for entry in found]


async def _fetched(context: Context, identifier: bytes, size: int) -> bytes:
    key = spilled_key(identifier)
    try:
        changes = bytes(await context.storage.get(key))
    except ObjectNotFoundError as error:
        raise SessionExpiredError(
            f"{key}, in which a task has left its changes, is gone: a garbage collection with a later cut-off than the "
            "start of this job has run meanwhile. Nothing was committed; run the job again"
        ) from error
    if len(changes) != size:
        raise FormatError(key, f"holds {len(changes)} bytes where the task has written {size}")
    return changes
