"""Transfer of change sets from tasks to the driver: in the result itself, or through the storage if they are large.

Results of Spark's tasks go through the memory of the driver's Java process, which refuses more than a gigabyte by
default (``spark.driver.maxResultSize``).  A change set above `MOST_INLINE` bytes is therefore written as an object
under a name of its own, and only that travels.  The object is unreferenced as soon as it is merged, and garbage
collection deletes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from arraystore._format.ids import ID_BYTES
from arraystore._log.branch_log import transaction_key
from arraystore._runtime import run
from arraystore._runtime.concurrency import bounded
from arraystore._runtime.plain_values import pack, unpack
from arraystore._session.fork import ForkSession
from arraystore.errors import FormatError, ObjectNotFoundError, SessionExpiredError

if TYPE_CHECKING:
    from arraystore._context.context import Context

MOST_INLINE = 1 << 20
"""Largest change set that is sent in the result of a task, in bytes: some 250,000 references."""

_NAME = "change set of a task"
_AT_ONCE = 16


def send_change_set(fork: ForkSession, most: int = MOST_INLINE) -> bytes:
    """Make the writes of a fork durable, and return its change set, or the name of the object that holds it."""
    return run(send_change_set_async(fork, most))


async def send_change_set_async(fork: ForkSession, most: int = MOST_INLINE) -> bytes:
    """Asynchronous twin of `send_change_set`."""
    changes = await fork.changes_async()
    if len(changes) <= most:
        return pack((changes,))
    identifier = fork.context.environment.new_id()
    await fork.context.storage.put(transaction_key(identifier), changes)  # garbage collection covers its prefix
    await fork.context.storage.sync()
    return pack((identifier, len(changes)))


def _read(change_set: bytes) -> bytes | tuple[bytes, int]:
    """Return the change set, or the id and the size of the object that holds it."""
    match unpack(_NAME, change_set):
        case (bytes() as changes,):
            return changes
        case (bytes() as identifier, int() as size) if len(identifier) == ID_BYTES and size > 0:
            return identifier, size
        case _:
            raise FormatError(_NAME, "it is neither a change set nor the name of one")


def is_spilled(change_set: bytes) -> bool:
    """Return whether a change set was sent through the storage."""
    return isinstance(_read(change_set), tuple)


def receive_change_sets(context: Context, sent: Sequence[bytes]) -> list[bytes]:
    """Return the change sets of many tasks in their order, reading those that were spilled from the storage."""
    return run(receive_change_sets_async(context, sent))


async def receive_change_sets_async(context: Context, sent: Sequence[bytes]) -> list[bytes]:
    """Asynchronous twin of `receive_change_sets`."""
    entries = [_read(change_set) for change_set in sent]
    spilled = [entry for entry in entries if isinstance(entry, tuple)]
    fetched = iter(await bounded(lambda entry: _fetch(context, *entry), spilled, _AT_ONCE))
    return [next(fetched) if isinstance(entry, tuple) else entry for entry in entries]


async def _fetch(context: Context, identifier: bytes, size: int) -> bytes:
    key = transaction_key(identifier)
    try:
        changes = bytes(await context.storage.get(key))
    except ObjectNotFoundError as error:
        raise SessionExpiredError(
            f"{key}, the change set of a task, was deleted: a garbage collection with a later cut-off than the "
            "start of this job has run. Nothing was committed; run the job again"
        ) from error
    if len(changes) != size:
        raise FormatError(key, f"holds {len(changes)} bytes where the task has written {size}")
    return changes
